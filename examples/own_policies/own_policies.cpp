// A sampler, a reducer, an update and a sharding of your own. The laws of each family certify them.
// Then the first three train together, and the sampler with the sharding.

#include "decoupled_averaging.hpp"
#include "length_grouped.hpp"
#include "two_way_ring.hpp"
#include "whole_buckets.hpp"

#include <unisono/testing/reducer_laws.hpp>
#include <unisono/testing/sampler_laws.hpp>
#include <unisono/testing/schedule_laws.hpp>
#include <unisono/testing/sharding_laws.hpp>
#include <unisono/testing/update_laws.hpp>
#include <unisono/unisono.hpp>

#include <array>
#include <cstdio>
#include <exception>

namespace un = unisono;

constexpr std::size_t samples = 960, longest = 40;

/// Sums the numbers of a sequence, each multiplied by the weight of its position.
struct WeightedSum {
    std::vector<float> weights = std::vector<float>(longest), gradient = std::vector<float>(longest);
    // Two parameters, so that each may have a bucket of its own.
    auto parameters() {
        return std::array{std::span(weights).first(longest / 2), std::span(weights).last(longest / 2)};
    }
    auto gradients() {
        return std::array{std::span(gradient).first(longest / 2), std::span(gradient).last(longest / 2)};
    }

    double operator()(const un::RowBatch<float, float>& batch, un::Pass&) {
        double loss = 0;
        const auto rows = static_cast<float>(batch.rows());
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            float error = -batch.labels[row];
            for (std::size_t i = 0; i < longest; ++i) error += weights[i] * batch.row(row)[i];
            for (std::size_t i = 0; i < longest; ++i) gradient[i] += error * batch.row(row)[i] / rows;
            loss += error * error / 2 / rows;
        }
        return loss;
    }
};

/// The share of padding in the micro-batches of 8 that two ranks get, if each is padded to its
/// longest sequence.
double padding(const un::sampler_policy auto& sampler, const std::vector<std::uint32_t>& lengths) {
    double used = 0, all = 0;
    for (std::int64_t rank = 0; rank < 2; ++rank)
        for (auto stream = sampler.stream(un::shape_of_rank(sampler, samples, 8, 2, rank), un::Epoch{0});
             !stream.done();) {
            std::uint32_t most = 0;
            const auto batch = stream.next().samples;
            for (const std::size_t sample : batch) used += lengths[sample], most = std::max(most, lengths[sample]);
            all += most * static_cast<double>(batch.size());
        }
    return 1 - used / all;
}

int main() try {
    LengthGroupedSampler sampler{.window = 160, .seed = 1};
    std::vector<float> values = un::torch_rand(2, samples * longest), labels(samples);
    for (std::size_t i = 0; i < samples; ++i) {
        sampler.lengths.push_back(static_cast<std::uint32_t>(1 + 13 * i % longest));
        for (std::size_t at = 0; at < longest; ++at)
            if (at >= sampler.lengths[i]) values[i * longest + at] = 0;
            else labels[i] += values[i * longest + at] / static_cast<float>(1 + at);
    }
    un::testing::Violations all;
    const auto certify = [&](const un::testing::Violations& found) {
        std::puts(found.text().c_str());
        all.add(found);
    };
    certify(un::testing::sampler_laws(LengthGroupedSampler{.lengths = {3, 9, 2, 9, 4, 1, 7}, .window = 4},
                                      un::testing::Coverage::exact, {.data_sizes = {7}}));
    certify(un::testing::schedule_laws(un::OwnSchedule<TwoWayRingAllReduce>{}));
    certify(un::testing::reducer_laws(TwoWayRingReducer{}));
    certify(un::testing::update_laws(DecoupledAveraging{.steps = 3}));
    certify(un::testing::sharding_laws(WholeBuckets{}));
    if (!all.lawful()) return 1;

    std::printf("padding: %.0f %% with DistributedSampler, %.0f %% with %s\n",
                100 * padding(un::DistributedSampler{}, sampler.lengths), 100 * padding(sampler, sampler.lengths),
                sampler.name.data());
    const un::RowData<float, float> data(values, longest, labels);
    const auto train = [&](const auto&... policies) {
        un::run<un::InProcess>(2, [&](auto& world) {
            WeightedSum model;
            un::Trainer trainer{world, model, sampler, policies...};
            const auto report = trainer.fit(data, {.epochs = 5, .batch_size = 8, .progress = false});
            if (world.rank() == 0)
                std::printf("%sloss %.4f, then %.4f\n", trainer.describe().c_str(), report.epochs.front().loss,
                            report.epochs.back().loss);
        });
    };
    train(TwoWayRingReducer{}, DecoupledAveraging{.steps = 4}, un::Sgd{.learning_rate = 0.1});
    train(WholeBuckets{}, un::Buckets{.first_bytes = 1, .bytes = 80}, un::Sgd{.learning_rate = 0.05, .momentum = 0.5});
} catch (const std::exception& failed) {
    std::fprintf(stderr, "own_policies: %s\n", failed.what());
    return 1;
}
