#pragma once

/// \file
/// A wire carries messages between ranks that have no memory in common: sockets, fabrics. It knows connections, partial progress
/// and what its library wants; matching, early messages and faults are above it (framed_endpoint.hpp), alike for all wires.
///
/// Laws
/// - Nothing blocks but `idle` and `goodbye`. The envelope comes before the bytes: who receives chooses memory once it is known.
/// - `send(peer, envelope, data, token)`: true says that the memory is free again and no token will be reported. Else the wire
///   keeps the pointer, and reports `sent(token)` in a later `poll`, once.
/// - Messages of one peer may be reported in any order. What is sent to a peer before the goodbye is reported before `said_goodbye`.
/// - `poll(handler)` moves what can move and calls the handler for each thing that happened:
///   `handler.sent(token)`: a send's memory is free again;
///   `handler.message(peer, envelope, data)`: a whole message, in the wire's memory, good during the call, aligned for any type;
///   `handler.begin(peer, envelope, room)`: a message is coming that the wire wants to put somewhere; gives the number of an arrival
///   whose `handler.memory(arrival)` has room for `room` bytes (the wire may want more than the message has, for padding), and stays
///   until `handler.complete(arrival)`, or until the wire is forgotten or destroyed. No memory (nullptr): the message is too long for what
///   awaits it, or for the host; the wire drops it, and a fault follows;
///   `handler.awaits(peer)`: whether a receive is posted for it, so that the wire can look there first;
///   `handler.expects(peer, tag)`: whether a receive is posted for this message, so that a wire can let it wait till then;
///   `handler.awaited_bytes(peer)`: a hint: how large the message is that the oldest of them expects; 0 where that is small or not known.
///   Handlers call nothing of the wire.
/// - A wire with `grows` asks `handler.capacity(arrival)` how much of the memory there is, and for more by `handler.grow(arrival, have,
///   room)` once `have` bytes fill it: a message that nobody awaits has no more than twice what has come.
/// - A wire that lets messages wait has `waiting_signature(peer, context, sequence)`: of one of them, as `early_signature` above it.
/// - A wire with `lands_from` wants no more room than a message has, if that is so large and a multiple of 16: then it may be put where
///   the group wants it, instead of into staging memory.
/// - `forget()`: after it the wire touches no memory that was given to it, and calls no handler.
/// - `goodbye(until)`: all that was sent is on its way, then the peers are told that this rank leaves.
/// - `lost(peer)`: its connection failed or ended without a goodbye. `quiet(peer)`: nothing of it is under way any more.
///   `sending(peer)`: some of what was sent to it is not out yet.
/// - `describe(peer)`: its address, the interface and the state of the connection, for people: every error has it.

#include "unisono/transport/transport.hpp"

#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Takes everything and wants nothing: what a handler must offer.
struct AnyFrameHandler {
    void sent(Token) {}
    void message(int, const Envelope&, const std::byte*) {}
    std::uint32_t begin(int, const Envelope&, std::size_t) { return 0; }
    std::byte* memory(std::uint32_t) { return nullptr; }
    [[nodiscard]] std::size_t capacity(std::uint32_t) const { return ~std::size_t{0}; }
    std::byte* grow(std::uint32_t, std::size_t, std::size_t) { return nullptr; }
    void complete(std::uint32_t) {}
    [[nodiscard]] bool awaits(int) const { return false; }
    [[nodiscard]] bool expects(int, const Tag&) const { return false; }
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
