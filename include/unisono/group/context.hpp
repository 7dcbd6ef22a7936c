#pragma once

/// \file
/// A rank's state of one group: the members, the number of operations started, its plans and shared
/// boards.

#include "unisono/arithmetic/reduction.hpp"
#include "unisono/core/floating_point.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/time.hpp"
#include "unisono/group/plan.hpp"
#include "unisono/schedule/host_map.hpp"
#include "unisono/transport/board.hpp"
#include "unisono/transport/transport.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The traffic of a rank, counted where the executor passes bytes to the transport or accesses
/// peers' memory.
struct Traffic {
    std::uint64_t messages_sent = 0;
    std::uint64_t bytes_sent = 0;     ///< to other ranks: in messages, or written to their memory
    std::uint64_t bytes_received = 0; ///< from other ranks: in messages, or read from their memory
};

namespace detail {

/// Memory of this rank that ranks of other processes may still write to. It must not be reused.
struct KeptMemory {
    std::shared_ptr<void> owner;
    std::int64_t* users = nullptr; ///< the number of ranks that may still write; read as an atomic
};

inline constexpr std::uint64_t world_id = 1; ///< of the group of all ranks

struct GroupContext {
    static constexpr std::uint64_t small_count = 512; ///< elements of a reduction that is small for `mode_of_next`
    static constexpr std::uint64_t operations_in_a_mode = 8;

    std::uint64_t id = 0; ///< equal on the group's ranks, different from that of other groups
    int rank = 0;
    int ranks = 0;
    List<int> members;           ///< world ranks, by rank in the group; empty: the world itself
    HostMap hosts;               ///< where the transport knows hosts; otherwise empty
    List<std::ptrdiff_t> shifts; ///< mapped memory: offsets from each rank's addresses to this rank's
    std::uint64_t sequence = 0;
    FloatingPointMode mode = FloatingPointMode::standard; ///< of reductions (see `mode_of_next`)
    std::uint64_t mode_until = 0;                         ///< the sequence number from which the mode is read anew
    std::uint64_t done = 0;                               ///< all operations up to this one are done on this rank
    List<std::uint64_t> done_ahead; ///< bit i of word w: operation done + 1 + 64 w + i is done as well
    std::uint64_t splits = 0;
    std::uint64_t trainer = 0;        ///< the trainer in one of whose calls this rank is; 0: in none
    std::uint64_t trainers = 0;       ///< made on this group so far
    int unchecked = 0;                ///< the transport's own collectives since ranks last compared them,
    std::uint32_t unchecked_hash = 0; ///< and a hash of them
    nanoseconds timeout = 600'000'000'000;
    Announcements announcements;
    MappedBoard board;
    std::uint64_t mapped_started = 0;
    std::uint64_t mapped_completed = 0; ///< all operations below this one are complete on this rank
    std::uint64_t mapped_ahead = 0;     ///< bit i: operation mapped_completed + i is complete
    std::uint64_t known_completed = 0;  ///< the operations that this rank knows to be complete on all ranks
    std::uint64_t small_started = 0;    ///< operations by small messages
    std::uint32_t history = 0; ///< a hash of the operations so far that a rank may complete before others start them
    CountTable tags;           ///< uses of each tag, by peer, tag and direction
    Traffic traffic;
    PlanCache plans;
    std::vector<KeptMemory> kept;

    [[nodiscard]] int size() const { return ranks; }
    [[nodiscard]] int world_rank(int peer) const {
        return members.empty() ? peer : members[static_cast<std::size_t>(peer)];
    }

    /// The number of a new trainer. All ranks make a group's trainers in the same order.
    std::uint64_t next_trainer() { return trainers++ % Signature::most_trainers + 1; }

    /// The mode with which the next operation is signed; the standard one if it does not reduce.
    /// Integers count as well: those of a sum on a grid were floating-point numbers before, and
    /// become such again. The thread's mode is read for a large reduction, and else at least every
    /// `operations_in_a_mode` operations, since that takes as long as a twentieth of a small
    /// reduction. All ranks read it for the same operations.
    [[gnu::always_inline]] FloatingPointMode mode_of_next(ReductionKind reduction, std::uint64_t count) {
        return reduction == ReductionKind::none ? FloatingPointMode::standard : mode_for(count);
    }

    /// Marks an operation as done. Returns the number up to which all operations are done.
    std::uint64_t done_up_to(std::uint64_t operation) {
        return operation == done + 1 && done_ahead.empty() ? ++done : done_out_of_order(operation);
    }

    /// Numbers the messages between two ranks with equal tags, so that every transport keeps their
    /// order.
    std::uint32_t number_of(int peer, std::uint32_t tag, bool sends) {
        return tags[(static_cast<std::uint64_t>(peer) << 33) | (std::uint64_t{tag} << 1) | (sends ? 1u : 0u)]++;
    }

private:
    [[gnu::always_inline]] FloatingPointMode mode_for(std::uint64_t count) {
        return count > small_count || sequence >= mode_until ? read_mode() : mode;
    }
    [[gnu::always_inline]] FloatingPointMode read_mode() {
        return mode_until = sequence + operations_in_a_mode, mode = floating_point_mode();
    }
    std::uint64_t done_out_of_order(std::uint64_t operation);
};

/// Its lifetime is a call of a trainer. The operations that start in the group meanwhile carry the
/// trainer's number, so that a rank that is in a call of another trainer finds a mismatch. The
/// first reduction reads its thread's floating-point mode.
class TrainerCall {
public:
    TrainerCall(GroupContext& group, std::uint64_t trainer) : group_(group), before_(group.trainer) {
        group.trainer = trainer, group.mode_until = 0;
    }
    TrainerCall(const TrainerCall&) = delete;
    TrainerCall& operator=(const TrainerCall&) = delete;
    ~TrainerCall() { group_.trainer = before_; }

private:
    GroupContext& group_;
    std::uint64_t before_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::noinline]] UNISONO_DEFINITION std::uint64_t GroupContext::done_out_of_order(std::uint64_t operation) {
    const std::uint64_t at = operation - done - 1;
    if (at / 64 >= done_ahead.size()) done_ahead.resize(at / 64 + 1);
    done_ahead[at / 64] |= std::uint64_t{1} << (at % 64);
    while (!done_ahead.empty() && done_ahead[0] == ~std::uint64_t{0}) {
        done += 64;
        done_ahead.erase(0);
    }
    const int run = done_ahead.empty() ? 0 : std::countr_one(done_ahead[0]);
    done += static_cast<std::uint64_t>(run);
    for (std::size_t i = 0; run != 0 && i < done_ahead.size(); ++i) {
        done_ahead[i] >>= run;
        if (i + 1 < done_ahead.size()) done_ahead[i] |= done_ahead[i + 1] << (64 - run);
    }
    while (!done_ahead.empty() && done_ahead.back() == 0) done_ahead.pop_back();
    return done;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
