// main() of every test executable, with a watchdog. If a test case exceeds its limit, the watchdog
// prints its name on stderr and the process ends with status 124. A hang is thus a named failure.
//
// The limit is 60 s per test case, or UNISONO_TEST_TIMEOUT_S. Sanitizers multiply it by five. So
// does the label "slow" on a case or suite: BOOST_AUTO_TEST_CASE(name,
// *boost::unit_test::label("slow")).
#define BOOST_TEST_MODULE unisono
#include "sanitizers.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <sys/time.h>
#include <unistd.h>

namespace {

namespace ut = boost::unit_test;

/// Uses a timer and its signal instead of a thread, because tests that fork need a process with one
/// thread. A forked process has no timer.
class Watchdog final : public ut::test_observer {
public:
    Watchdog() {
        ut::framework::register_observer(*this);
        struct sigaction action {};
        action.sa_handler = &Watchdog::bark;
        ::sigaction(SIGALRM, &action, nullptr);
    }
    ~Watchdog() override {
        set(0);
        ut::framework::deregister_observer(*this);
    }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    void test_unit_start(const ut::test_unit& unit) override {
        if (unit.p_type == ut::TUT_CASE) begin(unit.full_name(), limit_s(unit));
    }

    void test_unit_finish(const ut::test_unit& unit, unsigned long) override {
        if (unit.p_type == ut::TUT_CASE) end();
    }

    void test_unit_aborted(const ut::test_unit&) override { end(); }

private:
    static double limit_s(const ut::test_unit& unit) {
        double limit = 60;
        if (const char* text = std::getenv("UNISONO_TEST_TIMEOUT_S")) {
            if (const double given = std::strtod(text, nullptr); given > 0) limit = given;
        }
#ifdef UNISONO_TEST_SANITIZED
        limit *= 5;
#endif
        for (ut::test_unit_id id = unit.p_id; id != ut::INV_TEST_UNIT_ID;) {
            const auto& current = ut::framework::get(id, ut::TUT_ANY);
            if (current.has_label("slow")) return limit * 5;
            if (id == ut::framework::master_test_suite().p_id) break;
            id = current.p_parent_id;
        }
        return limit;
    }

    static void begin(const std::string& name, double limit) {
        std::snprintf(last_words, sizeof last_words, "\nwatchdog: test case %s hung (no end within %g s)\n",
                      name.c_str(), limit);
        set(limit);
    }
    static void end() { set(0); }

    static void set(double limit) {
        itimerval timer{};
        timer.it_value.tv_sec = static_cast<time_t>(limit);
        timer.it_value.tv_usec = static_cast<suseconds_t>((limit - std::floor(limit)) * 1e6);
        ::setitimer(ITIMER_REAL, &timer, nullptr);
    }

    static void bark(int) {
        if (::write(STDERR_FILENO, last_words, std::strlen(last_words)) > 0) {
        }
        _exit(124);
    }

    inline static char last_words[1000] = {};
};

BOOST_TEST_GLOBAL_FIXTURE(Watchdog);

} // namespace
