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

} // namespace detail::c_edge
UNISONO_NAMESPACE_END

extern "C" {

int unisono_join(unisono_world** world, const unisono_options* options) {
    namespace un = unisono;
    namespace edge = un::detail::c_edge;
    return edge::status_of([&] {
        if (world == nullptr) un::refuse_input("unisono_join: the place for the world is NULL");
        *world = nullptr;
        un::JoinOptions chosen;
        if (options != nullptr && options->timeout_s != 0) {
            chosen.timeout = edge::duration_of(options->timeout_s);
            chosen.rendezvous.timeout = std::chrono::ceil<decltype(chosen.rendezvous.timeout)>(chosen.timeout);
        }
        const bool named = options != nullptr && options->transport != nullptr;
        *world = edge::handle_of(edge::join_by(named ? options->transport : "auto", chosen));
    });
}

void unisono_leave(unisono_world* world) {
    static_cast<void>(unisono::detail::c_edge::status_of([&] { delete world; }));
}

int unisono_rank(const unisono_world* world) { return world == nullptr ? -1 : world->rank; }
int unisono_size(const unisono_world* world) { return world == nullptr ? 0 : world->size; }

int unisono_split(unisono_world* world, int colour, int key, unisono_world** group) {
    namespace un = unisono;
    if (group != nullptr) *group = nullptr;
    return un::detail::c_edge::on(world, [&](auto& from) {
        if (group == nullptr) un::refuse_input("unisono_split: the place for the group is NULL");
        auto made = from.split(colour == -1 ? un::no_colour : colour, key);
        if (made.size() != 0) *group = un::detail::c_edge::handle_of(un::detail::c_edge::AnyGroup(std::move(made)));
    });
}

int unisono_set_timeout(unisono_world* world, double timeout_s) {
    return unisono::detail::c_edge::on(
        world, [&](auto& group) { group.set_timeout(unisono::detail::c_edge::duration_of(timeout_s)); });
}

void unisono_abort(unisono_world* world, const char* why) {
    namespace un = unisono;
    static_cast<void>(un::detail::c_edge::on(world, [&](auto& group) {
        group.abort(group.blame(un::ErrorCode::aborted, group.rank(), {},
                                {"gave up: ", why == nullptr ? "no reason given" : why}));
    }));
}

const char* unisono_last_error(void) { return unisono::detail::c_edge::last_error().text.c_str(); }
int unisono_last_error_rank(void) { return unisono::detail::c_edge::last_error().rank; }
int unisono_last_error_peer(void) { return unisono::detail::c_edge::last_error().peer; }

size_t unisono_type_bytes(unisono_type type) {
    constexpr std::size_t bytes[] = {4, 8, 2, 2, 4, 8, 1, 4, 8};
    return static_cast<std::size_t>(type) < std::size(bytes) ? bytes[static_cast<std::size_t>(type)] : 0;
}

int unisono_all_reduce(unisono_world* world, const void* in, void* out, size_t count, unisono_type type,
                       unisono_op op) {
    using namespace unisono::detail::c_edge;
    return with_combination([&](const auto& by) { return all_reduce(world, in, out, count, by); }, type, op);
}
int unisono_all_reduce_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                          unisono_function function, void* context) {
    using namespace unisono::detail::c_edge;
    return with_combination([&](const auto& by) { return all_reduce(world, in, out, count, by); }, element_bytes,
                            function, context);
}
int unisono_reduce(unisono_world* world, const void* in, void* out, size_t count, unisono_type type, unisono_op op,
                   int root) {
    using namespace unisono::detail::c_edge;
    return with_combination([&](const auto& by) { return reduce(world, in, out, count, by, root); }, type, op);
}
int unisono_reduce_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                      unisono_function function, void* context, int root) {
    using namespace unisono::detail::c_edge;
    return with_combination([&](const auto& by) { return reduce(world, in, out, count, by, root); }, element_bytes,
                            function, context);
}
int unisono_reduce_scatter(unisono_world* world, const void* in, void* out, size_t count, unisono_type type,
                           unisono_op op) {
    using namespace unisono::detail::c_edge;
    return with_combination([&](const auto& by) { return reduce_scatter(world, in, out, count, by); }, type, op);
}
int unisono_reduce_scatter_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                              unisono_function function, void* context) {
    using namespace unisono::detail::c_edge;
    return with_combination([&](const auto& by) { return reduce_scatter(world, in, out, count, by); }, element_bytes,
                            function, context);
}
int unisono_reduce_scatter_v(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements,
                             void* out, unisono_type type, unisono_op op) {
    using namespace unisono::detail::c_edge;
    return with_combination([&](const auto& by) { return reduce_scatter(world, in, counts, displacements, out, by); },
                            type, op);
}
int unisono_reduce_scatter_v_by(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements,
                                void* out, size_t element_bytes, unisono_function function, void* context) {
    using namespace unisono::detail::c_edge;
    return with_combination([&](const auto& by) { return reduce_scatter(world, in, counts, displacements, out, by); },
                            element_bytes, function, context);
}

int unisono_broadcast(unisono_world* world, void* data, size_t count, size_t element_bytes, int root) {
    namespace un = unisono;
    return un::detail::c_edge::on(world, [&](auto& group) {
        un::untyped::broadcast(group, un::detail::c_edge::elements_of(element_bytes), data, count, root).wait();
    });
}
int unisono_all_gather(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes) {
    namespace un = unisono;
    return un::detail::c_edge::on(world, [&](auto& group) {
        un::untyped::all_gather(group, un::detail::c_edge::elements_of(element_bytes), in, count, out).wait();
    });
}
int unisono_all_gather_v(unisono_world* world, const void* in, void* out, const size_t* counts,
                         const size_t* displacements, size_t element_bytes) {
    namespace un = unisono;
    namespace edge = un::detail::c_edge;
    return edge::on(world, [&](auto& group) {
        un::untyped::all_gather(group, edge::elements_of(element_bytes), in, out,
                                edge::blocks_of(group.size(), counts, displacements));
    });
}
int unisono_gather(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes, int root) {
    namespace un = unisono;
    return un::detail::c_edge::on(world, [&](auto& group) {
        un::untyped::gather(group, un::detail::c_edge::elements_of(element_bytes), in, count, out, root).wait();
    });
}
int unisono_gather_v(unisono_world* world, const void* in, void* out, const size_t* counts, const size_t* displacements,
                     size_t element_bytes, int root) {
    namespace un = unisono;
    namespace edge = un::detail::c_edge;
    return edge::on(world, [&](auto& group) {
        un::untyped::gather(group, edge::elements_of(element_bytes), in, out,
                            edge::blocks_of(group.size(), counts, displacements), root);
    });
}
int unisono_scatter(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes, int root) {
    namespace un = unisono;
    return un::detail::c_edge::on(world, [&](auto& group) {
        un::untyped::scatter(group, un::detail::c_edge::elements_of(element_bytes), in, out, count, root).wait();
    });
}
int unisono_scatter_v(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements,
                      void* out, size_t element_bytes, int root) {
    namespace un = unisono;
    namespace edge = un::detail::c_edge;
    return edge::on(world, [&](auto& group) {
        un::untyped::scatter(group, edge::elements_of(element_bytes), in, out,
                             edge::blocks_of(group.size(), counts, displacements), root);
    });
}
int unisono_all_to_all(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes) {
    namespace un = unisono;
    return un::detail::c_edge::on(world, [&](auto& group) {
        const std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()), count);
        un::untyped::all_to_all(group, un::detail::c_edge::elements_of(element_bytes), in, out, counts, counts).wait();
    });
}
int unisono_all_to_all_v(unisono_world* world, const void* in, const size_t* send_counts,
                         const size_t* send_displacements, void* out, const size_t* receive_counts,
                         const size_t* receive_displacements, size_t element_bytes) {
    namespace un = unisono;
    namespace edge = un::detail::c_edge;
    return edge::on(world, [&](auto& group) {
        un::untyped::all_to_all(group, edge::elements_of(element_bytes), in,
                                edge::blocks_of(group.size(), send_counts, send_displacements), out,
                                edge::blocks_of(group.size(), receive_counts, receive_displacements));
    });
}
int unisono_barrier(unisono_world* world) {
    return unisono::detail::c_edge::on(world, [](auto& group) { unisono::barrier(group); });
}

int unisono_send(unisono_world* world, const void* data, size_t count, size_t element_bytes, int peer, int tag) {
    namespace un = unisono;
    return un::detail::c_edge::on(world, [&](auto& group) {
        un::untyped::send(group, un::detail::c_edge::elements_of(element_bytes), data, count, peer, tag).wait();
    });
}
int unisono_receive(unisono_world* world, void* data, size_t count, size_t element_bytes, int peer, int tag) {
    namespace un = unisono;
    return un::detail::c_edge::on(world, [&](auto& group) {
        un::untyped::receive(group, un::detail::c_edge::elements_of(element_bytes), data, count, peer, tag).wait();
    });
}
int unisono_exchange(unisono_world* world, const void* sent, size_t sent_count, int to, void* received,
                     size_t received_count, int from, size_t element_bytes, int tag) {
    namespace un = unisono;
    return un::detail::c_edge::on(world, [&](auto& group) {
        const un::Elements elements = un::detail::c_edge::elements_of(element_bytes);
        const auto into = un::detail::untyped_buffer(elements, received, received_count);
        static_cast<void>(un::detail::request_of(group.context(), un::schedule::StepKind::receive, into, from, tag));
        // All arguments have been checked before any operation is in flight.
        un::Operation going = un::untyped::send(group, elements, sent, sent_count, to, tag);
        un::Operation coming = un::untyped::receive(group, elements, received, received_count, from, tag);
        coming.wait();
        going.wait();
    });
}

} // extern "C"
