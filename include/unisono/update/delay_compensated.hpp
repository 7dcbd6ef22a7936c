#pragma once

/// \file
/// Asynchronous, with stale gradients carried on to where the parameters are now.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/update/service.hpp"

#include <cmath>
#include <span>

UNISONO_NAMESPACE_BEGIN

/// DC-ASGD: a gradient g that a worker computed at the parameters `read`, and that arrives when they are w, is applied as
///     g + lambda * g * g * (w - read),
/// element by element: the first terms of a Taylor expansion around `read`, with g g^T's diagonal, times lambda, for the Hessian. With
/// `lambda` 0 it is `Asynchronous`, up to rounding. Servers keep, for each worker, the parameters that it has read: W times the model in all.
/// Source: Zheng et al. 2017 (DC-ASGD), algorithm 2, with a constant lambda.
struct DelayCompensated {
    double lambda = 0.04;
    int servers = 1; ///< the last ranks of the world

    static constexpr std::string_view name = "delay compensated";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool asynchronous = true;
    using Sharding = detail::ServerSlices;
    static constexpr bool compensates = true;
    friend bool operator==(const DelayCompensated&, const DelayCompensated&) = default;

    void check() const {
        detail::check_servers(name, servers);
        if (!(lambda >= 0) || !std::isfinite(lambda))
            refuse_input({name, ".lambda is ", lambda, "; expected a finite number of at least 0"});
    }
    [[nodiscard]] bool together() const { return false; }
    [[nodiscard]] bool goes_on(std::uint64_t, std::uint64_t) const { return true; }
    /// gradients[i] = that of where the parameters are. Rounded to T after each operation.
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
        const T curvature = lambda * mean * mean;
        g = mean + curvature * (now - read);
    }
};

UNISONO_NO_CONTRACTION_END

static_assert(served_update_policy<DelayCompensated>);

UNISONO_NAMESPACE_END
