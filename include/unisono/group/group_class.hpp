#pragma once

/// \file
/// The class behind group.hpp.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/context.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/group/operation_state.hpp"
#include "unisono/group/transport_kinds.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN

namespace detail {
class Engine; // group/engine.hpp
} // namespace detail

/// Passed to `Group::split` by a rank that joins none of the new groups.
inline constexpr int no_colour = -1;

/// Ranks that act together. Move-only. The world is a group, and `split` makes others. One thread
/// drives a rank.
template <transport Transport>
class Group {
public:
    using transport_type = Transport;

    /// The world of an endpoint.
    explicit Group(Transport endpoint);
    /// The world of an endpoint that needs no arguments.
    Group()
        requires std::default_initializable<Transport>
        : Group(Transport()) {}
    Group(Group&&) noexcept = default;
    Group& operator=(Group&&) noexcept = default;

    /// This rank's number, 0 to size() - 1; -1 in an empty group.
    [[nodiscard]] int rank() const { return context_->rank; }
    /// Ranks in the group; 0 for the group that `split` gives to a rank with `no_colour`.
    [[nodiscard]] int size() const { return context_->size(); }
    /// True if the group contains all ranks of the transport.
    [[nodiscard]] bool is_world() const { return context_->id == world_id; }
    /// A rank's number in the world, which messages and faults use.
    [[nodiscard]] int world_rank(int rank) const { return context_->world_rank(rank); }
    /// This rank's number in the world.
    [[nodiscard]] int world_rank() const { return world_rank(rank()); }
    /// A fault caused by rank `rank` of this group. The message is "rank N " followed by `what`,
    /// and names the rank by its number in the world.
    [[nodiscard]] Fault blame(ErrorCode code, int rank, std::string operation,
                              std::initializer_list<detail::TextPart> what) const {
        const int known_as = world_rank(rank);
        return {.code = code,
                .rank = known_as,
                .operation = std::move(operation),
                .message = concat({"rank ", known_as, " "}) + concat(what)};
    }

    /// The hosts of the group's ranks; nullptr if the transport does not know them. Lives as long
    /// as the group.
    [[nodiscard]] const HostMap* hosts() const { return context_->hosts.ranks() != 0 ? &context_->hosts : nullptr; }

    /// Sets how long a call may wait before it fails with `timeout` (initially 10 minutes). Must be
    /// positive.
    void set_timeout(std::chrono::nanoseconds timeout) {
        if (timeout.count() <= 0) refuse_input({"a timeout must be positive, found ", timeout.count(), " ns"});
        context_->timeout = timeout.count();
    }
    [[nodiscard]] std::chrono::nanoseconds timeout() const { return std::chrono::nanoseconds(context_->timeout); }

    /// Makes new groups, one per colour, with ranks ordered by (key, rank in this group).
    /// Collective. A colour is at least 0, or `no_colour`. Cost: one all_gather of 12 bytes per
    /// rank. Errors: refused, on the ranks of a new group, if the transport has no room for more
    /// groups; a group that has ended on all of its ranks makes room. (MPI 4.0, section 7.4.2)
    [[nodiscard]] Group split(int colour, int key);

    /// Ends all communication of the world: pending and later calls of every rank throw this fault
    /// (or an earlier one).
    void abort(const Fault& fault);

    /// Throws the world's first fault, if there is one, including a fault that only the job's
    /// control plane knows yet. Cheap.
    void check();

    /// Advances operations in flight, for programs that compute between start and wait.
    void progress();

    /// `count` zeros, in memory that the transport moves without copying it first: use it for data
    /// that are communicated often. It may outlive the group. Errors: bad_input (too many bytes),
    /// refused (no memory).
    template <element T>
    [[nodiscard]] Memory<T> allocate(std::size_t count) {
        std::size_t bytes = 0;
        if (__builtin_mul_overflow(count, sizeof(T), &bytes))
            refuse_input({"allocate: ", count, " elements of ", sizeof(T), " bytes are more than memory can hold"});
        return Memory<T>(allocate_bytes(bytes), count);
    }

    /// True if the transport moves these elements without copying them first: always true for
    /// transports without memory of their own.
    template <element T>
    [[nodiscard]] bool is_shared(std::span<const T> elements) const {
        return reaches(elements.data(), elements.size_bytes());
    }

    /// The traffic of this rank in this group so far.
    [[nodiscard]] const Traffic& traffic() const { return context_->traffic; }

    [[nodiscard]] Transport& endpoint();
    [[nodiscard]] const Transport& endpoint() const;

    // --- for collective/: untyped operations ---

    template <collective_schedule Schedule>
    [[nodiscard]] const detail::Plan& plan(const Schedule& schedule) {
        return context_->plans.find(schedule);
    }
    [[nodiscard]] schedule::Shape shape(int root = 0) const { return {size(), rank(), root}; }
    [[nodiscard]] detail::Engine& engine() { return *engine_; }
    [[nodiscard]] detail::GroupContext& context() { return *context_; }

    /// Waits for work of all ranks on their devices: calls `is_done()` repeatedly.
    template <class IsDone>
    void wait_for_devices(const char* operation, const char* what, IsDone is_done);

    /// Held by a caller of the endpoint.
    [[nodiscard]] detail::Entry enter();
    /// Starts an operation. Its number is valid until `finish`, or until its handle ends.
    std::uint32_t start(detail::OperationRequest& request);
    std::uint32_t start_point_to_point(schedule::StepKind kind, int peer, std::uint32_t tag,
                                       const detail::OperationRequest& request);
    /// See Engine::repeat.
    bool repeat(std::uint64_t call, std::uint64_t count, const void* input, void* output);
    std::uint32_t start_again(std::uint64_t call, std::uint64_t count, const void* input, void* output);
    /// The state of an operation in flight.
    [[nodiscard]] detail::OperationState& operation(std::uint32_t index);

    /// Runs an operation to its end.
    void run(detail::OperationRequest& request) { finish(start(request)); }
    void finish(std::uint32_t index);
    [[nodiscard]] Operation handle(std::uint32_t index);

private:
    explicit Group(std::shared_ptr<detail::Engine> engine) : engine_(std::move(engine)) {}

    void set_context(std::uint64_t id, int rank, int ranks, detail::List<int> members);

    /// Opens the new group's part of the device's library; all ranks of this group take part.
    void open_on_device(std::uint64_t id, int colour, int key);

    static constexpr std::uint64_t world_id = 1;
    static constexpr int none_left = -1;

    [[nodiscard]] int offer_board();
    [[nodiscard]] std::uint64_t take_board(std::uint64_t id, int board, bool mine, int ranks);
    /// If the transport gives boards, the context returns this rank's part of its board when it
    /// ends.
    [[nodiscard]] std::shared_ptr<detail::GroupContext> new_context(std::uint64_t id);
    [[nodiscard]] std::shared_ptr<std::byte> allocate_bytes(std::size_t bytes);
    [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const;

    /// A plain all_gather of `bytes` bytes per rank, for `split`.
    void gather_words(const void* mine, void* all, std::size_t bytes);

    std::shared_ptr<detail::Engine> engine_;
    std::shared_ptr<detail::GroupContext> context_;
};

UNISONO_NAMESPACE_END
