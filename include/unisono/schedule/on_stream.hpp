#pragma once

/// \file
/// What ranks send by messages while a device's stream does the work of a collective: what they started, so that differences are
/// found, and who is missing is known. Cost a rank: ceil(log2 p) empty messages, beside the stream's work.

#include "unisono/schedule/barrier.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// The messages of DisseminationBarrier, which carry the collective's signature: nobody ends before all have started the same. The
/// collective itself is no matter of steps here. `way` tells apart by which algorithm the stream does it.
template <Collective What>
struct OnStream {
    static constexpr Collective collective = What;
    static constexpr std::string_view name = "on a stream";
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = true;
    static constexpr bool on_stream = true;
    Shape shape;
    std::uint32_t way = 0;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return barrier().rounds(); }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return barrier().channel_depth(); }
    [[nodiscard]] constexpr std::uint32_t variant() const { return way; }
    [[nodiscard]] constexpr Cost cost() const { return barrier().cost(); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        barrier().round(r, visit);
    }

    friend constexpr bool operator==(const OnStream&, const OnStream&) = default;

private:
    [[nodiscard]] constexpr DisseminationBarrier barrier() const { return {shape}; }
};
static_assert(collective_schedule<OnStream<Collective::all_reduce>>);

} // namespace schedule

UNISONO_NAMESPACE_END
