#pragma once

/// \file
/// A barrier over messages, by dissemination, and a transport's own collective behind one. In round
/// k each rank tells rank + 2^k which ranks it knows to have arrived. Cost per rank: ceil(log2 p)
/// empty messages and rounds.
/// Source: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", IJPP
/// 1988.

#include "unisono/schedule/base.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// In round k each rank signals rank + 2^k and waits for rank - 2^k. ceil(log2 p) rounds of empty
/// messages. (Hensgen, Finkel and Manber 1988)
struct DisseminationBarrier : ScheduleBase<Collective::barrier> {
    static constexpr std::string_view name = "dissemination barrier";

    [[nodiscard]] constexpr std::uint32_t rounds() const { return detail::ceil_log2(detail::world_of(shape)); }
    [[nodiscard]] constexpr Cost cost() const { return {rounds(), 0, 0, rounds()}; }

    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        visit(send_to(detail::rank_at(shape, 1 << r), input_blocks(0, 0)));
        visit(receive_from(detail::rank_at(shape, -(1 << r)), input_blocks(0, 0)));
    }
};
UNISONO_CERTIFY(collective_schedule<DisseminationBarrier>);

/// A transport's own collective (NCCL's on a stream) as a schedule: the messages of
/// DisseminationBarrier, which carry and compare the collective's signature. No rank ends before
/// all have started the same one; the transport does the rest (transport/transport_executor.hpp).
/// The messages add this library's checks, deadlines and diagnosis. Only an executor whose
/// transport has such collectives can run it; verify and cost see no data in it. `way` selects the
/// transport's algorithm if it has several.
template <Collective What>
struct TransportsOwn : DisseminationBarrier {
    static constexpr Collective collective = What;
    static constexpr std::string_view name = "transport's own";
    static constexpr bool transports_own = true;
    std::uint32_t way = 0;

    [[nodiscard]] constexpr std::uint32_t variant() const { return way; }
    friend constexpr bool operator==(const TransportsOwn&, const TransportsOwn&) = default;
};
UNISONO_CERTIFY(collective_schedule<TransportsOwn<Collective::all_reduce>>);

} // namespace schedule

UNISONO_NAMESPACE_END
