#pragma once

/// \file
/// The message for a program whose model does not satisfy the requirements, or cannot be called:
/// one message that names the first missing requirement. The trainer is then not instantiated, so
/// no errors of inner code follow.

#include "unisono/core/value.hpp"
#include "unisono/data/data.hpp"
#include "unisono/model/model.hpp"
#include "unisono/trainer/report.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Stands for a type that does not satisfy the requirements of a model.
template <class M>
struct NotAModel;
/// Stands for a model or a group that was given as a temporary.
template <class M>
struct TemporaryModel;

template <class R>
concept const_floating_memory = requires(R& r) {
    requires spannable<R>;
    requires floating_element<std::remove_const_t<typename decltype(as_span(r))::element_type>>;
    requires std::is_const_v<typename decltype(as_span(r))::element_type>;
};
template <class R>
concept const_floating_spans = const_floating_memory<R> || requires(R& r) {
    requires const_floating_memory<std::remove_reference_t<decltype(*std::begin(r))>>;
};

template <class M>
concept like_a_group = requires(M& m) {
    m.rank();
    m.size();
    m.set_timeout(m.timeout());
};

/// The requirements of `model`, one after another. Each is checked only if those before it hold.
template <class M>
struct ModelRefusal {
    static constexpr bool looks_like_group = like_a_group<M>;
    static constexpr bool points = requires(M& m) { (*m).parameters(); };
    static constexpr bool has_parameters = requires(M& m) { m.parameters(); };
    static constexpr bool has_gradients = requires(M& m) { m.gradients(); };
    static constexpr bool both = has_parameters && has_gradients;
    static constexpr bool without_const = both || requires(std::remove_const_t<M>& m) {
        m.parameters();
        m.gradients();
    };

    static constexpr bool writable = [] {
        if constexpr (both) return !const_floating_spans<parameters_t<M>> && !const_floating_spans<gradients_t<M>>;
        else return true;
    }();
    static constexpr bool floating = [] {
        if constexpr (both && writable) return floating_spans<parameters_t<M>> && floating_spans<gradients_t<M>>;
        else return true;
    }();
    static constexpr bool spans = both && writable && floating;
    static constexpr bool lasting = [] {
        if constexpr (spans)
            return memory_lasts<decltype(std::declval<M&>().parameters())>() &&
                   memory_lasts<decltype(std::declval<M&>().gradients())>();
        else return true;
    }();
    static constexpr bool alike = [] {
        if constexpr (spans) {
            using P = SpansElement<parameters_t<M>>;
            using G = SpansElement<gradients_t<M>>;
            return std::same_as<typename P::type, typename G::type> && P::on_device == G::on_device;
        } else return true;
    }();

    static_assert(
        !looks_like_group,
        "unisono::Trainer: found a group where the model belongs, as the second argument. Required: the group "
        "first, then the model, then policies: Trainer{world, model, ...}.");
    static_assert(
        looks_like_group || both || !without_const,
        "unisono::Trainer: found a second argument that is no model: it is const. Required: a model that can be "
        "changed. Why: training changes its parameters.");
    static_assert(looks_like_group || !points,
                  "unisono::Trainer: found a pointer as the second argument. Required: the model that it points to: "
                  "Trainer{world, *model, ...}. Why: the trainer refers to a model, and does not own it.");
    static_assert(
        looks_like_group || has_parameters || without_const || points,
        "unisono::Trainer: found a second argument that is no model: it has no parameters(). Required: "
        "parameters() and gradients(), each a span or a range of spans of one floating type. Why: the trainer "
        "must know what it trains; see model/model.hpp.");
    static_assert(
        looks_like_group || !has_parameters || has_gradients || without_const,
        "unisono::Trainer: found a second argument that is no model: it has no gradients(). Required: parameters() and "
        "gradients(), each a span or a range of spans of one floating type. Why: the trainer sums the gradients of all "
        "ranks there; see model/model.hpp.");
    static_assert(
        writable,
        "unisono::Trainer: found a model whose parameters() or gradients() are const. Required: spans of elements "
        "that can be written, such as std::span<float>. Why: the trainer writes both.");
    static_assert(
        floating,
        "unisono::Trainer: found a second argument that is no model: its parameters() or gradients() are no "
        "memory of one floating type. Required: a span or a range of spans (anything that std::span views) of "
        "float, double, bfloat16 or float16. Why: gradients are sums of such numbers; see model/model.hpp.");
    static_assert(
        lasting, "unisono::Trainer: found a model whose parameters() or gradients() return a temporary that owns its "
                 "elements, such as a std::vector by value. Required: a reference (std::vector<float>&) or a view "
                 "(std::span<float>) of memory that stays; for a view of a library's own, specialise "
                 "std::ranges::enable_borrowed_range. Why: the trainer keeps where the elements lie, and a temporary's "
                 "are gone when the statement ends.");
    static_assert(alike,
                  "unisono::Trainer: found a second argument that is no model: its parameters and gradients are of "
                  "different types, or one of them is on a device. Required: the same element type, side by side. Why: "
                  "the optimizer reads one gradient for each parameter.");
};

/// The reason why a model cannot be called with a batch. `Given`: the type of its pass.
template <class M, class Batch, class Given>
struct CallRefusal {
    static constexpr bool called = requires(M& m, const Batch& batch, Given& pass) { m(batch, pass); };
    static constexpr bool changes_batch = !called && requires(M& m, Batch& batch, Given& pass) { m(batch, pass); };
    static constexpr bool without_pass = !called && requires(M& m, const Batch& batch) { m(batch); };
    static_assert(
        !called, "unisono::Trainer: the model cannot be called with this batch: its call returns no loss. Required: "
                 "model(batch, pass) returns the loss, a number that converts to double. Why: losses are reported, and "
                 "a NaN stops the training.");
    static_assert(
        !changes_batch,
        "unisono::Trainer: the model cannot be called with this batch: its call takes the batch by a reference "
        "that is not const. Required: model(batch, pass) that takes `const Batch&`. Why: batches are read ahead "
        "and may be given again.");
    static_assert(changes_batch || !without_pass,
                  "unisono::Trainer: the model cannot be called with this batch: its call takes no pass. Required: "
                  "model(batch, pass), pass being an unisono::Pass&. Why: the pass carries random numbers and weights, "
                  "and takes gradients that are ready.");
    static_assert(
        called || changes_batch || without_pass,
        "unisono::Trainer: the model cannot be called with this batch. Required: model(batch, pass) that adds "
        "the gradient of a `const Batch&` (this data set's batches) and returns its loss, pass being an "
        "unisono::Pass&; a model with forward and backward gets one by unisono::WithLoss. Why: that call is "
        "what training consists of.");
};

/// The second argument of a model's call.
template <class M>
struct PassGiven {
    using type = Pass;
};
template <unit_model M>
struct PassGiven<M> {
    using type = unit_pass_t<M>;
};
template <class M>
using pass_given_t = typename PassGiven<M>::type;

/// The reason why a type is not a data set.
template <class D>
struct DataRefusal {
    static constexpr bool has_size = requires(D& data) {
        { data.size() } -> detail::converts_to<std::size_t>;
    };
    static constexpr bool has_batch = requires(D& data, std::span<const std::size_t> indices) { data.batch(indices); };
    static_assert(
        has_size || !has_batch,
        "unisono::Trainer: found data without size(). Required: a data set: size(), the number of samples, and "
        "batch(std::span<const std::size_t> indices), their batch. Why: samplers choose samples by their "
        "index.");
    static_assert(has_batch,
                  "unisono::Trainer: found data without batch(indices). Required: a data set: size(), the number of "
                  "samples, and batch(std::span<const std::size_t> indices), their batch; for numbers in memory "
                  "un::RowData(values, width). Why: samplers choose samples by their index.");
    static_assert(!has_size || !has_batch,
                  "unisono::Trainer: found data whose batch(indices) returns a value that cannot be moved. Required: a "
                  "batch by value. Why: batches are read ahead.");
};
/// Emits the message, if there is one.
template <class Data>
constexpr void tell_data() {
    if constexpr (!data_set<std::remove_reference_t<Data>>)
        static_cast<void>(DataRefusal<std::remove_reference_t<Data>>());
}
template <class Batch>
constexpr void tell_evaluate() {
    static_assert(never_true<Batch>,
                  "unisono::Trainer: found a model without evaluate(batch, metrics&...) for this data set and these "
                  "metrics. Required: that function, or a callable feed(model, batch, metrics&...) before the "
                  "metrics. Why: only the model knows what to compare.");
}
template <class Feed>
constexpr void tell_feed() {
    static_assert(never_true<Feed>,
                  "unisono::Trainer: found an argument of evaluate that is neither a metric nor a callable with "
                  "which metrics can be fed. Required: after the options metrics (observe/metric.hpp: merge and "
                  "reset), or before them feed(model, batch, metrics&...). Why: metrics of all ranks are merged.");
}
template <class Data>
constexpr void tell_predict() {
    static_assert(never_true<Data>,
                  "unisono::Trainer: found a model without predict(batch) for this data set. Required: it returns "
                  "the outputs of the batch's samples, contiguous and in order. Why: the trainer puts them into "
                  "the data set's order.");
}
template <class Options>
constexpr void tell_options() {
    static_assert(never_true<Options>,
                  "unisono::Trainer: found a second argument of fit that is no FitOptions. Required: named options, "
                  "such as trainer.fit(data, {.epochs = 2, .batch_size = 8}). Why: a number alone does not say "
                  "whether it counts epochs or samples.");
}
template <class M, class Batch>
constexpr void tell_batch() {
    if constexpr (!trainable_on<M, Batch>) static_cast<void>(CallRefusal<M, Batch, pass_given_t<M>>());
}
template <class M, class Data>
constexpr void tell_batches_of() {
    tell_data<Data>();
    if constexpr (data_set<std::remove_reference_t<Data>>) tell_batch<M, batch_of<std::remove_reference_t<Data>>>();
}
template <class M, class Data>
inline constexpr bool trains_on = [] {
    if constexpr (data_set<std::remove_reference_t<Data>>)
        return trainable_on<M, batch_of<std::remove_reference_t<Data>>>;
    else return false;
}();

} // namespace detail

template <class World, class Model, class... Given>
class Trainer;

/// Selected for an argument that is not a model: gives one message instead of the errors of inner
/// code.
template <class World, class M, class... Given>
class Trainer<World, detail::NotAModel<M>, Given...> : detail::ModelRefusal<M> {
public:
    Trainer(World&, M&, Given...) {}
    FitReport fit(auto&&...) { return {}; }
    UpdateReport step(auto&&...) { return {}; }
};
template <class World, class M, class... Given>
class Trainer<World, detail::TemporaryModel<M>, Given...> {
    static constexpr bool has_group = detail::like_a_group<std::remove_reference_t<World>>;
    static_assert(
        has_group,
        "unisono::Trainer: found a first argument that is no group. Required: the group first, then the model, then "
        "policies: Trainer{world, model, ...}. Why: `run` gives each rank its `world`, in which the trainer talks to "
        "the others.");
    static_assert(
        !has_group,
        "unisono::Trainer: found a group or a model that is a temporary. Required: variables that outlive the "
        "trainer: `Linear model; un::Trainer trainer{world, model, ...};`. Why: the trainer refers to both, and "
        "the trained parameters are the model's.");

public:
    template <class... Any>
    explicit Trainer(Any&&...) {}
    FitReport fit(auto&&...) { return {}; }
    UpdateReport step(auto&&...) { return {}; }
};

template <class World, class Model, class... Given>
Trainer(World&, Model&, Given...)
    -> Trainer<World, std::conditional_t<model<Model> || unit_model<Model>, Model, detail::NotAModel<Model>>, Given...>;
template <class World, class Model, class... Given>
Trainer(World&&, Model&&, Given...) -> Trainer<World, detail::TemporaryModel<Model>, Given...>;

UNISONO_NAMESPACE_END
