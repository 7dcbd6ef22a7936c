#pragma once

/// \file
/// Updates that servers make: at once, with a bound on staleness, corrected for it, or from the
/// first gradients that arrive.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/core/math.hpp"
#include "unisono/extensions/updates/service.hpp"

#include <span>

UNISONO_NAMESPACE_BEGIN

/// Workers push gradients to servers. A server applies each gradient at once and answers with its
/// current parameters, with which the worker continues (extensions/updates/served.hpp). While a
/// worker computes, other workers' gradients change the parameters: with W equally fast workers the
/// staleness is about W - 1. Choose a learning rate and a momentum that tolerate it. Bytes per
/// push: one gradient to the servers, the parameters back. The order of updates, and so the bits,
/// depends on when messages arrive; over `Simulated`, on the seed alone. With one worker it is
/// sequential SGD. Source: Dean et al. 2012 (Downpour SGD), with one update between two pushes; Li
/// et al. 2014 (parameter server).
struct Asynchronous {
    int servers = 1; ///< the number of servers: the last ranks of the world

    static constexpr std::string_view name = "asynchronous";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool asynchronous = true;
    using Sharding = detail::ServerSlices;
    friend bool operator==(const Asynchronous&, const Asynchronous&) = default;

    void check() const { detail::check_servers(name, servers); }
    [[nodiscard]] bool together() const { return false; }
    [[nodiscard]] bool goes_on(std::uint64_t, std::uint64_t) const { return true; }
    template <class Training>
    detail::Service<Training, Asynchronous> start(Training& training) const {
        return detail::Service<Training, Asynchronous>(training, *this);
    }
    /// \throws error bad_input: as many servers as ranks
    [[nodiscard]] Sharding sharding(int world) const { return detail::server_slices(*this, world); }
};
UNISONO_CERTIFY(served_update_policy<Asynchronous>);

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

/// DC-ASGD. A worker has computed the gradient g at the parameters `read`. When g arrives, the
/// parameters are w. The server applies, element by element,
/// g + lambda * g * g * (w - read), the first terms of a Taylor expansion around `read`, with
/// lambda times the diagonal of g g^T in place of the Hessian. With `lambda` 0, and for a gradient
/// that is not stale, it equals `Asynchronous`, up to rounding. If the guard looks at gradients, a
/// server leaves out its slices of a gradient that is not finite after the correction. Servers keep
/// the parameters that each worker has read: W times the model in all.
/// Source: Zheng et al. 2017 (DC-ASGD), algorithm 2, with a constant lambda.
struct DelayCompensated {
    double lambda = 0.04;
    int servers = 1; ///< the number of servers: the last ranks of the world

    static constexpr std::string_view name = "delay compensated";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool asynchronous = true;
    using Sharding = detail::ServerSlices;
    static constexpr bool compensates = true;
    friend bool operator==(const DelayCompensated&, const DelayCompensated&) = default;

    void check() const {
        detail::check_servers(name, servers);
        if (!(lambda >= 0) || !detail::is_finite(lambda))
            refuse_input({name, ".lambda is ", lambda, "; expected a finite number of at least 0"});
    }
    [[nodiscard]] bool together() const { return false; }
    [[nodiscard]] bool goes_on(std::uint64_t, std::uint64_t) const { return true; }
    /// Replaces `gradients` by the gradient at the current parameters. Each operation is rounded to
    /// T.
    template <class T>
    void compensate(std::span<T> gradients, double scale, std::span<const T> parameters,
                    std::span<const T> read) const {
        apply(Carry<T>{static_cast<T>(scale), static_cast<T>(lambda)}, gradients, parameters, read);
    }
    template <class Training>
    detail::Service<Training, DelayCompensated> start(Training& training) const {
        return detail::Service<Training, DelayCompensated>(training, *this);
    }
    /// \throws error bad_input: as many servers as ranks
    [[nodiscard]] Sharding sharding(int world) const { return detail::server_slices(*this, world); }

private:
    template <class T>
    struct Carry;
};

UNISONO_NO_CONTRACTION_BEGIN

template <class T>
struct DelayCompensated::Carry {
    T scale, lambda;
    UNISONO_INLINE void operator()(T& g, const T& now, const T& read) const {
        UNISONO_NO_CONTRACTION_HERE
        const T mean = g * scale;
        const T pull = lambda * (now - read); // multiplied first: 0 times a square that overflows would be NaN
        g = mean + pull * mean * mean;
    }
};

UNISONO_NO_CONTRACTION_END

UNISONO_CERTIFY(served_update_policy<DelayCompensated>);

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
UNISONO_CERTIFY(served_update_policy<BackupWorkers>);

UNISONO_NAMESPACE_END
