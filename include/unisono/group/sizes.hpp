#pragma once

/// \file
/// The refusals of arguments: roots, counts, memory, overlaps. One table for all collectives, typed
/// and untyped, for every transport, size and schedule.
///
/// | collective                           | overlaps allowed beside separate memory            |
/// |--------------------------------------|----------------------------------------------------|
/// | all_reduce; reduce, at the root      | output = input                                     |
/// | all_gather; gather, at the root      | the input is this rank's own block of the output   |
/// | reduce_scatter; scatter, at the root | the output is this rank's own block of the input   |
/// | all_to_all                           | none                                               |
///
/// Any other overlap is refused on the rank that passed it, before anything is sent or changed.
/// Unused arguments (the output of reduce and gather, and the input of scatter, on ranks other than
/// the root) may be anything. A buffer without elements overlaps nothing.

#include "unisono/core/hash.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/call.hpp"
#include "unisono/group/context.hpp"
#include "unisono/group/operation_state.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// `group`: a group or its context.
template <class Group>
void check_member(const Group& group) {
    if (group.size() == 0) refuse_input("this rank is in no group: it gave no_colour to split");
}

[[gnu::noinline]] inline void check_root(const GroupContext& group, int root, std::string_view what,
                                         std::string_view role) {
    check_member(group);
    if (root < 0 || root >= group.size())
        refuse_input({what, role, ": rank ", root, " is not in the group of ", group.size(), " (found on rank ",
                      group.world_rank(group.rank), ")"});
}

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_count(Collective what, int rank, const char* which,
                                                                std::size_t found, std::size_t expected) {
    refuse_input({name_of(what), " on rank ", rank, ": ", which, " has ", found, " elements, expected ", expected});
}

inline void check_count(const GroupContext& group, Collective what, const char* which, std::size_t found,
                        std::size_t expected) {
    if (found != expected && found != CallBuffer::fitting)
        refuse_count(what, group.world_rank(group.rank), which, found, expected);
}

/// The sum of counts. \throws error bad_input: not one count per rank, or the sum overflows
[[gnu::noinline]] inline std::size_t total(const GroupContext& group, Collective what, Counts counts) {
    check_count(group, what, "the list of counts", counts.size(), static_cast<std::size_t>(group.size()));
    std::size_t sum = 0;
    for (const std::size_t count : counts) {
        if (__builtin_add_overflow(sum, count, &sum)) refuse_input({name_of(what), ": the counts overflow"});
    }
    return sum;
}

/// A hash of a list of counts, for ranks to compare.
inline std::uint64_t hash_of(Counts counts) {
    std::uint64_t hash = fnv_basis;
    for (const std::uint64_t count : counts) hash = fnv1a(hash, count);
    return (hash & (listed_counts - 1)) | listed_counts;
}

/// The bytes of `blocks` times `count` elements. \throws error bad_input: more than a pointer
/// difference can hold
[[gnu::noinline]] inline std::size_t bytes_of(const GroupContext& group, std::string_view what, std::size_t count,
                                              std::size_t bytes, int blocks = 1) {
    std::size_t all = 0;
    if (__builtin_mul_overflow(count, bytes, &all) ||
        __builtin_mul_overflow(all, static_cast<std::size_t>(blocks), &all) || all > PTRDIFF_MAX)
        refuse_input({what, " on rank ", group.world_rank(group.rank), ": ", count, " elements of ", bytes, " bytes",
                      blocks == 1 ? std::string() : concat({" from or for each of ", blocks, " ranks"}),
                      " are more than memory can hold"});
    return all;
}

/// \throws error bad_input: no memory for elements that this rank reads or writes
[[gnu::noinline]] inline void check_memory(const GroupContext& group, std::string_view what, const char* which,
                                           const void* memory, std::size_t bytes) {
    if (memory == nullptr && bytes != 0)
        refuse_input({what, " on rank ", group.world_rank(group.rank), ": the ", which, " is NULL; expected memory of ",
                      bytes, " bytes"});
}

/// Refuses arguments of a collective that do not fit, before anything is sent or changed; else
/// returns what is to be run, without a plan.
OperationRequest request_of(const GroupContext& group, const Call& call, const CallBuffer& in, const CallBuffer& out);

/// The same for a send or a receive (`kind`) that no other rank can match.
OperationRequest request_of(const GroupContext& group, schedule::StepKind kind, const CallBuffer& data, int peer,
                            int tag);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The memory of an input or an output, and the offset of the byte at which it may be the other's.
struct UsedMemory {
    const void* data = nullptr;
    std::size_t bytes = 0;
    std::size_t begin = 0;
};

/// Refuses an overlap that is not allowed.
UNISONO_DEFINITION void check_overlap(const GroupContext& group, Collective what, const UsedMemory& in,
                                      const UsedMemory& out) {
    const auto input = reinterpret_cast<std::uintptr_t>(in.data);
    const auto output = reinterpret_cast<std::uintptr_t>(out.data);
    const bool later = input >= output;
    const std::size_t apart = later ? input - output : output - input;
    const bool in_place = what != Collective::all_to_all;
    if ((in_place && input + in.begin == output + out.begin) || in.bytes == 0 || out.bytes == 0 ||
        apart >= (later ? out.bytes : in.bytes))
        return;
    refuse_input({name_of(what), " on rank ", group.world_rank(group.rank), ": the input of ", in.bytes,
                  " bytes begins ", apart, later ? " bytes behind" : " bytes before",
                  " the beginning of the output of ", out.bytes, " bytes and overlaps it; expected no overlap",
                  !in_place ? ""
                  : in.begin == 0 && out.begin == 0 && in.bytes == out.bytes
                      ? ", or input and output at one address"
                      : ", or the one buffer as this rank's own block of the other",
                  ". Nothing was changed"});
}

UNISONO_DEFINITION OperationRequest request_of(const GroupContext& group, const Call& call, const CallBuffer& in,
                                               const CallBuffer& out) {
    using enum Collective;
    if (has_root(call.what)) check_root(group, call.root, name_of(call.what), "'s root");
    else check_member(group);
    const bool is_root = group.rank == call.root;
    const BufferUse use = buffer_use(call.what);
    const std::size_t each = out.element_bytes;
    OperationRequest request;
    request.input = in.data;
    request.output = out.data;
    request.input_counts = call.input_counts;
    request.output_counts = call.output_counts;
    request.element = out.type;
    request.caller = call.caller;
    request.element_bytes = out.element_bytes;
    request.reduction = call.op;
    std::size_t read = 0;
    std::size_t written = 0;
    if (call.what == all_to_all &&
        (!call.input_counts.empty() || !call.output_counts.empty() || in.count == in.fitting)) {
        const std::size_t sends = total(group, call.what, call.input_counts);
        const std::size_t receives = total(group, call.what, call.output_counts);
        check_count(group, call.what, "the input", in.count, sends);
        check_count(group, call.what, "the output", out.count, receives);
        request.count = 0; // ranks have different lists; each message's size is compared
        read = bytes_of(group, name_of(call.what), sends, each);
        written = bytes_of(group, name_of(call.what), receives, each);
        request.total_bytes = read;
    } else if (call.what == all_to_all) {
        const auto ranks = static_cast<std::size_t>(group.size());
        if (in.count % ranks != 0)
            refuse_input({"all_to_all on rank ", group.world_rank(group.rank), ": ", in.count,
                          " elements cannot be cut into ", ranks, " equal blocks"});
        check_count(group, call.what, "the output", out.count, in.count);
        request.partition = Partition::uniform(in.count / ranks);
        request.count = in.count;
        read = written = request.total_bytes = in.count * each;
    } else if (moves_vectors(call.what)) {
        const std::size_t count = use.input == Holding::nothing ? out.count : in.count;
        if (holds_any(use.output, is_root)) check_count(group, call.what, "the output", out.count, count);
        request.partition = Partition::vector(count);
        request.count = count;
        read = written = request.total_bytes = bytes_of(group, name_of(call.what), count, each);
    } else if (call.what != barrier) { // a block for each rank, or from each
        const bool gathers = use.input == Holding::own_block;
        const CallBuffer& mine = gathers ? in : out;
        const CallBuffer& all = gathers ? out : in;
        std::size_t expected = mine.count * static_cast<std::size_t>(group.size());
        if (call.input_counts.empty()) {
            request.partition = Partition::uniform(mine.count);
            request.count = mine.count;
            request.total_bytes = bytes_of(group, name_of(call.what), mine.count, each, group.size());
        } else {
            expected = total(group, call.what, call.input_counts);
            check_count(group, call.what, "the own block", mine.count,
                        call.input_counts[static_cast<std::size_t>(group.rank)]);
            request.count = hash_of(call.input_counts);
            request.total_bytes = bytes_of(group, name_of(call.what), expected, each);
        }
        if (!has_root(call.what)) check_count(group, call.what, "the buffer of all blocks", all.count, expected);
        else if (is_root) check_count(group, call.what, "the root's buffer of all blocks", all.count, expected);
        (gathers ? read : written) = mine.count * each;
        (gathers ? written : read) = request.total_bytes;
    }
    if (holds_any(use.input, is_root)) check_memory(group, name_of(call.what), "input", in.data, read);
    if (holds_any(use.output, is_root)) check_memory(group, name_of(call.what), "output", out.data, written);
    if (!holds_any(use.input, is_root) || !holds_any(use.output, is_root)) return request;
    const auto before = static_cast<std::size_t>(group.rank);
    std::size_t own = before * request.partition.count * each; // where this rank's block begins
    for (std::size_t block = 0; block < before && !call.input_counts.empty(); ++block)
        own += call.input_counts[block] * each;
    check_overlap(group, call.what, {in.data, read, use.output == Holding::own_block ? own : 0},
                  {out.data, written, use.input == Holding::own_block ? own : 0});
    return request;
}

UNISONO_DEFINITION OperationRequest request_of(const GroupContext& group, schedule::StepKind kind,
                                               const CallBuffer& data, int peer, int tag) {
    const bool sends = kind == schedule::StepKind::send;
    const std::string_view what = sends ? "send" : "receive";
    check_root(group, peer, what, "'s peer");
    if (peer == group.rank)
        refuse_input({"rank ", group.world_rank(peer),
                      " sends to, or receives from, itself; expected another rank as the peer"});
    if (tag < 0) refuse_input({"a tag must be at least 0, found ", tag});
    check_memory(group, what, sends ? "input" : "output", data.data,
                 bytes_of(group, what, data.count, data.element_bytes));
    OperationRequest request;
    request.input = sends ? data.data : nullptr;
    request.output = sends ? nullptr : data.data;
    request.element = data.type;
    request.element_bytes = data.element_bytes;
    request.count = data.count;
    return request;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
