#pragma once

#include "support/ranks.hpp"

#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

namespace test {

using Group = unisono::Group<Transport>;

/// Failures on ranks, which the test itself reports: Boost.Test does not support several threads,
/// nor processes.
class Findings {
public:
    void expect(bool good, const std::string& what) {
        if (good) return;
        const std::string line = what + "; ";
        const std::size_t at = text_->used.fetch_add(line.size());
        if (at + line.size() < sizeof text_->text) std::memcpy(text_->text + at, line.data(), line.size());
    }
    ~Findings() { BOOST_TEST(std::string(text_->text) == ""); }

private:
    struct Text {
        std::atomic<std::size_t> used{0};
        char text[4096] = {};
    };
    Shared<Text> text_;
};

inline const unisono::RunOptions limit{.timeout = std::chrono::seconds(30), .bind_to_cores = false};

} // namespace test
