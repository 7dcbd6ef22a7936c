#pragma once

/// \file
/// Two levels: a tree among the ranks of a host to its head and back, and a schedule among the
/// heads of all hosts. Between hosts travels only what one rank per host would send: by a ring for
/// large data (all_reduce, all_gather, reduce_scatter), by a tree for collectives with a root. For
/// networks that are much slower than the memory that the ranks of a host share. Not part of
/// families.hpp: include this header to use it.
///
/// Either hosts have `ranks_per_host` ranks each, in rank order, and the last host may have fewer;
/// or a HostMap gives the hosts: any sizes, any order of ranks. If the ranks of a host are not
/// consecutive, the blocks of all_gather, reduce_scatter, gather and scatter take more messages,
/// and the same number of bytes. With one rank per host this is a ring or a tree of all ranks; with
/// one host, a tree. Each phase is a schedule of ring.hpp, tree.hpp or barrier.hpp on fewer ranks;
/// those headers say what is combined in which order. Equal shapes and hosts give equal bits on all
/// ranks.
/// Source: N. T. Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
/// collective operation performance", IPDPS 2000.
///
/// Absent on purpose: all_to_all through heads, which saves messages but no bytes (use
/// DirectAllToAll); and one ring for each rank of a host, which pays only if one rank cannot
/// saturate the network.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/schedule/families.hpp"
#include "unisono/schedule/hierarchical_blocks.hpp"
#include "unisono/schedule/hierarchical_vectors.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN

/// `HierarchicalSchedule{.ranks_per_host = 8}`, or `{.hosts = group.hosts()}` if the transport
/// knows the hosts. All ranks pass the same value, and compare it. \throws error bad_input when it
/// is used: ranks_per_host below 1; hosts for another number of ranks
struct HierarchicalSchedule {
    static constexpr std::string_view name = "hierarchical";
    int ranks_per_host = 1;
    bool tree_across = false; ///< all_reduce between hosts by a tree instead of a ring: fewer rounds, more bytes
    /// Size of a lane of all_reduce, broadcast and reduce, which lanes pipeline; 0: data travel
    /// whole.
    std::size_t chunk_bytes = 0;
    /// The ranks of each host, used instead of ranks_per_host; must outlive the group's operations.
    const HostMap* hosts = nullptr;

    using schedules =
        schedule::List<schedule::HierarchicalAllReduce, schedule::HierarchicalReduceScatter,
                       schedule::HierarchicalAllGather, schedule::HierarchicalBroadcast, schedule::HierarchicalReduce,
                       schedule::HierarchicalGather, schedule::HierarchicalScatter, schedule::DirectAllToAll,
                       schedule::HierarchicalBarrier>;
    template <class Schedule>
    [[nodiscard]] constexpr Schedule make(const schedule::Shape& shape) const {
        if constexpr (std::same_as<Schedule, schedule::DirectAllToAll>) return {{shape}};
        else if constexpr (std::same_as<Schedule, schedule::HierarchicalAllReduce>)
            return {{{shape}, layout(shape)}, tree_across};
        else return {{{shape}, layout(shape)}};
    }
    friend bool operator==(const HierarchicalSchedule&, const HierarchicalSchedule&) = default;

private:
    [[nodiscard]] constexpr schedule::HostLayout layout(const schedule::Shape& shape) const {
        if (hosts == nullptr && ranks_per_host < 1)
            refuse_input({"HierarchicalSchedule.ranks_per_host is ", ranks_per_host, "; expected at least 1"});
        if (hosts != nullptr && hosts->ranks() != shape.world)
            refuse_input({"HierarchicalSchedule.hosts has ", hosts->ranks(), " ranks, the group ", shape.world});
        return hosts != nullptr ? schedule::HostLayout{.map = hosts} : schedule::HostLayout{.per_host = ranks_per_host};
    }
};
static_assert(schedule_family<HierarchicalSchedule>);

UNISONO_NAMESPACE_END
