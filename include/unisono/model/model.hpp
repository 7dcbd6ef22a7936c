#pragma once

/// \file
/// A model, which the user supplies. It needs no tensor type, only memory and a call.
///
/// Members:
/// - `parameters()`: a span, or a range of spans, of one floating type;
/// - `gradients()`: spans of the same sizes;
/// - `model(batch, pass)`: adds the micro-batch's gradient to `gradients()` and returns its loss.
///
/// Optional members:
/// - `static constexpr GradientKind gradient_kind`: whether the gradient is a sum or a mean over
///   the micro-batch's samples (default: mean);
/// - `parameter_names()`: a range of strings, one for each span, for messages, and by which a
///   trainer finds that ranks list their parameters in different orders;
/// - `parameter_shapes()`: a range of ranges of sizes, one for each span, for checkpoints;
/// - `buffers()`: like `parameters()`, but without gradients: running statistics;
/// - `buffer_names()`: as `parameter_names()`, for checkpoints;
/// - `evaluate(batch, metrics...)`: updates metrics without touching gradients;
/// - `predict(batch)`: the outputs of the batch's samples, in order; every sample has the same
///   number of outputs;
/// - `stream()` (of models on a device): the stream on which the model enqueues its work.
///
/// Laws
/// - `parameters()` and `gradients()` return references, or views by value (a std::span, a range of
///   spans). A temporary that owns its elements, such as a std::vector by value, does not compile,
///   since the trainer would keep dangling spans.
/// - The spans do not move while a trainer refers to the model. Their number, order, sizes and type
///   are the same on all ranks (the trainer compares them, and names and shapes if the model gives
///   them). Ranks that are threads do not share a model. The trainer refuses that for ranks of its
///   group; it does not see the models of other groups. If a vector is assigned or resized, its
///   memory moves, and the trainer's next call refuses that.
/// - No two spans overlap (the trainer refuses that). A tied weight is one parameter: the model
///   uses it in several places, and adds all gradients to one span.
/// - The call *adds* to the gradients; the trainer zeroes them. The call reads only the parameters,
///   the buffers, the batch and the pass, so a micro-batch's gradient does not depend on the rank.
///
/// If the spans are `DeviceSpan`s, the model is trained on its device (docs/device.md). The
/// trainer's kernels and sums run after the work that the model has enqueued on `stream()` when it
/// calls `ready`, and when its call returns.
///
/// A *model in units* (extensions/sharded/unit_pass.hpp) does not hold its memory: the trainer
/// gives it the memory of one layer after another. Only such a model can have gradients and
/// parameters that are sharded over the ranks.
///
/// Adaptors make models from other types: `WithLoss` (forward and backward; with_loss.hpp),
/// `FunctionalModel` and `BufferModel` (functions and arrays; functional.hpp), `WithStrides`
/// (tensors with strides; strided.hpp), `MasterWeights` (16 bits;
/// unisono/master_weights.hpp). docs/models.md compares them. Deliberately absent: a tensor, a
/// layer, automatic differentiation.

#include "unisono/core/device_span.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"
#include "unisono/model/pass.hpp"

#include <concepts>
#include <cstddef>
#include <span> // and the concepts of ranges, but not the adaptors of <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// The way in which a model's call combines the gradients (and losses) of a micro-batch's samples.
enum class GradientKind : std::uint8_t { mean, sum };

constexpr std::string_view name_of(GradientKind kind) { return kind == GradientKind::mean ? "mean" : "sum"; }

namespace detail {

/// A DeviceSpan of writable floating elements.
template <class R>
concept floating_device_memory =
    is_device_span<std::remove_const_t<R>> && floating_element<typename std::remove_const_t<R>::element_type>;

/// A contiguous range of memory: a range that converts to a span of writable floating elements, or
/// a DeviceSpan of them.
template <class R>
concept floating_memory = floating_device_memory<R> || requires(R& r) {
    requires spannable<R>;
    requires floating_element<typename decltype(as_span(r))::element_type>;
    requires !std::is_const_v<typename decltype(as_span(r))::element_type>;
};

/// The memory as a std::span, or the given DeviceSpan.
template <class R>
constexpr auto span_over(R& r) {
    if constexpr (is_device_span<std::remove_const_t<R>>) return r;
    else return as_span(r);
}

template <class R>
concept floating_memory_range = requires(R& r) {
    std::begin(r);
    std::end(r);
    requires floating_memory<std::remove_reference_t<decltype(*std::begin(r))>>;
};

template <class R>
concept floating_spans = floating_memory<R> || floating_memory_range<R>;

template <class R>
struct SpansElement;
template <floating_memory R>
struct SpansElement<R> {
    using type = typename decltype(span_over(std::declval<R&>()))::element_type;
    static constexpr bool on_device = is_device_span<std::remove_const_t<R>>;
};
template <floating_memory_range R>
    requires(!floating_memory<R>)
struct SpansElement<R> : SpansElement<std::remove_reference_t<decltype(*std::begin(std::declval<R&>()))>> {};

/// Calls visit(std::span<T>), or visit(DeviceSpan<T>), for each span, in order.
template <class R, class Visit>
void for_each_span(R&& spans, Visit&& visit) {
    if constexpr (floating_memory<std::remove_reference_t<R>>) {
        visit(span_over(spans));
    } else {
        for (auto&& one : spans) visit(span_over(one));
    }
}

/// Types that may be returned by value, since they do not own the memory: a std::span, a
/// DeviceSpan, a view. Not a std::vector.
template <class R>
concept memory_elsewhere = is_device_span<std::remove_cv_t<R>> || is_span<std::remove_cv_t<R>> ||
                           std::ranges::borrowed_range<R> || std::ranges::view<std::remove_cv_t<R>>;

/// True if the result of a call, of type R (a reference or not), refers to memory that outlives the
/// statement. False for a temporary that owns its elements, and for a temporary that owns
/// containers, such as a std::vector<std::vector<float>>.
template <class R>
consteval bool memory_lasts() {
    using Bare = std::remove_reference_t<R>;
    if constexpr (std::is_lvalue_reference_v<R>) {
        return true;
    } else if constexpr (floating_memory<Bare>) {
        return memory_elsewhere<Bare>;
    } else {
        using Piece = decltype(*std::begin(std::declval<Bare&>()));
        using BarePiece = std::remove_reference_t<Piece>;
        return memory_elsewhere<BarePiece> || (std::is_lvalue_reference_v<Piece> && std::ranges::borrowed_range<Bare>);
    }
}

template <class M>
using parameters_t = std::remove_reference_t<decltype(std::declval<M&>().parameters())>;
template <class M>
using gradients_t = std::remove_reference_t<decltype(std::declval<M&>().gradients())>;

} // namespace detail

/// A model with memory: `parameters()` and `gradients()` of one element type.
template <class M>
concept model = requires(M& m) {
    m.parameters();
    m.gradients();
    requires detail::floating_spans<detail::parameters_t<M>>;
    requires detail::floating_spans<detail::gradients_t<M>>;
    requires detail::memory_lasts<decltype(m.parameters())>();
    requires detail::memory_lasts<decltype(m.gradients())>();
    requires std::same_as<typename detail::SpansElement<detail::parameters_t<M>>::type,
                          typename detail::SpansElement<detail::gradients_t<M>>::type>;
    requires detail::SpansElement<detail::parameters_t<M>>::on_device ==
                 detail::SpansElement<detail::gradients_t<M>>::on_device;
};

/// A model whose parameters and gradients are `DeviceSpan`s. It runs, and is trained, on their
/// device.
template <class M>
concept model_on_device = model<M> && detail::SpansElement<detail::parameters_t<M>>::on_device;

template <class T>
class UnitPass;
template <class T>
class DeviceUnitPass;

/// A model in units whose memory is on a device: it has `stream()`, and its pass gives DeviceSpans
/// (extensions/sharded/unit_pass.hpp).
template <class M>
concept unit_model_on_device =
    floating_element<typename M::Element> && requires(M& m, DeviceSpan<typename M::Element> values) {
        { *std::begin(m.units()) } -> detail::converts_to<std::size_t>;
        std::end(m.units());
        m.initialise(std::size_t{0}, values);
        m.stream();
    };

/// A model in units, whose memory the trainer holds (extensions/sharded/unit_pass.hpp).
template <class M>
concept unit_model = unit_model_on_device<M> ||
                     (floating_element<typename M::Element> && requires(M& m, std::span<typename M::Element> values) {
                         { *std::begin(m.units()) } -> detail::converts_to<std::size_t>;
                         std::end(m.units());
                         m.initialise(std::size_t{0}, values);
                     });

/// A model that is trained on a device, whether the model or the trainer holds its memory.
template <class M>
concept trained_on_device = model_on_device<M> || unit_model_on_device<M>;

namespace detail {
template <class M>
struct PassElement;
template <unit_model M>
struct PassElement<M> {
    using type = typename M::Element;
};
template <unit_model M>
    requires requires { typename M::PassElement; }
struct PassElement<M> {
    using type = typename M::PassElement;
};
} // namespace detail

/// The element type of the UnitPass of a model in units: its Element, or the type that it declares
/// as `PassElement` (MasterWeights).
template <unit_model M>
using pass_element_t = typename detail::PassElement<M>::type;

namespace detail {
template <class M>
struct UnitPassOf {
    using type = UnitPass<pass_element_t<M>>;
};
template <unit_model_on_device M>
struct UnitPassOf<M> {
    using type = DeviceUnitPass<pass_element_t<M>>;
};
} // namespace detail

/// The type of the pass with which a model in units is called: UnitPass, or DeviceUnitPass.
template <unit_model M>
using unit_pass_t = typename detail::UnitPassOf<M>::type;

/// A model that can be trained on micro-batches of this type.
template <class M, class Batch>
concept trainable_on = (model<M> && requires(M& m, const Batch& batch, Pass& pass) {
                           { m(batch, pass) } -> detail::converts_to<double>;
                       }) || (unit_model<M> && requires(M& m, const Batch& batch, unit_pass_t<M>& pass) {
                           { m(batch, pass) } -> detail::converts_to<double>;
                       });

namespace detail {
/// The result type of a model's prediction: of `predict(batch)`, or of `predict(batch, pass)` for
/// models in units.
template <model M, class Batch>
auto predict_by(M& m, const Batch& batch) -> decltype(m.predict(batch));
template <unit_model M, class Batch>
auto predict_by(M& m, const Batch& batch) -> decltype(m.predict(batch, std::declval<unit_pass_t<M>&>()));

template <class M>
struct ParameterElement;
template <model M>
struct ParameterElement<M> : SpansElement<parameters_t<M>> {};
template <unit_model M>
struct ParameterElement<M> {
    using type = typename M::Element;
};
} // namespace detail

/// The element type of a model's parameters.
template <class M>
    requires model<M> || unit_model<M>
using parameter_element_t = typename detail::ParameterElement<M>::type;

/// The model's `gradient_kind`; the mean if it declares none.
template <class M>
inline constexpr GradientKind gradient_kind_of = [] {
    if constexpr (requires {
                      { M::gradient_kind } -> detail::converts_to<GradientKind>;
                  })
        return GradientKind{M::gradient_kind};
    else return GradientKind::mean;
}();

/// "parameter 3 (fc.bias)", or without the name if the model has no names.
template <class M>
    requires model<M> || unit_model<M>
std::string parameter_label(M& m, std::size_t index) {
    std::string label = concat({"parameter ", index});
    if constexpr (requires { std::begin(m.parameter_names()); }) {
        std::size_t at = 0;
        auto&& names = m.parameter_names();
        for (auto it = std::begin(names); it != std::end(names); ++it, ++at)
            if (at == index) return concat({label, " (", *it, ")"});
    }
    return label;
}

namespace detail {
/// The labels of a model's parameters without the model's type, for code that is compiled once for
/// all models.
class ParameterLabels {
public:
    template <class M>
    explicit ParameterLabels(M& model)
        : model_(&model),
          label_([](void* of, std::size_t index) { return parameter_label(*static_cast<M*>(of), index); }) {}
    [[nodiscard]] std::string operator[](std::size_t index) const { return label_(model_, index); }

private:
    void* model_;
    std::string (*label_)(void*, std::size_t);
};
} // namespace detail

/// True if a batch has a number of samples: `batch.samples()`, `batch.rows()`, or its size as a
/// range.
template <class Batch>
inline constexpr bool counts_samples = requires(const Batch& batch) {
    { batch.samples() } -> detail::converts_to<std::size_t>;
} || requires(const Batch& batch) {
    { batch.rows() } -> detail::converts_to<std::size_t>;
} || requires(const Batch& batch) {
    { std::size(batch) } -> detail::converts_to<std::size_t>;
};

/// The number of samples in a batch; 1 if it has none.
template <class Batch>
constexpr std::size_t samples_of(const Batch& batch) {
    if constexpr (requires {
                      { batch.samples() } -> detail::converts_to<std::size_t>;
                  })
        return static_cast<std::size_t>(batch.samples());
    else if constexpr (requires {
                           { batch.rows() } -> detail::converts_to<std::size_t>;
                       })
        return static_cast<std::size_t>(batch.rows());
    else if constexpr (requires {
                           { std::size(batch) } -> detail::converts_to<std::size_t>;
                       })
        return static_cast<std::size_t>(std::size(batch));
    else return 1;
}

UNISONO_NAMESPACE_END
