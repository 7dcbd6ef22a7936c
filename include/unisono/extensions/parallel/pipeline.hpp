#pragma once

/// \file
/// A pipeline schedule: the order in which a stage computes micro-batches forward and backward, as
/// a pure function of its position. The same order is executed (pipeline_model.hpp), proven
/// (pipeline_proof.hpp), simulated and drawn (pipeline_timeline.hpp).
///
/// **Positions.** There are p stages, each with v *chunks* of the model. The model's p v parts are
/// numbered along the forward pass; part c p + s is chunk c of stage s. So the next chunk after
/// that of the last stage is on stage 0. Most schedules have v = 1.
///
/// **Laws**, which `verify_pipeline` proves: a stage computes each micro-batch of each of its
/// chunks forward once, and later backward once. It takes each chunk's micro-batches in the order
/// 0, 1, ... m - 1 both times, so that every schedule sums gradients in the same order. Receives
/// match sends. No stage waits for ever, if a part sends gradients only while fewer than
/// `gradient_places` of its gradients have not been received. At most `in_flight(shape)`
/// activations wait for their backward pass on a stage. The same holds on a single stage, whose
/// chunks pass data on without messages.
///
/// Menu, with the bubble as a share of the time, and the activations in flight on stage s:
/// - `GPipe`: (p - 1) / (m + p - 1); m. The simplest.
/// - `OneForwardOneBackward`: the same bubble; min(m, p - s). The default: less memory at the same
///   speed.
/// - `Interleaved{.chunks = v}`: (p - 1) / (v m + p - 1), for m a multiple of p; (v + 1) p - 2 s -
///   1 chunks, of v per stage. For few micro-batches and fast links: v times the messages.
///
/// The bubble is the share of all stages' time in which they wait, if every part of the model takes
/// the same time and messages take none.
///
/// Absent: schedules that split the backward pass (zero bubble), which need stages that compute the
/// gradients of inputs and of parameters separately; asynchronous schedules (PipeDream), whose
/// stages see parameters of different updates.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The stage, the number of stages, and the number of micro-batches.
struct PipelineShape {
    int stages = 1;
    int stage = 0;
    std::uint32_t micro_batches = 1;
    std::uint32_t chunks = 1; ///< chunks of each stage
    friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};

/// The direction of a micro-batch.
enum class PipelinePhase : std::uint8_t { forward, backward };

/// The forward or backward pass of one micro-batch through one chunk.
struct PipelineWork {
    PipelinePhase phase = PipelinePhase::forward;
    std::uint32_t micro_batch = 0;
    std::uint32_t chunk = 0;
    friend bool operator==(const PipelineWork&, const PipelineWork&) = default;
};

namespace detail {
struct AnyWork {
    void operator()(const PipelineWork&) const {}
};
/// The number of gradients of one part that may be in flight: the sender keeps as many buffers.
inline constexpr std::size_t gradient_places = 2;
} // namespace detail

/// Orders of forward and backward passes of micro-batches on the stages of a pipeline.
template <class S>
concept pipeline_schedule =
    detail::copyable_value<S> && requires(const S& schedule, const PipelineShape& shape, detail::AnyWork visit) {
        { S::name } -> std::convertible_to<std::string_view>;
        { schedule.chunks } -> std::convertible_to<std::uint32_t>; ///< chunks of each stage
        schedule.work(shape, visit);                               ///< calls visit(PipelineWork) in order
        { schedule.in_flight(shape) } -> std::same_as<std::size_t>;
    };

/// The kinds of work of a stage, including messages.
enum class PipelineStep : std::uint8_t {
    receive_activation,
    forward,
    send_activation,
    receive_gradient,
    backward,
    send_gradient
};

constexpr std::string_view name_of(PipelineStep step) {
    constexpr std::string_view names[] = {"receive_activation", "forward",  "send_activation",
                                          "receive_gradient",   "backward", "send_gradient"};
    return names[static_cast<std::size_t>(step)];
}

/// One action of a stage: a piece of work with what it awaits and sends.
struct PipelineAction {
    PipelineStep step = PipelineStep::forward;
    std::uint32_t micro_batch = 0;
    std::uint32_t chunk = 0;
    int peer = -1; ///< for a message: the other stage
    friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

/// The number of a chunk's part, counted along the forward pass over the whole model.
constexpr std::uint32_t part_of(const PipelineShape& shape, std::uint32_t chunk) {
    return chunk * static_cast<std::uint32_t>(shape.stages) + static_cast<std::uint32_t>(shape.stage);
}
/// The number of parts of the model, over all stages.
constexpr std::uint32_t parts_of(const PipelineShape& shape) {
    return shape.chunks * static_cast<std::uint32_t>(shape.stages);
}
/// True if the chunk has a part before it. Its stage is another rank's, except for a single stage,
/// which passes data to itself.
constexpr bool has_part_before(const PipelineShape& shape, std::uint32_t chunk) { return part_of(shape, chunk) != 0; }
/// True if the chunk sends its activations to a part behind it.
constexpr bool has_part_behind(const PipelineShape& shape, std::uint32_t chunk) {
    return part_of(shape, chunk) + 1 != parts_of(shape);
}
/// The stage with the parts before this one's. For the first stage it is the last.
constexpr int stage_before(const PipelineShape& shape) { return (shape.stage + shape.stages - 1) % shape.stages; }
/// The stage with the parts behind this one's. For the last stage it is the first.
constexpr int stage_behind(const PipelineShape& shape) { return (shape.stage + 1) % shape.stages; }

/// The tag of a message with activations to the part `to_part`.
constexpr int activation_tag(std::uint32_t to_part) { return static_cast<int>(2 * to_part); }
/// The tag of a message with gradients to the part `to_part`.
constexpr int gradient_tag(std::uint32_t to_part) { return static_cast<int>(2 * to_part + 1); }

/// Calls visit for all actions of a stage, in order: for each piece of work, the receives before it
/// and the sends after it.
template <pipeline_schedule Schedule, class Visit>
constexpr void for_each_action(const Schedule& schedule, const PipelineShape& shape, Visit&& visit) {
    schedule.work(shape, [&](const PipelineWork& work) {
        const bool forward = work.phase == PipelinePhase::forward;
        const bool before = shape.stages > 1 && has_part_before(shape, work.chunk);
        const bool behind = shape.stages > 1 && has_part_behind(shape, work.chunk);
        const auto act = [&](PipelineStep step, int peer) {
            visit(PipelineAction{step, work.micro_batch, work.chunk, peer});
        };
        if (forward && before) act(PipelineStep::receive_activation, stage_before(shape));
        if (!forward && behind) act(PipelineStep::receive_gradient, stage_behind(shape));
        act(forward ? PipelineStep::forward : PipelineStep::backward, -1);
        if (forward && behind) act(PipelineStep::send_activation, stage_behind(shape));
        if (!forward && before) act(PipelineStep::send_gradient, stage_before(shape));
    });
}

/// \throws error bad_input
inline void refuse_bad_pipeline(const PipelineShape& shape) {
    if (shape.stages < 1 || shape.stages > 4096)
        refuse_input({"a pipeline has 1 to 4096 stages, found ", shape.stages});
    if (shape.stage < 0 || shape.stage >= shape.stages)
        refuse_input({"found stage ", shape.stage, " of a pipeline of ", shape.stages});
    if (shape.micro_batches < 1 || shape.micro_batches > (1u << 20))
        refuse_input({"a pipeline has 1 to 1048576 micro-batches, found ", shape.micro_batches});
    if (shape.chunks < 1 || shape.chunks > 1024)
        refuse_input({"a pipeline's stage has 1 to 1024 chunks, found ", shape.chunks});
}

UNISONO_NAMESPACE_END
