#pragma once

/// \file
/// The laws of model/model.hpp for a model and a batch of yours, and a minimal model.

#include "unisono/core/math.hpp"
#include "unisono/core/random.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/model.hpp"
#include "unisono/testing/testing.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal model: one number, which learns the mean of the batch's numbers. Loss: the mean of
/// (w - x)^2 / 2.
struct ArchetypeModel {
    double weight = 0;
    double gradient = 0;

    std::span<double> parameters() { return {&weight, 1}; }
    std::span<double> gradients() { return {&gradient, 1}; }
    double operator()(const std::vector<double>& batch, Pass&) {
        double loss = 0;
        for (const double x : batch) {
            const double difference = weight - x;
            gradient += difference / static_cast<double>(batch.size());
            loss += difference * difference / 2 / static_cast<double>(batch.size());
        }
        return loss;
    }
};
static_assert(trainable_on<ArchetypeModel, std::vector<double>>);

/// The parameters of the trial.
struct ModelTrial {
    double tolerance = 0;          ///< relative tolerance of a difference quotient; 0: 1e-5 for double, 2e-2 for float
    std::size_t most_checked = 64; ///< parameters whose gradient is compared with a difference quotient, spread evenly
};

namespace detail {

template <model M>
class ModelUnderTrial {
public:
    using T = parameter_element_t<M>;
    using Values = std::vector<T>;
    using Spans = std::vector<std::span<T>>;

    explicit ModelUnderTrial(M& m) : model_(m) {}

    [[nodiscard]] Spans parameters() { return spans_of(model_.parameters()); }
    [[nodiscard]] Spans gradients() { return spans_of(model_.gradients()); }
    [[nodiscard]] static Values values(const Spans& spans) {
        Values all;
        for (const auto& one : spans) all.insert(all.end(), one.begin(), one.end());
        return all;
    }
    static void assign(const Spans& spans, const Values& from) {
        std::size_t at = 0;
        for (const auto& one : spans)
            for (T& value : one) value = from[at++];
    }

    /// Returns the loss of a call whose gradients begin at `start`. Restores buffers (running
    /// statistics) afterwards.
    template <class Batch>
    double call(const Batch& batch, const Values& start) {
        assign(gradients(), start);
        Spans buffers;
        if constexpr (requires { model_.buffers(); }) buffers = spans_of(model_.buffers());
        const Values kept = values(buffers);
        ready_.assign(gradients().size(), {});
        times_ready_.assign(gradients().size(), 0);
        strangers_ = 0;
        Pass pass{PassFacts{.seed = 1}, &ModelUnderTrial::on_ready, this};
        const double loss = static_cast<double>(model_(batch, pass));
        assign(buffers, kept);
        return loss;
    }

    void ready_laws(Violations& found) {
        if (strangers_ != 0) found.add("pass.ready() names a parameter that does not exist");
        const Spans now = gradients();
        for (std::size_t i = 0; i < now.size() && i < ready_.size(); ++i) {
            if (times_ready_[i] > 1)
                found.add(concat({parameter_label(model_, i), " was said to be ready more than once"}));
            if (times_ready_[i] == 1 && !std::equal(now[i].begin(), now[i].end(), ready_[i].begin(), ready_[i].end()))
                found.add(concat({parameter_label(model_, i), " changed its gradient after it was said to be ready"}));
        }
    }

private:
    template <class R>
    static Spans spans_of(R&& range) {
        Spans all;
        unisono::detail::for_each_span(range, [&](std::span<T> one) { all.push_back(one); });
        return all;
    }
    static void on_ready(void* self, std::size_t parameter) {
        auto& me = *static_cast<ModelUnderTrial*>(self);
        if (parameter == Pass::no_parameter) return;
        if (parameter >= me.ready_.size()) {
            ++me.strangers_;
            return;
        }
        ++me.times_ready_[parameter];
        const auto one = me.gradients()[parameter];
        me.ready_[parameter].assign(one.begin(), one.end());
    }

    M& model_;
    std::vector<Values> ready_;
    std::vector<int> times_ready_;
    int strangers_ = 0;
};

template <class T>
bool same_model_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
inline constexpr double rounding_of = sizeof(T) == 8 ? 0x1p-52 : 0x1p-23;

/// The relative tolerance between a change of the loss and the change that the gradient predicts.
template <class T>
double tolerance_of(const ModelTrial& options) {
    return options.tolerance > 0 ? options.tolerance : (sizeof(T) == 8 ? 1e-5 : 2e-2);
}

/// Compares central differences of the loss with the gradient.
template <model M, class Batch, class Values>
void difference_laws(M& m, ModelUnderTrial<M>& trial, const Batch& batch, const Values& gradient,
                     const ModelTrial& options, Violations& found) {
    using T = parameter_element_t<M>;
    constexpr double epsilon = rounding_of<T>;
    const double tolerance = tolerance_of<T>(options);
    const Values zeros(gradient.size());
    const auto spans = trial.parameters();
    const std::size_t stride =
        std::max<std::size_t>(1, gradient.size() / std::max<std::size_t>(1, options.most_checked));
    std::size_t at = 0;
    for (std::size_t p = 0; p < spans.size(); ++p) {
        for (std::size_t i = 0; i < spans[p].size(); ++i, ++at) {
            if (at % stride != 0 || found.full()) continue;
            const T here = spans[p][i];
            const double value = static_cast<double>(here);
            const double reach = std::cbrt(epsilon) * std::max(1.0, std::abs(value));
            spans[p][i] = static_cast<T>(value + reach);
            const double above = static_cast<double>(spans[p][i]);
            const double loss_above = trial.call(batch, zeros);
            spans[p][i] = static_cast<T>(value - reach);
            const double below = static_cast<double>(spans[p][i]);
            const double loss_below = trial.call(batch, zeros);
            spans[p][i] = here;
            const double quotient = (loss_above - loss_below) / (above - below);
            const double given = static_cast<double>(gradient[at]);
            // The possible effect of the rounding of the losses, and of a gradient whose terms
            // nearly cancel.
            const double noise = 64 * epsilon * std::max({1.0, std::abs(loss_above), std::abs(loss_below)}) / reach;
            if (!(std::abs(quotient - given) <= tolerance * (std::abs(quotient) + std::abs(given)) + noise))
                found.add(concat({"element ", i, " of ", parameter_label(m, p), " has gradient ", number_text(given),
                                  ", but the loss changes by ", number_text(quotient)}));
        }
    }
}

/// Moves all elements of a parameter at once, along the signs of its gradient. A loss that is too
/// coarse to show the effect of one small element shows that of all elements together. A change
/// that is not proportional to the step is no violation, since the loss is not linear there.
template <model M, class Batch, class Values>
void direction_laws(M& m, ModelUnderTrial<M>& trial, const Batch& batch, const Values& gradient,
                    const ModelTrial& options, Violations& found) {
    using T = parameter_element_t<M>;
    constexpr double epsilon = rounding_of<T>;
    const double tolerance = tolerance_of<T>(options);
    const Values zeros(gradient.size());
    const auto spans = trial.parameters();
    const std::size_t stride = std::max<std::size_t>(1, spans.size() / std::max<std::size_t>(1, options.most_checked));
    CounterRandom random(1);
    std::size_t begin = 0;
    for (std::size_t p = 0; p < spans.size(); begin += spans[p++].size()) {
        const std::size_t count = spans[p].size();
        if (p % stride != 0 || count < 2 || found.full()) continue;
        const Values here(spans[p].begin(), spans[p].end());
        std::vector<double> signs(count), way(count);
        double reach = 1, loss = 1;
        for (std::size_t i = 0; i < count; ++i) {
            const T given = gradient[begin + i];
            signs[i] = given > 0 || (given == 0 && random() % 2 == 0) ? 1 : -1;
            reach = std::max(reach, std::abs(static_cast<double>(here[i])));
        }
        reach *= std::cbrt(epsilon) / std::pow(static_cast<double>(count), 0.25);
        const auto loss_at = [&](double step) {
            for (std::size_t i = 0; i < count; ++i) {
                spans[p][i] = static_cast<T>(static_cast<double>(here[i]) + signs[i] * step);
                way[i] += step < 0 ? -static_cast<double>(spans[p][i]) : static_cast<double>(spans[p][i]);
            }
            const double there = trial.call(batch, zeros);
            loss = std::max(loss, std::abs(there));
            std::copy(here.begin(), here.end(), spans[p].begin());
            return there;
        };
        const double far = loss_at(2 * reach) - loss_at(-2 * reach);
        way.assign(count, 0);
        const double near = loss_at(reach) - loss_at(-reach);
        double expected = 0;
        for (std::size_t i = 0; i < count; ++i) expected += static_cast<double>(gradient[begin + i]) * way[i];
        const double off = std::abs(near - expected);
        if (off > tolerance * (std::abs(near) + std::abs(expected)) + 64 * epsilon * loss &&
            std::abs(far - 2 * near) <= 0.4 * off)
            found.add(concat({"when all elements of ", parameter_label(m, p), " move by ", number_text(reach),
                              " both ways, the loss changes by ", number_text(expected),
                              " according to the gradient, but by ", number_text(near)}));
    }
}

} // namespace detail

/// Shapes agree. A call adds to the gradients, whatever they contain; gives the same result twice;
/// does not change the parameters; and its gradient is that of its loss. Choose parameters and a
/// batch where the loss is smooth. The model is left unchanged, except for its gradients. Cost:
/// about 2 x most_checked calls, and 4 calls for each of at most most_checked parameters.
template <model M, class Batch>
    requires trainable_on<M, Batch> && std::floating_point<parameter_element_t<M>>
Violations model_laws(M& m, const Batch& batch, const ModelTrial& options = {}) {
    Violations found;
    detail::ModelUnderTrial<M> trial(m);
    using Values = typename detail::ModelUnderTrial<M>::Values;
    using T = parameter_element_t<M>;
    const auto parameters = trial.parameters();
    const auto gradients = trial.gradients();
    if (parameters.size() != gradients.size()) {
        found.add(concat({"there are ", parameters.size(), " parameters and ", gradients.size(), " gradients"}));
        return found;
    }
    for (std::size_t i = 0; i < parameters.size(); ++i)
        if (parameters[i].size() != gradients[i].size())
            found.add(concat({parameter_label(m, i), " has ", parameters[i].size(), " elements, its gradient ",
                              gradients[i].size()}));
    if (!found.lawful()) return found;

    const Values before = trial.values(parameters);
    const Values zeros(before.size());
    const double loss = trial.call(batch, zeros);
    trial.ready_laws(found);
    const Values gradient = trial.values(trial.gradients());
    if (!unisono::detail::is_finite(loss)) found.add("the loss is not finite: nothing else can be tried");
    if (!detail::same_model_bits(before, trial.values(trial.parameters()))) found.add("a call changed the parameters");
    const auto after = trial.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
        if (i >= after.size() || parameters[i].data() != after[i].data() ||
            gradients[i].data() != trial.gradients()[i].data())
            found.add(concat({parameter_label(m, i), " or its gradient moved to another place during a call"}));
    if (!found.lawful()) return found;

    if (trial.call(batch, zeros) != loss || !detail::same_model_bits(gradient, trial.values(trial.gradients())))
        found.add("the same call twice gives another loss or gradient");

    Values start(before.size());
    double largest = 0;
    for (std::size_t i = 0; i < start.size(); ++i) {
        start[i] = static_cast<T>(static_cast<float>(i % 5) - 2.0f) * static_cast<T>(0.5f);
        largest = std::max(largest, std::abs(static_cast<double>(gradient[i])));
    }
    if (trial.call(batch, start) != loss) found.add("the loss depends on what the gradients held before the call");
    const Values added = trial.values(trial.gradients());
    const double rounding = (sizeof(T) == 8 ? 1e-11 : 1e-4) * (1 + largest);
    for (std::size_t i = 0; i < start.size(); ++i) {
        const double sum = static_cast<double>(start[i]) + static_cast<double>(gradient[i]);
        if (!(std::abs(static_cast<double>(added[i]) - sum) <= rounding)) {
            found.add(concat({"a call must add to the gradients: element ", i, " was ",
                              number_text(static_cast<double>(start[i])), " and became ",
                              number_text(static_cast<double>(added[i])), "; expected ", number_text(sum)}));
            break;
        }
    }
    detail::difference_laws(m, trial, batch, gradient, options, found);
    detail::direction_laws(m, trial, batch, gradient, options, found);
    trial.assign(trial.gradients(), zeros);
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
