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

#include "unisono/collective/shell.hpp"
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
    switch (type) {
    case ElementType::float32: return reduction_of<Op, float>;
    case ElementType::float64: return reduction_of<Op, double>;
    case ElementType::bfloat16: return reduction_of<Op, bfloat16>;
    case ElementType::float16: return reduction_of<Op, float16>;
    case ElementType::int32: return reduction_of<Op, std::int32_t>;
    case ElementType::int64: return reduction_of<Op, std::int64_t>;
    case ElementType::uint8: return reduction_of<Op, unsigned char>;
    case ElementType::uint32: return reduction_of<Op, std::uint32_t>;
    case ElementType::uint64: return reduction_of<Op, std::uint64_t>;
    case ElementType::opaque: break;
    }
    refuse_input("untyped::reduction: opaque elements need an operation of the caller's own");
}

/// `count` elements in memory that is not written if it is an input.
inline CallBuffer untyped_buffer(const Elements& elements, const void* data, std::size_t count) {
    return {static_cast<std::byte*>(const_cast<void*>(data)), count, elements.bytes, elements.type};
}

/// By the native schedule.
template <Collective What, transport Transport>
Call untyped_call(const Group<Transport>& group, int root = 0, Counts input = {}, Counts output = {}) {
    static constexpr NativeSchedule native;
    return call_on<What, std::span<std::byte>>(group, native, NoOperation{}, root, input, output);
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
/// The call with this reduction.
inline detail::Call with(detail::Call call, const Elements& elements, const Reduction& reduction) {
    if (reduction.combine == &detail::combine_bytes) {
        const auto& operation = *static_cast<const ByteOperation*>(reduction.state);
        if (operation.element_bytes != elements.bytes)
            refuse_input({"untyped: found an operation on elements of ", operation.element_bytes,
                          " bytes for elements of ", elements.bytes, "; expected one size"});
    } else if (reduction.type != elements.type) {
        refuse_input({"untyped: found a reduction of ", name_of(reduction.type), " for elements of ",
                      name_of(elements.type), "; expected one type"});
    }
    if (reduction.state_bytes > (reduction.state == nullptr ? 0 : Reduction::state_capacity))
        refuse_input({"untyped: found a reduction with ", reduction.state_bytes, " bytes of state; expected at most ",
                      Reduction::state_capacity, ", and 0 where state is nullptr"});
    if (elements.bytes == 0) refuse_input("untyped: found elements of 0 bytes; expected at least 1");
    call.op = reduction;
    return call;
}

inline constexpr std::size_t fitting = detail::CallBuffer::fitting;
} // namespace parts

/// As `start_all_reduce`; `in` may be `out`.
template <transport Transport>
[[nodiscard]] Operation all_reduce(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                                   std::size_t count, const Reduction& reduction) {
    return group.start(parts::with(detail::untyped_call<Collective::all_reduce>(group), elements, reduction),
                       detail::untyped_buffer(elements, in, count), detail::untyped_buffer(elements, out, count));
}

/// As `prepare_all_reduce`; `in` may be `out`.
template <transport Transport>
[[nodiscard]] Prepared prepare_all_reduce(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                                          std::size_t count, const Reduction& reduction) {
    return group.prepare(parts::with(detail::untyped_call<Collective::all_reduce>(group), elements, reduction),
                         detail::untyped_buffer(elements, in, count), detail::untyped_buffer(elements, out, count));
}

/// As `start_broadcast`.
template <transport Transport>
[[nodiscard]] Operation broadcast(Group<Transport>& group, const Elements& elements, void* data, std::size_t count,
                                  int root) {
    const detail::CallBuffer all = detail::untyped_buffer(elements, data, count);
    return group.start(detail::untyped_call<Collective::broadcast>(group, root), all, all);
}

/// As `start_reduce`; `out` is used at the root.
template <transport Transport>
[[nodiscard]] Operation reduce(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                               std::size_t count, const Reduction& reduction, int root) {
    return group.start(parts::with(detail::untyped_call<Collective::reduce>(group, root), elements, reduction),
                       detail::untyped_buffer(elements, in, count), detail::untyped_buffer(elements, out, count));
}

/// As `start_all_gather`: `mine` elements of every rank, or `counts`.
template <transport Transport>
[[nodiscard]] Operation all_gather(Group<Transport>& group, const Elements& elements, const void* in, std::size_t mine,
                                   void* out, std::span<const std::size_t> counts = {}) {
    return group.start(detail::untyped_call<Collective::all_gather>(group, 0, counts, counts),
                       detail::untyped_buffer(elements, in, mine),
                       detail::untyped_buffer(elements, out, parts::fitting));
}

/// As `start_reduce_scatter`: `mine` elements for every rank, or `counts`.
template <transport Transport>
[[nodiscard]] Operation reduce_scatter(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                                       std::size_t mine, const Reduction& reduction,
                                       std::span<const std::size_t> counts = {}) {
    return group.start(
        parts::with(detail::untyped_call<Collective::reduce_scatter>(group, 0, counts, counts), elements, reduction),
        detail::untyped_buffer(elements, in, parts::fitting), detail::untyped_buffer(elements, out, mine));
}

/// As `start_gather`; `out` is used at the root.
template <transport Transport>
[[nodiscard]] Operation gather(Group<Transport>& group, const Elements& elements, const void* in, std::size_t mine,
                               void* out, int root, std::span<const std::size_t> counts = {}) {
    return group.start(detail::untyped_call<Collective::gather>(group, root, counts, counts),
                       detail::untyped_buffer(elements, in, mine),
                       detail::untyped_buffer(elements, out, parts::fitting));
}

/// As `start_scatter`; `in` is used at the root.
template <transport Transport>
[[nodiscard]] Operation scatter(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                                std::size_t mine, int root, std::span<const std::size_t> counts = {}) {
    return group.start(detail::untyped_call<Collective::scatter>(group, root, counts, counts),
                       detail::untyped_buffer(elements, in, parts::fitting),
                       detail::untyped_buffer(elements, out, mine));
}

/// As `start_all_to_all` with counts: `send_counts[j]` elements go to rank j, `receive_counts[i]`
/// come from rank i.
template <transport Transport>
[[nodiscard]] Operation all_to_all(Group<Transport>& group, const Elements& elements, const void* in, void* out,
                                   std::span<const std::size_t> send_counts,
                                   std::span<const std::size_t> receive_counts) {
    return group.start(detail::untyped_call<Collective::all_to_all>(group, 0, send_counts, receive_counts),
                       detail::untyped_buffer(elements, in, parts::fitting),
                       detail::untyped_buffer(elements, out, parts::fitting));
}

/// As `start_send`.
template <transport Transport>
[[nodiscard]] Operation send(Group<Transport>& group, const Elements& elements, const void* data, std::size_t count,
                             int peer, int tag) {
    return group.start_message(schedule::StepKind::send, detail::untyped_buffer(elements, data, count), peer, tag);
}

/// As `start_receive`.
template <transport Transport>
[[nodiscard]] Operation receive(Group<Transport>& group, const Elements& elements, void* data, std::size_t count,
                                int peer, int tag) {
    return group.start_message(schedule::StepKind::receive, detail::untyped_buffer(elements, data, count), peer, tag);
}

} // namespace untyped
UNISONO_NAMESPACE_END
