// The training itself.
#pragma once

#include "network.hpp"
#include "training.hpp"

#include "unisono/accumulation/accumulation.hpp"
#include "unisono/any.hpp"
#include "unisono/extensions/checkpoint/checkpoints.hpp"
#include "unisono/extensions/master_weights/master_weights.hpp"
#include "unisono/guard/clipping.hpp"
#include "unisono/optimizer/adam.hpp"
#include "unisono/reducer/scheduled.hpp"
#include "unisono/sharded.hpp"
#include "unisono/trainer/hashes.hpp"
#include "unisono/trainer/reproducible.hpp"

#include <algorithm>

namespace unisono_test {

using World = un::Group<un::AnyTransport>;

/// A user's clipping: both of the library's.
struct NormThenValue {
    double max_norm = 1, limit = 1;

    static constexpr std::string_view name = "norm, then value";
    static constexpr un::Family family = un::Family::clipping;
    static constexpr bool measures_norm = true;
    static constexpr bool changes_elements = true;
    static constexpr bool needs_agreement = true;
    friend bool operator==(const NormThenValue&, const NormThenValue&) = default;

    void check() const {}
    [[nodiscard]] double factor(double norm) const { return un::ClipByNorm{max_norm}.factor(norm); }
    template <un::floating_element T>
    void clip(std::span<T> values, double scale) const {
        un::ClipByValue{limit}.clip(values, scale);
    }
};

struct RankResult {
    Result result = {};
    std::array<bool, parameter_count> has = {};
    char failed[600] = {};
};

template <class Sharding, class Summation, class Reducer, class Network = Layers>
void train_rank(World& world, const Case& how, RankResult& out) {
    const std::vector<float> values = un::torch_rand(3, 23 * Layers::inputs);
    const std::vector<float> labels = un::torch_rand(4, 23);
    const un::RowData data(values, Layers::inputs, labels);
    Network network;
    network.says_ready = how.says_ready;
    network.progresses = how.progresses;
    const auto with = [&](auto& model) {
        un::Trainer trainer{world,
                            model,
                            Sharding{},
                            Summation{},
                            Reducer{},
                            un::Replicas{.count = how.replicas},
                            un::DistributedSampler{.seed = 3},
                            un::Accumulate{.steps = how.steps,
                                           .short_window = how.drops ? un::ShortWindow::drop : un::ShortWindow::keep},
                            NormThenValue{how.max_norm, how.limit},
                            un::LossScaling{.initial = how.loss_scale, .growth_interval = 3},
                            un::Adam{.learning_rate = 0.02}};
        un::FitOptions options{.epochs = 3, .batch_size = 2, .progress = false};
        if constexpr (Summation::reproducible) {
            un::Checkpoints checkpoints(how.folder.empty() ? "/nowhere" : how.folder);
            if (how.resume && !checkpoints.resume(trainer)) throw std::runtime_error("nothing to resume from");
            options.epochs = 3 - trainer.position().epoch.number();
            trainer.fit(data, options, [&](const un::UpdateReport& report) {
                out.result.loss = report.loss;
                if (how.stop_after == 0 || trainer.updates() != how.stop_after) return true;
                checkpoints.save(trainer);
                return false;
            });
        } else {
            trainer.fit(data, options);
        }
        trainer.verify_replicas();
        out.result.hash = un::state_hash(trainer);
        out.result.updates = trainer.updates();
        const auto [distance] = trainer.evaluate(data, {.batch_size = 2}, un::MeanMetric{});
        out.result.distance = distance.value();
        const auto outputs = trainer.predict(data, {.batch_size = 3});
        std::copy(outputs.begin(), outputs.end(), out.result.outputs.begin());
        trainer.visit_parameters({0, parameter_count}, [&](std::size_t flat, std::span<const float> part) {
            std::copy(part.begin(), part.end(), out.result.weights.begin() + static_cast<std::ptrdiff_t>(flat));
            std::fill_n(out.has.begin() + static_cast<std::ptrdiff_t>(flat), part.size(), true);
        });
    };
    constexpr bool low = !std::is_same_v<Network, Layers>;
    if constexpr (un::detail::shards_gradients<Sharding> && low) {
        un::MasterWeights master(network);
        with(master);
    } else if constexpr (un::detail::shards_gradients<Sharding>) {
        with(network);
    } else {
        un::ResidentUnits all(world, network);
        if constexpr (low) {
            un::MasterWeights master(all);
            with(master);
        } else {
            with(all);
        }
    }
}

void train_reproducible(World& world, const Case& how, RankResult& out);
void train_plain(World& world, const Case& how, RankResult& out);
void train_by_reducers(World& world, const Case& how, RankResult& out);
void train_low(World& world, const Case& how, RankResult& out);

/// One of the shardings, with all sums of this file.
template <class Summation, class Reducer>
void train_stage(World& world, const Case& how, RankResult& out) {
    switch (how.stage) {
    case Stage::replicated: return train_rank<un::Replicated, Summation, Reducer>(world, how, out);
    case Stage::state:
        if constexpr (Summation::reproducible)
            return train_rank<un::StateSharding, Summation, Reducer>(world, how, out);
        else throw std::runtime_error("of plain sums see tests/base/trainer/sharding.cpp");
    case Stage::gradients: return train_rank<un::GradientSharding, Summation, Reducer>(world, how, out);
    case Stage::parameters: return train_rank<un::ParameterSharding, Summation, Reducer>(world, how, out);
    }
}

} // namespace unisono_test
