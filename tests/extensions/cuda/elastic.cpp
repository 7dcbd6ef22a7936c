// Elastic worlds of ranks with a device: processes that train a model on a device are killed, and
// others are added. The remaining ones end with the bits of an undisturbed training on the host.
#include "support.hpp"

#include "extensions/device/elastic_model.hpp"
#include "extensions/elastic/ranks.hpp"

#include <unisono/hosts.hpp>
#include <unisono/sharding/sharding.hpp>

#include <optional>

using namespace unisono_test;

namespace {

constexpr auto train_on_device = [](auto& world, auto on_update) { return train(world, on_update); };
constexpr auto train_sharded = [](auto& world, auto on_update) {
    return train(world, on_update, true, 0.01, un::Snapshots{.every = 3}, un::StateSharding{});
};

/// After this every call for the device answers an error, as after a fault in a kernel.
#ifdef UNISONO_TEST_ON_GPU
__global__ void fault() { asm volatile("trap;"); }
void lose_device(int) {
    fault<<<1, 1>>>();
    static_cast<void>(cudaDeviceSynchronize());
}
#else
void lose_device(int device) { static const stand_in::Scene lost({.lost_device = device}); }
#endif

/// Rank 1 loses its device after an update, or in its call of the model. It ends
/// with CUDA's text, which the others learn.
template <class Transport, class... More>
void lose_the_device(int ranks, bool in_model, More... more) {
    const Shared told;
    run_ranks<Transport>(ranks, told, [&](int who) {
        return [&, who, in_model, more...](auto& world) {
            int device = world.group().endpoint().device();
            if (in_model && who == 1)
                before_batch = [device, calls = 0]() mutable { ++calls == 7 ? lose_device(device) : void(); };
            const Result result = train(
                world,
                [&](const un::UpdateReport& report) {
                    if (!in_model && who == 1 && report.number == 5) lose_device(device);
                },
                true, 0.01, more...);
            if (!world.changes().empty())
                std::snprintf(told[who].text, sizeof told[who].text, "%s", world.changes()[0].why.c_str());
            return result;
        };
    });
    for (int who = 0; who < ranks; ++who) {
        BOOST_TEST_CONTEXT(Transport::name << ", in the model: " << in_model << ", rank " << who) {
            BOOST_TEST(test::mentions(told[who].text, {"rank 1, device ", "CUDA: ", "cudaErrorLaunchFailure"}),
                       told[who].text);
            BOOST_TEST(told[who].done == (who != 1));
            if (who == 1) continue;
            BOOST_TEST((told[who].result == undisturbed()), "another result than undisturbed");
            BOOST_TEST(told[who].changes == 1u);
        }
    }
    BOOST_TEST(told[1].code == static_cast<int>(un::ErrorCode::aborted));
}

/// A rank's device in each of its worlds.
struct Seen {
    bool done = false;
    int devices[2] = {-1, -1};
    int visible = 0; ///< devices
    char text[400] = {};
};

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_elastic)

BOOST_AUTO_TEST_CASE(killed_over_sockets) { kill_many<un::Cuda<un::Tcp>>(4); }
BOOST_AUTO_TEST_CASE(killed_in_shared_memory) { kill_many<un::Cuda<un::SharedMemory>>(2); }
BOOST_AUTO_TEST_CASE(killed_on_hosts) { kill_many<un::Cuda<un::Hosts<un::Tcp>>>(2); }
/// One rank dies, another gets the state of the device, rank 0 dies.
BOOST_AUTO_TEST_CASE(added) { expect_lost_and_added<un::Cuda<un::Tcp>>(6, train_on_device); }
/// All return to the last copy of the slices.
BOOST_AUTO_TEST_CASE(added_to_sharded) { expect_lost_and_added<un::Cuda<un::Tcp>>(6, train_sharded); }
BOOST_AUTO_TEST_CASE(sharded) {
    const std::vector<Strike> strikes = {{1, SIGKILL, 8, 0}};
    const Shared told;
    run_ranks<un::Cuda<un::Tcp>>(
        3, told, [&](int rank) { return struck(rank, strikes, 300, un::Snapshots{.every = 4}, un::StateSharding{}); });
    for (const int rank : {0, 2}) {
        BOOST_TEST(told[rank].done, told[rank].text);
        BOOST_TEST((told[rank].result == undisturbed()), "another result than undisturbed");
        BOOST_TEST(told[rank].changes == 1u);
    }
}

BOOST_AUTO_TEST_CASE(a_device_fails) {
    for (const bool in_model : {false, true}) {
        lose_the_device<un::Cuda<un::Tcp>>(3, in_model);
        lose_the_device<un::Cuda<un::SharedMemory>>(3, in_model);
    }
    lose_the_device<un::Cuda<un::Tcp>>(3, true, un::Snapshots{.every = 3}, un::StateSharding{});
}

#ifndef UNISONO_TEST_ON_GPU
/// Rank 3 dies, and the device of rank 1 gives no stream to the next membership. That rank ends,
/// and the others form a membership without it.
BOOST_AUTO_TEST_CASE(a_device_fails_between_memberships) {
    for (const bool finds_none : {false, true}) {
        const Shared told;
        run_ranks<un::Cuda<un::Tcp>>(4, told, [&](int who) {
            return [who, finds_none](auto& world) {
                std::optional<stand_in::Scene> scene;
                return train(world, [&](const un::UpdateReport& report) {
                    if (who == 1 && report.number == 4)
                        scene.emplace(stand_in::Behaviour{.devices = finds_none ? 0 : 8, .streams = finds_none});
                    if (who == 3 && report.number == 6) ::kill(::getpid(), SIGKILL);
                });
            };
        });
        BOOST_TEST(told[1].code == static_cast<int>(un::ErrorCode::refused));
        BOOST_TEST(test::mentions(told[1].text, {finds_none ? "cudaErrorNoDevice" : "cudaStreamCreateWithFlags"}),
                   told[1].text);
        for (const int who : {0, 2}) {
            BOOST_TEST(told[who].done, told[who].text);
            BOOST_TEST((told[who].result == undisturbed()), "another result than undisturbed");
        }
    }
}

/// The device of a rank gives no stream, or is gone, when a process is added. That rank ends, and
/// does not blame the process: the others take it in. Rank 0 decides which applicants are refused.
BOOST_AUTO_TEST_CASE(a_device_fails_as_a_rank_is_added) {
    if (too_slow()) return;
    for (const int devices : {8, 1, 0}) { // of rank 1 one is not enough
        const int failing = devices == 1 ? 1 : 0;
        const Shared told;
        const Folder folder;
        un::Processes processes;
        for (int who = 0; who < 3; ++who)
            processes.start([&, who] {
                std::optional<stand_in::Scene> scene;
                const auto body = [&](auto& world) {
                    return train(world, [&](const un::UpdateReport& report) {
                        if (who == failing && report.number == 1)
                            scene.emplace(stand_in::Behaviour{.devices = devices, .streams = devices != 8});
                        ::usleep(told[2].was_in || told[2].text[0] != 0 ? 1'000 : 400'000);
                    });
                };
                return be_rank<un::Cuda<un::Tcp>>(who == 2 ? -1 : who, 2, folder.path(), patient(), told[who], body);
            });
        await_end(processes);
        BOOST_TEST_CONTEXT(devices << " devices") {
            BOOST_TEST(told[failing].code == static_cast<int>(un::ErrorCode::refused));
            const char* const why = devices == 8   ? "cudaStreamCreateWithFlags"
                                    : devices == 1 ? "asks for device 1, but sees 1"
                                                   : "cudaErrorNoDevice";
            BOOST_TEST(test::mentions(told[failing].text, {failing == 0 ? "rank 0" : "rank 1", why}),
                       told[failing].text);
            for (const int who : {1 - failing, 2}) {
                BOOST_TEST(told[who].done, told[who].text);
                BOOST_TEST((told[who].result == undisturbed()), "another result than undisturbed");
            }
        }
    }
}

/// A process whose device cannot be used is not added, and the others train on.
BOOST_AUTO_TEST_CASE(a_device_that_cannot_be_used_is_not_added) {
    if (too_slow()) return;
    for (const bool finds_none : {false, true}) {
        const Shared told;
        const Folder folder;
        un::Processes processes;
        for (int who = 0; who < 3; ++who)
            processes.start([&, who, finds_none] {
                std::optional<stand_in::Scene> scene;
                if (who == 2) scene.emplace(stand_in::Behaviour{.devices = finds_none ? 0 : 8, .streams = finds_none});
                const int rank = who == 2 ? -1 : who;
                return be_rank<un::Cuda<un::Tcp>>(rank, 2, folder.path(), patient(), told[who], [&](auto& world) {
                    // Slowly, until the applicant has ended.
                    return train(world,
                                 [&](const un::UpdateReport&) { ::usleep(told[2].text[0] == 0 ? 300'000 : 1'000); });
                });
            });
        await_end(processes);
        BOOST_TEST(!told[2].done);
        BOOST_TEST(test::mentions(told[2].text, {finds_none ? "cudaErrorNoDevice" : "cudaStreamCreateWithFlags"}),
                   told[2].text);
        for (const int who : {0, 1}) {
            BOOST_TEST(told[who].done, told[who].text);
            BOOST_TEST((told[who].result == undisturbed()), "another result than undisturbed");
        }
    }
}
#endif

#if defined(UNISONO_TEST_ON_GPU) && UNISONO_NCCL_REVOKES
/// Over NCCL itself, whose ranks share a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1). A communicator has at
/// most two ranks there.
BOOST_AUTO_TEST_CASE(over_nccl) {
    const std::vector<Strike> strikes = {{1, SIGKILL, 5, 0}};
    const Shared told;
    run_ranks<un::Nccl>(2, told, [&](int rank) { return struck(rank, strikes); });
    BOOST_TEST(told[0].done, told[0].text);
    BOOST_TEST((told[0].result == undisturbed()), "another result than undisturbed");
    BOOST_TEST(told[0].changes == 1u);
    for (const bool in_model : {false, true}) lose_the_device<un::Nccl>(2, in_model);
}
#endif

/// How long after a death the others make the next update. Reports it, and the time of an update.
BOOST_AUTO_TEST_CASE(the_next_update) {
    struct Times {
        un::nanoseconds death = 0, next = 0, update = 0, recovery = 0;
    };
    const Records<Times> times;
    const Shared told;
    run_ranks<un::Cuda<un::Tcp>>(4, told, [&](int who) {
        return [&, who](auto& world) {
            un::nanoseconds last = 0;
            return train(world, [&, who, last](const un::UpdateReport& report) mutable {
                const un::nanoseconds now = un::steady_now();
                Times& mine = times[who];
                if (world.changes().empty()) mine.update = now - last;
                else if (mine.next == 0) mine.next = now, mine.recovery = world.changes()[0].recovery().count();
                last = now;
                if (who != 1 || report.number != 6) return;
                mine.death = now;
                ::kill(::getpid(), SIGKILL);
            });
        };
    });
    const auto ms = [](un::nanoseconds time) { return static_cast<double>(time) * 1e-6; };
    for (const int who : {0, 2, 3}) {
        BOOST_TEST(told[who].done, told[who].text);
        BOOST_TEST_MESSAGE("rank " << who << ": an update " << ms(times[who].update)
                                   << " ms; from the death to the next one " << ms(times[who].next - times[1].death)
                                   << " ms, of which the recovery " << ms(times[who].recovery) << " ms");
    }
}

/// A rank has another number in the next world, but its model stays where it is. An added rank gets
/// the device of the lost one, not that of its own number.
BOOST_AUTO_TEST_CASE(ranks_keep_their_devices) {
    if (too_slow()) return;
    const Records<Seen> seen;
    const Folder folder;
    un::Processes processes;
    for (int who = 0; who < 4; ++who)
        processes.start([&, who] {
            un::ElasticOptions options = patient();
            options.folder = folder.path();
            options.joins = who == 3;
            Seen& mine = seen[who];
            try {
                auto world = who == 3 ? un::join<un::Elastic<un::Cuda<un::Tcp>>>(options)
                                      : un::join<un::Elastic<un::Cuda<un::Tcp>>>(
                                            un::rendezvous(un::identity_of(who, 3), {.folder = folder.path()},
                                                           options.join.rendezvous),
                                            options);
                mine.visible = un::detail::visible_devices();
                mine.devices[0] = world.group().endpoint().device();
                static_cast<void>(train(world, [&](const un::UpdateReport& report) {
                    if (who == 1 && report.number == 2) ::kill(::getpid(), SIGKILL);
                    ::usleep(100'000);
                }));
                mine.devices[1] = world.group().endpoint().device();
                mine.done = true;
            } catch (const std::exception& failed) {
                std::snprintf(mine.text, sizeof mine.text, "%s", failed.what());
            }
            return mine.done ? 0 : 1;
        });
    await_end(processes);
    const int places[4] = {0, 1, 2, 1};
    for (const int who : {0, 2, 3}) {
        BOOST_TEST(seen[who].done, seen[who].text);
        if (seen[who].visible < 3) continue;
        BOOST_TEST(seen[who].devices[0] == places[who]);
        BOOST_TEST(seen[who].devices[1] == places[who]);
    }
}

BOOST_AUTO_TEST_SUITE_END()
