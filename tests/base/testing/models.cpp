// Models, and a trainer made only of archetypes, which shows that it requires no more than the
// concepts.
#include "support.hpp"

#include "unisono/testing/accumulation_laws.hpp"
#include "unisono/testing/guard_laws.hpp"
#include "unisono/testing/learning_rate_laws.hpp"
#include "unisono/testing/model_laws.hpp"
#include "unisono/testing/optimizer_laws.hpp"
#include "unisono/testing/reducer_laws.hpp"
#include "unisono/testing/sampler_laws.hpp"
#include "unisono/trainer/trainer.hpp"

#include <array>
#include <cmath>
#include <cstddef>

namespace un = unisono;
using namespace un::testing;
using unisono_test::expect_lawful;
using unisono_test::expect_reported;

namespace {

using Batch = std::vector<double>;
const Batch batch{0.5, -1.25, 3, 4};

/// Two parameters, of three numbers and of one: loss = mean of (a x^2 + b x + c + d - 1)^2.
template <class T>
struct Parabola {
    std::vector<std::vector<T>> weights{{T(0.3), T(-0.2), T(0.7)}, {T(0.1)}}, gradient{{0, 0, 0}, {0}};
    std::vector<std::vector<T>>& parameters() { return weights; }
    std::vector<std::vector<T>>& gradients() { return gradient; }
    static std::vector<std::string> parameter_names() { return {"polynomial", "offset"}; }

    double operator()(const Batch& xs, un::Pass& pass) {
        double loss = 0;
        for (const double wide : xs) {
            const T x = T(wide), share = T(1) / T(xs.size());
            const T y = weights[0][0] * x * x + weights[0][1] * x + weights[0][2] + weights[1][0] - T(1);
            loss += double(y) * double(y) / double(xs.size());
            const T d = T(2) * y * share;
            gradient[0][0] += d * x * x, gradient[0][1] += d * x, gradient[0][2] += d, gradient[1][0] += d;
        }
        pass.ready(1);
        pass.ready(0);
        return loss;
    }
};

struct Overwrites : Parabola<double> {
    double operator()(const Batch& xs, un::Pass& pass) {
        gradient = {{0, 0, 0}, {0}};
        return Parabola::operator()(xs, pass);
    }
};
struct WrongSlope : Parabola<double> {
    double operator()(const Batch& xs, un::Pass& pass) {
        const double before = gradient[0][1];
        un::Pass quiet;
        const double loss = Parabola::operator()(xs, quiet);
        gradient[0][1] = before + 1.01 * (gradient[0][1] - before);
        pass.ready(0);
        return loss;
    }
};
struct Drifts : Parabola<double> {
    double calls = 0;
    double operator()(const Batch& xs, un::Pass& pass) { return Parabola::operator()(xs, pass) + ++calls; }
};
struct TrainsItself : Parabola<double> {
    double operator()(const Batch& xs, un::Pass& pass) {
        const double loss = Parabola::operator()(xs, pass);
        weights[1][0] -= 0.1 * gradient[1][0];
        return loss;
    }
};
struct Premature : Parabola<double> {
    double operator()(const Batch& xs, un::Pass& pass) {
        pass.ready(1);
        un::Pass quiet;
        return Parabola::operator()(xs, quiet);
    }
};
struct Misshapen : Parabola<double> {
    Misshapen() { gradient[0].pop_back(); }
};

/// A mean over many numbers, each with a small gradient, times `part`.
struct ManyMeans {
    float part = 1;
    std::vector<float> weights = std::vector<float>(1000, 0.3F), gradient = std::vector<float>(1000);
    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }
    double operator()(const Batch& xs, un::Pass&) {
        float loss = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const float difference = weights[i] - static_cast<float>(xs[i % xs.size()]);
            loss += difference * difference / 2000;
            gradient[i] += part * difference / 1000;
        }
        return loss;
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(certified_models)

BOOST_AUTO_TEST_CASE(lawful_ones_and_archetype) {
    ArchetypeModel least{.weight = 0.3};
    expect_lawful(model_laws(least, batch));
    Parabola<double> wide;
    expect_lawful(model_laws(wide, batch));
    BOOST_CHECK(wide.weights == Parabola<double>{}.weights); // unchanged
    Parabola<float> narrow;
    expect_lawful(model_laws(narrow, batch));
}

BOOST_AUTO_TEST_CASE(mutants) {
    const auto laws = [](auto mutant) { return model_laws(mutant, batch); };
    expect_reported(laws(Overwrites{}), {"a call must add to the gradients"});
    expect_reported(laws(WrongSlope{}), {"element 1 of parameter 0 (polynomial) has gradient", "the loss changes by"});
    expect_reported(laws(Drifts{}), {"the same call twice"});
    expect_reported(laws(TrainsItself{}), {"a call changed the parameters"});
    expect_reported(laws(Premature{}), {"parameter 1 (offset) changed its gradient after it was said to be ready"});
    expect_reported(laws(Misshapen{}), {"parameter 0 (polynomial) has 3 elements, its gradient 2"});
    for (const float part : {0.0F, 0.9F}) // no single element shows it
        expect_reported(laws(ManyMeans{.part = part}),
                        {"when all elements of parameter 0", "according to the gradient"});
    expect_lawful(laws(ManyMeans{}));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(archetypes)

namespace {
struct Numbers {
    [[nodiscard]] std::size_t size() const { return 12; }
    [[nodiscard]] Batch batch(std::span<const std::size_t> indices) const {
        Batch made;
        for (const std::size_t i : indices) made.push_back(static_cast<double>(i * i % 7));
        return made;
    }
};
} // namespace

BOOST_AUTO_TEST_CASE(a_trainer_made_of_them_trains) {
    // Serially: 12 samples, 2 ranks with batches of 3, so two updates per epoch.
    double expected = 0;
    for (int epoch = 0; epoch < 5; ++epoch) {
        for (std::size_t update = 0; update < 2; ++update) {
            double mean = 0;
            for (std::size_t i = update * 6; i < update * 6 + 6; ++i) mean += static_cast<double>(i * i % 7) / 6;
            expected -= 0.1 * (expected - mean);
        }
    }
    const auto train = [&](const auto& reducer) {
        std::array<double, 2> weights = {};
        un::run<un::InProcess>(2, [&](auto& world) {
            ArchetypeModel model;
            un::Trainer trainer{world,
                                model,
                                ArchetypeSampler{},
                                ArchetypeAccumulation{},
                                reducer,
                                ArchetypeGuard{},
                                ArchetypeOptimizer{.learning_rate = 0.1},
                                ArchetypeRate{}};
            trainer.fit(Numbers{}, {.epochs = 5, .batch_size = 3, .progress = false});
            weights.at(static_cast<std::size_t>(world.rank())) = model.weight;
        });
        for (const double weight : weights)
            BOOST_TEST(std::abs(weight - expected) <= 1e-12, weight << " is no " << expected);
    };
    train(ArchetypeReducer{});
    train(ArchetypeOwnerReducer{});
}

BOOST_AUTO_TEST_SUITE_END()
