// Gradients that travel in 16 bits to the owners of their slices differ from plain sums by no more
// than rounding. They have the same bits as without owners.
#include "base/trainer/models.hpp"
#include "base/trainer/outcomes.hpp"
#include "extensions/sharding/network.hpp"

#include "unisono/extensions/compression/cast.hpp"
#include "unisono/sharded.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr std::size_t columns = 40, samples = 24;

/// Each rank's parameters after two epochs of least squares, and the bytes that rank 0 sent.
template <class... Policies>
std::vector<float> trained(int ranks, const Policies&... policies) {
    const std::vector<float> x = un::torch_rand(1, samples * columns), y = un::torch_rand(2, samples);
    const test::Shared<std::array<std::array<float, columns>, 4>> ends;
    check_clean(outcomes(ranks, [&](auto& world) {
        LeastSquares<float> model(columns);
        un::Trainer trainer{world, model, un::Buckets{.first_bytes = 1, .bytes = 64},
                            un::Sgd{.learning_rate = 0.02, .momentum = 0.5}, policies...};
        trainer.fit(un::RowData<float, float>(x, columns, y), {.epochs = 2, .batch_size = 2, .progress = false});
        trainer.verify_replicas();
        std::ranges::copy(model.values(), ends->at(static_cast<std::size_t>(world.rank())).begin());
    }));
    return {ends->at(0).begin(), ends->at(0).end()};
}

double apart(const std::vector<float>& a, const std::vector<float>& b) {
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, static_cast<double>(std::abs(a[i] - b[i])));
    return worst;
}

/// The predictions of a network in units after training, which are the same on all ranks.
template <class... Policies>
std::vector<float> in_units(int ranks, const Policies&... policies) {
    using Network = LayersOf<float>;
    const std::vector<float> values = un::torch_rand(3, 24 * Network::inputs), labels = un::torch_rand(4, 24);
    const un::RowData data(values, Network::inputs, labels);
    const test::Shared<std::array<float, 24>> found;
    check_clean(outcomes(ranks, [&](auto& world) {
        Network network;
        un::Trainer trainer{world, network, un::Accumulate{.steps = 2}, un::Sgd{.learning_rate = 0.05}, policies...};
        trainer.fit(data, {.epochs = 3, .batch_size = 2, .progress = false});
        const auto outputs = trainer.predict(data);
        if (world.rank() == 0) std::ranges::copy(outputs, found->begin());
    }));
    return {found->begin(), found->end()};
}

} // namespace

BOOST_AUTO_TEST_SUITE(sharded)

BOOST_AUTO_TEST_CASE(owners_of_state_get_the_sums_that_all_would) {
    const auto plain = trained(3);
    for (const bool feedback : {true, false}) {
        const un::Bf16Wire wire{.error_feedback = feedback};
        const auto expected = trained(3, wire);
        BOOST_TEST(apart(expected, plain) > 0);
        BOOST_TEST(apart(expected, plain) < 0.02);
        // In one order over mapped memory.
        BOOST_TEST((trained(3, wire, un::StateSharding{}) == expected));
    }
    BOOST_TEST((trained(1, un::Bf16Wire{}, un::StateSharding{}) == trained(1)));
    BOOST_TEST(apart(trained(3, un::Fp16Wire{}, un::ParameterServerReducer{.servers = 2}), plain) < 0.005);
}

BOOST_AUTO_TEST_CASE(owners_of_gradients_get_them_too) {
    const un::Fp16Wire wire{.error_feedback = false};
    const auto plain = in_units(3, un::GradientSharding{});
    const auto rounded = in_units(3, un::GradientSharding{}, wire);
    BOOST_TEST(apart(rounded, plain) > 0);
    BOOST_TEST(apart(rounded, plain) < 0.005);
    BOOST_TEST((in_units(3, un::ParameterSharding{}, wire) == rounded));
    BOOST_TEST((in_units(1, un::GradientSharding{}, wire) == in_units(1, un::GradientSharding{})));
}

BOOST_AUTO_TEST_CASE(what_is_left_over_would_be_a_whole_gradient) {
    for (const auto& one : outcomes(2, [](auto& world) {
             LayersOf<float> network;
             un::Trainer trainer{world, network, un::GradientSharding{}, un::Fp16Wire{}};
         }))
        BOOST_TEST(one.says("fp16 wire.error_feedback is true, where gradients are sharded; expected false"), one.what);
}

BOOST_AUTO_TEST_SUITE_END()
