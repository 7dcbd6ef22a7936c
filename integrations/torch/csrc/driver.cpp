#include "driver.hpp"

#include "callbacks.hpp"
#include "process.hpp"

#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

namespace unisono_torch {
namespace {

// With the lock held. The driver's own thread idles for less, so that threads that start operations
// wait less.
constexpr un::nanoseconds longest_idle = 500'000;
constexpr un::nanoseconds longest_idle_of_driver = 100'000;

constexpr std::size_t looks = 4; ///< looks at works per turn: each advances all of them
/// The number of collectives in flight, all of which each look visits. More would overlap no
/// better. Ranks start them in the same order, so the eldest one that is not done on some rank has
/// been started on every rank.
constexpr int most_collectives = 32;

thread_local const Work* announced_here = nullptr; ///< this thread runs callbacks of its future

struct Retired {
    std::mutex mutex;
    std::vector<std::thread> threads;
};

} // namespace

void retire(std::unique_ptr<World> world) {
    if (world == nullptr) return;
    const std::lock_guard guard(of_this_process<Retired>().mutex);
    of_this_process<Retired>().threads.emplace_back([leaving = std::move(world)]() mutable { leaving.reset(); });
}

void await_retired() {
    std::vector<std::thread> threads;
    {
        const std::lock_guard guard(of_this_process<Retired>().mutex);
        threads.swap(of_this_process<Retired>().threads);
    }
    for (std::thread& thread : threads) thread.join();
}

void throw_as_torch(const std::string& who, const un::error& what) {
    if (what.code() == un::ErrorCode::bad_input) C10_THROW_ERROR(Error, who + ": " + what.what());
    C10_THROW_ERROR(DistBackendError, who + ": " + what.what());
}

// --- Work ----------------------------------------------------------------------------------------

Work::Work(int rank, c10d::OpType type, const char* name, const std::vector<at::Tensor>& inputs,
           std::vector<at::Tensor> outputs, std::vector<std::vector<at::Tensor>> lists)
    : c10d::Work(rank, type, name, inputs), name_(name), outputs_(std::move(outputs)), lists_(std::move(lists)) {
    make_future();
}

void Work::make_future() {
    c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
    future_ = c10::make_intrusive<c10::ivalue::Future>(lists_.empty() ? std::move(tensors)
                                                                      : c10::ListType::create(std::move(tensors)));
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
    Future found = Future::unasked;
    if (!future_state_.compare_exchange_strong(found, Future::asked_for) && found == Future::complete)
        future_->wait(); // another thread is completing it, or has done so
    return future_;
}

void Work::throw_early(std::chrono::milliseconds waited, const std::string& what) const {
    const std::shared_ptr<Driver> driver = driver_.lock();
    C10_THROW_ERROR(DistBackendError, c10::str(driver == nullptr ? "unisono" : driver->who(), ": wait(timeout) of ",
                                               waited.count(), " ms is over; ", name_, what));
}

bool Work::wait(std::chrono::milliseconds timeout) {
    const un::nanoseconds until = timeout == kNoTimeout ? un::never : un::deadline_after(un::steady_now(), timeout);
    if (announced_here == this) { // a callback of its own future
        if (failed_) std::rethrow_exception(failed_);
        return true;
    }
    if (!isCompleted()) {
        const std::shared_ptr<Driver> driver = driver_.lock();
        if (driver != nullptr && !driver->wait(*this, until))
            throw_early(timeout, c10::str(" goes on until its own timeout of ", this->timeout.count(), " ms"));
    }
    std::unique_lock lock(mutex_);
    const auto is_complete = [&] { return completed_; };
    if (until == un::never) {
        cv_.wait(lock, is_complete);
    } else if (!cv_.wait_for(lock, std::chrono::nanoseconds(until - un::steady_now()), is_complete)) {
        throw_early(timeout, " has ended, but callbacks of its future still run or wait for their turn");
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
}

void Work::abort() {
    if (const auto driver = driver_.lock()) driver->abort(c10::str("Work.abort() of ", name_));
}

/// Without the driver's lock, because what it copies and drops may be large.
void Work::conclude() noexcept {
    if (failed_ == nullptr && after) {
        try {
            after();
        } catch (...) {
            failed_ = std::current_exception();
        }
    }
    stages.clear();
    after = nullptr;
    Future found = Future::unasked;
    if (future_state_.compare_exchange_strong(found, Future::complete)) announce();
    else run_callback(level_, [self = c10::intrusive_ptr<Work>::reclaim_copy(this)] { self->announce(); });
}

/// The future runs the callbacks that were attached to it.
void Work::announce() noexcept {
    const Work* const outer = std::exchange(announced_here, this);
    try {
        if (failed_ != nullptr) future_->setError(failed_);
        else future_->markCompleted(lists_.empty() ? c10::IValue(outputs_) : c10::IValue(lists_));
    } catch (...) {
        if (failed_ == nullptr) failed_ = std::current_exception();
    }
    announced_here = outer;
    finish(failed_);
}

// --- Driver --------------------------------------------------------------------------------------

/// A thread that waits for the lock makes the thread that has it hurry.
class Driver::Lock {
public:
    explicit Lock(Driver& driver) : lock_(driver.mutex_, std::defer_lock) {
        if (lock_.try_lock()) return;
        // Before the load: `shut_down` waits for threads that may have seen the world.
        driver.wanting_.fetch_add(1);
        if (World* const sleeping = driver.sleeps_in_.load()) sleeping->endpoint().wake(sleeping->rank());
        lock_.lock();
        driver.wanting_.fetch_sub(1);
    }
    void unlock() { lock_.unlock(); }
    [[nodiscard]] std::unique_lock<std::mutex>& get() { return lock_; }

private:
    std::unique_lock<std::mutex> lock_;
};

Driver::Driver(std::unique_ptr<World> world, std::string who)
    : world_(std::move(world)), rank_(world_->rank()), size_(world_->size()), transport_(world_->transport_name()),
      who_(std::move(who)), process_(::getpid()) {
    if (transport_ == "shared_memory") sleeps_in_ = world_.get();
    thread_ = std::thread([this] { drive(); });
}

Driver::~Driver() { shut_down(); }

void Driver::refuse_other_process() const {
    TORCH_CHECK(process_ == ::getpid(), who_, ": process ", ::getpid(), " is a forked child of process ", process_,
                ", which joined the group; expected calls from process ", process_,
                " only (a child that needs the ranks can send its data to its parent)");
}

void Driver::shut_down(std::size_t elsewhere) {
    if (process_ != ::getpid()) { // the ranks do not know this process, and the threads are its parent's
        static_cast<void>(world_.release());
        new std::thread(std::move(thread_));
        new std::deque(std::move(queue_));
        new std::deque(std::move(flying_)); // an operation that ends unfinished would end the world
        return;
    }
    Works left;
    std::unique_ptr<World> leaving;
    {
        const Lock lock(*this);
        ending_ = true;
        news_.notify_all();
        left.assign(flying_.begin(), flying_.end());
        flying_.clear();
        left.insert(left.end(), queue_.begin(), queue_.end());
        queue_.clear();
        const std::size_t unended = std::max(left.size(), elsewhere);
        if (unended != 0 && world_ != nullptr && !failed_) {
            failed_ = true;
            world_->abort({.code = un::ErrorCode::aborted,
                           .rank = world_->rank(),
                           .peer = -1,
                           .operation = left.empty() ? std::string() : left.front()->name_,
                           .sequence = 0,
                           .message = c10::str("rank ", world_->rank(), " left the process group while ", unended,
                                               " operations were in flight")});
        }
        for (const auto& work : left) {
            work->operation_ = {};
            work->failed_ = std::make_exception_ptr(c10::DistBackendError(
                {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                c10::str(who_, ": the process group was destroyed while ", work->name_, " was in flight")));
        }
        opening_ = nullptr;
        for (const auto& work : left) work->is_over_ = true;
        sleeps_in_ = nullptr;
        leaving = std::move(world_);
    }
    while (wanting_.load() != 0) std::this_thread::yield();
    if (thread_.joinable()) {
        if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
        else thread_.join();
    }
    conclude(left);
    retire(std::move(leaving));
}

bool Driver::has_failed() const {
    refuse_other_process();
    return failed_;
}

void Driver::look() {
    const Lock lock(*this);
    if (world_ == nullptr || failed_) return;
    try {
        world_->check();
    } catch (...) { // `fault` tells it
        failed_ = true;
    }
}

std::exception_ptr Driver::fault() {
    const Lock lock(*this);
    try {
        if (world_ == nullptr) C10_THROW_ERROR(DistBackendError, who_ + ": the process group was destroyed");
        world_->check();
        C10_THROW_ERROR(DistBackendError, who_ + ": the process group has failed");
    } catch (const un::error& failed) {
        try {
            throw_as_torch(who_, failed);
        } catch (...) {
            return std::current_exception();
        }
    } catch (...) {
        return std::current_exception();
    }
}

void Driver::abort(const std::string& why) {
    refuse_other_process();
    const Lock lock(*this);
    if (world_ == nullptr) return;
    failed_ = true;
    world_->abort({.code = un::ErrorCode::aborted,
                   .rank = world_->rank(),
                   .peer = -1,
                   .operation = {},
                   .sequence = 0,
                   .message = c10::str("rank ", world_->rank(), " called ", why)});
    wake();
}

void Driver::start_stage(Work& work) {
    try {
        work.operation_ = work.stages[work.started_++](*world_);
    } catch (const un::error& failed) {
        failed_ = failed_ || failed.code() != un::ErrorCode::bad_input;
        try {
            throw_as_torch(who_, failed);
        } catch (...) {
            work.failed_ = std::current_exception();
        }
    } catch (...) {
        work.failed_ = std::current_exception();
    }
}

/// Returns whether it is over.
bool Driver::look_at(Work& work) {
    try {
        for (;;) {
            if (work.failed_ != nullptr) return true;
            if (!work.operation_.poll()) {
                if (un::steady_now() < work.deadline_) return false;
                work.operation_.give_up(work.timeout);
                if (!work.operation_.poll()) return false;
            }
            work.operation_ = {};
            if (work.started_ == work.stages.size()) return true;
            start_stage(work);
        }
    } catch (const un::error& failed) {
        failed_ = true;
        try {
            throw_as_torch(who_, failed);
        } catch (...) {
            work.failed_ = std::current_exception();
        }
    } catch (...) {
        work.failed_ = std::current_exception();
    }
    work.operation_ = {};
    return true;
}

/// With the lock held: it is done, and `done` concludes it.
void Driver::take_out(c10::intrusive_ptr<Work> work, Works& done) {
    work->is_over_ = true;
    if (opening_ == work) opening_ = nullptr;
    if (!work->point_to_point) --collectives_;
    done.push_back(std::move(work));
}

void Driver::start(const c10::intrusive_ptr<Work>& work, Works& done) {
    if (work->stages.size() > 1) opening_ = work;
    if (!work->point_to_point) ++collectives_;
    // While it waits for its turn, it waits for no rank.
    work->deadline_ = un::deadline_after(un::steady_now(), work->timeout);
    start_stage(*work);
    if (look_at(*work)) take_out(work, done);
    else flying_.push_back(work);
}

void Driver::start_ready(Works& done) {
    while (!queue_.empty() && collectives_ < most_collectives) {
        if (opening_ != nullptr && opening_->started_ < opening_->stages.size()) return;
        opening_ = nullptr;
        const c10::intrusive_ptr<Work> next = std::move(queue_.front());
        queue_.pop_front();
        start(next, done);
    }
}

/// Each look advances everything, so a few suffice for any number in flight: at the eldest, which
/// usually end first, and in turn at some others.
Driver::Works Driver::move() {
    Works done;
    if (world_ == nullptr) return done;
    const auto look_from = [&](std::size_t at) {
        for (std::size_t vain = 0; at < flying_.size() && vain < looks;) {
            if (!look_at(*flying_[at])) {
                ++at;
                ++vain;
                continue;
            }
            take_out(std::move(flying_[at]), done);
            flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(at));
        }
        return at;
    };
    const std::size_t seen = look_from(0);
    if (seen < flying_.size()) {
        next_look_ = look_from(next_look_ < seen || next_look_ >= flying_.size() ? seen : next_look_);
    }
    start_ready(done);
    return done;
}

void Driver::conclude(const Works& done) {
    for (const auto& work : done) work->conclude();
}

void Driver::wake() {
    if (asleep_) news_.notify_all();
}

void Driver::submit(const c10::intrusive_ptr<Work>& work, bool waits) {
    refuse_other_process();
    Works done;
    {
        const Lock lock(*this);
        if (world_ == nullptr) C10_THROW_ERROR(DistBackendError, who_ + ": the process group was destroyed");
        work->driver_ = weak_from_this();
        work->level_ = callback_level();
        if (work->point_to_point) {
            start(work, done);
        } else {
            queue_.push_back(work);
            start_ready(done);
        }
        if (!waits && !flying_.empty()) wake();
    }
    conclude(done);
}

void Driver::idle(std::uint32_t attempt, un::nanoseconds longest) {
    if (wanting_.load() != 0 || world_ == nullptr) return;
    world_->endpoint().idle(attempt, un::steady_now() + longest);
}

bool Driver::wait(Work& work, un::nanoseconds until) {
    refuse_other_process();
    {
        const Lock lock(*this);
        ++waiters_;
    }
    bool in_time = true;
    for (std::uint32_t attempt = 0; !work.isCompleted(); ++attempt) {
        Works done;
        {
            const Lock lock(*this);
            done = move();
            if (done.empty()) {
                if (work.is_over_) break; // another thread is about to conclude it
                const un::nanoseconds left = until == un::never ? longest_idle : until - un::steady_now();
                in_time = left > 0;
                if (!in_time) break;
                idle(attempt, std::min(left, longest_idle));
            }
        }
        if (!done.empty()) {
            conclude(done);
            attempt = 0;
        }
        while (wanting_.load() != 0) std::this_thread::yield();
    }
    const Lock lock(*this);
    if (--waiters_ == 0 && !flying_.empty()) wake();
    return in_time;
}

void Driver::drive() {
    std::uint32_t attempt = 0;
    for (;;) {
        Works done;
        {
            Lock lock(*this);
            while (!ending_ && (flying_.empty() || waiters_ > 0)) {
                asleep_ = true;
                news_.wait(lock.get());
                asleep_ = false;
                attempt = 0;
            }
            if (ending_) return;
            done = move();
            if (done.empty()) idle(attempt++, longest_idle_of_driver);
        }
        if (!done.empty()) {
            conclude(done);
            attempt = 0;
        }
        done.clear();
        while (wanting_.load() != 0) std::this_thread::yield();
    }
}

} // namespace unisono_torch
