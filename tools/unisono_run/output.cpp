#include "output.hpp"

#include "unisono/core/path.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace unisono_run {

OutputSink::OutputSink(int fd) : fd_(fd) {
    struct stat about = {};
    if (::fstat(fd, &about) != 0 || !S_ISFIFO(about.st_mode)) return;
    own_ = FileDescriptor(::open(concat({"/proc/self/fd/", fd}).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

void OutputSink::add(std::string_view text) {
    if (!broken_ && lost_ == 0) pending_ += text;
}

std::string OutputSink::take_failure() {
    const int why = std::exchange(failure_, 0);
    if (why == 0) return {};
    return concat({"unisono-run: cannot write to standard ", fd_ == 1 ? "output" : "error", ": ", errno_text(why),
                   "; the job continues without it\n"});
}

void OutputSink::flush() {
    pollfd now = wanted();
    if (now.fd < 0 || ::poll(&now, 1, 0) <= 0) return; // another writer may have filled it in the meantime
    const ssize_t wrote = ::write(now.fd, pending_.data(), std::min<std::size_t>(pending_.size(), 4096));
    if (wrote > 0) {
        pending_.erase(0, static_cast<std::size_t>(wrote));
    } else if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
        broken_ = errno == EPIPE || errno == ECONNRESET || errno == EIO; // for a pipe, a socket, a terminal
        if (!broken_) lost_ = failure_ = errno;
        pending_.clear();
    }
}

void OutputSink::finish(nanoseconds until) {
    while (!pending_.empty() && wait_for(fd(), POLLOUT, until)) flush();
}

OutputSource::OutputSource(FileDescriptor pipe, std::string label, OutputSink& sink, FileDescriptor log,
                           std::string log_path)
    : pipe_(std::move(pipe)), log_(std::move(log)), log_path_(std::move(log_path)), label_(std::move(label)),
      sink_(&sink) {
    ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
}

std::string OutputSource::take_failure() {
    const int why = std::exchange(log_failure_, 0);
    if (why == 0) return {};
    return concat(
        {"unisono-run: cannot write to ", log_path_, ": ", errno_text(why), "; the job continues without it\n"});
}

bool OutputSource::read() {
    char buffer[65536];
    while (pipe_.valid() && !sink_->full()) {
        const ssize_t got = ::read(pipe_.get(), buffer, sizeof buffer);
        if (got > 0) {
            take(std::string_view(buffer, static_cast<std::size_t>(got)));
        } else if (got == 0) {
            pipe_.close();
        } else if (errno != EINTR) {
            break;
        }
    }
    return pipe_.valid();
}

void OutputSource::finish() {
    read();
    if (!line_.empty()) take("\n");
    pipe_.close();
}

void OutputSource::take(std::string_view text) {
    if (log_.valid()) write_log(text);
    if (label_.empty()) return sink_->add(text);
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), longest_line - std::min(longest_line - 1, line_.size()));
        const bool whole = end < text.size() && text[end] == '\n';
        line_ += text.substr(0, end);
        text.remove_prefix(std::min(text.size(), whole ? end + 1 : end));
        if (!whole && line_.size() < longest_line) return;
        line_ += '\n';
        sink_->add(label_);
        sink_->add(line_);
        line_.clear();
    }
}

void OutputSource::write_log(std::string_view text) {
    while (!text.empty()) {
        const ssize_t wrote = ::write(log_.get(), text.data(), text.size());
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) { // the disk is full: the job continues
            log_failure_ = wrote < 0 ? errno : ENOSPC;
            return log_.close();
        }
        text.remove_prefix(static_cast<std::size_t>(wrote));
    }
}

void make_folders(const std::string& path) {
    for (std::size_t end = 0; end != std::string::npos;) {
        end = path.find('/', end + 1);
        const std::string part = path.substr(0, end);
        if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) {
            throw error(ErrorCode::refused, concat({"cannot make the folder ", part, ": ", errno_text(errno)}));
        }
    }
}

FileDescriptor open_log(const std::string& path) {
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666));
    if (!file.valid()) throw error(ErrorCode::refused, concat({"cannot write ", path, ": ", why_not_opened(errno)}));
    // Only the open must not wait. A slow reader of a pipe is waited for.
    static_cast<void>(::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) & ~O_NONBLOCK));
    return file;
}

void RankOutputs::add(int stream, FileDescriptor pipe, std::string label, FileDescriptor log, std::string log_path) {
    sources_.emplace_back(std::move(pipe), std::move(label), sinks_[stream], std::move(log), std::move(log_path));
}

void RankOutputs::wait_for(std::vector<pollfd>& polled) {
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

void RankOutputs::move(const std::vector<pollfd>& polled) {
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

void RankOutputs::finish(nanoseconds until) {
    for (OutputSource& source : sources_) {
        while (source.wanted().fd < 0 && source.read() && steady_now() < until) {
            for (OutputSink& sink : sinks_) sink.finish(until);
        }
        source.finish();
        sinks_[1].add(source.take_failure());
    }
    for (OutputSink& sink : sinks_) sink.finish(until);
}

} // namespace unisono_run
