// The tests' interface to the stand-in for CUDA and NCCL (cuda_runtime_api.h and nccl.h beside this
// file; cuda.cpp, nccl.cpp).
//
// Ranks are threads of this process. A stream is a thread that runs its work in order. Memory of a
// device is memory of the host at an address that only the stand-in may read and write. Any other
// access is ended by a signal, as on a GPU. Calls on communicators return ncclInProgress, and run
// only after a few queries. A call that NCCL's documentation forbids is noted as misuse: a call on
// a busy communicator, an event recorded before a call is taken, destruction before the end of
// finalisation, use after it, freeing memory that is still registered, finalisation while a graph
// holds calls, and a query of work that is being captured.
#pragma once

#include "cuda_runtime_api.h"
#include "nccl.h"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace stand_in {

/// How the stand-in behaves from now on.
struct Behaviour {
    int devices = 8; ///< 0: cudaGetDeviceCount reports that there is none
    int loaded = NCCL_VERSION_CODE;
    int questions = 3;     ///< queries before a call that was taken runs
    int silent_rank = -1;  ///< its stream runs nothing more
    int absent_rank = -1;  ///< it never joins new communicators
    int failing_rank = -1; ///< its communicators report an error instead of a call
    int good_calls = 0;    ///< of each of them before that one
    ncclResult_t failure = ncclSystemError;
    bool abort_hangs = false;
    std::size_t memory = std::size_t{1} << 40; ///< per device: larger requests are refused
    std::size_t pinned = std::size_t{1} << 40; ///< on the host: larger requests are refused
    bool copies = true;                        ///< enqueued ones; false: an error
    bool launches = true;                      ///< of graphs; false: an error
    bool windows = true;                       ///< false: no windows, as on machines without NVLink
    bool records = true;                       ///< of events; false: an error
    bool streams = true;                       ///< new ones; false: an error
    int bad_starts = 0;                        ///< communicators of several ranks that report an error when they begin
    int lost_device = -1; ///< every call for it answers an error, as CUDA's do after a fault on the device
    bool kernels = true;  ///< those of unisono::devices; false: an error of Thrust's
};
/// For the time of a test.
class Scene {
public:
    explicit Scene(const Behaviour& behaviour = {});
    Scene(const Scene&) = delete;
    Scene& operator=(const Scene&) = delete;
    ~Scene(); ///< the streams of all silent ranks continue
};

/// The numbers of existing objects.
struct Counts {
    int communicators = 0, streams = 0, events = 0, registrations = 0, operations = 0, graphs = 0, windows = 0;
    std::size_t device_bytes = 0, pinned_bytes = 0;
    int allocations = 0;                                        ///< of either so far
    int finalised = 0, destroyed = 0, aborted = 0, revoked = 0; ///< so far
    int in_progress = 0;                                        ///< answers so far
    int premultiplied = 0;                                      ///< operations made so far
    std::size_t bytes_to_host = 0, bytes_to_device = 0;         ///< copied so far, by all ranks
    int copies_to_host = 0;                                     ///< copied so far, by all ranks
    std::size_t bytes_within = 0;                               ///< copied from device to device so far
    int records = 0, queries = 0;                               ///< of events so far
    friend bool operator==(const Counts&, const Counts&) = default;
};
Counts counts();
/// Returns the calls that NCCL forbids, so far, as text, and forgets them.
std::vector<std::string> take_misuse();
/// The names of all collectives that ran since the last call.
std::vector<std::string> take_calls();

/// The address at which the host may read and write the memory at an address of a device.
std::byte* seen_by_host(const void* of_device);
/// False if kernels are to fail.
bool kernels_run();
/// Runs `work` on the stream in its order, as a kernel.
void launch(cudaStream_t stream, std::function<void()> work);

} // namespace stand_in
