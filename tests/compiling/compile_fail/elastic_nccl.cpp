// An elastic world over an NCCL that cannot outlive a rank is refused with the reason.
#define NCCL_VERSION_CODE 22907
#include "unisono/elastic.hpp"
#include "unisono/nccl.hpp"

namespace un = unisono;

int main() {
// case: good
// expect-success
#ifdef CASE_good
    auto world = un::join<un::Nccl>();
#endif

// case: before_2_30
// expect: unisono::join: found Elastic of a transport that is not made by a control plane
// expect: Nccl with the headers of NCCL 2.30 or newer
// expect: NCCL before 2.30 cannot end the work on a communicator without that rank
#ifdef CASE_before_2_30
    un::join<un::Elastic<un::Nccl>>();
#endif
}
