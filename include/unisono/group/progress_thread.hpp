#pragma once

/// \file
/// A thread that advances operations while the program computes.

#include "unisono/core/floating_point.hpp"
#include "unisono/core/thread_limits.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/group/engine.hpp"
#include "unisono/group/group.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

UNISONO_NAMESPACE_BEGIN

/// Options of a `ProgressThread`.
struct ProgressThreadOptions {
    /// Sleep after a look that moved nothing; more than 0. The system adds its own latency (Linux
    /// some 50 us).
    std::chrono::nanoseconds pause = std::chrono::microseconds(20);
    friend bool operator==(const ProgressThreadOptions&, const ProgressThreadOptions&) = default;
};

/// While it lives, a thread of its own advances all operations in flight of this rank, in the
/// world's group and in all groups split from it. Gradients travel while a long layer computes, and
/// no model has to call `pass.progress`.
///
/// Cost: a thread that looks every `pause` while an operation is in flight and sleeps otherwise,
/// and a lock in each call of the group. Over a network each look takes a few microseconds of
/// processor time. If ranks have no cores to spare, or map each other's memory, the thread gains
/// nothing. The reductions and their order do not change, so the bits do not either.
///
/// The group must outlive it; as before, one thread of the program may use the group. Errors:
/// bad_input for a pause that is not positive; refused if the world has such a thread already, if
/// no thread is available, or if the transport must stay on its thread (an MPI without
/// MPI_THREAD_SERIALIZED). A failure on the thread is the world's fault, which the program's next
/// call throws. Not for `Simulated`, whose time passes only while the program waits.
template <transport Transport>
class ProgressThread final : detail::Driver {
public:
    static_assert(!has_virtual_time<Transport>, "unisono::ProgressThread: found a transport in virtual time. Required: "
                                                "a real one. Why: virtual time passes only while a rank waits.");

    explicit ProgressThread(Group<Transport>& world, const ProgressThreadOptions& options = {})
        : engine_(world.engine()), options_(options) {
        if (options.pause.count() <= 0)
            refuse_input({"ProgressThreadOptions::pause is ", options.pause.count(), " ns; expected more than 0"});
        if (engine_.driver() != nullptr) throw error(ErrorCode::refused, "ProgressThread: the world has one already");
        engine_.endpoint().check_may_change_threads();
        engine_.set_driver(this);
        try {
            thread_ = std::thread([this] { drive(); });
        } catch (const std::system_error& failed) {
            engine_.set_driver(nullptr);
            throw error(ErrorCode::refused, detail::no_thread_for("ProgressThread", failed.code().value()));
        }
    }
    ProgressThread(const ProgressThread&) = delete;
    ProgressThread& operator=(const ProgressThread&) = delete;
    ~ProgressThread() override {
        const detail::NotCancelled whole;
        {
            const std::lock_guard guard(mutex_);
            ending_ = true;
            news_.notify_one();
        }
        thread_.join();
        engine_.set_driver(nullptr);
    }

private:
    void lock() override {
        mutex_.lock();
        mode_ = detail::floating_point_mode();
    }
    void unlock() noexcept override { mutex_.unlock(); }
    void wake() override { news_.notify_one(); }

    void drive() {
        std::unique_lock lock(mutex_);
        while (!ending_) {
            if (engine_.is_idle() || engine_.endpoint().first_fault() != nullptr) {
                news_.wait(lock);
                continue;
            }
            detail::set_floating_point_mode(mode_);
            const bool moved = look();
            lock.unlock(); // between two looks the program may enter
            if (moved) std::this_thread::yield();
            else std::this_thread::sleep_for(options_.pause);
            lock.lock();
        }
    }

    bool look() {
        try {
            return engine_.progress();
        } catch (...) {
            engine_.endpoint().abort(detail::fault_of_exception(
                {.code = ErrorCode::aborted, .rank = engine_.endpoint().rank(), .operation = "ProgressThread"}));
            detail::pass_on_end_of_thread();
            return false;
        }
    }

    detail::Engine& engine_;
    ProgressThreadOptions options_;
    std::recursive_mutex mutex_;
    std::condition_variable_any news_;
    bool ending_ = false;
    /// Of the thread that entered last: with it this thread computes.
    detail::FloatingPointMode mode_ = detail::floating_point_mode();
    std::thread thread_;
};

template <class Transport>
ProgressThread(Group<Transport>&) -> ProgressThread<Transport>;
template <class Transport>
ProgressThread(Group<Transport>&, const ProgressThreadOptions&) -> ProgressThread<Transport>;

UNISONO_NAMESPACE_END
