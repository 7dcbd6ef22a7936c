// The states of operations, and which operation gets which.

#include <unisono/group/group.hpp>
#include <unisono/group/operation_pool.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace {

namespace un = unisono;

constexpr std::uint64_t group = 1;

/// As an engine does. Returns true if the state was already prepared for this request.
bool run(un::detail::OperationPool& pool, std::size_t count) {
    un::detail::OperationRequest request;
    request.count = count;
    const std::uint32_t index = pool.take(group, request);
    un::detail::OperationState& state = pool[index];
    const bool cut = state.cut_for_group == group && state.request.count == count;
    state.request = request;
    state.cut_for_group = group;
    pool.release(index);
    return cut;
}

} // namespace

BOOST_AUTO_TEST_SUITE(group_operation_pool)

BOOST_AUTO_TEST_CASE(requests_that_alternate_keep_their_states_after_many_others) {
    un::detail::OperationPool pool;
    for (std::size_t count = 100; count < 150; ++count) BOOST_TEST(!run(pool, count));
    const std::size_t states = pool.size();
    BOOST_TEST(states <= 8u);
    for (std::size_t alternating = 2; alternating <= states; ++alternating) {
        const std::size_t first = alternating * 1000;
        for (std::size_t i = 0; i < alternating; ++i) run(pool, first + i);
        for (std::size_t i = 0; i < 3 * alternating; ++i)
            BOOST_TEST(run(pool, first + i % alternating), alternating << " requests, number " << i << " was cut anew");
    }
    BOOST_TEST(pool.size() == states);
}

BOOST_AUTO_TEST_CASE(a_state_in_use_is_given_to_nobody_else) {
    std::mt19937 random(1);
    un::detail::OperationPool pool;
    std::set<std::uint32_t> used;
    bool right = true;
    for (int i = 0; i < 20'000; ++i) {
        if (random() % 2 == 0 && used.size() < 20) {
            un::detail::OperationRequest request;
            request.count = random() % 30;
            right = right && used.insert(pool.take(group, request)).second;
        } else if (!used.empty()) {
            auto one = used.begin();
            std::advance(one, static_cast<std::ptrdiff_t>(random() % used.size()));
            pool.release(*one);
            used.erase(one);
        }
        if (pool.size() == 0) continue;
        const auto wanted = static_cast<std::uint32_t>(random() % pool.size());
        const bool was_used = used.count(wanted) != 0;
        const bool taken = pool.take(pool[wanted]);
        right = right && taken != was_used;
        if (taken) used.insert(wanted);
    }
    BOOST_TEST(right);
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
