#pragma once

/// \file
/// The common part of the typed collectives: each makes a `Call` and buffers of its arguments, and
/// the group runs it. The data of a collective: contiguous elements, or one element.
///
/// | argument | elements | example |
/// | --- | --- | --- |
/// | anything that `std::span` views | its own | a vector, an array, `std::span(pointer, count)` |
/// | a variable of a trivially copyable type | one | `double loss; un::all_reduce(world, loss);` |
/// | `DeviceSpan`, where ranks have devices | its own | `un::all_reduce(world, gradient.span());` |
///
/// A variable is a number, an enumerator or a structure: `un::broadcast(world, settings, 0)` copies
/// the root's structure byte by byte, so it must contain no pointers. Pointers and iterators are
/// refused, and so is a temporary as a result, which would be lost.

#include "unisono/arithmetic/arithmetic.hpp"
#include "unisono/arithmetic/operations.hpp"
#include "unisono/collective/native.hpp"
#include "unisono/core/device_span.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/group.hpp"
#include "unisono/group/sizes.hpp"
#include "unisono/transport/transport.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// True for views of device memory.
template <class B>
concept views_device = is_device_span<std::remove_cvref_t<B>>;

/// One element in a variable: not a view, pointer, iterator or range.
template <class T>
concept lone_element = element<T> && !spannable<T> && !std::is_array_v<T> && !views_device<T> &&
                       std::is_copy_constructible_v<std::remove_cv_t<T>> && !std::is_empty_v<T> &&
                       !std::input_or_output_iterator<std::remove_cv_t<T>> && !requires(T& t) { t.begin(); } &&
                       !requires(T& t) { t.data(); };

template <spannable B>
constexpr auto span_of(B& b) {
    return as_span(b);
}
template <lone_element T>
constexpr std::span<T, 1> span_of(T& one) {
    return std::span<T, 1>(&one, 1);
}
template <class T>
constexpr DeviceSpan<T> span_of(const DeviceSpan<T>& view) {
    return view;
}

/// Memory that outlives the call, by the type that a forwarding reference deduces.
template <class B>
concept outlives_call =
    std::is_lvalue_reference_v<B> || is_span<std::remove_cv_t<B>> || std::ranges::borrowed_range<B> || views_device<B>;

} // namespace detail

/// Elements that are read: a range that `std::span` can view, or one element.
template <class B>
concept buffer = !detail::views_device<B> && requires(B& b) {
    detail::span_of(b);
    requires element<std::remove_const_t<typename decltype(detail::span_of(b))::element_type>>;
};

/// The element type of a buffer.
template <class B>
using buffer_element = std::remove_const_t<typename decltype(detail::span_of(std::declval<B&>()))::element_type>;

/// A buffer that can be written: no temporary element.
template <class B>
concept writable_buffer =
    buffer<B> && !std::is_const_v<typename decltype(detail::span_of(std::declval<B&>()))::element_type> &&
    (detail::spannable<B> || std::is_lvalue_reference_v<B>);

/// The data that a collective of this transport reads: a buffer, or device memory if its ranks have
/// devices.
template <class B, class Transport>
concept data_of = buffer<B> || (detail::views_device<B> && streaming_transport<Transport>);

/// The data that a collective of this transport writes.
template <class B, class Transport>
concept result_of = writable_buffer<B> || (detail::views_device<B> && streaming_transport<Transport> &&
                                           !std::is_const_v<typename std::remove_cvref_t<B>::element_type>);

/// As `result_of`, for a collective that reads `In`: elements of the same type in the same kind of
/// memory.
template <class B, class Transport, class In>
concept result_for = result_of<B, Transport> && std::same_as<buffer_element<B>, buffer_element<In>> &&
                     detail::views_device<B> == detail::views_device<In>;

namespace detail {

/// The elements of a collective's data. For device memory only the addresses are used here.
template <class B>
constexpr auto elements_of(B& b) {
    return std::span(span_of(b).data(), span_of(b).size());
}

/// Says why a collective cannot be called with these data. `Data`: the type of the argument, const
/// if the argument was a temporary.
template <class Data, bool Writes>
struct CollectiveRefuses {
    using Bare = std::remove_cv_t<Data>;
    static constexpr bool memory = buffer<const Bare> || buffer<Bare>;
    static_assert(memory || !std::is_pointer_v<Bare>,
                  "unisono: found a pointer as the data of a collective. Required: std::span(pointer, count). Why: a "
                  "pointer does not say how many elements there are.");
    static_assert(
        memory || std::is_pointer_v<Bare>,
        "unisono: found data of a collective that are neither contiguous nor one trivially copyable value. Required: a "
        "std::vector (not of bool), std::array or std::span of trivially copyable elements, or a number. Why: ranks "
        "exchange the bytes of the elements.");
    static_assert(
        !memory || !Writes,
        "unisono: found arguments that this collective does not take. Required: the group, data that can be written "
        "(not const, and no temporary whose result would be lost), of a type for which the operation is defined (Sum, "
        "Product, Min, Max: float, double, bfloat16, float16, 32 and 64 bit signed integers, unsigned char; of other "
        "types an operation of your own), and then what its declaration says, in its order. Why: every rank gets the "
        "result in its own memory.");
    static_assert(
        !memory || Writes,
        "unisono: found arguments that this collective does not take. Required: the group, the elements to send, "
        "memory of the same element type that can be written (with start_..., no temporaries), and then what its "
        "declaration says, in its order.");
};

/// The data of an invalid call. A conversion to this type is a worse match than any other, so
/// overload resolution prefers a user's functions with these names, which argument-dependent lookup
/// finds.
template <bool Writes>
struct AnyData {
    template <class T>
    AnyData(const T&) {
        static_cast<void>(CollectiveRefuses<T, Writes>{});
    }
};

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
