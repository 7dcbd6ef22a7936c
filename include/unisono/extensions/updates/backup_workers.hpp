#pragma once

/// \file
/// All ranks update together, but do not wait for the slowest.

#include "unisono/extensions/updates/service.hpp"

UNISONO_NAMESPACE_BEGIN

/// Of W workers' gradients that were computed from the current parameters, servers take the first W
/// - `backups`. Their weighted mean is one update for these workers. A later gradient is dropped:
/// its worker is told so (`UpdateReport::late`), gets the current parameters, and continues with
/// its next data. So no stale gradient is applied, and no update waits for a slow or paused worker;
/// the work of the slowest workers is lost.
///
/// W counts the workers that have not yet reached a synchronisation. Once no more than `backups` of
/// them are left, their gradients are dropped as well, so that an epoch does not end with updates
/// of a single worker. A push without data counts as a gradient. With `backups` 0 the result has
/// the bits of `BoundedStaleness{.staleness = 0}`. Each of several servers chooses for its own
/// slices. Which gradients are dropped depends on when messages arrive; over `Simulated`, on the
/// seed alone.
/// Source: Chen et al. 2016, "Revisiting distributed synchronous SGD", section 3.
struct BackupWorkers {
    int backups = 1; ///< at least 0, and fewer than the workers
    int servers = 1; ///< the number of servers: the last ranks of the world

    static constexpr std::string_view name = "backup workers";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool asynchronous = true;
    using Sharding = detail::ServerSlices;
    friend bool operator==(const BackupWorkers&, const BackupWorkers&) = default;

    void check() const;
    [[nodiscard]] bool together() const { return true; }
    [[nodiscard]] bool goes_on(std::uint64_t, std::uint64_t) const { return true; }
    template <class Training>
    detail::Service<Training, BackupWorkers> start(Training& training) const {
        return detail::Service<Training, BackupWorkers>(training, *this);
    }
    /// \throws error bad_input: as many servers as ranks
    [[nodiscard]] Sharding sharding(int world) const { return detail::server_slices(*this, world); }
};
UNISONO_CERTIFY(served_update_policy<BackupWorkers>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION void BackupWorkers::check() const {
    detail::check_servers(name, servers);
    if (backups < 0) refuse_input({name, ".backups is ", backups, "; expected at least 0"});
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
