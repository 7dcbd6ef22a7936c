#pragma once

/// \file
/// The options of a hub, and the instructions that it gives to the owner of the sockets.

#include "unisono/core/time.hpp"
#include "unisono/extensions/launch/secrets/token.hpp"
#include "unisono/launch/launch.hpp"

#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct HubOptions {
    int world = 1;
    JobToken token = {};
    nanoseconds hello_within = 5'000'000'000;  ///< time after which a connection that has not proven itself is closed
    nanoseconds answer_within = 1'000'000'000; ///< time after which a rank that was asked counts as silent
};

/// An instruction: bytes to send on a connection, and whether to close it then.
struct HubAction {
    std::uint32_t connection = 0;
    Blob bytes = {};
    bool close = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
