// Elastic worlds of ranks with a device: processes that train a model on a device are killed, and
// others are added. The remaining ones end with the bits of an undisturbed training on the host.
#include "support.hpp"

#include "extensions/device/on_device.hpp"
#include "extensions/elastic/ranks.hpp"

#include <unisono/hosts.hpp>
#include <unisono/sharding/sharding.hpp>

namespace unisono_test {

/// The layer's parameters and gradients are on the rank's device, and in no other memory.
template <un::transport Network>
struct Placed<un::ElasticWorld<un::Cuda<Network>>> {
    Placed(un::ElasticWorld<un::Cuda<Network>>& world, Layer& layer)
        : here(world.group().endpoint().device()), model(world.group(), layer) {}
    un::detail::CudaDeviceGuard here;
    test::OnDevice<Layer> model;
};

} // namespace unisono_test

using namespace unisono_test;

namespace {

constexpr auto train_on_device = [](auto& world, auto on_update) { return train(world, on_update); };
constexpr auto train_sharded = [](auto& world, auto on_update) {
    return train(world, on_update, true, 0.01, un::Snapshots{.every = 3}, un::StateSharding{});
};

/// A rank's device in each of its worlds.
struct Seen {
    bool done = false;
    int devices[2] = {-1, -1};
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
BOOST_AUTO_TEST_CASE(sharded) {
    expect_lost_and_added<un::Cuda<un::Tcp>>(6, train_sharded);
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
#ifndef UNISONO_TEST_ON_GPU
    const int devices[4] = {0, 1, 2, 1};
#else
    const int all = un::detail::visible_devices(), devices[4] = {0, 1 % all, 2 % all, 1 % all};
#endif
    for (const int who : {0, 2, 3}) {
        BOOST_TEST(seen[who].done, seen[who].text);
        BOOST_TEST(seen[who].devices[0] == devices[who]);
        BOOST_TEST(seen[who].devices[1] == devices[who]);
    }
}

BOOST_AUTO_TEST_SUITE_END()
