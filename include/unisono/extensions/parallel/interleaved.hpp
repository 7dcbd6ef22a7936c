#pragma once

/// \file
/// Interleaved 1F1B: each stage has several chunks of the model, and a micro-batch goes through the
/// stages once per chunk. Source: Narayanan et al. 2021, section 2.2.2.

#include "unisono/extensions/parallel/pipeline.hpp"

#include <algorithm>

UNISONO_NAMESPACE_BEGIN

/// If p divides m, the bubble is (p - 1) / (v m + p - 1): v times smaller than that of 1F1B, for v
/// times the messages, and activations of up to (v + 1) p - 2 s - 1 chunks. Micro-batches go
/// through the chunks in groups of p. A last group that is not full keeps the order of a full
/// group, which cannot block; its bubble is larger.
struct Interleaved {
    static constexpr std::string_view name = "interleaved 1F1B";
    std::uint32_t chunks = 2;

    template <class Visit>
    constexpr void work(const PipelineShape& shape, Visit&& visit) const {
        const auto p = static_cast<std::uint32_t>(shape.stages);
        const std::uint32_t group = p * shape.chunks;
        const std::uint32_t all = (shape.micro_batches + p - 1) / p * group;
        const std::uint32_t ahead = std::min(all, rounds_ahead(shape));
        const auto see = [&](PipelinePhase phase, std::uint32_t k) {
            const std::uint32_t micro_batch = k / group * p + k % p, chunk = k % group / p;
            if (micro_batch >= shape.micro_batches) return;
            visit(PipelineWork{phase, micro_batch, phase == PipelinePhase::forward ? chunk : shape.chunks - 1 - chunk});
        };
        for (std::uint32_t k = 0; k < ahead; ++k) see(PipelinePhase::forward, k);
        for (std::uint32_t k = 0; k < all; ++k) {
            if (ahead + k < all) see(PipelinePhase::forward, ahead + k);
            see(PipelinePhase::backward, k);
        }
    }
    [[nodiscard]] static constexpr std::size_t in_flight(const PipelineShape& shape) {
        return std::min<std::size_t>(std::size_t{shape.micro_batches} * shape.chunks, rounds_ahead(shape) + 1);
    }

    friend bool operator==(const Interleaved&, const Interleaved&) = default;

private:
    /// The number of forward passes before the first backward pass: until this stage's last chunk
    /// is reached, and for the way to the last stage and back.
    static constexpr std::uint32_t rounds_ahead(const PipelineShape& shape) {
        return 2 * static_cast<std::uint32_t>(shape.stages - shape.stage - 1) +
               (shape.chunks - 1) * static_cast<std::uint32_t>(shape.stages);
    }
};
static_assert(pipeline_schedule<Interleaved>);

UNISONO_NAMESPACE_END
