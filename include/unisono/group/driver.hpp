#pragma once

/// \file
/// Another thread that advances a rank's operations (progress_thread.hpp), as the executor sees it.

#include "unisono/core/config.hpp"

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
        if (driver_ != nullptr) lock(*driver_);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
        if (driver_ != nullptr) unlock(*driver_);
    }

private:
    [[gnu::noinline, gnu::cold]] static void lock(Driver& driver) { driver.lock(); }
    [[gnu::noinline, gnu::cold]] static void unlock(Driver& driver) noexcept { driver.unlock(); }

    Driver* driver_;
};

} // namespace detail
UNISONO_NAMESPACE_END
