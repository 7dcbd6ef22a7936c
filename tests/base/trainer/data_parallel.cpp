// A master that scatters makes the same updates as one rank on the whole batch. The test also
// counts its cost.
#include "models.hpp"
#include "outcomes.hpp"

#include "unisono/extensions/trainers/data_parallel.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr std::size_t columns = 5;
using Batch = un::RowBatch<double, double>;

Batch batch_of_rows(std::size_t rows, std::uint64_t seed) {
    Batch batch;
    batch.width = columns;
    un::Mt19937 generator(seed);
    batch.values.resize(rows * columns);
    batch.labels.resize(rows);
    un::torch_rand(generator, std::span<double>(batch.values));
    un::torch_rand(generator, std::span<double>(batch.labels));
    return batch;
}

/// The same model in two halves.
struct TwoWay : LeastSquares<double> {
    std::vector<double> outputs;
    TwoWay() : LeastSquares<double>(columns, 3) {}
    std::span<const double> forward(const Batch& batch) {
        outputs = predict(batch);
        return outputs;
    }
    void backward(const Batch& batch, std::span<const double> output_gradients) {
        for (std::size_t i = 0; i < batch.rows(); ++i)
            for (std::size_t j = 0; j < width; ++j) contiguous_gradient[j] += output_gradients[i] * batch.row(i)[j];
    }
};

double mean_square(std::span<const double> outputs, const Batch& batch, std::span<double> gradients) {
    double loss = 0;
    const auto n = static_cast<double>(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const double error = outputs[i] - batch.labels[i];
        loss += error * error / n;
        gradients[i] = 2 * error / n;
    }
    return loss;
}

const un::Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
constexpr std::size_t batch_sizes[] = {8, 7, 1, 5, 2};

std::vector<double> alone(std::vector<double>& losses) {
    std::vector<double> weights;
    un::Group<un::InProcess> world;
    LeastSquares<double> model(columns, 3);
    un::Trainer trainer{world, model, sgd};
    for (std::size_t i = 0; i < std::size(batch_sizes); ++i)
        losses.push_back(trainer.step(batch_of_rows(batch_sizes[i], i)).loss);
    return model.values();
}

void check_close(const std::vector<double>& found, const std::vector<double>& expected) {
    BOOST_REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        BOOST_TEST(std::abs(found[i] - expected[i]) <= 1e-12 * std::abs(expected[i]));
}

} // namespace

BOOST_AUTO_TEST_SUITE(data_parallel)

BOOST_AUTO_TEST_CASE(both_variants_equal_one_rank) {
    std::vector<double> expected_losses;
    const auto expected = alone(expected_losses);
    for (const int ranks : {1, 2, 3, 4}) {
        for (const bool on_master : {false, true}) {
            const auto count = static_cast<std::size_t>(ranks);
            std::vector<std::vector<double>> weights(count), losses(count);
            un::MasterReport report;
            const auto run = [&](auto& world, auto& parallel, const auto& model) {
                const bool master = world.rank() == 0;
                for (std::size_t i = 0;; ++i) {
                    const bool more = i < std::size(batch_sizes);
                    const Batch batch = master && more ? batch_of_rows(batch_sizes[i], i) : Batch{};
                    if (!parallel.step(batch)) break;
                    losses[static_cast<std::size_t>(world.rank())].push_back(parallel.last().loss);
                }
                weights[static_cast<std::size_t>(world.rank())] = model.values();
                if (master) report = parallel.report();
            };
            const auto all = outcomes(ranks, [&](auto& world) {
                if (on_master) {
                    TwoWay model;
                    un::MasterLossDataParallel parallel{world, model, Batch{}, &mean_square, sgd};
                    run(world, parallel, model);
                } else {
                    LeastSquares<double> model(columns, 3);
                    un::DataParallel parallel{world, model, Batch{}, sgd};
                    run(world, parallel, model);
                }
            });
            BOOST_TEST_CONTEXT(ranks << " ranks, loss " << (on_master ? "on the master" : "on replicas")) {
                for (const auto& outcome : all) BOOST_TEST(!outcome.failed, outcome.what);
                for (const auto& one : weights) check_close(one, expected);
                for (const auto& one : losses) check_close(one, expected_losses);
                // The bytes that went through the master, counted by hand.
                std::size_t others = 0, most = 0;
                for (const std::size_t rows : batch_sizes) {
                    const std::size_t own = (rows + count - 1) / count;
                    others += rows - own;
                    const std::size_t outputs = on_master ? 2 * rows * 8 + rows * 8 : (rows - own) * 8;
                    most = std::max(most, (rows - own) * columns * 8 + outputs);
                }
                BOOST_TEST(report.updates == std::size(batch_sizes));
                BOOST_TEST(report.input_bytes == others * 8 * (columns + (on_master ? 0 : 1)));
                BOOST_TEST(report.output_bytes == (on_master ? 2 * others * 8 : 0));
                BOOST_TEST(report.gradient_bytes == report.updates * columns * 8 * (count - 1));
                BOOST_TEST(report.parameter_bytes == report.gradient_bytes);
                BOOST_TEST(report.peak_bytes == most);
                BOOST_TEST(report.describe().find("through the master in 5 updates") != std::string::npos);
            }
        }
    }
}

namespace {

/// Whole batches in order. May fail at one of them.
struct Rows {
    std::size_t fails_at = 99;
    [[nodiscard]] std::size_t size() const { return 20; }
    [[nodiscard]] Batch batch(std::span<const std::size_t> samples) const {
        if (samples.front() == fails_at) throw std::runtime_error("cannot be read");
        const Batch all = batch_of_rows(size(), 7);
        Batch some;
        some.width = columns;
        for (const std::size_t sample : samples) {
            const auto row = all.row(sample);
            some.values.insert(some.values.end(), row.begin(), row.end());
            some.labels.push_back(all.labels[sample]);
        }
        return some;
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(fit_equals_one_rank) {
    const un::ScatterSampler sampler{.shuffle = true, .seed = 3};
    std::vector<double> expected;
    {
        un::Group<un::InProcess> world;
        LeastSquares<double> model(columns, 3);
        un::Trainer trainer{world, model, sampler, un::BySamples{}, sgd};
        trainer.fit(Rows{}, {.epochs = 2, .batch_size = 8, .progress = false});
        expected = model.values();
    }
    for (const bool on_master : {false, true}) {
        std::vector<std::vector<double>> weights(3);
        std::vector<std::uint64_t> updates(3);
        const auto all = outcomes(3, [&](auto& world) {
            const auto me = static_cast<std::size_t>(world.rank());
            const auto fit = [&](auto& parallel) {
                return parallel.fit(world.rank() == 0 ? Rows{} : Rows{.fails_at = 0},
                                    {.epochs = 2, .batch_size = 8, .sampler = sampler});
            };
            TwoWay model;
            if (on_master) {
                un::MasterLossDataParallel parallel{world, model, Batch{}, &mean_square, sgd};
                updates[me] = fit(parallel);
            } else {
                un::DataParallel parallel{world, model, Batch{}, sgd};
                updates[me] = fit(parallel);
            }
            weights[me] = model.values();
        });
        for (const auto& outcome : all) BOOST_TEST(!outcome.failed, outcome.what);
        for (const std::uint64_t one : updates) BOOST_TEST(one == 6u);
        for (const auto& one : weights) check_close(one, expected);
    }
}

BOOST_AUTO_TEST_CASE(fit_refuses_and_fails_on_every_rank) {
    const auto told = [](const Rows& data, const un::MasterFit& options, const char* words) {
        const auto all = outcomes(2, [&](auto& world) {
            LeastSquares<double> model(columns, 3);
            un::DataParallel parallel{world, model, Batch{}, sgd};
            parallel.fit(data, options);
        });
        for (const auto& outcome : all) BOOST_TEST(outcome.says(words), outcome.what);
    };
    told(Rows{}, {.batch_size = 0}, "batch");
    told(Rows{}, {.epochs = -1, .batch_size = 4}, "MasterFit.epochs is -1");
    told(Rows{.fails_at = 8}, {.batch_size = 4}, "cannot be read");
}

BOOST_AUTO_TEST_CASE(a_loss_that_throws_on_the_master) {
    const auto all = outcomes(3, [&](auto& world) {
        TwoWay model;
        const auto loss = [](std::span<const double>, const Batch&, std::span<double>) -> double {
            throw std::runtime_error("no loss");
        };
        un::MasterLossDataParallel parallel{world, model, Batch{}, loss, sgd};
        parallel.step(world.rank() == 0 ? batch_of_rows(6, 1) : Batch{});
    });
    BOOST_TEST(all[0].what == "no loss");
    for (const std::size_t rank : {1u, 2u}) {
        BOOST_TEST(all[rank].rank == 0);
        BOOST_TEST(all[rank].says("no loss"), all[rank].what);
    }
}

BOOST_AUTO_TEST_CASE(with_loss) {
    std::vector<double> losses;
    const auto expected = alone(losses);
    un::Group<un::InProcess> world;
    TwoWay model;
    un::WithLoss whole{model, &mean_square};
    un::Trainer trainer{world, whole, sgd};
    for (std::size_t i = 0; i < std::size(batch_sizes); ++i) trainer.step(batch_of_rows(batch_sizes[i], i));
    check_close(model.values(), expected);
}

BOOST_AUTO_TEST_SUITE_END()
