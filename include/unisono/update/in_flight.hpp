#pragma once

/// \file
/// An operation that is in flight while a rank trains.

#include "unisono/core/threads.hpp"
#include "unisono/group/operation.hpp"

#include <exception>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// An operation that a run has in flight between two updates. The trainer may be destroyed before
/// it ends; an Operation that is dropped unfinished would abort the world. Declare it after the
/// memory that the operation uses.
///
/// Without a fault the destructor waits for the operation, at most for the group's timeout, and
/// discards its result. After a fault it does not wait, and the world's next call reports the
/// fault. If the destructor runs because of an exception that was thrown after the run was made,
/// the other ranks may not have started the same operation: it is dropped, which aborts the world.
class OperationInFlight {
public:
    OperationInFlight() = default;
    OperationInFlight(const OperationInFlight&) = delete;
    OperationInFlight& operator=(const OperationInFlight&) = delete;
    ~OperationInFlight() {
        if (std::uncaught_exceptions() > exceptions_) return;
        const detail::NotCancelled whole;
        try {
            operation_.wait();
        } catch (...) { // the world keeps the fault: every rank's next call throws it
        }
    }
    /// Call it only after the operation before has been waited for.
    OperationInFlight& operator=(Operation started) {
        operation_ = std::move(started);
        return *this;
    }
    void wait() { operation_.wait(); }

private:
    Operation operation_;
    int exceptions_ = std::uncaught_exceptions();
};

UNISONO_NAMESPACE_END
