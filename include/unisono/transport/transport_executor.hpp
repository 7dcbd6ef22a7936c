#pragma once

/// \file
/// The executor's interface to what a transport with a device does itself: its own collectives
/// (schedule/barrier.hpp), and lanes of device memory. The library's messages beside them
/// find mismatches and missing ranks. An operation is done when these messages have arrived and the
/// transport's collective is done.

#include "unisono/core/config.hpp"

#include <cstdint>
#include <memory>

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct GroupContext;
struct LaneState;
struct OperationState;

/// A transport's own collectives, and lanes of device memory.
class TransportExecutor {
public:
    TransportExecutor() = default;
    TransportExecutor(const TransportExecutor&) = delete;
    TransportExecutor& operator=(const TransportExecutor&) = delete;
    virtual ~TransportExecutor() = default;

    /// True if its reductions round as the device does, whatever the thread's mode.
    [[nodiscard]] virtual bool has_mode() const { return false; }
    /// Starts the operation.
    virtual void begin(GroupContext& group, OperationState& operation) = 0;
    /// True if the transport is done with the operation; called when its messages have arrived.
    [[nodiscard]] virtual bool done(OperationState&) { return true; }
    /// Ends the operation: moves results to their destination.
    virtual void end(OperationState&) {}
    /// Makes work that is enqueued later on `stream` wait for the operation; false while it is not
    /// enqueued itself.
    [[nodiscard]] virtual bool follow(const OperationState& operation, void* stream) = 0;
    /// True if the data that a lane reads have arrived, and its earlier results are at their
    /// destination.
    [[nodiscard]] virtual bool is_here(OperationState&, LaneState&) { return true; }
    /// Ends a lane's round.
    virtual void finish(OperationState& operation, LaneState& lane) = 0;

    /// True if each group needs a part of the transport's library. Then all ranks of the parent
    /// call `open_group`, also those with `no_colour`, and wait until `group_is_open`.
    [[nodiscard]] virtual bool has_groups() const { return false; }
    virtual void open_group(std::uint64_t /*parent*/, std::uint64_t /*id*/, int /*colour*/, int /*key*/) {}
    [[nodiscard]] virtual bool group_is_open() { return true; }
    virtual void close_group(std::uint64_t) noexcept {}
};

/// The executor of one kind of transport: specialised by the headers of devices
/// (extensions/device/stream_runs.hpp, extensions/device/bounced_lanes.hpp).
template <class Transport>
class TransportExecutorOf {
    static_assert(sizeof(Transport) == 0,
                  "found: a transport with a device, without the header that runs operations on it. Required: "
                  "unisono/nccl.hpp or unisono/cuda.hpp, which include the transport, too");
};

template <class Transport>
[[nodiscard]] std::unique_ptr<TransportExecutor> transport_executor_for(Transport& transport) {
    return std::make_unique<TransportExecutorOf<Transport>>(transport);
}

} // namespace detail
UNISONO_NAMESPACE_END
