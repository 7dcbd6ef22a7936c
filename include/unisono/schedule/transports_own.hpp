#pragma once

/// \file
/// A collective that a transport has of its own (MPI's, say), as a schedule: first all ranks learn that all others have come to the
/// same one, and then the transport does all the rest in one step. Costs ceil(log2 p) empty messages more than the transport's own
/// would alone; for that it has our checks, our deadlines, and never begins before it can end.

#include "unisono/schedule/barrier.hpp"
#include "unisono/schedule/circular.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// By dissemination as DisseminationBarrier (whose messages carry and compare signatures), then `StepKind::transports_own`. Nothing
/// but an executor whose transport has that step can run it, verify and cost see no data in it.
template <Collective What>
struct TransportsOwn {
    static constexpr Collective collective = What;
    static constexpr std::string_view name = "transport's own";
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = false;
    static constexpr bool transports_own = true;
    Shape shape;

    [[nodiscard]] constexpr std::uint32_t blocks() const {
        constexpr bool vector =
            What == Collective::all_reduce || What == Collective::broadcast || What == Collective::reduce;
        return vector ? 1 : detail::world_of(shape);
    }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return barrier().rounds() + 1; }
    [[nodiscard]] constexpr std::uint32_t scratch_slots() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return barrier().channel_depth(); }
    [[nodiscard]] constexpr Cost cost() const { return barrier().cost(); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        if (r + 1 == rounds()) return visit(Step{.kind = StepKind::transports_own});
        barrier().round(r, visit);
    }

    friend constexpr bool operator==(const TransportsOwn&, const TransportsOwn&) = default;

private:
    [[nodiscard]] constexpr DisseminationBarrier barrier() const { return {shape}; }
};
static_assert(collective_schedule<TransportsOwn<Collective::all_reduce>>);

} // namespace schedule

UNISONO_NAMESPACE_END
