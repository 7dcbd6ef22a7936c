#pragma once

/// \file
/// Forwards the ranks' output through their launcher: whole lines, labelled, with copies in files.

#include "names.hpp"

#include "unisono/core/descriptor.hpp"
#include "unisono/core/path.hpp"
#include "unisono/core/time.hpp"

#include <cstddef>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

namespace unisono_run {

/// One of the launcher's own outputs. A slow reader delays the ranks, as it would without a
/// launcher, but never the launcher: it writes only what the system accepts at once. What a full
/// disk does not accept is lost, and the job continues.
///
/// A pipe may have other writers (as after `2>&1 |`), which may fill it between poll and write. So
/// the pipe is opened once more with O_NONBLOCK. On the inherited descriptor O_NONBLOCK would apply
/// to all processes that share it.
class OutputSink {
public:
    static constexpr std::size_t most_pending = std::size_t{1} << 20;

    explicit OutputSink(int fd);

    void add(std::string_view text);
    [[nodiscard]] bool full() const { return pending_.size() >= most_pending; }
    /// True if the reader has closed it.
    [[nodiscard]] bool broken() const { return broken_; }
    /// Returns a line about the error after which nothing is written. Empty if there was none, or
    /// if it was returned before.
    std::string take_failure();
    [[nodiscard]] pollfd wanted() const { return {pending_.empty() ? -1 : fd(), POLLOUT, 0}; }

    /// Writes what the system accepts at once: a pipe that is writable accepts this many bytes
    /// without waiting.
    void flush();

    /// Writes the rest, as far as the system accepts it until the deadline.
    void finish(nanoseconds until);

private:
    [[nodiscard]] int fd() const { return own_.valid() ? own_.get() : fd_; }

    int fd_;
    FileDescriptor own_ = {}; ///< the same pipe, opened with O_NONBLOCK
    bool broken_ = false;
    int lost_ = 0;    ///< the error after which nothing is written
    int failure_ = 0; ///< the same error, until `take_failure` has returned it
    std::string pending_;
};

/// One output of one rank: a pipe whose bytes are cut into lines.
class OutputSource {
public:
    static constexpr std::size_t longest_line = std::size_t{1} << 16; ///< longer lines are cut

    OutputSource(FileDescriptor pipe, std::string label, OutputSink& sink, FileDescriptor log,
                 std::string log_path = {});

    [[nodiscard]] pollfd wanted() const { return {sink_->full() ? -1 : pipe_.get(), POLLIN, 0}; }

    /// True if no more output can come.
    [[nodiscard]] bool ended() const { return !pipe_.valid(); }
    /// A line about the error after which the file gets nothing more. Empty if there was none, or
    /// if it was told.
    std::string take_failure();

    /// Reads the available bytes. Returns false if no more can come.
    bool read();

    /// Completes a last line without a newline.
    void finish();

private:
    void take(std::string_view text);
    void write_log(std::string_view text);

    FileDescriptor pipe_;
    FileDescriptor log_;
    std::string log_path_;
    int log_failure_ = 0; ///< until it is told
    std::string label_;
    std::string line_;
    OutputSink* sink_;
};

/// Forwards the outputs of all ranks to the launcher's two outputs. One thread uses it. Outputs
/// that have ended are closed and forgotten, so a job may replace any number of ranks.
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

/// Makes a folder and its missing parents. Errors: refused.
void make_folders(const std::string& path);

/// Errors: refused.
FileDescriptor open_log(const std::string& path);

} // namespace unisono_run
