#pragma once

/// \file
/// Operations over mapped memory whose buffers the peers cannot see. They run on copies of the
/// bytes that the peers access, in memory that all ranks map.

#include "unisono/group/operation_state.hpp"
#include "unisono/transport/endpoint.hpp"

#include <cstddef>
#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Replaces buffers that peers cannot see by copies. Errors: refused; then nothing has changed.
[[gnu::noinline]] inline void copy_to_peers(Endpoint& endpoint, OperationState& operation) {
    const PeersView& view = operation.peers_view;
    OperationRequest& request = operation.request;
    const Mapped& mapped = *endpoint.mapped();
    const bool input = !mapped.reaches(request.input, view.input);
    const bool output = !mapped.reaches(request.output, view.output);
    PeersCopies made;
    made.user_input = request.input;
    made.user_output = request.output;
    const bool together = input && output && view.input == view.output; // the operation then runs in place
    if (output) made.output = endpoint.allocate(view.output);
    if (input && !together) made.input = endpoint.allocate(view.input);
    if (input) {
        std::byte* const copy = together ? made.output.get() : made.input.get();
        std::memcpy(copy, request.input, view.input);
        request.input = copy;
    }
    if (output) {
        if (view.output_is_read) std::memcpy(made.output.get(), request.output, view.output);
        if (view.output_is_written) made.copy_back = view.output;
        request.output = made.output.get();
    }
    operation.copies.swap(made);
}

/// Ends an operation: copies results to the user's memory.
[[gnu::noinline]] inline void copy_back(OperationState& operation) {
    PeersCopies made;
    operation.copies.swap(made);
    if (made.copy_back != 0) std::memcpy(made.user_output, made.output.get(), made.copy_back);
    operation.request.input = made.user_input;
    operation.request.output = made.user_output;
}

} // namespace detail
UNISONO_NAMESPACE_END
