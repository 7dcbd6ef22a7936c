// Every rank refuses bad input and names it. No rank hangs.
#include "models.hpp"
#include "outcomes.hpp"

#include "unisono/reproducible.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();
const std::vector<float> values = un::torch_rand(3, 60);

un::RowData<float> rows(std::size_t count = 20) { return {std::span(values).first(count * 3), 3}; }

un::FitOptions quiet(un::FitOptions options) {
    options.progress = false;
    return options;
}

/// All ranks saw this error, and its text has all of these words.
void check_all(const std::vector<Outcome>& all, un::ErrorCode code, const std::vector<std::string>& words) {
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        BOOST_TEST_CONTEXT("rank " << rank << ": " << all[rank].what) {
            BOOST_TEST(all[rank].ours);
            BOOST_TEST(name_of(all[rank].code) == name_of(code));
            for (const auto& word : words) BOOST_TEST(all[rank].says(word), "the message lacks '" << word << "'");
        }
    }
}

/// Each rank calls call(trainer, rank).
template <class Call, class... Policies>
std::vector<Outcome> called(int ranks, Call call, Policies... policies) {
    return outcomes(ranks, [&](auto& world) {
        SumOfOutputs<float> model(3);
        un::Trainer trainer{world, model, policies...};
        call(trainer, world.rank());
    });
}

template <class... Policies>
std::vector<Outcome> fit_outcomes(int ranks, const un::FitOptions& options, std::size_t samples, Policies... policies) {
    return called(
        ranks, [&](auto& trainer, int) { trainer.fit(rows(samples), quiet(options)); }, policies...);
}

/// As SumOfOutputs, but one rank makes a mistake in one of its calls.
enum class Deed { throws, nan_gradient, infinite_gradient, nan_loss, ready_twice, ready_unknown };

struct Culprit : SumOfOutputs<float> {
    int rank, culprit, at_call, calls = 0;
    Deed deed;
    std::vector<std::span<float>> spans, gradient_spans;
    std::vector<std::string> names = {"weight", "bias"};

    Culprit(int own_rank, int bad_rank, int call, Deed what)
        : SumOfOutputs<float>(3), rank(own_rank), culprit(bad_rank), at_call(call), deed(what) {
        spans = {std::span(weights).first(2), std::span(weights).subspan(2)};
        gradient_spans = {std::span(gradient).first(2), std::span(gradient).subspan(2)};
    }
    Culprit(const Culprit&) = delete;
    Culprit& operator=(const Culprit&) = delete;
    auto& parameters() { return spans; }
    auto& gradients() { return gradient_spans; }
    auto& parameter_names() { return names; }
    double operator()(const un::RowBatch<float>& batch, un::Pass& pass) {
        const double loss = SumOfOutputs<float>::operator()(batch, pass);
        if (rank != culprit || calls++ != at_call) return loss;
        switch (deed) {
        case Deed::throws: throw std::runtime_error("the dog ate my batch");
        case Deed::nan_gradient: gradient[2] = std::numeric_limits<float>::quiet_NaN(); break;
        case Deed::infinite_gradient: gradient[1] = -std::numeric_limits<float>::infinity(); break;
        case Deed::nan_loss: return no_number;
        case Deed::ready_twice: pass.ready(0), pass.ready(0); break;
        case Deed::ready_unknown: pass.ready(2); break;
        }
        return loss;
    }
};

/// Counts tokens before and after it reports that its gradient is ready.
struct Late : SumOfOutputs<float> {
    static constexpr un::GradientKind gradient_kind = un::GradientKind::mean;
    double first, later;
    Late(double before, double after) : SumOfOutputs<float>(3), first(before), later(after) {}
    double operator()(const un::RowBatch<float>& batch, un::Pass& pass) {
        pass.count_tokens(first);
        const double loss = SumOfOutputs<float>::operator()(batch, pass);
        pass.ready(0);
        pass.count_tokens(later);
        return loss;
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(bad_input)

BOOST_AUTO_TEST_CASE(hyperparameters) {
    for (const int ranks : {1, 3}) {
        const auto refused = [&](const auto& policy, const std::vector<std::string>& words) {
            check_all(fit_outcomes(ranks, {.batch_size = 2}, 20, policy), un::ErrorCode::bad_input, words);
        };
        refused(un::Sgd{.learning_rate = no_number}, {"Sgd", "learning_rate", "nan"});
        refused(un::Sgd{.momentum = -1}, {"momentum", "-1"});
        refused(un::WarmupRate{.updates = 0}, {"WarmupRate.updates"});
        refused(un::RingReducer{.chunk_bytes = 0}, {"RingReducer.chunk_bytes"});
        refused(un::ParameterServerReducer{.servers = ranks + 1}, {"servers", std::to_string(ranks + 1)});
        refused(un::ParameterServerReducer{.servers = 0}, {"servers"});
        refused(un::Buckets{.first_bytes = 0}, {"Buckets.first_bytes"});
    }
}

BOOST_AUTO_TEST_CASE(sizes) {
    for (const int ranks : {1, 2, 3}) {
        const auto refused = [&](const un::FitOptions& options, std::size_t samples,
                                 const std::vector<std::string>& words) {
            check_all(fit_outcomes(ranks, options, samples), un::ErrorCode::bad_input, words);
        };
        refused({.batch_size = 2}, 0, {"data set is empty"});
        refused({.batch_size = 21}, 20, {"batch_size", "21", "20"});
        refused({.batch_size = 0}, 20, {"FitOptions.batch_size"});
        refused({.batch_size = -4}, 20, {"batch_size", "-4"});
        refused({.epochs = 0, .batch_size = 2}, 20, {"epochs"});
        refused({.epochs = -1, .batch_size = 2}, 20, {"epochs", "-1"});
        refused({.batch_size = std::numeric_limits<std::int64_t>::max()}, 20, {"batch_size"});
        refused({.batch_size = 2, .start = un::Position{un::Epoch{0}, 21}}, 20, {"21"});
    }
}

BOOST_AUTO_TEST_CASE(global_batch) {
    const un::Accumulate twice{.steps = 2};
    check_all(fit_outcomes(2, {.batch_size = 2, .global_batch_size = 9}, 20, twice), un::ErrorCode::bad_input,
              {"global_batch_size", "9", "8"});
    check_all(fit_outcomes(2, {.global_batch_size = 10}, 20, twice), un::ErrorCode::bad_input, {"multiple of 4"});
    for (const auto& outcome : fit_outcomes(2, {.global_batch_size = 8}, 20, twice))
        BOOST_TEST(!outcome.failed, outcome.what);
    for (const auto& outcome : fit_outcomes(2, {.batch_size = 2, .global_batch_size = 8}, 20, twice))
        BOOST_TEST(!outcome.failed, outcome.what);
}

BOOST_AUTO_TEST_CASE(sampler_and_accumulation) {
    check_all(fit_outcomes(2, {.batch_size = 2}, 20, un::InterleavedSampler{.replicas = 3}, un::Accumulate{.steps = 4}),
              un::ErrorCode::bad_input, {"steps", "4", "3"});
    check_all(fit_outcomes(2, {.batch_size = 2}, 20, un::Accumulate{.steps = 0}), un::ErrorCode::bad_input, {"steps"});
    // An epoch has 5 rounds.
    const un::Accumulate never{.steps = 100, .short_window = un::ShortWindow::drop};
    check_all(fit_outcomes(2, {.epochs = 5, .batch_size = 2}, 20, never), un::ErrorCode::bad_input,
              {"100 micro-batches", "an epoch has 5", "there would be no update"});
    check_all(fit_outcomes(2, {.batch_size = 2}, 20, un::InterleavedSampler{.replicas = 0}), un::ErrorCode::bad_input,
              {"replicas"});
}

BOOST_AUTO_TEST_CASE(tokens_never_counted) {
    check_all(fit_outcomes(2, {.batch_size = 2}, 20, un::ByTokens{}), un::ErrorCode::bad_input, {"count_tokens"});
}

/// Counts so many tokens in each micro-batch.
struct Counted : SumOfOutputs<float> {
    static constexpr un::GradientKind gradient_kind = un::GradientKind::mean;
    double count;
    explicit Counted(double tokens) : SumOfOutputs<float>(3), count(tokens) {}
    double operator()(const un::RowBatch<float>& batch, un::Pass& pass) {
        pass.count_tokens(count);
        return SumOfOutputs<float>::operator()(batch, pass);
    }
};

// No weight makes parameters infinite or NaN: those that floats cannot be multiplied or divided by
// are refused.
BOOST_AUTO_TEST_CASE(weights_that_no_float_holds) {
    const auto fitted = [](int ranks, double tokens, const auto& weighing) {
        return outcomes(ranks, [&](auto& world) {
            Counted model(tokens);
            un::Trainer trainer{world, model, weighing, un::Accumulate{.steps = 2}};
            trainer.fit(rows(), quiet({.batch_size = 2}));
            for (const float one : model.weights)
                if (!std::isfinite(one)) throw std::runtime_error("a weight is not finite");
        });
    };
    for (const int ranks : {1, 2}) {
        for (const double tokens : {1e-50, 1e-300})
            check_all(fitted(ranks, tokens, un::ByTokens{}), un::ErrorCode::bad_input,
                      {"weighing by tokens", "add up"});
        check_all(fitted(ranks, 1e39, un::ByTokens{}), un::ErrorCode::bad_input, {"by tokens", "multiplier 1e+39"});
        for (const double tokens : {-1.0, no_number, std::numeric_limits<double>::infinity()})
            for (const auto& one : fitted(ranks, tokens, un::ReplicasAlike{}))
                BOOST_TEST((one.failed && one.ours && one.says("count_tokens")), one.what);
        for (const double tokens : {1e-30, 1e30})
            for (const auto& one : fitted(ranks, tokens, un::ByTokens{})) BOOST_TEST(!one.failed, one.what);
    }
}

BOOST_AUTO_TEST_CASE(tokens_counted_late) {
    const auto fitted = [](int ranks, double first, double later, const auto& weighing) {
        return outcomes(ranks, [&](auto& world) {
            Late model(first, later);
            un::Trainer trainer{world, model, weighing};
            trainer.fit(rows(), quiet({.batch_size = 2}));
        });
    };
    for (const int ranks : {1, 2}) {
        for (const double first : {0.0, 4.0})
            check_all(
                fitted(ranks, first, 6, un::ByTokens{}), un::ErrorCode::bad_input,
                {"parameter 0: tokens were counted after the first gradient was complete; expected all before it"});
        for (const auto& one : fitted(ranks, 4, 0, un::ByTokens{})) BOOST_TEST(!one.failed, one.what);
        // No weight.
        for (const auto& one : fitted(ranks, 4, 6, un::BySamples{})) BOOST_TEST(!one.failed, one.what);
    }
}

BOOST_AUTO_TEST_CASE(options_that_differ) {
    check_all(
        called(3, [](auto& trainer, int rank) { trainer.fit(rows(rank == 2 ? 18 : 20), quiet({.batch_size = 2})); }),
        un::ErrorCode::mismatch, {"data.size()", "18", "20", "rank 2"});
    const auto with_seed = [](auto& trainer, int rank) {
        trainer.fit(rows(), quiet({.batch_size = 2, .seed = rank == 1 ? 8u : 7u}));
    };
    check_all(called(3, with_seed), un::ErrorCode::mismatch, {"FitOptions.seed is 8 on rank 1", "7"});
    // Only one rank finds its options bad. The others are told.
    const auto one =
        called(3, [](auto& trainer, int rank) { trainer.fit(rows(), quiet({.batch_size = rank == 1 ? -1 : 2})); });
    check_all(one, un::ErrorCode::bad_input, {"FitOptions.batch_size"});
    BOOST_TEST(one[0].rank == 1);
    BOOST_TEST(one[2].says("rank 1"));
}

BOOST_AUTO_TEST_CASE(a_refused_fit_changes_nothing) {
    for (const int ranks : {1, 2}) {
        const auto all = outcomes(ranks, [&](auto& world) {
            SumOfOutputs<float> model(3);
            un::Trainer trainer{world, model, un::Sgd{}};
            const auto refuses = [&](const un::FitOptions& options) {
                const un::TrainingProgress before = trainer.progress();
                bool refused = false;
                try {
                    trainer.fit(rows(), quiet(options));
                } catch (const un::error&) {
                    refused = true;
                }
                if (!refused || trainer.progress() != before) throw std::runtime_error("accepted, or changed");
            };
            if (ranks > 1) { // after a mismatch the group remains usable
                refuses({.batch_size = 2, .start = un::Position{un::Epoch{0}, 2 * world.rank()}});
            } else {
                refuses({.batch_size = 2, .start = un::Position{un::Epoch{0}, -5}});
                refuses({.batch_size = 2, .start = un::Position{un::Epoch{7}, 0}, .read_ahead = -1});
                trainer.restore({.seed = 7, .data_size = 20, .restored = true});
                refuses({.batch_size = 2, .seed = 8});
                refuses({.batch_size = 2, .seed = 8}); // as before
            }
            trainer.fit(rows(), quiet({.batch_size = 2, .seed = 7}));
        });
        for (const Outcome& one : all) BOOST_TEST(!one.failed, one.what);
    }
}

BOOST_AUTO_TEST_CASE(models_that_differ) {
    const auto counts = outcomes(3, [&](auto& world) {
        LeastSquares<float> model(4, world.rank() == 1 ? 2 : 4);
        un::Trainer trainer{world, model};
    });
    check_all(counts, un::ErrorCode::mismatch, {"rank 1", "2 parameters", "rank 0's 1"});
    const auto sizes = outcomes(3, [&](auto& world) {
        LeastSquares<float> model(world.rank() == 2 ? 5 : 4, 3);
        un::Trainer trainer{world, model};
    });
    check_all(sizes, un::ErrorCode::mismatch, {"parameter 1", "2 elements on rank 2", "1 on rank 0"});
    const auto types = outcomes(2, [&](auto& world) {
        if (world.rank() == 0) {
            LeastSquares<float> model(4);
            un::Trainer trainer{world, model};
        } else {
            LeastSquares<double> model(4);
            un::Trainer trainer{world, model};
        }
    });
    check_all(types, un::ErrorCode::mismatch, {"float64", "float32", "rank 1"});
}

BOOST_AUTO_TEST_CASE(policies_that_differ) {
    const auto rate = outcomes(3, [&](auto& world) {
        SumOfOutputs<float> model(3);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = world.rank() == 2 ? 0.2 : 0.1}};
    });
    check_all(rate, un::ErrorCode::mismatch, {"rank 2", "optimizer", "Sgd(learning_rate 0."});
    const auto seed = outcomes(2, [&](auto& world) {
        SumOfOutputs<float> model(3);
        un::Trainer trainer{world, model, un::DistributedSampler{.seed = static_cast<std::uint64_t>(world.rank())}};
    });
    check_all(seed, un::ErrorCode::mismatch, {"rank 1", "sampler", "DistributedSampler(shuffle true, seed "});
    const auto nested = outcomes(2, [&](auto& world) {
        SumOfOutputs<float> model(3);
        const auto warm = un::WarmupRate{.updates = 3 + static_cast<std::uint64_t>(world.rank())};
        un::Trainer trainer{world, model, un::then(warm, un::CosineRate{})};
    });
    check_all(nested, un::ErrorCode::mismatch, {"rank 1", "learning rate"});
    const auto kind = outcomes(2, [&](auto& world) {
        SumOfOutputs<float> model(3);
        if (world.rank() == 0) un::Trainer trainer{world, model, un::Sgd{}};
        else un::Trainer trainer{world, model, un::AdamW{}};
    });
    check_all(kind, un::ErrorCode::mismatch, {"rank 1", "optimizer"});
}

// A rank that flushes subnormal numbers would give other gradients for the same samples.
BOOST_AUTO_TEST_CASE(floating_point_modes_that_differ) {
    using Mode = un::detail::FloatingPointMode;
    const auto fails = [](bool later, auto... policies) {
        const auto all = outcomes(3, [&](auto& world) {
            const Mode before = un::detail::floating_point_mode();
            SumOfOutputs<float> model(3);
            try {
                const auto flush = [&] {
                    if (world.rank() == 1) un::detail::set_floating_point_mode(Mode::flushes_operands);
                };
                if (!later) flush();
                un::Trainer trainer{world, model, policies...};
                trainer.fit(rows(), quiet({.epochs = 1, .batch_size = 2}));
                flush();
                trainer.fit(rows(), quiet({.epochs = 1, .batch_size = 2}));
            } catch (...) {
                un::detail::set_floating_point_mode(before);
                throw;
            }
        });
        check_all(
            all, un::ErrorCode::mismatch,
            {"rank 1 takes subnormal operands as zero and rounds to nearest", "keeps subnormal numbers", "-Ofast"});
    };
    for (const bool later : {false, true}) {
        fails(later);
        fails(later, un::Replicas{.count = 3}, un::Reproducible{});
        fails(later, un::Replicas{.count = 6}, un::Reproducible{});
        fails(later, un::Replicas{.count = 3}, un::Reproducible{}, un::RingReducer{});
        fails(later, un::StateSharding{});
    }
}

BOOST_AUTO_TEST_CASE(gradients_unlike_parameters) {
    struct Odd {
        std::vector<float> p = std::vector<float>(3), g = std::vector<float>(2);
        std::span<float> parameters() { return p; }
        std::span<float> gradients() { return g; }
        double operator()(const un::RowBatch<float>&, un::Pass&) { return 0; }
    };
    const auto all = outcomes(2, [](auto& world) {
        Odd model;
        un::Trainer trainer{world, model};
    });
    check_all(all, un::ErrorCode::bad_input, {"parameter 0", "3", "2"});
    struct Empty : Odd {
        Empty() { p.clear(), g.clear(); }
    };
    const auto none = outcomes(2, [](auto& world) {
        Empty model;
        un::Trainer trainer{world, model};
    });
    check_all(none, un::ErrorCode::bad_input, {"no parameters"});
}

BOOST_AUTO_TEST_CASE(a_model_that_loses_a_parameter) {
    struct Shrinking {
        std::vector<std::vector<float>> p{{1, 1}, {1, 1}}, g{{0, 0}, {0, 0}};
        std::vector<std::span<float>> spans{p[0], p[1]}, gradient_spans{g[0], g[1]};
        auto& parameters() { return spans; }
        auto& gradients() { return gradient_spans; }
        double operator()(const un::RowBatch<float>&, un::Pass&) { return 0; }
    };
    for (const bool of_gradients : {false, true}) {
        const auto all = outcomes(2, [&](auto& world) {
            Shrinking model;
            un::Trainer trainer{world, model, un::NoGuard{}};
            (of_gradients ? model.gradient_spans : model.spans).pop_back();
            trainer.fit(rows(), quiet({.batch_size = 2}));
        });
        check_all(all, un::ErrorCode::bad_input,
                  {of_gradients ? "gradients()" : "parameters()", "1 spans; expected 2"});
    }
    const auto grown = outcomes(2, [](auto& world) {
        Shrinking model;
        un::Trainer trainer{world, model};
        model.spans.emplace_back(); // even a parameter without elements
        trainer.check_memory();
    });
    check_all(grown, un::ErrorCode::bad_input, {"parameters()", "3 spans; expected 2"});
}

BOOST_AUTO_TEST_CASE(parameters_that_share_memory) {
    struct Tied {
        std::vector<float> p = std::vector<float>(6, 1.0f), g = std::vector<float>(6);
        std::vector<std::span<float>> spans, gradient_spans;
        std::vector<std::string> names = {"embedding", "bias", "output"};
        Tied(std::size_t at, std::size_t gradient_at) {
            spans = {std::span(p).first(2), std::span(p).subspan(2, 0), std::span(p).subspan(at, 2)};
            gradient_spans = {std::span(g).first(2), std::span(g).subspan(2, 0), std::span(g).subspan(gradient_at, 2)};
        }
        auto& parameters() { return spans; }
        auto& gradients() { return gradient_spans; }
        auto& parameter_names() { return names; }
        double operator()(const un::RowBatch<float>&, un::Pass&) { return 0; }
    };
    const auto made = [](std::size_t at, std::size_t gradient_at) {
        return outcomes(2, [&](auto& world) {
            Tied model(at, gradient_at);
            un::Trainer trainer{world, model};
        });
    };
    check_all(made(0, 0), un::ErrorCode::bad_input,
              {"parameter 0 (embedding) and parameter 2 (output) share memory; expected memory of its own for each"});
    check_all(made(1, 2), un::ErrorCode::bad_input, {"parameter 0 (embedding) and parameter 2 (output) share memory"});
    check_all(made(2, 1), un::ErrorCode::bad_input,
              {"the gradient of parameter 0 (embedding) and the gradient of parameter 2 (output) share memory"});
    for (const auto& one : made(2, 2)) BOOST_TEST(!one.failed, one.what);
    const auto both = outcomes(1, [](auto& world) {
        Tied model(2, 2);
        model.gradient_spans[2] = model.spans[0];
        un::Trainer trainer{world, model};
    });
    check_all(both, un::ErrorCode::bad_input, {"parameter 0 (embedding) and the gradient of parameter 2 (output)"});
}

BOOST_AUTO_TEST_CASE(a_model_that_throws) {
    for (const int call : {0, 3}) {
        const auto all = outcomes(3, [&](auto& world) {
            Culprit model(world.rank(), 1, call, Deed::throws);
            un::Trainer trainer{world, model};
            trainer.fit(rows(), quiet({.epochs = 2, .batch_size = 2}));
        });
        BOOST_TEST(!all[1].ours);
        BOOST_TEST(all[1].what == "the dog ate my batch");
        for (const std::size_t rank : {0u, 2u}) {
            BOOST_TEST(all[rank].ours);
            BOOST_TEST(name_of(all[rank].code) == "aborted");
            BOOST_TEST(all[rank].rank == 1);
            BOOST_TEST(all[rank].says("rank 1"), all[rank].what);
            BOOST_TEST(all[rank].says("the dog ate my batch"), all[rank].what);
        }
    }
}

BOOST_AUTO_TEST_CASE(data_that_throw) {
    struct Thrower {
        int rank;
        [[nodiscard]] std::size_t size() const { return 20; }
        [[nodiscard]] un::RowBatch<float> batch(std::span<const std::size_t> indices) const {
            if (rank == 0) throw std::out_of_range("no such file");
            return rows().batch(indices);
        }
    };
    for (const int ahead : {0, 2}) {
        const auto all = outcomes(2, [&](auto& world) {
            SumOfOutputs<float> model(3);
            un::Trainer trainer{world, model};
            trainer.fit(Thrower{world.rank()}, quiet({.batch_size = 2, .read_ahead = ahead}));
        });
        BOOST_TEST(!all[0].ours);
        BOOST_TEST(all[0].what == "no such file");
        BOOST_TEST(all[1].ours);
        BOOST_TEST(all[1].rank == 0);
        BOOST_TEST(all[1].says("no such file"), all[1].what);
    }
}

BOOST_AUTO_TEST_CASE(ready_misused) {
    for (const Deed deed : {Deed::ready_twice, Deed::ready_unknown}) {
        const auto all = outcomes(2, [&](auto& world) {
            Culprit model(world.rank(), 0, 1, deed);
            un::Trainer trainer{world, model};
            trainer.fit(rows(), quiet({.batch_size = 2}));
        });
        check_all(all, un::ErrorCode::bad_input, {deed == Deed::ready_twice ? "twice" : "2 parameters"});
    }
}

BOOST_AUTO_TEST_CASE(not_finite_stops_all) {
    for (const int ranks : {1, 2, 4}) {
        for (const Deed deed : {Deed::nan_gradient, Deed::infinite_gradient, Deed::nan_loss}) {
            std::vector<std::vector<float>> before(static_cast<std::size_t>(ranks)), after = before, later = before;
            const auto all = outcomes(ranks, [&](auto& world) {
                const auto rank = static_cast<std::size_t>(world.rank());
                Culprit model(world.rank(), ranks - 1, 1, deed);
                un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1, .momentum = 0.9}};
                const auto data = rows();
                const std::vector<std::size_t> some = {0, 1};
                trainer.step(data.batch(some));
                before[rank] = model.weights;
                try {
                    trainer.step(data.batch(some));
                } catch (...) {
                    after[rank] = model.weights;
                    trainer.step(data.batch(some)); // training may continue
                    later[rank] = model.weights;
                    throw;
                }
            });
            const std::string culprit = "rank " + std::to_string(ranks - 1);
            check_all(all, un::ErrorCode::not_finite,
                      {culprit, deed == Deed::nan_loss       ? "the loss"
                                : deed == Deed::nan_gradient ? "parameter 1 (bias)"
                                                             : "parameter 0 (weight)"});
            for (const auto& outcome : all) BOOST_TEST(outcome.rank == ranks - 1);
            for (std::size_t rank = 0; rank < after.size(); ++rank) {
                BOOST_TEST(after[rank] == before[rank]);
                BOOST_TEST(later[rank] == later[0]);
                BOOST_TEST(later[rank] != before[rank]);
                for (const float weight : later[rank]) BOOST_TEST(std::isfinite(weight));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(not_finite_skips_all) {
    for (const int ranks : {1, 3}) {
        std::vector<std::vector<float>> weights(static_cast<std::size_t>(ranks));
        const auto all = outcomes(ranks, [&](auto& world) {
            Culprit model(world.rank(), 0, 1, Deed::nan_gradient);
            un::Trainer trainer{world, model, un::FiniteGuard{.action = un::OnOffence::skip},
                                un::Sgd{.learning_rate = 0.1, .momentum = 0.9}, un::ParameterServerReducer{}};
            const auto report = trainer.fit(rows(), quiet({.batch_size = 2}));
            weights[static_cast<std::size_t>(world.rank())] = model.weights;
            const auto rounds = (20 + 2 * ranks - 1) / (2 * ranks);
            if (report.epochs[0].skipped != 1 || report.epochs[0].updates != rounds - 1)
                throw std::runtime_error("miscounted");
        });
        for (const auto& outcome : all) BOOST_TEST(!outcome.failed, outcome.what);
        for (const auto& one : weights) {
            BOOST_TEST(one == weights[0]);
            for (const float weight : one) BOOST_TEST(std::isfinite(weight));
        }
    }
}

BOOST_AUTO_TEST_CASE(without_a_guard_a_nan_spreads) {
    const auto all = outcomes(2, [&](auto& world) {
        Culprit model(world.rank(), 0, 0, Deed::nan_gradient);
        un::Trainer trainer{world, model, un::NoGuard{}};
        trainer.fit(rows(), quiet({.batch_size = 2}));
        if (!std::isnan(model.weights[2])) throw std::runtime_error("the guard is on");
    });
    for (const auto& outcome : all) BOOST_TEST(!outcome.failed, outcome.what);
}

BOOST_AUTO_TEST_CASE(evaluation) {
    const auto evaluated = [](std::size_t samples, std::size_t samples_of_rank_1, const un::EvaluateOptions& options) {
        return called(2, [=](auto& trainer, int rank) {
            trainer.evaluate(
                rows(rank == 0 ? samples : samples_of_rank_1), options, [](auto&, const auto&, un::MeanMetric&) {},
                un::MeanMetric{});
        });
    };
    check_all(evaluated(0, 0, {}), un::ErrorCode::bad_input, {"data set is empty"});
    check_all(evaluated(20, 10, {.batch_size = 4}), un::ErrorCode::mismatch, {"data.size()", "rank 1"});
    check_all(evaluated(20, 20, {.batch_size = 0}), un::ErrorCode::bad_input, {"EvaluateOptions.batch_size"});
}

BOOST_AUTO_TEST_SUITE_END()
