#pragma once

/// \file
/// The computation of Thrust's back end for one element, for host kernels whose loops have another
/// shape: bodies for thrust_loop.hpp, with the bits of those kernels.

#include "unisono/arithmetic/grid_sum.hpp"
#include "unisono/arithmetic/operations.hpp"
#include "unisono/arithmetic/scan.hpp"
#include "unisono/arithmetic/square_sum.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The most pointers among a kernel's arguments.
inline constexpr std::size_t thrust_most_arrays = 32;

UNISONO_NO_CONTRACTION_BEGIN

struct Lesser {
    template <class V>
    UNISONO_INLINE V operator()(V a, V b) const {
        return b < a ? b : a;
    }
};
struct Greater {
    template <class V>
    UNISONO_INLINE V operator()(V a, V b) const {
        return a < b ? b : a;
    }
};

template <class T>
struct CopyElement {
    UNISONO_INLINE void operator()(T& y, const T& x) const { y = x; }
};

/// Converts to another floating type: widened exactly, and rounded once.
template <class To, class From>
struct CastElement {
    UNISONO_INLINE void operator()(To& y, const From& x) const {
        y = canonical(static_cast<To>(static_cast<accumulator_t<To>>(widen(x))));
    }
};

/// n sources into m targets, as `Combine`.
template <class Op, class T>
struct CombineElement {
    using Fold = Folding<Op, T>;
    Op op;
    std::size_t source_count;
    std::size_t target_count;
    const T* sources[thrust_most_arrays];
    T* targets[thrust_most_arrays];

    UNISONO_INLINE void operator()(std::size_t i) const {
        if (source_count == 1) return store(i, sources[0][i]); // a copy changes no bits
        typename Fold::Accumulator sum = Fold::in(sources[0][i]);
        for (std::size_t s = 1; s < source_count; ++s) sum = op(sum, Fold::in(sources[s][i]));
        store(i, Fold::out(sum));
    }
    UNISONO_INLINE void store(std::size_t i, const T& value) const {
        for (std::size_t t = 0; t < target_count; ++t) targets[t][i] = value;
    }
};

template <class T>
UNISONO_INLINE GridBits<T> bits_of(const T& value) {
    if constexpr (sizeof(T) == 2) return value.bits;
    else return std::bit_cast<GridBits<T>>(value);
}

template <class T>
struct NonFiniteAt {
    const T* x;
    UNISONO_INLINE std::size_t operator()(std::size_t i) const {
        constexpr auto mask = Exponent<T>::mask;
        return (bits_of(x[i]) & mask) == mask ? i : npos;
    }
};

template <class T>
struct FillElement {
    T value;
    UNISONO_INLINE void operator()(T& x) const { x = value; }
};

/// Lowers a word that several threads lower. It is read first, since most threads do not change it.
UNISONO_INLINE void lower_to(std::uint64_t* word, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
    if (*word > value) atomicMin(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(value));
#else
    std::uint64_t found = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (found > value &&
           !__atomic_compare_exchange_n(word, &found, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
#endif
}
UNISONO_INLINE void raise_to(std::uint64_t* word, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
    if (*word < value) atomicMax(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(value));
#else
    std::uint64_t found = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (found < value &&
           !__atomic_compare_exchange_n(word, &found, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
#endif
}

UNISONO_INLINE void add_to(std::uint64_t* word, std::uint64_t value) {
    if (value == 0) return;
#if defined(__CUDA_ARCH__)
    atomicAdd(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(value));
#else
    __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
#endif
}

/// Two words: the least index of an element that is not finite, and of one with at least this
/// exponent. Element i is element first + i of a larger array.
template <class T>
struct NoteMagnitudes {
    const T* x;
    std::uint64_t first;
    typename Exponent<T>::Bits exponent;
    std::uint64_t* noted;
    UNISONO_INLINE void operator()(std::size_t i) const {
        constexpr auto mask = Exponent<T>::mask;
        const auto found = bits_of(x[i]) & mask;
        if (found < exponent) return;
        lower_to(noted + 1, first + i);
        if (found == mask) lower_to(noted, first + i);
    }
};

template <class T>
struct MagnitudeBits {
    const T* x;
    UNISONO_INLINE GridBits<T> operator()(std::size_t i) const {
        return static_cast<GridBits<T>>(bits_of(x[i]) & FindLargest<T>::magnitude);
    }
};

/// An element on a grid, or a mark if it does not fit: `most` is the greatest magnitude that fits,
/// as bits.
template <class T, class I, bool Add>
struct ImageElement {
    ImageMaker<Imaging::fused> image_of;
    GridBits<T> most;

    UNISONO_INLINE void operator()(I& image, const T& x) const {
        const bool fits = (bits_of(x) & FindLargest<T>::magnitude) <= most;
        const auto one = static_cast<I>(image_of(grid_wide(x)));
        const I wanted = fits ? one : image_mark<I>;
        if constexpr (Add) image = add_images(image, wanted);
        else image = wanted;
    }
};

/// As ImageElement without marks; instead it notes the greatest magnitude, as bits.
template <class T, class I, bool Add>
struct NotedImageElement {
    using Bits = std::make_unsigned_t<I>;
    ImageMaker<Imaging::fused> image_of;
    std::uint64_t* largest;

    UNISONO_INLINE void operator()(I& image, const T& x) const {
        const auto one = static_cast<Bits>(image_of(grid_wide(x)));
        if constexpr (Add) image = static_cast<I>(static_cast<Bits>(static_cast<Bits>(image) + one));
        else image = static_cast<I>(one);
        raise_to(largest, bits_of(x) & FindLargest<T>::magnitude);
    }
};

template <class T, class I>
struct ImageNumber {
    ImageScale<false> number;
    UNISONO_INLINE void operator()(T& out, const I& image) const {
        const T value = grid_narrow<T>(number(static_cast<std::uint64_t>(std::int64_t{image})));
        out = is_marked(image) ? quiet_nan<T>() : value;
    }
};

template <class I>
struct MarkedAt {
    const I* image;
    UNISONO_INLINE std::size_t operator()(std::size_t i) const { return is_marked(image[i]) ? i : npos; }
};

/// The sum of all sources' images as a number, as `CombineOnGrid`.
template <class T>
struct CombineOnGridElement {
    ImageMaker<Imaging::fused> image_of;
    ImageScale<false> number;
    std::size_t source_count;
    std::size_t target_count;
    const T* sources[thrust_most_arrays];
    T* targets[thrust_most_arrays];

    UNISONO_INLINE void operator()(std::size_t i) const {
        std::uint64_t sum = 0;
        for (std::size_t s = 0; s < source_count; ++s) sum += image_of(grid_wide(sources[s][i]));
        const T value = grid_narrow<T>(number(sum));
        for (std::size_t t = 0; t < target_count; ++t) targets[t][i] = value;
    }
};

/// 128 bits, as in `SquareSum`.
struct WideCount {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
};
struct AddWideCounts {
    UNISONO_INLINE WideCount operator()(const WideCount& a, const WideCount& b) const {
        const std::uint64_t low = a.low + b.low;
        return {a.high + b.high + (low < a.low ? 1u : 0u), low};
    }
};

template <class T>
struct SquareImage {
    const T* x;
    std::uint64_t bits;
    double magic;

    UNISONO_INLINE WideCount operator()(std::size_t i) const {
        const double one = grid_wide(x[i]);
        return {0, std::bit_cast<std::uint64_t>(__builtin_fma(one, one, magic)) - bits};
    }
};

template <class T>
struct NoteLargest {
    const T* x;
    std::uint64_t* largest;
    UNISONO_INLINE void operator()(std::size_t i) const {
        raise_to(largest, bits_of(x[i]) & FindLargest<T>::magnitude);
    }
};

/// On a GPU the warp's first thread gets the sum and the maximum over the warp, and is the only one
/// to write them.
template <class Bits>
UNISONO_INLINE bool speaks_for_warp([[maybe_unused]] WideCount& sum, [[maybe_unused]] Bits& largest) {
#if defined(__CUDA_ARCH__)
    constexpr unsigned all = 0xffffffffu;
    if (__activemask() != all) return true;
    for (unsigned apart = 16; apart != 0; apart /= 2) {
        const WideCount other{__shfl_down_sync(all, sum.high, apart), __shfl_down_sync(all, sum.low, apart)};
        sum = AddWideCounts{}(sum, other);
        largest = Greater{}(largest, static_cast<Bits>(__shfl_down_sync(all, std::uint64_t{largest}, apart)));
    }
    return threadIdx.x % 32 == 0;
#else
    return true;
#endif
}

/// One of many threads that share an array's elements: its elements are `step` apart, at most `run`
/// of them. `exponent`: of the grid; `unknown`: noted[0] determines it.
template <class T>
struct NoteSquares {
    static constexpr std::int32_t unknown = std::numeric_limits<std::int32_t>::min();
    const T* x;
    std::size_t count;
    std::size_t apart; ///< distance between the first elements of two consecutive threads
    std::size_t step;
    std::size_t run;
    std::int32_t exponent;
    std::uint64_t* noted;

    UNISONO_INLINE void operator()(std::size_t thread) const {
        const std::int32_t on =
            exponent != unknown
                ? exponent
                : exponent_of_squares(needed_by(magnitude_of<T>(static_cast<GridBits<T>>(noted[0])), 1.0));
        if (on == Grid::not_finite) return;
        const std::uint64_t bits = magic_bits(2 * on);
        const SquareImage<T> image{x, bits, std::bit_cast<double>(bits)};
        WideCount sum;
        GridBits<T> largest = 0;
        for (std::size_t i = thread * apart, n = 0; i < count && n < run; i += step, ++n) {
            sum = AddWideCounts{}(sum, image(i));
            largest = Greater{}(largest, MagnitudeBits<T>{x}(i));
        }
        if (!speaks_for_warp(sum, largest)) return;
        if (exponent != unknown) raise_to(noted, largest);
        add_to(noted + 1, sum.low & 0xffffffffu);
        add_to(noted + 2, sum.low >> 32);
        add_to(noted + 3, sum.high); // below 2^32 for fewer than 2^44 elements
    }
};

UNISONO_NO_CONTRACTION_END

} // namespace detail
UNISONO_NAMESPACE_END
