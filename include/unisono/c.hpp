#pragma once

/// \file
/// The definitions of c.h: include it in exactly one C++ file of a program, or link to unisono::c.
/// Not part of the umbrella.

#include "unisono/any_group.hpp"
#include "unisono/c.h"
#include "unisono/extensions/any_group/c_values.hpp"
#include "unisono/join_any.hpp"

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <new>
#include <pthread.h>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail::c_edge {

/// A process, and no fork of it. (A system call for each call of this interface would take longer
/// than a small collective.)
class Process {
public:
    void check() const {
        if (forks_ != forks)
            refuse_input({"process ", ::getpid(), " is a fork of process ", id_,
                          ", which has joined; expected calls of that process alone"});
    }
    [[nodiscard]] bool is_this() const { return forks_ == forks; }

private:
    inline static int forks = 0; ///< in the line of this process's parents
    inline static const int counts = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });

    int forks_ = forks;
    int id_ = ::getpid();
};

} // namespace detail::c_edge
UNISONO_NAMESPACE_END

struct unisono_world {
    unisono::AnyGroup group;
    unisono::detail::c_edge::Process process = {}; ///< that has joined
    bool is_to_start = false;                      ///< a handle of unisono_start
    unisono_request** starts = nullptr;            ///< of such a handle: the request of the next call goes there
    std::unique_ptr<unisono_world> starter = nullptr;
};

struct unisono_request {
    unisono::AnyGroup group; ///< lives as long as what is in flight
    unisono::detail::c_edge::Process process = {};
    std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
    unisono::detail::c_edge::ByteCall call = {};
    unisono::BlockOperation operation = {};
};

UNISONO_NAMESPACE_BEGIN
namespace detail::c_edge {

inline void check_world(const unisono_world* world) {
    if (world == nullptr) refuse_input("the world is NULL");
    world->process.check();
}

/// Runs body(group) with this world's group. Returns an error as a number.
template <class Body>
int on(unisono_world* world, Body body) noexcept {
    return status_of([&] {
        check_world(world);
        if (world->is_to_start) {
            world->starts = nullptr;
            refuse_input("unisono_start is for a collective, a send or a receive");
        }
        body(world->group);
    });
}

/// Waits for what start(group, call) has started, or keeps it for `unisono_start`.
template <class Start>
int run(unisono_world* world, Start start) noexcept {
    return status_of([&] {
        check_world(world);
        if (!world->is_to_start) {
            ByteCall call;
            return start(world->group, call).wait();
        }
        unisono_request** const request = std::exchange(world->starts, nullptr);
        if (request == nullptr)
            refuse_input("the handle of unisono_start was used before, or its request is NULL; expected one call");
        auto made = std::make_unique<unisono_request>(unisono_request{.group = world->group});
        made->operation = start(made->group, made->call);
        *request = made.release();
    });
}

/// Ends the request, if has_ended(request) is true or throws.
template <class HasEnded>
int end(unisono_request** request, HasEnded has_ended) noexcept {
    return status_of([&] {
        if (request == nullptr) refuse_input("the place of the request is NULL");
        if (*request != nullptr) (*request)->process.check();
        std::unique_ptr<unisono_request> taken(std::exchange(*request, nullptr));
        if (!has_ended(taken.get())) *request = taken.release();
    });
}

inline AnyJoinOptions options_of(const unisono_options* callers) {
    AnyJoinOptions chosen;
    if (callers == nullptr) return chosen;
    const unisono_options options =
        of_caller<unisono_options>(callers, offsetof(unisono_options, reserved) + sizeof(int), "unisono_options");
    if (options.reserved != 0) refuse_input({"unisono_options.reserved is ", options.reserved, ", expected 0"});
    if (options.timeout_s != 0) {
        chosen.join.timeout = duration_of(options.timeout_s);
        chosen.join.rendezvous.timeout =
            std::chrono::ceil<decltype(chosen.join.rendezvous.timeout)>(chosen.join.timeout);
    }
    if (options.transport != nullptr) chosen.transport = options.transport;
    chosen.join.rendezvous.trusted_network = options.trusted_network != 0;
    return chosen;
}

inline void join(unisono_world** world, const char* what, const unisono_options* options, auto join_by) {
    if (world == nullptr) refuse_input({what, ": the place for the world is NULL"});
    *world = nullptr;
    *world = new unisono_world{join_by(options_of(options))};
}

inline Blocks blocks_of(const AnyGroup& group, const std::size_t* counts, const std::size_t* displacements) {
    if (counts == nullptr) refuse_input("the counts are NULL");
    const auto each = static_cast<std::size_t>(group.size());
    return {{counts, each}, {displacements, displacements == nullptr ? 0 : each}};
}

// Each starts a collective, with the arguments of c.h.

inline auto all_reduce(const void* in, void* out, std::size_t count, auto combine) {
    return [=](AnyGroup& group, ByteCall& call) {
        const untyped::Combination with = combine(call);
        return group.start_all_reduce(with.elements, in, out, count, with.reduction);
    };
}
inline auto reduce(const void* in, void* out, std::size_t count, auto combine, int root) {
    return [=](AnyGroup& group, ByteCall& call) {
        const untyped::Combination with = combine(call);
        return group.start_reduce(with.elements, in, out, count, with.reduction, root);
    };
}
inline auto reduce_scatter(const void* in, void* out, std::size_t count, auto combine) {
    return [=](AnyGroup& group, ByteCall& call) {
        const untyped::Combination with = combine(call);
        return group.start_reduce_scatter(with.elements, in, out, count, with.reduction);
    };
}
inline auto reduce_scatter(const void* in, const std::size_t* counts, const std::size_t* displacements, void* out,
                           auto combine) {
    return [=](AnyGroup& group, ByteCall& call) {
        const untyped::Combination with = combine(call);
        return group.start_reduce_scatter(with.elements, in, out, blocks_of(group, counts, displacements),
                                          with.reduction);
    };
}

extern "C" { // the functions of c.h

int unisono_join(unisono_world** world, const unisono_options* options) {
    return status_of(
        [&] { join(world, "unisono_join", options, [](const AnyJoinOptions& chosen) { return join_any(chosen); }); });
}
int unisono_join_at(unisono_world** world, int rank, int size, const char* address, const unisono_options* options) {
    return status_of([&] {
        join(world, "unisono_join_at", options, [&](const AnyJoinOptions& chosen) {
            if (address == nullptr) refuse_input("unisono_join_at: the address is NULL");
            return join_any(unisono::identity_of(rank, size), std::string_view(address), chosen);
        });
    });
}
int unisono_join_by(unisono_world** world, int rank, int size, const unisono_store* store,
                    const unisono_options* options) {
    return status_of([&] {
        join(world, "unisono_join_by", options, [&](const AnyJoinOptions& chosen) {
            Store callers(store);
            return join_any(unisono::identity_of(rank, size), callers, "unisono", chosen);
        });
    });
}

void unisono_leave(unisono_world* world) {
    if (world == nullptr || !world->process.is_this()) return; // a fork says no goodbye for the rank
    static_cast<void>(status_of([&] { delete world; }));
}

int unisono_rank(const unisono_world* world) { return world == nullptr ? -1 : world->group.rank(); }
int unisono_size(const unisono_world* world) { return world == nullptr ? 0 : world->group.size(); }

int unisono_split(unisono_world* world, int colour, int key, unisono_world** group) {
    if (group != nullptr) *group = nullptr;
    return on(world, [&](AnyGroup& from) {
        if (group == nullptr) refuse_input("unisono_split: the place for the group is NULL");
        AnyGroup made = from.split(colour == -1 ? no_colour : colour, key);
        if (made.size() != 0) *group = new unisono_world{std::move(made)};
    });
}

int unisono_set_timeout(unisono_world* world, double timeout_s) {
    return on(world, [&](AnyGroup& group) { group.set_timeout(duration_of(timeout_s)); });
}

void unisono_abort(unisono_world* world, const char* why) {
    static_cast<void>(on(world, [&](AnyGroup& group) {
        group.abort(group.core().blame(ErrorCode::aborted, group.rank(), {},
                                       {"gave up: ", why == nullptr ? "no reason given" : why}));
    }));
}

const char* unisono_last_error(void) { return last_error().text.c_str(); }
int unisono_last_error_rank(void) { return last_error().rank; }
int unisono_last_error_peer(void) { return last_error().peer; }

size_t unisono_type_bytes(unisono_type type) {
    constexpr std::size_t bytes[] = {4, 8, 2, 2, 4, 8, 1, 4, 8, 1, 2, 2};
    return static_cast<std::size_t>(type) < std::size(bytes) ? bytes[static_cast<std::size_t>(type)] : 0;
}

unisono_world* unisono_start(unisono_world* world, unisono_request** request) {
    if (request != nullptr) *request = nullptr;
    if (world == nullptr) return nullptr;
    if (world->starter == nullptr) world->starter.reset(new (std::nothrow) unisono_world{world->group});
    if (world->starter == nullptr) return nullptr;
    world->starter->is_to_start = true;
    world->starter->starts = request;
    return world->starter.get();
}
int unisono_test(unisono_request** request, int* done) {
    if (done == nullptr) return status_of([] { refuse_input("unisono_test: the place for the answer is NULL"); });
    *done = 0;
    return end(request, [&](unisono_request* going) {
        if (going == nullptr || going->operation.poll()) return *done = 1, true;
        const auto waited = std::chrono::steady_clock::now() - going->started;
        if (waited > going->group.timeout()) going->operation.give_up(waited);
        return false;
    });
}
int unisono_wait(unisono_request** request) {
    return end(request, [](unisono_request* going) {
        if (going != nullptr) going->operation.wait();
        return true;
    });
}

int unisono_all_reduce(unisono_world* world, const void* in, void* out, size_t count, unisono_type type,
                       unisono_op op) {
    return run(world, all_reduce(in, out, count, by(type, op)));
}
int unisono_all_reduce_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                          unisono_function function, void* context) {
    return run(world, all_reduce(in, out, count, by(element_bytes, function, context)));
}
int unisono_reduce(unisono_world* world, const void* in, void* out, size_t count, unisono_type type, unisono_op op,
                   int root) {
    return run(world, reduce(in, out, count, by(type, op), root));
}
int unisono_reduce_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                      unisono_function function, void* context, int root) {
    return run(world, reduce(in, out, count, by(element_bytes, function, context), root));
}
int unisono_reduce_scatter(unisono_world* world, const void* in, void* out, size_t count, unisono_type type,
                           unisono_op op) {
    return run(world, reduce_scatter(in, out, count, by(type, op)));
}
int unisono_reduce_scatter_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                              unisono_function function, void* context) {
    return run(world, reduce_scatter(in, out, count, by(element_bytes, function, context)));
}
int unisono_reduce_scatter_v(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements,
                             void* out, unisono_type type, unisono_op op) {
    return run(world, reduce_scatter(in, counts, displacements, out, by(type, op)));
}
int unisono_reduce_scatter_v_by(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements,
                                void* out, size_t element_bytes, unisono_function function, void* context) {
    return run(world, reduce_scatter(in, counts, displacements, out, by(element_bytes, function, context)));
}
int unisono_broadcast(unisono_world* world, void* data, size_t count, size_t element_bytes, int root) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        return group.start_broadcast(elements_of(element_bytes), data, count, root);
    });
}
int unisono_all_gather(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        return group.start_all_gather(elements_of(element_bytes), in, count, out);
    });
}
int unisono_all_gather_v(unisono_world* world, const void* in, void* out, const size_t* counts,
                         const size_t* displacements, size_t element_bytes) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        return group.start_all_gather(elements_of(element_bytes), in, out, blocks_of(group, counts, displacements));
    });
}
int unisono_gather(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes, int root) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        return group.start_gather(elements_of(element_bytes), in, count, out, root);
    });
}
int unisono_gather_v(unisono_world* world, const void* in, void* out, const size_t* counts, const size_t* displacements,
                     size_t element_bytes, int root) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        return group.start_gather(elements_of(element_bytes), in, out, blocks_of(group, counts, displacements), root);
    });
}
int unisono_scatter(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes, int root) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        return group.start_scatter(elements_of(element_bytes), in, out, count, root);
    });
}
int unisono_scatter_v(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements,
                      void* out, size_t element_bytes, int root) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        return group.start_scatter(elements_of(element_bytes), in, out, blocks_of(group, counts, displacements), root);
    });
}
int unisono_all_to_all(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        const std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()), count);
        return group.start_all_to_all(elements_of(element_bytes), in, out, counts, counts);
    });
}
int unisono_all_to_all_v(unisono_world* world, const void* in, const size_t* send_counts,
                         const size_t* send_displacements, void* out, const size_t* receive_counts,
                         const size_t* receive_displacements, size_t element_bytes) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        return group.start_all_to_all(elements_of(element_bytes), in, blocks_of(group, send_counts, send_displacements),
                                      out, blocks_of(group, receive_counts, receive_displacements));
    });
}
int unisono_barrier(unisono_world* world) {
    return run(world, [](AnyGroup& group, ByteCall&) { return group.start_barrier(); });
}
int unisono_send(unisono_world* world, const void* data, size_t count, size_t element_bytes, int peer, int tag) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        return group.start_send(elements_of(element_bytes), data, count, peer, tag);
    });
}
int unisono_receive(unisono_world* world, void* data, size_t count, size_t element_bytes, int peer, int tag) {
    return run(world, [&](AnyGroup& group, ByteCall&) {
        return group.start_receive(elements_of(element_bytes), data, count, peer, tag);
    });
}
int unisono_exchange(unisono_world* world, const void* sent, size_t sent_count, int to, void* received,
                     size_t received_count, int from, size_t element_bytes, int tag) {
    return on(world, [&](AnyGroup& group) {
        const Elements elements = elements_of(element_bytes);
        const CallBuffer into = {static_cast<std::byte*>(received), received_count, elements.bytes, elements.type};
        static_cast<void>(detail::request_of(group.core().context(), schedule::StepKind::receive, into, from, tag));
        // All arguments have been checked before any operation is in flight.
        Operation going = group.start_send(elements, sent, sent_count, to, tag);
        Operation coming = group.start_receive(elements, received, received_count, from, tag);
        coming.wait();
        going.wait();
    });
}

} // extern "C"

} // namespace detail::c_edge
UNISONO_NAMESPACE_END
