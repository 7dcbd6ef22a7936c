// One synchronous update of a Trainer on one rank, against the loop that one would write by hand: zero the gradient, run the
// model, run SGD with momentum over the parameters. Both run the same model, a linear layer whose loss is the sum of its
// outputs, and must end with the same bits.

#include "support/meeting.hpp"
#include "support/report.hpp"

#include <unisono/unisono.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

namespace un = unisono;

namespace {

constexpr float rate = 1e-6f;
constexpr float momentum = 0.9f;

struct LinearModel {
    static constexpr un::GradientKind gradient_kind = un::GradientKind::sum;
    std::vector<float> weights, gradient;

    explicit LinearModel(std::size_t width) : weights(width, 1.0f), gradient(width) {}
    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }

    /// Adds the gradient of a batch and returns its loss, which is summed in 16 parts so that it does not hide the rest.
    [[gnu::noinline]] double backward(const un::RowBatch<float>& batch) {
        double loss = 0;
        const std::size_t width = weights.size();
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            const float* x = batch.row(i).data();
            const float* w = weights.data();
            float* g = gradient.data();
            float parts[16] = {};
            std::size_t j = 0;
            for (; j + 16 <= width; j += 16) {
                for (std::size_t k = 0; k < 16; ++k) {
                    parts[k] += w[j + k] * x[j + k];
                    g[j + k] += x[j + k];
                }
            }
            for (; j < width; ++j) {
                parts[0] += w[j] * x[j];
                g[j] += x[j];
            }
            for (const float part : parts) loss += static_cast<double>(part);
        }
        return loss;
    }
    double operator()(const un::RowBatch<float>& batch, un::Pass&) { return backward(batch); }
};

/// By hand, vectorised as a careful user would have it, for the instruction sets that the library chooses from.
#if defined(__clang__)
[[gnu::noinline]] void
#else
[[gnu::noinline, gnu::optimize("O3"), gnu::target_clones("default", "arch=haswell", "arch=x86-64-v4")]] void
#endif

sgd_by_hand(float* __restrict weights, const float* __restrict gradient, float* __restrict velocity,
            std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
        velocity[i] = __builtin_fmaf(1.0f, gradient[i], momentum * velocity[i]);
        weights[i] = __builtin_fmaf(-rate, velocity[i], weights[i]);
    }
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("update", options);
    bench::bind_to(bench::cores(), 0);
    report.header({"us, 1 rank, parameters", "Trainer", "spread", "by hand", "ratio", "paired", "best quarter", "more",
                   "goal"});
    for (const std::size_t width : {8, 1000, 30000, 300000, 4300000}) {
        if (options.quick && width > 300000) continue;
        const std::size_t rows = 2;
        std::vector<float> values(rows * width);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) * 0.125f;
        const un::RowData data(values, width);
        const std::vector<std::size_t> indices{0, 1};
        const auto batch = data.batch(indices);

        un::Group<un::InProcess> world;
        LinearModel model(width);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = rate, .momentum = momentum}};
        LinearModel hand(width);
        std::vector<float> velocity(width);
        double hand_loss = 0;
        double trainer_loss = 0;

        bench::Series ours{"Trainer", {}};
        bench::Series by_hand{"by hand", {}};
        const std::size_t in_a_row = width < 10000 ? 500 : 1;
        const int rounds = options.quick ? 10 : width > 1000000 ? 60 : 200;
        for (int round = -1; round < rounds; ++round) {
            const auto step_trainer = [&] {
                for (std::size_t i = 0; i < in_a_row; ++i) trainer_loss += trainer.step(batch).loss;
            };
            const auto step_by_hand = [&] {
                for (std::size_t i = 0; i < in_a_row; ++i) {
                    std::fill(hand.gradient.begin(), hand.gradient.end(), 0.0f);
                    hand_loss += hand.backward(batch);
                    sgd_by_hand(hand.weights.data(), hand.gradient.data(), velocity.data(), width);
                }
            };
            const auto time = [&](const auto& step) {
                const double begin = bench::now_s();
                step();
                return (bench::now_s() - begin) / static_cast<double>(in_a_row);
            };
            const bool swapped = round % 2 != 0;
            double first = 0;
            double second = 0;
            if (swapped) {
                second = time(step_by_hand);
                first = time(step_trainer);
            } else {
                first = time(step_trainer);
                second = time(step_by_hand);
            }
            if (round < 0) continue;
            ours.add(first);
            by_hand.add(second);
        }
        if (std::memcmp(model.weights.data(), hand.weights.data(), width * sizeof(float)) != 0 ||
            trainer_loss != hand_loss) {
            std::fprintf(stderr, "update: the Trainer and the loop by hand differ with %zu parameters: %a and %a\n",
                         width, static_cast<double>(model.weights[0]), static_cast<double>(hand.weights[0]));
            return 1;
        }
        const std::string what = std::to_string(width);
        if (width >= 300000) report.compare(what, ours, {by_hand}, 1.02);
        else report.compare(what, ours, {by_hand}, width == 8 ? 1.0 : 0.0, "us");
    }
}
