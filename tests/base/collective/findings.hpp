#pragma once

#include "support/ranks.hpp"
#include "support/refusal.hpp"

#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace test {

using Group = unisono::Group<Transport>;

/// Failures on ranks, which the test itself reports: Boost.Test does not support several threads,
/// nor processes. It is a failure, too, if too few ranks have checked something, or if one died
/// before it had written what it found.
class Findings {
public:
    /// `ranks`: how many ranks, threads or processes, must check something.
    explicit Findings(int ranks = 1) : ranks_(static_cast<std::uint32_t>(ranks)) {
        static std::atomic<std::uint32_t> made{0};
        text_->number = ++made;
    }
    Findings(const Findings&) = delete;
    Findings& operator=(const Findings&) = delete;

    void expect(bool good, const std::string& what) {
        count_this_rank();
        if (good) return;
        const std::string line = what + "; ";
        text_->begun.fetch_add(1);
        const std::size_t at = std::min(text_->used.fetch_add(line.size()), room);
        std::memcpy(text_->text + at, line.data(), std::min(line.size(), room - at));
        text_->written.fetch_add(1);
    }

    ~Findings() {
        BOOST_TEST(text_->begun.load() == 0u, found());
        BOOST_TEST(text_->begun.load() == text_->written.load(), "a rank died before it had written what it found");
        BOOST_TEST(text_->reported.load() >= ranks_, text_->reported.load()
                                                         << " ranks have checked something, expected " << ranks_);
    }

private:
    static constexpr std::size_t room = 16'384;
    struct Text {
        std::uint32_t number = 0; ///< of the object: later ones may have the same address
        std::atomic<std::uint32_t> reported{0}, begun{0}, written{0};
        std::atomic<std::size_t> used{0};
        char text[room] = {};
    };

    /// What was found, as far as there was room.
    [[nodiscard]] std::string found() const {
        const std::size_t used = text_->used.load();
        std::string all(text_->text, std::min(used, room));
        all.erase(std::remove(all.begin(), all.end(), '\0'), all.end()); // never written
        if (used > room) all += "...";
        return all;
    }

    void count_this_rank() {
        struct Counted {
            ::pid_t thread;
            std::vector<std::uint32_t> objects; ///< that counted it
        };
        thread_local Counted counted{0, {}}; // a forked rank has its parent's
        const auto thread = static_cast<::pid_t>(::syscall(SYS_gettid));
        if (counted.thread != thread) counted = {thread, {}};
        if (std::find(counted.objects.begin(), counted.objects.end(), text_->number) != counted.objects.end()) return;
        counted.objects.push_back(text_->number);
        text_->reported.fetch_add(1);
    }

    Shared<Text> text_;
    std::uint32_t ranks_;
};

inline const unisono::RunOptions limit{.timeout = std::chrono::seconds(30), .bind_to_cores = false};

/// Each rank calls body(group, findings). At least `checking` ranks must check something.
template <class Body>
void on_ranks(int ranks, Body body, int checking = 1) {
    Findings findings(checking);
    test::run(
        ranks, [&](Group& group) { body(group, findings); }, limit);
}
/// The same, and each rank must.
template <class Body>
void on_each_rank(int ranks, Body body) {
    on_ranks(ranks, body, ranks);
}

/// Runs `body` on `world` ranks. Each must end with a unisono::error of this code whose text has
/// all of `words`.
template <class Body>
void all_fail(int world, unisono::ErrorCode code, const std::vector<std::string>& words, Body body,
              const unisono::RunOptions& options = limit) {
    Findings findings(world);
    try {
        test::run(
            world,
            [&](Group& group) {
                try {
                    body(group);
                    findings.expect(false, "rank " + std::to_string(group.rank()) + " did not fail");
                } catch (const unisono::error& failed) {
                    const std::string text = failed.what();
                    findings.expect(failed.code() == code, text);
                    for (const auto& word : words)
                        findings.expect(text.find(word) != std::string::npos, "'" + word + "' not in: " + text);
                    throw;
                }
            },
            options);
        findings.expect(false, "run did not throw");
    } catch (const unisono::error& failed) {
        findings.expect(failed.code() == code, failed.what());
    }
}

/// Runs ranks that throw what they find wrong.
template <class Body>
void expect_run(int ranks, Body body) {
    try {
        unisono::run<unisono::InProcess>(ranks, body);
        BOOST_TEST(true);
    } catch (const std::exception& found) {
        BOOST_ERROR(found.what());
    }
}

} // namespace test
