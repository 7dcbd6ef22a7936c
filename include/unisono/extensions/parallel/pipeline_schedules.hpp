#pragma once

/// \file
/// The schedules of pipelines.
/// - `GPipe`: all micro-batches forward, then all backward. Source: Huang et al. 2019 (GPipe),
///   section 2.3.
/// - `OneForwardOneBackward`: as soon as a stage can go backward, it alternates one micro-batch
///   forward and one backward. Source: Narayanan et al. 2021, Efficient large-scale language model
///   training on GPU clusters, section 2.2.1 (PipeDream-Flush).
/// - `Interleaved`: each stage has several chunks of the model, and a micro-batch goes through the
///   stages once per chunk. Source: ibid., section 2.2.2.

#include "unisono/extensions/parallel/pipeline.hpp"

#include <algorithm>

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
