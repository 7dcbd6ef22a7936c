#pragma once

/// \file
/// Each rank makes several updates of its own; then the ranks average their parameters.

#include "unisono/update/averaging.hpp"

UNISONO_NAMESPACE_BEGIN

/// Sends parameters every `steps` updates instead of gradients at every update: 1/steps of the
/// bytes and of the waits. With `steps` 1 it equals Synchronous up to rounding (for optimizers
/// without a non-linear state). The larger `steps` is, the further the ranks diverge; a warm-up of
/// synchronous updates helps (post-local SGD). Every rank has the same weight in the mean, however
/// many samples it has. Memory: one copy of the parameters.
/// Source: Stich 2019 (local SGD), section 2; Lin et al. 2020 (post-local SGD), algorithm 2.
struct LocalSteps {
    std::uint64_t steps = 8;
    std::uint64_t warm_up = 0; ///< this many updates at the beginning are synchronous

    static constexpr std::string_view name = "local steps";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool sums_buckets = true;
    static constexpr bool on_device = true;
    friend bool operator==(const LocalSteps&, const LocalSteps&) = default;

    void check() const { detail::check_steps(name, steps); }
    template <class Training>
    detail::Averaging<Training, LocalSteps> start(Training& training) const {
        return detail::Averaging<Training, LocalSteps>(training, *this);
    }
};
UNISONO_CERTIFY(update_policy<LocalSteps>);

UNISONO_NAMESPACE_END
