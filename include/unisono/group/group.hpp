#pragma once

/// \file
/// A group: ranks that act together over one transport.
///
/// Laws: all ranks of a group start its collectives in the same order with the same arguments. What
/// must be equal is compared; a mismatch is an error on every rank, which names both sides. Several
/// operations may be in flight, on one group or on several that share a rank. One thread drives a
/// rank. After a fault every call on every group of the world throws it.

#include "unisono/group/group_core.hpp"
#include "unisono/transport/endpoint.hpp"

#include <concepts>
#include <memory>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// Ranks that act together. Move-only. The world is a group, and `split` makes others. One thread
/// drives a rank. All that does not depend on the transport is in `GroupCore`.
template <transport Transport>
class Group : public GroupCore {
public:
    using transport_type = Transport;

    /// The world of an endpoint. Errors: bad_input if it does not do what its class declares.
    explicit Group(Transport endpoint);
    /// The world of an endpoint that needs no arguments.
    Group()
        requires std::default_initializable<Transport>
        : Group(Transport()) {}

    /// Makes new groups, one per colour, with ranks ordered by (key, rank in this group).
    /// Collective. A colour is at least 0, or `no_colour`. Cost: one all_gather of 12 bytes per
    /// rank. Errors: refused, on the ranks of a new group, if the transport has no room for more
    /// groups; a group that has ended on all of its ranks makes room. (MPI 4.0, section 7.4.2)
    [[nodiscard]] Group split(int colour, int key) { return Group(GroupCore::split(colour, key)); }

    [[nodiscard]] Transport& endpoint();
    [[nodiscard]] const Transport& endpoint() const;

private:
    explicit Group(GroupCore&& core) : GroupCore(std::move(core)) {}
};

// Not inline, so that a program in compiled mode takes them from the library.

template <transport Transport>
[[gnu::cold]] Group<Transport>::Group(Transport endpoint)
    : GroupCore(
          (detail::check_endpoint(endpoint, Transport::maps_peers, knows_hosts<Transport>, has_virtual_time<Transport>),
           detail::Owned<Endpoint>(new Transport(std::move(endpoint))))) {}

template <transport Transport>
Transport& Group<Transport>::endpoint() {
    return static_cast<Transport&>(core_endpoint());
}
template <transport Transport>
const Transport& Group<Transport>::endpoint() const {
    return static_cast<const Transport&>(core_endpoint());
}

UNISONO_NAMESPACE_END
