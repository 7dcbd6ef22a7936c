#pragma once

/// \file
/// 1F1B: as soon as a stage can go backward, it alternates one micro-batch forward and one
/// backward. Source: Narayanan et al. 2021, Efficient large-scale language model training on GPU
/// clusters, section 2.2.1 (PipeDream-Flush).

#include "unisono/extensions/parallel/pipeline.hpp"

#include <algorithm>

UNISONO_NAMESPACE_BEGIN

/// The bubble is (p - 1) / (m + p - 1), as for GPipe. Stage s holds the activations of at most p -
/// s micro-batches, for any number of micro-batches.
struct OneForwardOneBackward {
    static constexpr std::string_view name = "1F1B";
    static constexpr std::uint32_t chunks = 1;

    template <class Visit>
    static constexpr void work(const PipelineShape& shape, Visit&& visit) {
        const std::uint32_t all = shape.micro_batches;
        const std::uint32_t ahead = std::min(all, static_cast<std::uint32_t>(shape.stages - shape.stage - 1));
        for (std::uint32_t i = 0; i < ahead; ++i) visit(PipelineWork{PipelinePhase::forward, i, 0});
        for (std::uint32_t i = 0; i < all; ++i) {
            if (ahead + i < all) visit(PipelineWork{PipelinePhase::forward, ahead + i, 0});
            visit(PipelineWork{PipelinePhase::backward, i, 0});
        }
    }
    [[nodiscard]] static constexpr std::size_t in_flight(const PipelineShape& shape) {
        return std::min<std::size_t>(shape.micro_batches, static_cast<std::size_t>(shape.stages - shape.stage));
    }

    friend bool operator==(const OneForwardOneBackward&, const OneForwardOneBackward&) = default;
};
static_assert(pipeline_schedule<OneForwardOneBackward>);

UNISONO_NAMESPACE_END
