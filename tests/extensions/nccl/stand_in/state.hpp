// Shared by the two halves of the stand-in (cuda.cpp, nccl.cpp): one lock for everything, and
// streams that are threads.
#pragma once

#include "stand_in.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

struct StandInStream;

namespace stand_in {

using Lock = std::unique_lock<std::mutex>;
/// Runs with the lock held, and may wait on `State::changed` with it.
using Task = std::function<void(Lock&)>;

/// The work that was enqueued while streams were captured, in order.
struct Recording {
    std::vector<Task> tasks;
    std::vector<std::function<void()>> at_launch, at_end;
    ~Recording() {
        for (const auto& one : at_end) one();
    }
};
/// A capture in progress.
struct Capture {
    std::shared_ptr<Recording> recording = std::make_shared<Recording>();
    std::vector<StandInStream*> streams; ///< its origin first
    std::thread::id thread;
    bool invalid = false;
};

} // namespace stand_in

struct StandInGraph {
    std::shared_ptr<stand_in::Recording> recording;
};
struct StandInGraphExec {
    std::shared_ptr<stand_in::Recording> recording;
};

struct StandInStream {
    std::deque<stand_in::Task> tasks;
    bool busy = false, ends = false;
    int untaken = 0; ///< calls that NCCL has not taken yet
    int device = 0;
    std::shared_ptr<stand_in::Capture> capture;
};

struct StandInEvent {
    std::shared_ptr<bool> done = std::make_shared<bool>(true);
    std::shared_ptr<stand_in::Capture> capture; ///< the capture that recorded it
    int device = 0;
};

namespace stand_in {

struct State {
    std::mutex mutex;
    std::condition_variable changed;
    Behaviour behaviour;
    Counts counts;
    std::vector<std::string> misuse, calls;
    std::set<const void*> registered; ///< memory
    std::map<void*, std::size_t> pinned;
    std::vector<std::shared_ptr<Capture>> captures;

    void count_copy(std::size_t bytes, cudaMemcpyKind kind) {
        if (kind == cudaMemcpyDeviceToHost) counts.bytes_to_host += bytes, ++counts.copies_to_host;
        if (kind == cudaMemcpyHostToDevice) counts.bytes_to_device += bytes;
        if (kind == cudaMemcpyDeviceToDevice) counts.bytes_within += bytes;
    }
    /// Whether this is memory of the host that CUDA copies only while the caller waits.
    [[nodiscard]] bool is_pageable(const void* address) const {
        const auto after = pinned.upper_bound(const_cast<void*>(address));
        if (after == pinned.begin()) return true;
        const auto& [begin, bytes] = *std::prev(after);
        return static_cast<const std::byte*>(address) >= static_cast<const std::byte*>(begin) + bytes;
    }
    [[nodiscard]] bool is_lost(int device) const { return device == behaviour.lost_device; }
    void note(const std::string& what) { misuse.push_back(what); }
    void enqueue(StandInStream* stream, Task task) {
        if (stream->capture != nullptr) return stream->capture->recording->tasks.push_back(std::move(task));
        stream->tasks.push_back(std::move(task));
        changed.notify_all();
    }
    /// Invalidates this thread's captures, if it has any: for calls that handle memory or are
    /// synchronous.
    bool breaks_capture() {
        bool broken = false;
        for (const auto& one : captures) {
            if (one->thread != std::this_thread::get_id()) continue;
            one->invalid = broken = true;
        }
        return broken;
    }
};
State& state();

cudaError_t free_of_device(void* memory);
cudaError_t take_of_device(void** memory, std::size_t bytes);
int device_of_thread();

} // namespace stand_in
