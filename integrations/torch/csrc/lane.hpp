#pragma once

/// \file How tensors of a device travel: through pinned mirrors on the host, between which the
/// ranks' `World` moves them as it moves any tensor of the host.
///
/// A call enqueues all its work on two streams of the device before it returns:
///
///     `in`:   after the current stream | copies to the mirrors | event `ready`
///     `out`:  after the current stream | the word is open | copies to the tensors | event `end`
///
/// A thread sees `ready`, starts the operation on the mirrors, and the operation's end opens the
/// word. So `Work::wait()` makes the current stream wait for `end`, and the host waits for nothing.
/// A stream waits for what is enqueued after it in one case: a receive, whose message may need a
/// later send of this rank. So all streams must not share one queue of the device. A send ends with
/// `ready`. The lane keeps tensors and mirrors until the host has seen `end`. After a fault
/// floating-point outputs become NaN, after `ready`, and the words are opened, too.
///
/// A call on memory that a call in flight writes waits on the device for that one, and so does one
/// that writes what a call in flight reads.
///
/// A lane has a world of its own: calls on tensors of the host do not wait for a device. Its
/// collectives start in the order of the calls, and so do its sends, on all devices.

#include "device.hpp"
#include "driver.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace unisono_torch {

class Lane;

/// One call on tensors of a device.
class DeviceWork final : public c10d::Work {
public:
    DeviceWork(int rank, c10d::OpType type, const char* name, const std::vector<at::Tensor>& inputs,
               std::vector<at::Tensor> outputs, std::vector<std::vector<at::Tensor>> lists, at::Device device);

    /// Whether the device has ended it.
    bool isCompleted() override;
    /// Without a timeout, only the current stream waits, unless `host_waits`.
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void synchronize() override { wait(); }
    void blockCurrentStream() override { wait(); }
    void abort() override;
    std::vector<at::Tensor> result() override { return outputs_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
    uint64_t getSequencenumber() const override { return sequence_; }
    std::chrono::milliseconds getTimeout() const override { return timeout_; }

    bool host_waits = false;

private:
    friend class Lane;
    [[nodiscard]] c10::IValue value() const;
    void conclude(std::exception_ptr failed);

    std::string name_;
    std::vector<at::Tensor> outputs_;
    std::vector<std::vector<at::Tensor>> lists_;
    at::Device device_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    bool future_is_complete_ = false;
    int level_ = 0; ///< see `run_callback`
    std::uint64_t sequence_ = 0;
    std::chrono::milliseconds timeout_{0};
    std::weak_ptr<Driver> driver_ = {};
    device::Event end_ = {};
};

/// Several calls, between startCoalescing and endCoalescing.
class CoalescedWork final : public c10d::Work {
public:
    CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
        : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

    bool isCompleted() override;
    bool isSuccess() const override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void synchronize() override { wait(); }
    void blockCurrentStream() override { wait(); }
    void abort() override;
    std::vector<at::Tensor> result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

private:
    std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

class Lane {
public:
    struct Copy {
        at::Tensor on_device;
        at::Tensor mirror;
    };
    struct Job {
        c10::intrusive_ptr<Work> work; ///< the host's part
        std::vector<std::function<void()>> before = {};
        std::vector<Copy> to_host = {};
        std::vector<Copy> to_device = {};

        // The lane's own:
        c10::intrusive_ptr<DeviceWork> outer = {};
        device::Word word = {};
        device::Event ready = {};
        bool waits = false; ///< for `ready`
        bool begun = false;
        bool over = false; ///< the host's part is
        un::nanoseconds deadline = un::never;
        std::exception_ptr failed = {};
    };

    Lane(std::shared_ptr<Driver> driver, std::chrono::milliseconds timeout);
    ~Lane() { shut_down(timeout_); }

    [[nodiscard]] Driver& driver() { return *driver_; }
    /// Enqueues the work of `job` on the device. Errors: the lane's first fault.
    void submit(Job&& job, const c10::intrusive_ptr<DeviceWork>& outer);
    /// Waits for `longest` until all calls have ended, and says goodbye to the other ranks.
    void shut_down(std::chrono::milliseconds longest);

private:
    struct Streams {
        explicit Streams(const at::Device& device) : in(device), out(device), received(device) {}
        device::Stream in, out;
        device::Stream received; ///< as `out`: a message does not wait for collectives
    };

    /// What has not begun holds up later calls of its kind: a receiver takes a sender's messages in
    /// the order in which they begin.
    struct Held {
        bool collectives = false;
        bool sends = false;
    };

    [[nodiscard]] device::Word take_word();
    [[nodiscard]] std::vector<device::Event> uses_before(const Job& job) const;
    void run();
    [[nodiscard]] bool move(Job& job, Held& held);
    [[nodiscard]] bool is_over(Job& job);
    [[nodiscard]] bool spoil_in_turn(Job& job);
    void fail(Job& job, const std::string& why);
    void begin(Job& job);
    void end(Job& job);

    std::shared_ptr<Driver> driver_;
    std::chrono::milliseconds timeout_;
    int process_; ///< that joined
    std::mutex mutex_;
    std::condition_variable news_;
    std::condition_variable empty_;
    std::map<int, Streams> streams_; ///< by device
    std::list<Job> jobs_;
    std::vector<at::Tensor> pages_; ///< of words
    std::deque<device::Word> free_words_;
    std::exception_ptr failed_ = {};
    bool ending_ = false;
    bool stop_ = false;
    std::thread thread_;
};

} // namespace unisono_torch
