#pragma once

/// \file
/// The computation of Thrust's back end for one element, for host kernels whose loops have another
/// shape: bodies for loop.hpp, with the bits of those kernels.

#include "unisono/arithmetic/grid_sum.hpp"
#include "unisono/arithmetic/narrow_grid.hpp"
#include "unisono/arithmetic/operations.hpp"
#include "unisono/arithmetic/scan.hpp"
#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/extensions/thrust/packs.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The greatest magnitude, as bits, that fits according to `needed_by`.
template <class T>
GridBits<T> most_that_fits(double weight, std::int32_t exponent) {
    GridBits<T> fits = 0;
    GridBits<T> beyond = static_cast<GridBits<T>>(Exponent<T>::mask); // infinity never does
    while (beyond - fits > 1) {
        const auto middle = static_cast<GridBits<T>>(fits + (beyond - fits) / 2);
        (needed_by(magnitude_of<T>(middle), weight) <= exponent ? fits : beyond) = middle;
    }
    return fits;
}

/// Checks a grid and sizes, and returns the grid of the numbers. Images on a Grid are std::int64_t,
/// those on a NarrowGrid std::int32_t. \throws error bad_input
template <class Integer, class T>
Grid grid_of_images(const char* who, const Grid& grid, std::size_t found, std::size_t expected) {
    static_assert(std::is_same_v<Integer, std::int64_t>, "images on a Grid are std::int64_t");
    check_grid<T>(who, grid, found, expected);
    return grid;
}
template <class Integer, class T>
Grid grid_of_images(const char* who, const NarrowGrid& grid, std::size_t found, std::size_t expected) {
    static_assert(std::is_same_v<Integer, std::int32_t>, "images on a NarrowGrid are std::int32_t");
    check_narrow_grid<T>(who, grid, found, expected);
    return grid.wide();
}

UNISONO_NO_CONTRACTION_BEGIN

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

/// A functor of y and x on one array: y is x.
template <class Functor>
struct InPlace {
    Functor functor;
    template <class T>
    UNISONO_INLINE void operator()(T& x) const {
        const T old = x;
        functor(x, old);
    }
};

template <class T>
UNISONO_INLINE GridBits<T> bits_of(const T& value) {
    if constexpr (sizeof(T) == 2) return value.bits;
    else return std::bit_cast<GridBits<T>>(value);
}

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
    static constexpr std::size_t pack = elements_of_pack<T>();
    const T* x;
    std::uint64_t first;
    typename Exponent<T>::Bits exponent;
    std::uint64_t* noted;

    [[nodiscard]] bool packed() const { return aligned_to_packs<pack>(x); }
    UNISONO_INLINE void operator()(std::size_t i) const { run<1>(i); }
    template <std::size_t K>
    UNISONO_INLINE void run(std::size_t i) const {
        constexpr auto mask = Exponent<T>::mask;
        const Pack<T, K> own = read_pack<K>(x + i);
        for (std::size_t e = 0; e < K; ++e) {
            const auto found = bits_of(own.at[e]) & mask;
            if (found < exponent) continue;
            lower_to(noted + 1, first + i + e);
            if (found == mask) lower_to(noted, first + i + e);
        }
    }
};

struct MagnitudeBits {
    template <class T>
    UNISONO_INLINE GridBits<T> of(const T& x) const {
        return static_cast<GridBits<T>>(bits_of(x) & FindLargest<T>::magnitude);
    }
};

/// The image of an element on a grid.
template <class T, class Integer>
struct PlainImage {
    using Bits = std::make_unsigned_t<Integer>;
    ImageMaker<Imaging::fused> image_of;

    UNISONO_INLINE Integer operator()(const T& x, GridBits<T>) const {
        return static_cast<Integer>(image_of(grid_wide(x)));
    }
    UNISONO_INLINE Integer sum(Integer a, Integer b) const {
        return static_cast<Integer>(static_cast<Bits>(static_cast<Bits>(a) + static_cast<Bits>(b)));
    }
};
/// As above, or a mark if the element does not fit: `most` is the greatest magnitude that fits, as
/// bits. A sum with a mark is a mark.
template <class T, class Integer>
struct MarkedImage {
    ImageMaker<Imaging::fused> image_of;
    GridBits<T> most;

    UNISONO_INLINE Integer operator()(const T& x, GridBits<T> magnitude) const {
        const auto one = static_cast<Integer>(image_of(grid_wide(x)));
        return magnitude <= most ? one : image_mark<Integer>;
    }
    UNISONO_INLINE Integer sum(Integer a, Integer b) const { return add_images(a, b); }
};

#if defined(__CUDA_ARCH__)
/// True if all threads of the warp are here, and may exchange values.
UNISONO_INLINE bool in_whole_warp() { return __activemask() == 0xffffffffu; }
UNISONO_INLINE std::uint64_t from_warp(std::uint64_t value, unsigned apart) {
    return __shfl_down_sync(0xffffffffu, value, apart);
}
UNISONO_INLINE bool is_first_of_warp() { return threadIdx.x % 32 == 0; }
#else
UNISONO_INLINE bool in_whole_warp() { return false; }
UNISONO_INLINE std::uint64_t from_warp(std::uint64_t value, unsigned) { return value; }
UNISONO_INLINE bool is_first_of_warp() { return true; }
#endif

/// Raises a word to the greatest value of a warp's threads, of which one writes.
UNISONO_INLINE void raise_by_warp(std::uint64_t* word, std::uint64_t value) {
    if (in_whole_warp()) {
        for (unsigned apart = 16; apart != 0; apart /= 2) value = Greater{}(value, from_warp(value, apart));
        if (!is_first_of_warp()) return;
    }
    raise_to(word, value);
}

/// Images of elements; notes the greatest magnitude, as bits.
template <class T, class Integer, bool Add, class Formula = PlainImage<T, Integer>>
struct NoteImages {
    using Note = GridBits<T>;
    static constexpr std::size_t pack = elements_of_pack<T, Integer>(), most_threads = std::size_t{1} << 19;
    Integer* image;
    const T* x;
    Formula formula;
    std::uint64_t* largest;

    [[nodiscard]] bool packed() const { return aligned_to_packs<pack>(x) && aligned_to_packs<pack>(image); }
    UNISONO_INLINE Note start() const { return 0; }
    template <std::size_t K>
    UNISONO_INLINE void see(std::size_t i, const Pack<T, K>& own, Note& note) const {
        Pack<Integer, K> to;
        if constexpr (Add) to = read_pack<K>(image + i);
        for (std::size_t e = 0; e < K; ++e) {
            const GridBits<T> magnitude = MagnitudeBits{}.of(own.at[e]);
            const Integer one = formula(own.at[e], magnitude);
            if constexpr (Add) to.at[e] = formula.sum(to.at[e], one);
            else to.at[e] = one;
            note = Greater{}(note, magnitude);
        }
        write_pack(image + i, to);
    }
    UNISONO_INLINE void tell(const Note& note) const { raise_by_warp(largest, note); }
};

template <class T, class Integer>
struct ImageNumber {
    ImageScale<false> number;
    UNISONO_INLINE void operator()(T& out, const Integer& image) const {
        const T value = grid_narrow<T>(number(static_cast<std::uint64_t>(std::int64_t{image})));
        out = is_marked(image) ? quiet_nan<T>() : value;
    }
};

/// Numbers of images; notes the least index of a marked one.
template <class T, class Integer>
struct NoteMarked {
    static constexpr std::size_t pack = elements_of_pack<T, Integer>();
    T* out;
    const Integer* image;
    ImageNumber<T, Integer> number;
    std::uint64_t* first;

    [[nodiscard]] bool packed() const { return aligned_to_packs<pack>(out) && aligned_to_packs<pack>(image); }
    UNISONO_INLINE void operator()(std::size_t i) const { run<1>(i); }
    template <std::size_t K>
    UNISONO_INLINE void run(std::size_t i) const {
        const Pack<Integer, K> own = read_pack<K>(image + i);
        Pack<T, K> to;
        for (std::size_t e = 0; e < K; ++e) {
            number(to.at[e], own.at[e]);
            if (is_marked(own.at[e])) lower_to(first, i + e);
        }
        write_pack(out + i, to);
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

struct SquareImage {
    std::uint64_t bits;
    double magic;

    UNISONO_INLINE explicit SquareImage(std::int32_t exponent)
        : bits(magic_bits(2 * exponent)), magic(std::bit_cast<double>(bits)) {}
    template <class T>
    UNISONO_INLINE WideCount of(const T& x) const {
        const double one = grid_wide(x);
        return {0, std::bit_cast<std::uint64_t>(__builtin_fma(one, one, magic)) - bits};
    }
};

template <class T>
struct NoteLargest {
    using Note = GridBits<T>;
    static constexpr std::size_t pack = elements_of_pack<T>(), most_threads = std::size_t{1} << 17;
    const T* x;
    std::uint64_t* largest;

    [[nodiscard]] bool packed() const { return aligned_to_packs<pack>(x); }
    UNISONO_INLINE Note start() const { return 0; }
    template <std::size_t K>
    UNISONO_INLINE void see(std::size_t, const Pack<T, K>& own, Note& note) const {
        for (std::size_t e = 0; e < K; ++e) note = Greater{}(note, MagnitudeBits{}.of(own.at[e]));
    }
    UNISONO_INLINE void tell(const Note& note) const { raise_by_warp(largest, note); }
};

/// Adds squares to noted ones. `exponent`: of the grid; `unknown`: noted[0] determines it.
template <class T>
struct NoteSquares {
    struct Note {
        SquareImage square; ///< meaningless unless `possible`
        bool possible;      ///< there is a grid
        GridBits<T> largest = 0;
        WideCount sum{};
    };
    static constexpr std::size_t pack = elements_of_pack<T>(), most_threads = std::size_t{1} << 17;
    static constexpr std::int32_t unknown = std::numeric_limits<std::int32_t>::min();
    const T* x;
    std::int32_t exponent;
    std::uint64_t* noted;

    [[nodiscard]] bool packed() const { return aligned_to_packs<pack>(x); }
    UNISONO_INLINE Note start() const {
        std::int32_t on = exponent;
        if (exponent == unknown)
            on = exponent_of_squares(needed_by(magnitude_of<T>(static_cast<GridBits<T>>(noted[0])), 1.0));
        const bool possible = on != Grid::not_finite;
        return {SquareImage(possible ? on : 0), possible};
    }
    template <std::size_t K>
    UNISONO_INLINE void see(std::size_t, const Pack<T, K>& own, Note& note) const {
        for (std::size_t e = 0; e < K; ++e) {
            note.sum = AddWideCounts{}(note.sum, note.square.of(own.at[e]));
            note.largest = Greater{}(note.largest, MagnitudeBits{}.of(own.at[e]));
        }
    }
    UNISONO_INLINE void tell(Note note) const {
        if (!note.possible) return;
        if (in_whole_warp()) {
            for (unsigned apart = 16; apart != 0; apart /= 2) {
                note.sum = AddWideCounts{}(note.sum, {from_warp(note.sum.high, apart), from_warp(note.sum.low, apart)});
                note.largest = Greater{}(note.largest, static_cast<GridBits<T>>(from_warp(note.largest, apart)));
            }
            if (!is_first_of_warp()) return;
        }
        if (exponent != unknown) raise_to(noted, note.largest);
        add_to(noted + 1, note.sum.low & 0xffffffffu);
        add_to(noted + 2, note.sum.low >> 32);
        add_to(noted + 3, note.sum.high); // below 2^32 for fewer than 2^44 elements
    }
};
/// A tile of the host's systems (loop.hpp): the sum has carries, so a loop with both is not
/// vectorised, and the greatest magnitude has a loop of its own.
template <class T>
UNISONO_INLINE void see_tile(const NoteSquares<T>& body, std::size_t begin, std::size_t end,
                             typename NoteSquares<T>::Note& note) {
    const SquareImage square = note.square;
    WideCount sum = note.sum;
    for (std::size_t i = begin; i < end; ++i) sum = AddWideCounts{}(sum, square.of(body.x[i]));
    note.sum = sum;
    if (body.exponent == NoteSquares<T>::unknown) return; // it is noted already
    GridBits<T> largest = note.largest;
    for (std::size_t i = begin; i < end; ++i) largest = Greater{}(largest, MagnitudeBits{}.of(body.x[i]));
    note.largest = largest;
}

UNISONO_NO_CONTRACTION_END

} // namespace detail
UNISONO_NAMESPACE_END
