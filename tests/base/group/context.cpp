// A rank's state of a group.

#include <unisono/group/context.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

BOOST_AUTO_TEST_SUITE(group_context)

BOOST_AUTO_TEST_CASE(up_to_which_operation_all_are_done) {
    std::mt19937 random(1);
    for (const std::size_t in_flight : {1u, 2u, 5u, 63u, 64u, 65u, 200u}) {
        unisono::detail::GroupContext group;
        std::set<std::uint64_t> done;
        std::uint64_t started = 0, up_to = 0;
        std::vector<std::uint64_t> running;
        bool right = true;
        for (int i = 0; i < 20'000; ++i) {
            while (running.size() < in_flight) running.push_back(++started);
            const std::size_t which =
                in_flight > 100 && i % 1000 < 900 ? running.size() - 1 : random() % running.size();
            const std::uint64_t ends = running[which];
            running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
            done.insert(ends);
            while (!done.empty() && *done.begin() == up_to + 1) {
                done.erase(done.begin());
                ++up_to;
            }
            right = right && group.done_up_to(ends) == up_to;
        }
        BOOST_TEST(right, in_flight << " in flight");
    }
}

BOOST_AUTO_TEST_SUITE_END()
