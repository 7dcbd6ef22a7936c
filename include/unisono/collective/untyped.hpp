#pragma once

/// \file
/// Collectives on elements whose type is known at run time, for bindings to other languages and
/// frameworks. Not part of collective.hpp: include this header to use it. All are nonblocking and
/// use the native schedule; shapes, aliasing, errors and determinism are those of the typed ones.
/// In addition, bad_input: a null pointer to elements that this rank reads or writes, or more bytes
/// than memory can hold.
///
///     const un::Elements numbers = {un::ElementType::float32, 4};
///     const auto sums = un::untyped::reduction(un::ReductionKind::sum, numbers.type);
///     un::Operation sum = un::untyped::all_reduce(world, numbers, in, out, count, sums);
///     sum.wait();

#include "unisono/collective/request.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The type of elements: one of the library's, or `opaque` with a size.
struct Elements {
    ElementType type = ElementType::opaque;
    std::uint32_t bytes = 1; ///< of one element

    friend bool operator==(const Elements&, const Elements&) = default;
};

namespace untyped {

/// An operation on opaque elements: sum[i] = in[i] op sum[i], for `count` elements. It must be
/// associative and commutative. `context` is passed on unchanged; its target must outlive the
/// collective.
struct ByteOperation {
    void (*combine)(const std::byte* in, std::byte* sum, std::size_t count, void* context) = nullptr;
    std::uint32_t element_bytes = 1;
    void* context = nullptr;
};

} // namespace untyped

namespace detail {

inline constexpr std::size_t combine_room = 4096;
inline constexpr std::size_t largest_combined = std::size_t{16} << 20;

/// Combines in blocks that stay in the first-level cache, since a target may be one of the sources.
/// Larger elements are combined one by one, in memory of their own.
inline void combine_bytes(const void* state, const std::byte* const* sources, std::size_t source_count,
                          std::byte* const* targets, std::size_t target_count, std::size_t count) {
    const auto& operation = *static_cast<const untyped::ByteOperation*>(state);
    alignas(64) std::byte room[combine_room];
    const std::size_t most = std::max<std::size_t>(combine_room / operation.element_bytes, 1);
    List<std::byte> large;
    if (operation.element_bytes > combine_room) large.resize(operation.element_bytes);
    std::byte* const sum = large.empty() ? room : large.data();
    for (std::size_t at = 0; at < count; at += most) {
        const std::size_t n = std::min(most, count - at);
        const std::size_t offset = at * operation.element_bytes;
        std::memcpy(sum, sources[0] + offset, n * operation.element_bytes);
        for (std::size_t s = 1; s < source_count; ++s)
            operation.combine(sources[s] + offset, sum, n, operation.context);
        for (std::size_t t = 0; t < target_count; ++t)
            std::memcpy(targets[t] + offset, sum, n * operation.element_bytes);
    }
}

template <class Op>
Reduction built_in_reduction(ElementType type) {
    constexpr Op op;
    switch (type) {
    case ElementType::float32: return make_reduction<Op, float>(op);
    case ElementType::float64: return make_reduction<Op, double>(op);
    case ElementType::bfloat16: return make_reduction<Op, bfloat16>(op);
    case ElementType::float16: return make_reduction<Op, float16>(op);
    case ElementType::int32: return make_reduction<Op, std::int32_t>(op);
    case ElementType::int64: return make_reduction<Op, std::int64_t>(op);
    case ElementType::uint8: return make_reduction<Op, unsigned char>(op);
    case ElementType::uint32: return make_reduction<Op, std::uint32_t>(op);
    case ElementType::uint64: return make_reduction<Op, std::uint64_t>(op);
    case ElementType::opaque: break;
    }
    refuse_input("untyped::reduction: opaque elements need an operation of the caller's own");
}

inline OperationRequest untyped_request(const Elements& elements, const void* in, void* out) {
    OperationRequest request;
    request.input = static_cast<const std::byte*>(in);
    request.output = static_cast<std::byte*>(out);
    request.element = elements.type;
    request.element_bytes = elements.bytes;
    return request;
}

/// The bytes of `blocks` times `count` elements. \throws error bad_input: more than a pointer
/// difference can hold
inline std::size_t untyped_bytes(const GroupCore& group, std::string_view what, std::size_t count, std::size_t bytes,
                                 int blocks = 1) {
    std::size_t all = 0;
    if (__builtin_mul_overflow(count, bytes, &all) ||
        __builtin_mul_overflow(all, static_cast<std::size_t>(blocks), &all) || all > PTRDIFF_MAX)
        refuse_input({what, " on rank ", group.world_rank(), ": ", count, " elements of ", bytes, " bytes",
                      blocks == 1 ? std::string() : concat({" from or for each of ", blocks, " ranks"}),
                      " are more than memory can hold"});
    return all;
}

/// \throws error bad_input: no memory for elements that this rank reads or writes
inline void check_untyped_memory(const GroupCore& group, std::string_view what, const char* which, const void* memory,
                                 std::size_t bytes) {
    if (memory == nullptr && bytes != 0)
        refuse_input(
            {what, " on rank ", group.world_rank(), ": the ", which, " is NULL; expected memory of ", bytes, " bytes"});
}

/// Completes a request for a vector of `count` elements.
inline void cut_vector(const GroupCore& group, Collective what, OperationRequest& request, std::size_t count) {
    request.partition = Partition::vector(count);
    request.count = count;
    request.total_bytes = untyped_bytes(group, name_of(what), count, request.element_bytes);
}

/// Completes a request for one block per rank, of `mine` elements each, or of `counts`.
inline void cut_blocks(const GroupCore& group, Collective what, OperationRequest& request, std::size_t mine,
                       std::span<const std::size_t> counts) {
    if (counts.empty()) {
        request.partition = Partition::uniform(mine);
        request.count = mine;
        request.total_bytes = untyped_bytes(group, name_of(what), mine, request.element_bytes, group.size());
    } else {
        const std::size_t all = total(group, what, counts);
        check_count(group, what, "the own block", mine, counts[static_cast<std::size_t>(group.rank())]);
        request.input_counts = counts;
        request.output_counts = counts;
        request.count = hash_of(counts);
        request.total_bytes = untyped_bytes(group, name_of(what), all, request.element_bytes);
    }
}

/// Starts a request. `own_bytes`: the size of this rank's block, if it has one.
template <Collective What, transport Transport>
Operation start_untyped(Group<Transport>& group, OperationRequest& request, int root = 0, std::size_t own_bytes = 0) {
    constexpr BufferUse use = buffer_use(What);
    const auto check = [&](Holding holding, const char* which, const void* memory) {
        if (holds_any(holding, group.rank() == root))
            check_untyped_memory(group, name_of(What), which, memory,
                                 holding == Holding::own_block ? own_bytes : request.total_bytes);
    };
    check(use.input, "input", request.input);
    check(use.output, "output", request.output);
    return group.handle(start<What>(group, request, root, NativeSchedule{}));
}

} // namespace detail

namespace untyped {

/// sum, product, min or max of one of the library's types. Errors: bad_input for other kinds and
/// for opaque elements.
inline Reduction reduction(ReductionKind kind, ElementType type) {
    switch (kind) {
    case ReductionKind::sum: return detail::built_in_reduction<Sum>(type);
    case ReductionKind::product: return detail::built_in_reduction<Product>(type);
    case ReductionKind::min: return detail::built_in_reduction<Min>(type);
    case ReductionKind::max: return detail::built_in_reduction<Max>(type);
    default: refuse_input({"untyped::reduction: found ", name_of(kind), ", expected sum, product, min or max"});
    }
}

/// A caller's own operation. It must live until the collective has started. Errors: bad_input for
/// elements of 0 bytes, or of more than 16 MiB.
inline Reduction reduction(const ByteOperation& operation, ElementType type = ElementType::opaque) {
    if (operation.element_bytes == 0 || operation.element_bytes > detail::largest_combined)
        refuse_input({"untyped::reduction: found elements of ", operation.element_bytes, " bytes, expected 1 to ",
                      detail::largest_combined});
    return {.kind = ReductionKind::user,
            .type = type,
            .state_bytes = static_cast<std::uint16_t>(sizeof operation),
            .combine = &detail::combine_bytes,
            .state = &operation};
}

namespace parts {
inline void set(detail::OperationRequest& request, const Reduction& reduction) {
    if (reduction.combine == &detail::combine_bytes) {
        const auto& operation = *static_cast<const ByteOperation*>(reduction.state);
        if (operation.element_bytes != request.element_bytes)
            refuse_input({"untyped: found an operation on elements of ", operation.element_bytes,
                          " bytes for elements of ", request.element_bytes, "; expected one size"});
    } else if (reduction.type != request.element) {
        refuse_input({"untyped: found a reduction of ", name_of(reduction.type), " for elements of ",
                      name_of(request.element), "; expected one type"});
    }
    if (reduction.state_bytes > (reduction.state == nullptr ? 0 : Reduction::state_capacity))
        refuse_input({"untyped: found a reduction with ", reduction.state_bytes, " bytes of state; expected at most ",
                      Reduction::state_capacity, ", and 0 where state is nullptr"});
    request.reduction = reduction;
}
} // namespace parts

/// As `start_all_reduce`; `in` may be `out`.
template <transport Transport>
[[nodiscard]] Operation all_reduce(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                                   std::size_t count, const Reduction& reduction) {
    detail::check_member(group);
    auto request = detail::untyped_request(elements, in, out);
    detail::cut_vector(group, Collective::all_reduce, request, count);
    parts::set(request, reduction);
    return detail::start_untyped<Collective::all_reduce>(group, request);
}

/// As `start_broadcast`.
template <transport Transport>
[[nodiscard]] Operation broadcast(Group<Transport>& group, const Elements& elements, void* data, std::size_t count,
                                  int root) {
    detail::check_root(group, root, "broadcast's root");
    auto request = detail::untyped_request(elements, data, data);
    detail::cut_vector(group, Collective::broadcast, request, count);
    return detail::start_untyped<Collective::broadcast>(group, request, root);
}

/// As `start_reduce`; `out` is used at the root.
template <transport Transport>
[[nodiscard]] Operation reduce(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                               std::size_t count, const Reduction& reduction, int root) {
    detail::check_root(group, root, "reduce's root");
    auto request = detail::untyped_request(elements, in, out);
    detail::cut_vector(group, Collective::reduce, request, count);
    parts::set(request, reduction);
    return detail::start_untyped<Collective::reduce>(group, request, root);
}

/// As `start_all_gather`: `mine` elements of every rank, or `counts`.
template <transport Transport>
[[nodiscard]] Operation all_gather(Group<Transport>& group, const Elements& elements, const void* in, std::size_t mine,
                                   void* out, std::span<const std::size_t> counts = {}) {
    detail::check_member(group);
    auto request = detail::untyped_request(elements, in, out);
    detail::cut_blocks(group, Collective::all_gather, request, mine, counts);
    return detail::start_untyped<Collective::all_gather>(group, request, 0, mine * elements.bytes);
}

/// As `start_reduce_scatter`: `mine` elements for every rank, or `counts`.
template <transport Transport>
[[nodiscard]] Operation reduce_scatter(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                                       std::size_t mine, const Reduction& reduction,
                                       std::span<const std::size_t> counts = {}) {
    detail::check_member(group);
    auto request = detail::untyped_request(elements, in, out);
    parts::set(request, reduction);
    detail::cut_blocks(group, Collective::reduce_scatter, request, mine, counts);
    return detail::start_untyped<Collective::reduce_scatter>(group, request, 0, mine * elements.bytes);
}

/// As `start_gather`; `out` is used at the root.
template <transport Transport>
[[nodiscard]] Operation gather(Group<Transport>& group, const Elements& elements, const void* in, std::size_t mine,
                               void* out, int root, std::span<const std::size_t> counts = {}) {
    detail::check_root(group, root, "gather's root");
    auto request = detail::untyped_request(elements, in, out);
    detail::cut_blocks(group, Collective::gather, request, mine, counts);
    return detail::start_untyped<Collective::gather>(group, request, root, mine * elements.bytes);
}

/// As `start_scatter`; `in` is used at the root.
template <transport Transport>
[[nodiscard]] Operation scatter(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                                std::size_t mine, int root, std::span<const std::size_t> counts = {}) {
    detail::check_root(group, root, "scatter's root");
    auto request = detail::untyped_request(elements, in, out);
    detail::cut_blocks(group, Collective::scatter, request, mine, counts);
    return detail::start_untyped<Collective::scatter>(group, request, root, mine * elements.bytes);
}

/// As `start_all_to_all` with counts: `send_counts[j]` elements go to rank j, `receive_counts[i]`
/// come from rank i.
template <transport Transport>
[[nodiscard]] Operation all_to_all(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                                   std::span<const std::size_t> send_counts,
                                   std::span<const std::size_t> receive_counts) {
    detail::check_member(group);
    auto request = detail::untyped_request(elements, in, out);
    const auto bytes_of = [&](std::span<const std::size_t> counts) {
        return detail::untyped_bytes(group, "all_to_all", detail::total(group, Collective::all_to_all, counts),
                                     elements.bytes);
    };
    const std::size_t received = bytes_of(receive_counts);
    detail::check_untyped_memory(group, "all_to_all", "output", out, received);
    request.input_counts = send_counts;
    request.output_counts = receive_counts;
    request.count = 0; // ranks have different lists; each message's size is compared
    request.total_bytes = bytes_of(send_counts);
    detail::check_untyped_memory(group, "all_to_all", "input", in, request.total_bytes);
    return group.handle(detail::start<Collective::all_to_all>(group, request, 0, NativeSchedule{}));
}

namespace parts {
/// Refuses an invalid message before anything is sent. `memory`: of the data to send, or the memory
/// to receive into.
inline void check_message(const GroupCore& group, schedule::StepKind kind, const Elements& elements, const void* memory,
                          std::size_t count, int peer, int tag) {
    detail::check_message(group, kind, peer, tag);
    const bool sends = kind == schedule::StepKind::send;
    const std::string_view what = sends ? "send" : "receive";
    detail::check_untyped_memory(group, what, sends ? "input" : "output", memory,
                                 detail::untyped_bytes(group, what, count, elements.bytes));
}

inline Operation message(GroupCore& group, schedule::StepKind kind, const Elements& elements, const void* in, void* out,
                         std::size_t count, int peer, int tag) {
    check_message(group, kind, elements, kind == schedule::StepKind::send ? in : out, count, peer, tag);
    auto request = detail::untyped_request(elements, in, out);
    request.count = count;
    return group.handle(group.start_point_to_point(kind, peer, static_cast<std::uint32_t>(tag), request));
}
} // namespace parts

/// As `start_send`.
template <transport Transport>
[[nodiscard]] Operation send(Group<Transport>& group, const Elements& elements, const void* data, std::size_t count,
                             int peer, int tag) {
    return parts::message(group, schedule::StepKind::send, elements, data, nullptr, count, peer, tag);
}

/// As `start_receive`.
template <transport Transport>
[[nodiscard]] Operation receive(Group<Transport>& group, const Elements& elements, void* data, std::size_t count,
                                int peer, int tag) {
    return parts::message(group, schedule::StepKind::receive, elements, nullptr, data, count, peer, tag);
}

} // namespace untyped
UNISONO_NAMESPACE_END
