#pragma once

/// \file Advances what is in flight on one world, for all threads that start operations and wait.
///
/// A waiting thread advances everything itself. A thread of the driver does so while operations are
/// in flight and no thread waits: DDP waits for futures and not for works. None of them runs
/// callbacks of futures, see callbacks.hpp. Collectives start in the order of the calls. An
/// operation of several stages (a reproducible sum) delays later collectives until its last stage
/// has started, so that all ranks start the same operations in the same order.

#include "world.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace unisono_torch {

class Driver;

/// One call on a process group.
class Work final : public c10d::Work {
public:
    /// Starts a stage. Called with the driver's lock held.
    using Stage = std::function<un::Operation(World&)>;

    /// `inputs`: a profiler shows their shapes. The future gives `lists` if there are any,
    /// otherwise `outputs`.
    Work(int rank, c10d::OpType type, const char* name, const std::vector<at::Tensor>& inputs,
         std::vector<at::Tensor> outputs, std::vector<std::vector<at::Tensor>> lists = {});
    /// The host's part of a call on a device's tensors (lane.hpp), which no profiler sees.
    Work(int rank, c10d::OpType type, const char* name) : c10d::Work(rank, type), name_(name) { make_future(); }

    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void abort() override;
    std::vector<at::Tensor> result() override { return outputs_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override { return sequence; }
    std::chrono::milliseconds getTimeout() const override { return timeout; }

    std::vector<Stage> stages = {};
    std::function<void()> after =
        /// Runs after all stages, without the lock: copies results to the caller's tensors.
        {};
    bool point_to_point = false;
    std::uint64_t sequence = 0;
    std::chrono::milliseconds timeout{0};

private:
    friend class Driver;
    void make_future();
    void conclude() noexcept;
    void announce() noexcept;
    [[noreturn]] void throw_early(std::chrono::milliseconds waited, const std::string& what) const;

    std::string name_;
    std::vector<at::Tensor> outputs_;
    std::vector<std::vector<at::Tensor>> lists_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    enum class Future { unasked, asked_for, complete };
    std::atomic<Future> future_state_{Future::unasked};
    int level_ = 0; ///< see `run_callback`
    std::weak_ptr<Driver> driver_ = {};
    un::Operation operation_ = {};
    std::size_t started_ = 0; ///< stages
    /// Guarded by the driver's lock, unlike the state that the conclusion sets.
    bool is_over_ = false;
    un::nanoseconds deadline_ = un::never;
    std::exception_ptr failed_ = {};
};

class Driver : public std::enable_shared_from_this<Driver> {
public:
    Driver(std::unique_ptr<World> world, std::string who);
    ~Driver();

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] const std::string& transport() const { return transport_; }
    [[nodiscard]] const std::string& who() const { return who_; }

    /// Starts it, or queues it. `waits`: the caller is about to wait for it.
    void submit(const c10::intrusive_ptr<Work>& work, bool waits);
    /// Waits until `work` is done. Returns false if `until` has passed.
    bool wait(Work& work, un::nanoseconds until);
    /// Fails every call in flight, and every later one, on every rank of the group.
    void abort(const std::string& why);
    /// Says goodbye to the other ranks. What is in flight fails. `elsewhere`: the number of calls
    /// for which other ranks may wait without this driver.
    void shut_down(std::size_t elsewhere = 0);
    /// Takes no lock. Only works in flight, and `look`, learn of other ranks' faults.
    [[nodiscard]] bool has_failed() const;
    /// Learns of the faults of other ranks, which then are this one's.
    void look();
    /// Why it has failed.
    [[nodiscard]] std::exception_ptr fault();
    /// Throws in a forked child of the process that joined the group.
    void refuse_other_process() const;

private:
    class Lock;
    using Works = std::vector<c10::intrusive_ptr<Work>>;

    void take_out(c10::intrusive_ptr<Work> work, Works& done);
    void start(const c10::intrusive_ptr<Work>& work, Works& done);
    void start_ready(Works& done);
    void start_stage(Work& work);
    [[nodiscard]] bool look_at(Work& work);
    [[nodiscard]] Works move();
    static void conclude(const Works& done);
    void idle(std::uint32_t attempt, un::nanoseconds longest);
    void drive();
    void wake();

    std::unique_ptr<World> world_;
    int rank_, size_;
    std::string transport_;
    std::string who_;
    int process_; ///< that joined
    std::mutex mutex_;
    std::condition_variable news_;
    std::atomic<int> wanting_{0}; ///< threads that want the lock
    /// Set if a thread that wants the lock can wake the thread that has it.
    std::atomic<World*> sleeps_in_{nullptr};
    std::deque<c10::intrusive_ptr<Work>> queue_;
    std::deque<c10::intrusive_ptr<Work>> flying_;
    /// An operation of several stages: no collective starts before its last stage.
    c10::intrusive_ptr<Work> opening_ = {};
    std::size_t next_look_ = 0;
    int collectives_ = 0; ///< in flight
    int waiters_ = 0;
    bool asleep_ = false;
    bool ending_ = false;
    std::atomic<bool> failed_{false};
    std::thread thread_;
};

/// Worlds that are ending: rank 0 stays until the other ranks have left, and the caller does not
/// wait for that.
void retire(std::unique_ptr<World> world);
/// At the end of the process.
void await_retired();

/// Throws PyTorch's exception for an error between ranks.
[[noreturn]] void throw_as_torch(const std::string& who, const un::error& what);

} // namespace unisono_torch
