#include "lane.hpp"

#include "callbacks.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
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
/// After a fault, the device has so long to end its copies.
constexpr std::chrono::seconds longest_copy{5};

c10::TypePtr type_of(const std::vector<std::vector<at::Tensor>>& lists) {
    c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
    return lists.empty() ? std::move(tensors) : c10::ListType::create(std::move(tensors));
}

void copy_to_host(const Lane::Copy& copy) {
    const at::Tensor flat = copy.on_device.detach().resolve_conj().resolve_neg().contiguous();
    at::Tensor(copy.mirror).copy_(flat, true);
}

void copy_to_device(const Lane::Copy& copy) {
    at::Tensor target = copy.on_device.detach();
    if (target.is_contiguous() && !target.is_conj() && !target.is_neg()) {
        target.copy_(copy.mirror, true);
        return;
    }
    at::Tensor flat = at::empty(target.sizes(), target.options());
    flat.copy_(copy.mirror, true);
    target.copy_(flat);
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

/// What a fault leaves is no result.
void spoil(const std::vector<Lane::Copy>& copies) noexcept {
    try {
        const at::NoGradGuard guard;
        for (const Lane::Copy& copy : copies)
            if (copy.mirror.is_floating_point() || copy.mirror.is_complex())
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

bool DeviceWork::isCompleted() { return c10d::Work::isCompleted() || (end_.state() != nullptr && end_.has_passed()); }

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
    const auto its = driver_.lock();
    TORCH_CHECK(its != nullptr || c10d::Work::isCompleted(), "unisono: ", name_,
                ": found a wait before the end of the coalesced calls; expected it afterwards");
    if (its != nullptr) its->refuse_other_process();
    {
        std::unique_lock lock(mutex_);
        const auto is_complete = [&] { return completed_; };
        if (timeout != kNoTimeout) {
            if (!cv_.wait_for(lock, timeout, is_complete)) {
                const auto driver = driver_.lock();
                C10_THROW_ERROR(DistBackendError,
                                c10::str(driver == nullptr ? "unisono" : driver->who(), ": wait(timeout) of ",
                                         timeout.count(), " ms is over; ", name_, " goes on until its own timeout of ",
                                         timeout_.count(), " ms"));
            }
        } else if (host_waits) {
            cv_.wait(lock, is_complete);
        }
        if (exception_) std::rethrow_exception(exception_);
    }
    end_.hold_current_stream();
    return true;
}

void DeviceWork::abort() {
    if (const auto driver = driver_.lock()) driver->abort(c10::str("Work.abort() of ", name_));
}

void DeviceWork::conclude(std::exception_ptr failed) {
    finish(failed);
    if (std::exchange(future_is_complete_, true)) return;
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

Lane::Lane(std::shared_ptr<Driver> driver, std::chrono::milliseconds timeout)
    : driver_(std::move(driver)), timeout_(timeout), process_(::getpid()), thread_([this] { run(); }) {}

/// With the lock held. A word may be used again as soon as it is open, because its number grows.
device::Word Lane::take_word() {
    if (free_words_.empty()) {
        pages_.push_back(device::pinned({words_per_page}, at::kInt));
        pages_.back().zero_();
        auto* const words = reinterpret_cast<std::atomic<std::uint32_t>*>(pages_.back().mutable_data_ptr<int>());
        for (std::int64_t i = 0; i < words_per_page; ++i) free_words_.push_back({words + i, 0});
    }
    device::Word taken = free_words_.front();
    free_words_.pop_front();
    ++taken.value;
    return taken;
}

/// With the lock held: what the job has to wait for on the device, because it uses the same memory.
std::vector<device::Event> Lane::uses_before(const Job& job) const {
    std::vector<device::Event> found;
    for (const Job& other : jobs_) {
        if (overlap(job.to_host, other.to_device) || overlap(job.to_device, other.to_device))
            found.push_back(other.outer->end_);
        else if (other.waits && overlap(job.to_device, other.to_host)) found.push_back(other.ready);
    }
    return found;
}

void Lane::submit(Job&& job, const c10::intrusive_ptr<DeviceWork>& outer) {
    driver_->refuse_other_process();
    device::refuse_capture(driver_->who(), outer->name_);
    refuse_receive_in_one_queue(driver_->who(), *outer);
    const at::NoGradGuard guard;
    const std::lock_guard lock(mutex_);
    if (failed_ != nullptr) std::rethrow_exception(failed_);
    if (ending_) C10_THROW_ERROR(DistBackendError, driver_->who() + ": the process group was destroyed");
    Streams& streams = streams_.try_emplace(outer->device_.index(), outer->device_).first->second;
    const c10d::OpType type = outer->retrieveOpType();
    const bool sends = type == c10d::OpType::SEND;
    device::Stream& out = sends ? streams.in : type == c10d::OpType::RECV ? streams.received : streams.out;
    outer->level_ = callback_level();
    outer->sequence_ = job.work->sequence;
    outer->timeout_ = job.work->timeout;
    job.word = take_word();
    try {
        // A receive is posted at once: its mirror is free, and the sender may wait for it.
        job.waits = !job.to_host.empty() || type == c10d::OpType::BARRIER;
        const std::vector<device::Event> before = uses_before(job);
        if (job.waits) {
            streams.in.follow_current();
            for (const device::Event& event : before) streams.in.follow(event);
            streams.in.run([copies = job.to_host] {
                const at::NoGradGuard here;
                for (const Copy& copy : copies) copy_to_host(copy);
            });
            job.ready = streams.in.mark();
        }
        if (!sends) { // a send's tensor is free once its mirror has the values
            out.follow_current();
            for (const device::Event& event : before) out.follow(event);
            out.wait_for(job.word);
        }
        if (!job.to_device.empty()) {
            out.run([copies = job.to_device] {
                const at::NoGradGuard here;
                for (const Copy& copy : copies) copy_to_device(copy);
            });
        }
        outer->end_ = out.mark();
        outer->future_is_complete_ = out.complete(*outer->future_, outer->value());
    } catch (...) {
        job.word.open();
        throw;
    }
    job.work->after = [steps = std::move(job.work->after), word = job.word] {
        if (steps) steps();
        word.open();
    };
    outer->driver_ = driver_;
    job.outer = outer;
    job.deadline = un::deadline_after(un::steady_now(), job.work->timeout);
    jobs_.push_back(std::move(job));
    news_.notify_all();
}

void Lane::begin(Job& job) {
    job.begun = true;
    try {
        const at::NoGradGuard guard;
        for (const auto& step : job.before) step();
        driver_->submit(job.work, false);
    } catch (...) {
        job.failed = std::current_exception();
    }
    job.before.clear();
}

/// The host's part is over.
void Lane::end(Job& job) {
    job.over = true;
    if (job.failed == nullptr) job.failed = job.work->exception();
    if (job.failed == nullptr) return;
    static_cast<void>(spoil_in_turn(job));
    if (!driver_->has_failed()) return;
    const std::lock_guard lock(mutex_);
    if (failed_ == nullptr) failed_ = job.failed;
}

/// Before `ready`, the copies to the mirrors would overwrite what this writes. After an error of
/// the device nothing copies any more.
bool Lane::spoil_in_turn(Job& job) {
    if (job.failed == nullptr || job.word.is_open()) return false;
    try {
        if (job.waits && !job.ready.has_passed()) return false;
    } catch (const std::exception&) {
    }
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
    if (job.over) return spoil_in_turn(job);
    if (!job.begun) {
        const bool collective = !job.work->point_to_point;
        bool& blocked = collective ? held.collectives : held.sends;
        if (blocked && (collective || job.waits)) return false;
        if (job.waits && !job.ready.has_passed()) {
            if (un::steady_now() < job.deadline) {
                blocked = true;
                return false;
            }
            job.begun = true;
            fail(job, c10::str("timeout: the device has not reached it within ", job.work->timeout.count(), " ms"));
            return true;
        }
        begin(job);
    }
    if (job.failed == nullptr && !job.work->isCompleted()) return false;
    end(job);
    return true;
}

/// Whether the device has ended it, too.
bool Lane::is_over(Job& job) {
    try {
        return job.over && job.outer->end_.has_passed();
    } catch (const std::exception& failed) { // an error of the device
        if (job.failed == nullptr) fail(job, failed.what());
        return true;
    }
}

void Lane::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        news_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
        if (stop_) return;
        bool changed = false;
        Held held;
        // Only this thread removes jobs, and others add them at the end.
        for (auto job = jobs_.begin(); job != jobs_.end();) {
            lock.unlock();
            std::list<Job> done;
            try {
                changed = move(*job, held) || changed;
            } catch (const std::exception& failed) { // an error of the device
                job->begun = true;
                fail(*job, failed.what());
            }
            const bool is_done = is_over(*job);
            if (is_done) job->outer->conclude(job->failed);
            lock.lock();
            if (!is_done) {
                ++job;
                continue;
            }
            free_words_.push_back(job->word);
            done.splice(done.begin(), jobs_, job++);
            changed = true;
            lock.unlock();
            done.clear(); // tensors are freed without the lock
            lock.lock();
        }
        if (jobs_.empty()) empty_.notify_all();
        if (changed) continue;
        lock.unlock();
        std::this_thread::sleep_for(nap);
        lock.lock();
    }
}

void Lane::shut_down(std::chrono::milliseconds longest) {
    if (process_ != ::getpid()) { // the thread is the parent's
        new std::thread(std::move(thread_));
        new std::list(std::move(jobs_));
        driver_->shut_down();
        return;
    }
    std::optional<pybind11::gil_scoped_release> released; // tensors that are freed may need the interpreter
    if (Py_IsInitialized() && PyGILState_Check()) released.emplace();
    {
        std::unique_lock lock(mutex_);
        if (std::exchange(ending_, true)) return;
        empty_.wait_for(lock, longest, [&] { return jobs_.empty(); });
    }
    driver_->shut_down();
    std::unique_lock lock(mutex_);
    const bool ended = empty_.wait_for(lock, longest_copy, [&] { return jobs_.empty(); });
    stop_ = true;
    news_.notify_all();
    lock.unlock();
    thread_.join();
    if (!ended) {                                     // the device may still use the memory
        for (const Job& job : jobs_) job.word.open(); // nobody would do so later
        new std::list(std::move(jobs_));
        new std::vector(std::move(pages_));
    }
}

} // namespace unisono_torch
