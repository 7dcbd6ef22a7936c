#pragma once

#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <mutex>
#include <string>

namespace test {

/// Failures found on ranks, reported on the test's own thread: Boost.Test is not for several threads.
class Findings {
public:
    void expect(bool good, const std::string& what) {
        if (good) return;
        const std::lock_guard lock(mutex_);
        if (text_.size() < 2000) text_ += what + "; ";
    }
    ~Findings() { BOOST_TEST(text_ == ""); }

private:
    std::mutex mutex_;
    std::string text_;
};

inline const unisono::RunOptions limit{.timeout = std::chrono::seconds(30), .bind_to_cores = false};

} // namespace test
