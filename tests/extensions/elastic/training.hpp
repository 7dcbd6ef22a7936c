// A training whose bits do not depend on which rank hosts which replica: over elastic worlds, or
// undisturbed on one rank.
#pragma once

#include <unisono/collective/all_reduce.hpp>
#include <unisono/elastic.hpp>
#include <unisono/tcp.hpp>
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <vector>

namespace unisono_test {

namespace un = unisono;

/// A layer with dropout, which asks the pass for the replica's own random numbers.
class Layer {
public:
    /// With this width each of five ranks owns a slice if state is sharded.
    static constexpr std::size_t width = 96;

    std::array<std::span<float>, 2> parameters() { return {weights_, bias_}; }
    std::array<std::span<float>, 2> gradients() { return {slopes_, bias_slope_}; }

    template <class Batch>
    double operator()(const Batch& batch, un::Pass& pass) {
        double loss = 0;
        const auto rows = static_cast<float>(batch.rows());
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            un::CounterRandom random = pass.random(row);
            const auto x = batch.row(row);
            std::array<bool, width> kept{};
            float error = bias_[0] - 1;
            for (std::size_t i = 0; i < width; ++i) {
                kept[i] = random.uniform() < 0.8f;
                if (kept[i]) error += weights_[i] * x[i];
            }
            loss += static_cast<double>(error * error / rows);
            bias_slope_[0] += 2 * error / rows;
            for (std::size_t i = 0; i < width; ++i)
                if (kept[i]) slopes_[i] += 2 * error * x[i] / rows;
        }
        return loss;
    }
    void evaluate(const un::RowBatch<float>& batch, un::MeanMetric& mean) {
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            float y = bias_[0];
            for (std::size_t i = 0; i < width; ++i) y += weights_[i] * batch.row(row)[i];
            mean.add(static_cast<double>(y));
        }
    }

private:
    std::vector<float> weights_ = std::vector<float>(width, 0.1f), slopes_ = std::vector<float>(width);
    std::vector<float> bias_ = std::vector<float>(1), bias_slope_ = std::vector<float>(1);
};

struct Result {
    un::StateHash hash = {};
    double loss = 0, mean = 0;
    std::uint64_t updates = 0;
    std::int64_t counted = 0; ///< updates and samples in the report of fit
    friend bool operator==(const Result&, const Result&) = default;
};

inline constexpr int replicas = 6;
inline constexpr std::int64_t epochs = 3;

/// The model that is trained in a world. Tests of devices have one that moves it there.
template <class World>
struct Placed {
    Placed(World&, Layer& given) : model(given) {}
    Layer& model;
};

/// Calls `on_update(report)`. The world may be elastic.
template <class World, class OnUpdate, class... More>
Result train(World& world, OnUpdate on_update, bool evaluates = true, double learning_rate = 0.01, More... more) {
    static const std::vector<float> values = un::torch_rand(5, 210 * Layer::width);
    const un::RowData<float> data(values, Layer::width);
    Layer layer;
    Placed<World> placed(world, layer);
    un::Trainer trainer{world,
                        placed.model,
                        un::Replicas{replicas},
                        un::DistributedSampler{.shuffle = true, .seed = 3},
                        un::Reproducible{},
                        un::Accumulate{.steps = 2},
                        un::AdamW{.learning_rate = learning_rate},
                        un::CosineRate{},
                        more...};
    Result result;
    const un::FitReport report =
        trainer.fit(data, {.epochs = epochs, .batch_size = 3, .seed = 7, .progress = false}, on_update);
    result.loss = report.epochs.back().loss;
    result.updates = trainer.updates();
    for (const un::EpochReport& epoch : report.epochs) result.counted += epoch.updates * 1'000'000 + epoch.samples;
    if (evaluates) {
        // nvcc does not find the model's own function.
        const auto feed = [](auto& trained, const un::RowBatch<float>& batch, un::MeanMetric& found) {
            trained.evaluate(batch, found);
        };
        auto [mean] = trainer.evaluate(data, {.batch_size = 16}, feed, un::MeanMetric{});
        result.mean = mean.value();
    }
    if constexpr (requires { trainer.now(); })
        result.hash = trainer.collectively([](auto& now) { return un::state_hash(now); });
    else result.hash = un::state_hash(trainer);
    return result;
}

inline const Result& undisturbed() {
    static const Result result = [] {
        Result found;
        un::run<un::InProcess>(1, [&](auto& world) { found = train(world, [](const un::UpdateReport&) {}); });
        return found;
    }();
    return result;
}

} // namespace unisono_test
