#include "rank_outputs.hpp"

#include <cstddef>
#include <poll.h>
#include <string>
#include <utility>
#include <vector>

namespace unisono_run {

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
