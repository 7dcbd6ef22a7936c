#pragma once

/// \file
/// What others need of a rank's executor, whatever the transport: an operation's handle, and a thread that drives it, too.

#include "unisono/core/time.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Another thread that drives an engine: both hold the lock while they are in it. The owner may enter again what it is in.
class Driver {
public:
    virtual ~Driver() = default;
    virtual void lock() = 0;
    virtual void unlock() noexcept = 0;
    virtual void wake() = 0; ///< something is under way; the lock is held
};

/// Holds a driver's lock; free where no other thread drives the engine.
class Entry {
public:
    explicit Entry(Driver* driver) : driver_(driver) {
        if (driver_ != nullptr) driver_->lock();
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
        if (driver_ != nullptr) driver_->unlock();
    }

private:
    Driver* driver_;
};

/// What an operation's handle needs of its engine, whatever the transport.
class EngineBase {
public:
    virtual ~EngineBase() = default;
    virtual bool poll(std::uint32_t operation) = 0;
    virtual void wait(std::uint32_t operation, nanoseconds timeout) = 0;
    /// Until one of these is done; its place, looked for from `first` on, in a circle.
    virtual std::size_t wait_any(std::span<const std::uint32_t> operations, std::size_t first, nanoseconds timeout) = 0;
    virtual void drop(std::uint32_t operation) noexcept = 0;
    /// What comes on this stream of a device's from now on waits for the operation.
    virtual void follow(std::uint32_t operation, void* stream, nanoseconds timeout) = 0;

    /// Held by whoever calls the engine or its endpoint.
    [[nodiscard]] Entry enter() { return Entry(driver_); }
    [[nodiscard]] Driver* driver() const { return driver_; }
    /// Only while no other thread is in it.
    void set_driver(Driver* driver) { driver_ = driver; }

protected:
    void wake_driver() {
        if (driver_ != nullptr) driver_->wake();
    }

private:
    Driver* driver_ = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
