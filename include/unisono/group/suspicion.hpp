#pragma once

/// \file
/// Finds the cause if an operation does not end: a peer that runs another operation, has left, or
/// has not arrived yet. Called only after a while without progress.

#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/group/operation_state.hpp"
#include "unisono/launch/launch.hpp"
#include "unisono/transport/endpoint.hpp"

#include <cstdint>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline Caller caller_of(const Signature& signature) { return static_cast<Caller>(signature.caller & 15u); }
inline FloatingPointMode mode_of(const Signature& signature) {
    return static_cast<FloatingPointMode>(signature.caller >> 4);
}

/// "split" or "all_reduce".
inline std::string_view name_of_call(const Signature& signature) {
    const Caller caller = caller_of(signature);
    return caller != Caller::none ? name_of(caller) : name_of(static_cast<Collective>(signature.collective));
}

[[gnu::cold]] inline std::string describe(const Signature& signature) {
    if (caller_of(signature) != Caller::none) return std::string(name_of_call(signature));
    std::string text(name_of(static_cast<Collective>(signature.collective)));
    if (signature.reduction != 0) text += concat({"(", name_of(static_cast<ReductionKind>(signature.reduction)), ")"});
    if (static_cast<Collective>(signature.collective) == Collective::barrier) return text;
    if (static_cast<Collective>(signature.collective) == Collective::replay)
        return concat({"the replay of a graph of ", signature.elements(), " operations"});
    const std::string_view element = name_of(static_cast<ElementType>(signature.element));
    if ((signature.elements() & listed_counts) != 0)
        return concat({text, " of ", element, " elements by a list of counts (its hash is ",
                       signature.elements() & ~listed_counts, ")"});
    return concat({text, " of ", signature.elements(), " ", element, " elements"});
}

/// " in trainer 2", after the name of a call.
[[gnu::cold]] inline std::string in_trainer(const Signature& signature) {
    return signature.trainer() == 0 ? " outside of a trainer" : concat({" in trainer ", signature.trainer()});
}

/// As above; of a message also the direction: "send of 4 float32 elements to rank 1".
[[gnu::cold]] inline std::string describe(const OperationState& operation) {
    std::string text = describe(operation.signature);
    if (!operation.point_to_point || static_cast<Caller>(operation.signature.caller) != Caller::none) return text;
    const schedule::Step& step = operation.single[0];
    const bool sends = step.kind == schedule::StepKind::send;
    const std::string_view elements = std::string_view(text).substr(name_of(Collective::send_receive).size());
    return concat({sends ? "send" : "receive", elements, sends ? " to rank " : " from rank ",
                   operation.group->world_rank(step.peer)});
}

/// The fault of a mismatch, the same on every rank: it tells the calls of both ranks.
[[gnu::cold]] inline Fault mismatch(const GroupContext& group, int peer, std::uint64_t sequence, const Signature& own,
                                    const Signature& theirs) {
    const int me = group.world_rank(group.rank);
    const int other = group.world_rank(peer);
    const bool same_trainer = own.trainer() == theirs.trainer();
    std::string message =
        concat({"rank ", me, " called ", describe(own), same_trainer ? "" : in_trainer(own), ", rank ", other,
                " called ", describe(theirs), same_trainer ? "" : in_trainer(theirs)});
    if (!same_trainer) {
        message +=
            "; expected calls of the same trainer on all ranks (each rank numbers the trainers of a group in the "
            "order in which it makes them)";
    } else if (own.schedule == theirs.schedule && mode_of(own) != mode_of(theirs) &&
               describe(own) == describe(theirs)) {
        message = different_modes(concat({"rank ", me}), mode_of(own), concat({"rank ", other}), mode_of(theirs));
    } else if (own.schedule != theirs.schedule && describe(own) == describe(theirs)) {
        message += ", but by another schedule or with another root";
        if (static_cast<ReductionKind>(own.reduction) == ReductionKind::user) message += ", or another operation";
        if (static_cast<ElementType>(own.element) == ElementType::opaque) message += ", or elements of another size";
    }
    return {.code = ErrorCode::mismatch,
            .rank = me,
            .peer = other,
            .operation = std::string(name_of_call(own)),
            .sequence = sequence,
            .message = std::move(message)};
}

/// Looks for an operation before `before` that this rank and a peer have completed and that
/// differed: neither of them read the other's data. They find that in the next operation in which
/// one does, or when one waits in vain.
[[gnu::cold]] inline bool find_earlier_difference(const GroupContext& group, std::uint64_t before, Fault& found) {
    const Announcements& all = group.announcements;
    if (!all) return false;
    const std::uint64_t first = before - std::min<std::uint64_t>(before, Announcements::depth);
    for (std::uint64_t each = std::max<std::uint64_t>(first, 1); each < before; ++each) {
        Signature own, theirs;
        for (int peer = 0; all.find(group.rank, each, own) && peer < group.size(); ++peer) {
            if (!all.find(peer, each, theirs) || theirs == own) continue;
            found = mismatch(group, peer, each, own, theirs);
            return true;
        }
    }
    return false;
}

/// The same for a rank that waits for this operation. A message has no number among its group's
/// operations, so all of them are looked at.
[[gnu::cold]] inline bool find_earlier_difference(const OperationState& operation, Fault& found) {
    const GroupContext& group = *operation.group;
    return find_earlier_difference(group, operation.point_to_point ? group.sequence + 1 : operation.sequence, found);
}

/// The groups of a rank that are in use.
class OpenGroups {
public:
    void open(const GroupContext& group) { all_.push_back(&group); }
    void close(const GroupContext& group) noexcept {
        for (std::size_t i = all_.size(); i-- > 0;)
            if (all_[i] == &group) return all_.erase(i);
    }
    /// As `find_earlier_difference`, among all operations of all of them.
    [[nodiscard, gnu::cold]] bool find_difference(Fault& found) const {
        for (const GroupContext* const group : all_)
            if (find_earlier_difference(*group, group->sequence + 1, found)) return true;
        return false;
    }

private:
    List<const GroupContext*> all_;
};

/// The fault of a difference, from the signature beside a rank's flag.
[[gnu::cold]] inline Fault mismatch_in_flags(const OperationState& operation, int peer) {
    const MappedLine& line = operation.group->board.line(peer, operation.mapped_index);
    return mismatch(*operation.group, peer, operation.sequence, operation.signature, line.signature);
}

[[gnu::cold]] inline Fault mismatch_bytes(const GroupContext& group, int peer, std::uint64_t sequence,
                                          const Signature& own, std::uint64_t expected, std::uint64_t found) {
    Fault fault = mismatch(group, peer, sequence, own, own);
    fault.message = concat({"rank ", fault.rank, " expected ", expected, " bytes from rank ", fault.peer,
                            ", which sent ", found, " (do the ranks' counts agree?)"});
    return fault;
}

/// True if this rank has messages in flight from or to the peer, as far as the transport tells.
inline bool awaits(Endpoint& endpoint, int peer) {
    return endpoint.messages() == nullptr || endpoint.messages()->awaits(peer);
}

/// The address of a rank, after its name in a message, if the transport knows it.
[[gnu::cold]] inline std::string whereabouts(Endpoint& endpoint, int peer) {
    return endpoint.messages() == nullptr ? std::string() : concat({" [", endpoint.messages()->describe(peer), "]"});
}

/// A fault as this rank throws it: with the address of the blamed rank, unless the fault has it
/// already.
[[gnu::cold]] inline Fault located(Endpoint& endpoint, const Fault& fault) {
    Fault told = fault;
    const bool blames = fault.code == ErrorCode::timeout || fault.code == ErrorCode::peer_lost;
    if (endpoint.messages() == nullptr || !blames || fault.peer < 0 || fault.peer >= endpoint.size() ||
        fault.peer == endpoint.rank())
        return told;
    const std::string where = endpoint.messages()->describe(fault.peer);
    if (fault.message.find(where) == std::string::npos)
        told.message += concat({"; from rank ", endpoint.rank(), ", rank ", fault.peer, " is [", where, "]"});
    return told;
}

/// True if the operation's next step waits for this peer, as far as the step tells.
[[gnu::cold]] inline bool holds_up(const OperationState& operation, int peer) {
    if (!operation.straight) return true;
    const LaneState& lane = operation.lane_slots[0];
    if (lane.cursor >= lane.steps.size()) return true;
    const schedule::Step& step = lane.steps[lane.cursor];
    if (step.kind == schedule::StepKind::post) { // for the slowest, until this rank may write its flag
        const std::uint64_t depth = operation.messages ? operation.messages.depth() : MappedBoard::depth;
        return operation.group->board.completed(peer).load(std::memory_order_relaxed) + depth <= operation.mapped_index;
    }
    return step.peer == schedule::everyone || step.peer == peer || step.peer == operation.group->rank;
}

/// The fault of a timeout. It blames a rank that holds up the operation, the first that has not
/// started it: of those that this rank waits for, and then of all, the ranks that wait for no older
/// operation of the group; else any. Only this group is looked at.
[[gnu::cold]] inline Fault timed_out(Endpoint& endpoint, const OperationState& operation, nanoseconds timeout) {
    const GroupContext& group = *operation.group;
    const std::uint64_t sequence = operation.sequence;
    const int me = group.world_rank(group.rank);
    Fault fault{.code = ErrorCode::timeout,
                .rank = me,
                .peer = operation.point_to_point ? group.world_rank(operation.single[0].peer) : -1,
                .operation = std::string(name_of_call(operation.signature)),
                .sequence = sequence,
                .message = concat({"rank ", me, " waited ", timeout / 1'000'000, " ms for ", describe(operation)})};
    if (operation.point_to_point) {
        fault.message += whereabouts(endpoint, fault.peer);
        if (operation.single[0].kind == schedule::StepKind::send)
            fault.message += " (a send may wait until its data are received: if both ranks send first, begin with "
                             "start_send, receive, and then wait for the send)";
        return fault;
    }
    if (endpoint.messages() == nullptr && !group.announcements) return fault; // it tells nothing of peers
    std::string missing;
    const auto look_at = [&](bool all, bool also_waiting) {
        for (int peer = 0; peer < group.size(); ++peer) {
            if (peer == group.rank || !(all || holds_up(operation, peer))) continue;
            const int other = group.world_rank(peer);
            const std::uint64_t latest = group.announcements ? group.announcements.latest(peer) : 0;
            if (!also_waiting && group.announcements && group.announcements.finished(peer) < latest) continue;
            if (endpoint.messages() != nullptr ? !endpoint.messages()->awaits(other) : latest >= sequence) continue;
            if (fault.peer < 0) fault.peer = other;
            missing += concat({missing.empty() ? "" : ", ", "rank ", other, whereabouts(endpoint, other)});
            if (endpoint.messages() == nullptr)
                missing += concat({" (has started ", latest, " operations of the group)"});
        }
    };
    look_at(false, false);
    if (missing.empty()) look_at(true, false);
    if (missing.empty()) look_at(true, true);
    if (endpoint.messages() != nullptr) {
        if (!missing.empty()) fault.message += concat({", for messages from or to ", missing});
    } else {
        fault.message +=
            missing.empty() ? ", which every rank has started" : concat({", which was never started by ", missing});
    }
    return fault;
}

[[gnu::cold]] inline Fault lost(Endpoint& endpoint, const GroupContext& group, int peer,
                                const OperationState& operation, const char* how) {
    Fault fault = mismatch(group, peer, operation.sequence, operation.signature, operation.signature);
    fault.code = ErrorCode::peer_lost;
    fault.message = concat({"rank ", fault.peer, how, whereabouts(endpoint, fault.peer), "; rank ", fault.rank,
                            " waits for it in ", describe(operation.signature)});
    return fault;
}

/// Ends the world for an operation whose handle was dropped before it was done.
[[gnu::noinline, gnu::cold]] inline void abort_dropped(Endpoint& endpoint, const OperationState& operation) {
    const Fault* const known = endpoint.first_fault();
    const int rank = endpoint.rank();
    endpoint.abort(known != nullptr
                       ? *known
                       : Fault{.code = ErrorCode::aborted,
                               .rank = rank,
                               .operation = std::string(name_of_call(operation.signature)),
                               .sequence = operation.sequence,
                               .message = concat({"rank ", rank, " dropped the handle of an unfinished operation"})});
}

/// A mismatch that shows in the word of a peer's small message. The message does not contain the
/// peer's signature. `earlier`: it is this rank's, so an earlier operation with a root differed,
/// and is no longer announced.
[[gnu::cold]] inline Fault mismatch_in_words(const OperationState& operation, int peer, bool earlier) {
    Fault fault = mismatch(*operation.group, peer, operation.sequence, operation.signature, operation.signature);
    fault.message =
        concat({"rank ", fault.rank, " called ", describe(operation.signature),
                operation.signature.trainer() == 0 ? "" : in_trainer(operation.signature), ", rank ", fault.peer,
                earlier ? " did so, too, but an earlier broadcast, reduce, gather or scatter of theirs differed"
                        : " something else"});
    return fault;
}

/// Looks for a peer that started another operation under the same number, or had another history:
/// in its announcements, of which only the last are kept; in messages that arrived early; and in
/// its flag, which stays until the operation is done.
[[gnu::cold]] inline bool find_difference(Endpoint& endpoint, const OperationState& operation, Fault& found) {
    const GroupContext& group = *operation.group;
    if (operation.point_to_point) return false;
    const auto differs = [&](int peer, const Signature& theirs) {
        if (theirs == operation.signature) return false;
        found = mismatch(group, peer, operation.sequence, operation.signature, theirs);
        return true;
    };
    for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank) continue;
        Signature said;
        const bool started = group.announcements && group.announcements.latest(peer) >= operation.sequence;
        const bool known = group.announcements && group.announcements.find(peer, operation.sequence, said);
        if (known && differs(peer, said)) return true;
        if (endpoint.messages() != nullptr) {
            const Signature* const theirs = endpoint.messages()->early_signature(
                group.world_rank(peer), group.id, static_cast<std::uint32_t>(operation.sequence) & 0x7fffffffu);
            if (theirs != nullptr && differs(peer, *theirs)) return true;
        }
        if (!started || operation.request.plan == nullptr || !operation.request.plan->mapped()) continue;
        if (operation.messages) {
            const std::uint64_t word = operation.message_of(peer).word(0).load(std::memory_order_acquire);
            if (word >> 32 != operation.first_word() >> 32 || word == operation.first_word()) continue;
            found = mismatch_in_words(operation, peer, known);
        } else {
            const MappedLine& line = group.board.line(peer, operation.mapped_index);
            if (line.turn.load(std::memory_order_acquire) / 4 != operation.mapped_index + 1) continue;
            if (line.history == operation.history || !(line.signature == operation.signature)) continue;
            found = mismatch_in_words(operation, peer, true);
        }
        return true;
    }
    return false;
}

/// Looks for a peer that started another operation under the same number, left without starting
/// this one, or died.
[[gnu::cold]] inline bool find_culprit(Endpoint& endpoint, const OperationState& operation, Fault& found) {
    const GroupContext& group = *operation.group;
    if (find_difference(endpoint, operation, found)) return true;
    for (int peer = 0; peer < group.size(); ++peer) {
        const int other = group.world_rank(peer);
        if (peer == group.rank || !awaits(endpoint, other)) continue;
        if (operation.point_to_point && peer != operation.single[0].peer) continue;
        const Presence presence = endpoint.presence(other);
        if (presence == Presence::here) continue;
        // Read after `presence`: it may have started, finished and left meanwhile.
        const bool started =
            !operation.point_to_point && group.announcements && group.announcements.latest(peer) >= operation.sequence;
        // Without either, nothing tells whether it has sent all before it left.
        const bool unknown = !group.announcements && endpoint.messages() == nullptr;
        if (presence == Presence::left && (started || unknown)) continue;
        found = lost(endpoint, group, peer, operation,
                     presence == Presence::left     ? " has left"
                     : endpoint.mapped() != nullptr ? " died (its process ended without leaving)"
                                                    : " is lost");
        return true;
    }
    return false;
}

/// The ranks that may hold up an operation: every rank that has not finished it.
[[gnu::cold]] inline Wait wait_for(Endpoint& endpoint, const OperationState& operation) {
    const GroupContext& group = *operation.group;
    Wait wait{.operation = describe(operation), .context = group.id, .sequence = operation.sequence, .peers = {}};
    // The messages have arrived, but the transport's own collective is not done: any of the ranks
    // may hold it up.
    const bool by_transport = operation.is_transports_own() && operation.lanes_done == operation.lanes;
    for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank) continue;
        const bool concerned =
            by_transport               ? true
            : operation.point_to_point ? peer == operation.single[0].peer
            : group.announcements ? group.announcements.finished(peer) < operation.sequence && holds_up(operation, peer)
                                  : awaits(endpoint, group.world_rank(peer));
        if (concerned) wait.peers.push_back(group.world_rank(peer));
    }
    return wait;
}

/// Decides when a waiting rank looks for a cause, and sets its deadline at the first look.
class Look {
public:
    nanoseconds until = never;

    explicit Look(nanoseconds every = 10'000) : every_(every) {}

    /// In real time the clock is read at every eighth attempt at first, and at every attempt once a
    /// transport may sleep in it.
    bool is_due(Endpoint& endpoint, std::uint32_t attempt, nanoseconds timeout) {
        const bool virtual_time = endpoint.facts().virtual_time;
        if (!virtual_time && attempt < always_from && attempt % 8 != 7) return false;
        const nanoseconds now = endpoint.now();
        const bool is_first = std::exchange(is_first_, false);
        if (is_first) until = deadline_after(now, std::chrono::nanoseconds(timeout));
        if (virtual_time) return is_first || until == never || now >= until;
        const bool due = !is_first && now >= next_;
        if (is_first || due) next_ = now + every_;
        return due;
    }

private:
    static constexpr std::uint32_t always_from = 64;

    nanoseconds every_;
    bool is_first_ = true;
    nanoseconds next_ = 0;
};

/// Tells the transport what this rank waits for, if the transport wants to know: after some
/// milliseconds of waiting, so that a fast operation costs nothing.
class WaitTeller {
public:
    /// The operation is still not done.
    [[gnu::cold]] void wait(Endpoint& endpoint, const OperationState& operation) {
        if (!endpoint.facts().wants_waits || told_) return;
        const nanoseconds now = endpoint.now();
        if (since_ == 0) since_ = now;
        if (now - since_ < std::min<nanoseconds>(10'000'000, operation.group->timeout / 16)) return;
        told_ = true;
        const Wait wait = wait_for(endpoint, operation);
        endpoint.waits(&wait);
    }
    /// Something has moved, or the wait is over.
    void move(Endpoint& endpoint) {
        if (since_ == 0) return;
        since_ = 0;
        if (std::exchange(told_, false)) endpoint.waits(nullptr);
    }

private:
    nanoseconds since_ = 0; ///< 0: not waiting
    bool told_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
