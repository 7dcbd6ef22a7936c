#pragma once

/// \file
/// Forwards the outputs of all ranks of a launcher to the launcher's two outputs.

#include "output.hpp"

#include <cstddef>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

namespace unisono_run {

/// One thread uses it. Outputs that have ended are closed and forgotten, so a job may replace any
/// number of ranks.
class RankOutputs {
public:
    RankOutputs() = default;
    RankOutputs(const RankOutputs&) = delete;
    RankOutputs& operator=(const RankOutputs&) = delete;

    /// `stream`: 0 is standard output, 1 is standard error.
    void add(int stream, FileDescriptor pipe, std::string label, FileDescriptor log, std::string log_path);
    /// Writes a line of the launcher's own.
    void say(std::string_view text) { sinks_[1].add(text); }
    /// True if no reader is left, as after `| head`.
    [[nodiscard]] bool broken() const { return sinks_[0].broken() || sinks_[1].broken(); }

    /// Appends the descriptors to poll. Omits invalid ones, since poll counts them as well, and
    /// takes at most the number of descriptors of a process.
    void wait_for(std::vector<pollfd>& polled);
    /// Moves the available output, after poll.
    void move(const std::vector<pollfd>& polled);

    /// Writes the rest, as far as the system accepts it until the deadline.
    void finish(nanoseconds until);

private:
    OutputSink sinks_[2] = {OutputSink(1), OutputSink(2)};
    std::vector<OutputSource> sources_; ///< two for each running rank
    std::vector<std::size_t> waiting_;  ///< the last polled: index of a sink, or 2 + index of a source
    std::size_t first_ = 0;             ///< position of the first of them
};

} // namespace unisono_run
