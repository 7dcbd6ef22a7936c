#pragma once

/// \file
/// A reduction as the executor sees it: an untyped kernel and its state. Typed operations
/// (operations.hpp) make them.

#include "unisono/core/element.hpp"
#include "unisono/core/standard.hpp"

#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN

/// The operation with which a collective combines elements; part of its signature, which must be
/// equal on all ranks.
enum class ReductionKind : std::uint8_t { none, sum, product, min, max, weighted_mean, user, grid };

namespace detail {
/// Not in the function, which would make them anew in each call.
inline constexpr std::string_view reduction_names[] = {"none", "sum",           "product",          "min",
                                                       "max",  "weighted mean", "user's operation", "sum on a grid"};
} // namespace detail

constexpr std::string_view name_of(ReductionKind kind) {
    return static_cast<std::size_t>(kind) < std::size(detail::reduction_names)
               ? detail::reduction_names[static_cast<std::size_t>(kind)]
               : "unknown reduction"; // a peer may send any value
}

/// For each i in [0, count): r = sources[0][i] op sources[1][i] op ... in that order (left fold;
/// 16-bit floats are accumulated in float and rounded once), written to targets[t][i] for every t.
/// `source_count` >= 1, `target_count` >= 1. A target may be the same memory as any source, element
/// on element; otherwise they do not overlap. Bits depend only on the values and their order, not
/// on alignment, count, position or instruction set.
using CombineKernel = void (*)(const void* state, const std::byte* const* sources, std::size_t source_count,
                               std::byte* const* targets, std::size_t target_count, std::size_t count);

/// As CombineKernel, for a reduction that differs between elements: the sources begin at element
/// `position` of the whole.
using PositionedKernel = void (*)(const void* state, const std::byte* const* sources, std::size_t source_count,
                                  std::byte* const* targets, std::size_t target_count, std::size_t count,
                                  std::size_t position);

/// An operation on elements of one type, for the untyped executor: its kernels, and its description
/// in a signature.
struct Reduction {
    static constexpr std::size_t state_capacity = 64;  ///< the most bytes of a user's operation
    static constexpr std::size_t state_alignment = 64; ///< the strictest alignment of a user's operation

    ReductionKind kind = ReductionKind::none;
    ElementType type = ElementType::opaque;
    std::uint16_t state_bytes = 0;    ///< of `state`; 0: it is not copied
    std::uint32_t user_operation = 0; ///< a hash of the type of the user's operation; else 0
    CombineKernel combine = nullptr;
    /// A user's operation. Must live until the collective has started, which keeps a copy of
    /// `state_bytes` bytes; if that is 0, until the collective has ended.
    const void* state = nullptr;
    /// Replaces `combine` in schedules that combine all ranks' elements at once (the mapped ones);
    /// only those can use it.
    PositionedKernel combine_at = nullptr;

    /// Combines whole elements; the sources begin at element `position`.
    void run(const std::byte* const* sources, std::size_t source_count, std::byte* const* targets,
             std::size_t target_count, std::size_t count, std::size_t position) const {
        if (combine_at == nullptr) return combine(state, sources, source_count, targets, target_count, count);
        combine_at(state, sources, source_count, targets, target_count, count, position);
    }
};

namespace detail {

template <class T>
struct Behind : T {
    unsigned char more; ///< is within T if T ends in padding
};

/// g++ 12 copies such a struct, if it is a member, as an array of bytes, and no longer sees that
/// the copy contains its pointers: it then drops stores to their targets. So no request to the
/// executor may be such a struct: put small fields between others, not behind pointers.
template <class T>
inline constexpr bool ends_in_padding = sizeof(Behind<T>) == sizeof(T);

} // namespace detail

static_assert(!detail::ends_in_padding<Reduction>);

UNISONO_NAMESPACE_END
