#pragma once

/// \file
/// The sum on a grid as an operation of collectives: of images, 8 bytes per element, with any
/// schedule; or directly of the ranks' own numbers, if one rank sees those of all.

#include "unisono/arithmetic/grid.hpp"
#include "unisono/arithmetic/reduction.hpp"

#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
UNISONO_NO_CONTRACTION_BEGIN

/// Adds images (grid.hpp, narrow_grid.hpp): for all_reduce, reduce and reduce_scatter of
/// std::int64_t or std::int32_t, with any schedule, with the same bits. A mark stays, on all ranks.
/// Costs two thirds more than `Sum` in the first cache, and the same in memory. If it is known that
/// no image is marked, `Sum` gives the same result.
struct GridSum {
    static constexpr std::string_view name = "sum on a grid";
    UNISONO_INLINE constexpr std::int64_t operator()(std::int64_t a, std::int64_t b) const {
        return detail::add_images(a, b);
    }
    UNISONO_INLINE constexpr std::int32_t operator()(std::int32_t a, std::int32_t b) const {
        return detail::add_images(a, b);
    }
    friend bool operator==(const GridSum&, const GridSum&) = default;
};

UNISONO_NO_CONTRACTION_END
namespace detail {

/// A range of elements on one grid: from the end of the previous range to `end`.
struct GridStretch {
    std::size_t end = 0;
    std::int32_t exponent = 0;
};

/// The grid of each element, for a reduction of elements [first, first + count). Refers to the
/// ranges.
struct GridMap {
    const GridStretch* stretches = nullptr; ///< they cover all elements, in order
    std::size_t first = 0;
    double weight = 1; ///< of every source

    /// Calls visit(at, count, exponent) for each range of [first + position, first + position +
    /// count), with `at` from 0.
    template <class Visit>
    void visit(std::size_t position, std::size_t count, Visit&& visit) const {
        const GridStretch* one = stretches;
        const std::size_t begin = first + position;
        const std::size_t end = begin + count;
        if (count == 0) return;
        while (one->end <= begin) ++one;
        for (std::size_t at = begin; at < end; ++one) {
            const std::size_t until = one->end < end ? one->end : end;
            if (until > at) visit(at - begin, until - at, one->exponent);
            at = until > at ? until : at;
        }
    }
};

UNISONO_NO_CONTRACTION_BEGIN

/// Each source becomes an image in registers; only numbers are read and written. Two sources are
/// added directly into the targets, more through blocks of images that stay in the first cache.
template <class T, Imaging How>
struct CombineOnGrid {
    const std::byte* const* sources;
    std::size_t source_count;
    std::byte* const* targets;
    std::size_t target_count;
    std::size_t at;
    std::size_t count;
    double weight;
    std::int32_t exponent;

    UNISONO_INLINE const T* source(std::size_t s) const { return reinterpret_cast<const T*>(sources[s]) + at; }
    UNISONO_INLINE T* target(std::size_t t) const { return reinterpret_cast<T*>(targets[t]) + at; }

    /// The sum of two as a number. Two rounded addends are exact in double, and so is their sum (at
    /// most 2^52 steps): with rounded = fma(w, x, M), (rounded_a - 2 M) + rounded_b takes half of
    /// the instructions, and has the same bits. If the compiler may regroup sums, images are used.
    UNISONO_INLINE static double add_two(const ImageMaker<How>& image_of,
                                         const ImageScale<How == Imaging::fused>& number, double a, double b) {
#if !defined(__FAST_MATH__) && !defined(__ASSOCIATIVE_MATH__)
        if constexpr (How == Imaging::fused) {
            const double first = __builtin_fma(image_of.weight, a, image_of.magic) - 2 * image_of.magic;
            return first + __builtin_fma(image_of.weight, b, image_of.magic);
        } else
#endif
            return number(image_of(a) + image_of(b));
    }

    UNISONO_INLINE void two() const {
        const ImageScale<How == Imaging::fused> number(exponent);
        const ImageMaker<How> image_of(weight, exponent);
        const T* const a = source(0);
        const T* const b = source(1);
        T* const first = target(0);
        T* const second = target(target_count - 1);
        UNISONO_ELEMENTWISE
        for (std::size_t i = 0; i < count; ++i) {
            const T sum =
                grid_narrow<T>(add_two(image_of, number, grid_wide(grid_load(a, i)), grid_wide(grid_load(b, i))));
            first[i] = sum;
            second[i] = sum;
        }
    }

    UNISONO_INLINE void by_blocks() const {
        constexpr std::size_t block = 256;
        const ImageScale<How == Imaging::fused> number(exponent);
        const ImageMaker<How> image_of(weight, exponent);
        alignas(64) std::uint64_t sums[block];
        for (std::size_t begin = 0; begin < count; begin += block) {
            const std::size_t n = count - begin < block ? count - begin : block;
            for (std::size_t i = 0; i < block; ++i) sums[i] = 0;
            std::size_t s = 0;
            for (; s + 2 <= source_count; s += 2) {
                const T* const a = source(s) + begin;
                const T* const b = source(s + 1) + begin;
                UNISONO_ELEMENTWISE
                for (std::size_t i = 0; i < n; ++i)
                    sums[i] += image_of(grid_wide(grid_load(a, i))) + image_of(grid_wide(grid_load(b, i)));
            }
            if (s < source_count) {
                const T* const a = source(s) + begin;
                UNISONO_ELEMENTWISE
                for (std::size_t i = 0; i < n; ++i) sums[i] += image_of(grid_wide(grid_load(a, i)));
            }
            T* const to = target(0) + begin;
            UNISONO_ELEMENTWISE
            for (std::size_t i = 0; i < n; ++i) to[i] = grid_narrow<T>(number(sums[i]));
            for (std::size_t t = 1; t < target_count; ++t) {
                T* const other = target(t) + begin;
                UNISONO_ELEMENTWISE
                for (std::size_t i = 0; i < n; ++i) other[i] = to[i];
            }
        }
    }

    UNISONO_INLINE void operator()() const {
        if (source_count == 2 && target_count <= 2) return two();
        by_blocks();
    }
};

UNISONO_NO_CONTRACTION_END

template <class T>
struct CombineBody {
    template <Imaging How>
    using Body = CombineOnGrid<T, How>;
};

template <class T>
void combine_on_grid(InstructionSet set, const GridMap& map, const std::byte* const* sources, std::size_t source_count,
                     std::byte* const* targets, std::size_t target_count, std::size_t count, std::size_t position) {
    map.visit(position, count, [&](std::size_t at, std::size_t n, std::int32_t exponent) {
        make_images<CombineBody<T>::template Body, T>(set, map.weight, sources, source_count, targets, target_count, at,
                                                      n, map.weight, exponent);
    });
}

/// The executor's kernel: `state` is a GridMap. Only for schedules that combine all ranks' sources
/// at once.
template <class T>
void grid_kernel(const void* state, const std::byte* const* sources, std::size_t source_count,
                 std::byte* const* targets, std::size_t target_count, std::size_t count, std::size_t position) {
    combine_on_grid<T>(best_instruction_set(), *static_cast<const GridMap*>(state), sources, source_count, targets,
                       target_count, count, position);
}

template <floating_element T>
Reduction grid_reduction(const GridMap& map) {
    return {.kind = ReductionKind::grid,
            .type = element_type_of<T>,
            .state_bytes = static_cast<std::uint16_t>(sizeof(GridMap)),
            .combine = nullptr,
            .state = &map,
            .combine_at = &grid_kernel<T>};
}

} // namespace detail
UNISONO_NAMESPACE_END
