#pragma once

/// \file
/// Two levels: ranks of one host by a tree to its head and back, the heads of all hosts among
/// themselves. Between hosts goes only what one rank a host would send, by a ring where data are
/// large (all_reduce, all_gather, reduce_scatter) and by a tree where there is a root. For networks
/// that are much slower than what the ranks of a host have in common. Not among families.hpp:
/// include it where it is used.
///
/// Hosts have `ranks_per_host` ranks each, in rank order, and the last one may have fewer; or they
/// are as a HostMap says, of any sizes and with ranks in any order. Where the ranks of a host do
/// not follow one another, the blocks of all_gather, reduce_scatter, gather and scatter take more
/// messages, and as many bytes. One rank a host: a ring or tree of all ranks. One host: a tree.
/// Each phase is a schedule of ring.hpp, tree.hpp or barrier.hpp on fewer ranks: what they combine,
/// and in which order, is said there. Equal shapes and hosts give equal bits on all ranks.
/// Source: N. T. Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
/// collective operation performance", IPDPS 2000.
///
/// Absent on purpose: all_to_all by heads, which saves messages but no bytes (DirectAllToAll
/// serves); a ring for each rank of a host, with which the ranks share its network: that pays where
/// one rank cannot keep the network busy.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/schedule/families.hpp"
#include "unisono/schedule/hierarchical_blocks.hpp"
#include "unisono/schedule/hierarchical_vectors.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN

/// `HierarchicalSchedule{.ranks_per_host = 8}`, or `{.hosts = group.hosts()}` where the transport
/// knows them; the same on all ranks, which compare it. \throws error bad_input, when it is used:
/// ranks_per_host is not at least 1; hosts of another number of ranks
struct HierarchicalSchedule {
    static constexpr std::string_view name = "hierarchical";
    int ranks_per_host = 1;
    bool tree_across = false; ///< all_reduce between hosts by a tree and not by a ring: fewer rounds, more bytes
    std::size_t chunk_bytes =
        0; ///< of a piece of all_reduce, broadcast and reduce, which are pipelined with it; 0: whole
    const HostMap* hosts =
        nullptr; ///< which ranks share a host, instead of ranks_per_host; outlives the group's operations

    [[nodiscard]] constexpr schedule::HierarchicalAllReduce all_reduce(const schedule::Shape& shape) const {
        return {{{shape}, layout(shape)}, tree_across};
    }
    [[nodiscard]] constexpr schedule::HierarchicalReduceScatter reduce_scatter(const schedule::Shape& shape) const {
        return {{{shape}, layout(shape)}};
    }
    [[nodiscard]] constexpr schedule::HierarchicalAllGather all_gather(const schedule::Shape& shape) const {
        return {{{shape}, layout(shape)}};
    }
    [[nodiscard]] constexpr schedule::HierarchicalBroadcast broadcast(const schedule::Shape& shape) const {
        return {{{shape}, layout(shape)}};
    }
    [[nodiscard]] constexpr schedule::HierarchicalReduce reduce(const schedule::Shape& shape) const {
        return {{{shape}, layout(shape)}};
    }
    [[nodiscard]] constexpr schedule::HierarchicalGather gather(const schedule::Shape& shape) const {
        return {{{shape}, layout(shape)}};
    }
    [[nodiscard]] constexpr schedule::HierarchicalScatter scatter(const schedule::Shape& shape) const {
        return {{{shape}, layout(shape)}};
    }
    [[nodiscard]] constexpr schedule::DirectAllToAll all_to_all(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::HierarchicalBarrier barrier(const schedule::Shape& shape) const {
        return {{{shape}, layout(shape)}};
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
