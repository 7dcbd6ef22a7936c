#pragma once

/// \file
/// The step in which a transport runs a collective of its own (schedule/transports_own.hpp): what it is told, and whose turn it is.

#include "unisono/group/operation_state.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A collective as the transport that runs it is told: whole, uncut.
struct OwnCollective {
    Collective what = Collective::all_reduce;
    ReductionKind reduction = ReductionKind::none;
    ElementType element = ElementType::opaque;
    std::size_t element_bytes = 1;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::size_t count = 0;                ///< elements of the vector, or of each block where they are equal
    std::span<const std::size_t> offsets; ///< else: where each rank's block begins, and the end
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

/// A transport with such collectives begins them in the order of its ranks' tickets, which are drawn as operations start: so in
/// the same order on all of them. `begin_own(transport, collective, token)`, found by its arguments, never blocks; the end is
/// reported as that of a send. Defined by whoever brings the transport together with collectives (unisono/mpi_collectives.hpp).
template <class T>
concept has_own_collectives = requires(T& transport, const T& constant, std::uint32_t ticket) {
    { transport.own_ticket() } -> std::same_as<std::uint32_t>;
    { constant.is_turn_of(ticket) } -> std::same_as<bool>;
};

/// Of the operation that starts now.
template <class Transport>
void draw_ticket([[maybe_unused]] Transport& transport, [[maybe_unused]] OperationState& operation) {
    if constexpr (has_own_collectives<Transport>) {
        if (operation.request.plan->transports_own()) operation.own_ticket = transport.own_ticket();
    }
}

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

/// False while others are first.
template <class Transport>
bool own_step([[maybe_unused]] Transport& transport, [[maybe_unused]] OperationState& operation,
              [[maybe_unused]] LaneState& lane, [[maybe_unused]] Token token) {
    UNISONO_ASSERT(has_own_collectives<Transport>, "mapped steps need a transport that maps peers' memory");
    if constexpr (has_own_collectives<Transport>) {
        if (!transport.is_turn_of(operation.own_ticket)) return false;
        ++lane.outstanding;
        begin_own(transport, own_collective_of(operation), token);
        return true;
    } else {
        return false;
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
