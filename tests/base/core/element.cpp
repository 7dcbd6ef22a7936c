#include "support/skip.hpp"

#include <unisono/core/element.hpp>

#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using unisono::bfloat16;
using unisono::float16;

namespace {

float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// The value of a finite binary16, or of a finite bfloat16 for its own field widths, by definition.
double value_of(unsigned bits, int exponent_bits, int fraction_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const unsigned fraction = bits & ((1u << fraction_bits) - 1u);
    const double significand = exponent == 0 ? fraction : fraction + (1u << fraction_bits);
    const double magnitude = std::ldexp(significand, (exponent == 0 ? 1 : exponent) - bias - fraction_bits);
    return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

/// Walks all 2^32 floats upwards in magnitude, with the two neighbours of each in the narrow
/// format, and compares. The walk needs no arithmetic under test: neighbours are consecutive bit
/// patterns.
template <class Narrow>
std::uint64_t count_wrong_roundings(std::uint32_t narrow_infinity, std::uint32_t stride) {
    std::uint64_t wrong = 0;
    for (const std::uint32_t sign : {0u, 0x8000u}) {
        std::uint32_t lower = 0; // the greatest narrow magnitude not above the float
        for (std::uint64_t walk = 0; walk <= 0x7f800000u; walk += stride) {
            const auto magnitude = static_cast<std::uint32_t>(walk);
            const double x = static_cast<double>(float_of(magnitude));
            const auto wide = [narrow_infinity](std::uint32_t bits) {
                // Infinity takes the place of the next finite number: overflow begins half-way to
                // it.
                return narrow_infinity == 0x7c00u ? value_of(bits, 5, 10) : value_of(bits, 8, 7);
            };
            while (lower < narrow_infinity && wide(lower + 1) <= x) ++lower;
            std::uint32_t expected = lower;
            if (lower < narrow_infinity) {
                const double middle = (wide(lower) + wide(lower + 1)) / 2;
                if (x > middle || (x == middle && (lower & 1u) != 0)) expected = lower + 1;
            }
            const float given = float_of(magnitude | (sign << 16));
            if (Narrow(given).bits != (expected | sign)) ++wrong;
        }
    }
    return wrong;
}

} // namespace

BOOST_AUTO_TEST_SUITE(element)

BOOST_AUTO_TEST_CASE(float16_widens_exactly_for_all_65536_patterns) {
    for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
        float16 half;
        half.bits = static_cast<std::uint16_t>(bits);
        const float wide(half);
        if ((bits & 0x7fffu) > 0x7c00u) {
            BOOST_REQUIRE(std::isnan(wide));
            BOOST_REQUIRE_EQUAL(bits_of(wide), ((bits & 0x8000u) << 16) | 0x7fc00000u | ((bits & 0x3ffu) << 13));
        } else if ((bits & 0x7fffu) == 0x7c00u) {
            BOOST_REQUIRE(std::isinf(wide) && std::signbit(wide) == ((bits & 0x8000u) != 0));
        } else {
            BOOST_REQUIRE_EQUAL(static_cast<double>(wide), value_of(bits, 5, 10));
            BOOST_REQUIRE_EQUAL(std::signbit(wide), (bits & 0x8000u) != 0);
        }
    }
}

BOOST_AUTO_TEST_CASE(bfloat16_widens_exactly_for_all_65536_patterns) {
    for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
        bfloat16 brain;
        brain.bits = static_cast<std::uint16_t>(bits);
        BOOST_REQUIRE_EQUAL(bits_of(float(brain)), bits << 16);
    }
}

BOOST_AUTO_TEST_CASE(narrowing_what_was_widened_gives_it_back) {
    for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
        float16 half;
        half.bits = static_cast<std::uint16_t>(bits);
        bfloat16 brain;
        brain.bits = static_cast<std::uint16_t>(bits);
        const bool half_nan = (bits & 0x7fffu) > 0x7c00u;
        const bool brain_nan = (bits & 0x7fffu) > 0x7f80u;
        BOOST_REQUIRE_EQUAL(float16(float(half)).bits, bits | (half_nan ? 0x200u : 0u));
        BOOST_REQUIRE_EQUAL(bfloat16(float(brain)).bits, bits | (brain_nan ? 0x40u : 0u));
    }
}

// With UNISONO_TEST_EXHAUSTIVELY every float. Otherwise each 251st (a prime, so that every bit
// changes) and, below, the neighbourhood of each tie.
#if defined(UNISONO_TEST_EXHAUSTIVELY)
constexpr std::uint32_t stride = 1;
#else
constexpr std::uint32_t stride = 251;
#endif

BOOST_AUTO_TEST_CASE(float16_rounds_to_nearest_even) {
    BOOST_TEST(count_wrong_roundings<float16>(0x7c00u, stride) == 0u);
}

BOOST_AUTO_TEST_CASE(bfloat16_rounds_to_nearest_even) {
    BOOST_TEST(count_wrong_roundings<bfloat16>(0x7f80u, stride) == 0u);
}

BOOST_AUTO_TEST_CASE(every_tie_goes_to_even_and_its_neighbours_do_not) {
    for (std::uint32_t bits = 0; bits < 0x7c00u; ++bits) {
        const auto lower = static_cast<float>(value_of(bits, 5, 10));
        const auto tie = static_cast<float>((value_of(bits, 5, 10) + value_of(bits + 1, 5, 10)) / 2);
        BOOST_REQUIRE_EQUAL(float16(tie).bits, bits + (bits & 1u));
        BOOST_REQUIRE_EQUAL(float16(std::nextafter(tie, lower)).bits, bits);
        BOOST_REQUIRE_EQUAL(float16(std::nextafter(tie, std::numeric_limits<float>::infinity())).bits, bits + 1);
        BOOST_REQUIRE_EQUAL(float16(-tie).bits, 0x8000u | (bits + (bits & 1u)));
    }
    for (std::uint32_t bits = 0; bits < 0x7f80u; ++bits) {
        const std::uint32_t tie = (bits << 16) | 0x8000u;
        BOOST_REQUIRE_EQUAL(bfloat16(float_of(tie)).bits, bits + (bits & 1u));
        BOOST_REQUIRE_EQUAL(bfloat16(float_of(tie - 1)).bits, bits);
        BOOST_REQUIRE_EQUAL(bfloat16(float_of(tie + 1)).bits, bits + 1);
    }
}

BOOST_AUTO_TEST_CASE(every_nan_stays_nan) {
    for (std::uint32_t payload = 1; payload < 0x800000u; payload += (payload < 0x4000u ? 1u : 97u)) {
        const float nan = float_of(0x7f800000u | payload);
        BOOST_REQUIRE_EQUAL(float16(nan).bits, 0x7e00u | (payload >> 13));
        BOOST_REQUIRE_EQUAL(bfloat16(nan).bits, 0x7fc0u | (payload >> 16));
    }
}

BOOST_AUTO_TEST_CASE(known_values) {
    static_assert(float16(1.0f).bits == 0x3c00u && float(float16(-2.0f)) == -2.0f);
    static_assert(float16(65504.0f).bits == 0x7bffu && float16(65520.0f).bits == 0x7c00u);
    static_assert(float16(0x1p-24f).bits == 1u && float16(0x1p-25f).bits == 0u && float16(0x1.8p-25f).bits == 1u);
    static_assert(bfloat16(1.0f).bits == 0x3f80u && float(bfloat16(3.140625f)) == 3.140625f);
    BOOST_TEST(bool(float16(0.0f) == float16(-0.0f)));
    BOOST_TEST(!(float16(std::nanf("")) == float16(std::nanf(""))));
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) std::uint64_t count_differences_from_the_processor() {
    using Floats = float __attribute__((vector_size(16)));
    using Halves = short __attribute__((vector_size(16)));
    std::uint64_t different = 0;
    for (std::uint64_t walk = 0; walk <= 0xffffffffu; walk += stride) {
        const float x = float_of(static_cast<std::uint32_t>(walk));
        const Halves narrow = __builtin_ia32_vcvtps2ph(Floats{x, x, x, x}, 0);
        if (static_cast<std::uint16_t>(narrow[0]) != float16(x).bits) ++different;
    }
    for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
        float16 half;
        half.bits = static_cast<std::uint16_t>(bits);
        const auto h = static_cast<short>(bits);
        const Floats wide = __builtin_ia32_vcvtph2ps(Halves{h, h, h, h, h, h, h, h});
        if (bits_of(wide[0]) != bits_of(float(half))) ++different;
    }
    return different;
}

BOOST_AUTO_TEST_CASE(float16_agrees_with_the_processor) {
    // Each processor with AVX2 has F16C. g++ 12 cannot ask for the latter.
    if (!__builtin_cpu_supports("avx2")) return test::skip("this processor has no F16C");
    BOOST_TEST(count_differences_from_the_processor() == 0u);
}
#endif

BOOST_AUTO_TEST_CASE(types_have_tags) {
    using unisono::element_type_of;
    using unisono::ElementType;
    static_assert(element_type_of<float> == ElementType::float32 && element_type_of<double> == ElementType::float64);
    static_assert(element_type_of<bfloat16> == ElementType::bfloat16 &&
                  element_type_of<float16> == ElementType::float16);
    static_assert(element_type_of<int> == ElementType::int32 && element_type_of<long long> == ElementType::int64);
    static_assert(element_type_of<long> == (sizeof(long) == 8 ? ElementType::int64 : ElementType::int32));
    static_assert(element_type_of<unsigned char> == ElementType::uint8);
    static_assert(element_type_of<unsigned> == ElementType::uint32 && element_type_of<char> == ElementType::opaque);
    static_assert(element_type_of<std::size_t> ==
                  (sizeof(std::size_t) == 8 ? ElementType::uint64 : ElementType::uint32));
    static_assert(element_type_of<unsigned long long> == ElementType::uint64);
    static_assert(element_type_of<std::uint16_t> == ElementType::opaque);
    static_assert(element_type_of<const float> == ElementType::float32);
    static_assert(!unisono::element<float*> && !unisono::arithmetic_element<bool>);
    BOOST_TEST(name_of(ElementType::bfloat16) == "bfloat16");
    BOOST_TEST(name_of(ElementType::uint64) == "uint64");
    BOOST_TEST(name_of(ElementType::opaque) == "opaque");
}

BOOST_AUTO_TEST_SUITE_END()
