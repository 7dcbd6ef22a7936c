// Objectives over a whole data set.
#include "models.hpp"
#include "outcomes.hpp"

#include "unisono/extensions/trainers/full_batch.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/sampler/replicas.hpp"
#include "unisono/trainer/reproducible.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr std::size_t columns = 4, samples = 23;
const std::vector<double> values = [] {
    un::Mt19937 random{7};
    std::vector<double> made(columns * samples);
    for (double& one : made) one = static_cast<double>(random() % 2000) / 1000 - 1;
    return made;
}();
const std::array<double, columns> truth = {1, -2, 0.5, 3};
const std::vector<double> targets = [] {
    std::vector<double> made(samples);
    for (std::size_t i = 0; i < samples; ++i)
        for (std::size_t j = 0; j < columns; ++j) made[i] += values[i * columns + j] * truth[j];
    return made;
}();
un::RowData<double, double> rows() { return {values, columns, targets}; }

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * (1 + std::abs(b)); }

/// By the formula: the mean of (x.w - t)^2, and its gradient.
double by_hand(const std::vector<double>& w, std::vector<double>& gradient) {
    gradient.assign(columns, 0);
    double loss = 0;
    for (std::size_t i = 0; i < samples; ++i) {
        double error = -targets[i];
        for (std::size_t j = 0; j < columns; ++j) error += values[i * columns + j] * w[j];
        loss += error * error / samples;
        for (std::size_t j = 0; j < columns; ++j) gradient[j] += 2 * error * values[i * columns + j] / samples;
    }
    return loss;
}

} // namespace

BOOST_AUTO_TEST_SUITE(searches)

BOOST_AUTO_TEST_CASE(an_objective_is_the_mean_over_all_samples) {
    const auto data = rows();
    const auto check = [&](auto& world, auto& model) {
        un::FullBatch objective{world, model, data, {.batch_size = 3}};
        std::vector<double> x = objective.start(), gradient(columns), expected;
        expect(objective.count() == columns && x == std::vector<double>(columns), "the start");
        for (int step = 0; step < 3; ++step) {
            const double loss = by_hand(x, expected);
            expect(near(objective(x), loss), "the value");
            expect(near(objective(x, gradient), loss), "the value again");
            for (std::size_t j = 0; j < columns; ++j) expect(near(gradient[j], expected[j]), "the gradient");
            expect(objective.evaluations() == static_cast<std::uint64_t>(step) + 1, "one pass for both");
            expect(model.values() == x, "the model's parameters are x");
            // Other code uses the model.
            for (auto& piece : model.parameters()) std::fill(piece.begin(), piece.end(), 9.0);
            expect(near(objective(x), loss) && model.values() == x, "the parameters are x where f(x) is known");
            expect(objective.evaluations() == static_cast<std::uint64_t>(step) + 1, "known");
            for (std::size_t j = 0; j < columns; ++j) x[j] -= 0.3 * gradient[j];
        }
    };
    for (const int ranks : {1, 2, 3}) {
        check_clean(outcomes(ranks, [&](auto& world) {
            LeastSquares<double> whole(columns);
            check(world, whole);
            LeastSquares<double, un::GradientKind::sum, true> pieces(columns, 3);
            check(world, pieces);
        }));
    }
}

BOOST_AUTO_TEST_CASE(an_optimizer_that_asks_for_the_whole_finds_the_minimum) {
    const auto data = rows();
    const test::Shared<std::array<std::array<double, columns>, 4>> found;
    for (int ranks = 1; ranks <= 4; ++ranks) {
        check_clean(outcomes(ranks, [&](auto& world) {
            LeastSquares<double> model(columns);
            un::FullBatch objective{
                world, model, data, {.batch_size = 2}, un::Reproducible{}, un::Replicas{.count = 4}};
            // Barzilai and Borwein, 1988: the last two gradients determine the length of a step.
            std::vector<double> x = objective.start(), gradient(columns), before_x = x, before_gradient = gradient;
            double rate = 0.1;
            for (int step = 0; step < 200; ++step) {
                if (objective(x, gradient) < 1e-24) break;
                double both = 0, square = 0;
                for (std::size_t j = 0; j < columns; ++j) {
                    const double g = gradient[j] - before_gradient[j];
                    both += (x[j] - before_x[j]) * g;
                    square += g * g;
                }
                if (step > 0 && square > 0) rate = both / square;
                before_x = x;
                before_gradient = gradient;
                for (std::size_t j = 0; j < columns; ++j) x[j] -= rate * gradient[j];
            }
            for (std::size_t j = 0; j < columns; ++j)
                expect(std::abs(x[j] - truth[j]) < 1e-9, "the minimum of " + std::to_string(j));
            if (world.rank() == 0)
                std::copy(x.begin(), x.end(), (*found)[static_cast<std::size_t>(world.size() - 1)].begin());
        }));
    }
    for (std::size_t i = 1; i < 4; ++i) // the whole search has the same bits
        BOOST_TEST(std::memcmp(&(*found)[i], &(*found)[0], sizeof((*found)[0])) == 0, i + 1 << " ranks");
}

BOOST_AUTO_TEST_CASE(where_it_is_not_finite) {
    const auto data = rows();
    check_clean(outcomes(2, [&](auto& world) {
        LeastSquares<double> model(columns);
        un::FullBatch objective{world, model, data, {}, un::FiniteGuard{un::OnOffence::skip}};
        std::vector<double> x(columns, 1), gradient(columns, 1);
        x[1] = 1e200;
        expect(objective(x, gradient) == std::numeric_limits<double>::infinity(), "infinite");
        expect(gradient == std::vector<double>(columns, 0.0), "without a direction");
        x[1] = 1;
        expect(std::isfinite(objective(x, gradient)) && gradient[0] != 0, "and finite again");
        LeastSquares<double> other(columns);
        un::FullBatch stops{world, other, data, {}};
        x[1] = 1e200;
        try {
            stops(x);
            throw std::runtime_error("not refused");
        } catch (const un::error& e) {
            expect(e.code() == un::ErrorCode::not_finite, e.what());
        }
        x[1] = 1;
        expect(std::isfinite(stops(x)), "it goes on");
    }));
}

/// Its gradient fits the type, and times the loss scale at first does not.
struct Steep : LeastSquares<double> {
    using LeastSquares<double>::LeastSquares;
    double operator()(const un::RowBatch<double, double>& batch, un::Pass& pass) {
        const double scale = pass.loss_scale();
        const double loss = LeastSquares<double>::operator()(batch, pass);
        for (double& one : contiguous_gradient)
            one = scale > 16 ? std::numeric_limits<double>::infinity() : one * scale;
        return loss;
    }
};

// A gradient that only the loss scale makes infinite is computed again with a lower one.
BOOST_AUTO_TEST_CASE(with_loss_scaling) {
    const auto data = rows();
    check_clean(outcomes(2, [&](auto& world) {
        Steep model(columns);
        un::FullBatch objective{world, model, data, {}, un::LossScaling{.initial = 256}};
        std::vector<double> x(columns, 1), gradient(columns), expected(columns);
        expect(near(objective(x), by_hand(x, expected)), "its value");
        expect(objective.evaluations() == 5, "256, 128, 64, 32, 16");
        objective(x, gradient);
        for (std::size_t i = 0; i < columns; ++i) expect(near(gradient[i], expected[i]), "its gradient");
        expect(objective.evaluations() == 5, "is known");
    }));
}

BOOST_AUTO_TEST_CASE(misuse_of_an_objective) {
    const auto data = rows();
    const auto refused = [](const std::vector<Outcome>& all, un::ErrorCode code, const std::string& words) {
        for (const Outcome& one : all) BOOST_TEST((one.ours && one.code == code && one.says(words)), one.what);
    };
    refused(outcomes(2,
                     [&](auto& world) {
                         LeastSquares<double> model(columns);
                         un::FullBatch objective{world, model, data, {}};
                         std::vector<double> x(columns, world.rank());
                         objective(x);
                     }),
            un::ErrorCode::mismatch, "the hash of x");
    refused(outcomes(1,
                     [&](auto& world) {
                         LeastSquares<double> model(columns);
                         un::FullBatch objective{world, model, data, {}};
                         objective(std::vector<double>(3));
                     }),
            un::ErrorCode::bad_input, "found 3 parameters; expected 4");
    refused(outcomes(1,
                     [&](auto& world) {
                         LeastSquares<double> model(columns);
                         un::FullBatch objective{world, model, data, {.batch_size = 0}};
                     }),
            un::ErrorCode::bad_input, "batch_size is 0");
    const un::RowData<double, double> empty({}, columns, {});
    refused(outcomes(2,
                     [&](auto& world) {
                         LeastSquares<double> model(columns);
                         un::FullBatch objective{world, model, empty, {}};
                         objective(std::vector<double>(columns));
                     }),
            un::ErrorCode::bad_input, "empty");
}

BOOST_AUTO_TEST_SUITE_END()
