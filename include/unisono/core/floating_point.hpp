#pragma once

/// \file
/// The floating-point mode of a thread: whether its processor keeps subnormal numbers, and how it
/// rounds. The mode is a part of the control word, and changes the bits of results.

#include "unisono/core/config.hpp"
#include "unisono/core/text.hpp"

#include <cstdint>
#include <string>
#include <string_view>

#if !defined(__SSE2__) && !defined(__aarch64__)
#include <cfenv>
#endif

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// In four bits, on any processor. 0 is the standard mode: subnormal numbers are kept, and results
/// are rounded to nearest.
enum class FloatingPointMode : std::uint8_t {
    standard = 0,
    flushes_results = 1,  ///< a subnormal result becomes zero
    flushes_operands = 2, ///< a subnormal operand counts as zero
    rounds_down = 4,
    rounds_up = 8,
    rounds_toward_zero = 12,
};

/// The mode of the calling thread. Costs about as much as a load.
[[nodiscard]] inline FloatingPointMode floating_point_mode() noexcept {
    std::uint32_t mode = 0;
#if defined(__SSE2__)
    const std::uint32_t word = __builtin_ia32_stmxcsr();
    mode = (word >> 15 & 1u) | (word >> 6 & 1u) << 1 | (word >> 13 & 3u) << 2;
#elif defined(__aarch64__)
    std::uint64_t word = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    const auto rounding = static_cast<std::uint32_t>(word >> 22 & 3u); // 1: up, 2: down
    mode = (word >> 24 & 1u) != 0 ? 3u : 0u;
    mode |= (rounding == 3 ? 3u : rounding == 0 ? 0u : 3u - rounding) << 2;
#else
    const int rounding = std::fegetround();
    mode = rounding == FE_TONEAREST ? 0u : rounding == FE_DOWNWARD ? 4u : rounding == FE_UPWARD ? 8u : 12u;
#endif
    return static_cast<FloatingPointMode>(mode);
}

/// Gives the calling thread this mode, and leaves the rest of its control word.
inline void set_floating_point_mode(FloatingPointMode mode) noexcept {
    const auto bits = static_cast<std::uint32_t>(mode);
#if defined(__SSE2__)
    const std::uint32_t rest = __builtin_ia32_stmxcsr() & ~0xe040u;
    __builtin_ia32_ldmxcsr(rest | (bits & 1u) << 15 | (bits >> 1 & 1u) << 6 | (bits >> 2) << 13);
#elif defined(__aarch64__)
    std::uint64_t word = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    const std::uint32_t rounding = bits >> 2;
    word &= ~(std::uint64_t{7} << 22);
    word |= std::uint64_t{(bits & 3u) != 0} << 24;
    word |= std::uint64_t{rounding == 3 || rounding == 0 ? rounding : 3 - rounding} << 22;
    __asm__ volatile("msr fpcr, %0" : : "r"(word));
#else
    constexpr int rounding[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    static_cast<void>(std::fesetround(rounding[bits >> 2]));
#endif
}

/// The message of an error: the threads of two ranks or processes have different modes.
std::string different_modes(std::string_view one, FloatingPointMode mode, std::string_view other,
                            FloatingPointMode others_mode);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION std::string different_modes(std::string_view one, FloatingPointMode mode,
                                                             std::string_view other, FloatingPointMode others_mode) {
    const auto describe = [](FloatingPointMode of) {
        constexpr std::string_view flushes[] = {" keeps subnormal numbers and rounds ",
                                                " flushes subnormal results to zero and rounds ",
                                                " takes subnormal operands as zero and rounds ",
                                                " flushes subnormal operands and results to zero and rounds "};
        constexpr std::string_view rounds[] = {"to nearest", "down", "up", "toward zero"};
        const auto bits = static_cast<unsigned>(of);
        return concat({flushes[bits & 3u], rounds[bits >> 2 & 3u]});
    };
    return concat({one, describe(mode), ", ", other, describe(others_mode),
                   "; expected one floating-point mode on all ranks, since it changes results. A shared library that "
                   "is linked with -ffast-math or -Ofast flushes on the thread that loads it; "
                   "_MM_SET_FLUSH_ZERO_MODE, torch.set_flush_denormal and audio libraries flush as well; fesetround "
                   "sets the rounding"});
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
