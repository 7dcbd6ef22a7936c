#pragma once

/// \file
/// A reducer that is chosen at run time: by a command line, say. The trainer is compiled once for all of them, which a std::visit around
/// the trainer would do for each. Not part of the umbrella.

#include "unisono/core/text.hpp"
#include "unisono/reducer/automatic.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The run of whichever it is.
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
    /// Asked only where `has_sum_slices()`.
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

/// One of the reducers that give no owners, with the sums, bits and messages of the one that it holds:
///
///     un::Trainer trainer{world, model, un::AnyReducer::named("ring"), un::Sgd{}};
///     un::AnyReducer chosen{un::RingReducer{.chunk_bytes = 65536}};
///
/// Equal on all ranks, which the trainer checks. What it costs: a jump a bucket. What it lacks: sums on a grid (`Reproducible`) go straight from
/// memory that ranks share only where the reducer is known to be native when the program is compiled; by this they go as messages.
struct AnyReducer {
    std::variant<NativeReducer, RingReducer, TreeReducer, HalvingDoublingReducer, AutomaticReducer> held = {};

    static constexpr std::string_view name = "any reducer";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const AnyReducer&, const AnyReducer&) = default;

    /// The one with that `name`, as it is at first. Errors: bad_input for another word, with those that there are.
    [[nodiscard]] static AnyReducer named(std::string_view word) {
        AnyReducer found;
        if (!found.hold<0>(word))
            refuse_input({"AnyReducer: there is no reducer ", detail::quoted(word), "; expected ", words()});
        return found;
    }
    /// "native, ring, tree, halving-doubling, automatic"
    [[nodiscard]] static std::string words() { return words_from<0>(); }

    /// visitor(reducer): of the one that it holds. Its name and parameters are what the trainer compares and shows.
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

    template <std::size_t I>
    bool hold(std::string_view word) {
        using Reducer = std::variant_alternative_t<I, decltype(held)>;
        if (word == Reducer::name) {
            held = Reducer{};
            return true;
        }
        if constexpr (I + 1 < std::variant_size_v<decltype(held)>) return hold<I + 1>(word);
        else return false;
    }
    template <std::size_t I>
    static std::string words_from() {
        const std::string_view first = std::variant_alternative_t<I, decltype(held)>::name;
        if constexpr (I + 1 < std::variant_size_v<decltype(held)>) return concat({first, ", ", words_from<I + 1>()});
        else return std::string(first);
    }
};

UNISONO_NAMESPACE_END
