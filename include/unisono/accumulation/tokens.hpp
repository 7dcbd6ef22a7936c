#pragma once

/// \file
/// Micro-batches up to a target number of tokens per update.

#include "unisono/accumulation/accumulation.hpp"

UNISONO_NAMESPACE_BEGIN

/// Makes an update after the first round with which all ranks together have at least `tokens`
/// tokens (words, pixels, or any other unit over which the model's loss is a mean). The trainer
/// sums each round's tokens over the ranks, by one small all-reduce per round. Rounds are never
/// split, so an update may exceed the target by up to one round.
struct AccumulateTokens {
    std::int64_t tokens = 1;
    ShortWindow short_window = ShortWindow::keep;

    static constexpr std::string_view name = "AccumulateTokens";
    static constexpr Family family = Family::accumulation;
    static constexpr bool counts_tokens = true;
    friend bool operator==(const AccumulateTokens&, const AccumulateTokens&) = default;

    /// \throws error bad_input: tokens below 1
    [[nodiscard]] AccumulationWindow window(std::int64_t hosted = 1) const;
};

UNISONO_CERTIFY(accumulation_policy<AccumulateTokens>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION AccumulationWindow AccumulateTokens::window(std::int64_t hosted) const {
    accumulation::check_target(name, "tokens", tokens);
    accumulation::check_target(name, "hosted", hosted);
    return {{.tokens = tokens}, short_window};
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
