#pragma once

/// \file
/// How many replicas each rank hosts, and a warning where these are not equally many; policies for
/// fewer ranks.

#include "unisono/core/text.hpp"

#include <cstdint>
#include <cstdio>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Empty where `ranks` ranks host equally many of `replicas` replicas.
inline std::string uneven_hosting_text(std::int64_t replicas, std::int64_t ranks, std::uint64_t epoch) {
    if (ranks < 1 || replicas % ranks == 0) return {};
    const std::int64_t fewest = replicas / ranks, with_more = replicas % ranks, with_fewest = ranks - with_more;
    std::int64_t below = ranks, above = ranks;
    while (replicas % below != 0) --below;
    while (replicas % above != 0) ++above;
    return concat({"unisono: warning: in membership ", epoch, " of the elastic world ", with_more,
                   (with_more == 1 ? " rank hosts " : " ranks host "), fewest + 1, " of the ", replicas,
                   " replicas, and ", with_fewest, (with_fewest == 1 ? " rank hosts " : " ranks host "), fewest,
                   "; an update takes as long as the ranks with most need. With ", below, " or ", above,
                   " ranks all host equally many\n"});
}
/// On the standard error. Of hosting that has no number of replicas there is nothing to say.
template <class Hosting>
void warn_of_uneven_hosting(const Hosting& hosting, std::int64_t ranks, std::uint64_t epoch) {
    if constexpr (requires { hosting.count; })
        static_cast<void>(std::fputs(uneven_hosting_text(hosting.count, ranks, epoch).c_str(), stderr));
}

/// The policy for a world of `ranks` ranks, where it names others of them. The first membership has
/// the policy as it was given, so that a mistake in it is refused.
template <class Policy>
Policy within(const Policy& policy, std::uint64_t epoch, int ranks) {
    if (epoch == 0) return policy;
    if constexpr (requires { policy.within(ranks); }) return policy.within(ranks);
    else return policy;
}

} // namespace detail
UNISONO_NAMESPACE_END
