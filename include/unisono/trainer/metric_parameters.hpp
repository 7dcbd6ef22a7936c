#pragma once

/// \file
/// Refuses functions that take a metric by value: what they add to the copy is lost, so that a mean
/// of nothing is printed as nan.

#include "unisono/model/model.hpp"

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The parameters of a function that is neither overloaded nor a template. `known` is false for any
/// other.
template <class F>
struct ParametersOf {
    static constexpr bool known = false;
};
template <class... A>
struct KnownParameters {
    static constexpr bool known = true;
    using List = std::tuple<A...>;
};
template <class R, class... A, bool Never>
struct ParametersOf<R (*)(A...) noexcept(Never)> : KnownParameters<A...> {};
template <class R, class C, class... A, bool Never>
struct ParametersOf<R (C::*)(A...) noexcept(Never)> : KnownParameters<A...> {};
template <class R, class C, class... A, bool Never>
struct ParametersOf<R (C::*)(A...) const noexcept(Never)> : KnownParameters<A...> {};
template <class R, class C, class... A, bool Never>
struct ParametersOf<R (C::*)(A...) & noexcept(Never)> : KnownParameters<A...> {};
template <class R, class C, class... A, bool Never>
struct ParametersOf<R (C::*)(A...) const & noexcept(Never)> : KnownParameters<A...> {};
template <class R, class C, class... A, bool Never>
struct ParametersOf<R (C::*)(A...) && noexcept(Never)> : KnownParameters<A...> {};
template <class R, class C, class... A, bool Never>
struct ParametersOf<R (C::*)(A...) const && noexcept(Never)> : KnownParameters<A...> {};

/// True if what is added through a parameter of type `A` is not added to the metric: it is a copy
/// of it, or a reference to const. Any other type that is made of the metric may refer to it, as
/// std::reference_wrapper does.
template <class A, class Metric>
inline constexpr bool copies_into = std::is_base_of_v<std::remove_cvref_t<A>, Metric> &&
                                    !(std::is_reference_v<A> && !std::is_const_v<std::remove_reference_t<A>>);

/// True if one of the last parameters copies its metric.
template <class Function, class... Metrics>
consteval bool copies_last() {
    using All = typename ParametersOf<Function>::List;
    if constexpr (std::tuple_size_v<All> < sizeof...(Metrics)) return false;
    else
        return []<std::size_t... k>(std::index_sequence<k...>) {
            return (copies_into<std::tuple_element_t<std::tuple_size_v<All> - sizeof...(Metrics) + k, All>, Metrics> ||
                    ...);
        }(std::index_sequence_for<Metrics...>());
}

/// A function that is overloaded or a template, by its name: `&F::operator()`. `has` is true if it
/// has a form with exactly these parameters.
template <class F>
struct NamedCall {
    template <class... A>
    using Result = std::invoke_result_t<F&, A...>;
    template <class R, class... A>
    static constexpr bool has = requires { static_cast<R (F::*)(A...)>(&F::operator()); } ||
                                requires { static_cast<R (F::*)(A...) const>(&F::operator()); } ||
                                requires { static_cast<R (F::*)(A...)&>(&F::operator()); } ||
                                requires { static_cast<R (F::*)(A...) const&>(&F::operator()); };
};
/// As above, for a model's `evaluate`.
template <class M>
struct NamedEvaluate {
    template <class... A>
    using Result = decltype(std::declval<M&>().evaluate(std::declval<A>()...));
    template <class R, class... A>
    static constexpr bool has = requires { static_cast<R (M::*)(A...)>(&M::evaluate); } ||
                                requires { static_cast<R (M::*)(A...) const>(&M::evaluate); } ||
                                requires { static_cast<R (M::*)(A...)&>(&M::evaluate); } ||
                                requires { static_cast<R (M::*)(A...) const&>(&M::evaluate); };
};

/// The type itself if it is written by value, or the reference.
template <class T>
using Written = std::remove_cv_t<std::remove_reference_t<T>>;
template <class T>
using Unchanged = const std::remove_reference_t<T>&;

/// True if `Named` can be called with a temporary as its k-th metric, and has a form that takes
/// this metric by value. If it takes `auto&&`, it has none.
// NOLINTBEGIN(misc-redundant-expression): only one of the comparisons with k holds
template <class Named, std::size_t k, class... Fixed, class... Metrics, std::size_t... i>
consteval bool copies_metric(std::tuple<Fixed...>*, std::tuple<Metrics...>*, std::index_sequence<i...>) {
    if constexpr (requires {
                      typename Named::template Result<Fixed..., std::conditional_t<i == k, Metrics, Metrics&>...>;
                  }) {
        using R = typename Named::template Result<Fixed..., std::conditional_t<i == k, Metrics, Metrics&>...>;
        return Named::template has<R, Fixed..., std::conditional_t<i == k, Metrics, Metrics&>...> ||
               Named::template has<R, Unchanged<Fixed>..., std::conditional_t<i == k, Metrics, Metrics&>...> ||
               Named::template has<R, Written<Fixed>..., std::conditional_t<i == k, Metrics, Metrics&>...>;
    } else {
        return false;
    }
}
// NOLINTEND(misc-redundant-expression)

template <class Named, class Fixed, class... Metrics>
inline constexpr bool copies_some_metric = []<std::size_t... k>(std::index_sequence<k...> all) {
    return (copies_metric<Named, k>(static_cast<Fixed*>(nullptr), static_cast<std::tuple<Metrics...>*>(nullptr), all) ||
            ...);
}(std::index_sequence_for<Metrics...>());

/// True if feed(model, batch, metrics...) does not change the metrics that it is given.
template <class Feed, class Fixed, class... Metrics>
consteval bool feeds_copies() {
    if constexpr (requires { &Feed::operator(); }) {
        using Named = decltype(&Feed::operator());
        if constexpr (ParametersOf<Named>::known) return copies_last<Named, Metrics...>();
        else return copies_some_metric<NamedCall<Feed>, Fixed, Metrics...>;
    } else if constexpr (ParametersOf<std::decay_t<Feed>>::known) {
        return copies_last<std::decay_t<Feed>, Metrics...>();
    } else {
        return copies_some_metric<NamedCall<Feed>, Fixed, Metrics...>;
    }
}

/// True if model.evaluate(batch, metrics...), or that of the model that it wraps, does not change
/// the metrics that it is given. `Fixed`: the types of the arguments before the metrics.
template <class Model, class Fixed, class... Metrics>
consteval bool evaluates_copies() {
    if constexpr (requires(Model& model) { requires std::is_lvalue_reference_v<decltype(model.wrapped())>; }) {
        using Wrapped = std::remove_reference_t<decltype(std::declval<Model&>().wrapped())>;
        if constexpr (unisono::model<Wrapped> || unit_model<Wrapped>)
            if (evaluates_copies<Wrapped, Fixed, Metrics...>()) return true;
    }
    if constexpr (requires { &Model::evaluate; }) {
        if constexpr (ParametersOf<decltype(&Model::evaluate)>::known)
            return copies_last<decltype(&Model::evaluate), Metrics...>();
        else return copies_some_metric<NamedEvaluate<Model>, Fixed, Metrics...>;
    } else {
        return copies_some_metric<NamedEvaluate<Model>, Fixed, Metrics...>;
    }
}

template <bool by_value>
constexpr void tell_metrics_by_value() {
    static_assert(!by_value,
                  "unisono::Trainer: found a function that takes a metric by value, or by a reference to const. "
                  "Required: evaluate(batch, metrics&...) or feed(model, batch, metrics&...), such as "
                  "`un::MeanMetric& loss` or `auto& loss`. Why: what is added to a copy is lost, and the mean of "
                  "nothing is nan.");
}

} // namespace detail
UNISONO_NAMESPACE_END
