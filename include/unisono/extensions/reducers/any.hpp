#pragma once

/// \file
/// A reducer that is chosen at run time, for instance by a command line. The trainer is compiled
/// once for all reducers; with a std::visit around the trainer it would be compiled once for each.
/// Not part of the umbrella.

#include "unisono/core/text.hpp"
#include "unisono/extensions/automatic/reducer.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The run of the chosen reducer.
template <class... Runs>
class AnyReduction {
public:
    template <class Run>
    explicit AnyReduction(Run run) : run_(std::move(run)) {}

    template <transport Transport, class Values>
    Operation sum(Group<Transport>& group, Values values) const {
        return std::visit([&](const auto& run) { return run.sum(group, values); }, run_);
    }
    template <transport Transport, class Values>
    Operation sum_to(Group<Transport>& group, Values values, int owner) const {
        return std::visit([&](const auto& run) { return run.sum_to(group, values, owner); }, run_);
    }
    template <transport Transport, class Values>
    Operation publish(Group<Transport>& group, Values values, int owner) const {
        return std::visit([&](const auto& run) { return run.publish(group, values, owner); }, run_);
    }
    /// Called only if `has_sum_slices()`.
    template <transport Transport, class Values>
    Operation sum_slices(Group<Transport>& group, Values values, std::span<const std::size_t> counts) const {
        return std::visit(
            [&]<class Run>(const Run& run) {
                if constexpr (requires { run.sum_slices(group, values, counts); })
                    return run.sum_slices(group, values, counts);
                else return Operation();
            },
            run_);
    }
    template <class World>
    [[nodiscard]] bool has_sum_slices() const {
        return std::visit([]<class Run>(const Run&) { return sums_slices<Run, World>; }, run_);
    }

private:
    std::variant<Runs...> run_;
};

} // namespace detail

/// Holds one of the reducers that give no owners, with its sums, bits and messages:
///
///     un::Trainer trainer{world, model, un::AnyReducer::named("ring"), un::Sgd{}};
///     un::AnyReducer chosen{un::RingReducer{.chunk_bytes = 65536}};
///
/// Equal on all ranks, which the trainer checks. Cost: one indirect jump per bucket. Limit: sums on
/// a grid (`Reproducible`) read shared memory directly only if the reducer is known to be native at
/// compile time; with AnyReducer they use messages.
struct AnyReducer {
    std::variant<NativeReducer, RingReducer, TreeReducer, HalvingDoublingReducer, AutomaticReducer> held = {};

    static constexpr std::string_view name = "any reducer";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const AnyReducer&, const AnyReducer&) = default;

    /// The reducer with that `name`, with its default parameters. Errors: bad_input for another
    /// word; the message lists the names.
    [[nodiscard]] static AnyReducer named(std::string_view word) {
        AnyReducer found;
        if (!found.hold<0>(word))
            refuse_input({"AnyReducer: there is no reducer ", detail::quoted(word), "; expected ", words()});
        return found;
    }
    /// "native, ring, tree, halving-doubling, automatic"
    [[nodiscard]] static std::string words() { return words_from<0>(); }

    /// The chosen reducer for a later membership of an elastic world.
    [[nodiscard]] AnyReducer within(int ranks) const {
        const auto other = [&](const auto& reducer) {
            if constexpr (requires { reducer.within(ranks); }) return AnyReducer{reducer.within(ranks)};
            else return AnyReducer{reducer};
        };
        return std::visit(other, held);
    }

    /// Calls visitor(reducer) with the chosen reducer. The trainer compares and prints its name and
    /// parameters.
    template <class Visitor>
    decltype(auto) visit_held(Visitor visitor) const {
        return std::visit(visitor, held);
    }

    template <class World>
    [[nodiscard]] auto start(World& group) const {
        using Run = decltype(run_of(group, held));
        return visit_held([&](const auto& reducer) { return Run(reducer.start(group)); });
    }

private:
    template <class World, class... Reducers>
    static auto run_of(World& group, const std::variant<Reducers...>&)
        -> detail::AnyReduction<decltype(std::declval<const Reducers&>().start(group))...>;

    template <std::size_t Index>
    bool hold(std::string_view word) {
        using Reducer = std::variant_alternative_t<Index, decltype(held)>;
        if (word == Reducer::name) {
            held = Reducer{};
            return true;
        }
        if constexpr (Index + 1 < std::variant_size_v<decltype(held)>) return hold<Index + 1>(word);
        else return false;
    }
    template <std::size_t Index>
    static std::string words_from() {
        const std::string_view first = std::variant_alternative_t<Index, decltype(held)>::name;
        if constexpr (Index + 1 < std::variant_size_v<decltype(held)>)
            return concat({first, ", ", words_from<Index + 1>()});
        else return std::string(first);
    }
};

UNISONO_NAMESPACE_END
