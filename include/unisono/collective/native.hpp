#pragma once

/// \file
/// Chooses a collective's schedule: from the family that the caller names, or the transport's best.

#include "unisono/group/call.hpp"
#include "unisono/group/group.hpp"
#include "unisono/schedule/barrier.hpp"
#include "unisono/schedule/families.hpp"

#include <cstddef>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// The transport's best schedule.
/// - Over mapped memory small data are posted beside the flags, and large data are combined
///   directly from the peers' buffers.
/// - Over messages very small data are exchanged in one round if the transport is fast at that,
///   small data use halving and doubling, large data a ring (depending on the bytes per rank), and
///   rooted collectives trees.
/// - A transport that knows which ranks share hosts uses HierarchicalSchedule.
/// - A transport with a device uses that device's library for sufficiently large data.
struct NativeSchedule {
    static constexpr std::string_view name = "native";
    std::size_t ring_bytes = 262144; ///< over messages: from this many bytes per rank on, all_reduce uses the ring
    /// On hosts with several ranks: a ring between hosts from this size on, a tree below it.
    std::size_t across_bytes = 65536;

    friend bool operator==(const NativeSchedule&, const NativeSchedule&) = default;
};

namespace detail {

using schedule::schedule_of;

/// The native schedules over messages on hosts with several ranks. Defined in
/// collective/native_on_hosts.hpp, which the headers of transports that know hosts include.
template <Collective What, transport Transport>
const Plan& plan_on_hosts(Group<Transport>& group, const NativeSchedule& family, const OperationRequest& request,
                          int root);

/// The native schedules over messages, if ranks are not grouped by hosts.
template <Collective What, transport Transport>
const Plan& plan_on_equals(Group<Transport>& group, const NativeSchedule& family, const OperationRequest& request,
                           int root) {
    const schedule::Shape shape = group.shape(root);
    if constexpr (What == Collective::all_reduce) {
        if constexpr (exchange_bytes<Transport> != 0) { // the size up to which one round is faster than two
            if (shape.world <= 4 &&
                request.total_bytes * static_cast<std::size_t>(shape.world - 1) <= exchange_bytes<Transport>)
                return group.plan(schedule_of<What>(ExchangeSchedule{}, shape));
        }
        if (request.total_bytes / static_cast<std::size_t>(shape.world) >= family.ring_bytes)
            return group.plan(schedule_of<What>(RingSchedule{}, shape));
        return group.plan(schedule_of<What>(HalvingDoublingSchedule{}, shape));
    } else if constexpr (What == Collective::reduce_scatter || What == Collective::all_gather) {
        return group.plan(schedule_of<What>(HalvingDoublingSchedule{}, shape));
    } else if constexpr (What == Collective::all_to_all) {
        return group.plan(schedule_of<What>(DirectSchedule{}, shape));
    } else {
        return group.plan(schedule_of<What>(TreeSchedule{}, shape));
    }
}

/// True if host data pass through the device: its library has the collective, and the data are
/// large enough. All ranks must get the same result, so it does not depend on a rank's own counts.
template <Collective What, class Transport>
bool goes_by_stream(const Transport& transport, const OperationRequest& request) {
    if (What == Collective::barrier || request.total_bytes < transport.staged_bytes()) return false;
    if (What == Collective::all_to_all && !request.input_counts.empty()) return false;
    switch (request.reduction.kind) {
    case ReductionKind::none: return true;
    case ReductionKind::sum:
    case ReductionKind::product:
    case ReductionKind::min:
    case ReductionKind::max:
    case ReductionKind::weighted_mean: return request.element != ElementType::opaque;
    default: return false;
    }
}

/// True if the family's all_to_all reads the peers' buffers.
template <transport Transport, class Family>
consteval bool reads_peers_for_all_to_all() {
    if constexpr (std::same_as<Family, NativeSchedule>) return Transport::maps_peers;
    else return requires { requires schedule::ScheduleIn<Family, Collective::all_to_all>::mapped; };
}

/// The plan of the schedule for this collective. The choice depends only on values that are equal
/// on all ranks.
template <Collective What, transport Transport, class Family>
[[gnu::cold]] const Plan& choose_plan(Group<Transport>& group, const Family& family, const OperationRequest& request,
                                      int root) {
    const schedule::Shape shape = group.shape(root);
    if constexpr (What == Collective::all_to_all) {
        // The peer's counts, which are not known here, determine a block's offset in the peer's
        // buffer.
        if constexpr (reads_peers_for_all_to_all<Transport, Family>())
            if (!request.input_counts.empty() || !request.output_counts.empty())
                return group.plan(schedule_of<What>(DirectSchedule{}, shape));
    }
    if constexpr (!std::same_as<Family, NativeSchedule>) {
        if constexpr (std::same_as<Family, StagedSchedule>) {
            if (const std::size_t bytes = posted_bytes(What, request); bytes > SmallMessages::most_bytes)
                refuse_input({name_of(What), ": StagedSchedule is for at most ", SmallMessages::most_bytes,
                              " bytes beside a flag, found ", bytes});
        }
        static_assert(Transport::maps_peers ||
                          !(std::same_as<Family, MappedSchedule> || std::same_as<Family, StagedSchedule>),
                      "found: MappedSchedule or StagedSchedule on a transport that does not map peers' memory; "
                      "required: a transport with maps_peers, since its steps read and write the peers' buffers");
        return group.plan(schedule_of<What>(family, shape));
    } else if constexpr (Transport::maps_peers) {
        if constexpr (What != Collective::barrier) {
            if (posted_bytes(What, request) <= SmallMessages::best_bytes(shape.world))
                return group.plan(schedule_of<What>(StagedSchedule{}, shape));
        }
        return group.plan(schedule_of<What>(MappedSchedule{}, shape));
    } else if constexpr (enqueues<Transport>) {
        if (goes_by_stream<What>(group.endpoint(), request)) return group.plan(schedule::TransportsOwn<What>{{shape}});
        return plan_on_equals<What>(group, family, request, root);
    } else if constexpr (knows_hosts<Transport> && What != Collective::all_to_all) {
        return plan_on_hosts<What>(group, family, request, root);
    } else {
        return plan_on_equals<What>(group, family, request, root);
    }
}

/// A `PlanFunction`.
template <Collective What, transport Transport, class Family>
void plan_of_family(GroupCore& core, const Call& call, OperationRequest& request) {
    auto& group = static_cast<Group<Transport>&>(core);
    const auto find = [&](const Family& family) {
        if constexpr (requires { family.chunk_bytes; }) request.chunk_bytes = family.chunk_bytes;
        request.plan = &choose_plan<What>(group, family, request, call.root);
    };
    if constexpr (std::same_as<Family, NativeSchedule>) {
        if constexpr (chunk_bytes<Transport> != 0) {
            const auto parts = static_cast<std::size_t>(What == Collective::all_reduce ? std::max(2, group.size()) : 2);
            request.chunk_bytes = chunk_bytes<Transport> / 2 * parts; // messages have one size in worlds of any size
        }
        if (call.by.family == nullptr) return find(Family{});
    }
    find(*static_cast<const Family*>(call.by.family));
}

/// Leaves the native schedules of these collectives with the group and those split from it, for
/// calls by code that does not know its transport.
template <Collective... What, transport Transport>
void keep_native(Group<Transport>& group) {
    ((group.context().native[static_cast<std::size_t>(What)] = &plan_of_family<What, Transport, NativeSchedule>), ...);
}

/// True for the native schedule that a call determines.
constexpr bool is_default(const NativeSchedule& family) { return family == NativeSchedule{}; }
template <class Family>
constexpr bool is_default(const Family&) {
    return false;
}

} // namespace detail
UNISONO_NAMESPACE_END
