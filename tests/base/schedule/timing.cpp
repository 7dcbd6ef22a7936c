// Schedules timed by LogGP, compared with times computed by hand. Ranks that represent others are
// compared with all ranks.
#include <boost/test/unit_test.hpp>

#include "unisono/extensions/laboratory/timing.hpp"
#include "unisono/schedule/families.hpp"
#include "unisono/schedule/hierarchical.hpp"

#include <cmath>
#include <string>
#include <type_traits>

namespace {
namespace un = unisono;
using namespace un::schedule;

/// Between hosts 1,000 ns and 1 ns per byte, including 100 ns at each end; within a host a tenth of
/// that.
un::ClusterModel cluster(int per_host) {
    un::ClusterModel model;
    model.ranks_per_host = per_host;
    model.between.one_way.points = {{0, 1000}, {1000, 2000}};
    model.between.overhead.points = {{0, 100}};
    model.within.one_way.points = {{0, 100}, {1000, 200}};
    model.within.overhead.points = {{0, 10}};
    return model;
}

template <class Family>
un::Prediction all_reduce(const Family& family, int world, std::uint64_t bytes, const un::ClusterModel& model,
                          int stand_for_all = 0) {
    return predict([&](const Shape& shape) { return schedule_of<un::Collective::all_reduce>(family, shape); }, world,
                   bytes, model, stand_for_all);
}

template <class... Schedules>
struct Listing {
    static constexpr std::string_view name = "listing";
    using schedules = List<Schedules...>;
    [[maybe_unused]] friend bool operator==(const Listing&, const Listing&) = default;
};

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
    // Two ranks: a round of 1,000 bytes each way, which are combined, and another round.
    BOOST_TEST(all_reduce(un::RingSchedule{}, 2, 2000, model).seconds * 1e9 == 2 * 2000.0, near);
    model.combine_ns_per_byte = 0.5;
    BOOST_TEST(all_reduce(un::RingSchedule{}, 2, 2000, model).seconds * 1e9 == 2 * 2000.0 + 500, near);
    BOOST_TEST(all_reduce(un::RingSchedule{}, 2, 2000, model).messages == 4u);
    BOOST_TEST(all_reduce(un::RingSchedule{}, 2, 2000, cluster(2)).seconds * 1e9 == 2 * 200.0, near);
    BOOST_TEST(all_reduce(un::RingSchedule{}, 1, 2000, model).seconds == 0.0);
    // The root's second message leaves its rank after 100 ns, and its network card after 500.
    const auto scatter = [](const Shape& shape) { return DirectScatter{{shape}}; };
    BOOST_TEST(predict(scatter, 3, 0, cluster(1)).seconds * 1e9 == 100 + 1000.0, near);
    model = cluster(1);
    model.between.shared.points = {{0, 500}};
    BOOST_TEST(predict(scatter, 3, 0, model).seconds * 1e9 == 500 + 1000.0, near);
    model = cluster(1);
    model.between.gap.points = {{0, 300}};
    BOOST_TEST(predict(scatter, 3, 0, model).seconds * 1e9 == 300 + 1000.0, near);
    // The root is done after 200 ns. Its messages arrive after 900 and 1,000 ns, and cost their
    // receivers 100.
    BOOST_TEST(predict(scatter, 3, 0, cluster(1)).mean_seconds * 1e9 == (200 + 1000 + 1100) / 3.0, near);
    // On a tree over two hosts, the sum crosses to the other host and back.
    const double within = 2 * 100;
    BOOST_TEST(all_reduce(un::TreeSchedule{}, 4, 0, cluster(2)).seconds * 1e9 == within + 2 * 1000.0, near);
    // Elements are not split: five of 4 bytes on two ranks are three and two.
    BOOST_TEST(predict([](const Shape& shape) { return RingAllReduce{{shape}}; }, 2, 20, cluster(1), 0, 4).seconds *
                       1e9 ==
                   1012 + 1012.0,
               near);
}

/// If the protocol needs an acknowledgement, a sender waits for it. If it needs a request, the
/// message leaves when the request arrives.
BOOST_AUTO_TEST_CASE(protocols) {
    const auto near = boost::test_tools::tolerance(1e-12);
    const auto ring = [](const un::ClusterModel& model, std::uint64_t bytes) {
        return all_reduce(un::RingSchedule{}, 2, bytes, model).seconds * 1e9;
    };
    un::ClusterModel model = cluster(1);
    model.between.buffered_bytes = 1000;
    BOOST_TEST(ring(model, 2000) == 2 * 2000.0, near);
    model.between.buffered_bytes = 999;
    // 1,900 ns there and 900 back, without overheads: more than the 2,000 after which its own
    // message has arrived.
    BOOST_TEST(ring(model, 2000) == 2 * 2800.0, near);
    // Rank 1 looks for the root's message after it has sent its own, which takes 100 ns. The
    // request has waited until then.
    const auto gather = [](const Shape& shape) { return DirectGather{{shape}}; };
    model = cluster(1);
    BOOST_TEST(predict(gather, 2, 2000, model).seconds * 1e9 == 2000.0, near);
    model.between.eager_bytes = 999;
    BOOST_TEST(predict(gather, 2, 2000, model).seconds * 1e9 == 2000.0, near);
    model.within.eager_bytes = 10;
    const un::detail::ClusterClock clock(model, 2);
    BOOST_TEST(clock.met(0, 1, 1000, 1900, 0) == 1900.0); // its request came after its receiver
    // 900 of a message's 1,900 ns were the request's.
    BOOST_TEST(clock.met(0, 1, 1000, 1900, 5000) == 5900.0);
    BOOST_TEST(clock.met(0, 1, 999, 1900, 5000) == 1900.0);
}

BOOST_AUTO_TEST_CASE(saved_models_are_loaded_to_the_bit) {
    un::ClusterModel model = cluster(3);
    model.combine_ns_per_byte = 0.1;
    model.between.eager_bytes = 8192;
    model.between.shared.points = {{1, 1.0 / 3}, {1e6, 1e6 / 7}};
    const std::string saved = model.save();
    BOOST_TEST((un::ClusterModel::load(saved) == model));
    const auto refused = [&](const std::string& from, const std::string& to, const std::string& words) {
        std::string text = saved;
        text.replace(text.find(from), from.size(), to);
        BOOST_CHECK_EXCEPTION((void)un::ClusterModel::load(text), un::error, says(words));
    };
    refused("model 1", "model 2", "version '2'");
    refused("ranks_per_host 3", "ranks_per_host 0", "line 2 is '0'");
    refused("within.gap", "within.gaps", "found 'within.gaps'");
    refused("1000:200", "1000:x", "is 'x'");
    refused("0:100", "9000:100", "ascending order");
    BOOST_CHECK_EXCEPTION((void)un::ClusterModel::load(""), un::error, says("line 1: found ''"));
    BOOST_TEST((un::ClusterModel::load(saved + "\n") == model));
    BOOST_CHECK_EXCEPTION((void)un::ClusterModel::load(saved + saved), un::error,
                          says("line 16: found 'unisono cluster model 1', expected no more lines"));
}

BOOST_AUTO_TEST_CASE(one_host_stands_for_all) {
    for (const int per_host : {1, 2, 8}) {
        un::ClusterModel model = cluster(per_host);
        model.between.shared.points = {{0, 30}, {1000, 330}};
        model.between.gap.points = {{0, 120}, {1000, 600}};
        model.within.shared.points = {{0, 5}, {1000, 50}};
        model.between.buffered_bytes = 100;
        model.between.eager_bytes = 2000;
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
    const auto ring = [](const Shape& shape) { return RingAllReduce{{shape}}; };
    BOOST_CHECK_EXCEPTION(predict(ring, 2, 20, model, 0, 0), un::error, says("elements of 0 bytes"));
}

BOOST_AUTO_TEST_CASE(bad_clusters_are_refused) {
    const auto refused = [](auto change, const std::string& words) {
        un::ClusterModel model = cluster(1);
        change(model);
        BOOST_CHECK_EXCEPTION(all_reduce(un::RingSchedule{}, 2, 8, model), un::error, says(words));
    };
    refused([](un::ClusterModel& m) { m.ranks_per_host = 0; }, "ranks_per_host is 0");
    refused([](un::ClusterModel& m) { m.combine_ns_per_byte = -1; }, "combine_ns_per_byte is -1");
    refused([](un::ClusterModel& m) { m.between.eager_bytes = std::nan(""); }, "eager_bytes is nan");
    refused([](un::ClusterModel& m) { m.between.gap.points = {{1, -1}}; }, "between.gap has -1");
    refused([](un::ClusterModel& m) { m.within.one_way.points.clear(); }, "within.one_way is empty");
    refused([](un::ClusterModel& m) { m.between.one_way.points = {{8, 1}, {8, 2}}; }, "8.000000 bytes as its size 1");
    BOOST_CHECK_EXCEPTION(all_reduce(un::RingSchedule{}, 0, 8, cluster(1)), un::error, says("a world of 0"));
}

/// Of many ranks, those of one host are timed.
BOOST_AUTO_TEST_CASE(ten_thousand_ranks) {
    const un::ClusterModel model = cluster(8);
    const un::Prediction ring = all_reduce(un::RingSchedule{}, 10'000, 10'000, model, 8);
    BOOST_TEST(ring.messages == 2u * 9'999 * 10'000);
    const un::Prediction tree = all_reduce(un::TreeSchedule{}, 10'000, 10'000, model);
    BOOST_TEST(tree.messages == 2u * 9'999);
    BOOST_TEST(tree.seconds < ring.seconds);
}

BOOST_AUTO_TEST_CASE(families_as_values) {
    static_assert(un::schedule_family<un::RingSchedule> && !un::schedule_family<un::ClusterModel>);
    static_assert(offers<un::TreeSchedule, un::Collective::gather> &&
                  !offers<un::RingSchedule, un::Collective::gather>);
    static_assert(!offers<un::HalvingDoublingSchedule, un::Collective::broadcast>);
    static_assert(!offers<un::RingSchedule, un::Collective::send_receive>);
    static_assert(un::schedule_family<Listing<RingAllReduce, TreeBroadcast>>);
    static_assert(!un::schedule_family<Listing<RingAllReduce, TreeAllReduce>>); // two for one collective
    static_assert(!un::schedule_family<Listing<RingAllReduce, int>>);           // no schedule
    static_assert(!un::schedule_family<Listing<>> && !offers<Listing<>, un::Collective::all_reduce>);
    static_assert(std::is_trivially_copyable_v<RingAllReduce> && std::is_trivially_copyable_v<TreeGather>);
    static_assert(RingAllReduce{{4, 0, 0}} == RingAllReduce{{4, 0, 0}} &&
                  !(RingAllReduce{{4, 0, 0}} == RingAllReduce{{4, 1, 0}}));
    BOOST_TEST((un::RingSchedule{.chunk_bytes = 1} == un::RingSchedule{.chunk_bytes = 1}));
    BOOST_TEST((un::RingSchedule{.chunk_bytes = 1} != un::RingSchedule{}));
}

BOOST_AUTO_TEST_SUITE_END()
