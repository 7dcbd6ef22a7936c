#pragma once

/// \file
/// A transport's own collective (NCCL's on a stream) as a schedule. Its messages make sure that all
/// ranks have started the same collective; the transport does the rest (transport/own_runs.hpp). It
/// costs ceil(log2 p) empty messages more than the transport's collective alone, and adds this
/// library's checks, deadlines and diagnosis.

#include "unisono/schedule/barrier.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// The messages of DisseminationBarrier, which carry and compare the collective's signature: no
/// rank ends before all have started the same one. Only an executor whose transport has such
/// collectives can run it; verify and cost see no data in it. `way` selects the transport's
/// algorithm if it has several.
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
