#pragma once

/// \file
/// A fixed number of micro-batches per update.

#include "unisono/accumulation/accumulation.hpp"
#include "unisono/core/text.hpp"

UNISONO_NAMESPACE_BEGIN

/// `steps` micro-batches of each rank make one update: a global batch of batch_size x steps x
/// ranks.
struct Accumulate {
    std::int64_t steps = 1;
    ShortWindow short_window = ShortWindow::keep;

    static constexpr std::string_view name = "Accumulate";
    static constexpr Family family = Family::accumulation;
    static constexpr bool counts_tokens = false;
    friend bool operator==(const Accumulate&, const Accumulate&) = default;

    /// \throws error bad_input: steps below 1, or not a multiple of the replicas that a rank hosts
    /// (an update would take more micro-batches of one replica than of another)
    [[nodiscard]] AccumulationWindow window(std::int64_t hosted = 1) const;
};

UNISONO_CERTIFY(accumulation_policy<Accumulate>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION AccumulationWindow Accumulate::window(std::int64_t hosted) const {
    accumulation::check_target(name, "steps", steps);
    accumulation::check_target(name, "hosted", hosted);
    if (steps % hosted != 0)
        refuse_input({"Accumulate: steps is ", steps, ", expected a multiple of the ", hosted,
                      " replicas that each rank hosts (InterleavedSampler)"});
    return {{.micro_batches = steps}, short_window};
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
