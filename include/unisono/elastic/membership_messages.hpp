#pragma once

/// \file
/// The messages between members of a membership: see membership.hpp.

#include "unisono/core/config.hpp"

#include <cstdint>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The next membership. Members have the numbers that they had in the first world.
struct Successor {
    std::vector<int> members = {}; ///< ascending
    int source = -1;               ///< a member whose committed updates are the most
    std::uint64_t updates = 0;     ///< that it has committed
    friend bool operator==(const Successor&, const Successor&) = default;
};

enum class MembershipWord : std::uint8_t { prepare, promise, accept, accepted, decided, ready, joined, goodbye };

struct MembershipMessage {
    MembershipWord word = MembershipWord::prepare;
    std::uint64_t epoch = 0; ///< of the membership that chooses
    std::uint64_t ballot = 0;
    std::uint64_t updates = 0;         ///< promise: committed by its sender
    std::uint64_t accepted_ballot = 0; ///< promise: of `successor`; 0: it has accepted none
    Successor successor = {};
};

} // namespace detail
UNISONO_NAMESPACE_END
