#pragma once

/// \file
/// The definitions of c.h: include it in exactly one C++ file of a program, or link to unisono::c.
/// Not part of the umbrella.

#include "unisono/c.h"
#include "unisono/collective/blocks.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/collective/untyped.hpp"
#include "unisono/core/outcome.hpp"
#include "unisono/hosts.hpp"
#include "unisono/join.hpp"
#include "unisono/tcp.hpp"
#include "unisono/transport/shared_memory.hpp"
#include "unisono/transport/shared_memory/join.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail::c_edge {

using AnyGroup = std::variant<Group<SharedMemory>, Group<Hosts<Tcp>>, Group<Tcp>>;

struct LastError {
    std::string text;
    int rank = -1;
    int peer = -1;
};
inline LastError& last_error() {
    thread_local LastError last;
    return last;
}

/// Runs `body`, keeps the text of its exception, and returns its code.
template <class Body>
int status_of(Body&& body) noexcept {
    const Fault fault = outcome_of(std::forward<Body>(body));
    if (fault.code == ErrorCode::none) return UNISONO_OK;
    static_cast<void>(outcome_of([&] { // without memory there is no text
        LastError& last = last_error();
        last.rank = fault.rank;
        last.peer = fault.peer;
        last.text.clear();
        last.text = error(fault).what();
    }));
    return static_cast<int>(fault.code);
}

static_assert(static_cast<int>(ErrorCode::timeout) == UNISONO_TIMEOUT &&
              static_cast<int>(ErrorCode::peer_lost) == UNISONO_PEER_LOST &&
              static_cast<int>(ErrorCode::mismatch) == UNISONO_MISMATCH &&
              static_cast<int>(ErrorCode::refused) == UNISONO_REFUSED &&
              static_cast<int>(ErrorCode::aborted) == UNISONO_ABORTED &&
              static_cast<int>(ErrorCode::bad_input) == UNISONO_BAD_INPUT &&
              static_cast<int>(ErrorCode::not_finite) == UNISONO_NOT_FINITE);
static_assert(static_cast<int>(ElementType::float32) == UNISONO_FLOAT32 &&
              static_cast<int>(ElementType::float64) == UNISONO_FLOAT64 &&
              static_cast<int>(ElementType::bfloat16) == UNISONO_BFLOAT16 &&
              static_cast<int>(ElementType::float16) == UNISONO_FLOAT16 &&
              static_cast<int>(ElementType::int32) == UNISONO_INT32 &&
              static_cast<int>(ElementType::int64) == UNISONO_INT64 &&
              static_cast<int>(ElementType::uint8) == UNISONO_UINT8 &&
              static_cast<int>(ElementType::uint32) == UNISONO_UINT32 &&
              static_cast<int>(ElementType::uint64) == UNISONO_UINT64);

inline std::chrono::nanoseconds duration_of(double seconds) {
    if (!(seconds > 0)) refuse_input({"a timeout must be more than 0 seconds, found ", seconds});
    constexpr double most = 1e9; // 30 years
    return std::chrono::nanoseconds(static_cast<std::int64_t>((seconds < most ? seconds : most) * 1e9));
}

inline AnyGroup join_by(std::string_view transport, const JoinOptions& options) {
    if (transport != "auto" && transport != "shared_memory" && transport != "hosts" && transport != "tcp")
        refuse_input(
            {"unisono_join: found the transport '", transport, "', expected auto, shared_memory, hosts or tcp"});
    ControlPlane plane = rendezvous_of_job(options);
    if (transport == "tcp") return AnyGroup(join<Tcp>(std::move(plane), options));
    const nanoseconds deadline = deadline_after(steady_now(), options.rendezvous.timeout);
    if (transport == "shared_memory" || (transport == "auto" && (plane.size() == 1 || share_one_host(plane, deadline))))
        return AnyGroup(join<SharedMemory>(std::move(plane), options));
    return AnyGroup(join<Hosts<Tcp>>(std::move(plane), options));
}

inline Elements elements_of(unisono_type type) {
    const std::size_t bytes = unisono_type_bytes(type);
    if (bytes == 0)
        refuse_input({"found ", static_cast<int>(type), " as the type of elements, expected a unisono_type"});
    return {static_cast<ElementType>(type), static_cast<std::uint32_t>(bytes)};
}

inline Elements elements_of(std::size_t bytes) {
    if (bytes == 0 || bytes > std::numeric_limits<std::uint32_t>::max())
        refuse_input({"found elements of ", bytes, " bytes, expected at least 1 and less than 4 GiB"});
    return {ElementType::opaque, static_cast<std::uint32_t>(bytes)};
}

/// A reduction by enum or by function, and the elements to which it applies.
class Combination {
public:
    Combination(unisono_type type, unisono_op op) : elements_(elements_of(type)) {
        constexpr ReductionKind kinds[] = {ReductionKind::sum, ReductionKind::product, ReductionKind::min,
                                           ReductionKind::max};
        if (static_cast<std::size_t>(op) >= std::size(kinds))
            refuse_input({"found ", static_cast<int>(op), " as the operation, expected a unisono_op"});
        reduction_ = untyped::reduction(kinds[static_cast<std::size_t>(op)], elements_.type);
    }
    Combination(std::size_t element_bytes, unisono_function function, void* context)
        : elements_(elements_of(element_bytes)), call_{function, context},
          operation_{&Combination::combine, elements_.bytes, &call_} {
        if (function == nullptr) refuse_input("found no function for the operation");
        reduction_ = untyped::reduction(operation_);
    }
    Combination(const Combination&) = delete;
    Combination& operator=(const Combination&) = delete;

    [[nodiscard]] const Elements& elements() const { return elements_; }
    [[nodiscard]] const Reduction& reduction() const { return reduction_; }

private:
    struct Call {
        unisono_function function = nullptr;
        void* context = nullptr;
    };
    static void combine(const std::byte* in, std::byte* sum, std::size_t count, void* context) {
        const Call& call = *static_cast<const Call*>(context);
        call.function(in, sum, count, call.context);
    }

    Elements elements_;
    Call call_;
    untyped::ByteOperation operation_;
    Reduction reduction_;
};

} // namespace detail::c_edge
UNISONO_NAMESPACE_END

struct unisono_world {
    unisono::detail::c_edge::AnyGroup group;
    int rank = 0;
    int size = 1;
};

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
