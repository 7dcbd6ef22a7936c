// The states of operations, and which operation gets which.
#include "support/allocation_counter.hpp"

#include <unisono/group/group_state.hpp>
#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

namespace {

namespace un = unisono;

struct World {
    un::Group<un::InProcess> group;
    un::detail::GroupState states{group.context().engine};

    World() { states.id = un::detail::world_id; }

    un::detail::OperationState& take(std::size_t count) {
        const un::detail::CallKey key{.call = 1, .count = count};
        un::detail::OperationState* const known = states.find(key);
        return *(known != nullptr ? known : *made.insert(&states.take(key)).first);
    }
    /// True if a state was already prepared for this request.
    bool run(std::size_t count) { return states.find({.call = 1, .count = count}) != nullptr || (take(count), false); }
    std::set<un::detail::OperationState*> made;
};

} // namespace

BOOST_AUTO_TEST_SUITE(group_group_state)

BOOST_AUTO_TEST_CASE(requests_that_alternate_keep_their_states_after_many_others) {
    World world;
    for (std::size_t count = 100; count < 150; ++count) BOOST_TEST(!world.run(count));
    const std::size_t states = world.made.size();
    BOOST_TEST(states <= un::detail::GroupState::enough);
    for (std::size_t alternating = 2; alternating <= states; ++alternating) {
        const std::size_t first = alternating * 1000;
        for (std::size_t i = 0; i < alternating; ++i) world.run(first + i);
        for (std::size_t i = 0; i < 3 * alternating; ++i)
            BOOST_TEST(world.run(first + i % alternating), alternating << " requests, number " << i << " was cut anew");
    }
    BOOST_TEST(world.made.size() == states);
}

BOOST_AUTO_TEST_CASE(a_state_in_use_is_given_to_nobody_else) {
    std::mt19937 random(1);
    World world;
    std::set<un::detail::OperationState*> used;
    bool right = true;
    for (int i = 0; i < 20'000; ++i) {
        if (random() % 2 == 0 && used.size() < 40) {
            un::detail::OperationState& state = world.take(random() % 30);
            right = right && state.is_free && used.insert(&state).second;
            state.is_free = false;
        } else if (!used.empty()) {
            auto one = used.begin();
            std::advance(one, static_cast<std::ptrdiff_t>(random() % used.size()));
            (*one)->is_free = true;
            used.erase(one);
        }
    }
    BOOST_TEST(right);
    for (un::detail::OperationState* one : used) one->is_free = true;
}

BOOST_AUTO_TEST_CASE(equal_calls_in_flight_at_once_find_their_states_again) {
    World world;
    std::vector<un::detail::OperationState*> flying;
    for (int update = 0; update < 3; ++update) {
        flying.clear();
        for (int bucket = 0; bucket < 100; ++bucket) {
            flying.push_back(&world.take(7));
            flying.back()->is_free = false;
        }
        for (un::detail::OperationState* one : flying) one->is_free = true;
        BOOST_TEST(world.made.size() == 100u);
    }
}

/// Rank 0 has no memory for the scratch of its first sum. It goes on, and both sums end.
BOOST_AUTO_TEST_CASE(an_operation_without_memory_at_its_start_stays_in_flight) {
    BOOST_CHECK_NO_THROW(un::run<un::InProcess>(2,
                                                [](auto& world) {
                                                    std::vector<float> first(1 << 20, 1.0f), second(1 << 20, 1.0f);
                                                    un::barrier(world);
                                                    if (world.rank() == 0) unisono_test::refuse_above(100'000);
                                                    bool refused = false;
                                                    try {
                                                        un::all_reduce(world, first, un::Sum{}, un::DirectSchedule{});
                                                    } catch (const std::bad_alloc&) {
                                                        refused = true;
                                                    }
                                                    unisono_test::refuse_above(0);
                                                    un::all_reduce(world, second, un::Sum{}, un::DirectSchedule{});
                                                    if (refused != (world.rank() == 0) ||
                                                        second != std::vector<float>(1 << 20, 2.0f) ||
                                                        (!refused && first != second))
                                                        throw std::runtime_error("wrong data");
                                                },
                                                {.timeout = std::chrono::seconds(20)}));
}

BOOST_AUTO_TEST_CASE(no_word_of_a_small_message_comes_back) {
    un::detail::OperationState one, later;
    one.small_number = 1 << 20;
    for (std::uint64_t turns = 1; turns < 1000; ++turns) {
        later.small_number = one.small_number + (turns << 32);
        BOOST_TEST((one.first_word() != later.first_word()), turns << " times 2^32 operations later");
    }
}

BOOST_AUTO_TEST_SUITE_END()
