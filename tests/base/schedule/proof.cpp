// Proves every schedule of every family, for every world from 1 to 64 and some large ones, with
// several roots.
#include "on_hosts.hpp"

#include <boost/test/unit_test.hpp>

#include "support/sanitizers.hpp"
#include "unisono/extensions/laboratory/verify.hpp"
#include "unisono/schedule/families.hpp"

#include <set>
#include <vector>

namespace {

namespace un = unisono;

std::vector<int> worlds() {
#ifdef UNISONO_TEST_SANITIZED
    std::vector<int> list = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 33, 64, 100};
#else
    std::vector<int> list;
    for (int world = 1; world <= 64; ++world) list.push_back(world);
    list.insert(list.end(), {100, 127, 128, 1000});
#endif
    return list;
}

std::set<int> roots(int world, bool rooted) {
    if (!rooted) return {0};
    if (world <= 8) {
        std::set<int> all;
        for (int root = 0; root < world; ++root) all.insert(root);
        return all;
    }
    return {0, 1, world / 3, world - 1};
}

constexpr bool is_rooted(un::Collective what) {
    return what == un::Collective::broadcast || what == un::Collective::reduce || what == un::Collective::gather ||
           what == un::Collective::scatter;
}

template <class Family, un::Collective What>
void prove() {
    std::uint64_t steps = 0;
    for (const int world : worlds()) {
        for (const int root : roots(world, is_rooted(What))) {
            const auto report = un::schedule::verify(
                world, root,
                [](const un::schedule::Shape& shape) { return un::schedule::schedule_of<What>(Family{}, shape); },
                {.lanes = world <= 12 ? 3u : 1u});
            for (const auto& violation : report.violations) BOOST_TEST_ERROR(violation);
            if (!report.proven()) return;
            steps += report.steps;
            const auto claimed = un::schedule::schedule_of<What>(Family{}, {world, 0, root}).channel_depth();
            BOOST_TEST(report.least_depth == claimed, Family::name << " " << un::name_of(What) << " on " << world
                                                                   << " ranks needs depth " << report.least_depth
                                                                   << ", claims " << claimed);
        }
    }
    BOOST_TEST(steps > 0u);
}

/// The same schedule, which claims no cost.
template <class Schedule>
struct Unclaimed : Schedule {
    un::schedule::Cost cost() const = delete;
};

template <class Family, un::Collective What>
void count_cost() {
    using Claimed = un::schedule::ScheduleIn<Family, What>;
    for (const int world : {1, 2, 3, 4, 5, 8, 9})
        for (const int root : roots(world, is_rooted(What)))
            for (int rank = 0; rank < world; ++rank) {
                const auto claimed = un::schedule::schedule_of<What>(Family{}, {world, rank, root});
                BOOST_CHECK_MESSAGE(un::schedule::cost_of_rank(Unclaimed<Claimed>{claimed}) == claimed.cost(),
                                    Claimed::name << " of rank " << rank << " of " << world << ", root " << root);
            }
}

template <class Family>
void prove_all() {
    un::schedule::for_each_collective<Family>([](auto what) {
        prove<Family, what>();
        count_cost<Family, what>();
    });
}

} // namespace

BOOST_AUTO_TEST_SUITE(schedule_proof)

BOOST_AUTO_TEST_CASE(ring) { prove_all<un::RingSchedule>(); }
BOOST_AUTO_TEST_CASE(tree) { prove_all<un::TreeSchedule>(); }
BOOST_AUTO_TEST_CASE(halving_doubling) { prove_all<un::HalvingDoublingSchedule>(); }
BOOST_AUTO_TEST_CASE(direct) { prove_all<un::DirectSchedule>(); }
BOOST_AUTO_TEST_CASE(exchange) { prove_all<un::ExchangeSchedule>(); }
BOOST_AUTO_TEST_CASE(mapped) { prove_all<un::MappedSchedule>(); }
BOOST_AUTO_TEST_CASE(staged) { prove_all<un::StagedSchedule>(); }
BOOST_AUTO_TEST_CASE(hierarchical) {
    prove_all<unisono_test::OnHosts<1>>();
    prove_all<unisono_test::OnHosts<2>>();
    prove_all<unisono_test::OnHosts<3>>();
    prove_all<unisono_test::OnHosts<8>>();
    prove_all<unisono_test::OnHosts<3, true>>();
}

BOOST_AUTO_TEST_SUITE_END()
