#pragma once

/// \file
/// The definitions of c.h: include it in exactly one C++ file of a program, or link to unisono::c.
/// Not part of the umbrella.

#include "unisono/c_edge.hpp"

#include <chrono>
#include <cstddef>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail::c_edge {

/// Runs body(group) with this world's group, for any transport. Returns an error as a number.
template <class Body>
int on(unisono_world* world, Body body) noexcept {
    return status_of([&] {
        if (world == nullptr) refuse_input("the world is NULL");
        std::visit(body, world->group);
    });
}

inline unisono_world* handle_of(AnyGroup group) {
    const auto [rank, size] = std::visit([](auto& ranks) { return std::pair(ranks.rank(), ranks.size()); }, group);
    return new unisono_world{std::move(group), rank, size};
}

inline Blocks blocks_of(int ranks, const std::size_t* counts, const std::size_t* displacements) {
    if (counts == nullptr) refuse_input("the counts are NULL");
    const auto each = static_cast<std::size_t>(ranks);
    return {{counts, each}, {displacements, displacements == nullptr ? 0 : each}};
}

inline int all_reduce(unisono_world* world, const void* in, void* out, std::size_t count, const Combination& by) {
    return on(world,
              [&](auto& group) { untyped::all_reduce(group, by.elements(), in, out, count, by.reduction()).wait(); });
}
inline int reduce(unisono_world* world, const void* in, void* out, std::size_t count, const Combination& by, int root) {
    return on(world,
              [&](auto& group) { untyped::reduce(group, by.elements(), in, out, count, by.reduction(), root).wait(); });
}
inline int reduce_scatter(unisono_world* world, const void* in, void* out, std::size_t count, const Combination& by) {
    return on(world, [&](auto& group) {
        untyped::reduce_scatter(group, by.elements(), in, out, count, by.reduction()).wait();
    });
}
inline int reduce_scatter(unisono_world* world, const void* in, const std::size_t* counts,
                          const std::size_t* displacements, void* out, const Combination& by) {
    return on(world, [&](auto& group) {
        untyped::reduce_scatter(group, by.elements(), in, out, blocks_of(group.size(), counts, displacements),
                                by.reduction());
    });
}

/// Runs call(combination). The construction of the combination may refuse the arguments.
template <class Call, class... Arguments>
int with_combination(Call call, Arguments... arguments) noexcept {
    int status = UNISONO_OK;
    const int refused = status_of([&] {
        const Combination by(arguments...);
        status = call(by);
    });
    return refused != UNISONO_OK ? refused : status;
}

extern "C" { // the functions of c.h

int unisono_join(unisono_world** world, const unisono_options* options) {
    return status_of([&] {
        if (world == nullptr) refuse_input("unisono_join: the place for the world is NULL");
        *world = nullptr;
        JoinOptions chosen;
        if (options != nullptr && options->timeout_s != 0) {
            chosen.timeout = duration_of(options->timeout_s);
            chosen.rendezvous.timeout = std::chrono::ceil<decltype(chosen.rendezvous.timeout)>(chosen.timeout);
        }
        const bool named = options != nullptr && options->transport != nullptr;
        *world = handle_of(join_by(named ? options->transport : "auto", chosen));
    });
}

void unisono_leave(unisono_world* world) {
    static_cast<void>(status_of([&] { delete world; }));
}

int unisono_rank(const unisono_world* world) { return world == nullptr ? -1 : world->rank; }
int unisono_size(const unisono_world* world) { return world == nullptr ? 0 : world->size; }

int unisono_split(unisono_world* world, int colour, int key, unisono_world** group) {
    if (group != nullptr) *group = nullptr;
    return on(world, [&](auto& from) {
        if (group == nullptr) refuse_input("unisono_split: the place for the group is NULL");
        auto made = from.split(colour == -1 ? no_colour : colour, key);
        if (made.size() != 0) *group = handle_of(AnyGroup(std::move(made)));
    });
}

int unisono_set_timeout(unisono_world* world, double timeout_s) {
    return on(world, [&](auto& group) { group.set_timeout(duration_of(timeout_s)); });
}

void unisono_abort(unisono_world* world, const char* why) {
    static_cast<void>(on(world, [&](auto& group) {
        group.abort(
            group.blame(ErrorCode::aborted, group.rank(), {}, {"gave up: ", why == nullptr ? "no reason given" : why}));
    }));
}

const char* unisono_last_error(void) { return last_error().text.c_str(); }
int unisono_last_error_rank(void) { return last_error().rank; }
int unisono_last_error_peer(void) { return last_error().peer; }

size_t unisono_type_bytes(unisono_type type) {
    constexpr std::size_t bytes[] = {4, 8, 2, 2, 4, 8, 1, 4, 8};
    return static_cast<std::size_t>(type) < std::size(bytes) ? bytes[static_cast<std::size_t>(type)] : 0;
}

int unisono_all_reduce(unisono_world* world, const void* in, void* out, size_t count, unisono_type type,
                       unisono_op op) {
    return with_combination([&](const auto& by) { return all_reduce(world, in, out, count, by); }, type, op);
}
int unisono_all_reduce_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                          unisono_function function, void* context) {
    return with_combination([&](const auto& by) { return all_reduce(world, in, out, count, by); }, element_bytes,
                            function, context);
}
int unisono_reduce(unisono_world* world, const void* in, void* out, size_t count, unisono_type type, unisono_op op,
                   int root) {
    return with_combination([&](const auto& by) { return reduce(world, in, out, count, by, root); }, type, op);
}
int unisono_reduce_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                      unisono_function function, void* context, int root) {
    return with_combination([&](const auto& by) { return reduce(world, in, out, count, by, root); }, element_bytes,
                            function, context);
}
int unisono_reduce_scatter(unisono_world* world, const void* in, void* out, size_t count, unisono_type type,
                           unisono_op op) {
    return with_combination([&](const auto& by) { return reduce_scatter(world, in, out, count, by); }, type, op);
}
int unisono_reduce_scatter_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                              unisono_function function, void* context) {
    return with_combination([&](const auto& by) { return reduce_scatter(world, in, out, count, by); }, element_bytes,
                            function, context);
}
int unisono_reduce_scatter_v(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements,
                             void* out, unisono_type type, unisono_op op) {
    return with_combination([&](const auto& by) { return reduce_scatter(world, in, counts, displacements, out, by); },
                            type, op);
}
int unisono_reduce_scatter_v_by(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements,
                                void* out, size_t element_bytes, unisono_function function, void* context) {
    return with_combination([&](const auto& by) { return reduce_scatter(world, in, counts, displacements, out, by); },
                            element_bytes, function, context);
}

int unisono_broadcast(unisono_world* world, void* data, size_t count, size_t element_bytes, int root) {
    return on(world,
              [&](auto& group) { untyped::broadcast(group, elements_of(element_bytes), data, count, root).wait(); });
}
int unisono_all_gather(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes) {
    return on(world,
              [&](auto& group) { untyped::all_gather(group, elements_of(element_bytes), in, count, out).wait(); });
}
int unisono_all_gather_v(unisono_world* world, const void* in, void* out, const size_t* counts,
                         const size_t* displacements, size_t element_bytes) {
    return on(world, [&](auto& group) {
        untyped::all_gather(group, elements_of(element_bytes), in, out, blocks_of(group.size(), counts, displacements));
    });
}
int unisono_gather(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes, int root) {
    return on(world,
              [&](auto& group) { untyped::gather(group, elements_of(element_bytes), in, count, out, root).wait(); });
}
int unisono_gather_v(unisono_world* world, const void* in, void* out, const size_t* counts, const size_t* displacements,
                     size_t element_bytes, int root) {
    return on(world, [&](auto& group) {
        untyped::gather(group, elements_of(element_bytes), in, out, blocks_of(group.size(), counts, displacements),
                        root);
    });
}
int unisono_scatter(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes, int root) {
    return on(world,
              [&](auto& group) { untyped::scatter(group, elements_of(element_bytes), in, out, count, root).wait(); });
}
int unisono_scatter_v(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements,
                      void* out, size_t element_bytes, int root) {
    return on(world, [&](auto& group) {
        untyped::scatter(group, elements_of(element_bytes), in, out, blocks_of(group.size(), counts, displacements),
                         root);
    });
}
int unisono_all_to_all(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes) {
    return on(world, [&](auto& group) {
        const std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()), count);
        untyped::all_to_all(group, elements_of(element_bytes), in, out, counts, counts).wait();
    });
}
int unisono_all_to_all_v(unisono_world* world, const void* in, const size_t* send_counts,
                         const size_t* send_displacements, void* out, const size_t* receive_counts,
                         const size_t* receive_displacements, size_t element_bytes) {
    return on(world, [&](auto& group) {
        untyped::all_to_all(group, elements_of(element_bytes), in,
                            blocks_of(group.size(), send_counts, send_displacements), out,
                            blocks_of(group.size(), receive_counts, receive_displacements));
    });
}
int unisono_barrier(unisono_world* world) {
    return on(world, [](auto& group) { barrier(group); });
}

int unisono_send(unisono_world* world, const void* data, size_t count, size_t element_bytes, int peer, int tag) {
    return on(world,
              [&](auto& group) { untyped::send(group, elements_of(element_bytes), data, count, peer, tag).wait(); });
}
int unisono_receive(unisono_world* world, void* data, size_t count, size_t element_bytes, int peer, int tag) {
    return on(world,
              [&](auto& group) { untyped::receive(group, elements_of(element_bytes), data, count, peer, tag).wait(); });
}
int unisono_exchange(unisono_world* world, const void* sent, size_t sent_count, int to, void* received,
                     size_t received_count, int from, size_t element_bytes, int tag) {
    return on(world, [&](auto& group) {
        const Elements elements = elements_of(element_bytes);
        const auto into = detail::untyped_buffer(elements, received, received_count);
        static_cast<void>(detail::request_of(group.context(), schedule::StepKind::receive, into, from, tag));
        // All arguments have been checked before any operation is in flight.
        Operation going = untyped::send(group, elements, sent, sent_count, to, tag);
        Operation coming = untyped::receive(group, elements, received, received_count, from, tag);
        coming.wait();
        going.wait();
    });
}

} // extern "C"

} // namespace detail::c_edge
UNISONO_NAMESPACE_END
