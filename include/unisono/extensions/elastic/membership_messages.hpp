#pragma once

/// \file
/// The messages between members (see membership.hpp), and their bytes. The decoder trusts no
/// length.

#include "unisono/extensions/launch/control/wire.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
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

/// The address of the next world's control plane, which its first rank sends to the others.
struct NextRendezvous {
    std::uint64_t epoch = 0;
    std::string host = {};
    std::uint16_t port = 0;
};

inline constexpr int most_numbers = 1 << 20; ///< limit of members' numbers over the lifetime of a job
/// Writes ranges of consecutive numbers, since few of many members are lost.
inline void write(WireWriter& out, const std::vector<int>& members) {
    std::vector<std::uint32_t> runs; // (first, count) of each range
    for (std::size_t i = 0; i < members.size(); ++i) {
        if (i == 0 || members[i] != members[i - 1] + 1)
            runs.insert(runs.end(), {static_cast<std::uint32_t>(members[i]), 0});
        ++runs.back();
    }
    out.u32(static_cast<std::uint32_t>(runs.size() / 2));
    for (const std::uint32_t number : runs) out.u32(number);
}
inline void write(WireWriter& out, const std::vector<Applicant>& applicants) {
    out.u32(static_cast<std::uint32_t>(applicants.size()));
    for (const Applicant& one : applicants) out.put(one.identity, one.port, one.host);
}
inline Blob encode(const MembershipMessage& message) {
    WireWriter out;
    const Successor& next = message.successor;
    out.put(message.word, message.epoch, message.ballot, message.updates, message.accepted_ballot, next.updates,
            message.member, next.source, next.next_number, message.heard);
    for (const std::vector<int>* members : {&next.members, &next.doubtful, &next.elders, &message.missed})
        write(out, *members);
    write(out, next.added);
    write(out, message.applicants);
    return out.take();
}
inline constexpr std::uint8_t next_rendezvous_word = 100;
inline Blob encode(const NextRendezvous& rendezvous) {
    WireWriter out;
    out.put(next_rendezvous_word, rendezvous.epoch, rendezvous.port, rendezvous.host);
    return out.take();
}
/// Reads ranges of members below `limit`. Refuses empty ranges, and more members than `limit`.
inline bool read(WireReader& in, std::vector<int>& members, std::uint32_t limit, bool ascending) {
    const std::size_t count = in.u32();
    if (!in.good() || in.left() / 8 < count) return false;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t first = in.u32(), length = in.u32();
        const std::uint32_t most = limit - static_cast<std::uint32_t>(members.size());
        if (length == 0 || first >= limit || length > limit - first || length > most) return false;
        if (ascending && !members.empty() && static_cast<int>(first) <= members.back()) return false;
        for (std::uint32_t member = first; member < first + length; ++member)
            members.push_back(static_cast<int>(member));
    }
    return true;
}
inline bool read(WireReader& in, std::vector<Applicant>& applicants) {
    const std::size_t count = in.u32();
    if (!in.good() || in.left() / 16 < count) return false;
    for (std::size_t i = 0; i < count; ++i) {
        Applicant one;
        in.take(one.identity, one.port, one.host);
        applicants.push_back(std::move(one));
    }
    return in.good();
}
/// Returns false for bytes that no member sends.
inline bool decode(std::span<const std::byte> bytes, MembershipMessage& message) {
    WireReader in(bytes);
    Successor& next = message.successor;
    std::uint8_t heard = 0;
    in.take(message.word, message.epoch, message.ballot, message.updates, message.accepted_ballot, next.updates,
            message.member, next.source, next.next_number, heard);
    message.heard = heard == 1;
    if (message.word > MembershipWord::goodbye) return false;
    for (const int number : {message.member, next.source, next.next_number})
        if (number < -1 || number > most_numbers) return false;
    const auto limit = static_cast<std::uint32_t>(std::max(next.next_number, 0));
    return heard <= 1 && read(in, next.members, limit, true) && read(in, next.doubtful, limit, false) &&
           read(in, next.elders, limit, false) && read(in, message.missed, most_numbers, true) &&
           read(in, next.added) && read(in, message.applicants) && in.finished() &&
           next.added.size() <= next.members.size();
}
inline bool decode(std::span<const std::byte> bytes, NextRendezvous& rendezvous) {
    WireReader in(bytes);
    if (in.u8() != next_rendezvous_word) return false;
    in.take(rendezvous.epoch, rendezvous.port, rendezvous.host);
    return in.finished();
}

} // namespace detail
UNISONO_NAMESPACE_END
