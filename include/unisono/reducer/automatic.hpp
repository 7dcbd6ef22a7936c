#pragma once

/// \file
/// Sums each bucket by the schedule that a cost model says is cheapest at its size.

#include "unisono/core/text.hpp"
#include "unisono/reducer/cost_model.hpp"
#include "unisono/reducer/halving_doubling.hpp"
#include "unisono/reducer/native.hpp"
#include "unisono/reducer/ring.hpp"
#include "unisono/reducer/tree.hpp"

UNISONO_NAMESPACE_BEGIN

/// All ranks choose by rank 0's costs, so that they choose alike. Sums to an owner, and what it publishes, go the native way.
///
///     auto costs = un::measure_reducers(world);         // once, collective; costs.save() to keep them
///     un::Trainer trainer{world, model, un::AutomaticReducer{.costs = costs}};
struct AutomaticReducer {
    ReducerCosts costs = {}; ///< not measured: assumed, see assumed_reducer_costs
    bool measure = false;    ///< measure when the training starts; takes some tens of milliseconds

    static constexpr std::string_view name = "automatic";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const AutomaticReducer&, const AutomaticReducer&) = default;

    class Run {
    public:
        explicit Run(const ReducerCosts& agreed) : costs_(agreed) {}

        [[nodiscard]] const ReducerCosts& costs() const { return costs_; }

        template <transport Transport, class T>
        Operation sum(Group<Transport>& group, std::span<T> values) const {
            switch (costs_.best(values.size_bytes())) {
            case ReducerChoice::ring: return start_all_reduce(group, values, Sum{}, RingSchedule{});
            case ReducerChoice::halving_doubling:
                return start_all_reduce(group, values, Sum{}, HalvingDoublingSchedule{});
            case ReducerChoice::tree: return start_all_reduce(group, values, Sum{}, TreeSchedule{});
            case ReducerChoice::native: break;
            }
            return native_.sum(group, values);
        }
        template <transport Transport, class T>
        Operation sum_to(Group<Transport>& group, std::span<T> values, int owner) const {
            return native_.sum_to(group, values, owner);
        }
        template <transport Transport, class T>
        Operation publish(Group<Transport>& group, std::span<T> values, int owner) const {
            return native_.publish(group, values, owner);
        }
        template <transport Transport, class T>
        Operation sum_slices(Group<Transport>& group, std::span<T> values, std::span<const std::size_t> counts) const {
            return native_.sum_slices(group, values, counts);
        }

    private:
        ReducerCosts costs_;
        detail::ScheduledReduction<NativeSchedule> native_ = {};
    };

    /// \throws error bad_input: costs measured on another number of ranks
    template <class World>
    [[nodiscard]] Run start(World& group) const {
        if (costs.measured() && costs.world != group.size())
            refuse_input(
                concat({"AutomaticReducer.costs were measured with ", costs.world, " ranks; expected ", group.size()}));
        ReducerCosts agreed = costs.measured() ? costs : assumed_reducer_costs(group.size());
        if (measure && group.size() > 1) agreed = measure_reducers(group);
        else detail::agree_on_costs(group, agreed);
        return Run(agreed);
    }
};

UNISONO_NAMESPACE_END
