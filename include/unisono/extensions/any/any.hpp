#pragma once

/// \file
/// A group for programs that choose their transport at run time: one type for several transports.
/// It is not part of the umbrella.
///
/// It is a group over one of the transports that map their peers' memory, and costs no more. A
/// world is made by `run<AnyTransport>(name, ranks, body)` or `join<AnyTransport>()` (any.hpp), or
/// from another group.
///
/// Absent on purpose: `Simulated`. Its time passes differently, so a trainer must know it at
/// compile time, and its ranks share no memory. A program that simulates names it.

#include "unisono/group/group.hpp"
#include "unisono/transport/in_process.hpp"

#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// Names any transport that maps peers, in the type of a group. It has no objects.
class AnyTransport : public Endpoint {
public:
    static constexpr std::string_view name = "any";
    static constexpr bool maps_peers = true;
    AnyTransport() = delete;
};

template <>
class Group<AnyTransport> : public GroupCore {
public:
    using transport_type = AnyTransport;

    /// A world of one.
    Group() : Group(Group<InProcess>()) {}
    /// Takes a group over.
    template <transport Transport>
        requires(Transport::maps_peers)
    explicit Group(Group<Transport>&& group) : GroupCore(std::move(group)) {}

    /// See the other groups.
    [[nodiscard]] Group split(int colour, int key) { return Group(GroupCore::split(colour, key)); }

    /// `facts().name` is the transport's.
    [[nodiscard]] Endpoint& endpoint() { return core_endpoint(); }
    [[nodiscard]] const Endpoint& endpoint() const { return core_endpoint(); }

private:
    explicit Group(GroupCore&& core) : GroupCore(std::move(core)) {}
};

UNISONO_NAMESPACE_END
