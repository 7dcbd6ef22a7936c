// The trainer's promises beside numbers: weights, uneven inputs, resuming, overlap, evaluation, no
// allocation.
#include "models.hpp"
#include "outcomes.hpp"
#include "support/allocation_counter.hpp"

#include "unisono/extensions/automatic/reducer.hpp"
#include "unisono/extensions/observe/classification.hpp"
#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/extensions/updates/hogwild.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <mutex>
#include <set>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr std::size_t columns = 6;
constexpr std::size_t samples = 29;

const std::vector<double> inputs = [] {
    std::vector<double> all(samples * columns);
    un::Mt19937 generator(11);
    un::torch_rand(generator, std::span<double>(all));
    return all;
}();
const std::vector<double> targets = [] {
    std::vector<double> all(samples);
    un::Mt19937 generator(12);
    un::torch_rand(generator, std::span<double>(all));
    return all;
}();

un::RowData<double, double> data() { return {inputs, columns, targets}; }

void check_close(const std::vector<double>& found, const std::vector<double>& expected, double tolerance = 1e-12) {
    BOOST_REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        BOOST_TEST(std::abs(found[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i])));
}

/// Full-batch gradient descent on the mean over the samples of each global batch, by plain loops.
std::vector<double> serial(std::int64_t global_batch, std::int64_t epochs, double rate) {
    std::vector<double> w(columns);
    for (std::int64_t e = 0; e < epochs; ++e) {
        for (std::size_t at = 0; at < samples; at += static_cast<std::size_t>(global_batch)) {
            const std::size_t end = std::min(samples, at + static_cast<std::size_t>(global_batch));
            std::vector<double> g(columns);
            for (std::size_t i = at; i < end; ++i) {
                double y = -targets[i];
                for (std::size_t j = 0; j < columns; ++j) y += inputs[i * columns + j] * w[j];
                for (std::size_t j = 0; j < columns; ++j)
                    g[j] += 2 * y * inputs[i * columns + j] / static_cast<double>(end - at);
            }
            for (std::size_t j = 0; j < columns; ++j) w[j] -= rate * g[j];
        }
    }
    return w;
}

template <class Model, class... Policies>
std::vector<std::vector<double>> weights_of(int ranks, const un::FitOptions& options, Policies... policies) {
    std::vector<std::vector<double>> weights(static_cast<std::size_t>(ranks));
    check_clean(outcomes(ranks, [&](auto& world) {
        Model model(columns, 4);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, policies...};
        un::FitOptions quiet = options;
        quiet.progress = false;
        trainer.fit(data(), quiet);
        trainer.verify_replicas();
        weights[static_cast<std::size_t>(world.rank())] = model.values();
    }));
    return weights;
}

using Mean = LeastSquares<double>;
using Total = LeastSquares<double, un::GradientKind::sum>;
using Pieces = LeastSquares<double, un::GradientKind::mean, true>;

/// Counts the columns as tokens. Every sample has the same number, so weights by tokens equal
/// weights by samples.
struct Tokens : Mean {
    using Mean::Mean;
    double operator()(const un::RowBatch<double, double>& batch, un::Pass& pass) {
        pass.count_tokens(static_cast<double>(batch.rows() * columns));
        return Mean::operator()(batch, pass);
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(behaviour)

// 29 samples on 4 ranks: some micro-batches are shorter than others, some are empty. Weighted by
// samples, the update is still the mean over the global batch, whichever rank hosts which replica.
BOOST_AUTO_TEST_CASE(uneven_batches_weigh_by_samples) {
    const auto expected = serial(12, 3, 0.1);
    const un::SequentialSampler sequential{};
    for (const int ranks : {1, 2, 3, 4}) {
        BOOST_TEST_CONTEXT(ranks << " ranks") {
            const un::FitOptions options{.epochs = 3, .batch_size = 12 / ranks};
            for (const auto& one : weights_of<Mean>(ranks, options, sequential, un::BySamples{}))
                check_close(one, expected);
            for (const auto& one : weights_of<Pieces>(ranks, options, sequential, un::BySamples{}))
                check_close(one, expected);
            if (ranks > 2) continue;
            const un::FitOptions halves{.epochs = 3, .batch_size = 6 / ranks};
            for (const auto& one :
                 weights_of<Total>(ranks, halves, sequential, un::BySamples{}, un::Accumulate{.steps = 2}))
                check_close(one, expected);
            for (const auto& one :
                 weights_of<Tokens>(ranks, halves, sequential, un::ByTokens{}, un::AccumulateSamples{.samples = 12}))
                check_close(one, expected);
            const un::AccumulateTokens tokens{.tokens = 12 * columns};
            for (const auto& one : weights_of<Tokens>(ranks, halves, sequential, un::ByTokens{}, tokens))
                check_close(one, expected);
        }
    }
}

// A model with one bucket per parameter that reports when each is ready has the same bits as a
// model with one bucket that reports nothing.
BOOST_AUTO_TEST_CASE(overlap_changes_no_bit) {
    struct Talkative : Mean {
        Talkative(std::size_t n, std::size_t) : Mean(n, 1) { says_ready = true; }
    };
    struct TalkativePieces : Pieces {
        TalkativePieces(std::size_t n, std::size_t) : Pieces(n, 1) { says_ready = true; }
    };
    const un::FitOptions options{.epochs = 2, .batch_size = 2};
    const un::Buckets small{.first_bytes = 1, .bytes = 16};
    for (const int ranks : {1, 2, 3}) {
        BOOST_TEST_CONTEXT(ranks << " ranks") {
            const auto expected = weights_of<Mean>(ranks, options);
            BOOST_TEST((weights_of<Talkative>(ranks, options, small) == expected));
            BOOST_TEST((weights_of<TalkativePieces>(ranks, options, small) == expected));
            BOOST_TEST((weights_of<Pieces>(ranks, options, small) == expected));
            BOOST_TEST((weights_of<Talkative>(ranks, options, small,
                                              un::ParameterServerReducer{.servers = (ranks + 1) / 2}) == expected));
            BOOST_TEST((weights_of<TalkativePieces>(ranks, options, small, un::ParameterServerReducer{}) == expected));
            BOOST_TEST((weights_of<Mean>(ranks, options, un::AutomaticReducer{}) == expected));
            const auto twice = weights_of<Mean>(ranks, options, un::Accumulate{.steps = 2}, un::BySamples{});
            BOOST_TEST(
                (weights_of<Talkative>(ranks, options, un::Accumulate{.steps = 2}, un::BySamples{}, small) == twice));
        }
    }
}

// The gradient of each replica is computed by itself and then added, whichever rank hosts it. Bits
// are equal if sums have the same order.
BOOST_AUTO_TEST_CASE(hosting_changes_no_bit_of_two_replicas) {
    const un::FitOptions options{.epochs = 3, .batch_size = 3};
    const auto two = weights_of<Mean>(2, options, un::DistributedSampler{.seed = 5});
    const auto one = weights_of<Mean>(1, options, un::InterleavedSampler{.replicas = 2, .seed = 5});
    BOOST_TEST((two[0] == one[0]));
    BOOST_TEST((two[1] == one[0]));
}

BOOST_AUTO_TEST_CASE(joining_ends_uneven_loops) {
    // Rank r has r + 1 batches. Ranks without further batches take part with weight zero.
    const int ranks = 4;
    std::vector<std::vector<double>> weights(ranks);
    std::vector<std::int64_t> joined(ranks);
    const auto batch_of = [](std::size_t index) { return data().batch(std::vector<std::size_t>{index, index + 1}); };
    check_clean(outcomes(ranks, [&](auto& world) {
        Mean model(columns);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, un::BySamples{}};
        const auto own = static_cast<std::size_t>(world.rank());
        for (std::size_t i = 0; i <= own; ++i) {
            const auto report = trainer.step(batch_of(i * 4 + own));
            if (report.micro_batches != static_cast<std::int64_t>(ranks) - static_cast<std::int64_t>(i))
                throw std::runtime_error("miscounted");
        }
        joined[own] = trainer.join();
        weights[own] = model.values();
    }));
    for (int r = 0; r < ranks; ++r) {
        BOOST_TEST(joined[static_cast<std::size_t>(r)] == ranks - 1 - r);
        BOOST_TEST(weights[static_cast<std::size_t>(r)] == weights[0]);
    }
    // The same on one rank.
    Mean model(columns);
    un::Group<un::InProcess> world;
    un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, un::BySamples{}};
    for (std::size_t i = 0; i < 4; ++i) {
        std::vector<std::size_t> indices;
        for (std::size_t r = i; r < 4; ++r) indices.insert(indices.end(), {i * 4 + r, i * 4 + r + 1});
        trainer.step(data().batch(indices));
    }
    check_close(model.values(), weights[0]);
}

BOOST_AUTO_TEST_CASE(resumes_at_any_sample) {
    const auto train = [](int ranks, int stop_after) {
        std::vector<double> weights;
        check_clean(outcomes(ranks, [&](auto& world) {
            Mean model(columns);
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1, .momentum = 0.9},
                                un::DistributedSampler{.seed = 3}};
            int updates = 0;
            const auto report = trainer.fit(data(), {.epochs = 3, .batch_size = 2, .progress = false},
                                            [&](const un::UpdateReport&) { return ++updates != stop_after; });
            if (report.stopped) {
                const std::int64_t left = 3 - trainer.position().epoch.number();
                if (left > 0) trainer.fit(data(), {.epochs = left, .batch_size = 2, .progress = false});
            }
            if (trainer.position() != un::Position{un::Epoch{3}, 0}) throw std::runtime_error("not at the end");
            if (world.rank() == 0) weights = model.values();
        }));
        return weights;
    };
    for (const int ranks : {1, 3}) {
        const auto expected = train(ranks, -1);
        const int updates = 3 * static_cast<int>((samples + 2 * static_cast<std::size_t>(ranks) - 1) /
                                                 (2 * static_cast<std::size_t>(ranks)));
        for (int stop = 1; stop <= updates; ++stop)
            BOOST_TEST((train(ranks, stop) == expected), ranks << " ranks, stopped after " << stop);
    }
}

// A new trainer with a given position continues as the old one would have.
BOOST_AUTO_TEST_CASE(begins_at_a_given_position) {
    const un::DistributedSampler sampler{.seed = 9};
    const un::Sgd sgd{.learning_rate = 0.1};
    un::Group<un::InProcess> world;
    Mean whole(columns);
    un::Trainer{world, whole, sampler, sgd}.fit(data(), {.epochs = 3, .batch_size = 4, .progress = false});
    for (int stop = 1; stop < 24; ++stop) {
        Mean first(columns), second(columns);
        int updates = 0;
        const auto report =
            un::Trainer{world, first, sampler, sgd}.fit(data(), {.epochs = 3, .batch_size = 4, .progress = false},
                                                        [&](const un::UpdateReport&) { return ++updates != stop; });
        second.contiguous = first.contiguous;
        if (const std::int64_t left = 3 - report.position.epoch.number(); left > 0)
            un::Trainer{world, second, sampler, sgd}.fit(
                data(), {.epochs = left, .batch_size = 4, .start = report.position, .progress = false});
        BOOST_TEST((second.contiguous == whole.contiguous), "stopped after " << stop);
    }
}

BOOST_AUTO_TEST_CASE(epochs_go_on_from_call_to_call) {
    un::Group<un::InProcess> world;
    Mean once(columns), apart(columns);
    un::Trainer a{world, once, un::Sgd{.learning_rate = 0.1}};
    un::Trainer b{world, apart, un::Sgd{.learning_rate = 0.1}};
    a.fit(data(), {.epochs = 3, .batch_size = 4, .progress = false});
    for (int i = 0; i < 3; ++i) b.fit(data(), {.epochs = 1, .batch_size = 4, .progress = false});
    BOOST_TEST((once.values() == apart.values()));
    BOOST_TEST(b.position().epoch.number() == 3);
}

BOOST_AUTO_TEST_CASE(read_ahead_changes_no_bit) {
    const auto expected = weights_of<Mean>(2, {.epochs = 2, .batch_size = 3});
    BOOST_TEST((weights_of<Mean>(2, {.epochs = 2, .batch_size = 3, .read_ahead = 3}) == expected));
}

BOOST_AUTO_TEST_CASE(parameters_and_buffers_begin_as_rank_0s) {
    struct Buffered : Mean {
        std::vector<double> statistics = std::vector<double>(2);
        using Mean::Mean;
        std::span<double> buffers() { return statistics; }
    };
    check_clean(outcomes(3, [&](auto& world) {
        Buffered model(columns, 4);
        for (auto& one : model.contiguous) one = world.rank() + 1.0;
        model.statistics[1] = world.rank() + 5.0;
        model.contiguous_gradient[2] = 99; // a value from before, which must not count
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0}};
        if (model.contiguous != std::vector<double>(columns, 1.0)) throw std::runtime_error("parameters differ");
        if (model.statistics[1] != 5.0) throw std::runtime_error("buffers differ");
        model.statistics[1] = world.rank() + 7.0;
        trainer.evaluate(
            data(), {}, [](auto&, const auto&, un::SumMetric&) {}, un::SumMetric{});
        if (model.statistics[1] != 7.0) throw std::runtime_error("buffers differ in evaluation");
    }));
}

/// Small ones travel together: also those that are adjacent in memory on one rank alone, empty
/// ones, and those beside one that is larger than a message.
BOOST_AUTO_TEST_CASE(many_parameters_and_buffers_begin_as_rank_0s) {
    struct Many {
        std::vector<std::vector<float>> values, gradient;
        std::vector<std::span<float>> spans, gradient_spans;
        std::vector<std::span<double>> statistics_spans;
        std::vector<double> statistics;
        auto& parameters() { return spans; }
        auto& gradients() { return gradient_spans; }
        auto& buffers() { return statistics_spans; }
        double operator()(int, un::Pass&) { return 0; }
    };
    const std::vector<std::size_t> sizes = {3, 0, 70'000, 200'000, 300'000, 1, 0, 262'144, 2, 5, 262'143, 1, 1};
    const auto at_rank = [&](int rank, std::size_t i) {
        return static_cast<float>(i * 7 % 1009 + 10'000 * static_cast<std::size_t>(rank));
    };
    check_clean(outcomes(3, [&](auto& world) {
        Many model;
        const bool adjacent = world.rank() == 1;
        std::size_t all = 0, number = 0;
        for (const std::size_t one : sizes) all += one;
        for (auto* memory : {&model.values, &model.gradient}) {
            if (adjacent) memory->emplace_back(all);
            else
                for (const std::size_t one : sizes) memory->emplace_back(one);
        }
        model.statistics.resize(all);
        std::size_t at = 0;
        for (std::size_t i = 0; i < sizes.size(); at += sizes[i++]) {
            const auto piece = [&](auto& memory) {
                return adjacent ? std::span(memory[0]).subspan(at, sizes[i]) : std::span(memory[i]);
            };
            model.spans.push_back(piece(model.values));
            model.gradient_spans.push_back(piece(model.gradient));
            model.statistics_spans.push_back(std::span(model.statistics).subspan(at, sizes[i]));
            for (float& one : model.spans.back()) one = at_rank(world.rank(), number++);
        }
        for (std::size_t i = 0; i < all; ++i) model.statistics[i] = at_rank(world.rank(), i) + 0.5;
        un::Trainer trainer{world, model};
        number = 0;
        for (const std::span<float> one : model.spans)
            for (const float found : one)
                if (found != at_rank(0, number++)) throw std::runtime_error("parameters differ");
        for (std::size_t i = 0; i < all; ++i)
            if (model.statistics[i] != at_rank(0, i) + 0.5) throw std::runtime_error("buffers differ");
    }));
}

BOOST_AUTO_TEST_CASE(buffers_of_other_sizes_but_equal_bytes_are_refused) {
    struct Buffered : Mean {
        std::vector<std::vector<double>> statistics;
        using Mean::Mean;
        auto& buffers() { return statistics; }
    };
    const auto all = outcomes(2, [&](auto& world) {
        Buffered model(columns, 4);
        model.statistics = {std::vector<double>(2), std::vector<double>(3)};
        un::Trainer trainer{world, model};
        if (world.rank() == 1) std::swap(model.statistics[0], model.statistics[1]);
        trainer.evaluate(
            data(), {}, [](auto&, const auto&, un::SumMetric&) {}, un::SumMetric{});
    });
    for (const auto& outcome : all) {
        BOOST_TEST(name_of(outcome.code) == "mismatch");
        BOOST_TEST(outcome.says("the model's buffers() on rank 1 have other sizes or element types than on rank 0"),
                   outcome.what);
    }
}

BOOST_AUTO_TEST_CASE(diverged_replicas_are_named) {
    const auto all = outcomes(3, [&](auto& world) {
        Mean model(columns, 4);
        un::Trainer trainer{world, model};
        trainer.verify_replicas();
        if (world.rank() == 2) model.contiguous[5] += 1e-9;
        trainer.verify_replicas();
    });
    for (const auto& outcome : all) {
        BOOST_TEST(name_of(outcome.code) == "mismatch");
        BOOST_TEST(outcome.says("parameter 1 differs between rank 0 and rank 2"), outcome.what);
    }
}

BOOST_AUTO_TEST_CASE(random_streams_do_not_know_their_host) {
    struct Recorder : Mean {
        using Mean::Mean;
        std::set<std::uint64_t>* seen = nullptr;
        std::mutex* mutex = nullptr;
        double operator()(const un::RowBatch<double, double>&, un::Pass& pass) {
            auto random = pass.random();
            const std::uint64_t first = random();
            const std::scoped_lock lock(*mutex);
            seen->insert(first << 32 | random());
            return 0;
        }
    };
    const auto drawn = [](int ranks, auto sampler, std::uint64_t seed) {
        std::set<std::uint64_t> seen;
        std::mutex mutex;
        check_clean(outcomes(ranks, [&](auto& world) {
            Recorder model(columns);
            model.seen = &seen;
            model.mutex = &mutex;
            un::Trainer trainer{world, model, sampler};
            trainer.fit(data(), {.epochs = 2, .batch_size = 3, .seed = seed, .progress = false});
        }));
        return seen;
    };
    const auto four = drawn(4, un::DistributedSampler{}, 1);
    BOOST_TEST(four.size() == 24u); // 2 epochs x 3 rounds x 4 replicas, all different
    BOOST_TEST((drawn(2, un::InterleavedSampler{.replicas = 2}, 1) == four));
    BOOST_TEST((drawn(1, un::InterleavedSampler{.replicas = 4}, 1) == four));
    BOOST_TEST((drawn(4, un::DistributedSampler{}, 2) != four));
}

BOOST_AUTO_TEST_CASE(evaluation_equals_one_ranks) {
    struct Judge : Mean {
        using Mean::Mean;
        void evaluate(const un::RowBatch<double, double>& batch, un::MeanMetric& loss, un::F1Metric& f1,
                      un::AucMetric& auc) {
            for (std::size_t i = 0; i < batch.rows(); ++i) {
                const double y = output(batch.row(i));
                loss.add((y - batch.labels[i]) * (y - batch.labels[i]), 1 + batch.labels[i]);
                f1.add(y > 1.5, batch.labels[i] > 0.5);
                auc.add(y, batch.labels[i] > 0.5);
            }
        }
    };
    std::vector<double> expected;
    for (const int ranks : {1, 2, 3, 4, 7}) {
        for (const std::int64_t batch : {1, 4, 100}) {
            std::vector<std::vector<double>> found(static_cast<std::size_t>(ranks));
            std::vector<std::vector<double>> outputs(static_cast<std::size_t>(ranks));
            check_clean(outcomes(ranks, [&](auto& world) {
                Judge model(columns);
                for (std::size_t j = 0; j < columns; ++j) model.contiguous[j] = static_cast<double>(j) / 5;
                un::Trainer trainer{world, model};
                const auto [loss, f1, auc] =
                    trainer.evaluate(data(), {.batch_size = batch}, un::MeanMetric{}, un::F1Metric{}, un::AucMetric{});
                found[static_cast<std::size_t>(world.rank())] = {loss.value(), f1.value(), auc.value(),
                                                                 static_cast<double>(auc.size())};
                outputs[static_cast<std::size_t>(world.rank())] = trainer.predict(data(), {.batch_size = batch});
            }));
            if (expected.empty()) {
                expected = found[0];
                BOOST_TEST(expected[3] == static_cast<double>(samples));
                BOOST_TEST(expected[1] > 0);
                BOOST_TEST(expected[2] > 0);
            }
            for (const auto& one : found) BOOST_TEST((one == expected), ranks << " ranks, batch " << batch);
            Judge model(columns);
            for (std::size_t j = 0; j < columns; ++j) model.contiguous[j] = static_cast<double>(j) / 5;
            for (const auto& one : outputs) {
                BOOST_REQUIRE(one.size() == samples);
                for (std::size_t i = 0; i < samples; ++i)
                    BOOST_TEST(one[i] == model.output(std::span(inputs).subspan(i * columns, columns)));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(predictions_have_one_width) {
    struct Wide : Mean {
        using Mean::Mean;
        std::size_t width = 1;
        std::vector<double> predict(const un::RowBatch<double, double>& batch) {
            return std::vector<double>(width * batch.rows());
        }
    };
    for (const std::size_t other : {2u, 3u}) {
        for (const auto& outcome : outcomes(2, [&](auto& world) {
                 Wide model(columns);
                 if (world.rank() == 1) model.width = other;
                 un::Trainer trainer{world, model};
                 static_cast<void>(trainer.predict(data(), {.batch_size = 4}));
             }))
            BOOST_TEST(outcome.what.find("outputs for a sample") != std::string::npos, outcome.what);
    }
}

BOOST_AUTO_TEST_CASE(learning_rates_know_the_length) {
    un::Group<un::InProcess> world;
    Mean model(columns);
    un::Trainer trainer{world, model, un::CosineRate{.final_factor = 0.5}, un::Sgd{.learning_rate = 1e-3}};
    std::vector<double> rates;
    trainer.fit(data(), {.epochs = 2, .batch_size = 10, .progress = false},
                [&](const un::UpdateReport& report) { rates.push_back(report.learning_rate); });
    BOOST_REQUIRE(rates.size() == 6u);
    const un::CosineRate rate{.final_factor = 0.5};
    for (std::size_t i = 0; i < rates.size(); ++i)
        BOOST_TEST(rates[i] == rate.rate(1e-3, {.update = i, .updates_total = 6}));
}

// A training that stops after any update and then continues has the learning rates of one that does
// not stop: with short windows dropped or kept, and with updates that are skipped.
struct Skipping : Mean {
    using Mean::Mean;
    double operator()(const un::RowBatch<double, double>& batch, un::Pass& pass) {
        const double loss = Mean::operator()(batch, pass);
        return ++calls % 7 == 3 ? std::nan("") : loss;
    }
    int calls = 0;
};
BOOST_AUTO_TEST_CASE(learning_rates_go_on_where_they_stopped) {
    for (const auto at_end : {un::ShortWindow::keep, un::ShortWindow::drop}) {
        const auto rates = [&](int stop) {
            un::Group<un::InProcess> world;
            Skipping model(columns);
            un::Trainer trainer{world,
                                model,
                                un::Accumulate{.steps = 3, .short_window = at_end},
                                un::FiniteGuard{.action = un::OnOffence::skip},
                                un::CosineRate{},
                                un::Sgd{.learning_rate = 1e-3}};
            std::vector<double> found;
            int updates = 0;
            const auto note = [&](const un::UpdateReport& report) {
                found.push_back(report.learning_rate);
                return ++updates != stop;
            };
            // 8 micro-batches per epoch.
            if (trainer.fit(data(), {.epochs = 4, .batch_size = 4, .progress = false}, note).stopped)
                if (const std::int64_t left = 4 - trainer.position().epoch.number(); left > 0)
                    trainer.fit(data(), {.epochs = left, .batch_size = 4, .progress = false}, note);
            return found;
        };
        const auto expected = rates(-1);
        BOOST_REQUIRE(expected.size() == (at_end == un::ShortWindow::keep ? 12u : 8u));
        for (int stop = 1; stop < static_cast<int>(expected.size()); ++stop)
            BOOST_TEST((rates(stop) == expected), "stopped after " << stop);
    }
}

// The function given to fit decides when training ends. Any number of epochs is accepted.
BOOST_AUTO_TEST_CASE(ends_where_it_is_told_to_however_many_epochs_were_asked_for) {
    for (const std::int64_t epochs : {std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()})
        check_clean(outcomes(2, [&](auto& world) {
            Mean model(columns);
            un::Trainer trainer{world, model, un::CosineRate{}, un::Sgd{.learning_rate = 0.1}};
            int updates = 0;
            const auto train = [&](const un::Position& end) { // 4 updates per epoch
                const auto report = trainer.fit(data(), {.epochs = epochs, .batch_size = 4, .progress = false},
                                                [&](const un::UpdateReport& update) {
                                                    if (!(update.learning_rate > 0.0999))
                                                        throw std::runtime_error("the rate");
                                                    return ++updates % 7 != 0;
                                                });
                if (!report.stopped || report.position != end)
                    throw std::runtime_error("stopped elsewhere than after seven updates");
            };
            train({un::Epoch{1}, 24});
            train({un::Epoch{3}, 16});
        }));
}

// A skipped update also shortens a training of ranks that update on their own.
BOOST_AUTO_TEST_CASE(learning_rates_of_ranks_on_their_own_know_of_updates_left_out) {
    const auto rates = [](const auto& update) {
        un::Group<un::InProcess> world;
        Skipping model(columns);
        un::Trainer trainer{world,
                            model,
                            update,
                            un::FiniteGuard{.action = un::OnOffence::skip},
                            un::CosineRate{},
                            un::Sgd{.learning_rate = 1e-3}};
        std::vector<double> found;
        trainer.fit(data(), {.epochs = 4, .batch_size = 4, .progress = false},
                    [&](const un::UpdateReport& report) { found.push_back(report.learning_rate); });
        return found;
    };
    const auto expected = rates(un::Synchronous{});
    BOOST_TEST((rates(un::LocalSteps{.steps = 1}) == expected));
    BOOST_TEST((rates(un::Hogwild{}) == expected));
    BOOST_TEST((rates(un::Asynchronous{}) == expected));
}

// The last round of an epoch may be too short for its window, which is then dropped: that update
// never happens.
BOOST_AUTO_TEST_CASE(learning_rates_know_of_windows_that_are_dropped) {
    un::Group<un::InProcess> world;
    Mean model(columns);
    un::Trainer trainer{world,
                        model,
                        un::SequentialSampler{},
                        un::AccumulateSamples{.samples = 10, .short_window = un::ShortWindow::drop},
                        un::CosineRate{},
                        un::Sgd{.learning_rate = 1e-3}};
    std::vector<double> rates;
    // 29 samples: 10, 10 and 9.
    trainer.fit(data(), {.epochs = 2, .batch_size = 5, .progress = false},
                [&](const un::UpdateReport& report) { rates.push_back(report.learning_rate); });
    BOOST_REQUIRE(rates.size() == 4u);
    for (std::size_t i = 0; i < rates.size(); ++i)
        BOOST_TEST(rates[i] == un::CosineRate{}.rate(1e-3, {.update = i, .updates_total = 4}));
}

// Samples that are dropped at the end of an epoch do not count in the next one.
BOOST_AUTO_TEST_CASE(dropped_tokens_are_forgotten) {
    un::Group<un::InProcess> world;
    Tokens model(columns);
    un::Trainer trainer{world,
                        model,
                        un::SequentialSampler{},
                        un::ByTokens{},
                        un::Sgd{.learning_rate = 1e-3},
                        un::AccumulateTokens{.tokens = 9 * columns, .short_window = un::ShortWindow::drop}};
    std::vector<std::int64_t> counts;
    trainer.fit(data(), {.epochs = 3, .batch_size = 3, .progress = false},
                [&](const un::UpdateReport& report) { counts.push_back(report.samples); });
    // Of 29, 2 remain.
    BOOST_TEST(counts == std::vector<std::int64_t>(9, 9), boost::test_tools::per_element());
}

/// The weight of a sample is a tenth of a token, which no double represents exactly.
struct Tenths : Mean {
    using Mean::Mean;
    double operator()(const un::RowBatch<double, double>& batch, un::Pass& pass) {
        pass.count_tokens(0.1 * static_cast<double>(batch.rows()));
        return Mean::operator()(batch, pass);
    }
};

// Fractions of tokens add up. Their sum does not depend on which rank hosts which replica.
BOOST_AUTO_TEST_CASE(fractions_of_tokens_close_a_window) {
    for (const int ranks : {1, 2, 3, 4}) {
        BOOST_TEST_CONTEXT(ranks << " ranks") {
            std::vector<std::int64_t> counts;
            check_clean(outcomes(ranks, [&](auto& world) {
                Tenths model(columns);
                un::Trainer trainer{world,
                                    model,
                                    un::Replicas{4},
                                    un::SequentialSampler{},
                                    un::ByTokens{},
                                    un::Sgd{.learning_rate = 1e-3},
                                    un::AccumulateTokens{.tokens = 1}};
                std::vector<std::int64_t> mine;
                trainer.fit(data(), {.batch_size = 1, .progress = false},
                            [&](const un::UpdateReport& report) { mine.push_back(report.samples); });
                if (world.rank() == 0) counts = mine;
            }));
            BOOST_TEST(counts == (std::vector<std::int64_t>{12, 12, 5}), boost::test_tools::per_element());
        }
    }
}

// 10 times 0.1 is less than 1 in binary, added one after another, and 1, added by two ranks.
BOOST_AUTO_TEST_CASE(the_sum_of_fractions_of_tokens_is_that_of_one_rank) {
    for (const int ranks : {1, 2, 5}) {
        check_clean(outcomes(ranks, [&](auto& world) {
            Tenths model(columns);
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, un::Accumulate{10 / ranks}};
            std::vector<std::int64_t> tokens;
            trainer.fit(data(), {.batch_size = 1, .progress = false},
                        [&](const un::UpdateReport& report) { tokens.push_back(report.tokens); });
            if (tokens.size() != 3 || tokens[0] != 1 || tokens[1] != 1) // 9 samples are left
                throw std::runtime_error("tokens: " + std::to_string(tokens.at(0)));
        }));
    }
}

/// The samples from this one on are padding: they have no tokens.
struct Padded : Mean {
    static constexpr std::size_t padding = 20;
    using Mean::Mean;
    double operator()(const un::RowBatch<double, double>& batch, un::Pass& pass) {
        const auto indices = pass.facts().samples;
        const auto real = std::count_if(indices.begin(), indices.end(), [](std::size_t i) { return i < padding; });
        pass.count_tokens(static_cast<double>(real));
        return real == 0 ? 0 : Mean::operator()(batch, pass);
    }
};

// An update without any token is left out, as one without data: the window at an epoch's end may be
// nothing but padding.
BOOST_AUTO_TEST_CASE(padding_alone_makes_no_update) {
    const un::RowData<double, double> real{std::span(inputs).first(Padded::padding * columns), columns,
                                           std::span(targets).first(Padded::padding)};
    std::vector<double> expected;
    for (const int ranks : {1, 2, 3, 4}) {
        BOOST_TEST_CONTEXT(ranks << " ranks") {
            std::vector<un::UpdateReport> reports;
            std::vector<double> found;
            un::EpochReport epoch;
            check_clean(outcomes(ranks, [&](auto& world) {
                const auto trained = [&](const auto& set, auto see) {
                    Padded model(columns);
                    un::Trainer trainer{world,
                                        model,
                                        un::Replicas{4},
                                        un::SequentialSampler{},
                                        un::ByTokens{},
                                        un::Sgd{.learning_rate = 0.1, .momentum = 0.9},
                                        un::AccumulateTokens{.tokens = 4}};
                    const auto report = trainer.fit(set, {.batch_size = 1, .progress = false}, see);
                    trainer.verify_replicas();
                    return std::pair(model.values(), report.epochs.front());
                };
                std::vector<un::UpdateReport> mine;
                const auto [values, told] =
                    trained(data(), [&](const un::UpdateReport& report) { mine.push_back(report); });
                const auto without = trained(real, [](const un::UpdateReport&) {});
                if (world.rank() != 0) return;
                reports = mine;
                found = values;
                epoch = told;
                expected = without.first;
            }));
            BOOST_REQUIRE(reports.size() == 6u);
            BOOST_TEST(reports[4].committed);
            BOOST_TEST(!reports[5].committed);
            BOOST_TEST(reports[5].number == 5u);
            BOOST_TEST(reports[5].samples == 9);
            BOOST_TEST((epoch.updates == 5 && epoch.skipped == 1 && epoch.samples == 20));
            check_close(found, expected);
        }
    }
}

/// A mean over no tokens is 0 / 0, as is its gradient. They count as little as zeros would.
template <class Like>
struct PaddedMean : Like {
    bool zeros = false;
    using Like::Like;
    double operator()(const un::RowBatch<double, double>& batch, un::Pass& pass) {
        const auto indices = pass.facts().samples;
        const auto real =
            std::count_if(indices.begin(), indices.end(), [](std::size_t i) { return i % 3 == 0 && i < 20; });
        pass.count_tokens(static_cast<double>(real));
        if (real != 0) return Like::operator()(batch, pass);
        const double nothing = zeros ? 0 : std::numeric_limits<double>::quiet_NaN();
        for (std::size_t p = this->gradient_spans.size(); p-- > 0;) {
            for (double& one : this->gradient_spans[p]) one += nothing;
            if (this->says_ready) pass.ready(p);
        }
        return nothing;
    }
};

template <class Like, class... Policies>
void check_means_over_nothing(const Policies&... policies) {
    for (const int ranks : {1, 2, 3}) {
        BOOST_TEST_CONTEXT(ranks << " ranks") {
            check_clean(outcomes(ranks, [&](auto& world) {
                const auto trained = [&](bool zeros, bool ready) {
                    PaddedMean<Like> model(columns, 4);
                    model.zeros = zeros;
                    model.says_ready = ready;
                    un::Trainer trainer{world,           model,
                                        un::Replicas{6}, un::SequentialSampler{},
                                        un::ByTokens{},  un::Sgd{.learning_rate = 0.1, .momentum = 0.9},
                                        policies...};
                    std::vector<double> all;
                    std::uint64_t committed = 0;
                    const auto report = trainer.fit(data(), {.epochs = 3, .batch_size = 1, .progress = false},
                                                    [&](const un::UpdateReport& update) {
                                                        all.push_back(update.loss);
                                                        committed += update.committed ? 1 : 0;
                                                        if (update.offender_rank >= 0)
                                                            throw std::runtime_error("an offence");
                                                    });
                    // Of the last samples of an epoch none counts.
                    if (committed == 0 || report.epochs.front().skipped == 0)
                        throw std::runtime_error("expected updates, and an update of nothing");
                    const auto weights = model.values();
                    all.insert(all.end(), weights.begin(), weights.end());
                    return all;
                };
                for (const bool ready : {false, true})
                    if (trained(false, ready) != trained(true, ready)) throw std::runtime_error("the bits differ");
            }));
        }
    }
}

BOOST_AUTO_TEST_CASE(a_micro_batch_without_tokens_counts_nothing_even_if_it_is_not_a_number) {
    check_means_over_nothing<Mean>();
    check_means_over_nothing<Pieces>(un::Accumulate{.steps = 2}, un::Buckets{.bytes = 32});
    check_means_over_nothing<Mean>(un::Reproducible{}, un::StateSharding{}, un::Buckets{.bytes = 32});
    check_means_over_nothing<Pieces>(un::AccumulateTokens{.tokens = 1}, un::RingReducer{});
}

// The same of a rank that updates on its own, and of batches without samples.
BOOST_AUTO_TEST_CASE(ranks_may_have_nothing_but_padding) {
    check_clean(outcomes(2, [](auto& world) {
        Tokens model(columns);
        un::Trainer trainer{world, model, un::LocalSteps{.steps = 2}, un::ByTokens{}, un::Sgd{.learning_rate = 0.1}};
        Mean other(columns);
        un::Trainer by_samples{world, other, un::BySamples{}};
        const un::RowBatch<double, double> none{.values = {}, .labels = {}, .width = columns};
        const std::array<std::size_t, 2> two = {0, 1};
        const bool has = world.rank() == 0;
        for (int i = 0; i < 4; ++i) {
            const auto report = has ? trainer.step(data().batch(two)) : trainer.step(none);
            if (report.committed != has) throw std::runtime_error("an update of nothing");
        }
        trainer.synchronise();
        trainer.verify_replicas();
        if (by_samples.step(none).committed) throw std::runtime_error("an update without samples");
        if (!(has ? by_samples.step(data().batch(two)) : by_samples.step(none)).committed)
            throw std::runtime_error("one rank has samples");
        for (const double one : other.values())
            if (!std::isfinite(one)) throw std::runtime_error("not finite");
    }));
}

BOOST_AUTO_TEST_CASE(the_plan_in_words) {
    un::Group<un::InProcess> world;
    Mean model(columns, 4);
    un::Trainer trainer{world, model, un::InterleavedSampler{.replicas = 2}, un::Accumulate{.steps = 4},
                        un::Sgd{.momentum = 0.9}};
    const std::string text = trainer.describe(samples, {.batch_size = 3});
    for (const char* words :
         {"InterleavedSampler", "Accumulate", "native", "replicated", "Sgd(learning_rate 0.001, momentum 0.9, ",
          "InterleavedSampler(replicas 2, shuffle true, seed 0, ", "2 parameters, 6 elements, 48 B",
          "2 per round, 2 hosted", "1 ranks x 4 micro-batches x 3 samples = 12 samples"})
        BOOST_TEST(text.find(words) != std::string::npos, words << " is not in\n" << text);
}

/// An observer of the tests.
struct CountingObserver {
    struct Run {
        int* counts;
        bool prints;
        void begin(const un::ProgressPoint&) { counts[0] += prints ? 1 : 0; }
        void update(const un::ProgressPoint& point) { counts[1] += prints && point.samples > 0 ? 1 : 0; }
        void epoch_end(const un::ProgressPoint& point) { counts[2] += prints && point.samples == samples ? 1 : 0; }
    };
    int* counts = nullptr;
    static constexpr std::string_view name = "counting";
    static constexpr un::Family family = un::Family::observer;
    friend bool operator==(const CountingObserver&, const CountingObserver&) = default;
    [[nodiscard]] Run start(bool prints) const { return {counts, prints}; }
};

BOOST_AUTO_TEST_CASE(only_rank_0_prints) {
    int counts[3][3] = {};
    check_clean(outcomes(3, [&](auto& world) {
        Mean model(columns);
        un::Trainer trainer{world, model, CountingObserver{counts[world.rank()]}};
        trainer.fit(data(), {.epochs = 2, .batch_size = 2});
        trainer.fit(data(), {.epochs = 1, .batch_size = 2, .progress = false});
    }));
    const int updates = 2 * 5; // 10 samples per rank, 2 per batch
    BOOST_TEST(counts[0][0] == 1);
    BOOST_TEST(counts[0][1] == updates);
    BOOST_TEST(counts[0][2] == 2);
    for (int rank = 1; rank < 3; ++rank)
        for (const int count : counts[rank]) BOOST_TEST(count == 0);
}

BOOST_AUTO_TEST_CASE(fields_of_policies) {
    struct Inner {
        int a = 1;
        bool b = true;
    };
    struct Nested {
        Inner inner;
        double c = 2.5;
        std::string d;
        un::OnOffence e = un::OnOffence::skip;
        std::int64_t f = -7;
    };
    struct Derived : un::Sgd {
        double extra = 1;
    };
    struct Plain : un::Synchronous {};
    const auto text = [](const auto& value) {
        un::detail::PolicyFacts facts{"", "x"};
        un::detail::append_fields(facts.fields, value);
        return facts.text();
    };
    BOOST_TEST(text(Nested{}) == "x(inner.a 1, inner.b true, c 2.5, e skip, f -7)");
    BOOST_TEST(text(Derived{}) == "x"); // members of a base class cannot be distinguished
    BOOST_TEST(text(Plain{}) == "x");
    BOOST_TEST(text(un::ParameterServerReducer{.servers = 3}) == "x(servers 3)");
    static_assert(un::detail::field_name<un::Sgd, 1>() == "momentum");
    BOOST_TEST(un::detail::facts_of(un::Sgd{.nesterov = true}).text() ==
               "Sgd(learning_rate 0.001, momentum 0, dampening 0, nesterov true, weight_decay 0)");
    const auto hash = [](const auto& policy) { return un::detail::facts_of(policy).hash(); };
    BOOST_TEST(hash(un::Sgd{}) == hash(un::Sgd{.learning_rate = 1e-3}));
    BOOST_TEST(hash(un::Sgd{}) != hash(un::Sgd{.learning_rate = 1e-2}));
    BOOST_TEST(hash(un::Sgd{.momentum = 0.5}) != hash(un::Sgd{.dampening = 0.5}));
    BOOST_TEST(hash(un::RingReducer{}) != hash(un::TreeReducer{}));
}

BOOST_AUTO_TEST_CASE(where_parameters_lie_may_differ_between_ranks) {
    struct Scattered { // adjacent on even ranks, apart on odd ones
        explicit Scattered(int rank) : gap(rank % 2 == 0 ? 0 : 3) {}
        auto spans(std::vector<float>& all) const {
            return std::array{std::span(all).first(2), std::span(all).subspan(2 + gap, 3),
                              std::span(all).subspan(5 + 2 * gap, 1)};
        }
        auto parameters() { return spans(weights); }
        auto gradients() { return spans(gradient); }
        double operator()(const float& batch, un::Pass&) {
            for (const auto one : gradients())
                for (float& g : one) g += batch;
            return batch;
        }
        std::size_t gap;
        std::vector<float> weights = std::vector<float>(20), gradient = std::vector<float>(20);
    };
    std::vector<std::vector<float>> ends(3);
    check_clean(outcomes(3, [&](auto& world) {
        Scattered model(world.rank());
        for (const auto one : model.parameters()) std::fill(one.begin(), one.end(), world.rank() == 0 ? 1.f : 9.f);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.5}, un::RingReducer{}};
        trainer.step(static_cast<float>(world.rank()));
        for (const auto one : model.parameters())
            ends[static_cast<std::size_t>(world.rank())].insert(ends[static_cast<std::size_t>(world.rank())].end(),
                                                                one.begin(), one.end());
    }));
    // 1 - 0.5 * mean of 0, 1, 2.
    for (const auto& end : ends) BOOST_CHECK(end == std::vector<float>(6, 0.5f));
}

BOOST_AUTO_TEST_CASE(a_step_allocates_nothing) {
    struct Lean {
        std::vector<float> weights = std::vector<float>(3000, 1.f), gradient = std::vector<float>(3000);
        std::vector<std::span<float>> spans, gradient_spans;
        Lean() {
            for (std::size_t at = 0; at < 3000; at += 1000) {
                spans.push_back(std::span(weights).subspan(at, 1000));
                gradient_spans.push_back(std::span(gradient).subspan(at, 1000));
            }
        }
        auto& parameters() { return spans; }
        auto& gradients() { return gradient_spans; }
        double operator()(const int& batch, un::Pass& pass) {
            for (float& g : gradient) g += static_cast<float>(batch);
            for (std::size_t i = 3; i-- > 0;) pass.ready(i);
            return 1;
        }
    };
    const auto count = [](int ranks, auto... policies) {
        std::vector<std::size_t> allocations(static_cast<std::size_t>(ranks));
        check_clean(outcomes(ranks, [&](auto& world) {
            Lean model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1e-3, .momentum = 0.9},
                                un::Buckets{.first_bytes = 4000, .bytes = 4000}, policies...};
            for (int i = 0; i < 3; ++i) trainer.step(1), trainer.step(1, 2);
            const std::size_t before = allocations_of_thread();
            for (int i = 0; i < 100; ++i) trainer.step(1), trainer.step(1, 2);
            allocations[static_cast<std::size_t>(world.rank())] = allocations_of_thread() - before;
        }));
        std::size_t most = 0;
        for (const std::size_t one : allocations) most = std::max(most, one);
        return most;
    };
    BOOST_TEST(count(1) == 0u);
    BOOST_TEST(count(2) == 0u);
    BOOST_TEST(count(3, un::RingReducer{}) == 0u);
    BOOST_TEST(count(2, un::ParameterServerReducer{.servers = 2}) == 0u);
    BOOST_TEST(count(3, un::StateSharding{}) == 0u);
    BOOST_TEST(count(1, un::Reproducible{}) == 0u);
    BOOST_TEST(count(2, un::Reproducible{}) == 0u);
    BOOST_TEST(count(3, un::Reproducible{}, un::RingReducer{}) == 0u);
}

BOOST_AUTO_TEST_CASE(the_plan_tells_how_sizes_suit_devices) {
    struct Shaped {
        std::vector<std::vector<std::size_t>> shapes;
        std::vector<std::vector<float>> values = {}, slopes = {};
        std::vector<std::span<float>> weights = {}, gradient = {};
        void make() {
            for (const auto& shape : shapes) {
                std::size_t count = 1;
                for (const std::size_t one : shape) count *= one;
                values.emplace_back(count);
                slopes.emplace_back(count);
            }
            for (std::size_t p = 0; p < shapes.size(); ++p)
                weights.emplace_back(values[p]), gradient.emplace_back(slopes[p]);
        }
        const std::vector<std::span<float>>& parameters() { return weights; }
        const std::vector<std::span<float>>& gradients() { return gradient; }
        const std::vector<std::vector<std::size_t>>& parameter_shapes() const { return shapes; }
        double operator()(int, un::Pass&) { return 0; }
    };
    const auto told = [](std::vector<std::vector<std::size_t>> shapes) {
        Shaped model{.shapes = std::move(shapes)};
        model.make();
        std::string text;
        check_clean(outcomes(1, [&](auto& world) { text = un::Trainer{world, model, un::Sgd{}}.describe(); }));
        const std::size_t at = text.find("matrices ");
        return at == std::string::npos ? std::string() : text.substr(at, text.find('\n', at) - at);
    };
    const auto ends = [&](std::vector<std::vector<std::size_t>> shapes, const std::string& words) {
        const std::string found = told(std::move(shapes));
        BOOST_TEST(found.ends_with(words), found);
    };
    ends({{128, 256}, {10}, {48, 128}, {8, 16}, {24, 3, 3, 3}, {30, 10}},
         "  of 5, 1 in multiples of 128, 1 of 16, 1 of 8, 2 of none, first: parameter 4, 24 x 27");
    ends({{12, 128}}, "  of 1, 0 in multiples of 128, 0 of 16, 0 of 8, 1 of none: parameter 0, 12 x 128");
    ends({{16, 16}}, "  of 1, 0 in multiples of 128, 1 of 16, 0 of 8, 0 of none");
    BOOST_TEST(told({{7}, {1, 9}}) == ""); // vectors
}

BOOST_AUTO_TEST_SUITE_END()
