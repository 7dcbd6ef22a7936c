// Device graphs and streams of the program: an update that is captured once and replayed, and
// collectives between kernels without the host in between.
#include "small_kernels.hpp"
#include "support/skip.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

namespace un = unisono;
using namespace std::chrono_literals;
using test::Affine;
using test::Clean;
using test::download;
using test::Group;
using test::launch;
using test::upload;

namespace {

/// A stream of the program.
struct OwnStream {
    un::detail::CudaStream stream = un::detail::CudaStream::make();
    operator cudaStream_t() const { return stream.get(); }
    void wait() const { un::detail::check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize"); }
};

#ifndef UNISONO_TEST_ON_GPU // what no GPU can be asked to do
using stand_in::Scene;
using test::expect_all;
using test::told;
#endif

} // namespace

BOOST_AUTO_TEST_SUITE(nccl_captured)

/// gradient = 2 x, summed over all ranks, then added to the parameters. x changes between replays.
BOOST_AUTO_TEST_CASE(an_update_is_captured_once_and_replayed) {
    const Clean clean;
    for (const int ranks : {1, test::at_most(3)}) {
        test::on_ranks(ranks, [&](Group& world, test::Findings& findings) {
            const auto x = upload(world, std::vector<float>(100, 1.0f));
            const auto sum = upload(world, std::vector<float>(100, 0.0f));
            const cudaStream_t stream = world.endpoint().stream();
            auto update = un::capture(world, [&] {
                launch(stream, x.span(), Affine{.factor = 2});
                un::all_reduce(world, x.span(), sum.span());
                un::broadcast(world, sum.span(), ranks - 1);
                launch(stream, sum.span(), Affine{.summand = 1});
            });
            findings.expect(update.operations() == 2, "operations");
            findings.expect(download(sum.span())[0] == 0.0f, "a capture carries nothing out");
            std::vector<float> others(10, 1.0f);
            float expected = 1;
            for (int i = 0; i < 5; ++i) {
                update.replay();
                expected *= 2;
                findings.expect(download(sum.span())[99] == expected * static_cast<float>(ranks) + 1, "a replay");
                un::all_reduce(world, others); // other collectives between replays
            }
            const std::uint64_t before = world.traffic().messages_sent;
            update.replay();
            findings.expect(world.traffic().messages_sent == before, "a replay sends nothing");
        });
    }
}

BOOST_AUTO_TEST_CASE(groups_streams_and_several_graphs) {
    const Clean clean;
    const int ranks = test::at_most(4);
    test::on_ranks(ranks, [&](Group& world, test::Findings& findings) {
        std::optional<Group> half = world.split(world.rank() % 2, 0);
        const auto halves = static_cast<float>(half->size());
        const OwnStream mine;
        const auto a = upload(world, std::vector<float>(50, 1.0f)), b = upload(world, std::vector<float>(50, 1.0f));
        auto first = un::capture(world, [&] {
            un::Operation sum = un::start_all_reduce(*half, a.span());
            if (world.rank() == 0)
                while (!sum.poll()) std::this_thread::yield(); // already complete: `mine` joins the capture, too
            sum.then(mine);
            launch(mine, a.span(), Affine{.factor = 10});
            un::after(world, mine);
            sum.wait();
            un::all_reduce(world, a.span());
        });
        auto second = un::capture(world, [&] { un::all_reduce(world, b.span(), un::Max{}); });
        un::Operation one = first.start(), two = second.start();
        two.wait();
        one.wait();
        const auto all = static_cast<float>(ranks);
        findings.expect(download(a.span())[49] == halves * 10 * all, "by a group, a stream, and all");
        findings.expect(download(b.span())[49] == 1.0f, "the other graph");
        half.reset(); // before the graph that holds its calls
        un::all_reduce(world, b.span());
    });
}

#ifndef UNISONO_TEST_ON_GPU
BOOST_AUTO_TEST_CASE(what_goes_wrong_in_a_capture_is_every_ranks) {
    const Clean clean;
    const auto words = [&](const auto& body) {
        return told(3, [&](Group& world) {
            const auto data = upload(world, std::vector<float>(100, 1.0f));
            static_cast<void>(un::capture(world, [&] { body(world, data.span()); }));
        });
    };
    expect_all(words([](Group& world, un::DeviceSpan<float> data) {
                   un::all_reduce(world, data.subspan(0, world.rank() == 1 ? 99u : 100u));
               }),
               {"100 float32", "99 float32"});
    const auto thrown = words([](Group& world, un::DeviceSpan<float> data) {
        if (world.rank() == 2) throw std::runtime_error("no more");
        un::all_reduce(world, data);
    });
    BOOST_TEST(thrown[2] == "no more");
    BOOST_TEST(test::mentions(thrown[0], {"rank 2 threw during a capture"}), thrown[0]);
    expect_all(words([](Group& world, un::DeviceSpan<float>) {
                   std::vector<float> host(100);
                   un::all_reduce(world, host);
               }),
               {"capture", "data on the host"});
    expect_all(words([](Group& world, un::DeviceSpan<float> data) {
                   un::all_reduce(world, data, un::Sum{}, un::RingSchedule{});
               }),
               {"capture", "a schedule other than NativeSchedule"});
    const auto memory = words([](Group& world, un::DeviceSpan<float>) {
        // CUDA forbids it.
        if (world.rank() == 0) static_cast<void>(un::allocate_on_device<float>(world, 10));
    });
    BOOST_TEST(test::mentions(memory[0], {"ncclMemAlloc"}), memory[0]);
    BOOST_TEST(test::mentions(memory[1], {"rank 0 threw during a capture"}), memory[1]);
    const auto copied = words([](Group& world, un::DeviceSpan<float> data) {
        if (world.rank() == 1) static_cast<void>(cudaMemcpy(data.data(), data.data(), 4, cudaMemcpyDeviceToDevice));
        un::all_reduce(world, data);
    });
    BOOST_TEST(test::mentions(copied[1], {"cudaStreamEndCapture", "cudaErrorStreamCaptureInvalidated"}), copied[1]);
}
#endif

BOOST_AUTO_TEST_CASE(a_capture_begins_with_nothing_in_flight) {
    const Clean clean;
    test::on_ranks(test::at_most(2), [&](Group& world, test::Findings& findings) {
        const auto data = upload(world, std::vector<float>(100, 1.0f));
        const OwnStream mine;
        const auto open = std::make_shared<std::atomic<bool>>(false);
        test::launch_on_host(mine, [open] {
            for (int i = 0; i < 6000 && !*open; ++i) std::this_thread::sleep_for(10ms);
        });
        un::after(world, mine);
        un::Operation sum = un::start_all_reduce(world, data.span());
        try {
            static_cast<void>(un::capture(world, [] {}));
            findings.expect(false, "a capture beside an operation");
        } catch (const un::error& failed) {
            findings.expect(failed.code() == un::ErrorCode::bad_input, failed.what());
        }
        *open = true;
        sum.wait();
        auto empty = un::capture(world, [] {});
        empty.replay();
        findings.expect(empty.operations() == 0, "an empty one");
    });
}

#ifndef UNISONO_TEST_ON_GPU
BOOST_AUTO_TEST_CASE(a_replay_that_fails_or_does_not_end) {
    const Clean clean;
    const auto replay = [](Group& world, const auto& before) {
        const auto data = upload(world, std::vector<float>(100, 1.0f));
        auto update = un::capture(world, [&] { un::all_reduce(world, data.span()); });
        update.replay();
        before();
        update.replay();
    };
    {
        const Scene scene({.launches = false});
        std::atomic<bool> left = false;
        expect_all(told(2,
                        [&](Group& world) {
                            const auto data = upload(world, std::vector<float>(100, 1.0f));
                            auto update = un::capture(world, [&] { un::all_reduce(world, data.span()); });
                            try {
                                update.replay();
                            } catch (const un::error&) {
                                if (cudaGetLastError() != cudaSuccess) left = true;
                                throw;
                            }
                        }),
                   {"cudaErrorLaunchFailure"});
        BOOST_TEST(!left, "a later call of the program's would report the error");
    }
    const auto words = told(
        2,
        [&](Group& world) {
            replay(world, [&] {
                if (world.rank() != 1) return;
                for (int i = 0; i < 3000; ++i) { // does not take part, but checks its world
                    std::this_thread::sleep_for(10ms);
                    world.check();
                }
            });
        },
        2s);
    expect_all(words, {"replay of a graph of 1 operations"});
}
#endif

/// NCCL works on a communicator on threads of its own, while the program releases memory and opens
/// groups.
BOOST_AUTO_TEST_CASE(memory_and_groups_while_nccl_is_busy) {
    const Clean clean;
    test::on_ranks(test::at_most(3), [&](Group& world, test::Findings& findings) {
        for (int i = 0; i < 20; ++i) {
            auto other = upload(world, std::vector<float>(10, 1.0f));
            const auto data = upload(world, std::vector<float>(100, 1.0f));
            un::Operation sum = un::start_all_reduce(world, data.span());
            other = {};
            const auto third = upload(world, std::vector<float>(10, 1.0f)); // meanwhile
            sum.wait();
            un::all_reduce(world, third.span());
            findings.expect(download(data.span())[99] == static_cast<float>(world.size()), "sum");
            findings.expect(download(third.span())[9] == static_cast<float>(world.size()), "the other sum");
        }
        Group first = world.split(world.rank(), 0);
        Group second = world.split(0, -world.rank()); // the first one's communicators are new
        findings.expect(first.size() == 1 && second.rank() == world.size() - 1 - world.rank(), "groups");
        const auto data = upload(world, std::vector<float>{1.0f});
        un::all_reduce(first, data.span());
        findings.expect(download(data.span())[0] == 1.0f, "a sum of one rank");
        un::all_reduce(second, data.span());
        findings.expect(download(data.span())[0] == static_cast<float>(world.size()), "a sum of all");
    });
}

/// The host has enqueued everything before the first kernel may begin.
BOOST_AUTO_TEST_CASE(streams_of_the_programs_own_meet_collectives_without_the_host) {
    const Clean clean;
    const int ranks = test::at_most(3);
    std::atomic<bool> open = false;
    std::atomic<int> ready = 0;
    test::on_ranks(ranks, [&](Group& world, test::Findings& findings) {
        const OwnStream mine;
        const auto data = upload(world, std::vector<float>(100, 1.0f));
        const auto other = upload(world, std::vector<float>(100, 1.0f));
        test::hold_back(mine, open);
        launch(mine, data.span(), Affine{.factor = 3});
        un::after(world, mine);
        un::Operation sum = un::start_all_reduce(world, data.span());
        sum.then(mine);
        launch(mine, data.span(), Affine{.summand = 1});
        un::after(world, mine);
        un::Operation again = un::start_all_reduce(world, data.span());
        findings.expect(!sum.poll() && !again.poll(), "done before its time");
        if (++ready == ranks) open = true; // nothing runs on the devices before this
        again.wait();
        sum.wait();
        sum.then(mine); // already complete: nothing to do
        mine.wait();
        const auto all = static_cast<float>(ranks);
        findings.expect(download(data.span())[99] == (3 * all + 1) * all, "sum");
        std::vector<float> host(100, 1.0f);
        un::Operation on_host = un::start_all_reduce(world, host);
        try {
            on_host.then(mine);
            findings.expect(false, "a stream behind data of the host");
        } catch (const un::error& failed) {
            findings.expect(failed.code() == un::ErrorCode::bad_input, failed.what());
        }
        on_host.wait();
    });
}

/// An operation is done without the later ones: rank 1 starts its second one when it hears that
/// rank 0 is done with the first.
BOOST_AUTO_TEST_CASE(no_operation_waits_for_a_later_one) {
    if (test::at_most(2) < 2) return test::skip("needs 2 ranks, but the devices here can have 1");
    const Clean clean;
#ifndef UNISONO_TEST_ON_GPU
    const Scene scene({.questions = 0}); // both are enqueued before anybody waits
#endif
    test::on_ranks(2, [&](Group& world, test::Findings& findings) {
        const auto a = upload(world, std::vector<float>(100, 1.0f)), b = upload(world, std::vector<float>(100, 1.0f));
        un::all_reduce(world, a.span()); // what is loaded by the first call is loaded
        std::vector<int> news(1);
        un::Operation first = un::start_all_reduce(world, a.span());
        un::Operation second;
        if (world.rank() == 0) second = un::start_all_reduce(world, b.span());
        first.wait();
        if (world.rank() == 0) un::send(world, news, 1);
        else un::receive(world, news, 0);
        if (world.rank() == 1) second = un::start_all_reduce(world, b.span());
        second.wait();
        findings.expect(download(a.span())[99] == 4.0f && download(b.span())[99] == 2.0f, "sums");
    });
}

#ifndef UNISONO_TEST_ON_GPU
/// The end of each operation is an event. One question to the first of them tells that none is
/// done, and one more that all are.
BOOST_AUTO_TEST_CASE(operations_in_a_row_ask_the_device_once) {
    const Clean clean;
    const Scene scene({.questions = 0});
    test::run(
        1,
        [&](Group& world) {
            const auto data = upload(world, std::vector<float>(100, 1.0f));
            std::atomic<bool> open = false;
            test::hold_back(world.endpoint().stream(), open);
            const stand_in::Counts before = stand_in::counts();
            std::vector<un::Operation> row;
            for (int i = 0; i < 16; ++i) row.push_back(un::start_all_reduce(world, data.span()));
            BOOST_TEST(stand_in::counts().records - before.records == 16);
            BOOST_TEST(stand_in::counts().queries == before.queries);
            for (int i = 0; i < 10; ++i) BOOST_TEST(!row[3].poll());
            BOOST_TEST(stand_in::counts().queries - before.queries == 10);
            open = true;
            un::detail::check_cuda(cudaStreamSynchronize(world.endpoint().stream()), "cudaStreamSynchronize");
            BOOST_TEST(row[15].poll());
            for (un::Operation& one : row) one.wait();
            BOOST_TEST(stand_in::counts().queries - before.queries == 12);
        },
        test::limit);
}

/// While the last one cannot end, the earlier ones do.
BOOST_AUTO_TEST_CASE(operations_in_a_row_end_one_by_one) {
    const Clean clean;
    const Scene scene({.questions = 0});
    test::run(
        1,
        [&](Group& world) {
            const auto data = upload(world, std::vector<float>(100, 1.0f));
            std::atomic<bool> open = false;
            std::vector<un::Operation> row;
            for (int i = 0; i < 4; ++i) row.push_back(un::start_all_reduce(world, data.span()));
            test::hold_back(world.endpoint().stream(), open);
            un::Operation last = un::start_all_reduce(world, data.span());
            for (std::size_t i = row.size(); i-- != 0;) row[i].wait();
            for (int i = 0; i < 10; ++i) BOOST_TEST(!last.poll());
            open = true;
            last.wait();
        },
        test::limit);
}
#endif

BOOST_AUTO_TEST_CASE(memory_that_all_ranks_register_together) {
    for (const bool has_windows : {true, false}) {
        const Clean clean;
#ifndef UNISONO_TEST_ON_GPU
        const Scene scene({.windows = has_windows});
#endif
        test::Findings findings;
        un::DeviceMemory<float> kept;
        test::run(
            test::at_most(3),
            [&](Group& world) {
                auto all = un::allocate_windows<float>(world, 1000);
#ifndef UNISONO_TEST_ON_GPU
                findings.expect((stand_in::counts().windows != 0) == has_windows, "windows");
                findings.expect(world.endpoint().has_window(world.context().id) == has_windows, "has_window");
#endif
                Group half = world.split(world.rank() == 1 ? 1 : 0, 0);
                const auto some = un::allocate_windows<int>(half, 10);
                static_cast<void>(un::allocate_windows<int>(half, 0)); // released immediately
                const std::vector<float> ones(1000, 1.0f);
                test::copy_to_device(all.span(), ones);
                un::all_reduce(world, all.span().subspan(100, 500));
                const auto now = download(all.span());
                const auto sum = static_cast<float>(world.size());
                findings.expect(now[99] == 1.0f && now[100] == sum && now[600] == 1.0f, "sum");
                if (world.rank() == 1) kept = std::move(all); // outlives its world
            },
            test::limit);
        kept = {};
    }
#ifndef UNISONO_TEST_ON_GPU
    const Clean clean;
    const auto differing = told(3, [](Group& world) {
        static_cast<void>(un::allocate_windows<float>(world, world.rank() == 2 ? 101u : 100u));
    });
    expect_all(differing, {"rank 2 asks for 404 bytes", "rank 0 for 400"});
    // Between a window and the peer's other memory a message would hang.
    const auto sent = told(2, [](Group& world) {
        const auto all = un::allocate_windows<float>(world, 1000);
        un::all_reduce(world, all.span(), un::Sum{}, un::RingSchedule{});
    });
    expect_all(sent, {"allocate_windows", "NativeSchedule"});
    const Scene scene({.memory = 1 << 20});
    const auto refused = told(2, [](Group& world) { static_cast<void>(un::allocate_windows<float>(world, 1 << 20)); });
    expect_all(refused, {"rank 0 has no memory for 4194304 bytes"});
#endif
}

BOOST_AUTO_TEST_SUITE_END()
