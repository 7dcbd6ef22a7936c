// Waiting for the first of several operations that completes.
#include "../collective/findings.hpp"
#include "../collective/oracle.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <string>
#include <vector>

namespace un = unisono;
using test::Group;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(wait_any)

BOOST_AUTO_TEST_CASE(each_message_is_taken_once_and_all_senders_have_their_turn) {
    constexpr int each = 20;
    test::on_ranks(4, [&](Group& group, test::Findings& findings) {
        if (group.rank() != 0) {
            for (int i = 0; i < each; ++i) un::send(group, std::array<int, 1>{100 * group.rank() + i}, 0, 7);
            return;
        }
        std::array<std::array<int, 1>, 4> values = {};
        std::vector<un::Operation> pending(4); // the first is never started
        std::array<int, 4> next = {};
        for (std::size_t r = 1; r < 4; ++r) pending[r] = un::start_receive(group, values[r], static_cast<int>(r), 7);
        for (int left = 3 * each; left != 0; --left) {
            const std::size_t r = un::Operation::wait_any(pending, static_cast<std::size_t>(left % 4), 20s);
            findings.expect(r >= 1 && r < 4, "a place that is none");
            findings.expect(values[r][0] == static_cast<int>(100 * r) + next[r]++, "another message");
            if (next[r] < each) pending[r] = un::start_receive(group, values[r], static_cast<int>(r), 7);
        }
        findings.expect(next == std::array<int, 4>{0, each, each, each}, "some were not taken");
        try {
            static_cast<void>(un::Operation::wait_any(pending, 0, 20s));
            findings.expect(false, "nothing is in flight, and it waits");
        } catch (const un::error& refused) {
            findings.expect(refused.code() == un::ErrorCode::bad_input, refused.what());
        }
    });
}

BOOST_AUTO_TEST_CASE(of_several_that_are_done_the_next_in_the_circle_is_first) {
    test::on_ranks(3, [&](Group& group, test::Findings& findings) {
        std::array<std::array<int, 1>, 3> values = {};
        std::vector<un::Operation> pending(3);
        if (group.rank() == 0) {
            for (int r = 1; r < 3; ++r)
                pending[static_cast<std::size_t>(r)] = un::start_receive(group, values[static_cast<std::size_t>(r)], r);
        } else {
            un::send(group, std::array<int, 1>{group.rank()}, 0);
        }
        un::barrier(group);
        if (group.rank() != 0) return;
        while (!pending[1].poll() || !pending[2].poll()) {
        }
        findings.expect(un::Operation::wait_any(pending, 2, 20s) == 2, "not the one that was asked for first");
        findings.expect(un::Operation::wait_any(pending, 2, 20s) == 1, "not the one that is left");
    });
}

BOOST_AUTO_TEST_CASE(one_that_never_comes_is_named) {
    test::Findings findings;
    try {
        test::run(
            3,
            [&](Group& group) {
                if (group.rank() == 2) return; // leaves
                try {
                    std::array<std::array<int, 1>, 2> values = {};
                    if (group.rank() == 1) return un::receive(group, values[0], 0);
                    std::vector<un::Operation> pending(2);
                    pending[0] = un::start_receive(group, values[0], 1);
                    pending[1] = un::start_receive(group, values[1], 2);
                    static_cast<void>(un::Operation::wait_any(pending, 0, 20s));
                } catch (const un::error& failed) {
                    findings.expect(failed.code() == un::ErrorCode::peer_lost && failed.peer() == 2, failed.what());
                    throw;
                }
                findings.expect(false, "it ended");
            },
            test::limit);
        findings.expect(false, "run did not throw");
    } catch (const un::error& failed) {
        findings.expect(failed.code() == un::ErrorCode::peer_lost, failed.what());
    }
}

BOOST_AUTO_TEST_SUITE_END()
