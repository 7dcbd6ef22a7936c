#pragma once

/// \file
/// A sum of doubles without rounding errors. It does not depend on the order, or on how the addends
/// are split over ranks.

#include "unisono/core/config.hpp"
#include "unisono/core/math.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

UNISONO_NAMESPACE_BEGIN

/// Adds doubles in a fixed-point number that is wide enough for all of them. `value()` is the exact
/// sum, rounded once to nearest (ties to even). The bits do not depend on merging or on the order
/// of additions. 568 bytes, trivially copyable.
/// Cost of an addition: three integer additions. Infinities and NaN are kept separately and
/// determine the result.
/// Source: Kulisch, Computer Arithmetic and Validity, 2008, chapter 8.
class ExactSum {
public:
    void add(double x) {
        const auto bits = std::bit_cast<std::uint64_t>(x);
        const auto exponent = static_cast<unsigned>(bits >> 52) & 0x7ffU;
        if (exponent == 0x7ffU) {
            special_ += x; // infinities of both signs make NaN
            return;
        }
        const std::uint64_t fraction = bits & 0xfffffffffffffU;
        const std::uint64_t significand = exponent == 0 ? fraction : fraction | 0x10000000000000U;
        const unsigned shift = exponent == 0 ? 0 : exponent - 1; // in units of 2^-1074
        const std::size_t at = shift / 32;
        // The significand, shifted by 0 to 31 bits, covers three limbs of 32 bits.
        const std::uint64_t low = (significand & 0xffffffffU) << (shift % 32);
        const std::uint64_t high = (significand >> 32) << (shift % 32);
        const auto first = static_cast<std::int64_t>(low & 0xffffffffU);
        const auto second = static_cast<std::int64_t>((low >> 32) + (high & 0xffffffffU));
        const auto third = static_cast<std::int64_t>(high >> 32);
        const std::int64_t sign = bits >> 63 != 0 ? -1 : 1;
        limbs_[at] += sign * first;
        limbs_[at + 1] += sign * second;
        limbs_[at + 2] += sign * third;
        if (++pending_ == most_pending) carry();
    }

    /// Adds a * b exactly, unless the product underflows. A product beyond the range of double is
    /// added as an infinity.
    void add_product(double a, double b) {
        const double product = a * b;
        add(product);
        if (detail::is_finite(product)) add(__builtin_fma(a, b, -product));
    }

    void merge(const ExactSum& other);

    [[nodiscard]] double value() const;

    /// The state as integers. The sum of these integers over ranks is the state of the total, so an
    /// all_reduce can add them. For up to 2^30 ranks.
    static constexpr std::size_t words = 69 + 3;
    void save(std::int64_t* out) const;
    [[nodiscard]] static ExactSum load(const std::int64_t* in);

private:
    static constexpr std::size_t limb_count = 69;           // 2098 bits for a double, and 110 bits for sums of many
    static constexpr std::uint32_t most_pending = 1U << 28; // after this number of additions a limb could reach 2^62

    /// Brings all limbs but the last into [0, 2^32); the last limb takes the sign.
    void carry() {
        for (std::size_t i = 0; i + 1 < limb_count; ++i) {
            limbs_[i + 1] += limbs_[i] >> 32;
            limbs_[i] &= 0xffffffff;
        }
        pending_ = 0;
    }

    /// For a number that is carried and not negative.
    [[nodiscard]] double round() const;

    std::int64_t limbs_[limb_count] = {};
    double special_ = 0;
    std::uint32_t pending_ = 0;
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION void ExactSum::merge(const ExactSum& other) {
    ExactSum carried = other;
    carried.carry();
    carry();
    for (std::size_t i = 0; i < limb_count; ++i) limbs_[i] += carried.limbs_[i];
    special_ += other.special_;
    carry();
}

UNISONO_DEFINITION double ExactSum::value() const {
    if (detail::is_nan(special_)) return std::numeric_limits<double>::quiet_NaN(); // for any NaN
    if (special_ != 0) return special_;
    ExactSum magnitude = *this;
    magnitude.carry();
    const bool negative = magnitude.limbs_[limb_count - 1] < 0; // after the carry all other limbs are not negative
    if (negative) {
        for (std::int64_t& limb : magnitude.limbs_) limb = -limb;
        magnitude.carry();
    }
    const double rounded = magnitude.round();
    return negative ? -rounded : rounded;
}

UNISONO_DEFINITION void ExactSum::save(std::int64_t* out) const {
    ExactSum carried = *this;
    carried.carry();
    for (std::size_t i = 0; i < limb_count; ++i) out[i] = carried.limbs_[i];
    out[limb_count] = special_ > 0 ? 1 : 0;
    out[limb_count + 1] = special_ < 0 ? 1 : 0;
    out[limb_count + 2] = detail::is_nan(special_) ? 1 : 0;
}

UNISONO_DEFINITION ExactSum ExactSum::load(const std::int64_t* in) {
    ExactSum sum;
    for (std::size_t i = 0; i < limb_count; ++i) sum.limbs_[i] = in[i];
    sum.carry();
    constexpr double infinity = std::numeric_limits<double>::infinity();
    if (in[limb_count] != 0) sum.special_ += infinity;
    if (in[limb_count + 1] != 0) sum.special_ -= infinity;
    if (in[limb_count + 2] != 0) sum.special_ = std::numeric_limits<double>::quiet_NaN();
    return sum;
}

UNISONO_DEFINITION double ExactSum::round() const {
    std::size_t top = limb_count;
    while (top > 0 && limbs_[top - 1] == 0) --top;
    if (top == 0) return 0;
    --top;
    // The highest 64 bits that begin with a one, and whether any lower bit is set.
    const auto head = static_cast<std::uint64_t>(limbs_[top]);
    const int zeros = std::countl_zero(head) - 32; // leading zeros in a limb of 32 bits
    const std::uint64_t next = top > 0 ? static_cast<std::uint64_t>(limbs_[top - 1]) : 0;
    const std::uint64_t after = top > 1 ? static_cast<std::uint64_t>(limbs_[top - 2]) : 0;
    if (zeros < 0) return std::numeric_limits<double>::infinity(); // more than any double
    std::uint64_t bits = (head << 32 | next) << zeros;
    if (zeros != 0) bits |= after >> (32 - zeros);
    bool rest = (after & ((std::uint64_t{1} << (32 - zeros)) - 1)) != 0;
    for (std::size_t i = 2; i < top && !rest; ++i) rest = limbs_[top - i - 1] != 0;
    // The weight of the lowest of the 64 bits. Numbers below 2^-1022 have fewer bits, which the
    // limbs hold exactly.
    const int exponent = static_cast<int>(top) * 32 - 1074 - 32 - zeros;
    const std::uint64_t low = bits & 0x7ff;
    std::uint64_t kept = bits >> 11;
    if (low > 0x400 || (low == 0x400 && (rest || (kept & 1) != 0))) ++kept;
    return detail::scaled_by_bits(static_cast<double>(kept), exponent + 11);
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
