#pragma once

/// \file
/// Who is to blame when an operation does not end: a peer that does something else, one that has left, or one that has
/// not come yet. Asked only after a while without progress.

#include "unisono/core/text.hpp"
#include "unisono/group/operation_state.hpp"

#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline std::string describe(const Signature& signature) {
    std::string text(name_of(static_cast<Collective>(signature.collective)));
    if (signature.reduction != 0) text += concat({"(", name_of(static_cast<ReductionKind>(signature.reduction)), ")"});
    if (static_cast<Collective>(signature.collective) == Collective::barrier) return text;
    return concat(
        {text, " of ", signature.count, " ", name_of(static_cast<ElementType>(signature.element)), " elements"});
}

/// The same on every rank: what each of the two had.
inline Fault mismatch(const GroupContext& group, int peer, std::uint64_t sequence, const Signature& own,
                      const Signature& theirs) {
    const int me = group.world_rank(group.rank);
    const int other = group.world_rank(peer);
    std::string message =
        concat({"rank ", me, " called ", describe(own), ", rank ", other, " called ", describe(theirs)});
    if (own.schedule != theirs.schedule && describe(own) == describe(theirs)) {
        message += ", but by another schedule or with another root";
    }
    return {.code = ErrorCode::mismatch,
            .rank = me,
            .peer = other,
            .operation = std::string(name_of(static_cast<Collective>(own.collective))),
            .sequence = sequence,
            .message = std::move(message)};
}

inline Fault mismatch_bytes(const GroupContext& group, int peer, std::uint64_t sequence, const Signature& own,
                            std::uint64_t expected, std::uint64_t found) {
    Fault fault = mismatch(group, peer, sequence, own, own);
    fault.message = concat({"rank ", fault.rank, " expected ", expected, " bytes from rank ", fault.peer,
                            ", which sent ", found, " (do the ranks' counts agree?)"});
    return fault;
}

/// Names the ranks that have not started the operation; else says that all have.
inline Fault timed_out(const GroupContext& group, std::uint64_t sequence, const Signature& own, int waits_for) {
    const int me = group.world_rank(group.rank);
    Fault fault{.code = ErrorCode::timeout,
                .rank = me,
                .peer = waits_for < 0 ? -1 : group.world_rank(waits_for),
                .operation = std::string(name_of(static_cast<Collective>(own.collective))),
                .sequence = sequence,
                .message = concat({"rank ", me, " waited ", group.timeout / 1'000'000, " ms for ", describe(own)})};
    if (waits_for >= 0) {
        fault.message += concat({" with rank ", fault.peer});
        return fault;
    }
    if (group.announcements == nullptr) return fault;
    std::string missing;
    for (int peer = 0; peer < group.size(); ++peer) {
        const std::uint64_t latest = group.announcements->latest(peer);
        if (latest >= sequence) continue;
        if (fault.peer < 0) fault.peer = group.world_rank(peer);
        missing += concat({missing.empty() ? "" : ", ", "rank ", group.world_rank(peer), " (has started ", latest,
                           " operations of the group)"});
    }
    fault.message +=
        missing.empty() ? ", which every rank has started" : concat({", which was never started by ", missing});
    return fault;
}

/// Looks for a peer that started something else under the same number, or that has left without starting it.
template <class Transport>
bool find_culprit(const Transport& transport, const OperationState& operation, Fault& found) {
    const GroupContext& group = *operation.group;
    for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank) continue;
        if (operation.point_to_point && peer != operation.single[0].peer) continue;
        bool started = false;
        if (!operation.point_to_point && group.announcements != nullptr) {
            Signature theirs;
            if (group.announcements->find(peer, operation.sequence, theirs) && !(theirs == operation.signature)) {
                found = mismatch(group, peer, operation.sequence, operation.signature, theirs);
                return true;
            }
            started = group.announcements->latest(peer) >= operation.sequence;
        }
        if constexpr (requires { transport.has_left(0); }) {
            if (!started && transport.has_left(group.world_rank(peer))) {
                found = mismatch(group, peer, operation.sequence, operation.signature, operation.signature);
                found.code = ErrorCode::peer_lost;
                found.message = concat({"rank ", found.peer, " has left; rank ", found.rank, " waits for it in ",
                                        describe(operation.signature)});
                return true;
            }
        }
    }
    return false;
}

} // namespace detail
UNISONO_NAMESPACE_END
