// Updates of several workers in a random order. If gradients do not depend on the parameters, and
// only a worker's own state counts, the order does not matter: the result is that of a serial loop,
// up to rounding, and no update may be lost or made twice. tests/extensions/simulated replays in
// virtual time what depends on the order.
#include "matrix.hpp"

#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/extensions/updates/hogwild.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace unisono_matrix {
namespace {

using Numbers = std::array<double, columns>;

/// The gradient of these samples, for any weights.
Numbers pull_of(std::span<const std::size_t> all) {
    Numbers pull{};
    for (const std::size_t i : all)
        for (std::size_t j = 0; j < columns; ++j)
            pull[j] += (inputs()[i * columns + j] - targets()[i]) / static_cast<double>(all.size());
    return pull;
}

struct Pulled {
    Numbers weights{}, slopes{};
    std::array<std::span<double>, 2> parts = {std::span(weights).first<3>(), std::span(weights).last<2>()};
    std::array<std::span<double>, 2> slope_parts = {std::span(slopes).first<3>(), std::span(slopes).last<2>()};
    Pulled() = default;
    Pulled(const Pulled&) = delete;
    Pulled& operator=(const Pulled&) = delete;
    std::span<const std::span<double>> parameters() { return parts; }
    std::span<const std::span<double>> gradients() { return slope_parts; }
    double operator()(const std::vector<std::size_t>& batch, un::Pass&) {
        const Numbers pull = pull_of(batch);
        for (std::size_t j = 0; j < columns; ++j) slopes[j] += pull[j];
        return 0;
    }
};
struct Indices {
    [[nodiscard]] std::size_t size() const { return samples; }
    [[nodiscard]] std::vector<std::size_t> batch(std::span<const std::size_t> indices) const {
        return {indices.begin(), indices.end()};
    }
};

/// The updates of one worker after another, `steps` micro-batches each, from the same weights.
/// Their changes add up.
template <class Optimizer, class Clipping>
std::vector<double> one_after_another(int workers, const Optimizer& optimizer, const Clipping& clipping,
                                      std::int64_t steps, std::uint64_t& updates) {
    const un::DistributedSampler sampler{.seed = 4};
    std::vector<double> end(columns);
    updates = 0;
    for (int worker = 0; worker < workers; ++worker) {
        auto state = un::start<double>(optimizer, columns);
        std::vector<double> moved(columns);
        std::uint64_t own = 0;
        for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
            auto stream =
                sampler.stream(un::shape_of_rank(sampler, samples, batch_size, workers, worker), un::Epoch{epoch});
            std::vector<double> sum(columns);
            double divisor = 0;
            for (std::int64_t done = 0; !stream.done();) {
                const un::MicroBatch micro = stream.next();
                const Numbers pull = pull_of(micro.samples);
                const auto n = static_cast<double>(micro.samples.size());
                for (std::size_t j = 0; j < columns; ++j) sum[j] += n * pull[j];
                divisor += n;
                if (++done % steps != 0 && !stream.done()) continue;
                double squares = 0;
                for (double& g : sum) {
                    g /= divisor;
                    if constexpr (Clipping::changes_elements) g = std::clamp(g, -clipping.limit, clipping.limit);
                    squares += g * g;
                }
                double factor = 1;
                if constexpr (Clipping::measures_norm)
                    factor = std::min(1.0, clipping.max_norm / (std::sqrt(squares) + 1e-6));
                optimizer.update(state.all(), std::span<double>(moved), std::span<const double>(sum),
                                 {optimizer.learning_rate, ++own, factor});
                sum.assign(columns, 0);
                divisor = 0;
            }
        }
        for (std::size_t j = 0; j < columns; ++j) end[j] += moved[j];
        updates += own;
    }
    return end;
}

/// \returns how many worlds had several workers
template <class Update, class Optimizer, class Clipping = un::NoClipping>
int check_several(const Update& update, const Optimizer& optimizer, std::int64_t steps = 1,
                  const Clipping& clipping = {}) {
    ++counts().ran;
    int several = 0;
    for (const World& tried : worlds()) {
        int servers = 0;
        if constexpr (requires { update.servers; }) servers = update.servers;
        const int workers = tried.ranks - servers;
        if (workers < 2) continue;
        ++several;
        test::any_on_processes = tried.processes;
        const test::Shared<Results> results;
        const auto all = unisono_test::outcomes(tried.ranks, [&](auto& world) {
            Pulled model;
            un::Trainer trainer{world,
                                model,
                                un::DistributedSampler{.seed = 4},
                                un::Accumulate{.steps = steps},
                                optimizer,
                                update,
                                un::BySamples{},
                                clipping};
            trainer.fit(Indices{}, {.epochs = epochs, .batch_size = batch_size, .progress = false});
            Result& mine = results->at(static_cast<std::size_t>(world.rank()));
            mine.weights = model.weights;
            mine.updates = trainer.updates();
        });
        std::uint64_t updates = 0;
        const auto expected = one_after_another(workers, optimizer, clipping, steps, updates);
        const std::string_view names[] = {Update::name, Optimizer::name};
        compare(tried, names, all, *results, expected, 1e-11);
        // A server counts all updates, a worker its own.
        for (int rank = 0; rank < tried.ranks; ++rank) {
            const std::uint64_t own = results->at(static_cast<std::size_t>(rank)).updates;
            BOOST_TEST((rank < workers ? own * static_cast<std::uint64_t>(workers) : own) == updates, "rank " << rank);
        }
    }
    return several;
}

} // namespace
} // namespace unisono_matrix

BOOST_AUTO_TEST_CASE(several_workers) {
    using namespace unisono_matrix;
    const int ran = counts().ran;
    const un::Sgd sgd{.learning_rate = 0.1};
    int several = 0;
    several += check_several(un::Asynchronous{}, sgd);
    several += check_several(un::Asynchronous{.servers = 2}, sgd, 2, un::ClipByValue{.limit = 0.1});
    several += check_several(un::DelayCompensated{.lambda = 0}, sgd);
    several += check_several(un::Hogwild{}, un::Sgd{.learning_rate = 0.1, .momentum = 0.9});
    several += check_several(un::Hogwild{}, un::Adam{.learning_rate = 0.02}, 2, un::ClipByNorm{.max_norm = 0.3});
    BOOST_TEST(counts().ran - ran == 5);
    if (test::of_any_kind && !test::under_thread_sanitizer) BOOST_TEST(several == 2 + 1 + 2 + 4 + 4);
}
