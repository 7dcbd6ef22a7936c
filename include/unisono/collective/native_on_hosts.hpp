#pragma once

/// \file
/// The native schedules of transports that know which ranks share a host: hierarchical ones.
/// Separate from native.hpp, so that only programs with such a transport compile them.

#include "unisono/collective/native.hpp"
#include "unisono/schedule/hierarchical.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// With one rank per host, or all ranks on one host, schedules ignore hosts. Collectives of blocks
/// do so as well if ranks are dealt to hosts round-robin: doubling and trees then already send most
/// messages within hosts, with as few bytes between hosts, and from all ranks at once.
template <Collective What, transport Transport>
const Plan& plan_on_hosts(Group<Transport>& group, const NativeSchedule& family, const OperationRequest& request,
                          int root) {
    const HostMap* const hosts = group.hosts();
    constexpr bool of_blocks =
        buffer_use(What).input == Holding::own_block || buffer_use(What).output == Holding::own_block;
    if (hosts == nullptr || !hosts->has_levels() || (of_blocks && hosts->takes_turns()))
        return plan_on_equals<What>(group, family, request, root);
    const HierarchicalSchedule levels{.tree_across = request.total_bytes < family.across_bytes, .hosts = hosts};
    return group.plan(schedule_of<What>(levels, group.shape(root)));
}

} // namespace detail
UNISONO_NAMESPACE_END
