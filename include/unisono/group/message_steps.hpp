#pragma once

/// \file
/// The steps over messages: posting sends and receives with their tags and tokens, and processing
/// arrivals.

#include "unisono/group/local_steps.hpp"
#include "unisono/group/suspicion.hpp"
#include "unisono/transport/endpoint.hpp"

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
inline void send_step(Endpoint& endpoint, OperationState& operation, LaneState& lane, Token token) {
    const schedule::Step& step = lane.steps[lane.cursor];
    const std::size_t bytes = lane.extents[lane.cursor].source_count * operation.request.element_bytes;
    ++lane.outstanding;
    ++operation.group->traffic.messages_sent;
    operation.group->traffic.bytes_sent += bytes;
    const Envelope envelope{tag_of(operation, lane, step), operation.signature, bytes};
    if (endpoint.send(operation.group->world_rank(step.peer), envelope, operation.source_of(lane, lane.cursor), token))
        --lane.outstanding;
}

/// Posts the receive that is the lane's next step. Large data that are not combined need no bounce
/// buffer.
inline void receive_step(Endpoint& endpoint, OperationState& operation, LaneState& lane, Token token) {
    const schedule::Step& step = lane.steps[lane.cursor];
    ++lane.outstanding;
    const std::size_t bytes = lane.extents[lane.cursor].target_count * operation.request.element_bytes;
    const bool lands = bytes >= endpoint.facts().lands_from && step.kind == schedule::StepKind::receive;
    endpoint.receive(operation.group->world_rank(step.peer),
                     {tag_of(operation, lane, step), operation.signature, bytes}, token,
                     lands ? operation.target_of(lane, lane.cursor) : nullptr);
}

/// True if the message that arrived for the token's step is the expected one; else the reason is in
/// `blamed`.
inline bool is_expected(const OperationState& operation, Token token, const Envelope& envelope, Fault& blamed) {
    const LaneState& lane = operation.lane_slots[slot_of(token)];
    const std::uint32_t cursor = step_of(token);
    const std::size_t expected = lane.extents[cursor].target_count * operation.request.element_bytes;
    const int peer = lane.steps[cursor].peer;
    if (!(envelope.signature == operation.signature)) {
        blamed = mismatch(*operation.group, peer, operation.sequence, operation.signature, envelope.signature);
        return false;
    }
    if (envelope.bytes != expected) {
        blamed =
            mismatch_bytes(*operation.group, peer, operation.sequence, operation.signature, expected, envelope.bytes);
        return false;
    }
    return true;
}

} // namespace detail
UNISONO_NAMESPACE_END
