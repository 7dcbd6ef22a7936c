// The same over other transports: memory that ranks share, pretended hosts of threads, and
// processes that join.
#include "support.hpp"

#include "extensions/hosts/pretended_hosts.hpp"
#include "support/folder.hpp"

#include <unisono/extensions/launch/rendezvous/rendezvous.hpp>
#include <unisono/hosts.hpp>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace un = unisono;
using test::Clean;
using test::download;

namespace {

/// The bits of the network's own native sums, and blocks, in pieces.
template <class World>
void check(World& world, test::Findings& findings) {
    const auto mine = test::rough(world.rank(), 3001);
    auto host = mine;
    un::all_reduce(world, host);
    const auto data = test::upload(world, mine);
    un::all_reduce(world, data.span());
    findings.expect(download(data.span()) == host, "all_reduce");
    const auto ranks = static_cast<std::size_t>(world.size());
    const auto all = test::upload(world, std::vector<int>(1000 * ranks, -1));
    const auto part = test::upload(world, std::vector<int>(1000, world.rank()));
    un::all_gather(world, part.span(), all.span());
    const auto gathered = download(all.span());
    bool right = true;
    for (std::size_t i = 0; i < gathered.size(); ++i) right = right && gathered[i] == static_cast<int>(i / 1000);
    findings.expect(right, "all_gather");
    un::reduce_scatter(world, all.span(), part.span());
    findings.expect(download(part.span()) == std::vector<int>(1000, world.rank() * world.size()), "reduce_scatter");
    un::broadcast(world, data.span(), 0);
    world.check();
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_networks)

BOOST_AUTO_TEST_CASE(memory_that_ranks_share) {
    const Clean clean;
    const test::SmallPieces small;
    test::Findings findings;
    un::run<un::Cuda<un::SharedMemory>>(
        3,
        [&](auto& world) {
            check(world, findings);
            auto half = world.split(world.rank() == 1 ? 1 : 0, 0);
            check(half, findings);
        },
        test::limit);
}

BOOST_AUTO_TEST_CASE(hosts_of_several_ranks) {
    const Clean clean;
    const test::SmallPieces small;
    test::Findings findings;
    un::run<un::Cuda<test::PretendedHosts>>(
        4, [&](auto& world) { check(world, findings); }, test::limit);
}

BOOST_AUTO_TEST_CASE(ranks_that_join) {
    const Clean clean;
    const unisono_test::Folder folder;
#ifdef UNISONO_TEST_ON_GPU
    const std::vector<int> numbers{un::detail::visible_devices()};
#else
    const std::vector<int> numbers{8, 2, 0};
#endif
    for (const int devices : numbers) {
#ifndef UNISONO_TEST_ON_GPU
        const stand_in::Scene scene({.devices = devices});
#endif
        std::vector<std::string> ends(3);
        std::vector<int> places(3, -1);
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 3; ++rank) {
            threads.emplace_back([&, rank] {
                const auto at = static_cast<std::size_t>(rank);
                try {
                    auto world = un::join<test::Transport>(
                        un::rendezvous(un::identity_of(rank, 3),
                                       {.folder = folder.path(), .job = "job" + std::to_string(devices)},
                                       {.timeout = std::chrono::seconds(60), .linger = std::chrono::seconds(20)}),
                        {.timeout = std::chrono::seconds(30)}, {.piece_bytes = 1000});
                    places[at] = world.endpoint().device();
                    const auto data = test::upload(world, std::vector<float>(1000, 1.0f));
                    un::all_reduce(world, data.span());
                    if (download(data.span())[999] != 3.0f) throw std::runtime_error("wrong sum");
                } catch (const std::exception& failed) {
                    ends[at] = failed.what();
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        for (const std::string& end : ends) {
            if (devices != 0) BOOST_TEST(end == "");
            else BOOST_TEST(test::mentions(end, {"rank 0", "cudaErrorNoDevice"}), end);
        }
        if (devices >= 3) BOOST_TEST((places == std::vector<int>{0, 1, 2}));
        if (devices == 2) BOOST_TEST((places == std::vector<int>{0, 1, 0}));
        if (devices == 1) BOOST_TEST((places == std::vector<int>{0, 0, 0}));
    }
}

BOOST_AUTO_TEST_SUITE_END()
