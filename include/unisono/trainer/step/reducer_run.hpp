#pragma once

/// \file
/// The run of a reducer (reducer/reducer.hpp) without its type and the group's.

#include "unisono/collective/shell.hpp"
#include "unisono/core/function_ref.hpp"
#include "unisono/core/text.hpp"
#include "unisono/reducer/reducer.hpp"
#include "unisono/trainer/step/owned_slices.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

[[noreturn]] void refuse_elements(const CallBuffer& values);
/// The reducer has no function for this.
[[noreturn]] void refuse_verb(Collective what);

/// One collective of a reducer: the sum of one slice of a bucket, or of the slices of all ranks at
/// once, or the publication of a slice.
struct ReducerCall {
    Collective what; ///< all_reduce, reduce to the owner, reduce_scatter, or broadcast by the owner
    CallBuffer values;
    int owner = 0;
    Counts counts = {}; ///< of the ranks' slices; only for reduce_scatter
};

/// A reducer's run is the object that its `start(group)` returns. The trainer keeps it for the
/// whole training, and starts sums of gradients by it (reducer/reducer.hpp). This class starts them
/// on untyped elements, so that an update knows neither the reducer's type nor the group's. A
/// reducer of schedules is only asked, in the first update, by which call elements are summed;
/// later updates start what that prepared.
class ReducerRun {
public:
    explicit ReducerRun(GroupCore& world) : core_(&world) {}
    ReducerRun(const ReducerRun&) = delete;
    ReducerRun& operator=(const ReducerRun&) = delete;
    virtual ~ReducerRun() = default;

    /// The call by which a schedule does what is wanted. Its `plan` is null if the reducer does it
    /// otherwise.
    [[nodiscard]] virtual Call call(const ReducerCall& wanted) const = 0;
    /// True if one operation sums the slices of all ranks.
    [[nodiscard]] virtual bool sums_slices_at_once() const = 0;
    /// Starts what is wanted, if no schedule does it.
    UNISONO_OUTSIDE virtual Operation start(const ReducerCall& wanted);
    /// Where this rank gets the result: its own slice, or all values.
    [[nodiscard]] CallBuffer result(const ReducerCall& wanted) const;

    /// \throws error bad_input: another group than the trainer's
    void check_group(const GroupCore& group) const;

    [[nodiscard]] GroupCore& core() const { return *core_; }

private:
    GroupCore* core_;
};

/// Calls visit(sum, number of the slice among all) for the sums of bucket b. `values` are the
/// bucket's elements; the first one has index `first` in the flat order.
void each_slice_sum(const ReducerRun& reducer, const OwnedSlices& slices, std::size_t b, std::size_t first,
                    const CallBuffer& values, FunctionRef<void(const ReducerCall&, std::size_t)> visit);

/// Starts the sum of bucket b of `slices` (or of a unit): each slice to its owner. `values` are its
/// elements; the first one has index `first` in the flat order.
void start_slice_sums(ReducerRun& reducer, const OwnedSlices& slices, std::size_t b, std::size_t first,
                      const CallBuffer& values, std::vector<Operation>& operations);

/// `E`: the types of elements that travel. `Owned`: slices may have owners. `Devices`: elements may
/// be on a device. `SumsThere`: sums are, too; else only what owners publish.
template <bool Owned, bool Devices, bool SumsThere, class... E>
struct SummedTypes {
    static constexpr bool owned = Owned;
    template <class Values>
    static constexpr bool sums = SumsThere || !views_device<Values>;

    /// Calls visit(elements), a std::span or DeviceSpan. \throws error bad_input: elements of no
    /// such type
    template <class Visit>
    static void visit(const CallBuffer& values, Visit visit) {
        if (!(visit_as<E>(values, visit) || ...)) refuse_elements(values);
    }

private:
    template <class One, class Visit>
    static bool visit_as(const CallBuffer& values, Visit& visit) {
        if (values.type != element_type_of<One> || values.element_bytes != sizeof(One)) return false;
        auto* const first = reinterpret_cast<One*>(values.data);
        if constexpr (Devices) {
            if (values.space == MemorySpace::device) return visit(DeviceSpan<One>(first, values.count)), true;
        }
        return visit(std::span<One>(first, values.count)), true;
    }
};

/// The types that travel: the gradient's and those of its sums, or what a compression may sum.
template <bool Owned, bool Devices, bool SumsThere, class T, class Sum, class Compression>
auto summed_types() {
    if constexpr (!Compression::compresses && std::same_as<T, Sum>) return SummedTypes<Owned, Devices, SumsThere, T>();
    else if constexpr (!Compression::compresses) return SummedTypes<Owned, Devices, SumsThere, T, Sum>();
    else if constexpr (requires { typename Compression::Wire; })
        return SummedTypes<Owned, Devices, SumsThere, T, typename Compression::Wire>();
    else return SummedTypes<Owned, Devices, SumsThere, float, double, bfloat16, float16, std::int32_t, std::int64_t>();
}

/// Of a reducer of schedules.
template <class Types, class World, class ToAll, class ToOwner>
class ScheduledRun final : public ReducerRun {
public:
    template <class Reducer>
    ScheduledRun(World& world, const Reducer& reducer)
        : ReducerRun(world), world_(&world), run_(reducer.start(world)) {}

    [[nodiscard]] Call call(const ReducerCall& wanted) const override {
        const Collective what = wanted.what;
        Call made;
        Types::visit(wanted.values, [&]<class Values>(Values) {
            constexpr bool sums = Types::template sums<Values>;
            if constexpr (sums) {
                if (what == Collective::all_reduce)
                    made = call_on<Collective::all_reduce, Values>(*world_, run_.to_all, Sum{});
            }
            if constexpr (sums && Types::owned) {
                if (what == Collective::reduce)
                    made = call_on<Collective::reduce, Values>(*world_, run_.to_owner, Sum{}, wanted.owner);
            }
            if constexpr (sums && Types::owned && scatters_sums<ToAll>) {
                if (what == Collective::reduce_scatter)
                    made = call_on<Collective::reduce_scatter, Values>(*world_, run_.to_all, Sum{}, 0, wanted.counts,
                                                                       wanted.counts);
            }
            if constexpr (Types::owned) {
                if (what == Collective::broadcast)
                    made = call_on<Collective::broadcast, Values>(*world_, run_.to_owner, NoOperation{}, wanted.owner);
            }
        });
        if (made.by.plan == nullptr) refuse_verb(what);
        return made;
    }
    [[nodiscard]] bool sums_slices_at_once() const override { return Types::owned && scatters_sums<ToAll>; }

private:
    World* world_;
    ScheduledReduction<ToAll, ToOwner> run_;
};

/// Of any other reducer.
template <class Types, class World, class Run>
class ReducerRunOf final : public ReducerRun {
public:
    template <class Reducer>
    ReducerRunOf(World& world, const Reducer& reducer)
        : ReducerRun(world), world_(&world), run_(reducer.start(world)) {}

    [[nodiscard]] Call call(const ReducerCall&) const override { return {}; }
    [[nodiscard]] bool sums_slices_at_once() const override {
        return Types::owned && detail::sums_slices_at_once<World>(run_);
    }

    Operation start(const ReducerCall& wanted) override {
        const Collective what = wanted.what;
        ReducerCall given = wanted; // a reducer may take its members by reference
        Operation started;
        Types::visit(wanted.values, [&]<class Values>(Values elements) {
            constexpr bool sums = Types::template sums<Values>;
            if constexpr (sums) {
                if constexpr (requires { run_.sum(*world_, elements); })
                    if (what == Collective::all_reduce) return set(started, run_.sum(*world_, elements));
                if constexpr (Types::owned && requires { run_.sum_to(*world_, elements, given.owner); })
                    if (what == Collective::reduce) return set(started, run_.sum_to(*world_, elements, given.owner));
                if constexpr (Types::owned && requires { run_.sum_slices(*world_, elements, given.counts); })
                    if (what == Collective::reduce_scatter)
                        return set(started, run_.sum_slices(*world_, elements, given.counts));
            }
            if constexpr (Types::owned && requires { run_.publish(*world_, elements, given.owner); })
                if (what == Collective::broadcast) return set(started, run_.publish(*world_, elements, given.owner));
            // Elements that cannot be summed at all are refused for what every reducer has.
            refuse_verb(sums || what == Collective::broadcast ? what : Collective::all_reduce);
        });
        return started;
    }

private:
    static void set(Operation& started, Operation&& made) { started = std::move(made); }

    World* world_;
    Run run_;
};

template <class Types, class World, class Run>
struct ReducerRunFor {
    using type = ReducerRunOf<Types, World, Run>;
};
template <class Types, class World, class ToAll, class ToOwner>
struct ReducerRunFor<Types, World, ScheduledReduction<ToAll, ToOwner>> {
    using type = ScheduledRun<Types, World, ToAll, ToOwner>;
};

template <class Types, class World, class Reducer>
[[nodiscard]] ReducerRun* make_reducer_run(World& world, const Reducer& reducer) {
    return new typename ReducerRunFor<Types, World, decltype(reducer.start(world))>::type(world, reducer);
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[noreturn]] UNISONO_DEFINITION void refuse_elements(const CallBuffer& values) {
    refuse_input({"a compression sums elements of type ", name_of(values.type), " and ", values.element_bytes,
                  " bytes; expected its `Wire`, or floats or signed integers of the library"});
}

[[noreturn]] UNISONO_DEFINITION void refuse_verb(Collective what) {
    refuse_input({"the reducer's run has no ",
                  what == Collective::all_reduce  ? "`sum`"
                  : what == Collective::reduce    ? "`sum_to`"
                  : what == Collective::broadcast ? "`publish`"
                                                  : "`sum_slices`",
                  " for these elements; expected what reducer/reducer.hpp says for these policies"});
}

UNISONO_DEFINITION void ReducerRun::check_group(const GroupCore& group) const {
    if (&group == core_) return;
    refuse_input("a compression sums over another group than the trainer's; expected the group that it was started "
                 "with, or a collective of its own on the other");
}

UNISONO_DEFINITION CallBuffer ReducerRun::result(const ReducerCall& wanted) const {
    CallBuffer mine = wanted.values;
    if (wanted.counts.empty()) return mine;
    const auto me = static_cast<std::size_t>(core_->rank());
    for (std::size_t rank = 0; rank < me; ++rank) mine.data += wanted.counts[rank] * mine.element_bytes;
    mine.count = wanted.counts[me];
    return mine;
}

UNISONO_DEFINITION Operation ReducerRun::start(const ReducerCall& wanted) {
    return core_->start(call(wanted), wanted.values, result(wanted));
}

[[gnu::noinline]] UNISONO_DEFINITION void each_slice_sum(const ReducerRun& reducer, const OwnedSlices& slices,
                                                         std::size_t b, std::size_t first, const CallBuffer& values,
                                                         FunctionRef<void(const ReducerCall&, std::size_t)> visit) {
    std::size_t number = slices.first_of_bucket(b);
    if (slices.cut() && reducer.sums_slices_at_once())
        if (const Counts counts = slices.slice_counts(b); !counts.empty())
            return visit({Collective::reduce_scatter, values, 0, counts}, number);
    for (const OwnedSlice& owned : slices.of_bucket(b)) {
        CallBuffer slice = values;
        slice.data += (owned.slice.first - first) * values.element_bytes;
        slice.count = owned.slice.count;
        if (owned.owner == every_rank) visit({Collective::all_reduce, slice}, number++);
        else visit({Collective::reduce, slice, owned.owner}, number++);
    }
}

UNISONO_DEFINITION void start_slice_sums(ReducerRun& reducer, const OwnedSlices& slices, std::size_t b,
                                         std::size_t first, const CallBuffer& values,
                                         std::vector<Operation>& operations) {
    each_slice_sum(reducer, slices, b, first, values,
                   [&](const ReducerCall& sum, std::size_t) { keep(operations, reducer.start(sum)); });
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
