// One synchronous update of a Trainer on one rank, compared with a loop by hand: zero the gradient,
// run the model, run SGD with momentum over the parameters. Both run the same model, a linear layer
// whose loss is the sum of its outputs, and must end with the same bits. The loop by hand does not
// look for NaN. The Trainer does by default, so it is measured with that guard and without, and
// with a limit of the norm that is never reached, which costs one more read.

#include "support/meeting.hpp"
#include "support/report.hpp"

#include <unisono/unisono.hpp>

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

    /// Adds the gradient of a batch and returns its loss, which is summed in 16 parts so that it
    /// does not hide the rest.
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

/// By hand, vectorised as a careful user would do it, for the instruction sets from which the
/// library chooses.
#if defined(__clang__)
[[gnu::noinline]] void
#else
[[gnu::noinline, gnu::optimize("O3", "fp-contract=off"),
  gnu::target_clones("default", "arch=haswell", "arch=x86-64-v4")]] void
#endif

sgd_by_hand(float* __restrict weights, const float* __restrict gradient, float* __restrict velocity,
            std::size_t count) {
    UNISONO_ELEMENTWISE
    for (std::size_t i = 0; i < count; ++i) {
        const float weight = weights[i];
        const float v = momentum * velocity[i] + gradient[i];
        velocity[i] = v;
        weights[i] = __builtin_fmaf(-rate, v, weight); // as PyTorch's kernels round
    }
}

} // namespace

namespace {

struct Times {
    bench::Series guarded{"Trainer", {}};
    bench::Series bare{"Trainer without guard", {}};
    bench::Series clipped{"Trainer with ClipByNorm", {}};
    bench::Series by_hand{"by hand", {}};
};

/// Returns false if the four do not have the same bits.
bool measure(std::size_t width, std::size_t in_a_row, int rounds, Times& times) {
    constexpr std::size_t rows = 4; // of a batch, as in the published program
    std::vector<float> values(rows * width);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) * 0.125f;
    const un::RowData data(values, width);
    const std::vector<std::size_t> indices{0, 1, 2, 3};
    const auto batch = data.batch(indices);

    un::Group<un::InProcess> world;
    const un::Sgd sgd{.learning_rate = rate, .momentum = momentum};
    LinearModel guarded(width);
    LinearModel bare(width);
    LinearModel clipped(width);
    LinearModel hand(width);
    un::Trainer guarded_trainer{world, guarded, sgd};
    un::Trainer bare_trainer{world, bare, sgd, un::NoGuard{}};
    un::Trainer clipped_trainer{world, clipped, sgd, un::ClipByNorm{.max_norm = 1e30}};
    std::vector<float> velocity(width);
    double losses[4] = {};

    const auto step_guarded = [&] { losses[0] += guarded_trainer.step(batch).loss; };
    const auto step_bare = [&] { losses[1] += bare_trainer.step(batch).loss; };
    const auto step_clipped = [&] { losses[3] += clipped_trainer.step(batch).loss; };
    const auto step_by_hand = [&] {
        // std::fill is a slow loop at -O2.
        std::memset(hand.gradient.data(), 0, width * sizeof(float));
        losses[2] += hand.backward(batch);
        sgd_by_hand(hand.weights.data(), hand.gradient.data(), velocity.data(), width);
    };
    for (int round = -1; round < rounds; ++round) { // the first one is not counted
        const auto take = [&](const auto& step, bench::Series& series) {
            step(); // once for the caches
            const double begin = bench::now_s();
            for (std::size_t i = 0; i < in_a_row; ++i) step();
            if (round >= 0) series.add((bench::now_s() - begin) / static_cast<double>(in_a_row));
        };
        take(step_guarded, times.guarded);
        take(step_by_hand, times.by_hand);
        take(step_bare, times.bare);
        take(step_clipped, times.clipped);
    }
    const std::size_t bytes = width * sizeof(float);
    return std::memcmp(guarded.weights.data(), hand.weights.data(), bytes) == 0 &&
           std::memcmp(bare.weights.data(), hand.weights.data(), bytes) == 0 &&
           std::memcmp(clipped.weights.data(), hand.weights.data(), bytes) == 0 && losses[0] == losses[2] &&
           losses[1] == losses[2] && losses[3] == losses[2];
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("update", options);
    bench::bind_to(bench::cores(), 0);
    report.header(
        {"us, 1 rank, parameters", "Trainer", "spread", "by hand", "ratio", "paired", "best quarter", "more", "goal"});
    for (const std::size_t width : {8u, 1000u, 30000u, 300000u, 4300000u}) {
        if (options.quick && width > 300000) continue;
        Times times;
        const int rounds = options.quick ? 5 : width > 1000000 ? 40 : 150;
        if (!measure(width, width < 10000 ? 500 : 1, rounds, times)) {
            std::fprintf(stderr, "update: the Trainer and the loop by hand differ with %zu parameters\n", width);
            return 1;
        }
        const bool large = width >= 300000;
        const double goal = large ? 1.02 : width == 8 ? 1.0 : 0.0;
        report.compare(std::to_string(width), times.guarded, {times.by_hand}, goal, large ? "x" : "us");
        report.compare(std::to_string(width) + ", ClipByNorm", times.clipped, {times.by_hand}, 0.0, large ? "x" : "us");
        report.compare(std::to_string(width) + ", NoGuard", times.bare, {times.by_hand}, goal, large ? "x" : "us");
    }
}
