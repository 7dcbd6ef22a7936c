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

/// The runs of one kind of transport: specialised here and by the headers of devices.
template <class Transport>
class OwnRunsOf {
    static_assert(!streaming_transport<Transport>,
                  "found: a transport with a device, without the header that runs operations on it. Required: "
                  "unisono/nccl.hpp or unisono/cuda.hpp, which include the transport, too");
};

template <has_own_collectives Transport>
    requires(!streaming_transport<Transport>)
class OwnRunsOf<Transport> final : public OwnRuns {
public:
    explicit OwnRunsOf(Transport& transport) : transport_(transport) {}

    void begin(GroupContext&, OperationState& operation) override {
        if (!operation.is_transports_own()) return;
        operation.own_ticket = transport_.own_ticket();
        operation.own_begun = false;
    }
    [[nodiscard]] bool done(OperationState& operation) override {
        if (!operation.is_transports_own()) return true;
        if (!operation.own_begun) {
            if (!transport_.is_turn_of(operation.own_ticket)) return false; // another operation is first
            operation.own_begun = true;
            begin_own(transport_, own_collective_of(operation), operation.own_ticket);
        }
        return transport_.own_done(operation.own_ticket);
    }
    [[nodiscard]] bool follow(const OperationState&, void*) override {
        refuse_input("then: the transport has no streams; expected one whose ranks have devices");
    }
    void finish(OperationState& operation, LaneState& lane) override { finish_round(operation, lane); }

private:
    Transport& transport_;
};

template <class Transport>
std::unique_ptr<OwnRuns> own_runs_of(Transport& transport) {
    return std::make_unique<OwnRunsOf<Transport>>(transport);
}

} // namespace detail
UNISONO_NAMESPACE_END
