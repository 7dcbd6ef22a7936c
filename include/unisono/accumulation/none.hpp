#pragma once

/// \file
/// No accumulation: every round is an update.

#include "unisono/accumulation/accumulation.hpp"

UNISONO_NAMESPACE_BEGIN

/// One round, one update. A rank that hosts several replicas (InterleavedSampler) takes one
/// micro-batch of each.
struct NoAccumulation {
    static constexpr std::string_view name = "NoAccumulation";
    static constexpr Family family = Family::accumulation;
    static constexpr bool counts_tokens = false;
    friend bool operator==(const NoAccumulation&, const NoAccumulation&) = default;

    /// \throws error bad_input: hosted below 1
    [[nodiscard]] AccumulationWindow window(std::int64_t hosted = 1) const;
};

UNISONO_CERTIFY(accumulation_policy<NoAccumulation>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION AccumulationWindow NoAccumulation::window(std::int64_t hosted) const {
    accumulation::check_target(name, "hosted", hosted);
    return {{.micro_batches = hosted}, ShortWindow::keep};
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
