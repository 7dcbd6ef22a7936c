#pragma once

/// \file
/// A collective that a transport has of its own (MPI's, NCCL's on a stream), as a schedule: its
/// messages tell all ranks that all others have come to the same one, and the transport does all
/// the rest (group/own_collectives.hpp). Costs ceil(log2 p) empty messages more than the
/// transport's own would alone; for that it has our checks, our deadlines, and our blame.

#include "unisono/schedule/barrier.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// The messages of DisseminationBarrier, which carry and compare the collective's signature: no
/// rank ends before all have started the same. Nothing but an executor whose transport has such
/// collectives can run it; verify and cost see no data in it. `way` tells apart by which algorithm
/// the transport does it, where there are several.
template <Collective What>
struct TransportsOwn : ScheduleBase<What> {
    static constexpr std::string_view name = "transport's own";
    static constexpr bool transports_own = true;
    std::uint32_t way = 0;

    [[nodiscard]] constexpr std::uint32_t blocks() const { return 0; }
    [[nodiscard]] constexpr std::uint32_t rounds() const { return barrier().rounds(); }
    [[nodiscard]] constexpr std::uint32_t channel_depth() const { return barrier().channel_depth(); }
    [[nodiscard]] constexpr std::uint32_t variant() const { return way; }
    [[nodiscard]] constexpr Cost cost() const { return barrier().cost(); }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        barrier().round(r, visit);
    }

    friend constexpr bool operator==(const TransportsOwn&, const TransportsOwn&) = default;

private:
    [[nodiscard]] constexpr DisseminationBarrier barrier() const { return {this->shape}; }
};
UNISONO_CERTIFY(collective_schedule<TransportsOwn<Collective::all_reduce>>);

} // namespace schedule

UNISONO_NAMESPACE_END
