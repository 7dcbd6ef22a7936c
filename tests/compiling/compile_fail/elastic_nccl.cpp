// An elastic world over an NCCL that cannot outlive a rank, or over devices of ranks that cannot be
// lost, is refused with the reason.
#define NCCL_VERSION_CODE 22907
#include "unisono/cuda.hpp"
#include "unisono/elastic.hpp"
#include "unisono/nccl.hpp"
#include "unisono/transport/in_process.hpp"

namespace un = unisono;

int main() {
#ifdef CASE_good
    // expect-success
    auto world = un::join<un::Nccl>();
    auto threads = un::join<un::Cuda<un::InProcess>>();
    auto elastic = un::join<un::Elastic<un::Cuda<un::Tcp>>>();
#endif

#ifdef CASE_before_2_30
    // expect: unisono::join: found Elastic of a transport that is not made by a control plane
    // expect: Nccl with the headers of NCCL 2.30 or newer
    // expect: NCCL before 2.30 cannot end the work on a communicator without that rank
    un::join<un::Elastic<un::Nccl>>();
#endif

#ifdef CASE_threads_with_devices
    // expect: unisono::join: found Elastic of a transport that is not made by a control plane
    // expect: Cuda of one of these
    // expect: Why: the threads of InProcess die together
    un::join<un::Elastic<un::Cuda<un::InProcess>>>();
#endif
}
