// The memory that a world keeps of the groups that were made in it.

#include <unisono/collective/collective.hpp>
#include <unisono/group/run.hpp>
#include <unisono/simulate.hpp>
#include <unisono/transport/in_process.hpp>

#include "support/heap.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdlib>

namespace {

namespace un = unisono;

constexpr std::size_t warm = 64; // after this many groups nothing new is needed

/// The additional bytes that a world takes after `groups` groups; negative: it takes fewer.
template <class World>
std::ptrdiff_t growth(World& world, std::size_t groups) {
    std::size_t before = 0;
    for (std::size_t i = 0; i < warm + groups; ++i) {
        if (i == warm) before = test::heap_bytes();
        auto part = world.split(0, world.rank());
        un::barrier(part);
    }
    un::barrier(world);
    return static_cast<std::ptrdiff_t>(test::heap_bytes() - before);
}

} // namespace

BOOST_AUTO_TEST_SUITE(group_boards)

BOOST_AUTO_TEST_CASE(groups_that_have_ended_take_no_memory) {
    constexpr std::ptrdiff_t groups = 500;
    std::ptrdiff_t grown = 0;
    un::run<un::InProcess>(2, [&](auto& world) {
        const std::ptrdiff_t here = growth(world, groups);
        if (world.rank() == 0) grown = here;
    });
    BOOST_TEST(std::abs(grown) < groups * 1024, "in process: " << grown << " bytes more");
    un::simulate(2, {}, [&](auto& world) {
        const std::ptrdiff_t here = growth(world, groups);
        if (world.rank() == 0) grown = here;
    });
    BOOST_TEST(std::abs(grown) < groups * 256, "simulated: " << grown << " bytes more");
}

BOOST_AUTO_TEST_SUITE_END()
