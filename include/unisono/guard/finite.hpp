#pragma once

/// \file
/// Finds NaN and infinity in gradients.

#include "unisono/arithmetic/vectorised.hpp"
#include "unisono/guard/guard.hpp"

#include <bit>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The bits of a floating value, and its exponent's mask and lowest bit. All exponent bits set: NaN or infinite.
template <floating_element T>
struct FloatingBits {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
    static constexpr int mantissa = sizeof(T) == 8 ? 52 : (sizeof(T) == 4 ? 23 : (std::is_same_v<T, bfloat16> ? 7 : 10));
    static constexpr Bits sign = static_cast<Bits>(Bits{1} << (sizeof(T) * 8 - 1));
    static constexpr Bits lowest = static_cast<Bits>(Bits{1} << mantissa);
    static constexpr Bits exponent = static_cast<Bits>(static_cast<Bits>(sign - 1) & static_cast<Bits>(~static_cast<Bits>(lowest - 1)));

    /// The sign bit of the result is set exactly if the exponent's bits all are: adding one to it carries.
    UNISONO_INLINE static Bits carry(T value) {
        return static_cast<Bits>(static_cast<Bits>(std::bit_cast<Bits>(value) & exponent) + lowest);
    }
};

/// Integer arithmetic on the bits, so that -ffinite-math-only cannot delete it. One read of the values.
template <floating_element T>
[[nodiscard]] inline bool all_finite(const T* values, std::size_t count) {
    using Bits = FloatingBits<T>;
    typename Bits::Bits found = 0;
    vectorised(best_instruction_set(), [&]() {
        typename Bits::Bits any = 0;
        for (std::size_t i = 0; i < count; ++i) any = static_cast<typename Bits::Bits>(any | Bits::carry(values[i]));
        found = any;
    });
    return (found & Bits::sign) == 0;
}

} // namespace detail

/// Stops, or skips the update, where any rank's gradient or loss is NaN or infinite. Cost: one read of the gradients.
struct FiniteGuard {
    OnOffence action = OnOffence::stop;

    static constexpr std::string_view name = "finite";
    static constexpr Family family = Family::guard;
    static constexpr bool inspects = true;
    static constexpr bool needs_agreement = true;
    friend bool operator==(const FiniteGuard&, const FiniteGuard&) = default;

    template <floating_element T>
    [[nodiscard]] std::size_t first_offender(std::span<const T> values) const {
        if (detail::all_finite(values.data(), values.size())) [[likely]] return no_offender;
        for (std::size_t i = 0; i < values.size(); ++i)
            if ((detail::FloatingBits<T>::carry(values[i]) & detail::FloatingBits<T>::sign) != 0) return i;
        return no_offender;
    }
    [[nodiscard]] OnOffence on_offence() const { return action; }
};
static_assert(guard_policy<FiniteGuard>);

UNISONO_NAMESPACE_END
