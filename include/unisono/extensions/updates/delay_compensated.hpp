#pragma once

/// \file
/// Asynchronous; stale gradients are corrected to the current parameters.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/core/math.hpp"
#include "unisono/extensions/updates/service.hpp"

#include <span>

UNISONO_NAMESPACE_BEGIN

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

    void check() const;
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

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION void DelayCompensated::check() const {
    detail::check_servers(name, servers);
    if (!(lambda >= 0) || !detail::is_finite(lambda))
        refuse_input({name, ".lambda is ", lambda, "; expected a finite number of at least 0"});
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
