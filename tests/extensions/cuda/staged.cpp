// Collectives on memory of a device over sockets: through pinned memory, in pieces. Their bits are
// those of collectives on the host.
#include "support.hpp"

#ifdef UNISONO_TEST_ON_GPU
#include "support/needs_gpu.hpp"
#endif

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;
using test::Affine;
using test::before_a_stream_stands_still;
using test::Clean;
using test::download;
using test::expect_all;
using test::Group;
using test::hold_back;
using test::launch;
using test::rough;
using test::SmallPieces;
using test::told;
using test::upload;
#ifndef UNISONO_TEST_ON_GPU // what no GPU can be asked to do
using stand_in::Scene;
#endif

namespace {

/// The bytes that have crossed the bus, for all ranks. Nothing counts them on a GPU.
struct Crossed {
    std::size_t to_host = 0, to_device = 0;
};
#ifdef UNISONO_TEST_ON_GPU
constexpr bool counts_bytes = false;
Crossed crossed() { return {}; }
#else
constexpr bool counts_bytes = true;
Crossed crossed() {
    const stand_in::Counts now = stand_in::counts();
    return {.to_host = now.bytes_to_host, .to_device = now.bytes_to_device};
}
#endif

/// Keeps the element of larger magnitude: an operation of the program, which NCCL could not do.
struct Farthest {
    float operator()(float a, float b) const { return (a < 0 ? -a : a) < (b < 0 ? -b : b) ? b : a; }
};

template <class Op, class Family>
void same_bits(Group& group, test::Findings& findings, std::size_t count, const Op& op, const Family& family) {
    const auto mine = rough(group.rank(), count);
    auto host = mine;
    un::all_reduce(group, host, op, family);
    const std::string name =
        std::string(Family::name) + " of " + std::to_string(count) + " on " + std::to_string(group.size());
    const auto in = upload(group, mine);
    const auto out = upload(group, std::vector<float>(count, -1.0f));
    un::all_reduce(group, in.span(), out.span(), op, family);
    findings.expect(download(out.span()) == host, name);
    findings.expect(download(in.span()) == mine, name + ": the input");
    un::all_reduce(group, in.span(), op, family);
    findings.expect(download(in.span()) == host, name + " in place");
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_staged)

BOOST_AUTO_TEST_CASE(the_bits_of_the_host) {
    const Clean clean;
    for (const int world : {1, 2, 3}) {
        test::on_ranks(world, [&](Group& group, test::Findings& findings) {
            for (const std::size_t count : {0u, 7u, 3001u}) {
                const double weight = group.rank() + 0.5;
                same_bits(group, findings, count, un::Sum{}, un::RingSchedule{.chunk_bytes = 512});
                same_bits(group, findings, count, un::Sum{}, un::HalvingDoublingSchedule{.chunk_bytes = 2048});
                same_bits(group, findings, count, un::Sum{}, un::NativeSchedule{});
                same_bits(group, findings, count, un::WeightedMean{weight}, un::RingSchedule{.chunk_bytes = 512});
                same_bits(group, findings, count, Farthest{}, un::RingSchedule{});
            }
            // 2.7 MiB.
            if (world == 2) same_bits(group, findings, 700'000, un::Sum{}, un::NativeSchedule{});
            same_bits(group, findings, 3001, un::WeightedMean{0}, un::NativeSchedule{});
        });
    }
}

BOOST_AUTO_TEST_CASE(the_other_collectives) {
    const Clean clean;
    const SmallPieces small;
    for (const int world : {1, 3}) {
        test::on_ranks(world, [&](Group& group, test::Findings& findings) {
            const auto all_of_them = [&](const auto& family) {
                const auto ranks = static_cast<std::size_t>(world);
                const auto me = static_cast<std::size_t>(group.rank());
                const int root = world / 2;
                const bool is_root = group.rank() == root;
                for (const bool equal : {true, false}) {
                    std::vector<std::size_t> counts(ranks, 1000);
                    for (std::size_t i = 0; i < ranks && !equal; ++i) counts[i] = 700 * (ranks - 1 - i);
                    const std::span<const std::size_t> said =
                        equal ? std::span<const std::size_t>() : std::span<const std::size_t>(counts);
                    std::vector<int> expected;
                    for (std::size_t i = 0; i < ranks; ++i) {
                        const auto one = oracle::contribution<int>(static_cast<int>(i), counts[i]);
                        expected.insert(expected.end(), one.begin(), one.end());
                    }
                    const std::vector<int> own = oracle::contribution<int>(group.rank(), counts[me]);
                    const auto mine = upload(group, own);
                    const auto all = upload(group, std::vector<int>(expected.size(), -1));
                    un::all_gather(group, mine.span(), all.span(), said, family);
                    findings.expect(download(all.span()) == expected, "all_gather");
                    const auto part = upload(group, std::vector<int>(counts[me], -1));
                    un::reduce_scatter(group, all.span(), part.span(), un::Sum{}, said, family);
                    auto summed = download(part.span());
                    for (int& one : summed) one /= world;
                    findings.expect(summed == own, "reduce_scatter");
                    const auto gathered = upload(group, std::vector<int>(is_root ? expected.size() : 0, -1));
                    un::gather(group, mine.span(), gathered.span(), root, said, family);
                    findings.expect(!is_root || download(gathered.span()) == expected, "gather");
                    const auto whole = upload(group, is_root ? expected : std::vector<int>());
                    un::scatter(group, whole.span(), part.span(), root, said, family);
                    findings.expect(download(part.span()) == own, "scatter");
                }
                const auto data = upload(group, oracle::contribution<int>(group.rank(), 999));
                const auto sum = upload(group, std::vector<int>(is_root ? 999 : 0, -1));
                un::reduce(group, data.span(), sum.span(), root, un::Sum{}, family);
                findings.expect(!is_root || download(sum.span()) == oracle::reduced<int>(world, 999, un::Sum{}),
                                "reduce");
                un::broadcast(group, data.span(), root, family);
                findings.expect(download(data.span()) == oracle::contribution<int>(root, 999), "broadcast");
                std::vector<int> out(1000 * ranks), in(out.size());
                for (std::size_t i = 0; i < out.size(); ++i) {
                    out[i] = static_cast<int>(10'000 * me + i);
                    in[i] = static_cast<int>(10'000 * (i / 1000) + 1000 * me + i % 1000);
                }
                const auto from = upload(group, out), to = upload(group, std::vector<int>(out.size(), -1));
                un::all_to_all(group, from.span(), to.span());
                findings.expect(download(to.span()) == in, "all_to_all");
            };
            all_of_them(un::NativeSchedule{});
            all_of_them(un::DirectSchedule{});
        });
    }
}

/// Each byte crosses the bus once each way. No more pinned memory is used than some pieces need.
BOOST_AUTO_TEST_CASE(copies_and_pinned_memory) {
    const Clean clean;
    const test::Variable said("UNISONO_PIECE_BYTES", "65536");
    constexpr std::size_t bytes = 4'000'000;
    test::Findings findings;
    test::run(
        2,
        [&](Group& group) {
            const auto data = upload(group, std::vector<float>(bytes / sizeof(float), 1.0f));
            const auto counted = [&](const auto& body) {
                un::barrier(group);
                const Crossed before = crossed();
                un::barrier(group);
                body();
                un::barrier(group);
                const Crossed after = crossed();
                un::barrier(group);
                return std::pair(after.to_host - before.to_host, after.to_device - before.to_device);
            };
            const auto summed = counted([&] { un::all_reduce(group, data.span()); });
            findings.expect(!counts_bytes || summed == std::pair(2 * bytes, 2 * bytes), "all_reduce");
            const auto sent = counted([&] { un::broadcast(group, data.span(), 1); });
            findings.expect(!counts_bytes || sent == std::pair(bytes, bytes), "broadcast");
            std::vector<un::Operation> many;
            for (std::size_t i = 0; i < 10; ++i)
                many.push_back(un::start_all_reduce(group, data.span().subspan(100'000 * i, 100'000)));
            for (un::Operation& one : many) one.wait();
            un::barrier(group);
            findings.expect(download(data.span()) == std::vector<float>(bytes / sizeof(float), 4.0f), "sums");
#ifndef UNISONO_TEST_ON_GPU
            // 3 pieces are 192 KiB, in a block of 256, for each of two operations. Operations that
            // wait for their turn have none.
            findings.expect(stand_in::counts().pinned_bytes <= 2 * (2 * 262'144 + 4096), "pinned memory");
#endif
        },
        test::limit);
}

/// While the first piece is on the network, others come from the device. The first one returns
/// before the last ones arrive.
BOOST_AUTO_TEST_CASE(pieces_follow_one_another) {
    const Clean clean;
    const test::Variable said("UNISONO_PIECE_BYTES", "4096");
    std::atomic<bool> fetched = false;
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        const auto data = upload(group, std::vector<float>(10'240, 1.0f)); // 10 pieces
        un::barrier(group);
        const Crossed before = crossed();
        un::barrier(group);
        if (group.rank() == 1) {
            for (int i = 0; i < 3000 && !fetched; ++i) std::this_thread::sleep_for(10ms);
            un::all_reduce(group, data.span());
            return;
        }
        un::Operation sum = un::start_all_reduce(group, data.span());
        const int most = counts_bytes ? 3000 : 100;
        for (int i = 0; i < most && crossed().to_host - before.to_host != 12'288; ++i) {
            findings.expect(!sum.poll(), "done before its time");
            std::this_thread::sleep_for(1ms);
        }
        for (int i = 0; i < 20; ++i) static_cast<void>(sum.poll());
        const Crossed now = crossed();
        findings.expect(!counts_bytes || now.to_host - before.to_host == 12'288, "three pieces of ten have come");
        findings.expect(now.to_device == before.to_device, "none has gone");
        fetched = true;
        sum.wait();
        findings.expect(download(data.span()) == std::vector<float>(10'240, 2.0f), "sum");
    });
}

BOOST_AUTO_TEST_CASE(groups_streams_and_what_overlaps) {
    const Clean clean;
    const SmallPieces small;
    constexpr int ranks = 3;
    std::atomic<bool> open = false;
    std::atomic<int> ready = 0;
    test::on_ranks(ranks, [&](Group& world, test::Findings& findings) {
        const un::detail::CudaDeviceGuard here(world.endpoint().device());
        const un::detail::CudaStream mine = un::detail::CudaStream::make();
        const auto data = upload(world, std::vector<float>(2000, 1.0f));
        const auto other = upload(world, std::vector<float>(2000, 1.0f));
        before_a_stream_stands_still(world, 2000);
        hold_back(mine.get(), open);
        launch(mine.get(), data.span(), Affine{.summand = 2});
        un::Operation before = un::start_all_reduce(world, other.span());
        un::after(world, mine.get());
        un::Operation sum = un::start_all_reduce(world, data.span());
        // Of what the other one leaves.
        un::Operation again = un::start_all_reduce(world, data.span());
        before.wait(); // not after a later operation
        findings.expect(download(other.span())[1999] == ranks, "before");
        for (int i = 0; i < 300; ++i) findings.expect(!sum.poll() && !again.poll(), "done before its time");
        if (++ready == ranks) open = true;
        again.then(mine.get());
        launch(mine.get(), data.span(), Affine{.summand = 1});
        un::detail::check_cuda(cudaStreamSynchronize(mine.get()), "cudaStreamSynchronize");
        findings.expect(download(data.span())[1999] == 3 * ranks * ranks + 1, "two sums, between kernels");
        again.wait();
        sum.wait();
        // Two pieces: room for both sums at once.
        const auto few = upload(world, std::vector<float>(500, 1.0f));
        un::Operation first = un::start_all_reduce(world, few.span());
        un::Operation second = un::start_all_reduce(world, few.span());
        second.wait();
        first.wait();
        findings.expect(download(few.span()) == std::vector<float>(500, ranks * ranks), "a sum of sums");
        Group half = world.split(world.rank() == 1 ? 1 : 0, 0);
        un::all_reduce(half, other.span());
        findings.expect(download(other.span())[0] == static_cast<float>(ranks * half.size()), "by a group");
    });
}

/// A copy on the library's stream still reads what a broadcast will overwrite.
BOOST_AUTO_TEST_CASE(what_is_on_the_librarys_stream_comes_first) {
    const Clean clean;
    std::atomic<bool> open = false;
    test::on_ranks(2, [&](Group& world, test::Findings& findings) {
        const auto data = upload(world, std::vector<float>(100, static_cast<float>(world.rank())));
        const auto kept = upload(world, std::vector<float>(100, -1.0f));
        before_a_stream_stands_still(world, 100);
        if (world.rank() == 1) {
            const cudaStream_t stream = world.endpoint().stream();
            hold_back(stream, open, 30s);
            un::detail::check_cuda(
                cudaMemcpyAsync(kept.data(), data.data(), data.size() * 4, cudaMemcpyDeviceToDevice, stream),
                "cudaMemcpyAsync");
        }
        un::Operation sent = un::start_broadcast(world, data.span(), 0);
        for (int i = 0; i < 100 && world.rank() == 1; ++i) {
            findings.expect(!sent.poll(), "overwritten before its time");
            std::this_thread::sleep_for(1ms);
        }
        if (world.rank() == 1) open = true;
        sent.wait();
        // Rank 0 is done earlier. On a GPU the end of its memory would wait for the other
        // stream.
        for (int i = 0; i < 3000 && !open; ++i) std::this_thread::sleep_for(10ms);
        findings.expect(download(data.span()) == std::vector<float>(100, 0.0f), "broadcast");
        if (world.rank() == 1) findings.expect(download(kept.span()) == std::vector<float>(100, 1.0f), "kept");
    });
}

BOOST_AUTO_TEST_CASE(ranks_that_do_other_things) {
    const Clean clean;
    const SmallPieces small;
    expect_all(told(3,
                    [](Group& world) {
                        const auto data = upload(world, std::vector<float>(2000, 1.0f));
                        un::all_reduce(world, data.span().subspan(0, world.rank() == 1 ? 1999u : 2000u));
                    }),
               {"2000 float32", "1999 float32"});
    const auto thrown = told(3, [](Group& world) {
        const auto data = upload(world, std::vector<float>(2000, 1.0f));
        if (world.rank() == 2) {
            un::Operation sum = un::start_all_reduce(world, data.span());
            static_cast<void>(sum.poll());
            throw std::runtime_error("no more"); // in the middle of it
        }
        for (int i = 0; i < 100; ++i) un::all_reduce(world, data.span());
    });
    BOOST_TEST(thrown[2] == "no more");
    for (const std::size_t rank : {0u, 1u}) BOOST_TEST(test::mentions(thrown[rank], {"rank 2"}), thrown[rank]);
    const auto absent = told(
        2,
        [](Group& world) {
            const auto data = upload(world, std::vector<float>(2000, 1.0f));
            if (world.rank() == 1) { // computes, and checks its world now and then
                for (int i = 0; i < 3000; ++i) {
                    std::this_thread::sleep_for(10ms);
                    world.check();
                }
            }
            un::all_reduce(world, data.span());
        },
        2s);
    expect_all(absent, {"waited 2000 ms for all_reduce", "rank 1"});
}

/// A rank's device stalls. Both ranks end at the deadline, and memory that the device may still
/// touch stays.
BOOST_AUTO_TEST_CASE(a_device_that_is_stuck) {
    const Clean clean;
    const SmallPieces small;
    std::atomic<bool> open = false;
    const auto words = told(
        2,
        [&](Group& world) {
            const auto data = upload(world, std::vector<float>(2000, 1.0f));
            before_a_stream_stands_still(world, 2000);
            if (world.rank() == 1) {
                hold_back(world.endpoint().stream(), open, 30s);
            }
            try {
                un::all_reduce(world, data.span());
            } catch (const un::error&) {
                open = true;
                throw;
            }
        },
        2s);
    expect_all(words, {"waited 2000 ms for all_reduce"});
}

#ifndef UNISONO_TEST_ON_GPU
BOOST_AUTO_TEST_CASE(what_cuda_refuses_ends_the_world) {
    const Clean clean;
    const auto sum = [](Group& world) {
        const auto data = upload(world, std::vector<float>(1 << 18, 1.0f));
        un::all_reduce(world, data.span());
    };
    {
        const Scene scene({.pinned = 1 << 16});
        expect_all(told(2, sum), {"cudaMallocHost", "out of memory", "1048576 bytes"});
    }
    {
        const Scene scene({.copies = false});
        expect_all(told(2, sum), {"device ", "cudaMemcpyAsync"});
    }
    test::run( // a stream that CUDA refuses is the caller's error alone
        1,
        [&](Group& world) {
            {
                const Scene scene({.records = false});
                BOOST_CHECK_EXCEPTION(un::after(world, cudaStream_t{}), un::error, [](const un::error& failed) {
                    return failed.code() == un::ErrorCode::refused &&
                           test::mentions(failed.what(), {"cudaEventRecord"});
                });
                BOOST_TEST(cudaGetLastError() == cudaSuccess);
            }
            sum(world);
        },
        test::limit);
    {
        const Scene scene({.devices = 0});
        BOOST_CHECK_EXCEPTION(un::run<test::Transport>(2, [](Group&) { BOOST_ERROR("a world without a device"); }),
                              un::error, [](const un::error& failed) {
                                  return failed.code() == un::ErrorCode::refused &&
                                         test::mentions(failed.what(), {"cudaErrorNoDevice", "cudaGetDeviceCount"});
                              });
    }
}
/// In an elastic world the failure of a device ends its rank alone. A refused call leaves the
/// device usable, and is every rank's error.
BOOST_AUTO_TEST_CASE(a_call_that_fails_is_no_device_that_fails) {
    const auto codes = [](const stand_in::Behaviour& behaviour, const std::string& word) {
        const Clean clean;
        const Scene scene(behaviour);
        std::array<un::ErrorCode, 2> found = {};
        std::atomic<int> failed_devices = 0;
        const auto words = told(2, [&](Group& world) {
            world.endpoint().fail_alone();
            const auto data = upload(world, std::vector<float>(1 << 18, 1.0f));
            try {
                un::all_reduce(world, data.span());
            } catch (const un::error& failed) {
                found[static_cast<std::size_t>(world.rank())] = failed.code();
                failed_devices += world.endpoint().own_failure().empty() ? 0 : 1;
                throw;
            }
        });
        expect_all(words, {word});
        BOOST_TEST(failed_devices == 0);
        return found;
    };
    using Codes = std::array<un::ErrorCode, 2>;
    BOOST_TEST((codes({.pinned = 1 << 16}, "out of memory") == Codes{un::ErrorCode::refused, un::ErrorCode::refused}));
    for (const stand_in::Behaviour& one : {stand_in::Behaviour{.copies = false}, stand_in::Behaviour{.records = false}})
        BOOST_TEST((codes(one, "cudaErrorInvalidValue") == Codes{un::ErrorCode::aborted, un::ErrorCode::aborted}));
}
#endif

BOOST_AUTO_TEST_CASE(which_device_each_rank_has) {
    using un::detail::CudaCard;
    const auto card = [](std::uint64_t host, std::vector<std::string> devices, int wanted = -1) {
        return CudaCard{.host = host, .devices = std::move(devices), .wanted = wanted};
    };
    const auto places = [](const std::vector<CudaCard>& cards) {
        std::vector<int> all;
        for (std::size_t rank = 0; rank < cards.size(); ++rank) all.push_back(un::detail::place_of(cards, rank));
        return all;
    };
    using Places = std::vector<int>;
    BOOST_TEST((places({card(1, {"a", "b"}), card(2, {"a", "b"}), card(1, {"a", "b"}), card(1, {"a", "b"})}) ==
                Places{0, 0, 1, 0})); // more ranks than devices: they share devices
    BOOST_TEST((places({card(1, {"a"}), card(1, {"b"})}) == Places{0, 0}));
    // A rank that names none gets the one that the fewest ranks have.
    BOOST_TEST((places({card(1, {"a", "b"}, 1), card(1, {"a", "b"})}) == Places{1, 0}));
    BOOST_CHECK_EXCEPTION(places({card(1, {"a"}), card(1, {"a"}, 1)}), un::error, [](const un::error& failed) {
        return failed.rank() == 1 && test::mentions(failed.what(), {"device 1", "sees 1"});
    });
    CudaCard sent = card(7, {"a", "b"}, 1), got;
    sent.problem = "one";
    BOOST_TEST(un::detail::read(un::detail::blob_of(sent), got));
    BOOST_TEST((got.host == 7u && got.devices == sent.devices && got.wanted == 1 && got.problem == "one"));
    BOOST_TEST(!un::detail::read(un::Blob(3), got));
    BOOST_CHECK_EXCEPTION(places({sent}), un::error,
                          [](const un::error& failed) { return test::mentions(failed.what(), {"rank 0: one"}); });
    using Options = un::CudaOptions<un::Tcp>;
    BOOST_TEST(Options{}.with({}).piece_bytes == 1048576u);
    BOOST_TEST(Options{}.with({{"UNISONO_PIECE_BYTES", "77"}}).piece_bytes == 77u);
    BOOST_TEST(Options{.piece_bytes = 5}.with({{"UNISONO_PIECE_BYTES", "77"}}).piece_bytes == 5u);
    for (const char* const wrong : {"0", "-1", "many", ""})
        BOOST_CHECK_THROW((void)Options{}.with({{"UNISONO_PIECE_BYTES", wrong}}), un::error);
    BOOST_CHECK_THROW((void)Options{.device = -2}.with({}), un::error);
}

BOOST_AUTO_TEST_SUITE_END()
