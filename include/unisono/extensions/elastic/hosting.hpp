#pragma once

/// \file
/// The number of replicas that each rank hosts, a warning if it differs between ranks, and policies
/// for fewer ranks.

#include "unisono/core/text.hpp"

#include <cstdint>
#include <cstdio>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A warning; empty if all of `ranks` ranks host the same number of `replicas` replicas.
inline std::string uneven_hosting_text(std::int64_t replicas, std::int64_t ranks, std::uint64_t epoch) {
    if (ranks < 1 || replicas % ranks == 0) return {};
    const std::int64_t fewest = replicas / ranks, with_more = replicas % ranks, with_fewest = ranks - with_more;
    std::int64_t below = ranks, above = ranks;
    while (replicas % below != 0) --below;
    while (replicas % above != 0) ++above;
    return concat({"unisono: warning: in membership ", epoch, " of the elastic world ", with_more,
                   (with_more == 1 ? " rank hosts " : " ranks host "), fewest + 1, " of the ", replicas,
                   " replicas, and ", with_fewest, (with_fewest == 1 ? " rank hosts " : " ranks host "), fewest,
                   "; an update takes as long as the ranks with the most replicas need. With ", below, " or ", above,
                   " ranks all ranks host the same number\n"});
}
/// Prints the warning on standard error. Without a number of replicas there is no warning.
template <class Hosting>
void warn_of_uneven_hosting(const Hosting& hosting, std::int64_t ranks, std::uint64_t epoch) {
    if constexpr (requires { hosting.count; })
        static_cast<void>(std::fputs(uneven_hosting_text(hosting.count, ranks, epoch).c_str(), stderr));
}

/// Returns the policy for a world of `ranks` ranks, if it names ranks that do not exist there. The
/// first membership gets the policy as it was given, so that an error in it is refused.
template <class Policy>
Policy within(const Policy& policy, std::uint64_t epoch, int ranks) {
    if (epoch == 0) return policy;
    if constexpr (requires { policy.within(ranks); }) return policy.within(ranks);
    else return policy;
}

} // namespace detail
UNISONO_NAMESPACE_END
