#pragma once

/// \file
/// A sum of squares (a gradient's norm) whose bits do not depend on the cut into slices and on the
/// ranks that add them.

#include "unisono/arithmetic/grid.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

/// The sum of the images of x[i]^2, for at most 4,096 elements, so that it stays below 2^63.
template <class T, Imaging How>
struct AddSquares {
    const T* from;
    std::size_t count;
    std::int32_t exponent;
    std::uint64_t* sum;

    UNISONO_INLINE void operator()() const {
        const T* const x = from;
        const std::uint64_t bits = magic_bits(exponent);
        const double magic = std::bit_cast<double>(bits);
        std::uint64_t all = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const double one = grid_wide(grid_load(x, i));
            if constexpr (How == Imaging::fused)
                all += std::bit_cast<std::uint64_t>(__builtin_fma(one, one, magic)) - bits;
            else if constexpr (How == Imaging::exact) all += std::bit_cast<std::uint64_t>(one * one + magic) - bits;
            else all += image_by_integers(one, one, exponent);
        }
        *sum = all;
    }
};

UNISONO_NO_CONTRACTION_END

template <class T>
struct SquareBody {
    template <Imaging How>
    using Body = AddSquares<T, How>;
};

/// The grid's E for the squares of elements that need this exponent.
UNISONO_ON_DEVICE constexpr std::int32_t exponent_of_squares(std::int32_t needed) {
    return needed > 480 ? Grid::not_finite : needed < -485 ? -485 : needed;
}

} // namespace detail

/// Squares on a device, in separate words that are initially zero: the bits of the greatest
/// magnitude, and the sum of the images in multiples of 1, 2^32, 2^64.
struct NotedSquares {
    std::uint64_t largest = 0;
    std::uint64_t sum[3] = {}; // nvcc 13.0 can write std::array<std::uint64_t, 3> as no compiler reads it
    static constexpr std::size_t words = 4;
};

/// Adds squares of numbers below 2^E as multiples of 2^(2E - 51), in 128 bits: up to 2^64 elements.
/// All sums that are merged have the same E, which `needed_exponent` of all elements (over all
/// ranks) gives. Error: at most 2^(2E - 52) per element, and two roundings to double; the largest
/// elements, which dominate the norm, lose nothing. Cost: a quarter of a nanosecond per element.
/// NaN and infinity (E of `Grid::not_finite`) give NaN. A plain value of 24 bytes.
class SquareSum {
public:
    /// `needed`: of all elements. Elements of 2^480 or more count as not finite, since their
    /// squares exceed every grid.
    explicit SquareSum(std::int32_t needed) : exponent_(detail::exponent_of_squares(needed)) {}

    /// \throws error bad_input: an element that is not below 2^E
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void add(std::span<T> x) {
        using E = std::remove_const_t<T>;
        if (exponent_ == Grid::not_finite) return;
        constexpr std::size_t chunk = 4096;
        for (std::size_t at = 0; at < x.size(); at += chunk) {
            const std::size_t n = x.size() - at < chunk ? x.size() - at : chunk;
            check(needed_exponent(x.subspan(at, n)));
            std::uint64_t part = 0;
            // Squares of doubles are not exact; only those of narrower types are.
            detail::make_images<detail::SquareBody<E>::template Body, E>(
                best_instruction_set(), sizeof(E) == 8 ? 3.0 : 1.0, x.data() + at, n, 2 * exponent_, &part);
            add_part(0, part);
        }
    }
    void merge(const SquareSum& other);

    /// The sum as integers that may be summed over up to 2^30 ranks.
    static constexpr std::size_t words = 4;
    void save(std::int64_t* out) const;
    void load(const std::int64_t* in);

    [[nodiscard]] double value() const;

    [[nodiscard]] std::int32_t exponent() const { return exponent_; }

    /// Adds squares that were noted on this exponent's grid (`note_squares` of thrust.hpp). \throws
    /// error bad_input: as add
    template <floating_element T>
    void add(const NotedSquares& noted) {
        if (exponent_ == Grid::not_finite) return;
        check(needed_of<T>(noted));
        add_part(noted.sum[1] >> 32, noted.sum[1] << 32);
        add_part(noted.sum[2], noted.sum[0]);
    }
    /// The exponent that the noted elements needed.
    template <floating_element T>
    [[nodiscard]] static std::int32_t needed_of(const NotedSquares& noted) {
        return detail::needed_by(detail::magnitude_of<T>(static_cast<detail::GridBits<T>>(noted.largest)), 1.0);
    }

    /// Adds high * 2^64 + low multiples of 2^(2 E - 51), computed elsewhere (thrust.hpp).
    void add_part(std::uint64_t high, std::uint64_t low) {
        low_ += low;
        high_ += high + (low_ < low ? 1 : 0);
    }

private:
    void check(std::int32_t needed) const;

    std::uint64_t low_ = 0;
    std::uint64_t high_ = 0;
    std::int32_t exponent_;
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include <cmath>

UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION void SquareSum::merge(const SquareSum& other) {
    if (other.exponent_ != exponent_)
        refuse_input({"SquareSum: exponents ", exponent_, " and ", other.exponent_, "; expected one for all parts"});
    add_part(other.high_, other.low_);
}

UNISONO_DEFINITION void SquareSum::save(std::int64_t* out) const {
    out[0] = static_cast<std::int64_t>(low_ & 0xffffffffu);
    out[1] = static_cast<std::int64_t>(low_ >> 32);
    out[2] = static_cast<std::int64_t>(high_ & 0xffffffffu);
    out[3] = static_cast<std::int64_t>(high_ >> 32);
}

UNISONO_DEFINITION void SquareSum::load(const std::int64_t* in) {
    low_ = high_ = 0;
    for (std::size_t i = 0; i < words; ++i) {
        const auto word = static_cast<std::uint64_t>(in[i]);
        if (i == 0) add_part(0, word);
        else if (i == 1) add_part(word >> 32, word << 32);
        else add_part(word << (32 * (i - 2)), 0);
    }
}

UNISONO_DEFINITION double SquareSum::value() const {
    if (exponent_ == Grid::not_finite) return std::numeric_limits<double>::quiet_NaN();
    const double steps = __builtin_fma(static_cast<double>(high_), 0x1p64, static_cast<double>(low_));
    return std::ldexp(steps, 2 * exponent_ - Grid::bits);
}

UNISONO_DEFINITION void SquareSum::check(std::int32_t needed) const {
    if (needed > exponent_)
        refuse_input({"SquareSum: an element needs the exponent ", needed, "; expected at most ", exponent_});
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
