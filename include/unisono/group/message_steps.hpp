#pragma once

/// \file
/// The steps over messages: posting sends and receives with their tags and tokens, and processing
/// arrivals.

#include "unisono/group/local_steps.hpp"
#include "unisono/group/suspicion.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The token of a message: operation, lane slot and step.
constexpr Token token_of(std::uint32_t operation, std::uint32_t slot, std::uint32_t step) {
    return (Token{operation} << 36) | (Token{slot} << 28) | step;
}
constexpr std::size_t operation_of(Token token) { return token >> 36; }
constexpr std::size_t slot_of(Token token) { return (token >> 28) & 0xff; }
constexpr std::uint32_t step_of(Token token) { return static_cast<std::uint32_t>(token & 0xfffffff); }

inline Tag tag_of(const OperationState& operation, const LaneState& lane, const schedule::Step& step) {
    if (operation.point_to_point) return operation.single_tag;
    return {operation.group->id, ((operation.sequence & 0x7fffffffu) << 32) | (std::uint64_t{lane.lane} << 22) |
                                     (std::uint64_t{lane.round} << 4) | step.part};
}

/// Posts the send that is the lane's next step.
template <class Transport>
[[gnu::always_inline]] inline void send_step(Transport& transport, OperationState& operation, LaneState& lane,
                                             Token token) {
    const schedule::Step& step = lane.steps[lane.cursor];
    const std::size_t bytes = lane.extents[lane.cursor].source_count * operation.request.element_bytes;
    ++lane.outstanding;
    ++operation.group->traffic.messages_sent;
    operation.group->traffic.bytes_sent += bytes;
    const int peer = operation.group->world_rank(step.peer);
    const Envelope envelope{tag_of(operation, lane, step), operation.signature, bytes};
    const std::byte* const data = operation.source_of(lane, lane.cursor);
    if constexpr (sends_at_once<Transport>) {
        if (transport.post_send(peer, envelope, data, token)) --lane.outstanding;
    } else {
        transport.post_send(peer, envelope, data, token);
    }
}

/// Posts the receive that is the lane's next step.
template <class Transport>
[[gnu::always_inline]] inline void receive_step(Transport& transport, OperationState& operation, LaneState& lane,
                                                Token token) {
    const schedule::Step& step = lane.steps[lane.cursor];
    ++lane.outstanding;
    const int peer = operation.group->world_rank(step.peer);
    if constexpr (lands_messages<Transport>) { // what is not combined needs no bounce buffer
        const std::size_t bytes = lane.extents[lane.cursor].target_count * operation.request.element_bytes;
        const bool lands = step.kind == schedule::StepKind::receive;
        const bool large = bytes >= Transport::lands_from || (operation.direct && bytes != 0);
        return transport.post_receive_at(peer, {tag_of(operation, lane, step), operation.signature, bytes}, token,
                                         large && lands ? operation.target_of(lane, lane.cursor) : nullptr);
    }
    transport.post_receive(peer, tag_of(operation, lane, step), token);
}

/// Processes the message that arrived for the token's step. False, with the reason in `blamed`, if
/// it is not the expected one.
template <class Transport, class Own>
[[gnu::always_inline]] inline bool take_message(Transport& transport, Own& own, OperationState& operation, Token token,
                                                const Envelope& envelope, const std::byte* data, Fault& blamed) {
    LaneState& lane = operation.lane_slots[slot_of(token)];
    const std::uint32_t cursor = step_of(token);
    const schedule::Step& step = lane.steps[cursor];
    const std::size_t expected = lane.extents[cursor].target_count * operation.request.element_bytes;
    if (!(envelope.signature == operation.signature)) {
        blamed = mismatch(*operation.group, step.peer, operation.sequence, operation.signature, envelope.signature);
        return false;
    }
    if (envelope.bytes != expected) {
        blamed = mismatch_bytes(*operation.group, step.peer, operation.sequence, operation.signature, expected,
                                envelope.bytes);
        return false;
    }
    operation.group->traffic.bytes_received += expected;
    if (step.kind == schedule::StepKind::receive_combine) combine(operation, lane, cursor, data);
    else own.take(transport, operation, lane, cursor, data);
    --lane.outstanding;
    return true;
}

} // namespace detail
UNISONO_NAMESPACE_END
