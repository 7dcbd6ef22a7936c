#pragma once

/// \file
/// Forwards the outputs of all ranks of a launcher to the launcher's two outputs.

#include "unisono/launch/launcher_output.hpp"

#include <cstddef>
#include <poll.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One thread uses it. Outputs that have ended are closed and forgotten, so a job may replace any
/// number of ranks.
class RankOutputs {
public:
    RankOutputs() = default;
    RankOutputs(const RankOutputs&) = delete;
    RankOutputs& operator=(const RankOutputs&) = delete;

    /// `stream`: 0 is standard output, 1 is standard error.
    void add(int stream, FileDescriptor pipe, std::string label, FileDescriptor log, std::string log_path) {
        sources_.emplace_back(std::move(pipe), std::move(label), sinks_[stream], std::move(log), std::move(log_path));
    }
    /// Writes a line of the launcher's own.
    void say(std::string_view text) { sinks_[1].add(text); }
    /// True if no reader is left, as after `| head`.
    [[nodiscard]] bool broken() const { return sinks_[0].broken() || sinks_[1].broken(); }

    /// Appends the descriptors to poll. Omits invalid ones, since poll counts them as well, and
    /// takes at most the number of descriptors of a process.
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
    /// Moves the available output, after poll.
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

    /// Writes the rest, as far as the system accepts it until the deadline.
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
    std::vector<OutputSource> sources_; ///< two for each running rank
    std::vector<std::size_t> waiting_;  ///< the last polled: index of a sink, or 2 + index of a source
    std::size_t first_ = 0;             ///< position of the first of them
};

} // namespace detail
UNISONO_NAMESPACE_END
