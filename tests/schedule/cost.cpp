// The time model against figures worked out by hand, and what it says about which schedule wins where.
#include <boost/test/unit_test.hpp>

#include "unisono/schedule/cost.hpp"
#include "unisono/schedule/families.hpp"

#include <cmath>
#include <limits>

namespace {
namespace un = unisono;
using namespace un::schedule;
constexpr un::CostModel model{.latency_ns = 1000, .ns_per_byte = 1, .combine_ns_per_byte = 0.5};
} // namespace

BOOST_AUTO_TEST_SUITE(schedule_cost)

BOOST_AUTO_TEST_CASE(by_hand) {
    const auto near = boost::test_tools::tolerance(1e-12);
    // Four ranks, 400 bytes, blocks of 100: 6 rounds, 6 blocks sent, 3 combined.
    BOOST_TEST(estimate(RingAllReduce{{4, 1, 0}}, 400, model) == 6 * 1000 + 6 * 100 + 3 * 50.0, near);
    // Rank 0 of the tree: 2 children, up and down: 4 rounds, 2 messages of everything, 2 combined.
    BOOST_TEST(estimate(TreeAllReduce{{4, 0, 0}}, 400, model) == 4 * 1000 + 2 * 400 + 2 * 200.0, near);
    BOOST_TEST(estimate(HalvingDoublingAllReduce{{4, 2, 0}}, 400, model) == 4 * 1000 + 6 * 100 + 3 * 50.0, near);
    // Mapped: 3 blocks read from peers and 3 written to them.
    BOOST_TEST(estimate(MappedAllReduce{{4, 3, 0}}, 400, model) == 2 * 1000 + 6 * 100 + 3 * 50.0, near);
    BOOST_TEST(estimate(MappedReduce{{4, 3, 0}}, 400, model) == 2 * 1000 + 4 * 100 + 3 * 50.0, near);
    BOOST_TEST(estimate(StagedAllReduce{{4, 3, 0}}, 400, model) == 1000 + 3 * 400 + 3 * 200.0, near);
    BOOST_TEST(estimate(MappedAllGather{{4, 3, 0}}, 400, model) == 2 * 1000 + 3 * 100.0, near);
    BOOST_TEST(estimate(DisseminationBarrier{{5, 3, 0}}, 0, model) == 3000, near);
    BOOST_TEST(estimate(RingAllReduce{{1, 0, 0}}, 400, model) == 0.0);
}

BOOST_AUTO_TEST_CASE(slowest_rank) {
    const auto make = [](const Shape& shape) { return DirectBroadcast{shape}; };
    BOOST_TEST(estimate_slowest({5, 1, 3}, 100, model, make) == 1000 + 4 * 100.0);
    BOOST_TEST(estimate_slowest({5, 4, 3}, 100, model, make) == estimate_slowest({5, 0, 3}, 100, model, make));
}

BOOST_AUTO_TEST_CASE(who_wins_where) {
    const auto time = [](auto family, int world, std::uint64_t bytes) {
        return estimate_slowest({world, 0, 0}, bytes, un::CostModel{},
                                [&](const Shape& shape) { return family.all_reduce(shape); });
    };
    const un::RingSchedule ring;
    const un::TreeSchedule tree;
    const un::HalvingDoublingSchedule halving;
    // Rounds decide for small data, bytes for large; halving and doubling has the fewest of both but never fewer bytes than the ring.
    BOOST_TEST(time(tree, 64, 8) < time(ring, 64, 8));
    BOOST_TEST(time(ring, 64, 1 << 28) < time(tree, 64, 1 << 28));
    BOOST_TEST(time(halving, 64, 1 << 28) < time(ring, 64, 1 << 28));
    BOOST_TEST(time(un::DirectSchedule{}, 4, 8) < time(tree, 4, 8));
    BOOST_TEST(time(un::StagedSchedule{}, 4, 8) < time(un::MappedSchedule{}, 4, 8));
    BOOST_TEST(time(un::MappedSchedule{}, 4, 1 << 20) < time(un::StagedSchedule{}, 4, 1 << 20));
}

BOOST_AUTO_TEST_CASE(bad_models_are_refused) {
    const auto names = [](std::string_view field) {
        return [=](const un::error& e) {
            return e.code() == un::ErrorCode::bad_input &&
                   std::string_view(e.what()).find(field) != std::string_view::npos;
        };
    };
    BOOST_CHECK_NO_THROW(un::refuse_bad_model({}));
    BOOST_CHECK_EXCEPTION(un::refuse_bad_model({.latency_ns = -1}), un::error, names("latency_ns is -1"));
    BOOST_CHECK_EXCEPTION(un::refuse_bad_model({.ns_per_byte = std::nan("")}), un::error, names("ns_per_byte is nan"));
    BOOST_CHECK_EXCEPTION(un::refuse_bad_model({.combine_ns_per_byte = std::numeric_limits<double>::infinity()}),
                          un::error, names("combine_ns_per_byte is inf"));
}

BOOST_AUTO_TEST_CASE(families_as_values) {
    static_assert(un::schedule_family<un::RingSchedule> && !un::schedule_family<un::CostModel>);
    static_assert(offers<un::TreeSchedule, un::Collective::gather> &&
                  !offers<un::RingSchedule, un::Collective::gather>);
    static_assert(!offers<un::HalvingDoublingSchedule, un::Collective::broadcast>);
    static_assert(!offers<un::RingSchedule, un::Collective::send_receive>);
    static_assert(std::is_trivially_copyable_v<RingAllReduce> && std::is_trivially_copyable_v<TreeGather>);
    static_assert(RingAllReduce{{4, 0, 0}} == RingAllReduce{{4, 0, 0}} &&
                  !(RingAllReduce{{4, 0, 0}} == RingAllReduce{{4, 1, 0}}));
    BOOST_TEST(chunk_bytes_of(un::RingSchedule{.chunk_bytes = 4096}) == 4096u);
    BOOST_TEST(chunk_bytes_of(un::MappedSchedule{}) == 0u);
    BOOST_TEST((un::RingSchedule{.chunk_bytes = 1} == un::RingSchedule{.chunk_bytes = 1}));
    BOOST_TEST((un::RingSchedule{.chunk_bytes = 1} != un::RingSchedule{}));
}

BOOST_AUTO_TEST_SUITE_END()
