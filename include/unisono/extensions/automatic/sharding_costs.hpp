#pragma once

/// \file
/// Measures, before training, the time of an update if each rank updates everything, and if each
/// rank updates its slices.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/extensions/automatic/sharding.hpp"
#include "unisono/model/model.hpp"
#include "unisono/model/pass.hpp"
#include "unisono/trainer/exchange.hpp"
#include "unisono/trainer/same_model.hpp"

#include <array>
#include <cstddef>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A model with the given model's memory layout: contiguous or one range per parameter, and in the
/// group's memory if the model's memory is. Parameters are 1, so that the gradient is not zero.
template <class World, class T>
class StandIn {
public:
    StandIn(World& world, const FlatModel<T>& like) {
        const bool whole = like.contiguous();
        const Stretch<T>& first = like.stretches().front();
        const bool shared = whole && world.is_shared(std::span<const T>(first.parameters, first.count)) &&
                            world.is_shared(std::span<const T>(first.gradients, first.count));
        const std::size_t gap = whole ? 0 : 1; // an element between parameters keeps them from being contiguous
        const std::size_t count = like.count() + gap * like.layout().parameters();
        if (shared) shared_ = world.template allocate<T>(2 * count);
        else own_.resize(2 * count);
        T* at = shared ? shared_.data() : own_.data();
        for (const ParameterShape& shape : like.layout().shapes()) {
            parameters_.push_back({at, shape.count});
            gradients_.push_back({at + count, shape.count});
            std::fill_n(at, shape.count, T(1));
            at += shape.count + gap;
        }
    }

    std::span<const std::span<T>> parameters() { return {parameters_.data(), parameters_.size()}; }
    std::span<const std::span<T>> gradients() { return {gradients_.data(), gradients_.size()}; }
    /// Has a model's effect on the caches: reads all parameters, writes all gradients, and touches
    /// activations in between.
    double operator()(int, Pass& pass) {
        for (std::size_t i = 0; i < parameters_.size(); ++i)
            accumulate(gradients_[i], std::span<const T>(parameters_[i]), 1.0);
        zero(activations_.data(), activations_.size());
        pass.count_tokens(1);
        static_cast<void>(pass.loss_scale());
        return 0;
    }

private:
    Memory<T> shared_;
    List<T> own_;
    List<T> activations_ = List<T>((std::size_t{4} << 20) / sizeof(T)); ///< more than a core's own cache holds
    List<std::span<T>> parameters_, gradients_;
};

/// Returns the same result on all ranks. Collective. A world of one measures nothing.
template <class Context, class Model>
ShardingCosts measure_sharding(typename Context::World& world, Model& model, const Context& policies,
                               const Buckets& buckets) {
    using World = typename Context::World;
    using T = typename Context::Element;
    if (world.size() == 1) return {.replicated = 1, .sharded = 1};
    const FlatModel<T> like(model, buckets);
    agree_on_model(world, model, like);
    constexpr std::size_t tries = 9;
    std::array<std::array<double, tries>, 2> seconds;
    {
        StandIn<World, T> stand_in(world, like);
        std::array<Context, 2> contexts = {policies, policies};
        contexts[0].sharding.costs = {.replicated = 1, .sharded = 2};
        contexts[1].sharding.costs = {.replicated = 2, .sharded = 1};
        Exchange<WholeStore<Context>> replicated(world, stand_in, contexts[0], buckets);
        Exchange<WholeStore<Context>> sharded(world, stand_in, contexts[1], buckets);
        const auto update = [&](Exchange<WholeStore<Context>>& exchange) {
            exchange.begin();
            exchange.expect_one();
            exchange.add(stand_in, 0, 1, {}, true);
            exchange.set_learning_rate(0);
            barrier(world);
            const nanoseconds begin = world.endpoint().now();
            exchange.start();
            exchange.agree();
            exchange.finish();
            exchange.apply();
            exchange.publish();
            barrier(world);
            return static_cast<double>(world.endpoint().now() - begin) * 1e-9;
        };
        // The two take turns; the first two rounds make plans and touch memory.
        for (std::size_t i = 0; i < tries + 2; ++i) {
            const double one = update(replicated);
            const double other = update(sharded);
            if (i < 2) continue;
            seconds[0][i - 2] = one;
            seconds[1][i - 2] = other;
        }
    }
    std::array<double, 2> medians;
    for (std::size_t way = 0; way < 2; ++way) {
        insertion_sort(seconds[way], [](double a, double b) { return a < b; });
        medians[way] = std::max(seconds[way][tries / 2], 1e-12); // guards against a coarse clock
    }
    broadcast(world, medians, 0);
    return {.replicated = medians[0], .sharded = medians[1]};
}

} // namespace detail
UNISONO_NAMESPACE_END
