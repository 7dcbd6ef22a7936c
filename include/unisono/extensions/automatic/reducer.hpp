#pragma once

/// \file
/// Sums each bucket with the schedule that a cost model predicts to be cheapest at its size.

#include "unisono/core/text.hpp"
#include "unisono/extensions/automatic/cost_model.hpp"
#include "unisono/reducer/scheduled.hpp"

UNISONO_NAMESPACE_BEGIN

/// All ranks use rank 0's costs, so that they make the same choice. Sums to an owner, and the
/// parameters that the owner publishes, use the native schedules.
///
///     auto costs = un::measure_reducers(world); // once, collective; costs.save() to keep them
///     un::Trainer trainer{world, model, un::AutomaticReducer{.costs = costs}};
///
/// For a model on a device, measure with `measure_reducers_on_device`.
struct AutomaticReducer {
    ReducerCosts costs = {}; ///< not measured: assumed, see assumed_reducer_costs
    bool measure = false;    ///< measure when the training starts, on the host, in some tens of milliseconds
    /// The reducer for a later membership of an elastic world. Costs that were measured with
    /// another number of ranks do not hold: they are assumed, until there are as many ranks again.
    [[nodiscard]] AutomaticReducer within(int ranks) const {
        AutomaticReducer other = *this;
        if (costs.world != ranks) other.costs = {};
        return other;
    }

    static constexpr std::string_view name = "automatic";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const AutomaticReducer&, const AutomaticReducer&) = default;

    class Run {
    public:
        explicit Run(const ReducerCosts& agreed, bool of_host = false) : costs_(agreed), of_host_(of_host) {}

        [[nodiscard]] const ReducerCosts& costs() const { return costs_; }

        // `Values`: a std::span, or a DeviceSpan.
        template <transport Transport, class Values>
        Operation sum(Group<Transport>& group, Values values) const {
            if constexpr (on_device<Values>) {
                if (of_host_)
                    refuse_input("AutomaticReducer.measure is set, for a model on a device; expected the costs that "
                                 "measure_reducers_on_device gives. Why: AutomaticReducer measures memory of the host");
            }
            switch (costs_.best(values.size_bytes())) {
            case ReducerChoice::ring: return start_all_reduce(group, values, Sum{}, RingSchedule{});
            case ReducerChoice::halving_doubling:
                return start_all_reduce(group, values, Sum{}, HalvingDoublingSchedule{});
            case ReducerChoice::tree: return start_all_reduce(group, values, Sum{}, TreeSchedule{});
            case ReducerChoice::native: break;
            }
            return native_.sum(group, values);
        }
        template <transport Transport, class Values>
        Operation sum_to(Group<Transport>& group, Values values, int owner) const {
            return native_.sum_to(group, values, owner);
        }
        template <transport Transport, class Values>
        Operation publish(Group<Transport>& group, Values values, int owner) const {
            return native_.publish(group, values, owner);
        }
        template <transport Transport, class Values>
        Operation sum_slices(Group<Transport>& group, Values values, std::span<const std::size_t> counts) const {
            return native_.sum_slices(group, values, counts);
        }

    private:
        template <class Values>
        static constexpr bool on_device = std::same_as<Values, DeviceSpan<typename Values::element_type>>;

        ReducerCosts costs_;
        bool of_host_; ///< measured here
        ScheduledReduction<NativeSchedule> native_ = {};
    };

    /// \throws error bad_input: costs measured with another number of ranks, or without times
    template <class World>
    [[nodiscard]] Run start(World& group) const {
        if (costs.measured()) costs.check();
        if (costs.measured() && costs.world != group.size())
            refuse_input(
                concat({"AutomaticReducer.costs were measured with ", costs.world, " ranks; expected ", group.size()}));
        ReducerCosts agreed = costs.measured() ? costs : assumed_reducer_costs(group.size());
        const bool measures = measure && group.size() > 1;
        if (measures) agreed = measure_reducers(group);
        else detail::agree_on_costs(group, agreed);
        return Run(agreed, measures);
    }
};

UNISONO_NAMESPACE_END
