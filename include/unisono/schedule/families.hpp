#pragma once

/// \file
/// Families of schedules as plain values: `RingSchedule{.chunk_bytes = 1 << 20}`. A family has a
/// member for each collective that it offers, which returns the schedule of one rank. For a
/// collective without a member, the caller uses another family. `chunk_bytes` asks the executor to
/// cut data into lanes of about that size (0: one lane).

#include "unisono/core/value.hpp"
#include "unisono/schedule/barrier.hpp"
#include "unisono/schedule/direct.hpp"
#include "unisono/schedule/halving_doubling.hpp"
#include "unisono/schedule/mapped.hpp"
#include "unisono/schedule/ring.hpp"
#include "unisono/schedule/staged.hpp"
#include "unisono/schedule/tree.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN

namespace schedule {

/// The schedule of one rank for `What` in a family. Ill-formed if the family does not offer it.
template <Collective What, class Family>
constexpr auto schedule_of(const Family& family, const Shape& shape)
    requires(What == Collective::all_reduce && requires { family.all_reduce(shape); }) ||
            (What == Collective::reduce_scatter && requires { family.reduce_scatter(shape); }) ||
            (What == Collective::all_gather && requires { family.all_gather(shape); }) ||
            (What == Collective::broadcast && requires { family.broadcast(shape); }) ||
            (What == Collective::reduce && requires { family.reduce(shape); }) ||
            (What == Collective::gather && requires { family.gather(shape); }) ||
            (What == Collective::scatter && requires { family.scatter(shape); }) ||
            (What == Collective::all_to_all && requires { family.all_to_all(shape); }) ||
            (What == Collective::barrier && requires { family.barrier(shape); })
{
    if constexpr (What == Collective::all_reduce) return family.all_reduce(shape);
    else if constexpr (What == Collective::reduce_scatter) return family.reduce_scatter(shape);
    else if constexpr (What == Collective::all_gather) return family.all_gather(shape);
    else if constexpr (What == Collective::broadcast) return family.broadcast(shape);
    else if constexpr (What == Collective::reduce) return family.reduce(shape);
    else if constexpr (What == Collective::gather) return family.gather(shape);
    else if constexpr (What == Collective::scatter) return family.scatter(shape);
    else if constexpr (What == Collective::all_to_all) return family.all_to_all(shape);
    else return family.barrier(shape);
}

/// True if a family has a schedule for a collective, and the schedule satisfies the concept.
template <class Family, Collective What>
concept offers = requires(const Family& family, const Shape& shape) {
    { schedule_of<What>(family, shape) } -> collective_schedule;
    requires decltype(schedule_of<What>(family, shape))::collective == What;
};

} // namespace schedule

/// A plain value with a name that offers at least one collective.
template <class F>
concept schedule_family =
    detail::copyable_value<F> && detail::comparable_value<F> &&
    requires {
        { F::name } -> detail::converts_to<std::string_view>;
    } &&
    (schedule::offers<F, Collective::all_reduce> || schedule::offers<F, Collective::reduce_scatter> ||
     schedule::offers<F, Collective::all_gather> || schedule::offers<F, Collective::broadcast> ||
     schedule::offers<F, Collective::reduce> || schedule::offers<F, Collective::gather> ||
     schedule::offers<F, Collective::scatter> || schedule::offers<F, Collective::all_to_all> ||
     schedule::offers<F, Collective::barrier>);

namespace schedule {

/// The lane size that a family asks for, in bytes; 0 if it does not cut data.
template <schedule_family Family>
constexpr std::size_t chunk_bytes_of(const Family& family) {
    if constexpr (requires { family.chunk_bytes; }) return family.chunk_bytes;
    else return 0;
}

} // namespace schedule

/// Neighbours only, fewest bytes: for large data over messages. Chunks pipeline broadcast and
/// reduce.
struct RingSchedule {
    static constexpr std::string_view name = "ring";
    std::size_t chunk_bytes = 0; ///< of a lane; 0: data travel whole

    [[nodiscard]] constexpr schedule::RingAllReduce all_reduce(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::RingReduceScatter reduce_scatter(const schedule::Shape& shape) const {
        return {shape};
    }
    [[nodiscard]] constexpr schedule::RingAllGather all_gather(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::RingBroadcast broadcast(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::RingReduce reduce(const schedule::Shape& shape) const { return {shape}; }
    friend bool operator==(const RingSchedule&, const RingSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<RingSchedule>);

/// log2 p rounds of whole vectors: for small data, and every collective with a root. Chunks
/// pipeline all of its collectives but gather and scatter.
struct TreeSchedule {
    static constexpr std::string_view name = "tree";
    std::size_t chunk_bytes = 0; ///< of a lane; 0: data travel whole

    [[nodiscard]] constexpr schedule::TreeAllReduce all_reduce(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::TreeBroadcast broadcast(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::TreeReduce reduce(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::TreeGather gather(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::TreeScatter scatter(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::DisseminationBarrier barrier(const schedule::Shape& shape) const {
        return {shape};
    }
    friend bool operator==(const TreeSchedule&, const TreeSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<TreeSchedule>);

/// log2 p rounds and the fewest bytes, for any number of ranks.
struct HalvingDoublingSchedule {
    static constexpr std::string_view name = "halving_doubling";
    std::size_t chunk_bytes = 0; ///< of a lane of all_reduce, 0: whole; the others move several blocks per message

    [[nodiscard]] constexpr schedule::HalvingDoublingAllReduce all_reduce(const schedule::Shape& shape) const {
        return {shape};
    }
    [[nodiscard]] constexpr schedule::HalvingReduceScatter reduce_scatter(const schedule::Shape& shape) const {
        return {shape};
    }
    [[nodiscard]] constexpr schedule::DoublingAllGather all_gather(const schedule::Shape& shape) const {
        return {shape};
    }
    friend bool operator==(const HalvingDoublingSchedule&, const HalvingDoublingSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<HalvingDoublingSchedule>);

/// Each owner collects its block from all ranks and combines in rank order; over messages.
struct DirectSchedule {
    static constexpr std::string_view name = "direct";
    std::size_t chunk_bytes = 0; ///< of a lane; 0: data travel whole

    [[nodiscard]] constexpr schedule::DirectAllReduce all_reduce(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::DirectReduceScatter reduce_scatter(const schedule::Shape& shape) const {
        return {shape};
    }
    [[nodiscard]] constexpr schedule::DirectAllGather all_gather(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::DirectBroadcast broadcast(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::DirectReduce reduce(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::DirectGather gather(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::DirectScatter scatter(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::DirectAllToAll all_to_all(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::DisseminationBarrier barrier(const schedule::Shape& shape) const {
        return {shape};
    }
    friend bool operator==(const DirectSchedule&, const DirectSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<DirectSchedule>);

/// Each rank sends its whole vector to all ranks, in one round: for very small data over messages.
struct ExchangeSchedule {
    static constexpr std::string_view name = "exchange";

    [[nodiscard]] constexpr schedule::ExchangeAllReduce all_reduce(const schedule::Shape& shape) const {
        return {shape};
    }
    friend bool operator==(const ExchangeSchedule&, const ExchangeSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<ExchangeSchedule>);

/// Direct exchange over mapped memory, without messages. Not cut into lanes. An all_to_all with
/// counts uses DirectSchedule, since no rank knows the offsets of its blocks in the peers' buffers.
struct MappedSchedule {
    static constexpr std::string_view name = "mapped";

    [[nodiscard]] constexpr schedule::MappedAllReduce all_reduce(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::MappedReduceScatter reduce_scatter(const schedule::Shape& shape) const {
        return {shape};
    }
    [[nodiscard]] constexpr schedule::MappedAllGather all_gather(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::MappedBroadcast broadcast(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::MappedReduce reduce(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::MappedGather gather(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::MappedScatter scatter(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::MappedAllToAll all_to_all(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::MappedBarrier barrier(const schedule::Shape& shape) const { return {shape}; }
    friend bool operator==(const MappedSchedule&, const MappedSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<MappedSchedule>);

/// Each rank posts a copy of its data beside its flag: for small data over mapped memory. An
/// all_to_all with counts uses DirectSchedule, as for MappedSchedule.
struct StagedSchedule {
    static constexpr std::string_view name = "staged";

    [[nodiscard]] constexpr schedule::StagedAllReduce all_reduce(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::StagedReduceScatter reduce_scatter(const schedule::Shape& shape) const {
        return {shape};
    }
    [[nodiscard]] constexpr schedule::StagedAllGather all_gather(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::StagedBroadcast broadcast(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::StagedReduce reduce(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::StagedGather gather(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::StagedScatter scatter(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::StagedAllToAll all_to_all(const schedule::Shape& shape) const { return {shape}; }
    [[nodiscard]] constexpr schedule::MappedBarrier barrier(const schedule::Shape& shape) const { return {shape}; }
    friend bool operator==(const StagedSchedule&, const StagedSchedule&) = default;
};
UNISONO_CERTIFY(schedule_family<StagedSchedule>);

UNISONO_NAMESPACE_END
