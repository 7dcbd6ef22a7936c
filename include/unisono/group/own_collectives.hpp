#pragma once

/// \file
/// A transport's own collectives (schedule/transports_own.hpp): when they start, and when they are
/// done. The library's messages beside them find mismatches and missing ranks. An operation is done
/// when these messages have arrived and the transport's collective is done.
///
/// The moment of the start depends on what the transport's library can cancel:
/// - MPI's collectives cannot be cancelled, so one starts when all ranks are known to have started
///   the same operation (here);
/// - a device's stream can be aborted, so its work is enqueued when the operation starts, and the
///   messages travel meanwhile (extensions/device/stream_runs.hpp).

#include "unisono/group/lanes.hpp"
#include "unisono/group/local_steps.hpp"
#include "unisono/group/operation_state.hpp"
#include "unisono/group/transport_kinds.hpp"
#include "unisono/transport/own_runs.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A collective as its transport gets it: the whole data, not cut.
struct OwnCollective {
    Collective what = Collective::all_reduce;
    ReductionKind reduction = ReductionKind::none;
    ElementType element = ElementType::opaque;
    std::size_t element_bytes = 1;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::size_t count = 0;                ///< elements of the vector, or of each block if blocks are equal
    std::span<const std::size_t> offsets; ///< else: the beginning of each rank's block, and the end of the last
    int rank = 0;
    int world = 1;
    int root = 0;

    [[nodiscard]] std::size_t block(int of) const {
        const auto i = static_cast<std::size_t>(of);
        return offsets.empty() ? count : offsets[i + 1] - offsets[i];
    }
    [[nodiscard]] std::size_t all_blocks() const {
        return offsets.empty() ? count * static_cast<std::size_t>(world) : offsets.back();
    }
};

inline OwnCollective own_collective_of(const OperationState& operation) {
    const OperationRequest& request = operation.request;
    const schedule::Shape& shape = request.plan->shape();
    OwnCollective call{.what = request.plan->collective(),
                       .reduction = request.reduction.kind,
                       .element = request.element,
                       .element_bytes = request.element_bytes,
                       .input = request.input,
                       .output = request.output,
                       .count = request.partition.count,
                       .offsets = {},
                       .rank = shape.rank,
                       .world = shape.world,
                       .root = shape.root};
    if (!request.input_counts.empty()) call.offsets = {operation.input_offsets.data(), operation.input_offsets.size()};
    return call;
}

/// For lanes that need only their messages.
class WholeLanes {
public:
    /// True if the data that a lane reads have arrived, and its earlier results are at their
    /// destination.
    template <class Transport>
    [[nodiscard]] static constexpr bool is_here(Transport&, OperationState&, LaneState&) {
        return true;
    }
    /// Ends a lane's round.
    template <class Transport>
    static void finish(Transport&, OperationState& operation, LaneState& lane) {
        finish_round(operation, lane);
    }
    /// Runs the lane's copy step.
    template <class Transport>
    [[gnu::always_inline]] static void copy_own(Transport&, OperationState& operation, LaneState& lane) {
        copy(operation, lane, lane.cursor, operation.source_of(lane, lane.cursor));
    }
    /// Processes the arrived message of the lane's step number `cursor`, which is not combined.
    template <class Transport>
    [[gnu::always_inline]] static void take(Transport&, OperationState& operation, LaneState& lane,
                                            std::uint32_t cursor, const std::byte* from) {
        copy(operation, lane, cursor, from);
    }
};

/// For transports without streams.
class WithoutStreams : public WholeLanes {
public:
    template <class Transport>
    [[nodiscard]] bool follow(Transport&, const OperationState&, void*) {
        refuse_input("then: the transport has no streams; expected one whose ranks have devices");
    }
};

/// The runs of one kind of transport: specialised here and by the headers of devices.
template <class Transport>
class OwnRunsOf {
    static_assert(!streaming_transport<Transport>,
                  "found: a transport with a device, without the header that runs operations on it. Required: "
                  "unisono/nccl.hpp or unisono/cuda.hpp, which include the transport, too");
};

template <has_own_collectives Transport>
    requires(!streaming_transport<Transport>)
class OwnRunsOf<Transport> : public WithoutStreams {
public:
    void begin(Transport& transport, GroupContext&, OperationState& operation) {
        if (!operation.is_transports_own()) return;
        operation.own_ticket = transport.own_ticket();
        operation.own_begun = false;
    }
    [[nodiscard]] bool done(Transport& transport, OperationState& operation) {
        if (!operation.is_transports_own()) return true;
        if (!operation.own_begun) {
            if (!transport.is_turn_of(operation.own_ticket)) return false; // another operation is first
            operation.own_begun = true;
            begin_own(transport, own_collective_of(operation), operation.own_ticket);
        }
        return transport.own_done(operation.own_ticket);
    }
    void end(Transport&, const OperationState&) {}
};

/// The same behind the executor's interface.
template <class Transport>
class OwnRunsOver final : public OwnRuns {
public:
    explicit OwnRunsOver(Transport& transport) : transport_(transport) {}

    [[nodiscard]] bool has_mode() const override { return enqueues<Transport>; }
    void begin(GroupContext& group, OperationState& operation) override { runs_.begin(transport_, group, operation); }
    [[nodiscard]] bool done(OperationState& operation) override { return runs_.done(transport_, operation); }
    void end(OperationState& operation) override { runs_.end(transport_, operation); }
    [[nodiscard]] bool follow(const OperationState& operation, void* stream) override {
        return runs_.follow(transport_, operation, stream);
    }
    [[nodiscard]] bool is_here(OperationState& operation, LaneState& lane) override {
        return runs_.is_here(transport_, operation, lane);
    }
    void finish(OperationState& operation, LaneState& lane) override { runs_.finish(transport_, operation, lane); }
    void copy_own(OperationState& operation, LaneState& lane) override { runs_.copy_own(transport_, operation, lane); }
    void take(OperationState& operation, LaneState& lane, std::uint32_t cursor, const std::byte* from) override {
        runs_.take(transport_, operation, lane, cursor, from);
    }
    [[nodiscard]] bool has_groups() const override { return enqueues<Transport>; }
    void open_group([[maybe_unused]] std::uint64_t parent, [[maybe_unused]] std::uint64_t id,
                    [[maybe_unused]] int colour, [[maybe_unused]] int key) override {
        if constexpr (enqueues<Transport>) transport_.open_group(parent, id, colour, key);
    }
    [[nodiscard]] bool group_is_open() override {
        if constexpr (enqueues<Transport>) return transport_.group_is_open();
        else return true;
    }
    void close_group([[maybe_unused]] std::uint64_t id) noexcept override {
        if constexpr (enqueues<Transport>) transport_.close_group(id);
    }

private:
    Transport& transport_;
    OwnRunsOf<Transport> runs_;
};

template <class Transport>
std::unique_ptr<OwnRuns> own_runs_of(Transport& transport) {
    return std::make_unique<OwnRunsOver<Transport>>(transport);
}

} // namespace detail
UNISONO_NAMESPACE_END
