#pragma once

/// \file
/// Asynchronous within a bound: no worker gets more than a given number of updates ahead of the
/// slowest.

#include "unisono/extensions/updates/service.hpp"

UNISONO_NAMESPACE_BEGIN

/// Stale synchronous parallel: a worker continues as long as it is at most `staleness` clocks ahead
/// of the slowest. So the parameters with which it begins its clock c (from 0) contain all workers'
/// gradients of clocks up to c - staleness - 1, all its own gradients, and those of others that
/// have arrived. Within the bound, servers apply each gradient as it arrives, as with
/// `Asynchronous`; a bound that no worker reaches gives the same bits as `Asynchronous`. With
/// `staleness` 0, the gradients of one clock make one update by their weighted mean, summed in rank
/// order. That equals `Synchronous`, bit by bit if `Synchronous` sums in rank order (two workers,
/// or memory that ranks share).
/// Source: Ho et al. 2013 (SSP), section 3; there updates are added, which corresponds to plain SGD
/// here.
struct BoundedStaleness {
    std::uint64_t staleness = 1;
    int servers = 1; ///< the number of servers: the last ranks of the world

    static constexpr std::string_view name = "bounded staleness";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool asynchronous = true;
    using Sharding = detail::ServerSlices;
    friend bool operator==(const BoundedStaleness&, const BoundedStaleness&) = default;

    void check() const { detail::check_servers(name, servers); }
    [[nodiscard]] bool together() const { return staleness == 0; }
    [[nodiscard]] bool goes_on(std::uint64_t clock, std::uint64_t slowest) const {
        return clock <= slowest || clock - slowest <= staleness;
    }
    template <class Training>
    detail::Service<Training, BoundedStaleness> start(Training& training) const {
        return detail::Service<Training, BoundedStaleness>(training, *this);
    }
    /// \throws error bad_input: as many servers as ranks
    [[nodiscard]] Sharding sharding(int world) const { return detail::server_slices(*this, world); }
};
UNISONO_CERTIFY(served_update_policy<BoundedStaleness>);

UNISONO_NAMESPACE_END
