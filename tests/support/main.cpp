// main() of every test executable.
//
// A watchdog: if a test case exceeds its limit, its name appears on stderr and the process ends
// with status 124. A hang is thus a named failure. The limit is 60 s per test case, or
// UNISONO_TEST_TIMEOUT_S. Sanitizers multiply it by five. So does the label "slow" on a case or
// suite: BOOST_AUTO_TEST_CASE(name, *boost::unit_test::label("slow")).
//
// A list of what was skipped: skip.hpp. Status 77 means that nothing ran, with a reason for each
// case; ctest then shows the program as skipped. One failure beside it is a failure, and so is a
// filter that no case matches. A case that neither checks nor skips anything is listed.
#ifdef UNISONO_TEST_INCLUDED_BOOST
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
#include <boost/test/included/unit_test.hpp>
#endif

#include "sanitizers.hpp"
#include "skip.hpp"

#include <boost/test/results_collector.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sys/time.h>
#include <unistd.h>

namespace {

namespace ut = boost::unit_test;

constexpr int skipped_status = 77;
constexpr const char* without_slow = "--run_test=!@slow";
constexpr const char* only_count = "UNISONO_TEST_ONLY_COUNT";

/// Boost 1.74 reads, after each observer, a flag that its own first observer initialises: one of
/// priority 0, as all are by default.
class Observer : public ut::test_observer {
public:
    int priority() override { return 1; }
};

/// Uses a timer and its signal instead of a thread, because tests that fork need a process with one
/// thread. A forked process has no timer.
class Watchdog final : public Observer {
public:
    Watchdog() {
        struct sigaction action {};
        action.sa_handler = &Watchdog::bark;
        ::sigaction(SIGALRM, &action, nullptr);
    }

    void test_unit_start(const ut::test_unit& unit) override {
        if (unit.p_type == ut::TUT_CASE) begin(unit.full_name(), limit_s(unit));
    }

    void test_unit_finish(const ut::test_unit& unit, unsigned long) override {
        if (unit.p_type == ut::TUT_CASE) set(0);
    }

    void test_unit_aborted(const ut::test_unit&) override { set(0); }

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

/// Counts what ran, and names cases that had nothing to check.
class Ledger final : public Observer {
public:
    /// `program_ended`: the status of Boost.Test.
    int close(int program_ended) const {
        for (const test::Skips::Line& line : test::skips.lines)
            std::printf("skipped%s: %s: %s\n", line.whole ? "" : " in part", line.name.c_str(), line.why.c_str());
        for (const std::string& name : empty_)
            std::printf("%s has checked nothing; a case that does not run says why, by test::skip\n", name.c_str());
        std::fflush(stdout);
        if (program_ended != 0) return program_ended;
        return begun_ != 0 && skipped_ == begun_ ? skipped_status : 0;
    }

    [[nodiscard]] bool has_begun() const { return has_begun_; }

    void test_start(ut::counter_t cases, ut::test_unit_id) override {
        has_begun_ = true;
        if (std::getenv(only_count) != nullptr) {
            std::printf("skipped: all %lu test cases are slow, and slow ones are left out\n", cases);
            std::fflush(stdout);
            _exit(skipped_status);
        }
    }

    void test_unit_start(const ut::test_unit& unit) override {
        if (unit.p_type != ut::TUT_CASE) return;
        ++begun_;
        lines_before_ = test::skips.lines.size();
    }

    void test_unit_finish(const ut::test_unit& unit, unsigned long) override {
        if (unit.p_type != ut::TUT_CASE) return;
        bool whole = false;
        for (std::size_t i = lines_before_; i < test::skips.lines.size(); ++i) whole |= test::skips.lines[i].whole;
        const ut::test_results& found = ut::results_collector.results(unit.p_id);
        if (whole) ++skipped_;
        else if (found.p_assertions_passed + found.p_assertions_failed == 0 && found.p_warnings_failed == 0 &&
                 !found.p_aborted)
            empty_.push_back(unit.full_name());
    }

    void test_unit_skipped(const ut::test_unit& unit, ut::const_string said) override {
        std::string why(said.begin(), said.end());
        const std::string by_boost = "precondition failed: ";
        if (!unit.is_enabled()) return; // by the filter
        if (why.starts_with(by_boost)) why.erase(0, by_boost.size());
        ++begun_;
        ++skipped_;
        test::skips.lines.push_back({unit.full_name(), why, true});
    }

private:
    bool has_begun_ = false;
    std::size_t begun_ = 0, skipped_ = 0, lines_before_ = 0;
    std::vector<std::string> empty_;
};

Watchdog watchdog;
Ledger ledger;

bool start() {
    ut::framework::master_test_suite().p_name.value = "unisono";
    ut::framework::register_observer(watchdog);
    ut::framework::register_observer(ledger);
    return true;
}

/// If this program was to leave out slow cases, and no other cases match: says so, with their
/// number, and ends with status 77. If no slow ones match either, Boost.Test says so again.
void explain_empty(int count, char** words) {
    std::vector<char*> others;
    bool quick = false;
    for (int i = 0; i < count; ++i) {
        if (std::strcmp(words[i], without_slow) == 0) quick = true;
        else others.push_back(words[i]);
    }
    if (!quick) return;
    others.push_back(nullptr);
    ::setenv(only_count, "1", 1);
    ::execv("/proc/self/exe", others.data());
}

} // namespace

int main(int count, char** words) {
    std::vector<char*> given(words, words + count);
    given.push_back(nullptr);
    const int ended = ut::unit_test_main(&start, count, words);
    if (ended != 0 && !ledger.has_begun()) explain_empty(static_cast<int>(given.size()) - 1, given.data());
    return ledger.close(ended);
}
