#pragma once

/// \file
/// Operations on a device's stream. A request becomes a program (transport/stream_call.hpp), of the
/// transport's own collectives or of the rounds of a library schedule. Its results come back when
/// the program is done.

#include "unisono/group/lanes.hpp"
#include "unisono/group/operation_state.hpp"
#include "unisono/transport/stream_call.hpp"
#include "unisono/transport/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// The bytes of one rank's input and output.
struct StreamExtents {
    std::size_t input = 0;
    std::size_t output = 0;
};

/// The data of a request as blocks: one per rank, or one for all.
class StreamShape {
public:
    StreamShape(const GroupContext& group, const OperationRequest& request)
        : what_(request.plan->collective()), ranks_(static_cast<std::size_t>(group.size())),
          me_(static_cast<std::size_t>(group.rank)), root_(static_cast<std::size_t>(request.plan->shape().root)),
          each_(request.element_bytes), count_(request.partition.count), in_(request.input_counts),
          out_(request.output_counts) {}

    [[nodiscard]] Collective what() const { return what_; }
    [[nodiscard]] std::size_t ranks() const { return ranks_; }
    [[nodiscard]] std::size_t me() const { return me_; }
    [[nodiscard]] std::size_t root() const { return root_; }
    [[nodiscard]] bool equal() const { return in_.empty() && out_.empty(); }
    [[nodiscard]] std::size_t count() const { return count_; }
    /// The elements of rank `rank`'s block; its beginning in bytes.
    [[nodiscard]] std::size_t in_count(std::size_t rank) const { return in_.empty() ? count_ : in_[rank]; }
    [[nodiscard]] std::size_t out_count(std::size_t rank) const { return out_.empty() ? count_ : out_[rank]; }
    [[nodiscard]] std::size_t in_begin(std::size_t rank) const { return begin(in_, rank); }
    [[nodiscard]] std::size_t out_begin(std::size_t rank) const { return begin(out_, rank); }

    [[nodiscard]] StreamExtents extents() const {
        const bool is_root = me_ == root_;
        const std::size_t vector = count_ * each_;
        if (what_ == Collective::broadcast) return {is_root ? vector : 0, vector};
        const auto bytes = [&](Holding what, std::span<const std::size_t> counts) -> std::size_t {
            if (!holds_any(what, is_root)) return 0;
            if (what == Holding::own_block) return (counts.empty() ? count_ : counts[me_]) * each_;
            return moves_vectors(what_) ? vector : begin(counts, ranks_);
        };
        return {bytes(buffer_use(what_).input, in_), bytes(buffer_use(what_).output, out_)};
    }

private:
    [[nodiscard]] std::size_t begin(std::span<const std::size_t> counts, std::size_t rank) const {
        if (counts.empty()) return rank * count_ * each_;
        std::size_t sum = 0;
        for (std::size_t i = 0; i < rank; ++i) sum += counts[i];
        return sum * each_;
    }

    Collective what_;
    std::size_t ranks_, me_, root_, each_, count_;
    std::span<const std::size_t> in_, out_;
};

constexpr StreamReduction stream_reduction(ReductionKind kind) {
    switch (kind) {
    case ReductionKind::product: return StreamReduction::product;
    case ReductionKind::min: return StreamReduction::min;
    case ReductionKind::max: return StreamReduction::max;
    default: return StreamReduction::sum; // also a weighted mean's products
    }
}

/// Makes calls of a request's element type, and groups of them.
class StreamWriter {
public:
    StreamWriter(StreamProgram& program, const OperationRequest& request)
        : program_(&program), typed_(request.element != ElementType::opaque),
          element_(typed_ ? request.element : ElementType::uint8), each_(request.element_bytes),
          reduction_(request.stream.weighted ? StreamReduction::weighted_sum
                                             : stream_reduction(request.reduction.kind)) {}

    void call(StreamVerb verb, const std::byte* in, std::byte* out, std::size_t elements, std::size_t peer = 0) {
        if (elements == 0) return;
        StreamCall& made = program_->add(verb, in, out, typed_ ? elements : elements * each_);
        made.element = element_;
        made.peer = static_cast<int>(peer);
        if (verb == StreamVerb::all_reduce || verb == StreamVerb::reduce || verb == StreamVerb::reduce_scatter)
            made.reduction = reduction_;
    }
    void copy(const std::byte* in, std::byte* out, std::size_t bytes) {
        if (bytes != 0 && in != out) program_->add(StreamVerb::copy, in, out, bytes);
    }
    void clear(std::byte* out, std::size_t bytes) {
        if (bytes != 0) program_->add(StreamVerb::clear, nullptr, out, bytes);
    }
    /// All calls between `open` and `close` form one group: they proceed at the same time.
    void open() { begin_ = program_->calls.size(); }
    void close() {
        for (std::size_t i = begin_; i + 1 < program_->calls.size(); ++i) program_->calls[i].open = true;
    }

private:
    StreamProgram* program_;
    bool typed_;
    ElementType element_;
    std::size_t each_;
    StreamReduction reduction_;
    std::size_t begin_ = 0;
};

/// Writes the transport's own collectives, or, for those that it lacks, sends and receives in one
/// group.
inline void write_native(StreamProgram& program, const StreamShape& shape, const OperationRequest& request,
                         const std::byte* in, std::byte* out) {
    StreamWriter writer(program, request);
    const std::size_t me = shape.me();
    const std::size_t root = shape.root();
    const std::size_t each = request.element_bytes;
    switch (shape.what()) {
    case Collective::all_reduce:
        if (request.stream.weighted && request.stream.weight == 0) { // whatever `in` is: 0 * NaN is NaN
            writer.clear(out, shape.count() * each);
            in = out;
        }
        return writer.call(StreamVerb::all_reduce, in, out, shape.count());
    case Collective::reduce: return writer.call(StreamVerb::reduce, in, out, shape.count(), root);
    case Collective::broadcast: return writer.call(StreamVerb::broadcast, out, out, shape.count(), root);
    case Collective::all_gather:
        if (shape.equal()) return writer.call(StreamVerb::all_gather, in, out, shape.count());
        writer.open();
        for (std::size_t rank = 0; rank < shape.ranks(); ++rank)
            writer.call(StreamVerb::broadcast, rank == me ? in : out + shape.out_begin(rank),
                        out + shape.out_begin(rank), shape.out_count(rank), rank);
        return writer.close();
    case Collective::reduce_scatter:
        if (shape.equal()) return writer.call(StreamVerb::reduce_scatter, in, out, shape.count());
        writer.open();
        for (std::size_t rank = 0; rank < shape.ranks(); ++rank)
            writer.call(StreamVerb::reduce, in + shape.in_begin(rank), rank == me ? out : nullptr, shape.in_count(rank),
                        rank);
        return writer.close();
    default: break;
    }
    const bool gathers = shape.what() == Collective::gather;
    const bool scatters = shape.what() == Collective::scatter;
    if (gathers && me != root) return writer.call(StreamVerb::send, in, nullptr, shape.in_count(me), root);
    if (scatters && me != root) return writer.call(StreamVerb::receive, nullptr, out, shape.out_count(me), root);
    writer.copy(gathers ? in : in + shape.in_begin(me), scatters ? out : out + shape.out_begin(me),
                (gathers    ? shape.in_count(me)
                 : scatters ? shape.out_count(me)
                            : shape.in_count(me)) *
                    each);
    writer.open();
    for (std::size_t rank = 0; rank < shape.ranks(); ++rank) {
        if (rank == me) continue;
        if (!gathers) writer.call(StreamVerb::send, in + shape.in_begin(rank), nullptr, shape.in_count(rank), rank);
        if (!scatters)
            writer.call(StreamVerb::receive, nullptr, out + shape.out_begin(rank), shape.out_count(rank), rank);
    }
    writer.close();
}

/// Writes the rounds of a library schedule, lane by lane. Messages between two ranks are matched in
/// the order of rounds and parts, which is the same on both. Received data that are combined arrive
/// in `landing` first.
class StreamRounds {
public:
    StreamRounds(GroupContext& group, const OperationRequest& request) : group_(&group) {
        cutter_.request = request;
        cutter_.request.plan = request.stream.plan;
        cutter_.group = &group;
        cut_into_lanes(cutter_);
        if (plan().scratch_slots() != 0) {
            const EvenSplit first = cutter_.input_partition.lane(0);
            scratch_bytes_ =
                cutter_.input_partition.largest_block(first) * plan().scratch_slots() * request.element_bytes;
        }
        for_each_round([&](const LaneState&, Part<const schedule::Step> steps, const StepExtent* extents) {
            std::size_t bytes = 0;
            for (std::size_t i = 0; i < steps.size(); ++i)
                if (steps[i].kind == schedule::StepKind::receive_combine) bytes += padded(extents[i].target_count);
            landing_bytes_ = std::max(landing_bytes_, bytes);
        });
    }

    [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_; }
    [[nodiscard]] std::size_t landing_bytes() const { return landing_bytes_; }

    void write(StreamProgram& program, std::byte* scratch, std::byte* landing) {
        scratch_ = scratch;
        for_each_round([&](const LaneState& lane, Part<const schedule::Step> steps, const StepExtent* extents) {
            write_round(program, lane, steps, extents, landing);
        });
    }

private:
    using Kind = schedule::StepKind;

    [[nodiscard]] const Plan& plan() const { return *cutter_.request.plan; }
    [[nodiscard]] std::size_t each() const { return cutter_.request.element_bytes; }
    [[nodiscard]] std::size_t padded(std::size_t count) const { return (count * each() + 255) / 256 * 256; }

    template <class Visit>
    void for_each_round(Visit visit) {
        const std::uint32_t rounds = plan().rounds();
        for (std::uint32_t number = 0; number < cutter_.lanes; ++number) {
            LaneState lane;
            lane.lane = number;
            cut_lane(cutter_, lane);
            for (lane.round = 0; lane.round != rounds; ++lane.round) {
                const Part<const schedule::Step> steps = plan().round(lane.round, lane.room);
                lane.extent_room.clear();
                for (const schedule::Step& step : steps) lane.extent_room.push_back(cutter_.extents_of(lane, step));
                visit(lane, steps, lane.extent_room.data());
            }
        }
    }

    [[nodiscard]] const std::byte* at(schedule::Buffer where, std::size_t bytes) const {
        if (where == schedule::Buffer::input) return cutter_.request.input + bytes;
        return (where == schedule::Buffer::output ? cutter_.request.output : scratch_) + bytes;
    }
    [[nodiscard]] std::byte* target(const schedule::Step& step, const StepExtent& extent) const {
        return (step.target.where == schedule::Buffer::output ? cutter_.request.output : scratch_) + extent.target;
    }

    void combine(StreamProgram& program, std::byte* to, std::size_t count) const {
        StreamCall& call = program.add(StreamVerb::combine, nullptr, to, count);
        call.first_source = first_source_;
        call.sources = static_cast<std::uint32_t>(program.addresses.size()) - first_source_;
    }

    void write_round(StreamProgram& program, const LaneState& lane, Part<const schedule::Step> steps,
                     const StepExtent* extents, std::byte* landing) {
        StreamWriter writer(program, cutter_.request);
        std::uint8_t last_part = 0;
        for (std::size_t i = 0; i < steps.size(); ++i) {
            const schedule::Step& step = steps[i];
            last_part = std::max(last_part, step.part);
            if (step.kind == Kind::copy)
                writer.copy(at(step.source.where, extents[i].source), target(step, extents[i]),
                            extents[i].target_count * each());
            if (step.kind == Kind::combine_ranks) combine_ranks(program, lane, step, extents[i]);
        }
        writer.open();
        for (unsigned part = 0; part <= last_part; ++part) {
            std::size_t landed = 0;
            for (std::size_t i = 0; i < steps.size(); ++i) {
                const schedule::Step& step = steps[i];
                const bool combines = step.kind == Kind::receive_combine;
                const auto peer = static_cast<std::size_t>(step.peer);
                if (step.part == part && step.kind == Kind::send)
                    writer.call(StreamVerb::send, at(step.source.where, extents[i].source), nullptr,
                                extents[i].source_count, peer);
                if (step.part == part && (step.kind == Kind::receive || combines))
                    writer.call(StreamVerb::receive, nullptr, combines ? landing + landed : target(step, extents[i]),
                                extents[i].target_count, peer);
                if (combines) landed += padded(extents[i].target_count);
            }
        }
        writer.close();
        for (std::size_t i = 0; i < steps.size(); ++i) {
            if (steps[i].kind != Kind::receive_combine) continue;
            if (extents[i].target_count != 0) {
                first_source_ = static_cast<std::uint32_t>(program.addresses.size());
                program.addresses.push_back(at(steps[i].source.where, extents[i].source));
                program.addresses.push_back(landing);
                combine(program, target(steps[i], extents[i]), extents[i].target_count);
            }
            landing += padded(extents[i].target_count);
        }
    }

    /// See group/local_steps.hpp.
    void combine_ranks(StreamProgram& program, const LaneState& lane, const schedule::Step& step,
                       const StepExtent& extent) {
        if (extent.target_count == 0) return;
        const auto own = static_cast<std::uint32_t>(group_->rank);
        first_source_ = static_cast<std::uint32_t>(program.addresses.size());
        for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(group_->size()); ++rank) {
            const std::uint32_t slot = step.source.slot + (rank < own ? rank : rank - 1);
            const schedule::Blocks blocks = schedule::scratch_blocks(step.source.first, step.source.count, slot);
            program.addresses.push_back(rank == own ? at(step.source.where, extent.source)
                                                    : scratch_ + cutter_.extent(lane, blocks).begin * each());
        }
        combine(program, target(step, extent), extent.target_count);
    }

    GroupContext* group_;
    OperationState cutter_; ///< prepared for the schedule, never run
    std::byte* scratch_ = nullptr;
    std::size_t scratch_bytes_ = 0;
    std::size_t landing_bytes_ = 0;
    std::uint32_t first_source_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
