#pragma once

/// \file
/// Micro-batches up to a target number of samples per update.

#include "unisono/accumulation/accumulation.hpp"

UNISONO_NAMESPACE_BEGIN

/// Makes an update after the first round with which all ranks together have at least `samples`
/// samples. Rounds are never split, so an update may exceed the target by up to one round less one
/// sample. The global batch stays about the same for any number of ranks.
struct AccumulateSamples {
    std::int64_t samples = 1;
    ShortWindow short_window = ShortWindow::keep;

    static constexpr std::string_view name = "AccumulateSamples";
    static constexpr Family family = Family::accumulation;
    static constexpr bool counts_tokens = false;
    friend bool operator==(const AccumulateSamples&, const AccumulateSamples&) = default;

    /// \throws error bad_input: samples below 1
    [[nodiscard]] AccumulationWindow window(std::int64_t hosted = 1) const;
};

UNISONO_CERTIFY(accumulation_policy<AccumulateSamples>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION AccumulationWindow AccumulateSamples::window(std::int64_t hosted) const {
    accumulation::check_target(name, "samples", samples);
    accumulation::check_target(name, "hosted", hosted);
    return {{.samples = samples}, short_window};
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
