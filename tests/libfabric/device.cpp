// Memory of a device directly over libfabric, over the stand-in for CUDA. libfabric finds the
// memory at another address, and may not touch it at the program's address. Data that are not
// combined have the same bits as through the host, and no byte crosses the bus.
#include "device_support.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace libfabric_device_tests {

namespace un = unisono;
using test::device::Clean;
using test::device::download;
using test::device::told;
using test::device::upload;
using test::device::World;

/// The bytes that `body` copies over the bus in total, between barriers.
template <class Body>
std::size_t over_the_bus(World& world, Body body) {
    un::barrier(world);
    const stand_in::Counts before = stand_in::counts();
    un::barrier(world);
    body();
    un::barrier(world);
    const stand_in::Counts after = stand_in::counts();
    un::barrier(world);
    return after.bytes_to_host - before.bytes_to_host + after.bytes_to_device - before.bytes_to_device;
}

/// `count` numbers of each rank, in the order of ranks.
std::vector<int> all_of(int ranks, const std::vector<std::size_t>& counts) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) {
        const auto one = oracle::contribution<int>(rank, counts[static_cast<std::size_t>(rank)]);
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

template <class Family>
void check(World& world, test::Findings& findings, bool direct, const std::string& name, const Family& family) {
    const int ranks = world.size();
    const auto me = static_cast<std::size_t>(world.rank());
    const bool is_root = world.rank() == ranks - 1;
    const std::size_t count = 120'000; // 480 kB: several pieces of 100 kB
    const auto expect = [&](const std::string& what, bool right, std::size_t bytes, bool may_stage = false) {
        findings.expect(right, name + " " + what);
        if (!may_stage) findings.expect((bytes == 0) == direct, name + " " + what + ": " + std::to_string(bytes));
    };
    const auto data = upload(world, oracle::contribution<int>(world.rank(), count));
    std::size_t bytes = over_the_bus(world, [&] { un::broadcast(world, data.span(), ranks - 1, family); });
    expect("broadcast", download(data.span()) == oracle::contribution<int>(ranks - 1, count), bytes);

    // Different blocks: one is empty, and some are small, which their ranks send from host memory.
    for (const bool equal : {true, false}) {
        std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), count);
        for (std::size_t i = 0; i < counts.size() && !equal; ++i) counts[i] = i == 0 ? 0 : i == 1 ? 3000 : 70'000;
        const std::span<const std::size_t> said = equal ? std::span<const std::size_t>() : counts;
        const std::vector<int> expected = all_of(ranks, counts);
        const auto own = oracle::contribution<int>(world.rank(), counts[me]);
        const auto mine = upload(world, own);
        const auto all = upload(world, std::vector<int>(expected.size(), -1));
        bytes = over_the_bus(world, [&] { un::all_gather(world, mine.span(), all.span(), said, family); });
        expect("all_gather", download(all.span()) == expected, bytes, expected.size() < 20'000);
        const auto gathered = upload(world, std::vector<int>(is_root ? expected.size() : 0, -1));
        bytes = over_the_bus(world, [&] { un::gather(world, mine.span(), gathered.span(), ranks - 1, said, family); });
        const bool may_stage = !equal || !std::is_same_v<Family, un::DirectSchedule>;
        expect("gather", !is_root || download(gathered.span()) == expected, bytes, may_stage);
        const auto whole = upload(world, is_root ? expected : std::vector<int>());
        const auto part = upload(world, std::vector<int>(counts[me], -1));
        bytes = over_the_bus(world, [&] { un::scatter(world, whole.span(), part.span(), ranks - 1, said, family); });
        expect("scatter", download(part.span()) == own, bytes, may_stage);
    }
    std::vector<int> out(30'000 * static_cast<std::size_t>(ranks)), in(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<int>(1'000'000 * me + i);
        in[i] = static_cast<int>(1'000'000 * (i / 30'000) + 30'000 * me + i % 30'000);
    }
    const auto from = upload(world, out), to = upload(world, std::vector<int>(out.size(), -1));
    bytes = over_the_bus(world, [&] { un::all_to_all(world, from.span(), to.span()); });
    expect("all_to_all", download(to.span()) == in, bytes);
    un::all_reduce(world, from.span()); // combined on the host meanwhile
    std::vector<int> sum(out.size());
    for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] = static_cast<int>(500'000 * static_cast<std::size_t>(ranks * (ranks - 1)) +
                                  i * static_cast<std::size_t>(ranks));
    findings.expect(download(from.span()) == sum, name + " all_reduce");
}

bool is_here(const char* provider) {
    try {
        const un::detail::FabricDevice there({.provider = provider}, false);
    } catch (const un::error& failed) {
        BOOST_TEST_MESSAGE("left out: " << failed.what());
        return false;
    }
    return true;
}

BOOST_AUTO_TEST_SUITE(libfabric_device)

BOOST_AUTO_TEST_CASE(as_the_staged_way) {
    const Clean clean;
    const test::Variable pieces("UNISONO_PIECE_BYTES", "100000");
    for (const char* const provider : {"net", "tcp;ofi_rxm"}) {
        if (!is_here(provider)) continue;
        const test::Variable named("UNISONO_PROVIDER", provider);
        for (const char* const way : {"direct", "staged"}) {
            const test::Variable said("UNISONO_DEVICE_TRANSFERS", way);
            for (const int ranks : {2, 3}) {
                if (std::string(provider) != "net" && (ranks == 2 || std::string(way) == "staged")) continue;
                test::Findings findings;
                un::run<un::Cuda<un::Libfabric>>(
                    ranks,
                    [&](World& world) {
                        const bool direct = std::string(way) == "direct";
                        findings.expect(world.endpoint().goes_directly() == direct, "the way");
                        const std::string name = std::string(provider) + " " + way;
                        check(world, findings, direct, name, un::NativeSchedule{});
                        check(world, findings, direct, name, un::DirectSchedule{});
                    },
                    test::device::limit);
            }
        }
    }
}

/// The library's memory is registered once, other memory for each operation. Both stay registered
/// while they are used.
BOOST_AUTO_TEST_CASE(registrations) {
    const Clean clean;
    test::Findings findings;
    un::run<un::Cuda<un::Libfabric>>(
        2,
        [&](World& world) {
            const std::uint64_t before = world.endpoint().registrations();
            const auto data = upload(world, std::vector<int>(50'000, world.rank()));
            void* theirs = nullptr;
            un::detail::check_cuda(cudaMalloc(&theirs, 200'000), "cudaMalloc");
            const un::DeviceSpan<int> other(static_cast<int*>(theirs), 50'000);
            for (int i = 0; i < 3; ++i) un::broadcast(world, data.span(), 0);
            findings.expect(world.endpoint().registrations() == before + 1, "the library's");
            for (int i = 0; i < 3; ++i) un::broadcast(world, other, 0);
            findings.expect(world.endpoint().registrations() == before + 4, "the program's");
            un::detail::check_cuda(cudaFree(theirs), "cudaFree");
            findings.expect(download(data.span()) == std::vector<int>(50'000, 0), "broadcast");
        },
        test::device::limit);
}

/// Many operations at once, some on the same memory, and a late rank: messages to it wait at their
/// senders.
BOOST_AUTO_TEST_CASE(late_receives_and_what_overlaps) {
    const Clean clean;
    test::Findings findings;
    un::run<un::Cuda<un::Libfabric>>(
        2,
        [&](World& world) {
            const auto first = upload(world, std::vector<int>(100'000, world.rank()));
            const auto second = upload(world, std::vector<int>(100'000, 10 + world.rank()));
            const auto all = upload(world, std::vector<int>(200'000, -1));
            const std::size_t bytes = over_the_bus(world, [&] {
                if (world.rank() == 1) std::this_thread::sleep_for(300ms);
                std::vector<un::Operation> some;
                some.push_back(un::start_broadcast(world, first.span(), 0));
                some.push_back(un::start_broadcast(world, second.span(), 1));
                // Of the first one's result.
                some.push_back(un::start_all_gather(world, first.span(), all.span()));
                some.push_back(un::start_broadcast(world, first.span(), 1)); // while that is sent
                for (std::size_t i = some.size(); i-- != 0;) some[i].wait();
            });
            findings.expect(bytes == 0, "over the bus: " + std::to_string(bytes));
            findings.expect(download(first.span()) == std::vector<int>(100'000, 0), "first");
            findings.expect(download(second.span()) == std::vector<int>(100'000, 11), "second");
            findings.expect(download(all.span()) == std::vector<int>(200'000, 0), "all");
        },
        test::device::limit);
}

/// A message leaves after earlier work on its stream. Work after the operation on a stream sees the
/// received data.
BOOST_AUTO_TEST_CASE(streams_before_and_after) {
    const Clean clean;
    static constexpr std::size_t count = 50'000;
    std::atomic<bool> open = false;
    test::Findings findings;
    un::run<un::Cuda<un::Libfabric>>(
        2,
        [&](World& world) {
            const un::detail::CudaStream mine = un::detail::CudaStream::make();
            const auto data = upload(world, std::vector<int>(count, -1));
            auto* const seen = reinterpret_cast<int*>(stand_in::seen_by_host(data.data()));
            if (world.rank() == 0) {
                stand_in::launch(world.endpoint().stream(), [&open, seen] {
                    for (int i = 0; i < 3000 && !open; ++i) std::this_thread::sleep_for(10ms);
                    std::fill_n(seen, count, 7);
                });
            }
            un::Operation sent = un::start_broadcast(world, data.span(), 0);
            for (int i = 0; i < 100; ++i) {
                findings.expect(!sent.poll(), "done before the kernel");
                std::this_thread::sleep_for(1ms);
            }
            un::barrier(world);
            open = true;
            sent.then(mine.get());
            stand_in::launch(mine.get(), [seen] {
                for (std::size_t i = 0; i < count; ++i) seen[i] += 1;
            });
            un::detail::check_cuda(cudaStreamSynchronize(mine.get()), "cudaStreamSynchronize");
            if (world.rank() == 1) findings.expect(download(data.span()) == std::vector<int>(count, 8), "then");
            sent.wait();
        },
        test::device::limit);
}

/// A transfer that stalls ends at the deadline. Afterwards nothing writes to the memory, which is
/// the program's again.
BOOST_AUTO_TEST_CASE(faults_in_the_middle) {
    const Clean clean;
    static constexpr std::size_t count = 4'000'000;
    const auto absent = told(
        2,
        [&](World& world) {
            const auto data = upload(world, std::vector<int>(count, world.rank()));
            if (world.rank() == 0) {
                un::Operation sent = un::start_broadcast(world, data.span(), 0);
                for (int i = 0; i < 4; ++i) { // each for up to three pieces of sixteen
                    static_cast<void>(sent.poll());
                    std::this_thread::sleep_for(10ms);
                }
                for (int i = 0; i < 3000; ++i) { // computes, and checks its world now and then
                    std::this_thread::sleep_for(10ms);
                    world.check();
                }
            }
            un::Operation got = un::start_broadcast(world, data.span(), 0);
            try {
                got.wait();
            } catch (const un::error&) {
                auto* const seen = reinterpret_cast<int*>(stand_in::seen_by_host(data.data()));
                std::fill_n(seen, count, 5);
                std::this_thread::sleep_for(200ms);
                if (std::any_of(seen, seen + count, [](int one) { return one != 5; }))
                    throw std::runtime_error("somebody wrote to it");
                throw;
            }
        },
        2s);
    for (const std::string& one : absent)
        BOOST_TEST(test::mentions(one, {"waited 2000 ms for broadcast", "rank 0"}), one);
    const auto thrown = told(3, [&](World& world) {
        const auto data = upload(world, std::vector<int>(count, 1));
        if (world.rank() == 2) {
            un::Operation sent = un::start_broadcast(world, data.span(), 0);
            for (int i = 0; i < 5; ++i) static_cast<void>(sent.poll());
            throw std::runtime_error("no more"); // in the middle of it
        }
        for (int i = 0; i < 20; ++i) un::broadcast(world, data.span(), 0);
    });
    BOOST_TEST(thrown[2] == "no more");
    for (const std::size_t rank : {0u, 1u}) BOOST_TEST(test::mentions(thrown[rank], {"rank 2"}), thrown[rank]);
    const auto other = told(2, [](World& world) {
        const std::size_t each = world.rank() == 1 ? 99'999 : 100'000;
        const auto data = upload(world, std::vector<int>(3 * each, 1));
        un::all_gather(world, data.span().subspan(0, each), data.span().subspan(each, 2 * each));
    });
    for (const std::string& one : other) BOOST_TEST(test::mentions(one, {"100000 int32", "99999 int32"}), one);
}

BOOST_AUTO_TEST_CASE(what_is_refused) {
    const Clean clean;
    {
        const std::vector<std::byte> memory(65536);
        for (const char* const provider : {"net", "tcp;ofi_rxm", "shm"}) { // CUDA's, without CUDA
            if (!is_here(provider)) continue;
            const un::detail::FabricDevice device(
                {.provider = provider, .device_memory = {.probe = memory.data(), .probe_bytes = memory.size()}}, false);
            BOOST_TEST(device.is_open());
            BOOST_TEST(!device.moves_device_memory());
            BOOST_TEST(!device.device_memory_problem().empty());
        }
    }
    if (is_here("shm")) {
        const test::Variable named("UNISONO_PROVIDER", "shm");
        const auto body = [](World& world) { BOOST_TEST(!world.endpoint().goes_directly()); };
        un::run<un::Cuda<un::Libfabric>>(2, body, test::device::limit);
        const test::Variable said("UNISONO_DEVICE_TRANSFERS", "direct");
        BOOST_CHECK_EXCEPTION(un::run<un::Cuda<un::Libfabric>>(2, body), un::error, [](const un::error& failed) {
            return failed.code() == un::ErrorCode::refused && test::mentions(failed.what(), {"rank", "shm", "copies"});
        });
    }
    BOOST_CHECK_EXCEPTION(
        un::Cuda<un::Tcp>(std::make_shared<un::Tcp::World>(2), 0, {.transfers = un::DeviceTransfers::direct}),
        un::error, [](const un::error& failed) {
            return test::mentions(failed.what(), {"over tcp", "rank 0"});
        });
    using Options = un::CudaOptions<un::Libfabric>;
    BOOST_CHECK_THROW((void)Options{}.with({{"UNISONO_DEVICE_TRANSFERS", "maybe"}}), un::error);
    BOOST_TEST((Options{}.with({{"UNISONO_DEVICE_TRANSFERS", "staged"}}).transfers == un::DeviceTransfers::staged));
}

/// Ranks that join agree: all of them transfer directly, or none. All are told which rank cannot.
BOOST_AUTO_TEST_CASE(ranks_that_join_agree) {
    const Clean clean;
    for (const auto& ways : {std::pair(un::DeviceTransfers::direct, un::DeviceTransfers::direct),
                             std::pair(un::DeviceTransfers::automatic, un::DeviceTransfers::staged),
                             std::pair(un::DeviceTransfers::direct, un::DeviceTransfers::staged)}) {
        const un::DeviceTransfers first = ways.first, second = ways.second;
        const auto ends = test::device::joined(3, [&](int rank) { return rank == 1 ? second : first; });
        for (const std::string& end : ends) {
            if (second == un::DeviceTransfers::direct) BOOST_TEST(end == "directly");
            else if (first == un::DeviceTransfers::automatic) BOOST_TEST(end == "staged");
            else BOOST_TEST(test::mentions(end, {"rank 1", "direct transfers of memory of devices"}), end);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace libfabric_device_tests
