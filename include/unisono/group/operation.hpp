#pragma once

/// \file
/// The handle of an operation in flight.

#include "unisono/core/standard.hpp"
#include "unisono/core/time.hpp"
#include "unisono/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Engine; // engine.hpp

} // namespace detail

/// A collective, send or receive that was started and not yet waited for. Move-only. Its group and
/// its memory must outlive it. Dropping an unfinished one aborts the world (error code aborted on
/// every rank), since its memory may be gone. Its result is available only after `wait` returned or
/// `poll` returned true.
///
/// Waiting for one operation advances all operations of the rank, in every group, so that ranks may
/// wait in different orders.
class Operation {
public:
    Operation() = default;
    Operation(Operation&& other) noexcept
        : engine_(std::exchange(other.engine_, nullptr)), index_(other.index_), timeout_(other.timeout_) {}
    Operation& operator=(Operation&& other) noexcept {
        if (this != &other) {
            drop();
            engine_ = std::exchange(other.engine_, nullptr);
            index_ = other.index_;
            timeout_ = other.timeout_;
        }
        return *this;
    }
    ~Operation() {
        if (engine_ != nullptr) drop();
    }

    /// Advances operations in flight. True if this one is done. Never blocks. Throws the world's
    /// first fault.
    bool poll();

    /// Makes work that is enqueued later on `stream`, a cudaStream_t, begin after this operation
    /// has ended on the device; the host does not wait. The handle must still be waited for later.
    /// For device memory. Errors: bad_input if the data are on the host; as `wait`.
    void then(void* stream);

    /// Blocks until done. Throws `error`: timeout after the group's timeout, mismatch, peer_lost,
    /// aborted.
    void wait() { wait(std::chrono::nanoseconds(timeout_)); }
    void wait(std::chrono::nanoseconds timeout);

    /// For a caller that has polled for so long: ends the world as `wait` does at its timeout, and
    /// throws, unless the operation has ended. As there, the search for the cause may take some
    /// seconds. Returns if something has moved just now: then poll again.
    void give_up(std::chrono::nanoseconds waited);

    /// Blocks until one of several operations in flight on this rank is done, and returns its
    /// index; if several are done, the next one cyclically from `first` on. Operations that were
    /// already waited for, or never started, do not count; at least one must count. Throws as
    /// `wait`.
    static std::size_t wait_any(std::span<Operation> operations, std::size_t first, std::chrono::nanoseconds timeout);

private:
    friend class GroupCore;
    template <enqueues Transport>
    friend class Captured;

    Operation(detail::Engine& engine, std::uint32_t index, nanoseconds timeout)
        : engine_(&engine), index_(index), timeout_(timeout) {}

    void drop() noexcept;

    detail::Engine* engine_ = nullptr; ///< nullptr: was done when it was started, or has been waited for
    std::uint32_t index_ = 0;
    nanoseconds timeout_ = 0;
};

namespace detail {

/// Appends an operation. Not a template, so that the vector's growth is compiled once.
void keep(std::vector<Operation>& operations, Operation operation);
void reserve(std::vector<Operation>& operations, std::size_t count);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/engine.hpp"

UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION bool Operation::poll() { return engine_ == nullptr || engine_->poll(index_); }

UNISONO_DEFINITION void Operation::then(void* stream) {
    if (engine_ != nullptr) engine_->follow(index_, stream, timeout_);
}

UNISONO_DEFINITION void Operation::wait(std::chrono::nanoseconds timeout) {
    if (engine_ == nullptr) return;
    engine_->wait(index_, timeout.count());
    drop();
}

UNISONO_DEFINITION void Operation::give_up(std::chrono::nanoseconds waited) {
    if (engine_ != nullptr) engine_->give_up(index_, waited.count());
}

UNISONO_DEFINITION void Operation::drop() noexcept {
    if (engine_ != nullptr) std::exchange(engine_, nullptr)->drop(index_);
}

UNISONO_DEFINITION std::size_t Operation::wait_any(std::span<Operation> operations, std::size_t first,
                                                   std::chrono::nanoseconds timeout) {
    detail::List<std::uint32_t> indices;
    detail::List<std::size_t> places;
    std::size_t from = 0;
    for (std::size_t i = 0; i < operations.size(); ++i) {
        if (operations[i].engine_ == nullptr) continue;
        if (i < first) ++from;
        indices.push_back(operations[i].index_);
        places.push_back(i);
    }
    if (places.empty()) refuse_input("wait_any: no operation is in flight; expected at least one");
    from = from == places.size() ? 0 : from;
    const auto found = operations[places[0]].engine_->wait_long(indices, from, timeout.count());
    operations[places[found]].drop();
    return places[found];
}

namespace detail {

[[gnu::noinline]] UNISONO_DEFINITION void keep(std::vector<Operation>& operations, Operation operation) {
    operations.push_back(std::move(operation));
}
[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION void reserve(std::vector<Operation>& operations, std::size_t count) {
    operations.reserve(count);
}

} // namespace detail

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
