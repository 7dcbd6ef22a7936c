#pragma once

/// \file
/// A model's loss over a whole data set as a function of its parameters, for optimizers that need
/// one: L-BFGS, conjugate gradients, line searches. Not in the umbrella.
///
///     un::FullBatch objective{world, model, data, {.batch_size = 64}};
///     std::vector<double> x = objective.start();
///     find_minimum(x, [&](const auto& at) { return objective(at); },
///                  [&](const auto& at, auto& gradient) { objective(at, gradient); });
///
/// Every rank runs the same optimizer on the same numbers; the passes over the data are
/// distributed.

#include "unisono/accumulation/accumulation.hpp"
#include "unisono/sampler/samplers.hpp"
#include "unisono/trainer/parts.hpp"
#include "unisono/trainer/trainer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Options of `FullBatch`.
struct FullBatchOptions {
    std::int64_t batch_size = 256; ///< largest micro-batch, in samples
};

namespace detail {

/// An optimizer that changes nothing: its state keeps the gradient of the last update, and
/// parameters stay as they are.
struct GradientCapture {
    double learning_rate = 0;

    static constexpr std::string_view name = "gradient capture";
    static constexpr Family family = Family::optimizer;
    friend bool operator==(const GradientCapture&, const GradientCapture&) = default;

    void check() const {}
    [[nodiscard]] StateArrays state() const {
        StateArrays arrays;
        arrays.add({"gradient"});
        return arrays;
    }
    template <optimizer_element T>
    void update(const OptimizerSlice<T>& state, std::span<T>, std::span<const T> gradients,
                const OptimizerStep& step) const {
        const auto scale = static_cast<T>(step.gradient_scale);
        for (std::size_t i = 0; i < gradients.size(); ++i) state.arrays[0][i] = gradients[i] * scale;
    }
};
static_assert(optimizer_policy<GradientCapture>);

namespace full_batch_rule {

UNISONO_RULE_OF("FullBatch", whole_gradient, "FullBatch has a policy that gives owners",
                "a policy that declares `gives_owners`",
                "every rank owns everything, for instance Replicated with RingReducer",
                "every rank's optimizer needs the whole gradient", !rule::has_owners<P>);
UNISONO_RULE_OF("FullBatch", in_step, "FullBatch has an update that does not agree",
                "an update that does not declare `agrees`", "one that does, for instance Synchronous",
                "the value must be a function of the parameters alone", agrees<typename P::Update>);
UNISONO_RULE_OF("FullBatch", nothing_kept, "FullBatch has a compression", "a compression that declares `compresses`",
                "no compression", "the value must be a function of the parameters alone",
                !compresses<typename P::Compression>);
UNISONO_RULE_OF("FullBatch", whole_model, "FullBatch has a part of a model", "a model of which each rank has a part",
                "a whole model on every rank",
                "each part's optimizer would search on its own, and wait for parts that know their point",
                !model_part<typename P::Model>);

} // namespace full_batch_rule

/// The trainings of which FullBatch is a function.
using FullBatchRules = RuleTable<full_batch_rule::whole_gradient, full_batch_rule::in_step,
                                 full_batch_rule::nothing_kept, full_batch_rule::whole_model>;

} // namespace detail

/// f(x) is the mean of the model's loss over all samples, where x are the model's parameters in
/// flat order. The object also computes the gradient of f. It is a training whose optimizer changes
/// nothing, so it runs over any transport and with any reducer, summation (`Reproducible`),
/// replicas and guard: give them after the options. With `Reproducible` and `Replicas` the bits do
/// not depend on the number of ranks.
///
/// Calls are collective: every rank makes the same calls with the same x. The last result is kept,
/// so the value and then the gradient at one point cost one pass over the data. After a call the
/// model's parameters are x. Each call uses the random numbers of a sample in epoch 0
/// (`pass.random(row)`), so that f is a function. World, model and data must outlive the object.
///
/// Memory: the gradient, and x. Cost of a call: one pass over the rank's share of the data, one
/// exchange of gradients, one of 8 bytes.
/// Errors: bad_input (x of another size; no data), mismatch (x differs between ranks), not_finite
/// as in `Trainer::fit`. With `FiniteGuard{OnOffence::skip}` f is infinite there and its gradient
/// zero, so that a line search can step back.
template <class World, class Model, class Data, class... Given>
class FullBatch {
    using Policies = detail::TrainerPolicies<Given...>;
    static_assert(detail::FullBatchRules::asserted<detail::ChosenTraining<World, Model, typename Policies::Chosen>>,
                  "unisono::FullBatch: the model and the policies do not go with it; the message above says why");

public:
    using Element = parameter_element_t<Model>;

    FullBatch(World& world, Model& model, const Data& data, const FullBatchOptions& options, Given... given)
        : model_(&model), data_(&data), options_(options),
          trainer_(world, model, SequentialSampler{}, AccumulateSamples{.samples = samples_of_all(data)}, BySamples{},
                   detail::GradientCapture{}, given...) {
        detail::for_each_span(model.parameters(), [&](std::span<Element> one) { count_ += one.size(); });
        if (options.batch_size < 1)
            refuse_input({"FullBatchOptions.batch_size is ", options.batch_size, "; expected at least 1"});
    }

    /// The number of elements of x.
    [[nodiscard]] std::size_t count() const { return count_; }
    /// The model's current parameters.
    [[nodiscard]] std::vector<Element> start() const {
        std::vector<Element> x;
        x.reserve(count_);
        detail::for_each_span(model_->parameters(),
                              [&](std::span<Element> one) { x.insert(x.end(), one.begin(), one.end()); });
        return x;
    }

    /// f(x).
    double operator()(std::span<const Element> x) {
        visit(x);
        return loss_;
    }
    /// f(x); writes its gradient.
    double operator()(std::span<const Element> x, std::span<Element> gradient) {
        if (gradient.size() != count_)
            refuse_input(
                {"FullBatch: found memory for a gradient of ", gradient.size(), " elements; expected ", count_});
        visit(x);
        if (committed_) {
            const auto found = trainer_.state().optimizer_state().array(0);
            std::copy(found.begin(), found.end(), gradient.begin());
        } else {
            std::fill(gradient.begin(), gradient.end(), Element{});
        }
        return loss_;
    }

    /// Passes over the data so far.
    [[nodiscard]] std::uint64_t evaluations() const { return evaluations_; }

private:
    static std::int64_t samples_of_all(const Data& data) {
        return std::max<std::int64_t>(1, static_cast<std::int64_t>(data.size())); // `fit` refuses an empty data set
    }

    void visit(std::span<const Element> x) {
        if (x.size() != count_)
            refuse_input({"FullBatch: found ", x.size(), " parameters; expected ", count_, ", as the model has"});
        const bool known =
            evaluations_ != 0 && x_.size() == count_ && std::memcmp(x_.data(), x.data(), x.size_bytes()) == 0;
        const auto inside = trainer_.state().acting();
        // Without this check, a rank with another x would wait for ever, or get the value at the
        // other ranks' x.
        detail::agree_on(trainer_.world(), "FullBatch", std::array<std::string_view, 2>{"the hash of x", "x is known"},
                         std::array<std::int64_t, 2>{
                             std::bit_cast<std::int64_t>(detail::hash_bytes(x.data(), x.size_bytes())), known ? 1 : 0});
        std::size_t at = 0; // the program may have written other parameters since the last call
        detail::for_each_span(model_->parameters(), [&](std::span<Element> one) {
            std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(at), one.size(), one.begin());
            at += one.size();
        });
        if (known) {
            const detail::WritesCopy shows(*model_); // also the model's 16-bit copy, if it has one
            return;
        }
        x_.clear(); // no result is valid until the evaluation is complete
        committed_ = false;
        loss_ = std::numeric_limits<double>::infinity();
        double scale = 0;
        do { // a gradient that overflows by the loss scale alone says nothing of f
            scale = trainer_.loss_scale().scale;
            trainer_.fit(*data_,
                         {.epochs = 1,
                          .batch_size = std::min(options_.batch_size, samples_of_all(*data_)),
                          .start = Position{},
                          .progress = false},
                         [&](const UpdateReport& report) {
                             committed_ = report.committed;
                             if (committed_) loss_ = report.loss;
                         });
            ++evaluations_;
        } while (!committed_ && trainer_.loss_scale().scale < scale);
        x_.assign(x.begin(), x.end());
    }

    Model* model_;
    const Data* data_;
    FullBatchOptions options_;
    Trainer<World, Model, SequentialSampler, AccumulateSamples, BySamples, detail::GradientCapture, Given...> trainer_;
    std::size_t count_ = 0;
    std::vector<Element> x_ = {}; ///< the point of the last evaluation
    bool committed_ = false;
    double loss_ = 0;
    std::uint64_t evaluations_ = 0;
};

UNISONO_NAMESPACE_END
