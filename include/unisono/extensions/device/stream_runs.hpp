#pragma once

/// \file
/// A transport's own collectives on its device's stream: their programs, and the memory that the
/// programs use. They are enqueued when operations start: see transport/transport_executor.hpp.

#include "unisono/core/hash.hpp"
#include "unisono/extensions/device/stream_steps.hpp"
#include "unisono/transport/transport_executor.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <enqueues Transport>
class TransportExecutorOf<Transport> final : public TransportExecutor {
public:
    explicit TransportExecutorOf(Transport& transport) : transport_(transport), device_(transport.stream_device()) {}

    [[nodiscard]] bool has_mode() const override { return true; }
    /// Makes the operation's program and submits it. Missing memory is the world's fault as well.
    void begin(GroupContext& group, OperationState& operation) override {
        if (!operation.is_transports_own()) return;
        if (runs_.size() <= operation.number) runs_.resize(operation.number + 1);
        Run& run = runs_[operation.number];
        try {
            run.program = device_.begin_program(group.id);
            StreamProgram& program = device_.program(run.program);
            program.kernel = operation.request.stream.kernel;
            program.kernel_state = operation.request.reduction.state;
            program.weight = operation.request.stream.weight;
            write(group, operation.request, program, run);
            device_.submit(run.program); // first: the library's messages travel meanwhile
            check_now_and_then(group, operation);
        } catch (const error& refused) {
            Fault fault = refused.why();
            fault.rank = transport_.rank();
            transport_.abort(fault);
            throw;
        }
    }

    [[nodiscard]] bool done(OperationState& operation) override {
        return !operation.is_transports_own() || device_.program_done(runs_[operation.number].program);
    }

    /// Makes work that is enqueued later on `stream` wait for the operation; false if the operation
    /// is not enqueued yet.
    [[nodiscard]] bool follow(const OperationState& operation, void* stream) override {
        if (!operation.is_transports_own() || operation.request.stream.space != MemorySpace::device)
            refuse_input("then: the operation's data are on the host; expected memory of a device");
        if (operation.done) {
            if (device_.is_capturing()) device_.follow_all(stream); // the stream takes part in the capture
            return true;
        }
        return device_.follow_program(runs_[operation.number].program, stream);
    }

    /// Copies results to their destination.
    void end(OperationState& operation) override {
        if (!operation.is_transports_own()) return;
        const Run run = std::exchange(runs_[operation.number], {});
        if (run.from != nullptr) std::memcpy(run.to, run.from, run.bytes);
        for (const DeviceBlockOf& block : run.blocks) device_.give_block(block);
        device_.release_program(run.program);
    }
    void finish(OperationState& operation, LaneState& lane) override { finish_round(operation, lane); }

    [[nodiscard]] bool has_groups() const override { return true; }
    void open_group(std::uint64_t parent, std::uint64_t id, int colour, int key) override {
        device_.open_group(parent, id, colour, key);
    }
    [[nodiscard]] bool group_is_open() override { return device_.group_is_open(); }
    void close_group(std::uint64_t id) noexcept override { device_.close_group(id); }

private:
    using Device = std::remove_reference_t<decltype(std::declval<Transport&>().stream_device())>;
    using DeviceBlockOf = decltype(std::declval<Device&>().take_block(0, true, false));
    struct Run {
        std::uint32_t program = 0;
        DeviceBlockOf blocks[2] = {};    ///< of the pool
        const std::byte* from = nullptr; ///< pinned; nullptr: nothing is left to copy
        std::byte* to = nullptr;
        std::size_t bytes = 0;
    };

    /// Only each n-th operation sends its messages. Its signature covers all operations since the
    /// last check.
    void check_now_and_then(GroupContext& group, OperationState& operation) {
        const int every = transport_.check_every();
        if (every == 1 || device_.is_capturing() || operation.request.plan->rounds() == 0) return;
        operation.signature = signature_of(operation); // it may have stood for others
        if (++group.unchecked == every) {
            operation.signature.schedule ^= std::exchange(group.unchecked_hash, 0);
            group.unchecked = 0;
            return;
        }
        group.unchecked_hash = fnv1a(group.unchecked_hash, hash_of(operation.signature));
        operation.next_lane = operation.lanes_done = operation.lanes;
        operation.slots_used = 0;
    }

    void write(GroupContext& group, const OperationRequest& request, StreamProgram& program, Run& run) {
        if (request.stream.graph != nullptr) {
            program.add(StreamVerb::launch, static_cast<const std::byte*>(request.stream.graph), nullptr, 0);
            return;
        }
        if (device_.is_capturing() && (request.stream.space != MemorySpace::device || request.stream.plan != nullptr))
            refuse_input("capture: found data on the host, or a schedule other than NativeSchedule; expected "
                         "NativeSchedule on memory of a device, since a graph does not keep the library's buffers");
        if (request.stream.space == MemorySpace::device) {
            if (request.stream.plan == nullptr)
                return write_native(program, StreamShape(group, request), request, request.input, request.output);
            StreamRounds rounds(group, request);
            run.blocks[0] = device_.take_block(rounds.scratch_bytes(), true, false);
            run.blocks[1] = device_.take_block(rounds.landing_bytes(), true, false);
            return rounds.write(program, run.blocks[0].device, run.blocks[1].device);
        }
        const StreamShape shape(group, request);
        const StreamExtents extents = shape.extents();
        const bool broadcasts = shape.what() == Collective::broadcast;
        const std::byte* const input = broadcasts ? request.output : request.input;
        const bool in_place = broadcasts || (extents.input == extents.output && request.input == request.output);
        std::byte* in = nullptr;
        std::byte* out = nullptr;
        if (extents.input != 0) {
            const bool direct = device_.pinned()->holds(input, extents.input);
            // Results come back through the same pinned memory if input and output are the same
            // memory.
            run.blocks[0] = device_.take_block(extents.input, true, !direct);
            in = run.blocks[0].device;
            if (!direct) std::memcpy(run.blocks[0].pinned, input, extents.input);
            program.add(StreamVerb::to_device, direct ? input : run.blocks[0].pinned, in, extents.input);
        }
        if (extents.output != 0) {
            const bool direct = device_.pinned()->holds(request.output, extents.output);
            const bool again = in_place && extents.input != 0;
            if (!again) run.blocks[1] = device_.take_block(extents.output, true, !direct);
            const DeviceBlockOf& block = run.blocks[again ? 0 : 1];
            out = block.device;
            write_native(program, shape, request, in, out);
            if (broadcasts && extents.input != 0) return; // the root's data are in place
            program.add(StreamVerb::to_host, out, direct ? request.output : block.pinned, extents.output);
            if (direct) return;
            run.from = block.pinned;
            run.to = request.output;
            run.bytes = extents.output;
        } else {
            write_native(program, shape, request, in, out);
        }
    }

    Transport& transport_;
    Device& device_;
    std::vector<Run> runs_; ///< by the operation's number
};

} // namespace detail
UNISONO_NAMESPACE_END
