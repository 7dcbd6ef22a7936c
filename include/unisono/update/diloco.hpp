#pragma once

/// \file
/// Each rank makes many updates of its own. Then an outer optimizer makes a step by the mean of the
/// ranks' movements.

#include "unisono/optimizer/optimizer.hpp"
#include "unisono/optimizer/sgd.hpp"
#include "unisono/update/averaging.hpp"

UNISONO_NAMESPACE_BEGIN

/// DiLoCo: every `steps` updates, the ranks average how far each has moved from the common
/// parameters. That mean, negated, is the gradient of an outer optimizer. The inner optimizer is
/// the trainer's (AdamW in the paper). An outer Sgd with a learning rate of 1 and no momentum is
/// LocalSteps; with a learning rate below 1 it is Lookahead. With momentum, and a constant inner
/// learning rate, it is SlowMo. An outer Adam is FedAdam. Memory in addition to that of LocalSteps:
/// the common parameters and the outer optimizer's state.
/// Source: Douillard et al. 2023 (DiLoCo), algorithm 1, whose outer values are the defaults; Reddi
/// et al. 2021 (adaptive federated optimization), algorithm 2; Wang et al. 2020 (SlowMo), algorithm
/// 1; Zhang et al. 2019 (Lookahead), algorithm 1.
template <optimizer_policy Outer = Sgd>
struct Diloco {
    std::uint64_t steps = 500;
    std::uint64_t warm_up = 0; ///< this many updates at the beginning are synchronous
    Outer outer = default_outer();

    static constexpr std::string_view name = "Diloco";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool sums_buckets = true;
    static constexpr bool on_device = true;
    friend bool operator==(const Diloco&, const Diloco&) = default;

    void check() const {
        detail::check_steps(name, steps);
        outer.check();
    }
    template <class Training>
    detail::Averaging<Training, Diloco> start(Training& training) const {
        return detail::Averaging<Training, Diloco>(training, *this);
    }

private:
    static constexpr Outer default_outer() {
        if constexpr (std::same_as<Outer, Sgd>) return Sgd{.learning_rate = 0.7, .momentum = 0.9, .nesterov = true};
        else return Outer{};
    }
};
UNISONO_CERTIFY(update_policy<Diloco<>>);

UNISONO_NAMESPACE_END
