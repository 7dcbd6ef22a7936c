#pragma once

/// \file
/// Encodes members' messages as bytes, and decodes them. The decoder trusts no length.

#include "unisono/extensions/elastic/membership_messages.hpp"
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
