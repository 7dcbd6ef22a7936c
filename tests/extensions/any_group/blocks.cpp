// Counts and displacements: blocks with gaps, in any order, different on each rank.

#include "../../base/collective/findings.hpp"
#include "../../support/fails.hpp"

#include <unisono/any_group.hpp>
#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace un = unisono;
using test::refusal_of;

namespace {

constexpr un::Elements ints = {un::ElementType::int32, 4};

void expect(bool good, const std::string& what) {
    if (!good) throw un::error(un::ErrorCode::aborted, what);
}

int value(int from, int to, std::size_t i) { return 1000 * from + 100 * to + static_cast<int>(i); }

/// Block r has r + 1 elements. Blocks are in the order of ranks without gaps, in that order with
/// gaps of `gap`, or in reverse order with gaps.
struct Layout {
    std::vector<std::size_t> counts, displacements;
    std::size_t end = 0;
    Layout(int ranks, std::size_t gap, bool backwards)
        : counts(static_cast<std::size_t>(ranks)), displacements(static_cast<std::size_t>(ranks)) {
        for (int k = 0; k < ranks; ++k) {
            const auto r = static_cast<std::size_t>(backwards ? ranks - 1 - k : k);
            counts[r] = r + 1;
            displacements[r] = end;
            end += counts[r] + gap;
        }
    }
    [[nodiscard]] un::Blocks blocks() const { return {counts, displacements}; }
};

template <class World>
void all_with_gaps(World& world) {
    un::AnyGroup any(world.split(0, world.rank()));
    const int ranks = world.size();
    const int me = world.rank();
    for (const std::size_t gap : {0u, 3u}) {
        // Differs on each rank.
        const Layout mine(ranks, gap + static_cast<std::size_t>(me), me % 2 == 1);
        const auto own = static_cast<std::size_t>(me) + 1;
        std::vector<int> gift(own);
        for (std::size_t i = 0; i < own; ++i) gift[i] = value(me, 0, i);
        const auto holds = [&](const std::vector<int>& all, const std::string& what) {
            std::vector<int> expected(all.size(), -1);
            for (std::size_t r = 0; r < mine.counts.size(); ++r)
                for (std::size_t i = 0; i < mine.counts[r]; ++i)
                    expected[mine.displacements[r] + i] = value(static_cast<int>(r), 0, i);
            expect(all == expected, what + ": blocks at their places, gaps as they were");
        };
        std::vector<int> all(mine.end, -1);
        any.start_all_gather(ints, gift.data(), all.data(), mine.blocks()).wait();
        holds(all, "all_gather");
        std::vector<int> in_place(mine.end, -1);
        int* const my_block = in_place.data() + mine.displacements[static_cast<std::size_t>(me)];
        std::copy(gift.begin(), gift.end(), my_block);
        any.start_all_gather(ints, my_block, in_place.data(), mine.blocks()).wait();
        holds(in_place, "all_gather in place");
        for (int root = 0; root < ranks; ++root) {
            std::vector<int> gathered(mine.end, -1);
            any.start_gather(ints, gift.data(), gathered.data(), mine.blocks(), root).wait();
            if (me == root) holds(gathered, "gather");
            std::vector<int> back(own);
            any.start_scatter(ints, gathered.data(), back.data(), mine.blocks(), root).wait();
            expect(back == gift, "scatter");
        }
        std::vector<int> sum(own);
        any.start_reduce_scatter(ints, all.data(), sum.data(), mine.blocks(),
                                 un::untyped::reduction(un::ReductionKind::sum, ints.type))
            .wait();
        for (std::size_t i = 0; i < own; ++i) expect(sum[i] == ranks * gift[i], "reduce_scatter");

        // Rank i gives j + 1 elements to rank j, so rank j gets j + 1 elements from each rank.
        std::vector<int> sent(mine.end, -1);
        for (std::size_t r = 0; r < mine.counts.size(); ++r)
            for (std::size_t i = 0; i < mine.counts[r]; ++i)
                sent[mine.displacements[r] + i] = value(me, static_cast<int>(r), i);
        const std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), own);
        std::vector<std::size_t> places(static_cast<std::size_t>(ranks));
        for (std::size_t r = 0; r < places.size(); ++r) places[r] = (places.size() - 1 - r) * (own + gap);
        std::vector<int> got(static_cast<std::size_t>(ranks) * (own + gap), -1);
        any.start_all_to_all(ints, sent.data(), mine.blocks(), got.data(), {counts, places}).wait();
        for (std::size_t r = 0; r < places.size(); ++r) {
            for (std::size_t i = 0; i < own + gap; ++i)
                expect(got[places[r] + i] == (i < own ? value(static_cast<int>(r), me, i) : -1), "all_to_all");
        }
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(blocks)

BOOST_AUTO_TEST_CASE(gaps_and_orders) {
    for (const int ranks : {1, 2, 3, 4}) test::expect_run(ranks, [](auto& world) { all_with_gaps(world); });
}

// A hash of a list is no number of elements.
BOOST_AUTO_TEST_CASE(lists_that_differ_between_ranks_are_told_as_lists) {
    const std::string words = "called all_gather of int32 elements by a list of counts (its hash is ";
    test::fails({"mismatch in all_gather", words}, [] {
        un::run<un::InProcess>(2, [](auto& world) {
            const std::size_t other = world.rank() == 0 ? 3 : 4;
            const std::array<std::size_t, 2> counts = {other, 2};
            std::vector<int> mine(counts[static_cast<std::size_t>(world.rank())]), all(other + 2);
            un::all_gather(world, mine, all, counts);
        });
    });
}

BOOST_AUTO_TEST_CASE(what_is_refused) {
    test::expect_run(2, [](auto& world) {
        un::AnyGroup any(world.split(0, world.rank()));
        std::array<int, 4> data{};
        const std::array<std::size_t, 2> counts = {2, 2};
        const std::array<std::size_t, 2> overlapping = {1, 0};
        const std::array<std::size_t, 1> few = {0};
        const auto gathers = [&](un::Blocks blocks) {
            return refusal_of([&] { any.start_all_gather(ints, data.data(), data.data(), blocks).wait(); });
        };
        expect(gathers({counts, overlapping}).find("the blocks of ranks 1 and 0 overlap in the output") !=
                   std::string::npos,
               "overlapping blocks");
        expect(gathers({counts, few}).find("the list of displacements has 1 elements, expected 2") != std::string::npos,
               "a displacement too few");
        expect(gathers({few, few}).find("the list of counts has 1 elements, expected 2") != std::string::npos,
               "a count too few");
        const std::array<std::size_t, 2> far = {0, std::size_t{1} << 62}; // times 4 that is 0
        expect(gathers({counts, far})
                       .find("the block of rank 1 has 2 elements of 4 bytes and begins at element "
                             "4611686018427387904") != std::string::npos,
               "a block behind the end of memory");
        const std::array<std::size_t, 2> apart = {0, 3};
        const auto null = [&](auto call) {
            return refusal_of(call).find("put is NULL; expected memory of 16 bytes") != std::string::npos;
        };
        const un::Reduction sum = un::untyped::reduction(un::ReductionKind::sum, un::ElementType::int32);
        const bool root = world.rank() == 0;
        std::array<int, 6> from{}, to{};
        expect(null([&] { any.start_all_gather(ints, data.data(), nullptr, {counts, apart}).wait(); }), "all_gather");
        expect(null([&] {
                   any.start_reduce_scatter(ints, nullptr, data.data(), {counts, apart}, sum).wait();
               }),
               "reduce_scatter");
        expect(!root || null([&] {
            any.start_gather(ints, data.data(), nullptr, {counts, apart}, 0).wait();
        }),
               "gather");
        expect(!root || null([&] {
            any.start_scatter(ints, nullptr, data.data(), {counts, apart}, 0).wait();
        }),
               "scatter");
        expect(null([&] {
                   any.start_all_to_all(ints, nullptr, {counts, apart}, to.data(), {counts, apart}).wait();
               }),
               "input");
        expect(null([&] {
                   any.start_all_to_all(ints, from.data(), {counts, apart}, nullptr, {counts, apart}).wait();
               }),
               "output");
        // The group is unchanged.
        any.start_gather(ints, data.data(), root ? to.data() : nullptr, {counts, apart}, 0).wait();
        any.start_scatter(ints, root ? from.data() : nullptr, data.data(), {counts, apart}, 0).wait();
        std::array<int, 4> all{};
        any.start_all_gather(ints, data.data(), all.data(), {counts}).wait();
    });
}

BOOST_AUTO_TEST_SUITE_END()
