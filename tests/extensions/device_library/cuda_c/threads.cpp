// Runs a program of examples/existing_code/cuda_c on ranks that are threads of this process, as
// NCCL's stand-in needs them: threads RANKS [LAUNCH]. Rank 1 throws at the kernel launch of this
// number, if one is given. check.py compiles it: UNISONO_TEST_PROGRAM is the program, and with
// UNISONO_TEST_AFTER it is the one with Unisono. On a GPU (tests/on_gpu.sh) nvcc does.
#include <cuda_runtime.h>

#include <barrier>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>
#include <nccl.h>

namespace test {

inline int ranks = 1;
inline thread_local int my_rank = 0;
inline std::optional<std::barrier<>> all;
inline void* shared = nullptr;

} // namespace test

int MPI_Init(int*, char***) { return 0; }
int MPI_Finalize() { return 0; }
int MPI_Comm_rank(MPI_Comm, int* rank) { return *rank = test::my_rank, 0; }
int MPI_Comm_size(MPI_Comm, int* ranks) { return *ranks = test::ranks, 0; }
int MPI_Bcast(void* data, int bytes, MPI_Datatype, int root, MPI_Comm) {
    if (test::my_rank == root) test::shared = data;
    test::all->arrive_and_wait();
    if (test::my_rank != root) std::memcpy(data, test::shared, static_cast<std::size_t>(bytes));
    test::all->arrive_and_wait();
    return 0;
}

#ifdef UNISONO_TEST_AFTER
#include <unisono/join.hpp>
#include <unisono/nccl.hpp>
#include <unisono/unisono.hpp>

namespace test {

inline unisono::RendezvousPoint point;

} // namespace test

namespace unisono {

/// `join`, for a thread in place of a process that a launcher has started.
template <class Transport>
Group<Transport> join_of_thread(const JoinOptions& options) {
    return join<Transport>(rendezvous(identity_of(test::my_rank, test::ranks), test::point, options.rendezvous),
                           options);
}

} // namespace unisono
#define join join_of_thread
#endif

#define main program // NOLINT: the program's
#include UNISONO_TEST_PROGRAM
#undef main
#undef join

int main(int argc, char** argv) {
    test::ranks = argc > 1 ? std::atoi(argv[1]) : 1;
#ifdef UNISONO_TEST_ON_GPU
    int devices = 0, version = 0;
    const char* const share = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    if (cudaGetDeviceCount(&devices) != cudaSuccess || ncclGetVersion(&version) != ncclSuccess) return 2;
    if (share != nullptr && std::string(share) == "1" && version >= 23000) devices *= 2; // two ranks share one
    if (test::ranks > devices) {
        std::fprintf(stderr, "skipped: %d ranks, but the devices here can have %d\n", test::ranks, devices);
        return 77;
    }
#endif
    test::all.emplace(test::ranks);
#ifdef UNISONO_TEST_AFTER
    test::point.host = "127.0.0.1";
    test::point.port = unisono::detail::listen_at(true, 0).port; // free just now
    test::point.token = unisono::JobToken::random();
#endif
#ifndef UNISONO_TEST_ON_GPU
    const stand_in::Scene calls_are_taken_at_once({.questions = 0});
#endif
    std::vector<int> statuses(static_cast<std::size_t>(test::ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < test::ranks; ++rank)
        threads.emplace_back([&, rank] {
            test::my_rank = rank;
#ifndef UNISONO_TEST_ON_GPU
            if (rank == 1 && argc > 2) stand_in::launches_left = std::atoi(argv[2]);
#endif
#ifdef UNISONO_TEST_AFTER
            statuses[static_cast<std::size_t>(rank)] = program();
#else
            statuses[static_cast<std::size_t>(rank)] = program(0, nullptr);
#endif
        });
    for (std::thread& one : threads) one.join();
    for (const int status : statuses)
        if (status != 0) return status;
    return 0;
}
