#pragma once

/// \file
/// Operations over mapped memory whose buffers the peers cannot see. They run on copies of the
/// bytes that the peers access, in memory that all ranks map.

#include "unisono/group/operation_state.hpp"

#include <cstddef>
#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The copies of one operation; none if its buffers are mapped.
struct Bounced {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    const std::byte* user_input = nullptr;
    std::byte* user_output = nullptr;
    std::size_t copy_back = 0; ///< bytes of the output

    [[nodiscard]] bool used() const { return input != nullptr || output != nullptr; }
};

/// Replaces buffers that peers cannot see by copies. Errors: refused; then nothing has changed.
template <class Transport>
Bounced bounce(Transport& transport, const GroupContext& group, OperationRequest& request) {
    const PeersView view = peers_view(group, request);
    const bool input = view.input != 0 && !transport.reaches(request.input, view.input);
    const bool output = view.output != 0 && !transport.reaches(request.output, view.output);
    if (!input && !output) return {};
    Bounced made{.user_input = request.input, .user_output = request.output};
    if (output) made.output = transport.allocate_bounce(view.output);
    if (input && output && view.input == view.output) {
        // One copy for both: the operation then runs in place.
        std::memcpy(made.output, request.input, view.input);
        request.input = made.output;
    } else if (input) {
        try {
            made.input = transport.allocate_bounce(view.input);
        } catch (...) {
            if (output) transport.release_bounce(made.output);
            throw;
        }
        std::memcpy(made.input, request.input, view.input);
        request.input = made.input;
    }
    if (output) {
        if (view.output_is_read) std::memcpy(made.output, request.output, view.output);
        if (view.output_is_written) made.copy_back = view.output;
        request.output = made.output;
    }
    return made;
}

/// Ends an operation: copies results to the user's memory.
template <class Transport>
void end_bounce(Transport& transport, const Bounced& made, OperationRequest& request) {
    if (made.copy_back != 0) std::memcpy(made.user_output, made.output, made.copy_back);
    if (made.input != nullptr) transport.release_bounce(made.input);
    if (made.output != nullptr) transport.release_bounce(made.output);
    request.input = made.user_input;
    request.output = made.user_output;
}

} // namespace detail
UNISONO_NAMESPACE_END
