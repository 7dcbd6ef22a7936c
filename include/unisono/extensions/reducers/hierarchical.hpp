#pragma once

/// \file
/// Sums within each host first, then between hosts.

#include "unisono/reducer/reducer.hpp"
#include "unisono/schedule/hierarchical.hpp"

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// Small data use a tree between hosts, since the rounds of a ring would take longer than the
/// bytes.
struct HierarchicalReduction : ScheduledReduction<HierarchicalSchedule> {
    std::size_t ring_bytes = 0;

    template <transport Transport, class Values>
    Operation sum(Group<Transport>& group, Values values) const {
        HierarchicalSchedule hosts = to_all;
        hosts.tree_across = values.size_bytes() < ring_bytes;
        return unisono::start_all_reduce(group, values, Sum{}, hosts);
    }
};

} // namespace detail

/// Reduces within each host by a tree, between hosts by a ring of one rank per host (by a tree, if
/// data are small or the sum has an owner), and broadcasts within each host. So the network carries
/// what one rank per host would send. The transport tells which ranks share a host, if it knows;
/// otherwise `ranks_per_host` consecutive ranks do, as launchers number them. Not part of the
/// umbrella.
/// Source: see schedule/hierarchical.hpp.
struct HierarchicalReducer {
    int ranks_per_host = 0;                         ///< 0: as the transport knows; 1 if it does not know
    std::size_t ring_bytes = 65536;                 ///< buckets of this size or more use a ring between hosts
    std::size_t chunk_bytes = std::size_t{1} << 20; ///< the vector travels in chunks of about this size

    static constexpr std::string_view name = "hierarchical";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const HierarchicalReducer&, const HierarchicalReducer&) = default;

    /// \throws error bad_input: ranks_per_host is negative, or chunk_bytes is 0
    template <class World>
    [[nodiscard]] auto start(World& world) const {
        if (ranks_per_host < 0)
            refuse_input({"HierarchicalReducer.ranks_per_host is ", ranks_per_host,
                          "; expected at least 1, or 0 for what the transport knows"});
        if (chunk_bytes == 0) refuse_input("HierarchicalReducer.chunk_bytes is 0; expected at least 1");
        HierarchicalSchedule hosts{.ranks_per_host = ranks_per_host == 0 ? 1 : ranks_per_host,
                                   .chunk_bytes = chunk_bytes};
        if (ranks_per_host == 0) hosts.hosts = world.hosts();
        return detail::HierarchicalReduction{{hosts, hosts}, ring_bytes};
    }
};

UNISONO_NAMESPACE_END
