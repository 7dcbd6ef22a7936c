#pragma once

/// \file
/// The investigation of a timeout: the rank that complained, the ranks that were asked, and their
/// answers.

#include "unisono/launch/root_cause.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Inquiry {
public:
    /// Asks all ranks that are `here` except the one that complained. The others have left.
    void begin(int reporter, Fault complaint, Wait wait, const std::vector<bool>& here, nanoseconds now) {
        ++number_;
        reporter_ = reporter;
        complaint_ = std::move(complaint);
        began_ = now;
        running_ = true;
        answers_.assign(here.size(), {});
        unanswered_.clear();
        for (std::size_t rank = 0; rank < here.size(); ++rank) {
            if (static_cast<int>(rank) == reporter) continue;
            if (here[rank]) unanswered_.push_back(static_cast<int>(rank));
            else answers_[rank].standing = Standing::left;
        }
        if (const auto rank = static_cast<std::size_t>(reporter); rank < answers_.size())
            answers_[rank] = {Standing::waits, std::move(wait)};
    }

    /// Returns false if this rank was not asked, or has answered already.
    bool note(int rank, Answer answer) {
        const auto asked = std::find(unanswered_.begin(), unanswered_.end(), rank);
        if (!running_ || asked == unanswered_.end()) return false;
        unanswered_.erase(asked);
        answers_[static_cast<std::size_t>(rank)] = std::move(answer);
        return true;
    }

    /// The complaint, with its cause as far as it is known.
    Fault conclude() {
        stop();
        return with_culprit(complaint_, find_root_cause(reporter_, {answers_.data(), answers_.size()}));
    }

    void stop() {
        running_ = false;
        unanswered_.clear();
    }

    [[nodiscard]] bool running() const { return running_; }
    [[nodiscard]] nanoseconds began() const { return began_; }
    [[nodiscard]] std::uint32_t number() const { return number_; }
    [[nodiscard]] const std::vector<int>& unanswered() const { return unanswered_; }

private:
    bool running_ = false;
    std::uint32_t number_ = 0;
    nanoseconds began_ = 0;
    int reporter_ = -1;
    Fault complaint_;
    std::vector<Answer> answers_; ///< each is silent until its rank answers
    std::vector<int> unanswered_;
};

} // namespace detail
UNISONO_NAMESPACE_END
