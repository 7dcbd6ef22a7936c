#pragma once

/// \file
/// A group without the transport in its type (group.hpp has the laws).

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/call.hpp"
#include "unisono/group/context.hpp"
#include "unisono/group/driver.hpp"
#include "unisono/group/group_state.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/group/operation_state.hpp"
#include "unisono/group/prepared.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN

class Endpoint; // transport/endpoint.hpp
namespace detail {
class Engine;                                         // group/engine.hpp
void abort_world(Engine& engine, const Fault& fault); ///< `GroupCore::abort` without a group
} // namespace detail

/// Passed to `Group::split` by a rank that joins none of the new groups.
inline constexpr int no_colour = -1;

/// All of a group that does not depend on its transport. A program names `Group<Transport>`, which
/// derives from it. Move-only.
class GroupCore {
public:
    using Call = detail::Call;
    using CallBuffer = detail::CallBuffer;

    /// This rank's number, 0 to size() - 1; -1 in an empty group.
    [[nodiscard]] int rank() const { return state_->rank; }
    /// Ranks in the group; 0 for the group that `split` gives to a rank with `no_colour`.
    [[nodiscard]] int size() const { return state_->size(); }
    /// A rank's number in the world, which messages and faults use.
    [[nodiscard]] int world_rank(int rank) const { return state_->world_rank(rank); }
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
    [[nodiscard]] const HostMap* hosts() const { return state_->hosts.ranks() != 0 ? &state_->hosts : nullptr; }

    /// Sets how long a call may wait before it fails with `timeout` (initially 10 minutes). Must be
    /// positive.
    void set_timeout(std::chrono::nanoseconds timeout) {
        if (timeout.count() <= 0) refuse_input({"a timeout must be positive, found ", timeout.count(), " ns"});
        state_->timeout = timeout.count();
    }
    [[nodiscard]] std::chrono::nanoseconds timeout() const { return std::chrono::nanoseconds(state_->timeout); }

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
    /// Its memory, not initialised.
    [[nodiscard]] std::shared_ptr<std::byte> allocate_bytes(std::size_t bytes);

    /// True if the transport moves these elements without copying them first: always true for
    /// transports without memory of their own.
    template <element T>
    [[nodiscard]] bool is_shared(std::span<const T> elements) const {
        return reaches(elements.data(), elements.size_bytes());
    }

    /// True if ranks read and write one another's memory.
    [[nodiscard]] bool maps_peers() const;

    /// The traffic of this rank in this group so far.
    [[nodiscard]] const Traffic& traffic() const { return state_->traffic; }

    // --- for collective/: untyped operations ---

    template <collective_schedule Schedule>
    [[nodiscard]] const detail::Plan& plan(const Schedule& schedule) {
        return state_->plans.find(schedule);
    }
    [[nodiscard]] schedule::Shape shape(int root = 0) const { return {size(), rank(), root}; }
    [[nodiscard]] detail::Engine& engine() { return *state_->engine; }
    [[nodiscard]] detail::GroupState& context() { return *state_; }

    /// Waits for work of all ranks on their devices: calls `is_done(of)` repeatedly. `what`: for
    /// the text of a timeout.
    void wait_for_devices(const char* operation, const char* what, bool (*is_done)(void*), void* of);

    /// Held by a caller of the endpoint.
    [[nodiscard]] detail::Entry enter();

    /// Runs a collective to its end. Errors: bad_input if the buffers do not fit the call; those of
    /// its group.
    [[gnu::always_inline]] inline void run(const Call& call, const CallBuffer& in, const CallBuffer& out) {
        run(state_of(call, in, out));
    }
    /// The same without waiting.
    [[nodiscard]] Operation start(const Call& call, const CallBuffer& in, const CallBuffer& out);
    /// As `run`, with less code where it is called, for calls that are not hot.
    void run_once(const Call& call, const CallBuffer& in, const CallBuffer& out) { run(prepared(call, in, out)); }
    /// The same for many starts on the same memory.
    [[nodiscard]] Prepared prepare(const Call& call, const CallBuffer& in, const CallBuffer& out) {
        return Prepared(*this, *state_, call, in, out);
    }
    /// Starts the sum of `data`, which this rank has multiplied by its weight, and the one of the
    /// weights; then `divide` finds both of these in `numbers`.
    [[nodiscard]] Operation start_mean(const Call& sum, const CallBuffer& data, const Call& of_weights, double weight,
                                       detail::OperationState::Finish divide);
    /// Starts a send or a receive with the user's tag.
    [[nodiscard]] Operation start_message(schedule::StepKind kind, const CallBuffer& data, int peer, int tag);
    /// Waits for it. If that throws, or its thread ends meanwhile, this does not count as a drop.
    void finish(Operation started);

protected: // also moves: a group keeps its transport
    /// The world of an endpoint.
    explicit GroupCore(detail::Owned<Endpoint> endpoint);
    GroupCore(GroupCore&&) noexcept = default;
    GroupCore& operator=(GroupCore&&) noexcept = default;

    /// See `Group::split`.
    [[nodiscard]] GroupCore split(int colour, int key);
    [[nodiscard]] Endpoint& core_endpoint() const;

private:
    explicit GroupCore(std::shared_ptr<detail::Engine> engine);

    void open(std::uint64_t id, int rank, int ranks, detail::List<int> members);

    [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const;

    /// The state of a call on this memory, prepared. Inlined into the typed functions, where most
    /// of the call is constant. Errors: bad_input.
    [[nodiscard, gnu::always_inline]] inline detail::OperationState& state_of(const Call& call, const CallBuffer& in,
                                                                              const CallBuffer& out) {
        const auto ranks = static_cast<std::size_t>(size());
        const auto before = static_cast<std::size_t>(rank());
        const std::size_t each = out.element_bytes;
        std::size_t count = in.count; // for the key; and the sizes must fit, and no overlap be refused
        bool fits = call.by.family == nullptr && !detail::has_context(call.op) && call.input_counts.empty();
        switch (call.what) {
        case Collective::reduce:
            if (before != static_cast<std::size_t>(call.root)) {
                fits = fits && in.data != nullptr;
                break;
            }
            [[fallthrough]];
        case Collective::all_reduce:
            fits =
                fits && out.count == count && (in.data == out.data || detail::are_apart(in, out)) && in.data != nullptr;
            break;
        case Collective::all_gather:
            fits = fits && out.count == count * ranks && in.data != nullptr &&
                   (detail::is_at(in.data, out.data, before * count * each) || detail::are_apart(in, out));
            break;
        case Collective::reduce_scatter:
            count = out.count;
            fits = fits && in.count == count * ranks && out.data != nullptr &&
                   (detail::is_at(out.data, in.data, before * count * each) || detail::are_apart(in, out));
            break;
        case Collective::broadcast: fits = fits && in.data != nullptr; break;
        case Collective::barrier: break;
        default: fits = false;
        }
        if (!fits) [[unlikely]]
            return prepared(call, in, out);
        const std::uint64_t words = detail::words_of(call, out, state_->mode_of_next(call.op.kind, count));
        detail::OperationState* const last = state_->latest[detail::GroupState::place_of(words, count)];
        if (last == nullptr || !last->is_free ||
            last->key != detail::CallKey{words, count, detail::sizes_of(call, out), call.op.combine, nullptr, 0})
            return prepared(call, in, out);
        last->request.input = in.data;
        last->request.output = out.data;
        return *last;
    }
    /// The same, for all calls.
    [[nodiscard]] detail::OperationState& prepared(const Call& call, const CallBuffer& in, const CallBuffer& out);
    void run(detail::OperationState& prepared);
    [[nodiscard]] Operation start(detail::OperationState& prepared);

    detail::Owned<detail::GroupState> state_;
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/arithmetic/compiler_options.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/group/engine.hpp"
#include "unisono/group/sizes.hpp"
#include "unisono/schedule/ring.hpp"

UNISONO_NAMESPACE_BEGIN

[[gnu::cold]] UNISONO_DEFINITION GroupCore::GroupCore(std::shared_ptr<detail::Engine> engine)
    : state_(new detail::GroupState(std::move(engine))) {}

[[gnu::cold]] UNISONO_DEFINITION GroupCore::GroupCore(detail::Owned<Endpoint> endpoint)
    : GroupCore(std::shared_ptr<detail::Engine>(new detail::Engine(std::move(endpoint)))) {
    detail::check_compiler_options();
    open(detail::world_id, core_endpoint().rank(), core_endpoint().size(), {});
}

UNISONO_DEFINITION Endpoint& GroupCore::core_endpoint() const { return state_->engine->endpoint(); }

UNISONO_DEFINITION detail::Entry GroupCore::enter() { return state_->engine->enter(); }

[[gnu::noinline]] UNISONO_DEFINITION detail::OperationState& GroupCore::prepared(const Call& call, const CallBuffer& in,
                                                                                 const CallBuffer& out) {
    detail::OperationRequest request = detail::request_of(*state_, call, in, out);
    request.mode = state_->mode_of_next(call.op.kind, request.count);
    const bool is_equal = call.input_counts.empty() && call.output_counts.empty();
    detail::CallKey key{.call = detail::words_of(call, out, request.mode) | std::uint64_t{!is_equal} << 33,
                        .count = request.count,
                        .sizes = detail::sizes_of(call, out),
                        .combine = call.op.combine};
    if (call.by.family != nullptr) { // the plan of a native schedule follows from the call, so it is found when needed
        call.by.plan(*this, call, request);
        key.plan = request.plan;
        key.chunk_bytes = request.chunk_bytes;
    }
    detail::OperationState* state = state_->find(key);
    if (state == nullptr || !is_equal) [[unlikely]] {
        if (state == nullptr) state = &state_->take(key);
        state->key = {}; // until it is prepared
        state_->cut(*state, *this, call, request);
        state->key = key;
    }
    state->request.input = in.data;
    state->request.output = out.data;
    state->request.reduction = call.op;
    if (out.space == MemorySpace::device) state->request.stream = request.stream;
    if (call.op.state_bytes != 0) state->keep_state(state->request);
    return *state;
}

UNISONO_DEFINITION bool GroupCore::maps_peers() const { return core_endpoint().mapped() != nullptr; }

UNISONO_DEFINITION void GroupCore::run(detail::OperationState& prepared) { state_->engine->run(prepared); }

UNISONO_DEFINITION Operation GroupCore::start(detail::OperationState& prepared) {
    state_->engine->start(prepared);
    return Operation(*state_->engine, prepared.number, state_->timeout);
}

[[gnu::noinline]] UNISONO_DEFINITION Operation GroupCore::start(const Call& call, const CallBuffer& in,
                                                                const CallBuffer& out) {
    return start(state_of(call, in, out));
}

UNISONO_DEFINITION Operation GroupCore::start_mean(const Call& sum, const CallBuffer& data, const Call& of_weights,
                                                   double weight, detail::OperationState::Finish divide) {
    const auto entry = enter();
    detail::OperationState& operation = state_of(sum, data, data);
    Operation made = start(operation);
    operation.numbers = {weight, 0.0};
    const auto number = [&](std::size_t place) {
        auto* const one = reinterpret_cast<std::byte*>(&operation.numbers[place]);
        return detail::CallBuffer{one, 1, sizeof(double), ElementType::float64};
    };
    detail::OperationState& weights = state_of(of_weights, number(0), number(1));
    state_->engine->start(weights);
    operation.companion = weights.number;
    operation.finish = divide;
    return made;
}

UNISONO_DEFINITION Operation GroupCore::start_message(schedule::StepKind kind, const CallBuffer& data, int peer,
                                                      int tag) {
    const detail::OperationRequest request = detail::request_of(*state_, kind, data, peer, tag);
    const detail::CallKey key{.call = detail::words_of({.what = Collective::send_receive}, {}, {})};
    detail::OperationState* state = state_->find(key);
    if (state == nullptr) state = &state_->take(key);
    detail::cut_point_to_point(*state_, *state, request, kind, peer, static_cast<std::uint32_t>(tag));
    return start(*state);
}

UNISONO_DEFINITION void GroupCore::finish(Operation started) {
    detail::Engine& engine = *std::exchange(started.engine_, nullptr);
    engine.wait(started.index_, started.timeout_);
    engine.drop(started.index_);
}

UNISONO_DEFINITION std::shared_ptr<std::byte> GroupCore::allocate_bytes(std::size_t bytes) {
    const auto entry = state_->engine->enter();
    return core_endpoint().allocate(bytes);
}

UNISONO_DEFINITION bool GroupCore::reaches(const void* data, std::size_t bytes) const {
    return core_endpoint().reaches(data, bytes);
}

UNISONO_DEFINITION void detail::abort_world(Engine& engine, const Fault& fault) {
    const Entry entry = engine.enter();
    engine.endpoint().abort(fault);
}
UNISONO_DEFINITION void GroupCore::abort(const Fault& fault) { detail::abort_world(*state_->engine, fault); }

UNISONO_DEFINITION void GroupCore::check() {
    const auto entry = state_->engine->enter();
    core_endpoint().look();
    state_->engine->throw_if_faulty();
}

UNISONO_DEFINITION void GroupCore::progress() {
    state_->engine->progress();
    check();
}

[[gnu::cold]] UNISONO_DEFINITION void GroupCore::wait_for_devices(const char* operation, const char* what,
                                                                  bool (*is_done)(void*), void* of) {
    const auto entry = state_->engine->enter();
    Endpoint& endpoint = core_endpoint();
    const nanoseconds until = deadline_after(endpoint.now(), timeout());
    for (std::uint32_t attempt = 0; !is_done(of); ++attempt) {
        state_->engine->progress(); // others may wait for operations that this rank has started
        state_->engine->throw_if_faulty();
        if (endpoint.now() >= until)
            endpoint.abort({.code = ErrorCode::timeout,
                            .rank = endpoint.rank(),
                            .operation = operation,
                            .message = concat({"rank ", endpoint.rank(), " waited ", state_->timeout / 1'000'000,
                                               " ms for ", what})});
        endpoint.idle(attempt, until);
    }
}

[[gnu::cold]] UNISONO_DEFINITION GroupCore GroupCore::split(int colour, int key) {
    if (size() == 0) refuse_input("this rank is in no group: it gave no_colour to split");
    if (colour < 0 && colour != no_colour)
        refuse_input({"a colour must be at least 0, or no_colour; rank ", world_rank(), " gave ", colour});
    struct Choice {
        int colour;
        int key;
        int board; ///< a board that this rank's transport can give; -1: none is left
    };
    Choice mine{colour, key, -1};
    {
        const auto entry = state_->engine->enter();
        mine.board = core_endpoint().offer_board();
    }
    detail::List<Choice> all(static_cast<std::size_t>(size()));
    const detail::PlanFunction ring = [](GroupCore& group, const Call&, detail::OperationRequest& request) {
        request.plan = &group.plan(schedule::RingAllGather{group.shape()});
    };
    const auto bytes_of = [](Choice& first, std::size_t count) {
        return detail::CallBuffer{reinterpret_cast<std::byte*>(&first), count * sizeof(Choice), 1, ElementType::uint8};
    };
    run({.what = Collective::all_gather, .caller = Caller::split, .by = {.plan = ring}}, bytes_of(mine, 1),
        bytes_of(all[0], all.size()));
    detail::List<int> members;
    for (int peer = 0; peer < size(); ++peer)
        if (colour != no_colour && all[static_cast<std::size_t>(peer)].colour == colour) members.push_back(peer);
    detail::insertion_sort(members, [&](int a, int b) { // most programs pass them in order
        return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
    });
    int new_rank = -1;
    for (std::size_t i = 0; i < members.size(); ++i)
        if (members[i] == rank()) new_rank = static_cast<int>(i);
    std::uint64_t id =
        detail::split_mix(detail::split_mix(state_->id, ++state_->splits), static_cast<std::uint64_t>(colour));
    const int ranks = static_cast<int>(members.size());
    const int* giver = members.begin();
    while (giver != members.end() && all[static_cast<std::size_t>(*giver)].board < 0) ++giver;
    if (ranks != 0 && giver == members.end())
        throw error(ErrorCode::refused, "split: the world has room for no more groups");
    if (ranks != 0) {
        const auto entry = state_->engine->enter();
        id = core_endpoint().take_board(id, all[static_cast<std::size_t>(*giver)].board, *giver == rank(), ranks);
    }
    for (int& member : members) member = world_rank(member);
    GroupCore made(state_->engine);
    made.open(id, new_rank, ranks, std::move(members));
    made.state_->take_after(*state_);
    if (detail::TransportExecutor* const own = state_->engine->own(); own != nullptr && own->has_groups()) {
        const auto entry = state_->engine->enter();
        own->open_group(state_->id, id, colour, new_rank);
        const auto is_open = [](void* of) { return static_cast<detail::TransportExecutor*>(of)->group_is_open(); };
        wait_for_devices("split", "the new group's communicator", is_open, own);
    }
    return made;
}

[[gnu::cold]] UNISONO_DEFINITION void GroupCore::open(std::uint64_t id, int rank, int ranks,
                                                      detail::List<int> members) {
    const auto entry = state_->engine->enter();
    state_->id = id;
    state_->rank = rank;
    state_->ranks = ranks;
    state_->members = std::move(members);
    state_->done_ahead.reserve(16); // so that the first operation that ends out of order does not allocate
    if (ranks == 0) return;
    Endpoint& endpoint = core_endpoint();
    detail::List<int> all;
    for (int peer = 0; peer < ranks; ++peer) all.push_back(world_rank(peer));
    if (endpoint.knows_hosts()) {
        detail::List<int> hosts;
        for (const int peer : all) hosts.push_back(endpoint.host_of(peer));
        state_->hosts = HostMap(std::span<const int>(hosts.data(), hosts.size()));
    }
    GroupBoard board = endpoint.open(id, {all.data(), all.size()});
    state_->announcements = board.announcements;
    state_->board = board.lines;
    state_->shifts = std::move(board.shifts);
    state_->engine->groups.open(*state_);
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
