#pragma once

/// \file
/// A schedule: one collective algorithm as a pure function of a rank and a shape. It yields rounds
/// of steps, generated as they are needed. The same steps are executed over any transport, verified
/// symbolically, simulated in virtual time and drawn (laboratory.hpp).
///
/// **Blocks.** Data are numbered blocks, whose meaning depends on the collective (p = world):
///
/// - all_reduce: input and output have all blocks, which are even parts of a vector; the schedule
///   says how many.
/// - broadcast: no input; the root's output holds the data, all outputs get all blocks. Blocks as
///   in all_reduce.
/// - reduce: the input has all blocks, and so has the root's output. Blocks as in all_reduce.
/// - reduce_scatter: the input has p blocks of any sizes, the output the rank's own block.
/// - all_gather: the input has the rank's own block, the output p blocks of any sizes.
/// - gather: the input has the rank's own block, the root's output p blocks of any sizes.
/// - scatter: the root's input has p blocks of any sizes, the output the rank's own block.
/// - all_to_all: both have p blocks of any sizes; block j of the input is for rank j, block i of
///   the output is from rank i.
/// - barrier: no blocks.
///
/// Blocks keep their numbers: a rank's own block is block `rank` in every buffer, also in one that
/// holds nothing else. A message's blocks have the same numbers on both sides, except in all_to_all
/// (block j of rank i's input becomes block i of rank j's output).
///
/// Input is never written, unless the caller passes the same memory as input and output ("in
/// place"): for all_reduce and reduce (root) the same vector; for reduce_scatter and scatter the
/// output is the input's own block; for all_gather and gather the input is the output's own block.
/// A schedule is the same in both cases; a copy onto itself is skipped. A rank without output
/// (reduce and gather away from the root) must not touch it. Broadcast has no input.
///
/// **Scratch** is `scratch_slots()` slots, each as large as the largest block. Blocks in scratch
/// are packed, each with its own size, in a run that begins at a slot: the range `[first, first +
/// count)` with `slot` and `ahead` lies behind the blocks `[first - ahead, first)`, which begin at
/// `slot`. So ranges that are received one by one can be sent as one.
///
/// **Rounds.** A rank runs its rounds in order. In a round the local steps (`copy`,
/// `combine_ranks`) run first, in the order given; then all sends and receives are posted together,
/// and the round ends when all have completed. So no step of a round may touch memory into which
/// another step of the round receives, and received data can be used from the next round on. A send
/// may read the result of a local step of its round. The rounds of different ranks are not
/// synchronised. A message carries its round and part: the peer's receive with the same round and
/// part gets it. Matching rounds therefore have equal numbers on both sides, and a rank's rounds
/// may be empty.
///
/// That alone rules out deadlock if all messages of a round are posted together, even if a send
/// completes only with its receive. `channel_depth()` is for simpler executors: if the channel from
/// each rank to each other one holds that many messages, the schedule ends even if every step
/// blocks and steps run one by one in the order given.
///
/// **Mapped steps** (`post`, `await`, `combine_peers`, `copy_from_peer`) are for transports that
/// map peers' memory; they run in the order given. `await` with part k waits for post number k of
/// rank `peer`, or of every rank, and ends its round; a rank's posts are numbered from 0. A rank
/// posts at most one copy beside its flag, which all ranks can read until they have completed the
/// operation. A rank is at most four operations ahead of the slowest: its first post waits until
/// every rank has completed the operation four before.
///
/// **Lanes.** Data may be cut into L lanes that run the same schedule side by side, each with its
/// own scratch and tags. A lane is a range of the vector (all_reduce, broadcast, reduce) or of
/// every block (other collectives, if `single_blocks`). Lanes pipeline chains of messages.
///
/// Menu
/// - ring.hpp: neighbours only; fewest bytes, p - 1 or 2(p - 1) rounds. Large vectors over
///   messages. No scratch for all_reduce.
/// - tree.hpp: binomial; log2 p rounds, whole vectors. Small vectors, and everything with a root.
/// - halving_doubling.hpp: log2 p rounds and fewest bytes, for any p. Middle sizes, many ranks.
/// - direct.hpp: each rank owns a block, receives it from all ranks and combines in rank order: the
///   bits do not depend on the owner. Few ranks. Also exchange: each rank sends its vector to all
///   ranks in one round, for very small vectors.
/// - mapped.hpp: direct exchange over mapped memory, without messages, and staged schedules for a
///   few hundred bytes. The fastest on one machine.
/// - hierarchical.hpp: two levels, for hosts of several ranks: between hosts travels what one rank
///   per host would send.
/// - barrier.hpp: a dissemination; the transport's own collectives behind one, with its checks.
/// - families.hpp: the above as values to choose from. What proves, times and draws them is in
///   extensions/laboratory/.
///
/// Absent on purpose: segmented and multi-ported variants (lanes do that), and a distinction
/// between commutative and other operations: every schedule may reorder operands.

#include "unisono/core/config.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <cstdint>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The effect of a schedule.
enum class Collective : std::uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    reduce,
    gather,
    scatter,
    all_to_all,
    barrier,
    send_receive, ///< not a collective: point to point with the user's tag
    replay,       ///< replays a graph of the device that contains collectives
};

namespace detail {
/// Not in the function, which would make them anew in each call.
inline constexpr std::string_view collective_names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                                        "reduce",     "gather",         "scatter",    "all_to_all",
                                                        "barrier",    "send/receive",   "replay"};
} // namespace detail

constexpr std::string_view name_of(Collective what) {
    return static_cast<std::size_t>(what) < std::size(detail::collective_names)
               ? detail::collective_names[static_cast<std::size_t>(what)]
               : "an unknown collective"; // a peer's may be any
}

/// The contents of a rank's buffer in a collective: nothing, the rank's own block, or everything
/// (the vector, or a block per rank).
enum class Holding : std::uint8_t { nothing, own_block, everything, everything_at_root };

/// The elements that a collective reads from each rank's input and writes to each rank's output.
struct BufferUse {
    Holding input = Holding::nothing;
    Holding output = Holding::nothing;
};

/// The one table of what each collective reads and writes. A broadcast has no input: the root's
/// data are in its output.
constexpr BufferUse buffer_use(Collective what) {
    using enum Holding;
    switch (what) {
    case Collective::all_reduce: return {everything, everything};
    case Collective::reduce_scatter: return {everything, own_block};
    case Collective::all_gather: return {own_block, everything};
    case Collective::broadcast: return {nothing, everything};
    case Collective::reduce: return {everything, everything_at_root};
    case Collective::gather: return {own_block, everything_at_root};
    case Collective::scatter: return {everything_at_root, own_block};
    case Collective::all_to_all: return {everything, everything};
    default: return {}; // no data, or the user's
    }
}

/// True if a rank passes any elements in this buffer.
constexpr bool holds_any(Holding what, bool is_root) {
    return what == Holding::everything_at_root ? is_root : what != Holding::nothing;
}

/// True if a rank's buffer contains this block.
constexpr bool holds_block(Holding what, bool is_root, bool is_own) {
    return what == Holding::own_block ? is_own : holds_any(what, is_root);
}

/// True if data go to one rank or come from one rank.
constexpr bool has_root(Collective what) {
    return what == Collective::broadcast || what == Collective::reduce || what == Collective::gather ||
           what == Collective::scatter;
}

/// True if the data are one vector for all ranks, not a block per rank.
constexpr bool moves_vectors(Collective what) {
    return what == Collective::all_reduce || what == Collective::broadcast || what == Collective::reduce;
}

namespace schedule {

/// A kind of memory of a rank in a collective.
enum class Buffer : std::uint8_t {
    input,
    output,
    scratch,
    posted, ///< mapped transports: the copy that each rank put beside its flag with `post`
};

/// The blocks `first` to `first + count - 1`. They do not wrap around: a circular range is two
/// steps, with parts 0 and 1.
struct Blocks {
    Buffer where = Buffer::input;
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    std::uint32_t slot = 0;  ///< in scratch: the first slot of the packed run that contains this range
    std::uint32_t ahead = 0; ///< in scratch and posted: blocks of that run ahead of `first`
    friend bool operator==(const Blocks&, const Blocks&) = default;
};

/// The kinds of steps.
enum class StepKind : std::uint8_t {
    send,            ///< source to peer
    receive,         ///< from peer into target
    receive_combine, ///< target = source (own memory, same blocks) combined with what peer sent
    copy,            ///< target = source, both in own memory
    /// target = rank 0's block combined with rank 1's, ... in rank order. Rank i's block is in
    /// scratch slot source.slot + i if i is below this rank, and in the slot before that if i is
    /// above it; this rank's own block is `source` (not in scratch). Alone: a copy.
    combine_ranks,
    post,  ///< tells all ranks that this one got here; if source has blocks, puts a copy beside the
           ///< flag
    await, ///< waits for post number `part` of rank `peer`, or of all ranks if peer is `everyone`
    /// target = source of rank 0 combined with that of rank 1, ... in rank order, read from the
    /// ranks' memory; written to the memory of rank `peer`, or of all ranks if peer is `everyone`
    combine_peers,
    copy_from_peer, ///< target (own memory) = source in the memory of rank `peer`
};

/// A peer that stands for all ranks.
inline constexpr int everyone = -1;

/// One action of a rank in a round. Sends and receives of a round may proceed at the same time.
struct Step {
    StepKind kind = StepKind::copy;
    int peer = everyone;
    Blocks source = {};
    Blocks target = {};
    std::uint8_t part = 0; ///< tells apart several messages between the same two ranks in one round, or posts
    friend bool operator==(const Step&, const Step&) = default;
};

/// Blocks of the rank's input.
constexpr Blocks input_blocks(std::uint32_t first, std::uint32_t count = 1) {
    return {Buffer::input, first, count, 0, 0};
}
/// Blocks of the rank's output.
constexpr Blocks output_blocks(std::uint32_t first, std::uint32_t count = 1) {
    return {Buffer::output, first, count, 0, 0};
}
/// A block of the copy beside a rank's flag, after the `ahead` blocks that were posted with it.
constexpr Blocks posted_blocks(std::uint32_t first, std::uint32_t ahead = 0) {
    return {Buffer::posted, first, 1, 0, ahead};
}
/// Blocks of scratch, in the packed run that begins at `slot`, after `ahead` other blocks.
constexpr Blocks scratch_blocks(std::uint32_t first, std::uint32_t count, std::uint32_t slot, std::uint32_t ahead = 0) {
    return {Buffer::scratch, first, count, slot, ahead};
}

/// Sends a range of blocks; `part` tells apart messages between the same ranks in one round.
constexpr Step send_to(int peer, Blocks source, std::uint8_t part = 0) {
    return {StepKind::send, peer, source, {}, part};
}
/// Receives what the peer sends in the same round with the same part.
constexpr Step receive_from(int peer, Blocks target, std::uint8_t part = 0) {
    return {StepKind::receive, peer, {}, target, part};
}
/// Receives, and combines the received data with `source` into `target`.
constexpr Step combine_from(int peer, Blocks source, Blocks target, std::uint8_t part = 0) {
    return {StepKind::receive_combine, peer, source, target, part};
}
/// Copies within the rank's own memory.
constexpr Step copy_blocks(Blocks source, Blocks target) { return {StepKind::copy, everyone, source, target, 0}; }

/// A rank's position in a collective.
struct Shape {
    int world = 1;
    int rank = 0;
    int root = 0;
    friend bool operator==(const Shape&, const Shape&) = default;
};

/// The cost that a schedule claims for its rank; the verifier counts and compares.
struct Cost {
    std::uint64_t messages = 0;        ///< sent by this rank
    std::uint64_t blocks_sent = 0;     ///< by this rank
    std::uint64_t blocks_combined = 0; ///< combinations of one block with one more operand, by this rank
    std::uint64_t rounds = 0;          ///< in which this rank has messages or awaits (the latency term)
    friend bool operator==(const Cost&, const Cost&) = default;
};

namespace detail {
struct AnyVisitor {
    void operator()(const Step&) const {}
};
} // namespace detail
} // namespace schedule

/// A collective algorithm of one rank. `mapped`: it needs a transport that maps peers' memory.
/// `single_blocks`: no step has more than one block. `schedule::verify` proves the laws that a
/// compiler cannot see: each contribution reaches each result exactly once, sends match receives,
/// no rank deadlocks with channels that hold `channel_depth()` messages, no step of a round touches
/// memory that another one receives into, and the cost is as claimed. A `cost()` is optional:
/// `cost_of_rank` counts that of a schedule without one. ScheduleBase (schedule/base.hpp) has
/// defaults for the rest: a schedule that derives from it adds its name, `rounds` and `round`.
template <class S>
concept collective_schedule = detail::copyable_value<S> && detail::comparable_value<S> &&
                              requires(const S& s, std::uint32_t round, schedule::detail::AnyVisitor visit) {
                                  { S::collective } -> detail::converts_to<Collective>;
                                  { S::name } -> detail::converts_to<std::string_view>;
                                  { S::mapped } -> detail::converts_to<bool>;
                                  { S::single_blocks } -> detail::converts_to<bool>;
                                  { s.shape } -> detail::converts_to<schedule::Shape>;
                                  { s.blocks() } -> std::same_as<std::uint32_t>;
                                  { s.rounds() } -> std::same_as<std::uint32_t>;
                                  { s.scratch_slots() } -> std::same_as<std::uint32_t>;
                                  { s.channel_depth() } -> std::same_as<std::uint32_t>;
                                  s.round(round, visit);
                              };

namespace schedule {
/// The cost of a schedule's rank: what its `cost()` claims, or a count of its steps.
template <collective_schedule S>
constexpr Cost cost_of_rank(const S& schedule) {
    if constexpr (requires { schedule.cost(); }) return schedule.cost();
    Cost all;
    const auto others = static_cast<std::uint64_t>(schedule.shape.world - 1);
    for (std::uint32_t r = 0; r < schedule.rounds(); ++r) {
        bool waits = false;
        schedule.round(r, [&](const Step& step) {
            using enum StepKind;
            waits = waits || step.kind == send || step.kind == receive || step.kind == receive_combine ||
                    step.kind == await;
            all.messages += step.kind == send ? 1 : 0;
            all.blocks_sent += step.kind == send ? step.source.count : 0;
            all.blocks_combined += step.kind == receive_combine ? step.source.count
                                   : step.kind == combine_ranks ? others
                                   : step.kind == combine_peers ? others * step.source.count
                                                                : 0;
        });
        all.rounds += waits ? 1 : 0;
    }
    return all;
}

/// True for a schedule of messages during which the transport runs a collective of its own.
template <class S>
inline constexpr bool is_transports_own = requires { requires S::transports_own; };
/// True for a mapped schedule that declares `staged`: no rank touches another's buffers, only the
/// copies beside flags.
template <class S>
inline constexpr bool is_staged = requires { requires S::staged; };
} // namespace schedule

UNISONO_NAMESPACE_END
