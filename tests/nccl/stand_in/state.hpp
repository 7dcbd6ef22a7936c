// What the two halves of the stand-in (cuda.cpp, nccl.cpp) share: one lock for everything, and streams that are threads.
#pragma once

#include "stand_in.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace stand_in {

using Lock = std::unique_lock<std::mutex>;
/// Runs with the lock held, and may wait on `State::changed` with it.
using Task = std::function<void(Lock&)>;

} // namespace stand_in

struct StandInStream {
    std::deque<stand_in::Task> tasks;
    bool busy = false, ends = false;
    int untaken = 0; ///< calls that NCCL has not taken yet
};

struct StandInEvent {
    std::shared_ptr<bool> done = std::make_shared<bool>(true);
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

    void count_copy(std::size_t bytes, cudaMemcpyKind kind) {
        if (kind == cudaMemcpyDeviceToHost) counts.bytes_to_host += bytes;
        if (kind == cudaMemcpyHostToDevice) counts.bytes_to_device += bytes;
    }
    void note(const std::string& what) { misuse.push_back(what); }
    void enqueue(StandInStream* stream, Task task) {
        stream->tasks.push_back(std::move(task));
        changed.notify_all();
    }
};
State& state();

cudaError_t free_of_device(void* memory);
cudaError_t take_of_device(void** memory, std::size_t bytes);
int device_of_thread();

} // namespace stand_in
