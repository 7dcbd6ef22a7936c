#pragma once

/// \file
/// The common part of the typed collectives: each makes a `Call` and buffers of its arguments, and
/// the group runs it.

#include "unisono/arithmetic/operations.hpp"
#include "unisono/collective/buffer.hpp"
#include "unisono/collective/native.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/group.hpp"
#include "unisono/group/sizes.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Elements as a collective's data.
template <class T>
[[gnu::always_inline]] inline CallBuffer buffer_at(T* first, std::size_t count, MemorySpace space = MemorySpace::host) {
    using Element = std::remove_const_t<T>; // an input is only read
    return {reinterpret_cast<std::byte*>(const_cast<Element*>(first)), count,
            static_cast<std::uint32_t>(sizeof(Element)), element_type_of<Element>, space};
}
/// The elements of a collective's data.
template <class B>
[[gnu::always_inline]] inline CallBuffer buffer_of(B&& data) {
    const auto elements = span_of(data);
    return buffer_at(elements.data(), elements.size(), views_device<B> ? MemorySpace::device : MemorySpace::host);
}
/// Spans need none of the tests of a buffer.
template <class T, std::size_t extent>
[[gnu::always_inline]] inline CallBuffer buffer_of(std::span<T, extent> data) {
    return buffer_at(data.data(), data.size());
}

/// The schedule for data on the device; extensions/device/on_device.hpp defines it.
template <Collective What, class T, class Op, streaming_transport Transport, class Family>
void plan_on_device(GroupCore& group, const Call& call, OperationRequest& request);

/// The operation of a collective that does not reduce.
struct NoOperation {};

/// A call on data in buffers such as `B`.
template <Collective What, class B, transport Transport, class Family, class Op = NoOperation>
[[gnu::always_inline]] inline Call call_on(const Group<Transport>&, const Family& family, const Op& op = {},
                                           int root = 0, Counts input = {}, Counts output = {}) {
    using T = buffer_element<std::remove_reference_t<B>>;
    Call made{.what = What, .root = root, .by = {}, .input_counts = input, .output_counts = output};
    if constexpr (built_in_operation<Op>) made.op = reduction_of<Op, T>;
    else if constexpr (!std::same_as<Op, NoOperation>) made.op = make_reduction<Op, T>(op);
    if constexpr (views_device<B>) made.by = {&plan_on_device<What, T, Op, Transport, Family>, &family};
    else made.by = {&plan_of_family<What, Transport, Family>, is_default(family) ? nullptr : &family};
    return made;
}

} // namespace detail
UNISONO_NAMESPACE_END
