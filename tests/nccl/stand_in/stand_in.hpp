// What tests ask of the stand-in for CUDA and NCCL (cuda_runtime_api.h and nccl.h beside this file; stand_in.cpp).
//
// Ranks are threads of this process. A stream is a thread that carries out what it is given, in order. Memory of a device is memory of
// the host at an address that only the stand-in may read and write: whoever else does, is ended by a signal, as on a GPU. Calls on
// communicators answer ncclInProgress, and are carried out only when they have been asked for a few times. A call that
// NCCL's documentation forbids is noted as misuse: on a busy communicator, an event recorded while a call is not yet taken, a
// destruction before the end of the finalisation, use after it, memory that is freed while it is registered, an end while a graph
// holds calls; and a question to what is being captured.
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
    int devices = 8; ///< 0: cudaGetDeviceCount says that there is none
    int loaded = NCCL_VERSION_CODE;
    int questions = 3;     ///< until a call that was taken is carried out
    int silent_rank = -1;  ///< whose stream carries out nothing any more
    int absent_rank = -1;  ///< which never comes to new communicators
    int failing_rank = -1; ///< whose communicators report an error once a collective has been asked of them
    ncclResult_t failure = ncclSystemError;
    bool abort_hangs = false;
    std::size_t memory = std::size_t{1} << 40; ///< of a device: larger requests are refused
    std::size_t pinned = std::size_t{1} << 40; ///< memory of the host: larger requests are refused
    bool copies = true;                        ///< that are enqueued; else an error
    bool launches = true;                      ///< graphs; else an error
    bool windows = true;                       ///< else windows are not to be had, as on machines without NVLink
};
/// For the time of a test.
class Scene {
public:
    explicit Scene(const Behaviour& behaviour = {});
    Scene(const Scene&) = delete;
    Scene& operator=(const Scene&) = delete;
    ~Scene(); ///< of all that were silent the streams go on
};

/// What there is of each.
struct Counts {
    int communicators = 0, streams = 0, events = 0, registrations = 0, operations = 0, graphs = 0, windows = 0;
    std::size_t device_bytes = 0, pinned_bytes = 0;
    int finalised = 0, destroyed = 0, aborted = 0;      ///< so far
    int in_progress = 0;                                ///< answers so far
    int premultiplied = 0;                              ///< operations made so far
    std::size_t bytes_to_host = 0, bytes_to_device = 0; ///< copied so far, by all ranks
    int copies_to_host = 0;                             ///< the same
    std::size_t bytes_within = 0;                       ///< copied from device to device so far
    friend bool operator==(const Counts&, const Counts&) = default;
};
Counts counts();
/// Calls that NCCL forbids, so far, in words; and forgets them.
std::vector<std::string> take_misuse();
/// All collectives that were carried out since the last time, by name.
std::vector<std::string> take_calls();

/// All may touch memory of devices from now on, or none: as an MPI that is CUDA-aware does.
void open_to_all(bool open);
/// Where the host may read and write what lies at an address of a device.
std::byte* seen_by_host(const void* of_device);
/// Carries out `work` on the stream, in its turn: a kernel.
void launch(cudaStream_t stream, std::function<void()> work);

} // namespace stand_in
