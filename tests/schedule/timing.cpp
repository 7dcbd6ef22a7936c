// Schedules played by LogGP, against times worked out by hand; and ranks that stand for others against all of them.
#include <boost/test/unit_test.hpp>

#include "unisono/schedule/families.hpp"
#include "unisono/schedule/hierarchical.hpp"
#include "unisono/schedule/timing.hpp"

#include <string>

namespace {
namespace un = unisono;
using namespace un::schedule;

/// Between hosts 1,000 ns and 1 ns a byte, 100 ns of them at each end; on a host a tenth of that.
un::ClusterModel cluster(int per_host) {
    un::ClusterModel model;
    model.ranks_per_host = per_host;
    model.between = {.overhead_ns = 100, .one_way = {{0, 1000}, {1000, 2000}}};
    model.within = {.overhead_ns = 10, .one_way = {{0, 100}, {1000, 200}}};
    return model;
}

template <class Family>
un::Prediction all_reduce(const Family& family, int world, std::uint64_t bytes, const un::ClusterModel& model,
                          int stand_for_all = 0) {
    return predict([&](const Shape& shape) { return family.all_reduce(shape); }, world, bytes, model, stand_for_all);
}

auto says(const std::string& words) {
    return [=](const un::error& e) {
        return e.code() == un::ErrorCode::bad_input && std::string(e.what()).find(words) != std::string::npos;
    };
}
} // namespace

BOOST_AUTO_TEST_SUITE(schedule_timing)

BOOST_AUTO_TEST_CASE(by_hand) {
    const auto near = boost::test_tools::tolerance(1e-12);
    un::ClusterModel model = cluster(1);
    // Two ranks: a round of 1,000 bytes each way, which are combined, and another one.
    BOOST_TEST(all_reduce(un::RingSchedule{}, 2, 2000, model).seconds * 1e9 == 2 * 2000.0, near);
    model.combine_ns_per_byte = 0.5;
    BOOST_TEST(all_reduce(un::RingSchedule{}, 2, 2000, model).seconds * 1e9 == 2 * 2000.0 + 500, near);
    BOOST_TEST(all_reduce(un::RingSchedule{}, 2, 2000, model).messages == 4u);
    BOOST_TEST(all_reduce(un::RingSchedule{}, 2, 2000, cluster(2)).seconds * 1e9 == 2 * 200.0, near);
    BOOST_TEST(all_reduce(un::RingSchedule{}, 1, 2000, model).seconds == 0.0);
    // The root's second message leaves its rank after 100 ns, and its card after 500.
    const auto scatter = [](const Shape& shape) { return DirectScatter{{shape}}; };
    BOOST_TEST(predict(scatter, 3, 0, cluster(1)).seconds * 1e9 == 100 + 1000.0, near);
    model = cluster(1);
    model.card_gap_ns = 500;
    BOOST_TEST(predict(scatter, 3, 0, model).seconds * 1e9 == 500 + 1000.0, near);
    // On a tree of one host and another, the sum crosses over and back.
    const double within = 2 * 100;
    BOOST_TEST(all_reduce(un::TreeSchedule{}, 4, 0, cluster(2)).seconds * 1e9 == within + 2 * 1000.0, near);
}

BOOST_AUTO_TEST_CASE(one_host_stands_for_all) {
    for (const int per_host : {1, 2, 8}) {
        un::ClusterModel model = cluster(per_host);
        model.card_gap_ns = 30;
        model.card_ns_per_byte = 0.3;
        model.combine_ns_per_byte = 0.01;
        for (const int world : {2 * per_host, 16, 48}) {
            for (const std::uint64_t each : {1u, 1000u, 30'000u}) {
                const std::uint64_t bytes = each * static_cast<std::uint64_t>(world);
                const auto compare = [&](auto family) {
                    const un::Prediction all = all_reduce(family, world, bytes, model);
                    const un::Prediction one = all_reduce(family, world, bytes, model, per_host);
                    BOOST_TEST_CONTEXT(family.name << ", " << world << " ranks, " << per_host << " a host, " << bytes) {
                        BOOST_TEST(one.seconds == all.seconds, boost::test_tools::tolerance(1e-12));
                        BOOST_TEST(one.messages == all.messages);
                        BOOST_TEST(one.played * static_cast<std::uint64_t>(world / per_host) == all.played);
                    }
                };
                compare(un::RingSchedule{});
                compare(un::HierarchicalSchedule{.ranks_per_host = per_host});
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(who_cannot_stand_for_others_is_refused) {
    const un::ClusterModel model = cluster(2);
    BOOST_CHECK_EXCEPTION(all_reduce(un::TreeSchedule{}, 8, 80, model, 2), un::error, says("cannot stand for rank"));
    BOOST_CHECK_EXCEPTION(all_reduce(un::RingSchedule{}, 8, 81, model, 2), un::error, says("81 bytes in 8 blocks"));
    BOOST_CHECK_EXCEPTION(all_reduce(un::RingSchedule{}, 8, 80, model, 1), un::error, says("whole hosts"));
    BOOST_CHECK_EXCEPTION(all_reduce(un::RingSchedule{}, 8, 80, model, 6), un::error, says("whole hosts"));
}

BOOST_AUTO_TEST_CASE(bad_clusters_are_refused) {
    const auto refused = [](auto change, const std::string& words) {
        un::ClusterModel model = cluster(1);
        change(model);
        BOOST_CHECK_EXCEPTION(all_reduce(un::RingSchedule{}, 2, 8, model), un::error, says(words));
    };
    refused([](un::ClusterModel& m) { m.ranks_per_host = 0; }, "ranks_per_host is 0");
    refused([](un::ClusterModel& m) { m.card_gap_ns = -1; }, "card_gap_ns is -1");
    refused([](un::ClusterModel& m) { m.within.one_way.clear(); }, "within.one_way is empty");
    refused([](un::ClusterModel& m) { m.between.one_way = {{8, 1}, {8, 2}}; }, "8.000000 bytes after 8");
    BOOST_CHECK_EXCEPTION(all_reduce(un::RingSchedule{}, 0, 8, cluster(1)), un::error, says("a world of 0"));
}

/// Of many ranks: what is played is a host's.
BOOST_AUTO_TEST_CASE(ten_thousand_ranks) {
    const un::ClusterModel model = cluster(8);
    const un::Prediction ring = all_reduce(un::RingSchedule{}, 10'000, 10'000, model, 8);
    BOOST_TEST(ring.messages == 2u * 9'999 * 10'000);
    const un::Prediction tree = all_reduce(un::TreeSchedule{}, 10'000, 10'000, model);
    BOOST_TEST(tree.messages == 2u * 9'999);
    BOOST_TEST(tree.seconds < ring.seconds);
}

BOOST_AUTO_TEST_SUITE_END()
