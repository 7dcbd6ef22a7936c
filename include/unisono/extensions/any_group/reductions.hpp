#pragma once

/// \file
/// Elements whose type is known at run time, and what combines them: an operation of the library's,
/// or a function on bytes.

#include "unisono/arithmetic/operations.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

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

/// The types of numbers that other languages and frameworks have. `boolean` is a byte, 0 or 1.
enum class Number : std::uint8_t {
    float32,
    float64,
    bfloat16,
    float16,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    boolean
};

/// The operations on them. Sums and products of integers wrap around. For `boolean`, `sum` and
/// `max` are "any", `product` and `min` are "all".
enum class Operator : std::uint8_t { sum, product, min, max, bit_and, bit_or, bit_xor };

constexpr std::string_view name_of(Number number) {
    constexpr std::string_view names[] = {"float32", "float64", "bfloat16", "float16", "int8",   "int16",  "int32",
                                          "int64",   "uint8",   "uint16",   "uint32",  "uint64", "boolean"};
    return static_cast<std::size_t>(number) < std::size(names) ? names[static_cast<std::size_t>(number)] : "unknown";
}
constexpr std::string_view name_of(Operator op) {
    constexpr std::string_view names[] = {"sum", "product", "min", "max", "and", "or", "xor"};
    return static_cast<std::size_t>(op) < std::size(names) ? names[static_cast<std::size_t>(op)] : "unknown";
}

/// A reduction, and the elements that it takes.
struct Combination {
    Elements elements;
    Reduction reduction;
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

/// Operations that the library's own ones lack: on bits, and on integers of 1 and 2 bytes.
template <class T, untyped::Operator op>
struct IntegerOperation {
    T operator()(T a, T b) const {
        using enum untyped::Operator;
        if constexpr (op == sum) return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
        else if constexpr (op == product)
            return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
        else if constexpr (op == min) return std::min(a, b);
        else if constexpr (op == max) return std::max(a, b);
        else if constexpr (op == bit_and) return static_cast<T>(a & b);
        else if constexpr (op == bit_or) return static_cast<T>(a | b);
        else return static_cast<T>(a ^ b);
    }
};

template <class T, untyped::Operator op>
Reduction integer_reduction(ElementType type) {
    static constexpr IntegerOperation<T, op> operation{};
    Reduction made = make_reduction<IntegerOperation<T, op>, T>(operation);
    made.type = type; // bits have no sign
    return made;
}

/// Two's complement makes the sums and products of signed and unsigned integers the same.
template <class T>
Reduction short_reduction(untyped::Operator op) {
    using enum untyped::Operator;
    using Unsigned = std::make_unsigned_t<T>;
    switch (op) {
    case sum: return integer_reduction<Unsigned, sum>(ElementType::opaque);
    case product: return integer_reduction<Unsigned, product>(ElementType::opaque);
    case min: return integer_reduction<T, min>(ElementType::opaque);
    default: return integer_reduction<T, max>(ElementType::opaque);
    }
}

template <class Unsigned>
Reduction bit_reduction(untyped::Operator op, ElementType type) {
    using enum untyped::Operator;
    switch (op) {
    case bit_and: return integer_reduction<Unsigned, bit_and>(type);
    case bit_or: return integer_reduction<Unsigned, bit_or>(type);
    default: return integer_reduction<Unsigned, bit_xor>(type);
    }
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
    default:
        refuse_input({"untyped::reduction: found ", unisono::name_of(kind), ", expected sum, product, min or max"});
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

/// The elements of a type, for collectives that only move them. Types that the library cannot add
/// are opaque elements of their size. Errors: bad_input for what is no type.
inline Elements elements_of(Number number) {
    constexpr ElementType opaque = ElementType::opaque;
    constexpr Elements all[] = {{ElementType::float32, 4},
                                {ElementType::float64, 8},
                                {ElementType::bfloat16, 2},
                                {ElementType::float16, 2},
                                {opaque, 1},
                                {opaque, 2},
                                {ElementType::int32, 4},
                                {ElementType::int64, 8},
                                {ElementType::uint8, 1},
                                {opaque, 2},
                                {ElementType::uint32, 4},
                                {ElementType::uint64, 8},
                                {opaque, 1}};
    if (static_cast<std::size_t>(number) >= std::size(all))
        refuse_input({"untyped: found ", static_cast<int>(number), " as the type of numbers, expected a Number"});
    return all[static_cast<std::size_t>(number)];
}

/// The reduction of these numbers. Errors: bad_input for bits of floating-point numbers, and for
/// what is no operator or type.
inline Combination combination(Operator op, Number number) {
    using enum Operator;
    Elements elements = elements_of(number);
    if (op > bit_xor)
        refuse_input({"untyped: found ", static_cast<int>(op), " as the operation, expected an Operator"});
    if (number == Number::boolean) { // of 0 and 1
        if (op == sum || op == bit_or) op = max;
        if (op == product || op == bit_and) op = min;
    }
    if (op >= bit_and) {
        if (number <= Number::float16)
            refuse_input(
                {"untyped: found the operation ", name_of(op), " for ", name_of(number), "; expected an integer type"});
        switch (elements.bytes) {
        case 1: return {elements, detail::bit_reduction<std::uint8_t>(op, elements.type)};
        case 2: return {elements, detail::bit_reduction<std::uint16_t>(op, elements.type)};
        case 4: return {elements, detail::bit_reduction<std::uint32_t>(op, elements.type)};
        default: return {elements, detail::bit_reduction<std::uint64_t>(op, elements.type)};
        }
    }
    if (number == Number::int16) return {elements, detail::short_reduction<std::int16_t>(op)};
    if (number == Number::uint16) return {elements, detail::short_reduction<std::uint16_t>(op)};
    if (number == Number::int8 && op >= min) return {elements, detail::short_reduction<std::int8_t>(op)};
    if (elements.type == ElementType::opaque) elements.type = ElementType::uint8; // the bits are the same
    constexpr ReductionKind kinds[] = {ReductionKind::sum, ReductionKind::product, ReductionKind::min,
                                       ReductionKind::max};
    return {elements, reduction(kinds[static_cast<std::size_t>(op)], elements.type)};
}

} // namespace untyped
UNISONO_NAMESPACE_END
