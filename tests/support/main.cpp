// main() of every test executable, with a watchdog: a test case that outlives its limit is named on stderr and the
// process ends with status 124, so that a hang is a failure with a name and never a silent wait.
//
// The limit is 60 s a test case, or UNISONO_TEST_TIMEOUT_S; five times as much under sanitizers, and five times as
// much for cases or suites labelled "slow": BOOST_AUTO_TEST_CASE(name, *boost::unit_test::label("slow")).
#define BOOST_TEST_MODULE unisono
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNISONO_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNISONO_TEST_SANITIZED 1
#endif
#endif

namespace {

namespace ut = boost::unit_test;

class Watchdog final : public ut::test_observer {
public:
    Watchdog() {
        ut::framework::register_observer(*this);
        thread_ = std::thread([this] { watch(); });
    }

    ~Watchdog() override {
        {
            std::lock_guard lock{mutex_};
            stopping_ = true;
        }
        changed_.notify_one();
        thread_.join();
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

    void begin(std::string name, double limit) {
        {
            std::lock_guard lock{mutex_};
            name_ = std::move(name);
            limit_s_ = limit;
            running_ = true;
            ++generation_;
        }
        changed_.notify_one();
    }

    void end() {
        {
            std::lock_guard lock{mutex_};
            running_ = false;
            ++generation_;
        }
        changed_.notify_one();
    }

    void watch() {
        std::unique_lock lock{mutex_};
        while (!stopping_) {
            const auto seen = generation_;
            const auto news = [&] { return stopping_ || generation_ != seen; };
            if (!running_) {
                changed_.wait(lock, news);
                continue;
            }
            // The system clock's wait, as ThreadSanitizer of these compilers does not know the steady clock's.
            const auto until =
                std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(
                                                       std::chrono::duration<double>(limit_s_));
            if (!changed_.wait_until(lock, until, news)) {
                std::fprintf(stderr, "\nwatchdog: test case %s hung (no end within %g s)\n", name_.c_str(), limit_s_);
                std::fflush(stderr);
                _exit(124);
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::string name_;
    double limit_s_ = 0;
    unsigned long generation_ = 0;
    bool running_ = false;
    bool stopping_ = false;
    std::thread thread_;
};

BOOST_TEST_GLOBAL_FIXTURE(Watchdog);

} // namespace
