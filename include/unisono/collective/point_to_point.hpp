#pragma once

/// \file
/// send and receive with tags.

#include "unisono/collective/shell.hpp"

UNISONO_NAMESPACE_BEGIN

/// Sends n elements to `peer`, whose matching receive has the same tag and exactly n elements of
/// the same type (else: mismatch on both). Messages between two ranks with equal tags are matched
/// in the order of their calls. Returns when `data` may be changed: over shared memory, after up to
/// 2 KiB were copied, or when the peer has received.
template <transport Transport, buffer Data>
void send(Group<Transport>& group, const Data& data, int peer, int tag = 0) {
    group.finish(group.start_message(schedule::StepKind::send, detail::buffer_of(data), peer, tag));
}
/// As `send`, without waiting: the data must not change until it is done.
template <transport Transport, buffer Data>
    requires detail::outlives_call<Data>
[[nodiscard]] Operation start_send(Group<Transport>& group, Data&& data, int peer, int tag = 0) {
    return group.start_message(schedule::StepKind::send, detail::buffer_of(data), peer, tag);
}

/// Receives from `peer`; see `send`.
template <transport Transport, writable_buffer Data>
void receive(Group<Transport>& group, Data&& data, int peer, int tag = 0) {
    group.finish(group.start_message(schedule::StepKind::receive, detail::buffer_of(data), peer, tag));
}
/// As `receive`, without waiting.
template <transport Transport, writable_buffer Data>
    requires detail::outlives_call<Data>
[[nodiscard]] Operation start_receive(Group<Transport>& group, Data&& data, int peer, int tag = 0) {
    return group.start_message(schedule::StepKind::receive, detail::buffer_of(data), peer, tag);
}

/// Refuses any other call of `send`, with the reason.
template <transport Transport>
void send(Group<Transport>&, detail::AnyData<false>, ...) {}

/// Refuses any other call of `receive`, with the reason.
template <transport Transport>
void receive(Group<Transport>&, detail::AnyData<true>, ...) {}

UNISONO_NAMESPACE_END
