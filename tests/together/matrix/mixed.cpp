// Policies that the tables of the other files lack: sums between hosts, narrow grids, rates that
// follow the batch, and 16-bit models whose losses are scaled.
#include "matrix.hpp"

#include "unisono/extensions/master_weights/master_weights.hpp"
#include "unisono/extensions/reducers/hierarchical.hpp"
#include "unisono/guard/loss_scaling.hpp"
#include "unisono/trainer/reproducible.hpp"

#include <cmath>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace unisono_matrix {
namespace {

using Numbers = std::array<double, columns>;

/// The gradient of these samples' mean loss.
Numbers gradient_at(const Numbers& weights, std::span<const std::size_t> all) {
    Numbers gradient{};
    for (const std::size_t i : all) {
        double error = -targets()[i];
        for (std::size_t j = 0; j < columns; ++j) error += inputs()[i * columns + j] * weights[j];
        for (std::size_t j = 0; j < columns; ++j)
            gradient[j] += 2 * error * inputs()[i * columns + j] / static_cast<double>(all.size());
    }
    return gradient;
}

/// Its samples are numbers. Model and oracle compute with the same code, and round to T in the same
/// place.
template <class T>
struct Line {
    std::array<T, columns> weights{}, slopes{};
    std::array<std::span<T>, 2> parts = {std::span(weights).template first<3>(), std::span(weights).template last<2>()};
    std::array<std::span<T>, 2> slope_parts = {std::span(slopes).template first<3>(),
                                               std::span(slopes).template last<2>()};
    Line() = default;
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;
    std::span<const std::span<T>> parameters() { return parts; }
    std::span<const std::span<T>> gradients() { return slope_parts; }
    double operator()(const std::vector<std::size_t>& batch, un::Pass& pass) {
        Numbers now{};
        for (std::size_t j = 0; j < columns; ++j) now[j] = wide(weights[j]);
        const Numbers gradient = gradient_at(now, batch);
        for (std::size_t j = 0; j < columns; ++j) slopes[j] = added(slopes[j], pass.loss_scale() * gradient[j]);
        return 0;
    }
    static T rounded(double x) {
        if constexpr (std::is_same_v<T, double>) return x;
        else return static_cast<T>(static_cast<float>(x));
    }
    static double wide(T x) {
        if constexpr (std::is_same_v<T, double>) return x;
        else return static_cast<double>(static_cast<float>(x));
    }
    static T added(T a, double b) { return rounded(wide(a) + b); }
};

struct Indices {
    [[nodiscard]] std::size_t size() const { return samples; }
    [[nodiscard]] std::vector<std::size_t> batch(std::span<const std::size_t> indices) const {
        return {indices.begin(), indices.end()};
    }
};

constexpr std::uint64_t order = 4;

/// Updates of all replicas together, with weights and sums of type W and gradients of a Line<T>.
/// Skips updates that are not finite.
template <class T, class W>
std::vector<double> expected(int world, const un::Sgd& sgd, double rate, const un::LossScaling* scaling, int& skipped) {
    std::vector<W> weights(columns);
    auto state = un::start<W>(sgd, columns);
    un::LossScale scale = scaling == nullptr ? un::LossScale{} : scaling->start();
    std::uint64_t updates = 0;
    const un::DistributedSampler sampler{.seed = order};
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
        std::vector<un::SampleStream> streams;
        for (std::int64_t r = 0; r < world; ++r)
            streams.push_back(
                sampler.stream(un::shape_of_rank(sampler, samples, batch_size, world, r), un::Epoch{epoch}));
        while (!streams[0].done()) {
            std::vector<W> sum(columns);
            double divisor = 0;
            bool finite = true;
            for (un::SampleStream& stream : streams) {
                const un::MicroBatch micro = stream.next();
                if (micro.samples.empty()) continue;
                Numbers now{};
                for (std::size_t j = 0; j < columns; ++j)
                    now[j] = Line<T>::wide(Line<T>::rounded(static_cast<double>(weights[j])));
                const Numbers gradient = gradient_at(now, micro.samples);
                const auto n = static_cast<double>(micro.samples.size());
                for (std::size_t j = 0; j < columns; ++j) {
                    const auto g = static_cast<W>(Line<T>::wide(Line<T>::rounded(scale.scale * gradient[j])));
                    finite = finite && std::isfinite(static_cast<double>(g));
                    sum[j] += static_cast<W>(n) * g;
                }
                divisor += n;
            }
            if (!finite) {
                scaling->back_off(scale);
                ++skipped;
                continue;
            }
            ++updates;
            sgd.update(state.all(), std::span<W>(weights), std::span<const W>(sum),
                       {rate, updates, 1 / (divisor * scale.scale)});
            if (scaling != nullptr) scaling->grow(scale);
        }
    }
    return {weights.begin(), weights.end()};
}

/// `oracle(world)`: the weights. MasterWeights trains 16-bit models, whose weights end as the
/// rounded float weights.
template <class T, class Oracle, class... Policies>
void cross(std::string_view what, double tolerance, const Oracle& oracle, const Policies&... policies) {
    ++counts().ran;
    for (const World& tried : worlds()) {
        test::any_on_processes = tried.processes;
        const test::Shared<Results> results;
        const auto all = unisono_test::outcomes(tried.ranks, [&](auto& world) {
            Line<T> model;
            Result& mine = results->at(static_cast<std::size_t>(world.rank()));
            const auto train = [&](auto& trained) {
                un::Trainer trainer{world,
                                    trained,
                                    un::DistributedSampler{.seed = order},
                                    un::BySamples{},
                                    un::Buckets{.first_bytes = 1, .bytes = 8},
                                    policies...};
                trainer.fit(Indices{}, {.epochs = epochs, .batch_size = batch_size, .progress = false});
                trainer.visit_parameters({0, columns}, [&](std::size_t flat, auto values) {
                    std::copy(values.begin(), values.end(), mine.weights.begin() + static_cast<std::ptrdiff_t>(flat));
                });
                mine.updates = trainer.updates();
            };
            if constexpr (std::is_same_v<T, double>) {
                train(model);
            } else {
                un::MasterWeights master(model);
                train(master);
                for (std::size_t j = 0; j < columns; ++j)
                    if (static_cast<float>(model.weights[j]) != static_cast<float>(Line<T>::rounded(mine.weights[j])))
                        throw std::runtime_error("the model's weights are not those of now");
            }
        });
        const std::string_view names[] = {what};
        compare(tried, names, all, *results, oracle(tried.ranks), tolerance);
    }
}

const un::Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};

template <class T, class W>
auto oracle_of(const un::LossScaling* scaling = nullptr, int* skipped = nullptr) {
    return [=](int world) {
        int left_out = 0;
        const auto weights = expected<T, W>(world, sgd, sgd.learning_rate, scaling, left_out);
        if (skipped != nullptr) *skipped += left_out;
        return weights;
    };
}

} // namespace
} // namespace unisono_matrix

BOOST_AUTO_TEST_CASE(sums_between_hosts) {
    using namespace unisono_matrix;
    const int ran = counts().ran;
    const un::HierarchicalReducer by_ring{.ranks_per_host = 2, .ring_bytes = 0, .chunk_bytes = 16};
    const un::HierarchicalReducer by_tree{.ranks_per_host = 2, .chunk_bytes = 16};
    const auto with = [&](const auto& reducer, const auto& update, const auto& sharding, const auto& accumulation) {
        check(reducer, update, sharding, un::FiniteGuard{}, sgd, un::DistributedSampler{.seed = 4}, accumulation,
              un::BySamples{}, un::ConstantRate{});
    };
    for (const auto& reducer : {by_ring, by_tree}) {
        with(reducer, un::Synchronous{}, un::Replicated{}, un::Accumulate{.steps = 3});
        with(reducer, OwnUpdate{}, EqualShards{}, un::NoAccumulation{});
        with(reducer, un::LocalSteps{.steps = 3}, un::Replicated{}, un::NoAccumulation{});
    }
    BOOST_TEST(counts().ran - ran == 6);
}

BOOST_AUTO_TEST_CASE(on_a_narrow_grid) {
    using namespace unisono_matrix;
    // Addends have 31 bits less the headroom, below their parameter's largest value.
    const double tolerance = 1e-4;
    cross<double>("narrow grid, native", tolerance, oracle_of<double, double>(), sgd, un::NarrowReproducible{});
    cross<double>("narrow grid, ring, slices", tolerance, oracle_of<double, double>(), sgd, un::NarrowReproducible{},
                  un::RingReducer{.chunk_bytes = 16}, OwnUpdate{}, EqualShards{});
}

BOOST_AUTO_TEST_CASE(rates_that_follow_the_batch) {
    using namespace unisono_matrix;
    for (const auto scaling : {un::BatchScaling::linear, un::BatchScaling::square_root}) {
        const auto oracle = [&](int world) {
            const double k = static_cast<double>(batch_size * world) / 4;
            int skipped = 0;
            const double rate = sgd.learning_rate * (scaling == un::BatchScaling::linear ? k : std::sqrt(k));
            return expected<double, double>(world, sgd, rate, nullptr, skipped);
        };
        cross<double>("rate by batch", 1e-11, oracle, sgd, un::BatchScaledRate{.base_batch = 4, .scaling = scaling});
    }
}

BOOST_AUTO_TEST_CASE(weights_of_16_bits) {
    using namespace unisono_matrix;
    cross<un::bfloat16>("bfloat16", 1e-5, oracle_of<un::bfloat16, float>(), sgd);
    cross<un::float16>("float16, ring, slices", 1e-5, oracle_of<un::float16, float>(), sgd,
                       un::RingReducer{.chunk_bytes = 16}, OwnUpdate{}, EqualShards{});
}

BOOST_AUTO_TEST_CASE(losses_are_scaled) {
    using namespace unisono_matrix;
    // At times above the range of float16.
    const un::LossScaling scaling{.initial = 0x1p18, .growth_interval = 3};
    int skipped = 0;
    cross<un::float16>("float16, scaled", 1e-5, oracle_of<un::float16, float>(&scaling, &skipped), sgd, scaling);
    BOOST_TEST(skipped > 3 * static_cast<int>(worlds().size()));
    cross<double>("scaled, slices", 1e-11, oracle_of<double, double>(&scaling), sgd, scaling, EqualShards{});
}
