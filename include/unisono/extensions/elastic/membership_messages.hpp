#pragma once

/// \file
/// The messages between members; see membership.hpp.

#include "unisono/core/config.hpp"

#include <cstdint>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A process that waits to be added.
struct Applicant {
    std::uint64_t identity = 0; ///< drawn at random by the process
    std::string host = {};      ///< address at which it listens for the members
    std::uint16_t port = 0;
    friend bool operator==(const Applicant&, const Applicant&) = default;
};

/// The next membership. A member of the first world has its rank there as its number. Each added
/// member gets the next number, and no number is used again.
struct Successor {
    std::vector<int> members = {};     ///< ascending; added members come last
    std::vector<Applicant> added = {}; ///< added members, in the order of their numbers
    int next_number = 0;               ///< number of the next member that is added
    std::vector<int> doubtful = {};    ///< members that were left behind, now or earlier, and may live
    std::vector<int> elders = {};      ///< if there are doubtful members: the members that the first of them knows
    int source = -1;                   ///< a member with the most committed updates; -1: no member has a state
    std::uint64_t updates = 0;         ///< number of updates that `source` has committed
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

/// The number of committed updates of an added member that has no state yet.
inline constexpr std::uint64_t no_state_yet = ~std::uint64_t{0};

struct MembershipMessage {
    MembershipWord word = MembershipWord::prepare;
    std::uint64_t epoch = 0; ///< epoch of the membership that chooses
    std::uint64_t ballot = 0;
    std::uint64_t updates = 0;         ///< promise: updates that the sender has committed
    std::uint64_t accepted_ballot = 0; ///< promise: ballot of `successor`; 0: the sender has accepted none
    int member = -1;                   ///< gone: the member that is gone
    bool heard = false;                ///< gone: the sender has got its last messages
    Successor successor = {};
    std::vector<Applicant> applicants = {}; ///< promise: the applicants at the sender
    /// promise: members to which the sender could not connect, when the next world was to be formed
    std::vector<int> missed = {};
};

} // namespace detail
UNISONO_NAMESPACE_END
