#pragma once

/// \file
/// The steps over mapped memory: flags, and combinations and copies that read and write the peers'
/// buffers directly.

#include "unisono/group/local_steps.hpp"
#include "unisono/transport/endpoint.hpp"

#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The value of a rank's flag after `posts` posts of this operation.
inline std::uint64_t turn_of(const OperationState& operation, std::uint32_t posts) {
    return (operation.mapped_index + 1) * 4 + posts;
}

/// Reads how many operations each rank has completed. Returns the least number.
[[gnu::noinline]] inline std::uint64_t least_completed(GroupContext& group) {
    std::uint64_t least = group.mapped_started;
    for (int peer = 0; peer < group.size(); ++peer)
        least = std::min(least, group.board.completed(peer).load(std::memory_order_acquire));
    return group.known_completed = least;
}

/// True if every rank has completed the operation `depth` before this one, and so reads nothing of
/// it any more.
inline bool is_left_by_all(GroupContext& group, std::uint64_t index, std::uint64_t depth) {
    return index < group.known_completed + depth || index < least_completed(group) + depth;
}

/// Writes the lines of a small message; `Bytes` per line are a constant. A line that another core
/// polls should be written in one burst, else that core takes the line away in between. So this
/// function contains no calls.
template <std::size_t Bytes>
[[gnu::always_inline]] inline void write_pieces(const OperationState& operation, const FlaggedMessage& to,
                                                const std::byte* from, std::size_t bytes) {
    std::uint64_t word = operation.first_word();
    for (std::size_t piece = 0;; ++piece, word = operation.small_number) {
        if (bytes < Bytes) copy_small(to.payload(piece), from, bytes);
        else __builtin_memcpy(to.payload(piece), from, Bytes);
        to.word(piece).store(word, std::memory_order_release);
        if (bytes <= Bytes) return;
        bytes -= Bytes;
        from += Bytes;
    }
}

/// Writes this rank's small message.
inline bool post_small(OperationState& operation, const LaneState& lane, std::uint32_t step) {
    GroupContext& group = *operation.group;
    const FlaggedMessage to = operation.message_of(group.rank);
    if (group.mapped_completed != operation.mapped_index) return false; // a message says that all older ones are done
    if (operation.reads_alone) {
        operation.posted = operation.source_of(lane, step);
        return true;
    }
    if (!is_left_by_all(group, operation.mapped_index, operation.messages.depth()))
        return false; // one may still read the lines
    const std::size_t bytes = lane.extents[step].source_count * operation.request.element_bytes;
    const std::byte* from = nullptr;
    if (bytes != 0) {
        UNISONO_ASSERT(bytes <= SmallMessages::most_bytes, "what is beside the flags must fit there");
        from = operation.source_of(lane, step);
        group.traffic.bytes_sent += bytes;
    }
    operation.posted = from;
    operation.posts = 1;
    if (to.piece_bytes == 8) {
        prefetch_to_write(to.first);
        write_pieces<8>(operation, to, from, bytes);
    } else {
        write_pieces<56>(operation, to, from, bytes);
        // The next message is likely to have the same length, so its lines are fetched now; later
        // each would cost a trip between cores. If a slow rank still reads what is in them, it pays
        // for that with a trip.
        const FlaggedMessage next = operation.messages.of(group.rank, operation.small_number + 1);
        for (std::size_t at = 0; at * to.piece_bytes < bytes; ++at) prefetch_to_write(next.payload(at));
    }
    return true;
}

/// Raises this rank's flag in a line of its own; false while a rank still needs the older operation
/// that used the line.
inline bool post(OperationState& operation) {
    GroupContext& group = *operation.group;
    if (operation.posts == 0 && !is_left_by_all(group, operation.mapped_index, MappedBoard::depth)) return false;
    MappedLine& line = group.board.line(group.rank, operation.mapped_index);
    if (operation.posts == 0) {
        line.signature = operation.signature;
        line.history = operation.history;
        line.input = operation.request.input;
        line.output = operation.request.output;
        line.completed = group.mapped_completed;
    }
    line.turn.store(turn_of(operation, ++operation.posts), std::memory_order_release);
    return true;
}

inline constexpr int no_rank = -1;
inline constexpr int not_yet = -2;

/// Returns `not_yet` or `no_rank`. A differing hash counts as not yet, until a rank asks its peers
/// what they do and finds the difference. Reads each word up to `attempts` more times: a rank that
/// polls nothing else meanwhile sees it sooner.
inline int awaited_small(const OperationState& operation, int from, std::uint32_t attempts) {
    GroupContext& group = *operation.group;
    const std::uint64_t wanted = operation.first_word();
    const bool all = from == schedule::everyone;
    for (int peer = all ? 0 : from, end = all ? group.size() : from + 1; peer < end; ++peer) {
        if (peer == group.rank) continue;
        const auto& word = operation.message_of(peer).word(0);
        for (std::uint32_t attempt = 0; word.load(std::memory_order_acquire) != wanted; ++attempt) {
            if (attempt == attempts) return not_yet;
            detail::pause(); // unqualified it might be that of unistd.h, which sleeps
        }
    }
    // The others have completed all older operations, else they had not posted. This rank may not
    // have: a root that gathers posts nothing.
    if (all) group.known_completed = std::min(operation.mapped_index, group.mapped_completed);
    return no_rank;
}

/// Returns `not_yet`, the rank whose signature differs, or `no_rank`: all that the step awaits have
/// arrived. A rank with another history counts as not yet, as above. If the step awaits all ranks,
/// their progress is known as well.
inline int awaited(const OperationState& operation, const schedule::Step& step) {
    GroupContext& group = *operation.group;
    const std::uint64_t wanted = turn_of(operation, step.part + 1u);
    const bool all = step.peer == schedule::everyone;
    std::uint64_t least = group.mapped_completed;
    for (int peer = all ? 0 : step.peer, end = all ? group.size() : step.peer + 1; peer < end; ++peer) {
        if (peer == group.rank) continue;
        const MappedLine& line = group.board.line(peer, operation.mapped_index);
        if (line.turn.load(std::memory_order_acquire) < wanted || line.history != operation.history) return not_yet;
        if (step.part == 0 && !(line.signature == operation.signature)) return peer;
        least = std::min(least, line.completed);
    }
    if (all) group.known_completed = std::max(group.known_completed, least);
    return no_rank;
}

/// Copies `bytes` of a small message, beginning with byte `begin`. They have arrived.
inline void read_pieces(const FlaggedMessage& from, std::size_t begin, std::size_t bytes, std::byte* to) {
    constexpr std::size_t each = FlaggedPiece<56>::bytes;
    std::size_t piece = begin / each;
    std::size_t skip = begin % each;
    for (; bytes != 0; ++piece, skip = 0) {
        const std::size_t here = std::min(each - skip, bytes);
        if (here == each) __builtin_memcpy(to, from.payload(piece), each);
        else std::memcpy(to, from.payload(piece) + skip, here);
        to += here;
        bytes -= here;
    }
}

/// Prefetches the lines of a small message, all at once.
[[gnu::always_inline]] inline void fetch_pieces(const FlaggedMessage& message, std::size_t begin, std::size_t bytes) {
    for (std::size_t at = begin / message.piece_bytes; at * message.piece_bytes < begin + bytes; ++at)
        __builtin_prefetch(message.payload(at));
}

/// True if all pieces of a range of a peer's small message have arrived.
inline bool have_come(const FlaggedMessage& from, std::uint64_t number, std::size_t begin, std::size_t bytes) {
    const std::size_t first = std::max<std::size_t>(begin / from.piece_bytes, 1); // the first line's word was awaited
    for (std::size_t piece = first; piece * from.piece_bytes < begin + bytes; ++piece)
        if (from.word(piece).load(std::memory_order_acquire) != number) return false;
    return true;
}

/// Combines the elements of all ranks from byte `extent.source` on, which are in one line. This
/// rank's elements are read from the memory from which they were posted: a wide load of bytes that
/// were stored in parts waits until the stores complete, which takes one trip between cores.
[[gnu::always_inline]] inline void combine_piece(OperationState& operation, AddressRoom& room, const StepExtent& extent,
                                                 std::byte* target) {
    const GroupContext& group = *operation.group;
    const std::size_t each = operation.messages.piece_bytes;
    const std::size_t piece = extent.source < each ? 0 : extent.source / each;
    for (int peer = 0; peer < group.size(); ++peer)
        room.sources[static_cast<std::size_t>(peer)] =
            operation.message_of(peer).payload(piece) + (extent.source - piece * each);
    room.sources[static_cast<std::size_t>(group.rank)] = operation.posted + extent.source;
    operation.request.reduction.run(room.sources.data(), static_cast<std::size_t>(group.size()), &target, 1,
                                    extent.source_count, extent.source / operation.request.element_bytes);
}

/// Combines all ranks' posted blocks in rank order into this rank's output; false if a line has not
/// arrived yet.
[[gnu::always_inline]] inline bool combine_posted(OperationState& operation, LaneState& lane, std::uint32_t index,
                                                  AddressRoom& room) {
    GroupContext& group = *operation.group;
    const StepExtent& extent = lane.extents[index];
    if (extent.source_count == 0) return true;
    const std::size_t element = operation.request.element_bytes;
    const std::size_t bytes = extent.source_count * element;
    const std::size_t each = operation.messages.piece_bytes;
    const int ranks = group.size();
    room.resize(static_cast<std::size_t>(ranks));
    std::byte* target = operation.target_of(lane, index);
    if (extent.source + bytes <= each) {
        combine_piece(operation, room, extent, target);
    } else {
        for (int peer = 0; peer < ranks; ++peer)
            if (peer != group.rank) fetch_pieces(operation.message_of(peer), extent.source, bytes);
        for (int peer = 0; peer < ranks; ++peer) {
            if (peer != group.rank &&
                !have_come(operation.message_of(peer), operation.small_number, extent.source, bytes))
                return false;
        }
        room.resize_payloads(static_cast<std::size_t>(ranks), bytes);
        for (int peer = 0; peer < ranks; ++peer) {
            std::byte* const whole = room.payload(static_cast<std::size_t>(peer), bytes);
            if (peer != group.rank) read_pieces(operation.message_of(peer), extent.source, bytes, whole);
            room.sources[static_cast<std::size_t>(peer)] =
                peer == group.rank ? operation.posted + extent.source : whole;
        }
        operation.request.reduction.run(room.sources.data(), static_cast<std::size_t>(ranks), &target, 1,
                                        extent.source_count, extent.source / element);
    }
    group.traffic.bytes_received += bytes * static_cast<std::size_t>(ranks - 1);
    return true;
}

/// Combines all ranks' source blocks in rank order into one rank's output, or into the outputs of
/// all ranks.
inline void combine_peers(OperationState& operation, const LaneState& lane, std::uint32_t index, AddressRoom& room) {
    GroupContext& group = *operation.group;
    const schedule::Step& step = lane.steps[index];
    const StepExtent& extent = lane.extents[index];
    if (extent.source_count == 0) return;
    const auto ranks = static_cast<std::size_t>(group.size());
    const bool to_all = step.peer == schedule::everyone;
    room.resize(ranks);
    for (std::size_t peer = 0; peer < ranks; ++peer) {
        const MappedLine& line = group.board.line(static_cast<int>(peer), operation.mapped_index);
        const std::ptrdiff_t here = group.shifts[peer];
        room.sources[peer] = line.input + here + extent.source;
        if (to_all || static_cast<int>(peer) == step.peer) room.targets[peer] = line.output + here + extent.target;
    }
    const std::size_t each = operation.request.element_bytes;
    const std::size_t bytes = extent.source_count * each;
    group.traffic.bytes_received += bytes * (ranks - 1);
    group.traffic.bytes_sent += to_all ? bytes * (ranks - 1) : step.peer != group.rank ? bytes : 0;
    operation.request.reduction.run(room.sources.data(), ranks, room.targets.data() + (to_all ? 0 : step.peer),
                                    to_all ? ranks : 1, extent.source_count, extent.source / each);
}

inline void copy_from_peer(OperationState& operation, LaneState& lane, std::uint32_t index) {
    GroupContext& group = *operation.group;
    const schedule::Step& step = lane.steps[index];
    const StepExtent& extent = lane.extents[index];
    const MappedLine& line = group.board.line(step.peer, operation.mapped_index);
    const std::byte* const base = (step.source.where == schedule::Buffer::input ? line.input : line.output) +
                                  group.shifts[static_cast<std::size_t>(step.peer)];
    if (step.peer != group.rank) group.traffic.bytes_received += extent.source_count * operation.request.element_bytes;
    copy(operation, lane, index, base + extent.source);
}

/// Copies a peer's posted block into this rank's output; false if a line has not arrived yet.
inline bool copy_posted(OperationState& operation, LaneState& lane, std::uint32_t index) {
    const schedule::Step& step = lane.steps[index];
    const StepExtent& extent = lane.extents[index];
    const std::size_t bytes = extent.source_count * operation.request.element_bytes;
    if (bytes == 0) return true;
    const FlaggedMessage from = operation.message_of(step.peer);
    if (extent.source + bytes <= from.piece_bytes) {
        copy(operation, lane, index, from.first + extent.source);
    } else {
        fetch_pieces(from, extent.source, bytes);
        if (!have_come(from, operation.small_number, extent.source, bytes)) return false;
        read_pieces(from, extent.source, bytes, operation.target_of(lane, index));
    }
    operation.group->traffic.bytes_received += bytes;
    return true;
}

/// Wakes the ranks that sleep until this rank writes to the group's board.
[[gnu::always_inline]] inline void wake_group(Endpoint& endpoint, const GroupContext& group) {
    if (!endpoint.one_sleeps()) [[likely]]
        return;
    for (int peer = 0; peer < group.size(); ++peer) {
        if (peer != group.rank) endpoint.wake(group.world_rank(peer));
    }
}

/// `run_mapped_step` for an operation by small messages. Accesses only the world's memory and this
/// rank's own.
[[gnu::always_inline]] inline int run_small_step(Endpoint& endpoint, OperationState& operation, LaneState& lane,
                                                 AddressRoom& room, std::uint32_t attempts) {
    using schedule::StepKind;
    const std::uint32_t index = lane.cursor;
    switch (lane.steps[index].kind) {
    case StepKind::post:
        if (!post_small(operation, lane, index)) return not_yet;
        wake_group(endpoint, *operation.group);
        return no_rank;
    case StepKind::await: return awaited_small(operation, lane.steps[index].peer, attempts);
    case StepKind::combine_peers: return combine_posted(operation, lane, index, room) ? no_rank : not_yet;
    case StepKind::copy_from_peer: return copy_posted(operation, lane, index) ? no_rank : not_yet;
    default: copy(operation, lane, index, operation.source_of(lane, index)); return no_rank;
    }
}

/// Runs the remaining steps of a straight operation by small messages. Returns what
/// `run_mapped_step` returns for the first step that is not done.
inline int run_small(Endpoint& endpoint, OperationState& operation, LaneState& lane, AddressRoom& room,
                     std::uint32_t attempts) {
    if (endpoint.first_fault() != nullptr) return not_yet;
    const auto steps = static_cast<std::uint32_t>(lane.steps.size());
    int met = no_rank;
    for (; lane.cursor < steps && met == no_rank; lane.cursor += met == no_rank ? 1 : 0)
        met = run_small_step(endpoint, operation, lane, room, attempts);
    return met;
}

/// Runs the lane's next step. Returns `no_rank` if it is done, `not_yet` if it must wait or the
/// world has ended, or the rank whose signature differs.
inline int run_mapped_step(Endpoint& endpoint, OperationState& operation, LaneState& lane, AddressRoom& room) {
    using schedule::StepKind;
    if (operation.messages)
        return endpoint.first_fault() != nullptr ? not_yet : run_small_step(endpoint, operation, lane, room, 0);
    const std::uint32_t index = lane.cursor;
    const schedule::Step& step = lane.steps[index];
    if (step.kind == StepKind::post) {
        if (!post(operation)) return not_yet;
        wake_group(endpoint, *operation.group);
        return no_rank;
    }
    if (step.kind == StepKind::await) return awaited(operation, step);
    if (step.kind == StepKind::copy) {
        copy(operation, lane, index, operation.source_of(lane, index));
        return no_rank;
    }
    const Touching touching(endpoint);
    if (!touching) return not_yet;
    if (step.kind == StepKind::combine_peers) combine_peers(operation, lane, index, room);
    else copy_from_peer(operation, lane, index);
    return no_rank;
}

} // namespace detail
UNISONO_NAMESPACE_END
