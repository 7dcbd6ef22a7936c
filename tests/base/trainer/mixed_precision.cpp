// Models in 16 bits with weights in float, and the scale of their loss.
#include "models.hpp"
#include "outcomes.hpp"

#include "unisono/extensions/master_weights/master_weights.hpp"
#include "unisono/trainer/hashes.hpp"
#include "unisono/unisono.hpp"
#include "unisono/updates.hpp"

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

/// Its gradient is its input times the scale, and infinite above 100.
struct Narrow {
    std::vector<double> first = std::vector<double>(2), second = std::vector<double>(1);
    std::vector<double> first_gradient = std::vector<double>(2), second_gradient = std::vector<double>(1);
    bool asks = true;
    double added_loss = 0;
    std::array<std::span<double>, 2> parameters() { return {first, second}; }
    std::array<std::span<double>, 2> gradients() { return {first_gradient, second_gradient}; }
    double operator()(const std::array<double, 3>& given, un::Pass& pass) {
        const double scale = asks ? pass.loss_scale() : 1;
        const auto narrow = [&](double x) {
            return std::abs(x * scale) > 100 ? std::numeric_limits<double>::infinity() : x * scale;
        };
        first_gradient[0] += narrow(given[0]);
        first_gradient[1] += narrow(given[1]);
        second_gradient[0] += narrow(given[2]);
        return given[0] + added_loss;
    }
};
const un::Sgd plain{.learning_rate = 1};

} // namespace

BOOST_AUTO_TEST_SUITE(mixed_precision)

// The rule of torch.cuda.amp.GradScaler, computed by hand.
BOOST_AUTO_TEST_CASE(the_scale_follows_the_rule) {
    const un::LossScaling policy{.initial = 8, .growth = 4, .backoff = 0.25, .growth_interval = 3, .least = 0.5};
    un::LossScale state = policy.start();
    const auto grows = [&](double scale, std::int64_t good) {
        policy.grow(state);
        BOOST_TEST(state.scale == scale);
        BOOST_TEST(state.good_updates == good);
    };
    const auto backs_off = [&](double scale, bool lowered) {
        BOOST_TEST(policy.back_off(state) == lowered);
        BOOST_TEST(state.scale == scale);
        BOOST_TEST(state.good_updates == 0);
    };
    grows(8, 1);
    grows(8, 2);
    grows(32, 0);
    grows(32, 1);
    backs_off(8, true); // and restarts the count
    grows(8, 1);
    grows(8, 2);
    backs_off(2, true);
    backs_off(0.5, true);
    backs_off(0.5, false);
    state.scale = 0x1p99;
    for (int i = 0; i < 6; ++i) policy.grow(state);
    BOOST_TEST(state.scale == 0x1p99); // would pass 2^100
}

BOOST_AUTO_TEST_CASE(an_overflow_on_one_rank_skips_on_all_and_lowers_the_scale) {
    for (const int ranks : {1, 3}) {
        check_clean(outcomes(ranks, [&](auto& world) {
            const bool last = world.rank() == world.size() - 1;
            Narrow model;
            un::Trainer trainer{world, model, plain,
                                un::LossScaling{.initial = 1024, .growth_interval = 2, .least = 16}};
            const auto step = [&](double g) { return trainer.step(std::array{0.03125, 0.0, last ? g : 0.0625}); };
            for (double scale = 1024; scale > 64; scale /= 2) { // 1 * 128 is too much
                const un::UpdateReport report = step(1);
                expect(!report.committed && report.loss_scale == scale, "skipped");
                expect(report.offender_rank == world.size() - 1, "rank");
                expect(report.offender_parameter == 1, "parameter");
                expect(model.first[0] == 0 && model.second[0] == 0, "as before");
            }
            expect(trainer.loss_scale() == un::LossScale{64, 0}, "64");
            expect(step(1).committed && step(1).committed, "goes on");
            expect(model.first[0] == -0.0625, "without the scale");
            const double mean = (1 + 0.0625 * (world.size() - 1)) / world.size();
            expect(std::abs(model.second[0] + 2 * mean) < 1e-15, "mean");
            expect(trainer.loss_scale() == un::LossScale{128, 0}, "grows");
            expect(!step(1).committed && trainer.loss_scale() == un::LossScale{64, 0}, "and falls");
            expect(trainer.describe().find("loss scale") != std::string::npos, "described");
            const un::StateHash hash = un::state_hash(trainer);
            trainer.state().restore_loss_scale({32, 1});
            expect(!(un::state_hash(trainer).optimizer == hash.optimizer), "hashed");
            expect(step(1).committed && trainer.loss_scale() == un::LossScale{64, 0}, "restored");
            // The guard handles gradients that no scale repairs. It stops, and names rank and
            // parameter.
            const double nan = std::numeric_limits<double>::quiet_NaN();
            expect(!step(nan).committed && !step(nan).committed, "64, 32");
            bool stopped = false;
            try {
                step(nan);
            } catch (const un::error& failed) {
                const std::string text = failed.what();
                stopped = failed.code() == un::ErrorCode::not_finite && failed.rank() == world.size() - 1 &&
                          text.find("the gradient of parameter 1 is NaN or infinite") != std::string::npos;
            }
            expect(stopped, "stops at the least scale");
            expect(step(1).committed, "may go on");
            trainer.verify_replicas();
        }));
    }
}

// A smaller scale repairs gradients that are not finite. It does not repair a loss.
BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_leaves_the_scale) {
    for (const int ranks : {1, 3}) {
        check_clean(outcomes(ranks, [&](auto& world) {
            Narrow model;
            un::Trainer trainer{world, model, plain, un::LossScaling{.initial = 64, .growth_interval = 3},
                                un::FiniteGuard{.action = un::OnOffence::skip}};
            const std::array<double, 3> given{0.03125, 0.0, 0.0625};
            expect(trainer.step(given).committed && trainer.loss_scale() == un::LossScale{64, 1}, "a good update");
            if (world.rank() == world.size() - 1) model.added_loss = std::numeric_limits<double>::quiet_NaN();
            const un::UpdateReport report = trainer.step(given);
            expect(!report.committed && report.offender_rank == world.size() - 1, "skipped");
            expect(trainer.loss_scale() == un::LossScale{64, 1}, "the scale stays");
            model.added_loss = 0;
            expect(trainer.step(given).committed && trainer.loss_scale() == un::LossScale{64, 2}, "goes on");
        }));
    }
}

BOOST_AUTO_TEST_CASE(refuses_bad_parameters_and_models_that_do_not_ask) {
    const auto says = [](const un::LossScaling& policy, const char* text, bool asks = true) {
        for (const Outcome& one : outcomes(2, [&](auto& world) {
                 Narrow model;
                 model.asks = asks;
                 un::Trainer trainer{world, model, plain, policy};
                 trainer.step(std::array{0.0, 0.0, 0.0});
             }))
            BOOST_TEST(one.says(text), one.what);
    };
    says({.initial = 0}, "LossScaling.initial is 0.000000; expected at least");
    says({.growth = 0.5}, "LossScaling.growth is 0.500000; expected a finite number of at least 1");
    says({.backoff = 1}, "LossScaling.backoff is 1.000000; expected more than 0 and less than 1");
    says({.growth_interval = 0}, "LossScaling.growth_interval is 0; expected at least 1");
    says({.least = -1}, "LossScaling.least is -1.000000; expected a finite number above 0");
    says({}, "the model did not ask for pass.loss_scale()", false);
}

namespace {

constexpr std::array<std::size_t, 3> sizes = {19, 1, 44};
constexpr std::size_t count = 64;
constexpr int updates = 40;

double initial(std::size_t i) { return 1 + 0.01 * static_cast<double>(i); }
double target(int seed, std::size_t i) { return std::sin(seed + 0.37 * static_cast<double>(i)); }

/// Pulls each weight to a target, in 16 bits. Reports for some parameters that they are ready.
template <class Low>
struct Pulled {
    std::vector<std::vector<Low>> values, slopes;
    std::vector<std::span<Low>> spans, gradient_spans;
    int seen = 0; ///< gradients that were not zero when a pass began

    Pulled() {
        std::size_t at = 0;
        for (const std::size_t size : sizes) {
            values.emplace_back(size);
            slopes.emplace_back(size, static_cast<Low>(3.0f)); // left-over values
            for (Low& x : values.back()) x = static_cast<Low>(static_cast<float>(initial(at++)));
            spans.push_back(values.back());
            gradient_spans.push_back(slopes.back());
        }
    }
    std::vector<std::span<Low>>& parameters() { return spans; }
    std::vector<std::span<Low>>& gradients() { return gradient_spans; }
    double operator()(const int& seed, un::Pass& pass) {
        pass.count_tokens(2);
        const auto scale = static_cast<float>(pass.loss_scale());
        std::size_t at = count;
        for (std::size_t p = spans.size(); p-- > 0;) {
            at -= spans[p].size();
            for (std::size_t i = 0; i < spans[p].size(); ++i) {
                if (static_cast<float>(gradient_spans[p][i]) != 0) ++seen;
                const float g = static_cast<float>(spans[p][i]) - static_cast<float>(target(seed, at + i));
                gradient_spans[p][i] = static_cast<Low>(g * scale);
            }
            if (p != 1) pass.ready(p);
        }
        return 0;
    }
};

/// The same, one replica after another, with float weights. Scaling by powers of two changes
/// nothing.
template <class Low>
std::vector<float> serial(int ranks, double rate, double max_norm) {
    std::vector<float> weights(count);
    for (std::size_t i = 0; i < count; ++i)
        weights[i] = static_cast<float>(static_cast<Low>(static_cast<float>(initial(i))));
    for (int update = 0; update < updates; ++update) {
        std::vector<double> mean(count);
        double squares = 0;
        for (std::size_t i = 0; i < count; ++i) {
            for (int micro = 0; micro < 2 * ranks; ++micro) {
                const float low = static_cast<float>(static_cast<Low>(weights[i]));
                const int seed = 10 * update + micro / 2 + 100 * (micro % 2);
                mean[i] += static_cast<double>(
                               static_cast<float>(static_cast<Low>(low - static_cast<float>(target(seed, i))))) /
                           (2 * ranks);
            }
            squares += mean[i] * mean[i];
        }
        const double factor = std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6));
        for (std::size_t i = 0; i < count; ++i)
            weights[i] = static_cast<float>(static_cast<double>(weights[i]) - rate * factor * mean[i]);
    }
    return weights;
}

template <class Low, class... Policies>
void check_master(double rate, double max_norm, const Policies&... policies) {
    for (const int ranks : {1, 3}) {
        const std::vector<float> expected = serial<Low>(ranks, rate, max_norm);
        const test::Shared<std::array<std::array<float, count>, 3>> ends;
        check_clean(outcomes(ranks, [&](auto& world) {
            Pulled<Low> model;
            un::MasterWeights master(model);
            un::Trainer trainer{world, master, un::Sgd{.learning_rate = rate},
                                un::Buckets{.first_bytes = 8, .bytes = 100}, policies...};
            for (int update = 0; update < updates; ++update) {
                const int seed = 10 * update + world.rank();
                const un::UpdateReport report = trainer.step(seed, seed + 100);
                expect(report.committed && report.tokens == 4 * world.size(), "committed");
            }
            trainer.verify_replicas();
            expect(model.seen == 0, "gradients are zeroed");
            std::size_t at = 0;
            for (std::size_t p = 0; p < sizes.size(); ++p)
                for (std::size_t i = 0; i < sizes[p]; ++i, ++at) {
                    const float weight = master.parameters()[p][i];
                    ends->at(static_cast<std::size_t>(world.rank()))[at] = weight;
                    expect(static_cast<float>(model.values[p][i]) == static_cast<float>(static_cast<Low>(weight)),
                           "the model's weights are the rounded ones");
                }
        }));
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
            BOOST_TEST((ends->at(rank) == ends->at(0)));
            for (std::size_t i = 0; i < count; ++i)
                BOOST_TEST(std::abs(ends->at(rank)[i] - expected[i]) <
                               // A weight that rounds the other way differs by less.
                               2e-5f,
                           "weight " << i << " is " << ends->at(rank)[i] << ", expected " << expected[i]);
        }
        // Each update is below half of a 16-bit step. Without float weights, nothing would change.
        BOOST_TEST(std::abs(expected[5] - static_cast<float>(initial(5))) > 0.003f);
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(updates_that_16_bits_do_not_see_add_up_in_float) {
    const double none = std::numeric_limits<double>::infinity();
    check_master<un::bfloat16>(2e-4, none);
    check_master<un::float16>(2e-4, 5.0, un::LossScaling{.initial = 256, .growth_interval = 7}, un::ClipByNorm{5.0},
                              un::StateSharding{});
}

namespace {

/// Its gradient is 1. Throws if it is told to.
struct Slope {
    std::vector<un::bfloat16> weights = {un::bfloat16(1.0f), un::bfloat16(2.0f)}, slopes = weights;
    std::span<un::bfloat16> parameters() { return weights; }
    std::span<un::bfloat16> gradients() { return slopes; }
    int calls = 0, throws_at = -1, judged = 0;
    double operator()(const un::RowBatch<float>&, un::Pass&) {
        if (calls++ == throws_at) throw std::runtime_error("not now");
        for (un::bfloat16& one : slopes) one = static_cast<un::bfloat16>(static_cast<float>(one) + 1);
        return 0;
    }
    void evaluate(const un::RowBatch<float>&, un::MeanMetric&) { ++judged; }
};

} // namespace

BOOST_AUTO_TEST_CASE(tied_weights_are_refused_where_they_would_become_two) {
    Pulled<un::bfloat16> model;
    model.gradient_spans[2] = std::span(model.slopes[2]).first(19);
    model.spans[2] = model.spans[0];
    BOOST_CHECK_EXCEPTION(un::MasterWeights{model}, un::error, [&](const un::error& e) {
        return std::string(e.what()).find("parameter 0 and parameter 2 share memory") != std::string::npos;
    });
}

// Code that trains and then uses or saves the model, without a call of the wrapper, has the current
// weights.
BOOST_AUTO_TEST_CASE(the_copy_is_current_when_a_call_of_the_trainer_returns) {
    const auto check = [](const auto&... policies) {
        check_clean(outcomes(2, [&](auto& world) {
            constexpr float rate = 0.125;
            const std::vector<float> rows(2 * 4);
            const un::RowData data(std::span<const float>(rows), 2);
            const auto batch = data.batch(std::array<std::size_t, 1>{0});
            Slope model;
            if (world.rank() != 0) model.weights = {un::bfloat16(7.0f), un::bfloat16(8.0f)};
            un::MasterWeights master(model);
            // A held span: asking again renews the copy.
            const std::span<const float> trained = master.parameters()[0];
            const auto current = [&](const char* after, float weight) {
                expect(trained[0] == weight && trained[1] == weight + 1, after);
                expect(static_cast<float>(model.weights[0]) == weight, after);
                expect(static_cast<float>(model.weights[1]) == weight + 1, after);
            };
            {
                un::Trainer trainer{world, master, un::Sgd{.learning_rate = rate}, policies...};
                current("Trainer", 1);
                trainer.step(batch);
                current("step", 1 - rate);
                trainer.step(batch, batch);
                current("step with two micro-batches", 1 - 2 * rate);
                // Two updates.
                const un::FitOptions options{.epochs = 1, .batch_size = 1, .progress = false};
                float weight = 1 - 2 * rate;
                trainer.fit(data, options, [&](const un::UpdateReport&) { current("on_update", weight -= rate); });
                current("fit", 1 - 4 * rate);
                trainer.fit(data, options);
                current("fit without on_update", 1 - 6 * rate);
                trainer.fit(data, {.epochs = 1, .batch_size = 2, .progress = false});
                current("fit of one update", 1 - 7 * rate);
                trainer.synchronise();
                current("synchronise", 1 - 7 * rate);
                if (world.rank() == 0) trainer.step(batch);
                static_cast<void>(trainer.join());
                current("join", 1 - 8 * rate);
                master.parameters()[0][0] = 0.5f; // by other code
                master.parameters()[0][1] = 1.5f;
                static_cast<void>(trainer.evaluate(data, {.batch_size = 4}, un::MeanMetric{}));
                current("evaluate", 0.5f);
                const std::span<float> held = master.parameters()[0];
                trainer.synchronise();
                held[0] = 0.25f; // by a span that the wrapper no longer sees
                held[1] = 1.25f;
                static_cast<void>(trainer.evaluate(data, {.batch_size = 4}, un::MeanMetric{}));
                current("evaluate after a write", 0.25f);
                trainer.synchronise();
                current("synchronise after a write", 0.25f);
                trainer.restore(trainer.progress());
                current("restore", 0.25f);
            }
            master.parameters()[0][0] = 3;
            master.parameters()[0][1] = 4;
            un::Pass pass(un::PassFacts{});
            master(batch, pass);
            current("a call without a trainer", 3);
        }));
    };
    check();
    check(un::StateSharding{});
}

BOOST_AUTO_TEST_CASE(the_copy_is_current_after_an_exception) {
    un::run<un::InProcess>(1, [&](auto& world) {
        const std::vector<float> rows(2 * 4);
        const un::RowData data(std::span<const float>(rows), 2);
        Slope model;
        un::MasterWeights master(model);
        un::Trainer trainer{world, master, un::Sgd{.learning_rate = 0.125}};
        const un::FitOptions options{.epochs = 1, .batch_size = 1, .progress = false};
        model.throws_at = 2;
        BOOST_CHECK_THROW(trainer.fit(data, options), std::runtime_error);
        BOOST_TEST(static_cast<float>(model.weights[0]) == 0.75f);
        int seen = 0;
        BOOST_CHECK_THROW(trainer.fit(data, options,
                                      [&](const un::UpdateReport&) {
                                          if (++seen == 2) throw std::runtime_error("enough");
                                      }),
                          std::runtime_error);
        BOOST_TEST(static_cast<float>(model.weights[0]) == 0.5f);
    });
}

// Ranks that synchronise at times, or update one set of parameters.
BOOST_AUTO_TEST_CASE(the_copy_is_current_where_ranks_go_their_own_ways) {
    const auto check = [](const auto& update) {
        check_clean(outcomes(2, [&](auto& world) {
            const std::vector<float> rows(2 * 4);
            const un::RowData data(std::span<const float>(rows), 2);
            Slope model;
            un::MasterWeights master(model);
            un::Trainer trainer{world, master, update, un::Sgd{.learning_rate = 0.125}};
            trainer.fit(data, {.epochs = 1, .batch_size = 1, .progress = false});
            trainer.step(data.batch(std::array<std::size_t, 1>{0}));
            trainer.synchronise();
            const float weight = static_cast<float>(model.weights[0]);
            expect(weight < 1, "trained");
            expect(weight == master.parameters()[0][0], "synchronise");
        }));
    };
    check(un::LocalSteps{.steps = 3});
    check(un::Hogwild{});
    check(un::Asynchronous{.servers = 1});
}

BOOST_AUTO_TEST_CASE(a_loss_beside_the_model_is_scaled_for_it) {
    struct TwoWay {
        std::vector<float> weights = {2.0f}, slopes = {0.0f}, out = {0.0f};
        std::span<float> parameters() { return weights; }
        std::span<float> gradients() { return slopes; }
        std::span<const float> forward(const float& x) {
            out[0] = weights[0] * x;
            return out;
        }
        void backward(const float& x, std::span<const float> by_output) {
            seen = by_output[0];
            slopes[0] += by_output[0] * x;
        }
        float seen = 0;
    };
    un::run<un::InProcess>(1, [](auto& world) {
        TwoWay inner;
        un::WithLoss model(inner, [](auto outputs, const float&, auto gradients) {
            gradients[0] = 1;
            return static_cast<double>(outputs[0]);
        });
        un::Trainer trainer{world, model, plain, un::LossScaling{.initial = 64}};
        BOOST_TEST(trainer.step(0.5f).loss == 1.0);
        BOOST_TEST(inner.seen == 64.0f);
        BOOST_TEST(inner.weights[0] == 1.5f);
    });
}

BOOST_AUTO_TEST_SUITE_END()
