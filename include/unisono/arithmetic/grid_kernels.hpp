#pragma once

/// \file
/// The loops behind grid.hpp. They hold under -ffast-math: the critical steps use integers, or one
/// fused multiply-add whose result is read as bits; there is no sum of floats to reassociate.

#include "unisono/arithmetic/vectorised.hpp"
#include "unisono/core/element.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The mark of an image type: 64-bit integers, or 32-bit ones (narrow_grid.hpp).
template <class Integer>
inline constexpr Integer image_mark = std::numeric_limits<Integer>::min();
inline constexpr std::int64_t grid_mark = image_mark<std::int64_t>;

/// Images and their sums are in [-2^62, 2^62) (or 2^30), where the upper two bits are equal. Any
/// other value is a mark, or an overflow.
template <class Integer>
UNISONO_ON_DEVICE constexpr bool is_marked(Integer image) {
    const auto bits = static_cast<std::make_unsigned_t<Integer>>(image);
    return ((bits ^ (bits << 1)) >> (8 * sizeof(Integer) - 1)) != 0;
}
/// The sum of two images. A mark stays a mark, and a sum out of range becomes one.
template <class Integer>
UNISONO_INLINE constexpr Integer add_images(Integer a, Integer b) {
    using Bits = std::make_unsigned_t<Integer>;
    const Bits x = static_cast<Bits>(a);
    const Bits y = static_cast<Bits>(b);
    const Bits sum = x + y;
    const Bits bad = ((x ^ (x << 1)) | (y ^ (y << 1)) | (sum ^ (sum << 1))) >> (8 * sizeof(Integer) - 1);
    const Bits mask = Bits{0} - bad; // all ones if it is bad
    return static_cast<Integer>((sum & ~mask) | (static_cast<Bits>(image_mark<Integer>) & mask));
}

/// The bits of M = 1.5 * 2^(exponent + 1).
constexpr std::uint64_t magic_bits(std::int32_t exponent) {
    return (static_cast<std::uint64_t>(exponent + 1024) << 52) | (std::uint64_t{1} << 51);
}
/// 2^exponent, for exponents of normal numbers.
constexpr double power_of_two(std::int32_t exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// The least E with |x| < 2^E: -5000 (Grid::nothing) for zero, 5000 (Grid::not_finite) for NaN and
/// infinity.
constexpr std::int32_t grid_exponent_of(double x) {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(x) & 0x7fffffffffffffffu;
    if (bits == 0) return -5000;
    if (bits >= 0x7ff0000000000000u) return 5000;
    if (bits >> 52 != 0) return static_cast<std::int32_t>(bits >> 52) - 1022;
    return 64 - std::countl_zero(bits) - 1074;
}
/// |x| / 2^grid_exponent_of(x), in [0.5, 1), for finite x other than zero.
constexpr double grid_fraction_of(double x) {
    std::uint64_t bits = std::bit_cast<std::uint64_t>(x) & 0x7fffffffffffffffu;
    if (bits >> 52 == 0) bits <<= std::countl_zero(bits) - 11; // its highest bit becomes the implicit one
    return std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3fe0000000000000u);
}

template <class T>
UNISONO_ON_DEVICE T quiet_nan() {
    if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(0x7fc00000u);
    else if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(std::uint64_t{0x7ff8000000000000u});
    else {
        T value;
        value.bits = std::is_same_v<T, bfloat16> ? 0x7fc0u : 0x7e00u;
        return value;
    }
}

template <class T>
using GridBits =
    std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;

template <class T>
UNISONO_INLINE T grid_load(const T* from, std::size_t i) {
    T value;
    __builtin_memcpy(&value, from + i, sizeof(T));
    return value;
}

/// Converts to double, exactly.
template <class T>
UNISONO_INLINE double grid_wide(T value) {
    if constexpr (sizeof(T) == 2) return static_cast<double>(static_cast<float>(value));
    else return static_cast<double>(value);
}

/// The number whose magnitude has these bits; infinity and NaN are kept.
template <class T>
UNISONO_ON_DEVICE double magnitude_of(GridBits<T> bits) {
    if constexpr (sizeof(T) == 8) return std::bit_cast<double>(bits);
    else if constexpr (sizeof(T) == 4) {
        if (bits >= 0x7f800000u) return std::bit_cast<double>(std::uint64_t{0x7ff0000000000000u});
        // By hand: a conversion would turn a subnormal float into zero if subnormals are flushed.
        if (bits < 0x00800000u) return static_cast<double>(bits) * 0x1p-149;
        return std::bit_cast<double>((std::uint64_t{bits} << 29) + (std::uint64_t{1023 - 127} << 52));
    } else {
        T value;
        value.bits = bits;
        const std::uint32_t infinite = std::is_same_v<T, bfloat16> ? 0x7f80u : 0x7c00u;
        if (bits >= infinite) return std::bit_cast<double>(std::uint64_t{0x7ff0000000000000u});
        return magnitude_of<float>(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
    }
}

UNISONO_NO_CONTRACTION_BEGIN

/// The greatest magnitude, as bits: infinity and NaN compare above all others.
template <class T>
struct FindLargest {
    using Bits = GridBits<T>;
    static constexpr Bits magnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
    const T* from;
    std::size_t count;
    Bits* found;

    UNISONO_INLINE void operator()() const {
        const T* const x = from;
        Bits largest = 0;
        for (std::size_t i = 0; i < count; ++i) {
            Bits bits;
            __builtin_memcpy(&bits, x + i, sizeof(T));
            bits = static_cast<Bits>(bits & magnitude);
            largest = bits > largest ? bits : largest;
        }
        *found = largest;
    }
};

/// The computation of the image of weight * x. All give the same result: a fused multiply-add of
/// the processor; an exact product and an addition; or integers. (For processors without a fused
/// multiply-add, the compilers' own is a call, which -ffast-math may replace by two roundings.)
enum class Imaging : std::uint8_t { fused, exact, integers };

__extension__ using GridProduct = unsigned __int128;

/// weight * x / 2^(exponent - 51), rounded to nearest, ties to even; arbitrary if it does not fit.
inline std::uint64_t image_by_integers(double x, double weight, std::int32_t exponent) {
    const std::uint64_t a = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t b = std::bit_cast<std::uint64_t>(weight);
    const auto mantissa = [](std::uint64_t bits) {
        return (bits & 0xfffffffffffffu) | ((bits >> 52 & 0x7ff) != 0 ? std::uint64_t{1} << 52 : 0u);
    };
    const auto power = [](std::uint64_t bits) { // of the mantissa's unit
        const auto field = static_cast<std::int32_t>(bits >> 52 & 0x7ff);
        return (field == 0 ? 1 : field) - 1075;
    };
    const GridProduct product = static_cast<GridProduct>(mantissa(a)) * mantissa(b);
    const std::int32_t down = exponent - 51 - power(a) - power(b);
    std::uint64_t image = 0;
    if (down <= 0) {
        image = down > -64 ? static_cast<std::uint64_t>(product << -down) : 0;
    } else if (down < 120) { // else less than half a step
        const GridProduct rest = product & ((GridProduct{1} << down) - 1);
        const GridProduct half = GridProduct{1} << (down - 1);
        image = static_cast<std::uint64_t>(product >> down);
        if (rest > half || (rest == half && (image & 1) != 0)) ++image;
    }
    return (a ^ b) >> 63 != 0 ? 0 - image : image;
}

/// The grid, in the form that the loops use.
template <Imaging How>
struct ImageMaker {
    double weight;
    std::uint64_t bits;
    double magic;
    std::int32_t exponent;

    UNISONO_INLINE ImageMaker(double w, std::int32_t e)
        : weight(w), bits(magic_bits(e)), magic(std::bit_cast<double>(bits)), exponent(e) {}

    UNISONO_INLINE std::uint64_t operator()(double x) const {
        if constexpr (How == Imaging::fused)
            return std::bit_cast<std::uint64_t>(__builtin_fma(weight, x, magic)) - bits;
        else if constexpr (How == Imaging::exact) return std::bit_cast<std::uint64_t>(weight * x + magic) - bits;
        else return image_by_integers(x, weight, exponent);
    }
};

/// image[i] = or += weight * x[i] on the grid; also finds the greatest magnitude.
template <class T, class Integer, bool Add, Imaging How>
struct MakeImage {
    using Bits = GridBits<T>;
    static constexpr Bits magnitude = FindLargest<T>::magnitude;
    Integer* image;
    const T* from;
    std::size_t count;
    double weight;
    std::int32_t exponent;
    Bits* found;

    UNISONO_INLINE void operator()() const {
        // A few elements at a time, converted in one loop and measured in another: each loop is
        // vectorised at its own width.
        constexpr std::size_t block = 512;
        const ImageMaker<How> image_of(weight, exponent);
        Bits largest = 0;
        for (std::size_t begin = 0; begin < count; begin += block) {
            const std::size_t n = count - begin < block ? count - begin : block;
            const T* const x = from + begin;
            Integer* const to = image + begin;
            UNISONO_ELEMENTWISE
            for (std::size_t i = 0; i < n; ++i) {
                const std::uint64_t one = image_of(grid_wide(grid_load(x, i)));
                if constexpr (Add)
                    to[i] = static_cast<Integer>(static_cast<std::make_unsigned_t<Integer>>(to[i]) +
                                                 static_cast<std::make_unsigned_t<Integer>>(one));
                else to[i] = static_cast<Integer>(one);
            }
            for (std::size_t i = 0; i < n; ++i) {
                Bits own;
                __builtin_memcpy(&own, x + i, sizeof(T));
                own = static_cast<Bits>(own & magnitude);
                largest = own > largest ? own : largest;
            }
        }
        *found = largest;
    }
};

/// Converts an image to a number. Fused: splits a 64-bit integer into two halves whose bits are
/// those of doubles (2^84 + 2^63 + the upper half, 2^52 + the lower), so that it is vectorised even
/// if no instruction converts such an integer. The first multiply-add is exact and the second
/// rounds once, as the plain conversion does. (Two constants and the scale are folded into one.)
template <bool Fused>
struct ImageScale {
    double scale;
    double offset;

    UNISONO_INLINE explicit ImageScale(std::int32_t exponent)
        : scale(power_of_two(exponent - 51)), offset(-(0x1p84 + 0x1p63 + 0x1p52) * power_of_two(exponent - 51)) {}

    UNISONO_INLINE double operator()(std::uint64_t image) const {
        if constexpr (Fused) {
            const double upper = std::bit_cast<double>((image >> 32) ^ 0x4530000080000000u);
            const double lower = std::bit_cast<double>((image & 0xffffffffu) | 0x4330000000000000u);
            return __builtin_fma(lower, scale, __builtin_fma(upper, scale, offset));
        } else {
            return static_cast<double>(static_cast<std::int64_t>(image)) * scale;
        }
    }
};

template <class T>
UNISONO_INLINE T grid_narrow(double value) {
    if constexpr (sizeof(T) == 2) return static_cast<T>(static_cast<float>(value));
    else return static_cast<T>(value);
}

template <class T, class Integer, bool Fused>
struct ReadImage {
    T* out;
    const Integer* image;
    std::size_t count;
    std::int32_t exponent;
    bool* clean;

    UNISONO_INLINE void operator()() const {
        const ImageScale<Fused> number(exponent);
        const Integer* const from = image;
        T* const to = out;
        std::make_unsigned_t<Integer> any = 0;
        UNISONO_ELEMENTWISE
        for (std::size_t i = 0; i < count; ++i) {
            const auto bits = static_cast<std::make_unsigned_t<Integer>>(from[i]);
            any |= bits ^ (bits << 1);
            to[i] = grid_narrow<T>(number(static_cast<std::uint64_t>(std::int64_t{from[i]})));
        }
        *clean = any >> (8 * sizeof(Integer) - 1) == 0;
    }
};

UNISONO_NO_CONTRACTION_END

/// True if x * weight is exact in double for every x of type T: 53 bits hold the bits of both.
template <class T>
bool exact_products(double weight) {
    if (weight == 1.0) return true;
    constexpr int spare = sizeof(T) == 8 ? 0 : 29; // 53 - 24
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(weight);
    const auto exponent = static_cast<std::int32_t>(bits >> 52 & 0x7ff) - 1023;
    if (spare == 0 || exponent < -800 || exponent > 800) return false; // a product might be subnormal or infinite
    return (bits & ((std::uint64_t{1} << (53 - spare)) - 1)) == 0;
}

/// Runs `Body<How>` in the way that suits the instruction set and the weight.
template <template <Imaging> class Body, class T, class... Arguments>
void make_images(InstructionSet set, double weight, const Arguments&... arguments) {
#if defined(__x86_64__)
    const bool fuses = set != InstructionSet::portable;
#elif defined(__FP_FAST_FMA)
    const bool fuses = true;
#else
    const bool fuses = false;
#endif
    if (fuses) return vectorised(set, Body<Imaging::fused>{arguments...});
    if (exact_products<T>(weight)) return run_portable(Body<Imaging::exact>{arguments...});
    run_portable(Body<Imaging::integers>{arguments...});
}

template <class T>
double largest_on(InstructionSet set, std::span<const T> x) {
    GridBits<T> found = 0;
    vectorised(set, FindLargest<T>{x.data(), x.size(), &found});
    return magnitude_of<T>(found);
}

template <class T, class Integer, bool Add>
struct ImageBody {
    template <Imaging How>
    using Body = MakeImage<T, Integer, Add, How>;
};

template <class T, bool Add, class Integer>
double image_on(InstructionSet set, Integer* image, const T* from, std::size_t count, double weight,
                std::int32_t exponent) {
    GridBits<T> found = 0;
    make_images<ImageBody<T, Integer, Add>::template Body, T>(set, weight, image, from, count, weight, exponent,
                                                              &found);
    return magnitude_of<T>(found);
}

/// Converts images to numbers; false if one is marked.
template <class T, class Integer>
bool from_image_on(InstructionSet set, T* out, const Integer* image, std::size_t count, std::int32_t exponent) {
    bool clean = true;
#if defined(__x86_64__)
    if (set == InstructionSet::portable) {
        run_portable(ReadImage<T, Integer, false>{out, image, count, exponent, &clean});
        return clean;
    }
#endif
    vectorised(set, ReadImage<T, Integer, true>{out, image, count, exponent, &clean});
    return clean;
}

} // namespace detail
UNISONO_NAMESPACE_END
