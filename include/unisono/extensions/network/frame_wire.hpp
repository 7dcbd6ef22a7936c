#pragma once

/// \file
/// A wire carries messages between ranks that share no memory: sockets, fabrics. It knows
/// connections, partial progress and the needs of its library. Matching, early messages and faults
/// are handled above it, in the same way for all wires (framed_endpoint.hpp).
///
/// Laws
/// - Only `idle` and `goodbye` block. The envelope comes before the bytes, so that the receiver
///   knows it when it chooses memory.
/// - `send(peer, envelope, data, token)`: true means that the memory is free again and no token
///   will be reported. Else the wire keeps the pointer, and reports `sent(token)` once, in a later
///   `poll`.
/// - Messages of one peer may be reported in any order. Those sent before the goodbye are reported
///   before `said_goodbye`.
/// - `poll(handler)` advances all transfers and calls the handler for each event:
///   `handler.sent(token)`: a send's memory is free again;
///   `handler.message(peer, envelope, data)`: a whole message, in the wire's memory, valid during
///   the call, aligned for any type;
///   `handler.begin(peer, envelope, room)`: a message arrives for which the wire needs memory.
///   Returns the number of an arrival whose `handler.memory(arrival)` has `room` bytes (with
///   padding, possibly more than the message). The memory is valid until
///   `handler.complete(arrival)`, or until the wire is forgotten or destroyed. No memory (nullptr):
///   the message is too long for its receive or for the host; the wire drops it, and a fault
///   follows;
///   `handler.awaits(peer)`: whether a receive is posted for the peer, so that the wire can poll
///   its connection first;
///   `handler.awaited_bytes(peer)`: a hint, the size that the oldest of these receives expects; 0:
///   small or unknown.
///   Handlers call nothing of the wire.
/// - A wire with `grows` asks `handler.capacity(arrival)` how much memory there is, and gets more
///   by `handler.grow(arrival, have, room)` once `have` bytes fill it: a message without a posted
///   receive takes at most twice the bytes that have arrived.
/// - A wire with `lands_from` needs no padding: `room` equals the message's bytes, if the message
///   is at least that long and a multiple of 16 bytes. The message may then arrive in the group's
///   memory, without a bounce buffer.
/// - `forget()`: afterwards the wire accesses no memory that was given to it, and calls no handler.
/// - `goodbye(until)`: sends all queued messages, then tells the peers that this rank leaves.
/// - `lost(peer)`: its connection failed or ended without a goodbye. `quiet(peer)`: nothing of it
///   is in flight any more. `sending(peer)`: some messages to it are not completely sent yet.
/// - `describe(peer)`: its address, the interface and the state of the connection, for the text of
///   errors.

#include "unisono/transport/transport.hpp"

#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The functions that a handler must have; does nothing.
struct AnyFrameHandler {
    void sent(Token) {}
    void message(int, const Envelope&, const std::byte*) {}
    std::uint32_t begin(int, const Envelope&, std::size_t) { return 0; }
    std::byte* memory(std::uint32_t) { return nullptr; }
    [[nodiscard]] std::size_t capacity(std::uint32_t) const { return ~std::size_t{0}; }
    std::byte* grow(std::uint32_t, std::size_t, std::size_t) { return nullptr; }
    void complete(std::uint32_t) {}
    [[nodiscard]] bool awaits(int) const { return false; }
    [[nodiscard]] std::size_t awaited_bytes(int) const { return 0; }
};

template <class W>
concept frame_wire = requires(W& wire, const W& constant, int peer, const Envelope& envelope, const std::byte* data,
                              Token token, AnyFrameHandler& handler, std::uint32_t attempt, nanoseconds until) {
    { wire.send(peer, envelope, data, token) } -> std::same_as<bool>;
    wire.poll(handler);
    wire.idle(attempt, until);
    wire.forget();
    wire.goodbye(until);
    { constant.lost(peer) } -> std::same_as<bool>;
    { constant.said_goodbye(peer) } -> std::same_as<bool>;
    { wire.quiet(peer) } -> std::same_as<bool>;
    { constant.sending(peer) } -> std::same_as<bool>;
    { constant.describe(peer) } -> std::same_as<std::string>;
};

} // namespace detail
UNISONO_NAMESPACE_END
