// Run by mpirun of each MPI: ranks with a device over MPI, over the stand-in for CUDA. MPI finds
// the device's memory at another address, and may not access it at the program's address. Data that
// are not combined move directly, without a byte over the bus. Rank 0 prints "ok", or each rank
// what is wrong.
//     device_messages           everything that ends well
//     device_messages mismatch  rank 1 broadcasts another number of elements: all ranks fail
//     device_messages silent    rank 1 takes no part: timeout
#include "nccl/stand_in/stand_in.hpp"

#include <unisono/extensions/network/device_memory.hpp>

template <>
struct unisono::detail::SightOfDevice<cudaStream_t> {
    static constexpr bool of_host = true;
    static constexpr std::byte* (*seen)(const std::byte*) = [](const std::byte* data) {
        return stand_in::seen_by_host(data);
    };
};

#include <unisono/cuda.hpp>
#include <unisono/mpi.hpp>
#include <unisono/unisono.hpp>

#define UNISONO_TEST_TRANSPORT unisono::Cuda<unisono::Mpi>
#include "nccl/support.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace un = unisono;
using test::download;
using test::upload;
using World = test::Group;
using Way = un::DeviceTransfers;
static_assert(un::detail::told_of_devices<un::Mpi>);

void require(bool right, const std::string& what) {
    if (!right) throw std::runtime_error("wrong: " + what);
}

std::vector<int> numbers(int rank, std::size_t count) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), 1'000'000 * rank);
    return values;
}

/// The number of bytes that `body` copies over this rank's bus.
template <class Body>
std::size_t over_the_bus(Body body) {
    const stand_in::Counts before = stand_in::counts();
    body();
    const stand_in::Counts after = stand_in::counts();
    return after.bytes_to_host - before.bytes_to_host + after.bytes_to_device - before.bytes_to_device;
}

/// `late`: rank 1 begins each operation after the others' messages arrive. `mixed`: messages from
/// other ranks' host memory may pass through the host.
template <class Family>
void check(World& world, const std::string& name, bool expects_direct, bool mixed, bool late, const Family& family) {
    const int ranks = world.size(), last = ranks - 1;
    const auto p = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(world.rank());
    const std::size_t count = 120'000; // 480 kB: several pieces of 100 kB
    const auto moved = [&](const std::string& what, auto body) {
        un::barrier(world);
        if (late && world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
        const std::size_t bytes = over_the_bus(body);
        if (ranks > 1 && !mixed)
            require((bytes == 0) == expects_direct, name + what + ": " + std::to_string(bytes) + " bytes");
    };
    const auto data = upload(world, numbers(world.rank(), count));
    moved("broadcast", [&] { un::broadcast(world, data.span(), last, family); });
    require(download(data.span()) == numbers(last, count), name + "broadcast");

    std::vector<int> expected;
    for (int rank = 0; rank < ranks; ++rank) {
        const auto one = numbers(rank, count);
        expected.insert(expected.end(), one.begin(), one.end());
    }
    const auto mine = upload(world, numbers(world.rank(), count));
    const auto all = upload(world, std::vector<int>(expected.size(), -1));
    moved("all_gather", [&] { un::all_gather(world, mine.span(), all.span(), {}, family); });
    require(download(all.span()) == expected, name + "all_gather");

    std::vector<int> out(30'000 * p), in(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<int>(1'000'000 * me + i);
        in[i] = static_cast<int>(1'000'000 * (i / 30'000) + 30'000 * me + i % 30'000);
    }
    const auto from = upload(world, out), to = upload(world, std::vector<int>(out.size(), -1));
    moved("all_to_all", [&] { un::all_to_all(world, from.span(), to.span()); });
    require(download(to.span()) == in, name + "all_to_all");

    un::all_reduce(world, mine.span()); // combined on the host
    std::vector<int> sum(count);
    for (std::size_t i = 0; i < count; ++i)
        for (int rank = 0; rank < ranks; ++rank) sum[i] += 1'000'000 * rank + static_cast<int>(i);
    require(download(mine.span()) == sum, name + "all_reduce");

    // Several at once, waited for in another order, and small ones, which pass through the host.
    const auto first = upload(world, numbers(world.rank(), count)), second = upload(world, numbers(world.rank(), 100));
    const auto third = upload(world, numbers(world.rank(), count));
    un::Operation a = un::start_broadcast(world, first.span(), 0, family);
    un::Operation b = un::start_broadcast(world, second.span(), last, family);
    un::Operation c = un::start_broadcast(world, third.span(), last, family);
    c.wait();
    b.wait();
    a.wait();
    require(download(first.span()) == numbers(0, count) && download(second.span()) == numbers(last, 100) &&
                download(third.span()) == numbers(last, count),
            name + "several");
}

World world_of(Way way) {
    World world(un::Cuda<un::Mpi>(un::Mpi::adopt(MPI_COMM_WORLD), 0, {.piece_bytes = 100'000, .transfers = way}));
    world.set_timeout(std::chrono::seconds(30));
    return world;
}

void ends_well() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    require(!un::detail::mpi_is_cuda_aware(), "Debian's MPIs are built without");
    for (const Way way : {Way::automatic, Way::staged}) {
        World world = world_of(way);
        const bool direct = way != Way::staged;
        require(world.endpoint().goes_directly() == direct, "the way");
        for (const bool late : {false, true}) {
            check(world, direct ? "direct " : "staged ", direct, false, late, un::NativeSchedule{});
            check(world, direct ? "direct " : "staged ", direct, false, late, un::RingSchedule{.chunk_bytes = 70'000});
        }
        un::barrier(world);
    }
    // To the other ranks the messages are the same.
    World mixed = world_of(rank == 0 ? Way::staged : Way::automatic);
    if (mixed.size() > 1) check(mixed, "mixed ", rank != 0, true, true, un::NativeSchedule{});
    un::barrier(mixed);
}

int goes_wrong(const std::string& what) {
    World world = world_of(Way::automatic);
    world.set_timeout(std::chrono::seconds(what == "silent" ? 2 : 30));
    const auto data = upload(world, numbers(world.rank(), 120'000));
    un::broadcast(world, data.span(), 0);
    try {
        if (what == "silent" && world.rank() == 1) {
            std::this_thread::sleep_for(std::chrono::seconds(4));
            throw std::runtime_error("slept");
        }
        un::broadcast(world, data.span().subspan(0, world.rank() == 1 ? 119'999u : 120'000u), 0);
        un::barrier(world);
    } catch (const un::error& told) {
        std::printf("rank %d told: %s\n", world.rank(), told.what());
    } catch (const std::exception&) {
    }
    return 1;
}

} // namespace

int main(int argc, char** argv) {
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    int status = 0, rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    try {
        if (argc > 1) {
            status = goes_wrong(argv[1]);
        } else {
            ends_well();
            if (rank == 0) std::puts("ok");
        }
    } catch (const std::exception& failed) {
        std::printf("rank %d failed: %s\n", rank, failed.what());
        status = 1;
    }
    std::fflush(stdout);
    MPI_Finalize();
    return status;
}
