// Faults of devices: there is none, there are too few, ranks share one, NCCL is old, reports
// errors, or hangs. Only over the stand-in, because no GPU can be asked to fail.
#include "support.hpp"
#include "support/folder.hpp"

using test::EverythingByDevice;
BOOST_TEST_GLOBAL_FIXTURE(EverythingByDevice);

#ifndef UNISONO_TEST_ON_GPU

#include <unisono/extensions/launch/rendezvous/rendezvous.hpp>

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace un = unisono;
using namespace std::chrono_literals;
using stand_in::Scene;
using test::Clean;
using test::Group;
using test::upload;

namespace {

/// The result of each rank. An empty text is success.
struct Ends {
    std::vector<std::string> texts;
    std::vector<un::ErrorCode> codes;
    std::vector<int> ranks, peers;
    explicit Ends(int count)
        : texts(static_cast<std::size_t>(count)), codes(texts.size()), ranks(texts.size(), -1),
          peers(texts.size(), -1) {}

    template <class Body>
    void note(int rank, Body body) {
        const auto at = static_cast<std::size_t>(rank);
        try {
            body();
        } catch (const un::error& failed) {
            texts[at] = failed.what();
            codes[at] = failed.code();
            ranks[at] = failed.rank();
            peers[at] = failed.peer();
        } catch (const std::exception& failed) {
            texts[at] = failed.what();
            codes[at] = un::ErrorCode::aborted;
        }
    }
    void expect_all(un::ErrorCode code, const std::vector<std::string>& words) const {
        for (std::size_t rank = 0; rank < texts.size(); ++rank) {
            BOOST_TEST((codes[rank] == code), "rank " << rank << ": " << texts[rank]);
            BOOST_TEST(test::mentions(texts[rank], words), "rank " << rank << ": " << texts[rank]);
        }
    }
};

/// Ranks as threads that share a world.
template <class Body>
Ends on_threads(int ranks, Body body, std::chrono::nanoseconds timeout = 30s) {
    Ends ends(ranks);
    try {
        un::run<un::Nccl>(ranks,
                          [&](Group& world) {
                              ends.note(world.rank(), [&] {
                                  try {
                                      body(world);
                                  } catch (const un::error& failed) {
                                      // Any error on this rank must stop the others.
                                      world.abort(failed.why());
                                      throw;
                                  }
                              });
                          },
                          {.timeout = timeout});
    } catch (const std::exception&) {
    }
    return ends;
}

/// Ranks as threads that share only a control plane, as processes do.
template <class Make, class Body>
Ends on_strangers(int ranks, Make make, Body body) {
    static int number = 0;
    const unisono_test::Folder folder;
    const un::RendezvousPoint point{.folder = folder.path(), .job = "job" + std::to_string(number++)};
    Ends ends(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            ends.note(rank, [&] {
                auto world =
                    make(un::rendezvous(un::identity_of(rank, ranks), point, {.timeout = 60s, .linger = 20s}), rank);
                body(world);
            });
        });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
}

Group joined(un::ControlPlane control, const un::NcclOptions& options = {}, std::chrono::nanoseconds timeout = 30s) {
    return un::join<un::Nccl>(std::move(control), {.timeout = timeout}, options);
}

} // namespace

BOOST_AUTO_TEST_SUITE(nccl_faults)

BOOST_AUTO_TEST_CASE(no_device) {
    const Clean clean;
    const Scene scene({.devices = 0});
    for (const int ranks : {1, 2}) {
        BOOST_CHECK_EXCEPTION(un::run<un::Nccl>(ranks, [](Group&) { BOOST_ERROR("a world without a device"); }),
                              un::error, [](const un::error& failed) {
                                  return failed.code() == un::ErrorCode::refused &&
                                         test::mentions(failed.what(),
                                                        {"rank 0", "cudaErrorNoDevice", "cudaGetDeviceCount"});
                              });
    }
    on_strangers(
        2, [](un::ControlPlane control, int) { return joined(std::move(control)); }, [](Group&) {})
        .expect_all(un::ErrorCode::refused, {"rank 0", "cudaErrorNoDevice"});
}

BOOST_AUTO_TEST_CASE(fewer_devices_than_ranks) {
    const Clean clean;
    const Scene scene({.devices = 2});
    const std::vector<std::string> words{"3 ranks", "2 devices", "CUDA_VISIBLE_DEVICES", "NCCL_MULTI_RANK_GPU_ENABLE=1",
                                         "2.30.7"};
    on_strangers(
        3, [](un::ControlPlane control, int) { return joined(std::move(control)); }, [](Group&) {})
        .expect_all(un::ErrorCode::refused, words);
    BOOST_CHECK_EXCEPTION(un::run<un::Nccl>(3, [](Group&) {}), un::error,
                          [&](const un::error& failed) { return test::mentions(failed.what(), words); });
}

BOOST_AUTO_TEST_CASE(two_ranks_on_one_device) {
    const Clean clean;
    on_strangers(
        2, [](un::ControlPlane control, int) { return joined(std::move(control), {.device = 3}); }, [](Group&) {})
        .expect_all(un::ErrorCode::refused, {"ranks 0 and 1", "0000:13:00.0"});
    on_strangers(
        2, [](un::ControlPlane control, int rank) { return joined(std::move(control), {.device = rank == 1 ? 9 : 0}); },
        [](Group&) {})
        .expect_all(un::ErrorCode::refused, {"rank 1", "device 9", "sees 8"});
}

BOOST_AUTO_TEST_CASE(an_old_library) {
    const Clean clean;
    const Scene scene({.loaded = 22703});
    BOOST_CHECK_EXCEPTION(un::run<un::Nccl>(2, [](Group&) {}), un::error, [](const un::error& failed) {
        return failed.code() == un::ErrorCode::refused && test::mentions(failed.what(), {"2.27.3", "2.30.7"});
    });
}

BOOST_AUTO_TEST_CASE(which_device_each_rank_has) { // of ranks with the devices that they may see
    using un::detail::NcclCard;
    const auto card = [](std::uint64_t host, std::vector<std::string> devices, int wanted = -1) {
        return NcclCard{{.host = host, .devices = std::move(devices), .wanted = wanted}, 22809};
    };
    const auto places = [](const std::vector<NcclCard>& cards) { return un::detail::place_ranks(cards); };
    using Places = std::vector<int>;
    BOOST_TEST((places({card(1, {"a", "b"}), card(2, {"a", "b"}), card(1, {"a", "b"})}) == Places{0, 0, 1}));
    // A launcher assigns the devices.
    BOOST_TEST((places({card(1, {"a"}), card(1, {"b"})}) == Places{0, 0}));
    BOOST_TEST((places({card(1, {"a", "b"}, 1), card(1, {"a", "b"}, 0)}) == Places{1, 0}));
    BOOST_CHECK_THROW(places({card(1, {"a"}), card(1, {"a"})}), un::error);
    // The same twice.
    BOOST_CHECK_THROW(places({card(1, {"a", "b"}, 1), card(1, {"a", "b"}, 1)}), un::error);
    BOOST_CHECK_THROW(places({card(1, {"a", "b"}, 1), card(1, {"a", "b"}, 0), card(1, {"a", "b"})}), un::error);
    // A rank that was added to an elastic world gets the device that no other one has kept.
    BOOST_TEST((places({card(1, {"a", "b", "c"}, 0), card(1, {"a", "b", "c"}, 2), card(2, {"a"}, 0),
                        card(1, {"a", "b", "c"})}) == Places{0, 2, 0, 1}));
    // What is wrong with a later rank is found before an earlier one is given a device.
    for (const int wanted : {2, 5000})
        BOOST_CHECK_EXCEPTION(places({card(1, {"a", "b"}), card(1, {"a", "b"}, wanted)}), un::error,
                              [](const un::error& failed) {
                                  return failed.rank() == 1 && test::mentions(failed.what(), {"asks for device"});
                              });
    NcclCard broken = card(1, {}, 0);
    broken.problem = "no driver";
    BOOST_CHECK_EXCEPTION(places({card(1, {"a", "b"}), broken}), un::error, [](const un::error& failed) {
        return failed.rank() == 1 && test::mentions(failed.what(), {"no driver"});
    });
    NcclCard shares = card(1, {"a"});
    shares.shares = true;
    BOOST_CHECK_THROW(places({shares, shares}), un::error); // 2.28 cannot share a device
    shares.loaded = 23000;
    BOOST_TEST((places({shares, shares, shares}) == Places{0, 0, 0}));
    NcclCard newer = card(1, {"a", "b"});
    newer.loaded = 22900;
    BOOST_CHECK_EXCEPTION(places({card(1, {"a", "b"}), newer}), un::error, [](const un::error& failed) {
        return failed.rank() == 1 && test::mentions(failed.what(), {"2.29.0", "2.28.9"});
    });
    NcclCard sent = card(7, {"a", "b"}, 1);
    sent.problem = "one";
    sent.staged_bytes = 5;
    sent.check_every = 6;
    sent.id.internal[100] = 'x';
    NcclCard got;
    BOOST_TEST(un::detail::read(un::detail::blob_of(sent), got));
    BOOST_TEST((got.host == 7u && got.devices == sent.devices && got.wanted == 1 && got.loaded == 22809 &&
                got.problem == "one" && got.staged_bytes == 5u && got.check_every == 6u &&
                got.id.internal[100] == 'x'));
    BOOST_TEST(!un::detail::read(un::Blob(40), got));
}

BOOST_AUTO_TEST_CASE(options) {
    const un::Environment environment{{"UNISONO_NCCL_STAGED_BYTES", "77"}, {"UNISONO_INTERFACE", "b"}};
    BOOST_TEST(un::NcclOptions{}.with(environment).staged_bytes == 77u);
    BOOST_TEST(un::NcclOptions{.staged_bytes = 5}.with(environment).staged_bytes == 5u);
    BOOST_TEST(un::NcclOptions{}.with({}).staged_bytes == 65536u);
    BOOST_TEST(un::NcclOptions{}.with(environment).network.interface == "b");
    BOOST_TEST(un::NcclOptions{}.with({}).check_every == 1);
    BOOST_TEST(un::NcclOptions{}.with({{"UNISONO_NCCL_CHECK_EVERY", "16"}}).check_every == 16);
    for (const char* const name : {"UNISONO_NCCL_STAGED_BYTES", "UNISONO_NCCL_CHECK_EVERY"})
        for (const char* const wrong : {"0", "-1", "many", ""})
            BOOST_CHECK_THROW((void)un::NcclOptions{}.with({{name, wrong}}), un::error);
    BOOST_CHECK_THROW((void)un::NcclOptions{.check_every = -1}.with({}), un::error);
    BOOST_CHECK_THROW((void)un::NcclOptions{.device = -2}.with({}), un::error);
    on_strangers(
        2,
        [](un::ControlPlane control, int rank) {
            return joined(std::move(control), {.staged_bytes = rank == 0 ? 100u : 200u});
        },
        [](Group&) {})
        .expect_all(un::ErrorCode::refused, {"staged_bytes", "100", "200"});
    on_strangers(
        2, [](un::ControlPlane control, int rank) { return joined(std::move(control), {.check_every = rank + 1}); },
        [](Group&) {})
        .expect_all(un::ErrorCode::refused, {"check_every", "1", "2"});
}

BOOST_AUTO_TEST_CASE(ranks_that_join) {
    const Clean clean;
    static_cast<void>(stand_in::take_calls());
    const stand_in::Counts before = stand_in::counts();
    const Ends ends = on_strangers(
        3, [](un::ControlPlane control, int) { return joined(std::move(control)); },
        [](Group& world) {
            if (world.endpoint().device() != world.rank()) throw std::runtime_error("another device");
            std::vector<float> data(1000, 1.0f);
            un::all_reduce(world, data);
            Group pair = world.split(world.rank() == 2 ? un::no_colour : 0, 0);
            const auto on_device = upload(world, data);
            un::all_reduce(world, on_device.span());
            if (data[999] != 3.0f || test::download(on_device.span())[999] != 9.0f)
                throw std::runtime_error("wrong sum");
            if (world.endpoint().network().connections() != 0) throw std::runtime_error("messages over sockets");
        });
    ends.expect_all(un::ErrorCode::none, {});
    const stand_in::Counts after = stand_in::counts();
    BOOST_TEST(after.finalised - before.finalised ==
               5); // the world's three and the pair's two, in order; anything else is misuse
    BOOST_TEST(after.destroyed - before.destroyed == 5);
    BOOST_TEST(after.aborted == before.aborted);
    BOOST_TEST(after.in_progress > before.in_progress);
    BOOST_TEST((stand_in::take_calls() == std::vector<std::string>(6, "all_reduce")));
}

BOOST_AUTO_TEST_CASE(small_data_of_the_host_go_by_messages) {
    const Clean clean;
    static_cast<void>(stand_in::take_calls());
    on_strangers(
        2, [](un::ControlPlane control, int) { return joined(std::move(control), {.staged_bytes = 4096}); },
        [](Group& world) {
            std::vector<float> small(1023, 1.0f), large(1024, 1.0f);
            un::all_reduce(world, small);
            un::all_reduce(world, large, un::Sum{}, un::RingSchedule{});
            un::barrier(world);
            if (!stand_in::take_calls().empty()) throw std::runtime_error("NCCL was called");
            un::barrier(world);
            un::all_reduce(world, large);
            if (large[0] != 4.0f || small[0] != 2.0f) throw std::runtime_error("wrong sum");
        })
        .expect_all(un::ErrorCode::none, {});
    BOOST_TEST((stand_in::take_calls() == std::vector<std::string>(2, "all_reduce")));
}

BOOST_AUTO_TEST_CASE(messages_leave_a_host_over_sockets_alone) {
    const Clean clean;
    const test::Variable said{"UNISONO_HOSTS", "a,b,a"};
    const auto body = [](Group& world) {
        const auto data = upload(world, std::vector<float>(100, 1.0f));
        un::all_reduce(world, data.span());
        std::vector<int> own(3, world.rank()), all(9);
        un::all_gather(world, std::span<const int>(own), all, {}, un::DirectSchedule{});
        if (test::download(data.span())[99] != 3.0f || all[8] != 2) throw std::runtime_error("wrong");
        if (world.endpoint().network().connections() != (world.rank() == 1 ? 2u : 1u))
            throw std::runtime_error("other connections");
        if (world.rank() == 1) un::all_reduce(world, data.span(), un::Max{});
        else un::all_reduce(world, data.span());
    };
    on_threads(3, body).expect_all(un::ErrorCode::mismatch, {"all_reduce(max)", "all_reduce(sum)"});
    on_strangers(
        3, [](un::ControlPlane control, int) { return joined(std::move(control)); }, body)
        .expect_all(un::ErrorCode::mismatch, {"all_reduce(max)", "all_reduce(sum)"});
}

BOOST_AUTO_TEST_CASE(collectives_are_compared_now_and_then) {
    const Clean clean;
    const test::Variable said{"UNISONO_NCCL_CHECK_EVERY", "4"};
    on_threads(2, [](Group& world) {
        const auto data = upload(world, std::vector<float>(100, 1.0f));
        for (int i = 1; i <= 8; ++i) {
            un::all_reduce(world, data.span());
            if (world.traffic().messages_sent != static_cast<std::uint64_t>(i / 4))
                throw std::runtime_error("other messages");
        }
        if (test::download(data.span())[99] != 256.0f) throw std::runtime_error("wrong sum");
    }).expect_all(un::ErrorCode::none, {});
    on_threads(2, [](Group& world) {
        const auto data = upload(world, std::vector<float>(100, 1.0f));
        // NCCL itself would not notice.
        if (world.rank() == 1) un::all_reduce(world, data.span(), un::Max{});
        else un::all_reduce(world, data.span());
        for (int i = 0; i < 2; ++i) un::all_reduce(world, data.span());
        if (world.traffic().messages_sent != 0) throw std::runtime_error("other messages");
        un::all_reduce(world, data.span());
    }).expect_all(un::ErrorCode::mismatch, {"all_reduce", "another schedule"});
}

BOOST_AUTO_TEST_CASE(an_asynchronous_error_is_every_ranks_and_names_the_one) {
    for (const ncclResult_t failure : {ncclSystemError, ncclRemoteError}) {
        const Clean clean;
        const Scene scene({.failing_rank = 1, .failure = failure});
        const stand_in::Counts before = stand_in::counts();
        const Ends ends = on_threads(3, [](Group& world) {
            const auto data = upload(world, std::vector<float>(100, 1.0f));
            un::Operation sum = un::start_all_reduce(world, data.span());
            std::this_thread::sleep_for(20ms); // rank 1's stream has nothing to do, and ends
            sum.wait();
        });
        ends.expect_all(failure == ncclRemoteError ? un::ErrorCode::peer_lost : un::ErrorCode::aborted,
                        {"rank 1, device 1", ncclGetErrorString(failure)});
        for (const int rank : ends.ranks) BOOST_TEST(rank == 1);
        BOOST_TEST(stand_in::counts().aborted - before.aborted == 3);
    }
}

// In an elastic world only the failure of a device ends its rank alone. A call that CUDA refuses
// would be refused again, and ends the training. An error of NCCL may be another rank's.
BOOST_AUTO_TEST_CASE(a_call_that_fails_is_no_device_that_fails) {
    struct Case {
        stand_in::Behaviour behaviour;
        un::ErrorCode code;
        std::string text;
    };
    for (const Case& one : {Case{{.copies = false}, un::ErrorCode::aborted, "cudaErrorInvalidValue"},
                            Case{{.records = false}, un::ErrorCode::aborted, "cudaErrorInvalidValue"},
                            Case{{.failing_rank = 1, .failure = ncclUnhandledCudaError},
                                 un::ErrorCode::peer_lost,
                                 ncclGetErrorString(ncclUnhandledCudaError)}}) {
        const Clean clean;
        const Scene scene(one.behaviour);
        std::atomic<int> failed_devices = 0;
        on_threads(2, [&](Group& world) {
            world.endpoint().fail_alone();
            std::vector<float> data(100, 1.0f);
            try {
                un::all_reduce(world, data);
            } catch (const un::error&) {
                failed_devices += world.endpoint().own_failure().empty() ? 0 : 1;
                throw;
            }
        }).expect_all(one.code, {", device ", one.text});
        BOOST_TEST(failed_devices == 0);
    }
}

// The event of a call that has failed ends early. Between two looks at the communicators, too, that
// is no end of the operation.
BOOST_AUTO_TEST_CASE(a_call_that_fails_soon_after_a_good_one_has_not_ended) {
    const Clean clean;
    constexpr int good = 20;
    const Scene scene({.failing_rank = 1, .good_calls = good});
    std::atomic<int> ended = 0;
    on_threads(3, [&](Group& world) {
        const auto data = upload(world, std::vector<float>(100, 1.0f));
        for (;;) {
            un::all_reduce(world, data.span());
            if (world.rank() == 1) ++ended;
        }
    }).expect_all(un::ErrorCode::aborted, {"rank 1, device 1"});
    BOOST_TEST(ended == good);
}

BOOST_AUTO_TEST_CASE(a_question_about_work_that_goes_on_is_no_error) {
    const Clean clean;
    std::atomic<int> left = 0;
    const int before = stand_in::counts().queries;
    on_threads(2, [&](Group& world) {
        const auto data = upload(world, std::vector<float>(100, 1.0f));
        if (world.rank() == 0) std::this_thread::sleep_for(5ms); // the other one asks meanwhile
        un::all_reduce(world, data.span());
        left += cudaGetLastError() != cudaSuccess ? 1 : 0;
    }).expect_all(un::ErrorCode::none, {});
    BOOST_TEST(left == 0);
    BOOST_TEST(stand_in::counts().queries - before > 2);
}

BOOST_AUTO_TEST_CASE(a_silent_device_is_aborted_at_the_deadline) {
    const Clean clean;
    const Scene scene({.silent_rank = 2});
    const stand_in::Counts before = stand_in::counts();
    on_threads(
        3,
        [](Group& world) {
            const auto data = upload(world, std::vector<float>(100, 1.0f));
            un::all_reduce(world, data.span());
        },
        2s)
        .expect_all(un::ErrorCode::timeout, {"all_reduce", "100 float32"});
    BOOST_TEST(stand_in::counts().aborted - before.aborted == 3);
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_come_to_a_collective_is_named) {
    const Clean clean;
    const Ends ends = on_strangers(
        3, [](un::ControlPlane control, int) { return joined(std::move(control), {}, 2s); },
        [](Group& world) {
            const auto data = upload(world, std::vector<float>(100, 1.0f));
            un::all_reduce(world, data.span());
            if (world.rank() == 1) { // computes, and checks its world now and then
                for (int i = 0; i < 3000; ++i) {
                    std::this_thread::sleep_for(10ms);
                    world.check();
                }
            }
            un::all_reduce(world, data.span());
        });
    ends.expect_all(un::ErrorCode::timeout, {"rank 1"});
    for (const int peer : ends.peers) BOOST_TEST(peer == 1);
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_come_to_the_communicator) {
    const Clean clean;
    const Scene scene({.absent_rank = 1});
    on_strangers(
        2,
        [](un::ControlPlane control, int) {
            return un::join<un::Nccl>(std::move(control), {.timeout = 2s, .rendezvous = {.timeout = 2s}});
        },
        [](Group&) {})
        .expect_all(un::ErrorCode::timeout, {"communicator of 2 ranks"});
}

BOOST_AUTO_TEST_CASE(a_rank_that_throws_ends_what_the_others_wait_for) {
    const Clean clean;
    const Ends ends = on_strangers(
        3, [](un::ControlPlane control, int) { return joined(std::move(control)); },
        [](Group& world) {
            const auto data = upload(world, std::vector<float>(100, 1.0f));
            if (world.rank() == 2) throw std::runtime_error("no more");
            un::all_reduce(world, data.span());
        });
    BOOST_TEST(ends.texts[2] == "no more");
    for (const std::size_t rank : {0u, 1u}) {
        BOOST_TEST((ends.codes[rank] == un::ErrorCode::aborted), ends.texts[rank]);
        BOOST_TEST(ends.ranks[rank] == 2);
    }
}

BOOST_AUTO_TEST_CASE(an_abort_that_hangs_holds_nobody_for_ever) {
    const stand_in::Counts before = stand_in::counts();
    {
        const Scene scene({.silent_rank = 0, .abort_hangs = true});
        on_threads(
            2,
            [](Group& world) {
                std::vector<float> data(100, 1.0f);
                un::all_reduce(world, data);
            },
            2s)
            .expect_all(un::ErrorCode::timeout, {"all_reduce"});
    }
    // The communicators that were left to themselves have ended now.
    for (int i = 0; stand_in::counts().aborted - before.aborted < 2 && i < 3000; ++i) std::this_thread::sleep_for(10ms);
    BOOST_TEST(stand_in::counts().aborted - before.aborted == 2);
    static_cast<void>(stand_in::take_misuse());
}

// The copy to the device is on the stream, and NCCL has not taken the collective after it.
BOOST_AUTO_TEST_CASE(an_abort_waits_for_a_program_that_is_half_enqueued) {
    const Clean clean;
    std::atomic<int> at_work = 0;
    const Ends ends = on_threads(2, [&](Group& world) {
        std::vector<float> data(100, 1.0f);
        un::all_reduce(world, data);
        un::barrier(world);
        for (int i = 0; world.rank() == 1 && i < 3000; ++i) { // computes, and checks its world now and then
            std::this_thread::sleep_for(10ms);
            world.check();
        }
        if (world.rank() == 1) return;
        const Scene never_taken({.questions = 1 << 30});
        const cudaStream_t stream = world.endpoint().stream();
        const auto aborts = std::make_shared<std::atomic<bool>>(false);
        stand_in::launch(stream, [aborts] {
            for (int i = 0; !*aborts && i < 3000; ++i) std::this_thread::sleep_for(10ms);
            std::this_thread::sleep_for(100ms);
        });
        un::Operation sum = un::start_all_reduce(world, data);
        BOOST_TEST(cudaStreamQuery(stream) == cudaErrorNotReady);
        *aborts = true;
        world.abort({.code = un::ErrorCode::aborted, .rank = 0, .message = "rank 0 has had enough"});
        at_work += cudaStreamQuery(stream) == cudaSuccess ? 0 : 1;
        sum.wait();
    });
    ends.expect_all(un::ErrorCode::aborted, {"rank 0 has had enough"});
    BOOST_TEST(at_work == 0);
}

BOOST_AUTO_TEST_CASE(no_memory) {
    const Clean clean;
    const Scene scene({.memory = 1 << 20});
    on_threads(2, [](Group& world) {
        if (world.rank() == 0) {
            BOOST_CHECK_THROW((void)un::allocate_on_device<float>(world, 1 << 20), un::error);
            BOOST_CHECK_THROW((void)un::allocate_on_device<float>(world, ~std::size_t{0}), un::error);
        }
        std::vector<float> data(1 << 20, 1.0f);
        un::all_reduce(world, data); // the device has no room for its copy
    }).expect_all(un::ErrorCode::refused, {"cudaMalloc", "out of memory", "4194304 bytes"});
}

BOOST_AUTO_TEST_CASE(communicators_of_the_programs_own) {
    const Clean clean;
    constexpr int ranks = 3;
    ncclUniqueId id;
    BOOST_TEST(ncclGetUniqueId(&id) == ncclSuccess);
    Ends ends(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            ends.note(rank, [&] {
                un::detail::check_cuda(cudaSetDevice(ranks - 1 - rank), "cudaSetDevice");
                ncclComm_t theirs = nullptr;
                cudaStream_t stream = nullptr;
                ncclConfig_t config = NCCL_CONFIG_INITIALIZER; // blocking
                un::detail::check_nccl(ncclCommInitRankConfig(&theirs, ranks, id, rank, &config), "init");
                un::detail::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
                {
                    Group world = un::adopt(theirs, stream, 30s);
                    if (world.rank() != rank || world.size() != ranks) throw std::runtime_error("other ranks");
                    if (world.endpoint().device() != ranks - 1 - rank || world.endpoint().stream() != stream)
                        throw std::runtime_error("another device or stream");
                    std::vector<float> data(1000, 1.0f);
                    un::all_reduce(world, data);
                    un::all_reduce(world, data, un::Sum{}, un::RingSchedule{});
                    if (data[0] != 9.0f) throw std::runtime_error("wrong sum");
                    if (world.endpoint().network().connections() != 0)
                        throw std::runtime_error("messages over sockets");
                }
                // The communicator and the stream still belong to the program, and work.
                void* memory = nullptr;
                un::detail::check_cuda(cudaMalloc(&memory, 400), "cudaMalloc");
                un::detail::check_nccl(ncclAllReduce(memory, memory, 100, ncclFloat32, ncclSum, theirs, stream), "sum");
                ncclResult_t now = ncclInProgress;
                while (now == ncclInProgress) un::detail::check_nccl(ncclCommGetAsyncError(theirs, &now), "ask");
                un::detail::check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
                un::detail::check_cuda(cudaFree(memory), "cudaFree");
                un::detail::check_nccl(ncclCommFinalize(theirs), "ncclCommFinalize");
                for (now = ncclInProgress; now == ncclInProgress;)
                    un::detail::check_nccl(ncclCommGetAsyncError(theirs, &now), "ask");
                un::detail::check_nccl(ncclCommDestroy(theirs), "ncclCommDestroy");
                un::detail::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
            });
        });
    }
    for (std::thread& thread : threads) thread.join();
    ends.expect_all(un::ErrorCode::none, {});
    BOOST_CHECK_THROW((void)un::adopt(nullptr, nullptr), un::error);
}

BOOST_AUTO_TEST_SUITE_END()
#endif
