// The bytes that cross between hosts are as few as if each host were one rank. Also tests ranks
// that disagree about their hosts.
#include "base/trainer/outcomes.hpp"
#include "on_hosts.hpp"

#include "unisono/collective/all_reduce.hpp"
#include "unisono/extensions/laboratory/verify.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <vector>

namespace {

namespace un = unisono;

struct Crossing {
    std::uint64_t messages = 0, blocks = 0;
    std::uint64_t of = 1; ///< blocks of the whole vector
};

/// The blocks that all ranks send from one host to others.
template <un::Collective What, class Family>
Crossing crossing(int world, int per_host, const Family& family) {
    Crossing found;
    for (int rank = 0; rank < world; ++rank) {
        const auto schedule = un::schedule::schedule_of<What>(family, {world, rank, 0});
        found.of = schedule.blocks();
        for (std::uint32_t r = 0; r < schedule.rounds(); ++r) {
            schedule.round(r, [&](const un::schedule::Step& step) {
                if (step.kind != un::schedule::StepKind::send || step.peer / per_host == rank / per_host) return;
                ++found.messages;
                found.blocks += step.source.count;
            });
        }
    }
    return found;
}

/// Proves a collective on these hosts, with every root.
template <un::Collective What>
void prove(const un::HostMap& hosts) {
    for (int root = 0; root < hosts.ranks(); ++root) {
        for (const bool tree : {false, true}) {
            const un::HierarchicalSchedule family{.tree_across = tree, .hosts = &hosts};
            const auto report = un::schedule::verify(
                hosts.ranks(), root,
                [&](const un::schedule::Shape& shape) { return un::schedule::schedule_of<What>(family, shape); },
                {.lanes = 2u});
            for (const auto& violation : report.violations)
                BOOST_TEST_ERROR(violation << " (" << un::name_of(What) << ", root " << root << ")");
            BOOST_TEST(report.proven());
        }
    }
}

/// Ranks that take turns on the hosts.
std::vector<int> turns_on(int ranks, int hosts) {
    std::vector<int> host_of;
    for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank % hosts);
    return host_of;
}

} // namespace

BOOST_AUTO_TEST_SUITE(schedule_hierarchical)

BOOST_AUTO_TEST_CASE(hosts_of_any_sizes_and_any_order) {
    using List = std::vector<int>;
    for (const List& host_of :
         {List{0}, List{0, 0, 0}, List{0, 1, 2}, List{0, 0, 0, 1}, List{7, 3, 3, 3}, List{0, 0, 1, 2, 2, 2, 2, 3},
          List{0, 1, 0, 1}, List{0, 1, 1, 0, 2}, List{2, 1, 0, 0, 1, 2, 2}, List{0, 1, 2, 0, 1, 2, 0, 0, 0},
          // The last one has more runs than a round has parts for.
          List{0, 0, 1, 1, 0, 0, 1, 1, 2}, turns_on(18, 2)}) {
        const un::HostMap hosts(host_of);
        prove<un::Collective::all_reduce>(hosts);
        prove<un::Collective::broadcast>(hosts);
        prove<un::Collective::reduce>(hosts);
        prove<un::Collective::barrier>(hosts);
        prove<un::Collective::all_gather>(hosts);
        prove<un::Collective::reduce_scatter>(hosts);
        prove<un::Collective::gather>(hosts);
        prove<un::Collective::scatter>(hosts);
    }
}

BOOST_AUTO_TEST_CASE(a_map_of_hosts) {
    const std::vector<int> host_of{5, 2, 5, 9, 2, 5};
    const un::HostMap map(host_of);
    BOOST_TEST(map.ranks() == 6);
    BOOST_TEST(map.hosts() == 3);
    BOOST_TEST(map.largest() == 3);
    BOOST_TEST((map.size(0) == 3 && map.size(1) == 2 && map.size(2) == 1));
    BOOST_TEST((map.host_of(0) == 0 && map.host_of(4) == 1 && map.host_of(3) == 2));
    BOOST_TEST((map.rank_at(0) == 0 && map.rank_at(2) == 5 && map.rank_at(3) == 1 && map.rank_at(5) == 3));
    for (int rank = 0; rank < 6; ++rank) BOOST_TEST(map.rank_at(map.position(rank)) == rank);
    BOOST_TEST(!map.in_rank_order()); // 0 2 5 1 4 3
    BOOST_TEST((map.runs() == 6 && map.most_runs() == 3));
    const un::HostMap runs(std::vector<int>{0, 0, 1, 1, 2, 0, 1}); // 0 1 5, 2 3 6, 4
    BOOST_TEST((runs.runs() == 5 && runs.most_runs() == 2));
    BOOST_TEST((runs.run_begin(1) == 0 && runs.run_begin(2) == 2 && runs.run_begin(4) == 3 && runs.run_begin(6) == 6));
    const un::HostMap in_order(std::vector<int>{0, 0, 1, 2, 2});
    BOOST_TEST((in_order.in_rank_order() && in_order.runs() == 1 && in_order.most_runs() == 1));
    BOOST_TEST((un::HostMap(turns_on(8, 4)).takes_turns() && un::HostMap(turns_on(4, 2)).takes_turns()));
    BOOST_TEST((!un::HostMap(turns_on(6, 3)).takes_turns() && !un::HostMap(turns_on(12, 4)).takes_turns()));
    BOOST_TEST(!un::HostMap(std::vector<int>{0, 1, 1, 0}).takes_turns());
    BOOST_TEST(map.has_levels());
    BOOST_TEST(!un::HostMap(std::vector<int>{0, 0}).has_levels());
    BOOST_TEST(!un::HostMap(std::vector<int>{0, 1}).has_levels());
    BOOST_TEST((map == un::HostMap(std::vector<int>{1, 0, 1, 3, 0, 1})));
    BOOST_TEST(map.hash() == un::HostMap(std::vector<int>{1, 0, 1, 3, 0, 1}).hash());
    BOOST_TEST(map.hash() != un::HostMap(std::vector<int>{1, 0, 1, 3, 0, 0}).hash());
    const un::HierarchicalSchedule other{.hosts = &map};
    BOOST_CHECK_THROW(static_cast<void>(un::schedule::schedule_of<un::Collective::all_reduce>(other, {5, 0, 0})),
                      un::error);
}

BOOST_AUTO_TEST_CASE(two_hosts_of_two_send_what_a_ring_of_two_sends) {
    const auto hosts = crossing<un::Collective::all_reduce>(4, 2, unisono_test::OnHosts<2>{});
    const auto ring = crossing<un::Collective::all_reduce>(2, 1, un::RingSchedule{});
    BOOST_TEST(hosts.of == ring.of);
    BOOST_TEST(hosts.blocks == ring.blocks);
    BOOST_TEST(hosts.messages == ring.messages);
    // Of half a vector. Each of the two sends a whole one.
    BOOST_TEST(ring.blocks == 4u);
    const auto flat = crossing<un::Collective::all_reduce>(4, 2, un::RingSchedule{});
    BOOST_TEST(flat.blocks * hosts.of > hosts.blocks * flat.of); // a ring of all sends more
}

BOOST_AUTO_TEST_CASE(no_more_crosses_than_between_as_many_ranks_as_hosts) {
    for (const int hosts : {2, 3, 5}) {
        const int world = 4 * hosts;
        const auto same = [&](auto each, const auto& many, const auto& few, std::uint64_t blocks_of_host) {
            constexpr un::Collective what = each;
            const auto found = crossing<what>(world, 4, many);
            const auto wanted = crossing<what>(hosts, 1, few);
            BOOST_TEST(found.blocks == wanted.blocks * blocks_of_host, un::name_of(what)
                                                                           << " on " << hosts << " hosts");
            BOOST_TEST(found.messages == wanted.messages, un::name_of(what) << " on " << hosts << " hosts");
        };
        const unisono_test::OnHosts<4, true> by_tree;
        same(std::integral_constant<un::Collective, un::Collective::all_reduce>{}, by_tree, un::TreeSchedule{}, 1);
        un::schedule::for_each_collective<un::HierarchicalSchedule>([&](auto each) {
            constexpr un::Collective what = each;
            const unisono_test::OnHosts<4> family;
            const std::uint64_t blocks_of_host = un::moves_vectors(what) || what == un::Collective::barrier ? 1 : 4;
            if constexpr (what == un::Collective::all_to_all) return; // each block goes straight to its rank
            else if constexpr (un::schedule::offers<un::RingSchedule, what> && !un::has_root(what))
                same(each, family, un::RingSchedule{}, blocks_of_host);
            else same(each, family, un::TreeSchedule{}, blocks_of_host);
        });
    }
}

BOOST_AUTO_TEST_CASE(it_runs_and_ranks_that_disagree_are_told) {
    const auto sum = [](auto& world, int ranks_per_host) {
        std::vector<std::int32_t> values(10, world.rank() + 1);
        un::all_reduce(world, values, un::Sum{}, un::HierarchicalSchedule{.ranks_per_host = ranks_per_host});
        return values;
    };
    for (const auto& found : unisono_test::outcomes(4, [&](auto& world) {
             if (sum(world, 2) != std::vector<std::int32_t>(10, 10) || sum(world, 3) != sum(world, 1))
                 throw std::runtime_error("the sum is wrong");
         }))
        BOOST_TEST(!found.failed, found.what);
    for (const auto& found : unisono_test::outcomes(4, [&](auto& world) { sum(world, world.rank() == 3 ? 4 : 2); })) {
        BOOST_TEST((found.code == un::ErrorCode::mismatch), found.what);
        BOOST_TEST(found.says("schedule"), found.what);
    }
    for (const auto& found : unisono_test::outcomes(2, [&](auto& world) { sum(world, 0); }))
        BOOST_TEST(found.says("ranks_per_host is 0"), found.what);
}

BOOST_AUTO_TEST_SUITE_END()
