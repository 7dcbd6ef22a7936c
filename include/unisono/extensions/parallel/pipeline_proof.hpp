#pragma once

/// \file
/// Proves a pipeline schedule: runs all stages on channels of small capacity and on the slots that
/// the runner reserves, and counts. For tests, not for programs.

#include "unisono/extensions/parallel/pipeline_timeline.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The result of `verify_pipeline`.
struct PipelineReport {
    std::vector<std::string> violations = {};
    /// Greatest number on each stage of micro-batches between forward and backward pass.
    std::vector<std::size_t> in_flight = {};
    std::uint64_t messages = 0;

    [[nodiscard]] bool proven() const { return violations.empty(); }
};

namespace detail {

class PipelineProof {
public:
    PipelineProof(const PipelineProgram& program, std::size_t places)
        : program_(program), places_(places), at_(program.actions.size(), 0), done_(at_.size()), held_(at_.size(), 0),
          activations_(program.parts()), gradients_(program.parts()), slots_(at_.size()) {
        report_.in_flight.assign(at_.size(), 0);
        for (Counts& one : done_) one.resize(program.chunks);
        for (std::size_t stage = 0; stage < at_.size(); ++stage)
            for (const std::size_t count : slots_of(stage)) slots_[stage].emplace_back(count, nothing);
    }

    PipelineReport run() {
        for (bool moved = true; moved && report_.violations.empty();) {
            moved = false;
            for (std::size_t stage = 0; stage < at_.size(); ++stage)
                while (report_.violations.empty() && step(stage)) moved = true;
        }
        if (report_.violations.empty()) look_at_the_end();
        return std::move(report_);
    }

private:
    /// Numbers of forward and backward passes of each chunk.
    using Counts = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
    using Channel = std::deque<std::uint32_t>; ///< micro-batches in flight
    using Slots = std::vector<std::int64_t>;   ///< the micro-batch in each, or nothing
    static constexpr std::int64_t nothing = -1;

    /// The slots of the program. A program that was made by hand may have none; then they are
    /// computed.
    [[nodiscard]] std::vector<std::size_t> slots_of(std::size_t stage) const {
        if (stage < program_.slot_counts.size()) return program_.slot_counts[stage];
        return detail::slots_of(program_.shape(static_cast<int>(stage)), program_.actions[stage]);
    }
    /// Returns false if the stage has finished or has to wait.
    bool step(std::size_t stage) {
        if (at_[stage] == program_.actions[stage].size()) return false;
        const PipelineAction& action = program_.actions[stage][at_[stage]];
        const PipelineShape shape = program_.shape(static_cast<int>(stage));
        if (action.chunk >= program_.chunks || action.micro_batch >= program_.micro_batches)
            return refuse(stage, action, "no such chunk or micro-batch");
        const std::uint32_t part = part_of(shape, action.chunk);
        auto& [forward, backward] = done_[stage][action.chunk];
        switch (action.step) {
        case PipelineStep::receive_activation:
            return take(stage, action, activations_[part]) && keep(stage, action, action.chunk);
        case PipelineStep::receive_gradient: return take(stage, action, gradients_[part]);
        case PipelineStep::send_activation: return give(stage, action, activations_[part + 1]);
        case PipelineStep::send_gradient:
            if (gradients_[part - 1].size() >= places_) return false;
            return give(stage, action, gradients_[part - 1]);
        case PipelineStep::forward:
            if (action.micro_batch != forward) return refuse(stage, action, "forward out of order, or twice");
            if (part == 0 && !keep(stage, action, action.chunk)) return false;
            if (!has(stage, action)) return alone() ? false : refuse(stage, action, "its input has not come");
            if (alone() && part + 1 != program_.parts() && !keep(stage, action, action.chunk + 1)) return false;
            ++forward;
            report_.in_flight[stage] = std::max(report_.in_flight[stage], ++held_[stage]);
            break;
        case PipelineStep::backward:
            if (action.micro_batch != backward) return refuse(stage, action, "backward out of order, or twice");
            if (backward >= forward) return refuse(stage, action, "backward before forward");
            if (alone()) {
                if (part != 0 && gradients_[part - 1].size() >= places_) return false;
                if (part + 1 != program_.parts() && gradients_[part].empty()) return false;
                if (part + 1 != program_.parts()) gradients_[part].pop_front();
                if (part != 0) gradients_[part - 1].push_back(action.micro_batch);
            }
            *place(stage, action, action.chunk) = nothing;
            ++backward;
            --held_[stage];
            break;
        }
        ++at_[stage];
        return true;
    }
    bool take(std::size_t stage, const PipelineAction& action, Channel& channel) {
        if (channel.empty()) return false;
        if (channel.front() != action.micro_batch)
            return refuse(stage, action, concat({"the message that comes is of micro-batch ", channel.front()}));
        channel.pop_front();
        ++at_[stage];
        return true;
    }
    bool give(std::size_t stage, const PipelineAction& action, Channel& channel) {
        channel.push_back(action.micro_batch);
        ++report_.messages;
        ++at_[stage];
        return true;
    }
    /// True if the stage sends no messages: its chunks pass data on to each other, by the same
    /// rules.
    [[nodiscard]] bool alone() const { return program_.stages == 1; }
    /// The slot of the action's micro-batch in a chunk; null if the chunk has no slots.
    std::int64_t* place(std::size_t stage, const PipelineAction& action, std::uint32_t chunk) {
        Slots& all = slots_[stage][chunk];
        return all.empty() ? nullptr : &all[action.micro_batch % all.size()];
    }
    bool has(std::size_t stage, const PipelineAction& action) {
        const std::int64_t* const found = place(stage, action, action.chunk);
        return found != nullptr && *found == action.micro_batch;
    }
    /// Writes the micro-batch's input to its slot of the chunk.
    bool keep(std::size_t stage, const PipelineAction& action, std::uint32_t chunk) {
        std::int64_t* const to = place(stage, action, chunk);
        if (to == nullptr) return refuse(stage, action, concat({"chunk ", chunk, " has no slot"}));
        if (*to != nothing)
            return refuse(stage, action, concat({"chunk ", chunk, " still needs micro-batch ", *to, " in that slot"}));
        *to = action.micro_batch;
        return true;
    }
    bool refuse(std::size_t stage, const PipelineAction& action, const std::string& why) {
        report_.violations.push_back(concat({title(), "stage ", stage, ", ", name_of(action.step), " of micro-batch ",
                                             action.micro_batch, ", chunk ", action.chunk, ": ", why}));
        return false;
    }
    void look_at_the_end() {
        for (std::size_t stage = 0; stage < at_.size(); ++stage) {
            if (at_[stage] != program_.actions[stage].size()) {
                refuse(stage, program_.actions[stage][at_[stage]], "waits for ever");
                continue;
            }
            for (const auto& [forward, backward] : done_[stage])
                if (forward != program_.micro_batches || backward != program_.micro_batches)
                    report_.violations.push_back(concat({title(), "stage ", stage, " computes ", forward,
                                                         " micro-batches forward and ", backward, " backward"}));
            if (report_.in_flight[stage] > program_.in_flight[stage])
                report_.violations.push_back(
                    concat({title(), "stage ", stage, " has ", report_.in_flight[stage],
                            " activations in flight, the schedule claims ", program_.in_flight[stage]}));
        }
        for (const auto* channels : {&activations_, &gradients_})
            for (const Channel& channel : *channels)
                if (!channel.empty()) report_.violations.push_back(concat({title(), "a message is never received"}));
    }
    [[nodiscard]] std::string title() const {
        return concat({program_.name, " of ", program_.stages, " stages, ", program_.micro_batches, " micro-batches, ",
                       program_.chunks, " chunks: "});
    }

    const PipelineProgram& program_;
    std::size_t places_;
    std::vector<std::size_t> at_;
    std::vector<Counts> done_;
    std::vector<std::size_t> held_;
    std::vector<Channel> activations_, gradients_; ///< by the receiving part
    std::vector<std::vector<Slots>> slots_;        ///< of each stage and chunk
    PipelineReport report_;
};

} // namespace detail

/// Proves the laws of pipeline.hpp for one pipeline. Messages are received in the order of the
/// calls, in whatever order they arrive. A part sends no gradient while `gradient_places` of its
/// gradients have not been received. Activations stay in their slot until their backward pass, and
/// nothing else is written there before; so their sends never wait.
inline PipelineReport verify_pipeline(const PipelineProgram& program,
                                      std::size_t gradient_places = detail::gradient_places) {
    return detail::PipelineProof(program, gradient_places).run();
}
/// As above, for a schedule.
template <pipeline_schedule Schedule>
PipelineReport verify_pipeline(const Schedule& schedule, int stages, std::uint32_t micro_batches) {
    return verify_pipeline(pipeline_program(schedule, stages, micro_batches));
}

UNISONO_NAMESPACE_END
