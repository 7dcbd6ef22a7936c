// The same signal twice in quick succession is one request. A later one ends the process.
#include "unisono/trainer/stop_on_signal.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace un = unisono;

/// How a child that runs `body` ends.
template <class Body>
int end_of_child(Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(60);
        ::_exit(body());
    }
    int status = 0;
    BOOST_REQUIRE_EQUAL(::waitpid(child, &status, 0), child);
    return status;
}

BOOST_AUTO_TEST_SUITE(stop_on_signal)

BOOST_AUTO_TEST_CASE(from_a_launcher_and_its_process_group) {
    const int status = end_of_child([] {
        const un::StopOnSignal stop;
        static_cast<void>(std::raise(SIGTERM));
        static_cast<void>(std::raise(SIGTERM));
        return stop.exit_status();
    });
    BOOST_TEST(WIFEXITED(status));
    BOOST_TEST(WEXITSTATUS(status) == 128 + SIGTERM);
}

BOOST_AUTO_TEST_CASE(one_that_comes_later_ends_the_process) {
    const int status = end_of_child([] {
        const un::StopOnSignal stop;
        static_cast<void>(std::raise(SIGTERM));
        ::usleep(1'100'000);
        static_cast<void>(std::raise(SIGTERM));
        return 0;
    });
    BOOST_TEST(WIFSIGNALED(status));
    BOOST_TEST(WTERMSIG(status) == SIGTERM);
}

BOOST_AUTO_TEST_CASE(what_was_before_is_there_again) {
    const int status = end_of_child([] {
        { const un::StopOnSignal stop; }
        const un::StopOnSignal again; // one after the other
        static_cast<void>(std::raise(SIGTERM));
        return again.signal() == SIGTERM ? 0 : 1;
    });
    BOOST_TEST(WIFEXITED(status));
    BOOST_TEST(WEXITSTATUS(status) == 0);
}

BOOST_AUTO_TEST_CASE(what_was_before_a_signal_that_is_named_twice_is_there_again) {
    const int status = end_of_child([] {
        { const un::StopOnSignal stop({SIGTERM, SIGINT, SIGTERM}); }
        static_cast<void>(std::raise(SIGTERM));
        return 0;
    });
    BOOST_TEST(WIFSIGNALED(status));
    BOOST_TEST(WTERMSIG(status) == SIGTERM);
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace
