#pragma once

/// \file
/// The parts of a rank's executor that do not depend on the transport: used by an operation's
/// handle and by a thread that drives the executor.

#include "unisono/core/list.hpp"
#include "unisono/core/time.hpp"

#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Another thread that drives an engine. Both threads hold the lock while they are in the engine.
/// The owner may enter recursively.
class Driver {
public:
    virtual ~Driver() = default;
    virtual void lock() = 0;
    virtual void unlock() noexcept = 0;
    virtual void wake() = 0; ///< an operation is in flight; the lock is held
};

/// Holds a driver's lock. Costs nothing if no other thread drives the engine.
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

/// The functions of an engine that an operation's handle needs, for every transport.
class EngineBase {
public:
    virtual ~EngineBase() = default;
    virtual bool poll(std::uint32_t operation) = 0;
    virtual void wait(std::uint32_t operation, nanoseconds timeout) = 0;
    virtual void give_up(std::uint32_t operation, nanoseconds waited) = 0;
    /// Waits until one of these is done. Returns its index, searched cyclically from `first` on.
    virtual std::size_t wait_any(Part<const std::uint32_t> operations, std::size_t first, nanoseconds timeout) = 0;
    virtual void drop(std::uint32_t operation) noexcept = 0;
    /// Makes work that is enqueued later on this stream of a device wait for the operation.
    virtual void follow(std::uint32_t operation, void* stream, nanoseconds timeout) = 0;

    /// Held by every caller of the engine or its endpoint.
    [[nodiscard]] Entry enter() { return Entry(driver_); }
    [[nodiscard]] Driver* driver() const { return driver_; }
    /// Call only while no other thread is in the engine.
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
