// The same signal twice in quick succession is one request. A later one ends the process.
#include "unisono/join.hpp"
#include "unisono/trainer/stop_on_signal.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

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

/// A process that waits for other ranks does not look at the signal.
BOOST_AUTO_TEST_CASE(one_that_comes_later_ends_a_process_that_waits_in_join) {
    for (const bool listens : {true, false}) {
        int sign[2] = {};
        BOOST_REQUIRE_EQUAL(::pipe(sign), 0);
        const pid_t child = ::fork();
        if (child == 0) {
            ::alarm(60);
            const un::StopOnSignal stop;
            static_cast<void>(::write(sign[1], "!", 1));
            try {
                const auto free = un::detail::listen_at(true, 0);
                const un::RendezvousPoint point{
                    .host = "127.0.0.1", .port = free.port, .further_ports = 7, .token = un::JobToken::random()};
                auto plane = un::rendezvous(un::identity_of(listens ? 0 : 1, 2), point);
                auto world = un::join<un::SharedMemory>(std::move(plane));
            } catch (const un::error&) {
            }
            ::_exit(1);
        }
        ::close(sign[1]);
        int status = 0;
        char one = 0;
        BOOST_REQUIRE_EQUAL(::read(sign[0], &one, 1), 1); // the handler is there
        ::close(sign[0]);
        ::usleep(300'000);
        ::kill(child, SIGTERM);
        ::usleep(2'500'000);
        BOOST_TEST(::waitpid(child, &status, WNOHANG) == 0, "the first signal has ended it");
        ::kill(child, SIGTERM);
        BOOST_REQUIRE_EQUAL(::waitpid(child, &status, 0), child);
        BOOST_TEST(WIFSIGNALED(status));
        BOOST_TEST(WTERMSIG(status) == SIGTERM);
    }
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
