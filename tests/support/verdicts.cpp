// Cases that fail, skip or check nothing on purpose: expect_verdicts.py runs them.
#include "base/collective/findings.hpp"
#include "skip.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(verdicts)

BOOST_AUTO_TEST_CASE(good) { BOOST_TEST(true); }
BOOST_AUTO_TEST_CASE(bad) { BOOST_TEST(false); }
BOOST_AUTO_TEST_CASE(throws) { throw 1; }
BOOST_AUTO_TEST_CASE(empty) {}
BOOST_AUTO_TEST_CASE(skips) { test::skip("no moon"); }
BOOST_AUTO_TEST_CASE(skips_too, *test::only_if(false, "no sun")) { BOOST_TEST(false); }
BOOST_AUTO_TEST_CASE(skips_a_part) {
    test::skip_part("no star");
    BOOST_TEST(true);
}
BOOST_AUTO_TEST_CASE(is_slow, *boost::unit_test::label("slow")) { BOOST_TEST(true); }

BOOST_AUTO_TEST_SUITE(findings)

BOOST_AUTO_TEST_CASE(of_all_ranks) {
    test::Findings findings{3};
    test::run(
        3, [&](test::Group& group) { findings.expect(group.size() == 3, "size"); }, test::limit);
}
BOOST_AUTO_TEST_CASE(long_one) {
    test::Findings findings;
    findings.expect(false, "found " + std::string(100'000, '.'));
}
BOOST_AUTO_TEST_CASE(none_checked) { const test::Findings findings; }
BOOST_AUTO_TEST_CASE(one_rank_is_silent) {
    test::Findings findings{3};
    test::run(
        3,
        [&](test::Group& group) {
            if (group.rank() != 1) findings.expect(true, "rank");
        },
        test::limit);
}
BOOST_AUTO_TEST_CASE(of_a_process_that_dies) {
    test::Findings findings;
    const pid_t child = ::fork();
    if (child == 0) {
        findings.expect(false, "first");
        ::raise(SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()
