// Models made of functions and memory train like models with a class of their own, to the bit.
#include "../trainer/models.hpp"
#include "../trainer/outcomes.hpp"

#include "unisono/guard/loss_scaling.hpp"
#include "unisono/model/functional.hpp"
#include "unisono/trainer/trainer.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;
using Batch = un::RowBatch<double, double>;

const std::vector<double> values = {1, 2, 0.5, -1, 3, 0.25, -2, 1, 1, 0, 4, -3};
const std::vector<double> targets = {1, -2, 0.5, 2};
un::RowData<double, double> rows() { return {values, 3, targets}; }

double least_squares(std::span<const double> w, const Batch& batch, std::span<double> gradient) {
    double loss = 0;
    const double share = 1 / static_cast<double>(batch.rows());
    std::fill(gradient.begin(), gradient.end(), 0.0);
    for (std::size_t i = 0; i < batch.rows(); ++i) {
        double y = -batch.labels[i];
        for (std::size_t j = 0; j < w.size(); ++j) y += batch.row(i)[j] * w[j];
        loss += y * y * share;
        for (std::size_t j = 0; j < w.size(); ++j) gradient[j] += 2 * y * share * batch.row(i)[j];
    }
    return loss;
}

struct Found {
    double loss;
    std::vector<double> gradient;
};

const un::Sgd sgd{.learning_rate = 0.01, .momentum = 0.9};

/// Rank 0's weights after a training on `ranks`. Any rank's error is thrown.
template <class Make, class... Policies>
std::vector<double> trained(int ranks, Make make, Policies... policies) {
    const test::Shared<std::array<double, 3>> weights;
    const auto all = outcomes(ranks, [&](auto& world) {
        make([&](auto& model) {
            un::Trainer trainer{world, model, sgd, policies...};
            const auto data = rows();
            trainer.fit(data, {.epochs = 5, .batch_size = 2, .progress = false});
            if (world.rank() == 0) std::copy_n(std::span(model.parameters()).begin(), 3, weights->begin());
        });
    });
    for (const Outcome& one : all)
        if (one.failed) throw std::runtime_error(one.what);
    return {weights->begin(), weights->end()};
}

void written(auto&& use) {
    un::FunctionalModel model(std::vector<double>(3), [](std::span<const double> w, const Batch& batch,
                                                         std::span<double> g) { return least_squares(w, batch, g); });
    use(model);
}
void returned(auto&& use) {
    un::FunctionalModel model(std::vector<double>(3), [](std::span<const double> w, const Batch& batch) {
        Found found{0, std::vector<double>(w.size())};
        found.loss = least_squares(w, batch, found.gradient);
        return found;
    });
    use(model);
}
void in_buffers(auto&& use) {
    std::vector<double> w(3), g(3), one(3);
    un::BufferModel model(w, g, [&](const Batch& batch, un::Pass& pass) {
        const double loss = least_squares(w, batch, one);
        for (std::size_t j = 0; j < 3; ++j) g[j] += one[j] * pass.loss_scale();
        return loss;
    });
    use(model);
}

} // namespace

BOOST_AUTO_TEST_SUITE(functional_models)

BOOST_AUTO_TEST_CASE(all_forms_train_alike) {
    for (const int ranks : {1, 2}) {
        const auto expected = trained(ranks, [](auto use) { in_buffers(use); });
        BOOST_TEST(expected[0] != 0);
        BOOST_TEST(trained(ranks, [](auto use) { written(use); }) == expected);
        BOOST_TEST(trained(ranks, [](auto use) { returned(use); }) == expected);
        BOOST_TEST(trained(
                       ranks, [](auto use) { written(use); }, un::LossScaling{.initial = 1024}) == expected);
        BOOST_TEST(trained(
                       ranks, [](auto use) { in_buffers(use); }, un::LossScaling{.initial = 1024}) == expected);
    }
}

BOOST_AUTO_TEST_CASE(a_sum_instead_of_a_mean) {
    const auto sum = [](std::span<const float> w, const std::vector<float>& batch) {
        return std::pair(static_cast<double>(w[0]), std::vector<float>{batch[0]});
    };
    auto functional = un::functional_model<un::GradientKind::sum>(std::vector<float>(1), sum);
    std::vector<float> w(1), g(1);
    auto buffers = un::buffer_model<un::GradientKind::sum>(w, g, [](int, un::Pass&) { return 0.0; });
    static_assert(un::gradient_kind_of<decltype(functional)> == un::GradientKind::sum);
    static_assert(un::gradient_kind_of<decltype(buffers)> == un::GradientKind::sum);
    static_assert(un::gradient_kind_of<decltype(un::FunctionalModel(std::vector<float>(1), sum))> ==
                  un::GradientKind::mean);
    un::Pass pass;
    functional(std::vector<float>{3}, pass);
    functional(std::vector<float>{4}, pass);
    BOOST_TEST(functional.gradients()[0] == 7); // added
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
    std::vector<float> w(3), g(2);
    BOOST_CHECK_EXCEPTION(un::BufferModel(w, g, [](int, un::Pass&) { return 0.0; }), un::error, [](const un::error& e) {
        return e.code() == un::ErrorCode::bad_input &&
               std::string(e.what()).find("3 parameters and 2 gradients") != std::string::npos;
    });
    un::FunctionalModel model(std::vector<float>(3),
                              [](std::span<const float>, int) { return std::pair(0.0, std::vector<float>(2)); });
    un::Pass pass;
    BOOST_CHECK_EXCEPTION(model(1, pass), un::error, [](const un::error& e) {
        return e.code() == un::ErrorCode::bad_input &&
               std::string(e.what()).find("a gradient of 2 elements; expected 3") != std::string::npos;
    });
}

BOOST_AUTO_TEST_SUITE_END()
