#include "lane.hpp"

#include "callbacks.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

namespace unisono_torch {
namespace {

constexpr std::int64_t words_per_page = 1024;
/// How long the thread sleeps between two looks.
constexpr std::chrono::microseconds nap{20};
/// The sweeper looks for errors of the device so often, and the watcher for those of NCCL.
constexpr std::chrono::milliseconds between_looks{10};
/// A rank that waits for NCCL asks for other ranks' faults so often.
constexpr un::nanoseconds between_questions = 1'000'000;
/// After a fault, the device has so long to end its copies.
constexpr std::chrono::seconds longest_copy{5};

/// What a rank has called, for the others.
struct Called {
    std::int64_t verb = 0, element = 0, reduction = 0, peer = 0, count = 0;

    explicit Called(const un::detail::StreamCall& call)
        : verb(static_cast<std::int64_t>(call.verb)), element(static_cast<std::int64_t>(call.element)),
          reduction(static_cast<std::int64_t>(call.reduction)), peer(call.peer),
          count(static_cast<std::int64_t>(call.count)) {}
    Called() = default;
    friend bool operator==(const Called&, const Called&) = default;

    [[nodiscard]] std::string words() const {
        constexpr const char* verbs[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter"};
        constexpr const char* reductions[] = {"sum", "product", "min", "max"};
        const auto which = static_cast<un::detail::StreamVerb>(verb);
        const bool reduces = which != un::detail::StreamVerb::broadcast && which != un::detail::StreamVerb::all_gather;
        const bool has_root = which == un::detail::StreamVerb::reduce || which == un::detail::StreamVerb::broadcast;
        return c10::str(verbs[verb], " of ", count, " ", un::name_of(static_cast<un::ElementType>(element)),
                        reduces ? c10::str(", ", reductions[reduction]) : "",
                        has_root ? c10::str(", root ", peer) : "");
    }
};

c10::TypePtr type_of(const std::vector<std::vector<at::Tensor>>& lists) {
    c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
    return lists.empty() ? std::move(tensors) : c10::ListType::create(std::move(tensors));
}

void copy_to_host(const Lane::Copy& copy) {
    const at::Tensor flat = copy.on_device.detach().resolve_conj().resolve_neg().contiguous();
    at::Tensor(copy.mirror).copy_(flat, true);
}

bool is_flat(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

void copy_to_device(const Lane::Copy& copy) {
    at::Tensor target = copy.on_device.detach();
    if (!copy.staged.defined()) {
        target.copy_(copy.mirror, true);
        return;
    }
    at::Tensor(copy.staged).copy_(copy.mirror, true);
    target.copy_(copy.staged);
}

/// The memory of a device in which the elements are, with what is between them.
std::pair<const std::byte*, const std::byte*> memory_of(const at::Tensor& tensor) {
    const auto* const begin = static_cast<const std::byte*>(tensor.const_data_ptr());
    if (tensor.numel() == 0) return {begin, begin};
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    return {begin, begin + (last + 1) * static_cast<std::int64_t>(tensor.itemsize())};
}

bool overlap(const std::vector<Lane::Copy>& some, const std::vector<Lane::Copy>& others) {
    for (const Lane::Copy& one : some) {
        const auto [begin, end] = memory_of(one.on_device);
        for (const Lane::Copy& other : others) {
            const auto [other_begin, other_end] = memory_of(other.on_device);
            if (begin < other_end && other_begin < end) return true;
        }
    }
    return false;
}

/// With one queue, a receive that waits on the device would hold up the send after it, and two
/// ranks could wait for each other.
void refuse_receive_in_one_queue(const std::string& who, c10d::Work& work) {
    if (work.retrieveOpType() != c10d::OpType::RECV) return;
    const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    TORCH_CHECK(queues == nullptr || std::string_view(queues) != "1", who,
                ": recv on a device: found CUDA_DEVICE_MAX_CONNECTIONS=1, expected 2 or more: with one queue a "
                "receive that waits holds up the sends after it");
}

std::string words_of(const std::exception_ptr& failed) {
    try {
        std::rethrow_exception(failed);
    } catch (const c10::Error& error) {
        return error.what_without_backtrace();
    } catch (const std::exception& error) {
        return error.what();
    }
}

void run_steps(device::Stream& stream, const Lane::Steps& steps) {
    if (steps.empty()) return;
    stream.run([steps] {
        const at::NoGradGuard here;
        for (const auto& step : steps) step();
    });
}

/// What a fault leaves is no result.
void spoil(const std::vector<Lane::Copy>& copies) noexcept {
    try {
        const at::NoGradGuard guard;
        for (const Lane::Copy& copy : copies)
            if (copy.mirror.defined() && (copy.mirror.is_floating_point() || copy.mirror.is_complex()))
                at::Tensor(copy.mirror).fill_(std::numeric_limits<double>::quiet_NaN());
    } catch (...) { // the fault itself is reported
    }
}

} // namespace

// --- DeviceWork ----------------------------------------------------------------------------------

DeviceWork::DeviceWork(int rank, c10d::OpType type, const char* name, const std::vector<at::Tensor>& inputs,
                       std::vector<at::Tensor> outputs, std::vector<std::vector<at::Tensor>> lists, at::Device device)
    : c10d::Work(rank, type, name, inputs), name_(name), outputs_(std::move(outputs)), lists_(std::move(lists)),
      device_(device), future_(device::make_future(type_of(lists_), device)) {}

c10::IValue DeviceWork::value() const { return lists_.empty() ? c10::IValue(outputs_) : c10::IValue(lists_); }

device::Event DeviceWork::end() {
    const std::lock_guard lock(mutex_);
    return end_;
}

bool DeviceWork::isCompleted() {
    if (c10d::Work::isCompleted()) return true;
    const device::Event last = end();
    return last.state() != nullptr && last.has_passed();
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
    if (const auto lane = lane_.lock()) lane->enqueue_output(*this);
    announce();
    return future_;
}

void DeviceWork::announce() {
    if (!device::futures_wait) return;
    std::optional<device::Stream> last;
    {
        const std::lock_guard lock(mutex_);
        last = last_stream_;
    }
    if (last && !future_is_taken_.exchange(true)) last->complete(*future_, value());
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
    const auto lane = lane_.lock();
    TORCH_CHECK(lane != nullptr || c10d::Work::isCompleted(), "unisono: ", name_,
                ": found a wait before the end of the coalesced calls; expected it afterwards");
    if (lane != nullptr) {
        lane->driver().refuse_other_process();
        lane->enqueue_output(*this);
        announce();
    }
    {
        std::unique_lock lock(mutex_);
        const auto is_complete = [&] { return completed_; };
        if (timeout != kNoTimeout) {
            if (!cv_.wait_for(lock, timeout, is_complete)) {
                C10_THROW_ERROR(DistBackendError,
                                c10::str(lane == nullptr ? "unisono" : lane->driver().who(), ": wait(timeout) of ",
                                         timeout.count(), " ms is over; ", name_, " goes on until its own timeout of ",
                                         timeout_.count(), " ms"));
            }
        } else if (host_waits) {
            cv_.wait(lock, is_complete);
        }
        if (exception_) std::rethrow_exception(exception_);
    }
    if (const device::Event last = end(); last.state() != nullptr) last.hold_current_stream();
    return true;
}

void DeviceWork::abort() {
    if (const auto lane = lane_.lock()) lane->driver().abort(c10::str("Work.abort() of ", name_));
}

void DeviceWork::conclude(std::exception_ptr failed) {
    if (is_concluded_.exchange(true)) return;
    finish(failed);
    if (future_is_taken_.exchange(true)) return;
    run_callback(level_, [self = c10::intrusive_ptr<DeviceWork>::reclaim_copy(this), failed] {
        if (failed != nullptr) self->future_->setError(failed);
        else self->future_->markCompleted(self->value());
    });
}

// --- CoalescedWork -------------------------------------------------------------------------------

bool CoalescedWork::isCompleted() {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
    for (const auto& work : works_) work->wait(timeout);
    return true;
}

void CoalescedWork::abort() {
    for (const auto& work : works_) work->abort();
}

std::vector<at::Tensor> CoalescedWork::result() {
    std::vector<at::Tensor> all;
    for (const auto& work : works_)
        for (const at::Tensor& tensor : work->result()) all.push_back(tensor);
    return all;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
    TORCH_CHECK(!works_.empty(), "unisono: no calls were coalesced");
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> all(works_.front()->getFuture()->elementType());
    for (const auto& work : works_) all.push_back(work->getFuture());
    return c10::collectAll(all);
}

// --- Lane ----------------------------------------------------------------------------------------

std::shared_ptr<Lane> Lane::make(std::shared_ptr<Driver> driver) {
    std::shared_ptr<Lane> made(new Lane(std::move(driver)));
    made->mover_ = std::thread([made] { made->run(); });
    made->sweeper_ = std::thread([made] { made->sweep(); });
    return made;
}

// --- the caller's thread -------------------------------------------------------------------------

/// With `mutex_` held.
void Lane::refuse_ended() const {
    if (failed_ != nullptr) std::rethrow_exception(failed_);
    if (ending_) C10_THROW_ERROR(DistBackendError, driver_->who() + ": the process group was destroyed");
}

bool Lane::has_failed() {
    if (driver_->has_failed()) return true;
    const un::nanoseconds now = un::steady_now();
    if (now < next_look_.load(std::memory_order_relaxed)) return false;
    next_look_.store(now + between_questions, std::memory_order_relaxed);
    driver_->look();
    return driver_->has_failed();
}

/// With `order_` held.
Lane::Streams& Lane::streams_of(const at::Device& device) {
    return streams_.try_emplace(device.index(), device).first->second;
}

/// With `order_` held. A word may be used again when nothing will open it any more, because its
/// number grows.
device::Word Lane::take_word() {
    {
        const std::lock_guard lock(mutex_);
        if (!free_words_.empty()) {
            device::Word taken = free_words_.front();
            free_words_.pop_front();
            ++taken.value;
            return taken;
        }
    }
    at::Tensor page = device::pinned({words_per_page}, at::kInt);
    page.zero_();
    auto* const words = reinterpret_cast<std::atomic<std::uint32_t>*>(page.mutable_data_ptr<int>());
    const std::lock_guard lock(mutex_);
    pages_.push_back(std::move(page));
    for (std::int64_t i = 1; i < words_per_page; ++i) free_words_.push_back({words + i, 0});
    return {words, 1};
}

/// With `order_` held: what the job has to wait for on the device, because it uses the same memory.
std::vector<device::Event> Lane::uses_before(const Job& job) {
    std::vector<device::Event> found;
    std::vector<Job*> receives;
    const auto writes = [&](const Job& other) {
        return overlap(job.to_host, other.to_device) || overlap(job.to_device, other.to_device);
    };
    {
        const std::lock_guard lock(mutex_);
        for (Job& other : jobs_)
            if (other.output == Job::Output::later && writes(other)) receives.push_back(&other);
    }
    for (Job* const receive : receives) enqueue_output(*receive); // the mover keeps it until then
    const std::lock_guard lock(mutex_);
    for (const Job& other : jobs_) {
        if (writes(other)) found.push_back(other.outer->end());
        else if (other.waits && overlap(job.to_device, other.to_host))
            found.push_back(other.direct ? other.outer->end() : other.copied);
    }
    std::erase_if(found, [](const device::Event& event) { return event.state() == nullptr; });
    return found;
}

void Lane::submit(Job&& given, const c10::intrusive_ptr<DeviceWork>& outer) {
    driver_->refuse_other_process();
    device::refuse_capture(driver_->who(), outer->name_);
    refuse_receive_in_one_queue(driver_->who(), *outer);
    const at::NoGradGuard guard;
    std::list<Job> made; // what it frees after an error may need the interpreter
    made.push_back(std::move(given));
    std::unique_lock order(order_);
    {
        const std::lock_guard lock(mutex_);
        refuse_ended();
    }
    Job& job = made.front();
    job.outer = outer;
    outer->level_ = callback_level();
    outer->sequence_ = job.work->sequence;
    outer->timeout_ = job.work->timeout;
    // A receive is posted at once: its mirror is free, and the sender may wait for it.
    job.waits = job.direct || !job.to_host.empty() || outer->retrieveOpType() == c10d::OpType::BARRIER;
    job.word = take_word();
    job.ended = take_word();
    if (job.waits) job.ready = take_word();
    if (job.direct) check_by_host(job);
    try {
        enqueue_input(job, streams_of(outer->device_));
        job.work->after = [steps = std::move(job.work->after), word = job.word] {
            if (steps) steps();
            word.open();
        };
        job.deadline = un::deadline_after(un::steady_now(), job.work->timeout);
        outer->lane_ = weak_from_this();
        const std::lock_guard lock(mutex_);
        refuse_ended();
        if (jobs_.empty()) sweeps_.notify_all();
        jobs_.splice(jobs_.end(), made);
        news_.notify_all();
    } catch (...) { // the device may still use the memory
        new std::list<Job>(std::move(made));
        throw;
    }
    if (outer->retrieveOpType() == c10d::OpType::RECV || enqueue_output(job)) return;
    order.unlock();
    std::unique_lock lock(outer->mutex_); // the mover tells the fault
    outer->cv_.wait(lock, [&] { return outer->completed_; });
    std::rethrow_exception(outer->exception_);
}

/// The host's part of a direct call.
void Lane::check_by_host(Job& job) {
    const Called mine(job.direct->call);
    const auto all = std::make_shared<std::vector<Called>>(static_cast<std::size_t>(driver_->size()));
    job.work->stages = {[mine = std::make_shared<Called>(mine), all](World& world) {
        return world.start_all_gather({un::ElementType::int64, 8}, mine.get(), sizeof(Called) / 8, all->data());
    }};
    job.work->after = [mine, all, who = driver_->who(), name = job.outer->name_] {
        for (std::size_t rank = 0; rank < all->size(); ++rank)
            if ((*all)[rank] != mine)
                C10_THROW_ERROR(DistBackendError, c10::str(who, ": ", name, ": mismatch: rank ", rank, " has called ",
                                                           (*all)[rank].words(), ", this rank ", mine.words()));
    };
}

/// With `order_` held: all that needs no word.
void Lane::enqueue_input(Job& job, Streams& streams) {
    if (job.direct && !streams.direct) streams.direct.emplace(job.outer->device_);
    for (Copy& copy : job.to_device)
        if (!job.direct && !is_flat(copy.on_device)) copy.staged = streams.last(job).empty(copy.on_device);
    job.follows = uses_before(job);
    job.follows.push_back(device::mark_current(job.outer->device_));
    // The other collectives before it end before it on `out`.
    if (job.outer->retrieveOpType() == c10d::OpType::BARRIER && streams.direct)
        job.follows.push_back(streams.direct->mark());
    if (!job.waits) return;
    device::Stream& in = streams.first(job);
    for (const device::Event& event : job.follows) in.follow(event);
    if (job.direct) {
        run_steps(in, job.direct->before);
    } else {
        in.run([copies = job.to_host] {
            const at::NoGradGuard here;
            for (const Copy& copy : copies) copy_to_host(copy);
        });
    }
    in.open(job.ready);
    job.copied = in.mark();
}

/// With `order_` held.
bool Lane::is_taken(const DirectCall& call, device::Stream& stream) {
    try {
        return direct_->enqueue(call.call, stream, [&] { return has_failed(); });
    } catch (const un::error& refused) {
        throw_as_torch(driver_->who(), refused);
    }
}

/// With `order_` held, after the mover has got the job.
bool Lane::enqueue_output(Job& job) {
    DeviceWork& outer = *job.outer;
    Job::Output output = Job::Output::failed;
    std::exception_ptr failed = {};
    std::string why;
    try {
        device::Stream& out = streams_of(outer.device_).last(job);
        if (job.direct) {
            if (!is_taken(*job.direct, out)) {
                const std::lock_guard lock(mutex_);
                job.output = Job::Output::dropped;
                return false;
            }
            run_steps(out, job.direct->after);
        } else if (outer.retrieveOpType() != c10d::OpType::SEND) {
            // A send's tensor is free once its mirror has the values.
            for (const device::Event& event : job.follows) out.follow(event);
            out.wait_for(job.word);
        }
        if (!job.direct && !job.to_device.empty()) {
            out.run([copies = job.to_device] {
                const at::NoGradGuard here;
                for (const Copy& copy : copies) copy_to_device(copy);
            });
        }
        out.open(job.ended);
        device::Event last = out.mark();
        const std::lock_guard lock(outer.mutex_);
        outer.end_ = std::move(last);
        outer.last_stream_ = out;
        output = Job::Output::enqueued;
    } catch (const std::exception& error) {
        failed = std::current_exception();
        why = error.what();
    }
    {
        const std::lock_guard lock(mutex_);
        job.why = std::move(why);
        job.output = output; // from now on the mover may end it
    }
    if (failed != nullptr) std::rethrow_exception(failed);
    return true;
}

void Lane::enqueue_output(DeviceWork& outer) {
    if (outer.retrieveOpType() != c10d::OpType::RECV) return;
    const at::NoGradGuard guard;
    const std::lock_guard order(order_);
    std::unique_lock lock(mutex_);
    for (Job& job : jobs_) {
        if (job.outer.get() != &outer || job.output != Job::Output::later) continue;
        lock.unlock();
        static_cast<void>(enqueue_output(job));
        return;
    }
}

// --- whether calls go directly -------------------------------------------------------------------

/// Runs `work` on the lane's world, after the calls before, and waits for its end. The device takes
/// no part in it.
void Lane::exchange(const c10::intrusive_ptr<Work>& work, const at::Device& device) {
    auto outer = c10::make_intrusive<DeviceWork>(driver_->rank(), c10d::OpType::UNKNOWN, "unisono:cards",
                                                 std::vector<at::Tensor>{}, std::vector<at::Tensor>{},
                                                 std::vector<std::vector<at::Tensor>>{}, device);
    std::list<Job> made;
    Job& job = made.emplace_back(Job{.work = work});
    job.outer = outer;
    job.output = Job::Output::enqueued;
    {
        const std::lock_guard order(order_);
        job.word = take_word();
        job.ended = take_word();
        job.ended.open();
        const std::lock_guard lock(mutex_);
        refuse_ended();
        if (jobs_.empty()) sweeps_.notify_all();
        jobs_.splice(jobs_.end(), made);
        news_.notify_all();
    }
    std::unique_lock lock(outer->mutex_);
    outer->cv_.wait(lock, [&] { return outer->completed_; });
    if (outer->exception_) std::rethrow_exception(outer->exception_);
}

/// With `deciding_` held.
void Lane::decide(const at::Device& device, bool wanted, std::chrono::milliseconds timeout) {
    const int rank = driver_->rank();
    const int number = device::number(device);
    const auto mine = std::make_shared<DirectCard>(direct::card(number, wanted, rank == 0));
    const auto cards = std::make_shared<std::vector<DirectCard>>(static_cast<std::size_t>(driver_->size()));
    auto work = c10::make_intrusive<Work>(rank, c10d::OpType::UNKNOWN, "unisono:cards");
    work->timeout = timeout;
    work->stages = {[cards, mine](World& world) {
        return world.start_all_gather({un::ElementType::opaque, sizeof(DirectCard)}, mine.get(), 1, cards->data());
    }};
    exchange(work, device);
    const std::string why = direct::why_not(*cards);
    if (why.empty()) use(begin_direct(*cards, number, timeout));
    direct_device_ = number;
    is_decided_ = true;
    const std::lock_guard lock(mutex_);
    why_not_direct_ = why;
}

/// Errors: NCCL's, which this rank tells the others; the first fault of another rank; a timeout.
std::shared_ptr<Direct> Lane::begin_direct(const std::vector<DirectCard>& cards, int device,
                                           std::chrono::milliseconds timeout) {
    const auto is_ending = [&] {
        const std::lock_guard lock(mutex_);
        return ending_;
    };
    const un::nanoseconds until = un::deadline_after(un::steady_now(), timeout);
    const auto stop = [&] { return has_failed() || is_ending() || un::steady_now() >= until; };
    std::shared_ptr<Direct> made;
    std::string failed;
    try {
        made = direct::begin(cards, driver_->rank(), device, stop);
    } catch (const un::error& refused) {
        failed = refused.what();
    }
    if (made != nullptr) return made;
    driver_->look(); // another rank's fault may be why
    if (driver_->has_failed()) std::rethrow_exception(driver_->fault());
    if (is_ending()) C10_THROW_ERROR(DistBackendError, driver_->who() + ": the process group was destroyed");
    if (failed.empty()) failed = c10::str("NCCL's communicator was not ready within ", timeout.count(), " ms");
    driver_->abort("abort: its first collective on a device: " + failed);
    C10_THROW_ERROR(DistBackendError, driver_->who() + ": the first collective on a device: " + failed);
}

void Lane::use(std::shared_ptr<Direct> made) {
    const std::lock_guard lock(mutex_);
    refuse_ended();
    watcher_ = std::thread([self = shared_from_this(), made] { self->watch(made); });
    direct_ = std::move(made);
}

bool Lane::goes_directly(const char* call, const at::Device& device, bool wanted, std::chrono::milliseconds timeout) {
    driver_->refuse_other_process();
    device::refuse_capture(driver_->who(), call);
    const std::lock_guard deciding(deciding_);
    if (!is_decided_) {
        const auto deciding_is = [&](bool now) {
            const std::lock_guard lock(mutex_);
            if (now) refuse_ended();
            is_deciding_ = now;
        };
        deciding_is(true);
        try {
            decide(device, wanted, timeout);
        } catch (...) {
            deciding_is(false);
            throw;
        }
        deciding_is(false);
    }
    if (direct_ == nullptr) return false;
    const int number = device::number(device);
    TORCH_CHECK(number == direct_device_, driver_->who(), ": found a tensor on device ", number,
                " after the first collective on device ", direct_device_,
                "; expected one device for each process group, unless UNISONO_TORCH_NCCL=0");
    return true;
}

std::string Lane::way() {
    const std::lock_guard lock(mutex_);
    return direct_ != nullptr ? "nccl" : why_not_direct_;
}

// --- the mover's thread --------------------------------------------------------------------------

void Lane::begin(Job& job) {
    job.begun = true;
    try {
        const at::NoGradGuard guard;
        for (const auto& step : job.before) step();
        driver_->submit(job.work, false);
        job.flies = true;
    } catch (...) {
        job.failed = std::current_exception();
    }
    job.before.clear();
}

/// The host's part is over. Threads that wait on the host need not wait for the device to see an
/// error.
void Lane::end(Job& job) {
    job.over = true;
    if (job.failed == nullptr) job.failed = job.work->exception();
    if (job.failed == nullptr) {
        job.deadline = un::deadline_after(un::steady_now(), job.work->timeout); // for NCCL
        return;
    }
    static_cast<void>(spoil_in_turn(job));
    if (job.direct && !driver_->has_failed()) driver_->abort("abort: " + words_of(job.failed));
    if (driver_->has_failed()) {
        const std::lock_guard lock(mutex_);
        if (failed_ == nullptr) failed_ = job.failed;
        if (direct_ != nullptr && !direct_aborts_) {
            direct_aborts_ = true;
            sweeps_.notify_all();
            for (Job& other : jobs_) // an abort opens their words, too; `move` tells their works
                if (other.direct && other.failed == nullptr && !other.ended.is_open()) other.failed = job.failed;
        }
    }
    job.outer->conclude(job.failed);
}

/// Before `ready`, the copies to the mirrors would overwrite what this writes.
bool Lane::spoil_in_turn(Job& job) {
    if (job.failed == nullptr || job.word.is_open() || (job.waits && !job.ready.is_open())) return false;
    spoil(job.to_device);
    job.word.open();
    return true;
}

/// This rank's fault, which ends the group.
void Lane::fail(Job& job, const std::string& why) {
    job.failed = std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                                               driver_->who() + ": " + job.outer->name_ + ": " + why));
    driver_->abort("abort: " + job.outer->name_ + ": " + why);
    end(job);
}

/// Returns whether anything has changed.
bool Lane::move(Job& job, Held& held) {
    if (job.over) {
        if (job.direct && job.failed != nullptr) job.outer->conclude(job.failed);
        if (!job.direct || job.failed != nullptr || job.ended.is_open()) return spoil_in_turn(job);
        if (has_failed()) { // nobody waits for NCCL any more
            job.failed = driver_->fault();
            end(job);
            return true;
        }
        if (un::steady_now() < job.deadline) return false;
        fail(job, c10::str("timeout: all ranks have called it, and NCCL has not ended it within ",
                           job.work->timeout.count(), " ms"));
        return true;
    }
    if (!job.begun) {
        const bool collective = !job.work->point_to_point;
        bool& blocked = collective ? held.collectives : held.sends;
        if (blocked && (collective || job.waits)) return false;
        if (job.waits && !job.ready.is_open()) {
            const bool late = un::steady_now() >= job.deadline;
            if (!late && !driver_->has_failed()) {
                blocked = true;
                return false;
            }
            if (late) {
                job.begun = true;
                fail(job, c10::str("timeout: the device has not reached it within ", job.work->timeout.count(), " ms"));
                return true;
            }
            job.before.clear(); // the world throws its fault, and what these would read is not there yet
        }
        begin(job);
    }
    if (job.failed == nullptr && !job.work->isCompleted()) return false;
    end(job);
    return true;
}

void Lane::run() {
    ::pthread_setname_np(::pthread_self(), "unisono-mover");
    std::unique_lock lock(mutex_);
    for (;;) {
        news_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
        if (stop_) return;
        bool changed = false;
        Held held;
        // Only this thread removes jobs, and others add them at the end.
        for (auto job = jobs_.begin(); job != jobs_.end();) {
            const Job::Output output = job->output;
            const std::string broken =
                output == Job::Output::failed ? "its work was not enqueued on the device: " + job->why : device_failed_;
            const std::string by_nccl = job->direct ? direct_failed_ : "";
            lock.unlock();
            const bool was_over = job->over;
            bool has_ended = false;
            if (broken.empty()) {
                if (!by_nccl.empty() && job->failed == nullptr && !job->ended.is_open()) {
                    job->begun = true;
                    fail(*job, by_nccl);
                }
                changed = move(*job, held) || changed;
                has_ended = job->over && (output == Job::Output::dropped ||
                                          (output == Job::Output::enqueued && job->ended.is_open()));
            } else { // the device does not open `ended`
                job->begun = true;
                if (job->failed == nullptr) fail(*job, broken);
                has_ended = output != Job::Output::later && (!job->flies || job->work->isCompleted());
                if (has_ended) job->word.open();
            }
            if (has_ended) job->outer->conclude(job->failed);
            lock.lock();
            if (job->over && !was_over && output == Job::Output::later) {
                arrived_.push_back(job->outer);
                sweeps_.notify_all();
            }
            if (!has_ended) {
                ++job;
                continue;
            }
            changed = true;
            // The device may still use the memory, or other ranks after an abort of NCCL.
            if (output != Job::Output::enqueued || (job->direct && job->failed != nullptr)) {
                auto& kept = *new std::list<Job>;
                kept.splice(kept.begin(), jobs_, job++);
                continue;
            }
            for (const device::Word& word : {job->word, job->ended, job->ready})
                if (word.at != nullptr && broken.empty()) free_words_.push_back(word);
            ended_.splice(ended_.end(), jobs_, job++);
            sweeps_.notify_all();
        }
        if (jobs_.empty()) empty_.notify_all();
        if (changed) continue;
        lock.unlock();
        std::this_thread::sleep_for(nap);
        lock.lock();
    }
}

// --- the sweeper's thread ------------------------------------------------------------------------

/// The eldest call on each device asks for all.
void Lane::look_for_errors(std::unique_lock<std::mutex>& lock) {
    std::map<int, c10::intrusive_ptr<DeviceWork>> eldest;
    for (const Job& job : jobs_)
        if (job.output == Job::Output::enqueued) eldest.try_emplace(job.outer->device_.index(), job.outer);
    lock.unlock();
    std::string found;
    for (const auto& [device, outer] : eldest) {
        try {
            const device::Event last = outer->end();
            if (last.state() != nullptr) static_cast<void>(last.has_passed());
        } catch (const std::exception& failed) {
            found = failed.what();
        }
    }
    eldest.clear();
    lock.lock();
    if (device_failed_.empty()) device_failed_ = found;
}

void Lane::sweep() {
    ::pthread_setname_np(::pthread_self(), "unisono-sweeper");
    device::keep_out_of_captures();
    std::unique_lock lock(mutex_);
    for (;;) {
        const auto has_work = [&] { return stop_ || !ended_.empty() || !arrived_.empty(); };
        if (jobs_.empty()) sweeps_.wait(lock, [&] { return has_work() || !jobs_.empty(); });
        else if (!sweeps_.wait_for(lock, between_looks, has_work)) look_for_errors(lock);
        std::list<Job> ended = std::move(ended_);
        ended_.clear();
        std::vector<c10::intrusive_ptr<DeviceWork>> arrived = std::exchange(arrived_, {});
        if (stop_ && ended.empty() && arrived.empty()) break;
        lock.unlock();
        for (const auto& outer : arrived) {
            try {
                enqueue_output(*outer);
            } catch (const std::exception&) { // the mover sees it
            }
        }
        arrived.clear();
        ended.clear();
        lock.lock();
    }
    sweeper_has_ended_ = true;
    empty_.notify_all();
}

// --- the watcher's thread ------------------------------------------------------------------------

/// It takes no lock under which others wait for the device: such a wait may be one for NCCL.
void Lane::watch(const std::shared_ptr<Direct>& direct) {
    ::pthread_setname_np(::pthread_self(), "unisono-watcher");
    std::unique_lock lock(mutex_);
    const auto ends = [&] { return stop_ || direct_aborts_; };
    while (!ends()) {
        if (jobs_.empty()) {
            sweeps_.wait(lock, [&] { return ends() || !jobs_.empty(); });
        } else if (!sweeps_.wait_for(lock, between_looks, ends)) {
            lock.unlock();
            std::string found = direct->fault();
            lock.lock();
            if (direct_failed_.empty()) direct_failed_ = std::move(found);
        }
    }
    if (direct_aborts_) {
        lock.unlock();
        direct->abort();
        lock.lock();
    }
    watcher_has_ended_ = true;
    empty_.notify_all();
}

// --- the end -------------------------------------------------------------------------------------

void Lane::shut_down(std::chrono::milliseconds longest) {
    if (process_ != ::getpid()) return driver_->shut_down(); // the threads are the parent's, and keep this object
    std::optional<pybind11::gil_scoped_release> released;    // tensors that are freed may need the interpreter
    if (Py_IsInitialized() && PyGILState_Check()) released.emplace();
    std::size_t unended = 0; // calls by NCCL
    {
        std::unique_lock lock(mutex_);
        if (std::exchange(ending_, true)) return;
        empty_.wait_for(lock, longest, [&] { return jobs_.empty(); });
        for (const Job& job : jobs_) unended += job.direct && !job.ended.is_open() ? 1 : 0;
        if (is_deciding_) ++unended;
    }
    driver_->shut_down(unended);
    std::unique_lock lock(mutex_);
    empty_.wait_for(lock, longest_copy, [&] { return jobs_.empty(); });
    stop_ = true;
    news_.notify_all();
    lock.unlock();
    mover_.join();
    lock.lock();
    const bool is_left = !jobs_.empty();
    if (is_left) { // the device may still use the memory
        const auto why = std::make_exception_ptr(
            c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                  driver_->who() + ": the process group was destroyed before the device had ended"));
        for (const Job& job : jobs_) {
            job.word.open(); // nobody would do so later
            job.outer->conclude(job.failed != nullptr ? job.failed : why);
        }
        new std::list(std::move(jobs_));
        new std::vector(std::move(pages_));
        jobs_.clear();
    }
    sweeps_.notify_all();
    const bool aborts = direct_ != nullptr && (is_left || driver_->has_failed());
    if (aborts) { // the sweeper may wait for it
        lock.unlock();
        direct_->abort();
        lock.lock();
    }
    // It ends at once, unless it waits for the device or for NCCL, or this is its own thread.
    const auto finish = [&](std::thread& thread, const bool& has_ended) {
        if (!thread.joinable()) return;
        const bool is_own = thread.get_id() == std::this_thread::get_id();
        const bool joins = !is_own && empty_.wait_for(lock, longest_copy, [&] { return has_ended; });
        lock.unlock();
        if (joins) thread.join();
        else thread.detach();
        lock.lock();
    };
    finish(watcher_, watcher_has_ended_);
    finish(sweeper_, sweeper_has_ended_);
    lock.unlock();
    if (direct_ != nullptr && !aborts) direct_->end();
}

} // namespace unisono_torch
