#pragma once

/// \file
/// Families of schedules as plain values: `RingSchedule{.chunk_bytes = 1 << 20}`. A family lists
/// its schedules, at most one for each collective. For a collective that is not in the list, the
/// caller uses another family. `chunk_bytes` asks the executor to cut data into lanes of about that
/// size (0: one lane).
///
///     struct MySchedule {
///         static constexpr std::string_view name = "mine";
///         using schedules = un::schedule::List<MyAllReduce, un::schedule::TreeBroadcast>;
///         friend bool operator==(const MySchedule&, const MySchedule&) = default;
///     };
///     un::all_reduce(world, gradient, un::Sum{}, MySchedule{});
///
/// A schedule is made of a shape alone, as `MyAllReduce{shape}`. A family whose schedules need more
/// makes them itself: `template <class Schedule> Schedule make(const Shape&) const`
/// (HierarchicalSchedule has an example).

#include "unisono/core/value.hpp"
#include "unisono/schedule/barrier.hpp"
#include "unisono/schedule/direct.hpp"
#include "unisono/schedule/halving_doubling.hpp"
#include "unisono/schedule/mapped.hpp"
#include "unisono/schedule/ring.hpp"
#include "unisono/schedule/tree.hpp"

#include <concepts>
#include <cstddef>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// The schedules of a family, at most one for each collective.
template <class... Schedules>
struct List {};

namespace detail {

/// The schedule for a collective in a list; void if there is none.
template <Collective What, class Schedules>
struct Find : std::type_identity<void> {};
template <Collective What, class First, class... Rest>
struct Find<What, List<First, Rest...>>
    : std::conditional_t<First::collective == What, std::type_identity<First>, Find<What, List<Rest...>>> {};

/// The list of `Of<What>` for each collective that moves data, and a barrier.
template <template <Collective> class Of, class Barrier>
using OfAllData = List<Of<Collective::all_reduce>, Of<Collective::reduce_scatter>, Of<Collective::all_gather>,
                       Of<Collective::broadcast>, Of<Collective::reduce>, Of<Collective::gather>,
                       Of<Collective::scatter>, Of<Collective::all_to_all>, Barrier>;

/// True for a list of schedules, at most one for each collective.
template <class Schedules>
inline constexpr bool lists_schedules = false;
template <class... Schedules>
    requires(sizeof...(Schedules) != 0 && (collective_schedule<Schedules> && ...))
inline constexpr bool lists_schedules<List<Schedules...>> =
    (std::same_as<Schedules, typename Find<Schedules::collective, List<Schedules...>>::type> && ...);

/// True if the family makes its schedules itself, whether `make` can be called or not.
template <class Family, class Schedule>
concept makes = requires { &Family::template make<Schedule>; };

} // namespace detail

/// The type of a family's schedule for a collective; void if the family has none.
template <class Family, Collective What>
using ScheduleIn = typename detail::Find<What, typename Family::schedules>::type;

/// True if a family has a schedule for a collective, and the schedule satisfies the concept.
template <class Family, Collective What>
concept offers = !std::is_void_v<ScheduleIn<Family, What>> && collective_schedule<ScheduleIn<Family, What>>;

/// The schedule of one rank for `What` in a family that offers it.
template <Collective What, class Family>
constexpr auto schedule_of(const Family& family, const Shape& shape) {
    if constexpr (offers<Family, What>) {
        using Schedule = ScheduleIn<Family, What>;
        if constexpr (detail::makes<Family, Schedule>) {
            static_assert(
                requires {
                    { family.template make<Schedule>(shape) } -> std::same_as<Schedule>;
                }, "found: a schedule family with a member `make`; required: `template <class Schedule> "
                   "Schedule make(const Shape&) const`, which returns that type");
            return family.template make<Schedule>(shape);
        } else {
            return Schedule{shape};
        }
    } else {
        static_assert(offers<Family, What>,
                      "found: a schedule family without this collective; required: a schedule of this collective in "
                      "the family's list `schedules`; schedule/families.hpp shows what each family offers");
    }
}

/// Calls `visit(What)` for each collective that a family offers, with What as a
/// std::integral_constant.
template <class Family, class Visit>
constexpr void for_each_collective(Visit visit) {
    [&]<class... Schedules>(List<Schedules...>) {
        (visit(std::integral_constant<Collective, Schedules::collective>{}), ...);
    }(typename Family::schedules{});
}

} // namespace schedule

/// A plain value with a name and a list of schedules.
template <class F>
concept schedule_family = detail::copyable_value<F> && detail::comparable_value<F> && requires {
    { F::name } -> detail::converts_to<std::string_view>;
    requires schedule::detail::lists_schedules<typename F::schedules>;
};

/// The family of these schedules of your own. It has the name of the first. Each is made from its
/// shape alone; a family of schedules with parameters has `make` (schedule_of).
///
///     un::all_reduce(world, gradient, un::Sum{}, un::OwnSchedule<MyAllReduce>{});
template <class First, class... Others>
struct OwnSchedule {
    static constexpr std::string_view name = First::name;
    using schedules = schedule::List<First, Others...>;
    friend bool operator==(const OwnSchedule&, const OwnSchedule&) = default;
};

/// Neighbours only, fewest bytes: for large data over messages. Chunks pipeline broadcast and
/// reduce.
struct RingSchedule {
    static constexpr std::string_view name = "ring";
    std::size_t chunk_bytes = 0; ///< of a lane; 0: data travel whole

    using schedules = schedule::List<schedule::RingAllReduce, schedule::RingReduceScatter, schedule::RingAllGather,
                                     schedule::RingBroadcast, schedule::RingReduce>;
    friend bool operator==(const RingSchedule&, const RingSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<RingSchedule>);

/// log2 p rounds of whole vectors: for small data, and every collective with a root. Chunks
/// pipeline all of its collectives but gather and scatter.
struct TreeSchedule {
    static constexpr std::string_view name = "tree";
    std::size_t chunk_bytes = 0; ///< of a lane; 0: data travel whole

    using schedules = schedule::List<schedule::TreeAllReduce, schedule::TreeBroadcast, schedule::TreeReduce,
                                     schedule::TreeGather, schedule::TreeScatter, schedule::DisseminationBarrier>;
    friend bool operator==(const TreeSchedule&, const TreeSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<TreeSchedule>);

/// log2 p rounds and the fewest bytes, for any number of ranks.
struct HalvingDoublingSchedule {
    static constexpr std::string_view name = "halving_doubling";
    std::size_t chunk_bytes = 0; ///< of a lane of all_reduce, 0: whole; the others move several blocks per message

    using schedules =
        schedule::List<schedule::HalvingDoublingAllReduce, schedule::HalvingReduceScatter, schedule::DoublingAllGather>;
    friend bool operator==(const HalvingDoublingSchedule&, const HalvingDoublingSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<HalvingDoublingSchedule>);

/// Each owner collects its block from all ranks and combines in rank order; over messages.
struct DirectSchedule {
    static constexpr std::string_view name = "direct";
    std::size_t chunk_bytes = 0; ///< of a lane; 0: data travel whole

    using schedules =
        schedule::List<schedule::DirectAllReduce, schedule::DirectReduceScatter, schedule::DirectAllGather,
                       schedule::DirectBroadcast, schedule::DirectReduce, schedule::DirectGather,
                       schedule::DirectScatter, schedule::DirectAllToAll, schedule::DisseminationBarrier>;
    friend bool operator==(const DirectSchedule&, const DirectSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<DirectSchedule>);

/// Each rank sends its whole vector to all ranks, in one round: for very small data over messages.
struct ExchangeSchedule {
    static constexpr std::string_view name = "exchange";

    using schedules = schedule::List<schedule::ExchangeAllReduce>;
    friend bool operator==(const ExchangeSchedule&, const ExchangeSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<ExchangeSchedule>);

/// Direct exchange over mapped memory, without messages. Not cut into lanes. An all_to_all with
/// counts uses DirectSchedule, since no rank knows the offsets of its blocks in the peers' buffers.
struct MappedSchedule {
    static constexpr std::string_view name = "mapped";

    using schedules = schedule::detail::OfAllData<schedule::Mapped, schedule::MappedBarrier>;
    friend bool operator==(const MappedSchedule&, const MappedSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<MappedSchedule>);

/// Each rank posts a copy of its data beside its flag: for small data over mapped memory. An
/// all_to_all with counts uses DirectSchedule, as for MappedSchedule.
struct StagedSchedule {
    static constexpr std::string_view name = "staged";

    using schedules = schedule::detail::OfAllData<schedule::Staged, schedule::MappedBarrier>;
    friend bool operator==(const StagedSchedule&, const StagedSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<StagedSchedule>);

UNISONO_NAMESPACE_END
