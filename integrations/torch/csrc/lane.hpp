#pragma once

/// \file How tensors of a device travel: through pinned mirrors on the host, between which the
/// ranks' `World` moves them as it moves any tensor of the host.
///
/// A call enqueues all its work on two streams of the device before it returns:
///
///     `in`:   after the current stream | copies to the mirrors | opens `ready`
///     `out`:  after the current stream | `word` is open | copies to the tensors | opens `ended`
///
/// The mover, a thread, sees `ready`, starts the operation on the mirrors, and the operation's end
/// opens `word`. So `Work::wait()` makes the current stream wait for an event after `ended`, and
/// the host waits for nothing. The lane keeps tensors and mirrors until the host has seen `ended`.
/// After a fault floating-point outputs become NaN, after `ready`, and the words are opened, too.
///
/// The device waits for the mover. A call of the device may wait for the device, and hold up all
/// threads' calls meanwhile: an allocation, a kernel's first launch. So the mover makes no call of
/// the device, frees no tensor, and takes no lock under which others make such calls. It gets a job
/// before the device waits for the job's word. The sweeper, another thread, frees what has ended,
/// and asks for errors of the device.
///
/// A receive's message may need a later send of this rank. So the device waits for it only when the
/// program does, or a call uses its memory; otherwise the sweeper enqueues the copies when the
/// message has come. All streams must not share one queue of the device: a send of another stream
/// would not pass a receive that is waited for. A send ends with its copy.
///
/// A call on memory that a call in flight writes waits on the device for that one, and so does one
/// that writes what a call in flight reads.
///
/// A lane has a world of its own: calls on tensors of the host do not wait for a device. Its
/// collectives start in the order of the calls, and so do its sends, on all devices.
///
/// If each rank has a device of its own, some collectives go directly between the devices
/// (direct.hpp), without mirrors and without a word for which the device waits:
///
///     `direct`:   after the current stream | opens `ready` | NCCL's call | opens `ended`
///
/// Their part on the host is a check: from `ready` on, the ranks tell each other what they have
/// called. Nothing on the device waits for it. It finds late and dead ranks and calls that differ,
/// as for any other call. From the check's end on, nothing of the call is in flight between the
/// hosts, so the mover asks for the other ranks' faults until `ended`. After a fault the watcher, a
/// thread that never waits for the device, aborts the communicator, so that the streams go on.

#include "device.hpp"
#include "direct.hpp"
#include "driver.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

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
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override { return sequence_; }
    std::chrono::milliseconds getTimeout() const override { return timeout_; }
    /// The host need not wait for it any more. The first call counts: if the device's part was not
    /// enqueued, the mover and the caller call this.
    void conclude(std::exception_ptr failed);
    /// Completes the future if it waits for streams, and all work is enqueued. This runs callbacks,
    /// which may call anything: so no lock is held.
    void announce();

    bool host_waits = false;

private:
    friend class Lane;
    [[nodiscard]] c10::IValue value() const;
    [[nodiscard]] device::Event end();

    std::string name_;
    std::vector<at::Tensor> outputs_;
    std::vector<std::vector<at::Tensor>> lists_;
    at::Device device_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    std::atomic<bool> future_is_taken_ = false; ///< by what completes it
    std::atomic<bool> is_concluded_ = false;
    int level_ = 0; ///< see `run_callback`
    std::uint64_t sequence_ = 0;
    std::chrono::milliseconds timeout_{0};
    std::weak_ptr<Lane> lane_ = {};
    device::Event end_ = {};
    std::optional<device::Stream> last_stream_ = {};
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

class Lane : public std::enable_shared_from_this<Lane> {
public:
    using Steps = std::vector<std::function<void()>>;
    struct Copy {
        at::Tensor on_device;
        at::Tensor mirror = {}; ///< none if the call goes directly
        at::Tensor staged = {}; ///< on the way to a tensor that is not flat
    };
    /// A call that goes directly, with what the device does before and after it.
    struct DirectCall {
        un::detail::StreamCall call;
        std::vector<at::Tensor> memory; ///< of the call
        Steps before = {}, after = {};
    };
    struct Job {
        c10::intrusive_ptr<Work> work;    ///< the host's part
        Steps before = {};                ///< the host's, too
        std::vector<Copy> to_host = {};   ///< what is read,
        std::vector<Copy> to_device = {}; ///< and written
        std::optional<DirectCall> direct = {};

        // The lane's own:
        c10::intrusive_ptr<DeviceWork> outer = {};
        device::Word word = {}, ready = {}, ended = {};
        device::Event copied = {}; ///< after `ready`
        bool waits = false;        ///< for `ready`
        un::nanoseconds deadline = un::never;
        std::vector<device::Event> follows = {}; ///< what the copies to the tensors wait for

        // Guarded by `mutex_`:
        enum class Output {
            later,
            enqueued,
            failed,
            dropped ///< the group failed before NCCL had taken the call
        };
        Output output = Output::later; ///< the device's part after `word`
        std::string why = {};          ///< it has failed

        // The mover's:
        bool begun = false;
        bool flies = false; ///< the driver has it
        bool over = false;  ///< the host's part is
        std::exception_ptr failed = {};
    };

    /// Its threads keep it until `shut_down`.
    [[nodiscard]] static std::shared_ptr<Lane> make(std::shared_ptr<Driver> driver);

    [[nodiscard]] Driver& driver() { return *driver_; }
    /// Whether the collective `call` on this device goes directly. The first one decides it with
    /// the other ranks, and waits for them. Errors: the lane's first fault; a device that is not
    /// the first one; a capture.
    [[nodiscard]] bool goes_directly(const char* call, const at::Device& device, bool wanted,
                                     std::chrono::milliseconds timeout);
    /// "nccl", or why not.
    [[nodiscard]] std::string way();
    /// Enqueues the work of `job` on the device. Errors: the lane's first fault.
    void submit(Job&& job, const c10::intrusive_ptr<DeviceWork>& outer);
    /// Enqueues what a receive has not enqueued yet.
    void enqueue_output(DeviceWork& outer);
    /// Waits for `longest` until all calls have ended, and says goodbye to the other ranks.
    void shut_down(std::chrono::milliseconds longest);

private:
    struct Streams {
        explicit Streams(const at::Device& device) : in(device), out(device), sent(device), received(device) {}
        device::Stream in, out;
        device::Stream sent, received; ///< as `in` and `out`: a message does not wait for collectives
        std::optional<device::Stream> direct = {};

        /// That of a job's first work.
        [[nodiscard]] device::Stream& first(const Job& job) {
            return job.direct ? *direct : job.outer->retrieveOpType() == c10d::OpType::SEND ? sent : in;
        }
        /// That of its last work.
        [[nodiscard]] device::Stream& last(const Job& job) {
            const c10d::OpType type = job.outer->retrieveOpType();
            if (job.direct) return *direct;
            return type == c10d::OpType::SEND ? sent : type == c10d::OpType::RECV ? received : out;
        }
    };

    /// What has not begun holds up later calls of its kind: a receiver takes a sender's messages in
    /// the order in which they begin.
    struct Held {
        bool collectives = false;
        bool sends = false;
    };

    explicit Lane(std::shared_ptr<Driver> driver) : driver_(std::move(driver)), process_(::getpid()) {}
    void refuse_ended() const;
    /// Also by another rank's fault that nothing in flight has met.
    [[nodiscard]] bool has_failed();
    [[nodiscard]] Streams& streams_of(const at::Device& device);
    [[nodiscard]] device::Word take_word();
    [[nodiscard]] std::vector<device::Event> uses_before(const Job& job);
    void decide(const at::Device& device, bool wanted, std::chrono::milliseconds timeout);
    [[nodiscard]] std::shared_ptr<Direct> begin_direct(const std::vector<DirectCard>& cards, int device,
                                                       std::chrono::milliseconds timeout);
    void use(std::shared_ptr<Direct> made);
    void exchange(const c10::intrusive_ptr<Work>& work, const at::Device& device);
    void check_by_host(Job& job);
    void enqueue_input(Job& job, Streams& streams);
    [[nodiscard]] bool is_taken(const DirectCall& call, device::Stream& stream);
    /// Returns false if NCCL has not taken the call before the group failed.
    bool enqueue_output(Job& job);

    void run();
    [[nodiscard]] bool move(Job& job, Held& held);
    [[nodiscard]] bool spoil_in_turn(Job& job);
    void fail(Job& job, const std::string& why);
    void begin(Job& job);
    void end(Job& job);

    void sweep();
    void look_for_errors(std::unique_lock<std::mutex>& lock);
    void watch(const std::shared_ptr<Direct>& direct);

    std::shared_ptr<Driver> driver_;
    int process_;             ///< that joined
    std::mutex deciding_;     ///< taken before `order_`
    bool is_decided_ = false; ///< whether calls go directly, on the device
    int direct_device_ = -1;
    std::atomic<un::nanoseconds> next_look_{0}; ///< at other ranks' faults
    std::mutex order_;                          ///< of the calls; never the mover's
    std::map<int, Streams> streams_;            ///< by device
    std::mutex mutex_;                          ///< of what follows; under it nobody calls the device or frees a tensor
    std::condition_variable news_;
    std::condition_variable empty_;
    std::condition_variable sweeps_; ///< also the watcher's
    std::list<Job> jobs_;
    std::list<Job> ended_;                                     ///< for the sweeper
    std::vector<c10::intrusive_ptr<DeviceWork>> arrived_ = {}; ///< receives that have not enqueued their outputs
    std::vector<at::Tensor> pages_;                            ///< of words
    std::deque<device::Word> free_words_;
    std::exception_ptr failed_ = {};
    std::string device_failed_ = {}; ///< how
    std::shared_ptr<Direct> direct_ = {};
    std::string why_not_direct_ = "undecided"; ///< if there is none
    std::string direct_failed_ = {};           ///< how
    bool direct_aborts_ = false;               ///< the watcher is to abort it
    bool is_deciding_ = false;                 ///< with the other ranks
    bool ending_ = false;
    bool stop_ = false;
    bool sweeper_has_ended_ = false;
    bool watcher_has_ended_ = false;
    std::thread mover_, sweeper_, watcher_;
};

} // namespace unisono_torch
