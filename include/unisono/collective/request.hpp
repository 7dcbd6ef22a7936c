#pragma once

/// \file
/// The common part of all collectives: buffers, checks of arguments, and the choice of a schedule.

#include "unisono/arithmetic/operations.hpp"
#include "unisono/collective/buffer.hpp"
#include "unisono/collective/native.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/group.hpp"
#include "unisono/group/overlaps.hpp"

#include <concepts>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN

namespace detail {

inline void check_member(const GroupCore& group) {
    if (group.size() == 0) refuse_input("this rank is in no group: it gave no_colour to split");
}

inline void check_root(const GroupCore& group, int root, const char* what) {
    check_member(group);
    if (root < 0 || root >= group.size()) {
        refuse_input({what, ": rank ", root, " is not in the group of ", group.size(), " (found on rank ",
                      group.world_rank(), ")"});
    }
}

/// Refuses a send or a receive (`kind`) that no other rank can match.
inline void check_message(const GroupCore& group, schedule::StepKind kind, int peer, int tag) {
    check_root(group, peer, kind == schedule::StepKind::send ? "send's peer" : "receive's peer");
    if (peer == group.rank())
        refuse_input(
            {"rank ", group.world_rank(), " sends to, or receives from, itself; expected another rank as the peer"});
    if (tag < 0) refuse_input({"a tag must be at least 0, found ", tag});
}

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_count(Collective what, int rank, const char* which,
                                                                std::size_t found, std::size_t expected) {
    refuse_input({name_of(what), " on rank ", rank, ": ", which, " has ", found, " elements, expected ", expected});
}

inline void check_count(const GroupCore& group, Collective what, const char* which, std::size_t found,
                        std::size_t expected) {
    if (found != expected) refuse_count(what, group.world_rank(), which, found, expected);
}

/// The sum of counts. Errors: bad_input if there is not one count per rank, or if the sum
/// overflows.
inline std::size_t total(const GroupCore& group, Collective what, std::span<const std::size_t> counts) {
    check_count(group, what, "the list of counts", counts.size(), static_cast<std::size_t>(group.size()));
    std::size_t sum = 0;
    for (const std::size_t count : counts) {
        if (__builtin_add_overflow(sum, count, &sum)) refuse_input({name_of(what), ": the counts overflow"});
    }
    return sum;
}

/// A hash of a list of counts, for ranks to compare.
inline std::uint64_t hash_of(std::span<const std::size_t> counts) {
    std::uint64_t hash = fnv_basis;
    for (const std::uint64_t count : counts) hash = fnv1a(hash, count);
    return (hash & (listed_counts - 1)) | listed_counts;
}

/// A request for elements of type T. The collective adds the schedule's plan, the partition and the
/// reduction.
template <element T>
OperationRequest request_for(const T* input, T* output) {
    OperationRequest request;
    request.input = reinterpret_cast<const std::byte*>(input);
    request.output = reinterpret_cast<std::byte*>(output);
    request.element = element_type_of<T>;
    request.element_bytes = static_cast<std::uint32_t>(sizeof(T));
    return request;
}

/// True for operations without a state of their own, whose kernels are the library's.
template <class Op>
inline constexpr bool is_built_in = built_in_operation<Op>;

/// The call by which the group may know an earlier run; 0 if it keeps no such calls, or if the
/// memory overlaps, which is refused later. Counts must have been checked.
template <Collective What, class Family, transport Transport, element T>
[[gnu::always_inline]] inline std::uint64_t known_call(const Group<Transport>& group, const T* input, const T* output,
                                                       std::size_t count, int root, ReductionKind reduction) {
    if constexpr (Transport::maps_peers && std::same_as<Family, NativeSchedule> &&
                  element_type_of<T> != ElementType::opaque) {
        constexpr BufferUse use = buffer_use(What);
        if (uses_both(use, group.rank() == root) &&
            !overlap_is_allowed(buffers_of(What, use, input, output, count * sizeof(T), group.rank(), group.size())))
            return 0;
        return call_of(What, element_type_of<T>, reduction, root);
    } else {
        return 0;
    }
}

/// Runs a collective that this group has run before, on the shortest path from call to flag. False,
/// without any effect, if it has not.
template <Collective What, class Family, transport Transport, element T>
[[gnu::always_inline]] inline bool repeat(Group<Transport>& group, const Family&, const T* input, T* output,
                                          std::size_t count, int root = 0,
                                          ReductionKind reduction = ReductionKind::none) {
    const std::uint64_t call = known_call<What, Family>(group, input, output, count, root, reduction);
    return call != 0 && group.repeat(call, count, input, output);
}

/// As `repeat`, without waiting: returns the operation's index, or `no_operation`.
template <Collective What, class Family, transport Transport, element T>
std::uint32_t start_again(Group<Transport>& group, const Family&, const T* input, T* output, std::size_t count,
                          int root = 0, ReductionKind reduction = ReductionKind::none) {
    const std::uint64_t call = known_call<What, Family>(group, input, output, count, root, reduction);
    return call == 0 ? no_operation : group.start_again(call, count, input, output);
}

/// A family with which the host's functions start a collective on the device;
/// extensions/device/on_device.hpp defines its functions.
template <class Family>
struct OnDevice {
    Family family;
    StreamRequest stream = {};
};
template <Collective What, class T, class Op, streaming_transport Transport, class Family>
OnDevice<Family> on_device(const Group<Transport>& group, const Family& family);
template <Collective What, streaming_transport Transport, class Family>
std::uint32_t start(Group<Transport>& group, OperationRequest& request, int root, const OnDevice<Family>& device);

/// The family for data in such a buffer.
template <Collective What, class Buffer, class Op = Sum, transport Transport, class Family>
[[gnu::always_inline]] inline decltype(auto) family_for(const Group<Transport>& group, const Family& family) {
    if constexpr (views_device<Buffer>) return on_device<What, buffer_element<Buffer>, Op>(group, family);
    else return (family);
}

/// Starts `request` with the schedule that `family` offers for this collective.
template <Collective What, transport Transport, class Family>
std::uint32_t start(Group<Transport>& group, OperationRequest& request, int root, const Family& family) {
    if constexpr (requires { family.chunk_bytes; }) request.chunk_bytes = family.chunk_bytes;
    if constexpr (std::same_as<Family, NativeSchedule>) {
        if constexpr (chunk_bytes<Transport> != 0) {
            const auto parts = static_cast<std::size_t>(What == Collective::all_reduce ? std::max(2, group.size()) : 2);
            request.chunk_bytes = chunk_bytes<Transport> / 2 * parts; // messages have one size in worlds of any size
        }
        const bool typed = request.element != ElementType::opaque || What == Collective::barrier;
        if (typed && request.caller == Caller::none && request.input_counts.empty() && request.output_counts.empty())
            request.call = call_of(What, request.element, request.reduction.kind, root);
    }
    return choose_schedule<What>(group, family, request, root, [&](const auto& schedule) {
        request.plan = &group.plan(schedule);
        return group.start(request);
    });
}

} // namespace detail
UNISONO_NAMESPACE_END
