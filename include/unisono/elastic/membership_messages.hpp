#pragma once

/// \file
/// The messages between members of a membership: see membership.hpp.

#include "unisono/core/config.hpp"

#include <cstdint>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A process that waits to be taken in.
struct Applicant {
    std::uint64_t identity = 0; ///< drawn by the process, another one for each
    std::string host = {};      ///< where it listens for the members
    std::uint16_t port = 0;
    friend bool operator==(const Applicant&, const Applicant&) = default;
};

/// The next membership. Members of the first world have their ranks there as numbers; each one that
/// is added gets the next number, and no number comes back.
struct Successor {
    std::vector<int> members = {};     ///< ascending; those that are added come last
    std::vector<Applicant> added = {}; ///< in the order of their numbers
    int next_number = 0;               ///< of a member that is added later
    std::vector<int> doubtful = {};    ///< have been left behind, now or earlier, and may live
    std::vector<int> elders = {};      ///< where there are such: those that the first of them knows
    int source = -1;                   ///< a member whose committed updates are the most; -1: none has a state
    std::uint64_t updates = 0;         ///< that it has committed
    friend bool operator==(const Successor&, const Successor&) = default;

    [[nodiscard]] std::size_t kept() const { return members.size() - added.size(); }
};

enum class MembershipWord : std::uint8_t {
    prepare,
    promise,
    accept,
    accepted,
    decided,
    ready,
    whole,
    ask,
    joined,
    gone,
    goodbye
};

/// Committed updates of a member that has been added, and has no state yet.
inline constexpr std::uint64_t no_state_yet = ~std::uint64_t{0};

struct MembershipMessage {
    MembershipWord word = MembershipWord::prepare;
    std::uint64_t epoch = 0; ///< of the membership that chooses
    std::uint64_t ballot = 0;
    std::uint64_t updates = 0;         ///< promise: committed by its sender
    std::uint64_t accepted_ballot = 0; ///< promise: of `successor`; 0: it has accepted none
    int member = -1;                   ///< gone: who
    Successor successor = {};
    std::vector<Applicant> applicants = {}; ///< promise: who waits at the member
};

} // namespace detail
UNISONO_NAMESPACE_END
