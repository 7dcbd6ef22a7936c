#pragma once

/// \file
/// The outputs of all ranks of a launcher, on their way to the launcher's own two.

#include "unisono/launch/launcher_output.hpp"

#include <cstddef>
#include <poll.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One thread uses it. What has ended is closed and forgotten, so that a job may replace any number
/// of ranks.
class RankOutputs {
public:
    RankOutputs() = default;
    RankOutputs(const RankOutputs&) = delete;
    RankOutputs& operator=(const RankOutputs&) = delete;

    /// `stream`: 0 is standard output, 1 is standard error.
    void add(int stream, FileDescriptor pipe, std::string label, FileDescriptor log, std::string log_path) {
        sources_.emplace_back(std::move(pipe), std::move(label), sinks_[stream], std::move(log), std::move(log_path));
    }
    /// A line of the launcher's own.
    void say(std::string_view text) { sinks_[1].add(text); }
    /// No reader is left, as after `| head`.
    [[nodiscard]] bool broken() const { return sinks_[0].broken() || sinks_[1].broken(); }

    /// Appends what is to be polled: nothing that has no descriptor, since poll counts that, too,
    /// and takes no more than a process may open.
    void wait_for(std::vector<pollfd>& polled) {
        first_ = polled.size();
        waiting_.clear();
        const auto add = [&](const pollfd& one, std::size_t place) {
            if (one.fd < 0) return;
            polled.push_back(one);
            waiting_.push_back(place);
        };
        for (std::size_t i = 0; i < 2; ++i) add(sinks_[i].wanted(), i);
        for (std::size_t i = 0; i < sources_.size(); ++i) add(sources_[i].wanted(), 2 + i);
    }
    /// Moves what can be moved, after poll.
    void move(const std::vector<pollfd>& polled) {
        for (std::size_t i = 0; i < waiting_.size(); ++i) {
            if (polled[first_ + i].revents == 0) continue;
            if (waiting_[i] < 2) sinks_[waiting_[i]].flush();
            else sources_[waiting_[i] - 2].read();
        }
        for (const int stream : {0, 1}) sinks_[1 - stream].add(sinks_[stream].take_failure());
        std::erase_if(sources_, [&](OutputSource& each) {
            if (each.ended()) each.finish();
            sinks_[1].add(each.take_failure());
            return each.ended();
        });
    }

    /// The rest, as far as it is accepted until the deadline.
    void finish(nanoseconds until) {
        for (OutputSource& source : sources_) {
            while (source.wanted().fd < 0 && source.read() && steady_now() < until) {
                for (OutputSink& sink : sinks_) sink.finish(until);
            }
            source.finish();
            sinks_[1].add(source.take_failure());
        }
        for (OutputSink& sink : sinks_) sink.finish(until);
    }

private:
    OutputSink sinks_[2] = {OutputSink(1), OutputSink(2)};
    std::vector<OutputSource> sources_; ///< two for each rank that runs
    std::vector<std::size_t> waiting_;  ///< what was polled last: a sink, or 2 + a source
    std::size_t first_ = 0;             ///< from this place on
};

} // namespace detail
UNISONO_NAMESPACE_END
