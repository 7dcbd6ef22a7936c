#pragma once

/// \file
/// Operations over mapped memory whose buffers the peers cannot see. They run on copies of the
/// bytes that the peers access, in memory that all ranks map.

#include "unisono/group/operation_state.hpp"
#include "unisono/transport/endpoint.hpp"

#include <cstddef>
#include <cstring>
#include <memory>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The copies of one operation; none if its buffers are mapped.
struct Bounced {
    std::shared_ptr<std::byte> input;
    std::shared_ptr<std::byte> output;
    const std::byte* user_input = nullptr;
    std::byte* user_output = nullptr;
    std::size_t copy_back = 0; ///< bytes of the output

    [[nodiscard]] bool used() const { return input != nullptr || output != nullptr; }
};

/// Replaces buffers that peers cannot see by copies. Errors: refused; then nothing has changed.
inline Bounced bounce(Endpoint& endpoint, const GroupContext& group, OperationRequest& request) {
    const PeersView view = peers_view(group, request);
    const Mapped& mapped = *endpoint.mapped();
    const bool input = view.input != 0 && !mapped.reaches(request.input, view.input);
    const bool output = view.output != 0 && !mapped.reaches(request.output, view.output);
    if (!input && !output) return {};
    Bounced made;
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
    return made;
}

/// Ends an operation: copies results to the user's memory.
inline void end_bounce(const Bounced& made, OperationRequest& request) {
    if (made.copy_back != 0) std::memcpy(made.user_output, made.output.get(), made.copy_back);
    request.input = made.user_input;
    request.output = made.user_output;
}

} // namespace detail
UNISONO_NAMESPACE_END
