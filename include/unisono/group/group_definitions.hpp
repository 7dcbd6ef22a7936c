#pragma once

/// \file
/// The members of a group that need its engine, outside the class (group_class.hpp). In compiled
/// mode the library contains them for threads and processes. The header of any other transport
/// includes this file; a program that defines a transport must include it as well.

#include "unisono/arithmetic/compiler_options.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/engine.hpp"
#include "unisono/group/engine_definitions.hpp"
#include "unisono/group/group_class.hpp"
#include "unisono/schedule/ring.hpp"
#include "unisono/transport/endpoint_of.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

template <transport Transport>
Group<Transport>::Group(Transport endpoint) {
    auto made = std::make_unique<detail::EndpointOf<Transport>>(std::move(endpoint));
    auto own = detail::own_runs_of(made->transport());
    engine_ = std::make_shared<detail::Engine>(std::move(made), std::move(own));
    detail::check_compiler_options();
    set_context(world_id, engine_->endpoint().rank(), engine_->endpoint().size(), {});
}

template <transport Transport>
Transport& Group<Transport>::endpoint() {
    return static_cast<detail::EndpointOf<Transport>&>(engine_->endpoint()).transport();
}
template <transport Transport>
const Transport& Group<Transport>::endpoint() const {
    return static_cast<const detail::EndpointOf<Transport>&>(engine_->endpoint()).transport();
}

template <transport Transport>
detail::Entry Group<Transport>::enter() {
    return engine_->enter();
}

template <transport Transport>
std::uint32_t Group<Transport>::start(detail::OperationRequest& request) {
    return engine_->start(*context_, request);
}

template <transport Transport>
std::uint32_t Group<Transport>::start_point_to_point(schedule::StepKind kind, int peer, std::uint32_t tag,
                                                     const detail::OperationRequest& request) {
    return engine_->start_point_to_point(*context_, kind, peer, tag, request);
}

template <transport Transport>
bool Group<Transport>::repeat(std::uint64_t call, std::uint64_t count, const void* input, void* output) {
    return engine_->repeat(*context_, call, count, input, output);
}

template <transport Transport>
std::uint32_t Group<Transport>::start_again(std::uint64_t call, std::uint64_t count, const void* input, void* output) {
    return engine_->start_again(*context_, call, count, input, output);
}

template <transport Transport>
detail::OperationState& Group<Transport>::operation(std::uint32_t index) {
    return engine_->operation(index);
}

template <transport Transport>
Operation Group<Transport>::handle(std::uint32_t index) {
    return Operation(*engine_, index, context_->timeout);
}

template <transport Transport>
std::shared_ptr<std::byte> Group<Transport>::allocate_bytes(std::size_t bytes) {
    const auto entry = engine_->enter();
    return engine_->endpoint().allocate(bytes);
}

template <transport Transport>
bool Group<Transport>::reaches([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) const {
    if constexpr (reaches_memory<Transport>) return endpoint().reaches(data, bytes);
    else return true;
}

template <transport Transport>
template <class IsDone>
void Group<Transport>::wait_for_devices(const char* operation, const char* what, IsDone is_done) {
    const auto entry = engine_->enter();
    detail::Endpoint& endpoint = engine_->endpoint();
    const nanoseconds until = deadline_after(endpoint.now(), timeout());
    for (std::uint32_t attempt = 0; !is_done(); ++attempt) {
        engine_->progress(); // others may wait for operations that this rank has started
        engine_->throw_if_faulty();
        if (endpoint.now() >= until) {
            endpoint.abort({.code = ErrorCode::timeout,
                            .rank = endpoint.rank(),
                            .peer = -1,
                            .operation = operation,
                            .sequence = 0,
                            .message = concat({"rank ", endpoint.rank(), " waited ", context_->timeout / 1'000'000,
                                               " ms for ", what})});
        }
        endpoint.idle(attempt, until);
    }
}

template <transport Transport>
void Group<Transport>::open_on_device([[maybe_unused]] std::uint64_t id, [[maybe_unused]] int colour,
                                      [[maybe_unused]] int key) {
    if constexpr (enqueues<Transport>) {
        const auto entry = engine_->enter();
        Transport& transport = endpoint();
        transport.open_group(context_->id, id, colour, key);
        wait_for_devices("split", "the new group's communicator", [&] { return transport.group_is_open(); });
    }
}

template <transport Transport>
int Group<Transport>::offer_board() {
    const auto entry = engine_->enter();
    return engine_->endpoint().offer_board();
}

template <transport Transport>
std::uint64_t Group<Transport>::take_board(std::uint64_t id, int board, bool mine, int ranks) {
    const auto entry = engine_->enter();
    return engine_->endpoint().take_board(id, board, mine, ranks);
}

template <transport Transport>
std::shared_ptr<detail::GroupContext> Group<Transport>::new_context(std::uint64_t id) {
    std::shared_ptr<detail::GroupContext> made;
    if constexpr (enqueues<Transport>) {
        made.reset(new detail::GroupContext, [engine = engine_](detail::GroupContext* done) {
            if (done->id != world_id && done->size() != 0)
                static_cast<detail::EndpointOf<Transport>&>(engine->endpoint()).transport().close_group(done->id);
            delete done;
        });
    } else {
        made.reset(new detail::GroupContext, [engine = engine_](detail::GroupContext* done) {
            const auto entry = engine->enter();
            if (done->id != world_id && done->size() != 0) engine->endpoint().close(done->id);
            delete done;
        });
    }
    made->id = id;
    return made;
}

template <transport Transport>
Group<Transport> Group<Transport>::split(int colour, int key) {
    if (size() == 0) refuse_input("this rank is in no group: it gave no_colour to split");
    if (colour < 0 && colour != no_colour) {
        refuse_input({"a colour must be at least 0, or no_colour; rank ", world_rank(), " gave ", colour});
    }
    struct Choice {
        int colour;
        int key;
        int board; ///< a board that this rank's transport can give
    };
    const Choice mine{colour, key, offer_board()};
    std::vector<Choice> all(static_cast<std::size_t>(size()));
    gather_words(&mine, all.data(), sizeof(Choice));
    detail::List<int> members;
    for (int peer = 0; peer < size(); ++peer) {
        if (colour != no_colour && all[static_cast<std::size_t>(peer)].colour == colour) members.push_back(peer);
    }
    detail::insertion_sort(members, [&](int a, int b) { // most programs pass them in order
        return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
    });
    const auto me = std::find(members.begin(), members.end(), rank());
    const int new_rank = me == members.end() ? -1 : static_cast<int>(me - members.begin());
    std::uint64_t id =
        detail::split_mix(detail::split_mix(context_->id, ++context_->splits), static_cast<std::uint64_t>(colour));
    const int ranks = static_cast<int>(members.size());
    {
        const auto giver = std::find_if(members.begin(), members.end(), [&](int member) {
            return all[static_cast<std::size_t>(member)].board != none_left;
        });
        if (ranks != 0 && giver == members.end())
            throw error(ErrorCode::refused, "split: the world has room for no more groups");
        if (ranks != 0) id = take_board(id, all[static_cast<std::size_t>(*giver)].board, *giver == rank(), ranks);
    }
    for (int& member : members) member = world_rank(member);
    Group made(engine_);
    made.set_context(id, new_rank, ranks, std::move(members));
    made.context_->timeout = context_->timeout;
    if constexpr (enqueues<Transport>) open_on_device(id, colour, new_rank);
    return made;
}

template <transport Transport>
void Group<Transport>::abort(const Fault& fault) {
    const auto entry = engine_->enter();
    engine_->endpoint().abort(fault);
}

template <transport Transport>
void Group<Transport>::check() {
    const auto entry = engine_->enter();
    engine_->endpoint().look();
    engine_->throw_if_faulty();
}

template <transport Transport>
void Group<Transport>::progress() {
    engine_->progress();
    check();
}

template <transport Transport>
void Group<Transport>::finish(std::uint32_t index) {
    engine_->wait(index, context_->timeout);
    engine_->release(index);
}

template <transport Transport>
void Group<Transport>::set_context(std::uint64_t id, int rank, int ranks, detail::List<int> members) {
    const auto entry = engine_->enter();
    context_ = new_context(id);
    context_->rank = rank;
    context_->ranks = ranks;
    context_->members = std::move(members);
    context_->done_ahead.reserve(16); // so that the first operation that ends out of order does not allocate
    if (context_->size() == 0) return;
    if constexpr (knows_hosts<Transport>) {
        detail::List<int> hosts;
        for (int peer = 0; peer < ranks; ++peer) hosts.push_back(endpoint().host_of(world_rank(peer)));
        context_->hosts = HostMap(std::span<const int>(hosts.data(), hosts.size()));
    }
    detail::List<int> all;
    for (int peer = 0; peer < ranks; ++peer) all.push_back(world_rank(peer));
    detail::GroupBoard board = engine_->endpoint().open(id, {all.data(), all.size()});
    context_->announcements = board.announcements;
    context_->board = board.lines;
    context_->shifts = std::move(board.shifts);
}

template <transport Transport>
void Group<Transport>::gather_words(const void* mine, void* all, std::size_t bytes) {
    detail::OperationRequest request;
    request.plan = &plan(schedule::RingAllGather{shape()});
    request.input = static_cast<const std::byte*>(mine);
    request.output = static_cast<std::byte*>(all);
    request.partition = detail::Partition::uniform(bytes);
    request.element = ElementType::uint8;
    request.count = bytes;
    request.caller = Caller::split;
    run(request);
}

UNISONO_NAMESPACE_END
