#pragma once

/// \file
/// All micro-batches forward, then all backward. Source: Huang et al. 2019 (GPipe), section 2.3.

#include "unisono/extensions/parallel/pipeline.hpp"

UNISONO_NAMESPACE_BEGIN

/// The bubble is (p - 1) / (m + p - 1). A stage holds the activations of all m micro-batches;
/// recomputation (PipelineOptions) reduces that memory. The backward pass also takes the
/// micro-batches in ascending order, so that gradients are summed as on one rank.
struct GPipe {
    static constexpr std::string_view name = "GPipe";
    static constexpr std::uint32_t chunks = 1;

    template <class Visit>
    static constexpr void work(const PipelineShape& shape, Visit&& visit) {
        for (const PipelinePhase phase : {PipelinePhase::forward, PipelinePhase::backward})
            for (std::uint32_t i = 0; i < shape.micro_batches; ++i) visit(PipelineWork{phase, i, 0});
    }
    [[nodiscard]] static constexpr std::size_t in_flight(const PipelineShape& shape) { return shape.micro_batches; }

    friend bool operator==(const GPipe&, const GPipe&) = default;
};
static_assert(pipeline_schedule<GPipe>);

UNISONO_NAMESPACE_END
