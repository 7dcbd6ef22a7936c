#pragma once

/// \file
/// All ranks update together, and do not wait for the slowest.

#include "unisono/update/service.hpp"

UNISONO_NAMESPACE_BEGIN

/// Of W workers, servers take the gradients of the first W - `backups` that come and were computed from the parameters of now; their
/// weighted mean is one update, for these workers. A gradient that comes later is dropped: its worker is told so (`UpdateReport::late`), gets the
/// parameters of now, and goes on with its next data. So nothing that is applied is stale, and no update waits for a worker that is slow or
/// paused; what the slowest compute is lost. As workers come to meet, W is of those that are still at work, and once no more than the
/// backups are, what they push is dropped, too: an epoch does not end with updates of a single worker's. A push without data counts as one.
/// With no backups: `BoundedStaleness{.staleness = 0}`, to the bit. Several servers choose each for its own slices. Which gradients are dropped
/// depends on when messages arrive; over `Simulated` on the seed alone. Source: Chen et al. 2016, "Revisiting distributed synchronous SGD", section 3.
struct BackupWorkers {
    int backups = 1; ///< at least 0, and fewer than workers
    int servers = 1; ///< the last ranks of the world

    static constexpr std::string_view name = "backup workers";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool asynchronous = true;
    using Sharding = detail::ServerSlices;
    friend bool operator==(const BackupWorkers&, const BackupWorkers&) = default;

    void check() const {
        detail::check_servers(name, servers);
        if (backups < 0) refuse_input({name, ".backups is ", backups, "; expected at least 0"});
    }
    [[nodiscard]] bool together() const { return true; }
    [[nodiscard]] bool goes_on(std::uint64_t, std::uint64_t) const { return true; }
    template <class Training>
    detail::Service<Training, BackupWorkers> start(Training& training) const {
        return detail::Service<Training, BackupWorkers>(training, *this);
    }
    /// \throws error bad_input: as many servers as ranks
    [[nodiscard]] Sharding sharding(int world) const { return detail::server_slices(*this, world); }
};
static_assert(served_update_policy<BackupWorkers>);

UNISONO_NAMESPACE_END
