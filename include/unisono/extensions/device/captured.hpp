#pragma once

/// \file
/// A whole update as a CUDA graph: captured once, and launched repeatedly by one call of the host.
///
///     auto update = un::capture(world, [&] {
///         backward<<<blocks, threads, 0, world.endpoint().stream()>>>(...);
///         un::all_reduce(world, gradient.span());
///         step<<<blocks, threads, 0, world.endpoint().stream()>>>(...);
///     });
///     for (int i = 0; i < steps; ++i) update.replay();
///
/// A capture executes nothing, so the device is not queried: a captured collective is complete once
/// all ranks have told one another that they capture the same one. A replay sends no messages
/// between hosts.

#include "unisono/collective/exchange.hpp"
#include "unisono/extensions/device/stream_runs.hpp"
#include "unisono/group/engine.hpp"
#include "unisono/group/group.hpp"

#include <cstddef>
#include <memory>
#include <utility>

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// A replay: it has no steps and no messages.
struct Replay : ScheduleBase<Collective::replay> {
    static constexpr std::string_view name = "replay";
    static constexpr bool transports_own = true;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return 0; }
    [[nodiscard]] constexpr Cost cost() const { return {}; }
    template <class Visit>
    constexpr void round(std::uint32_t, Visit&&) const {}
};
static_assert(collective_schedule<Replay>);

} // namespace schedule

/// The result of `capture`. Move-only. The group, and all memory that the capture used, must
/// outlive it. All ranks replay the same graphs in the same order, relative to the other operations
/// that they start on devices. This is not compared: if a rank deviates, the others wait until
/// their deadline.
template <enqueues Transport>
class Captured {
public:
    Captured(Captured&&) noexcept = default;
    Captured& operator=(Captured&&) noexcept = default;

    /// Launches the graph after all operations that were started before, and waits. Errors: timeout
    /// after the group's timeout, peer_lost, aborted.
    void replay() { start().wait(); }
    /// As `replay`, without waiting. This object must outlive the operation.
    [[nodiscard]] Operation start() {
        detail::OperationRequest request;
        request.plan = plan_;
        request.count = graph_->programs();
        request.stream.space = MemorySpace::device;
        request.stream.graph = graph_.get();
        const detail::CallKey key{
            .call = detail::words_of({.what = Collective::replay}, {}, {}), .count = request.count, .plan = plan_};
        detail::OperationState* const known = context_->find(key);
        detail::OperationState& operation = known != nullptr ? *known : context_->take(key);
        detail::cut(*context_, operation, request, context_->engine->endpoint().mapped() != nullptr);
        context_->engine->start(operation);
        return Operation(*context_->engine, operation.number, context_->timeout);
    }
    /// The number of the library's operations in the graph.
    [[nodiscard]] std::size_t operations() const { return graph_->programs(); }

private:
    using Graph = decltype(std::declval<Transport&>().stream_device().end_capture());
    template <enqueues T, class Body>
    friend Captured<T> capture(Group<T>& group, Body&& body);

    Captured(Group<Transport>& group, Graph graph)
        : context_(&group.context()), plan_(&group.plan(schedule::Replay{group.shape()})), graph_(std::move(graph)) {}

    detail::GroupState* context_;
    const detail::Plan* plan_;
    Graph graph_;
};

/// Captures the work that `body()` enqueues on the transport's stream, `group.endpoint().stream()`,
/// and on streams that follow it (`after`, `Operation::then`): the program's kernels, and native
/// collectives on device memory, in any group of this rank. Collective: all ranks capture the same
/// collectives; a difference is a mismatch. Waits for the messages of operations that `body`
/// starts, not for the device. The weights of WeightedMean are those of the capture.
///
/// Errors: bad_input (operations are in flight; data on the host; a schedule of the library, whose
/// buffers do not stay), refused (with CUDA's text: a call that cannot be captured, such as an
/// allocation), and exceptions of `body`. After an error in a capture that has begun, the world
/// ends on all ranks, since they may hold different parts of the graph.
template <enqueues Transport, class Body>
[[nodiscard]] Captured<Transport> capture(Group<Transport>& group, Body&& body) {
    detail::check_member(group);
    detail::Engine& engine = group.engine();
    if (!engine.is_idle()) refuse_input("capture: operations are in flight; expected that all have been waited for");
    barrier(group);
    Transport& transport = group.endpoint();
    try {
        {
            const auto entry = engine.enter();
            transport.stream_device().begin_capture();
        }
        std::forward<Body>(body)();
        if (!engine.is_idle()) refuse_input("capture: the body ended while an operation of its own was in flight");
        const auto ended = [&] {
            const auto entry = engine.enter();
            return transport.stream_device().end_capture();
        };
        Captured<Transport> made(group, ended());
        barrier(group); // all ranks have captured it
        return made;
    } catch (...) {
        const auto entry = engine.enter();
        transport.stream_device().drop_capture();
        transport.abort({.code = ErrorCode::aborted,
                         .rank = transport.rank(),
                         .peer = -1,
                         .operation = "capture",
                         .sequence = 0,
                         .message = concat({"rank ", transport.rank(), " threw during a capture"})});
        throw;
    }
}

UNISONO_NAMESPACE_END
