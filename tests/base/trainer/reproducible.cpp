// Trainings whose bits depend only on the replicas: not on the number of ranks, nor on reducer,
// transport, buckets or which rank hosts what. Also tests gradients that do not fit their grid.
#include "models.hpp"
#include "outcomes.hpp"

#include "support/owners_or_all.hpp"
#include "unisono/automatic.hpp"
#include "unisono/extensions/automatic/reducer.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr std::size_t columns = 6;
constexpr std::size_t samples = 53;

const std::vector<float> inputs = [] {
    std::vector<float> all(samples * columns);
    un::Mt19937 generator(31);
    un::torch_rand(generator, std::span<float>(all));
    return all;
}();
const std::vector<float> targets = [] {
    std::vector<float> all(samples);
    un::Mt19937 generator(32);
    un::torch_rand(generator, std::span<float>(all));
    return all;
}();
un::RowData<float, float> data() { return {inputs, columns, targets}; }

/// All that a run reports: weights, and of each update the loss and, if it is clipped, the norm.
struct Result {
    std::vector<float> weights;
    std::vector<double> losses;
    std::vector<double> norms;
    [[nodiscard]] bool same_as(const Result& other) const {
        return weights.size() == other.weights.size() && losses.size() == other.losses.size() && !weights.empty() &&
               std::memcmp(weights.data(), other.weights.data(), weights.size() * sizeof(float)) == 0 &&
               std::memcmp(losses.data(), other.losses.data(), losses.size() * sizeof(double)) == 0 &&
               norms.size() == losses.size() && other.norms.size() == norms.size() &&
               std::memcmp(norms.data(), other.norms.data(), norms.size() * sizeof(double)) == 0;
    }
};

/// Trains. Returns the result of rank 0, after a check that all ranks have it.
template <class Model, class... Policies>
Result train(int ranks, const un::FitOptions& options, Policies... policies) {
    std::vector<Result> results(static_cast<std::size_t>(ranks));
    check_clean(outcomes(ranks, [&](auto& world) {
        Model model(columns, 4);
        model.says_ready = true;
        un::Trainer trainer(world, model, policies...);
        Result& mine = results[static_cast<std::size_t>(world.rank())];
        auto set = data();
        trainer.fit(set, options, [&](const un::UpdateReport& report) {
            mine.losses.push_back(report.loss);
            mine.norms.push_back(report.gradient_norm);
        });
        trainer.verify_replicas();
        mine.weights = model.values();
    }));
    for (const Result& one : results) BOOST_TEST(one.same_as(results[0]));
    return results[0];
}

using Contiguous = LeastSquares<float>;
using InPieces = LeastSquares<float, un::GradientKind::mean, true>;
using Sums = LeastSquares<float, un::GradientKind::sum>;

const un::Sgd momentum{.learning_rate = 0.05, .momentum = 0.9};
const un::FitOptions options{.epochs = 2, .batch_size = 3, .progress = false};

} // namespace

BOOST_AUTO_TEST_SUITE(trainer_reproducible)

BOOST_AUTO_TEST_CASE(any_number_of_ranks_gives_the_bits_of_one) {
    for (const std::int64_t replicas : {6, 8}) {
        const un::Replicas logical{replicas};
        const Result one = train<Contiguous>(1, options, logical, un::Reproducible{}, momentum);
        BOOST_TEST(one.losses.back() < one.losses.front());
        bool plain_differs = false;
        const Result plain_one = train<Contiguous>(1, options, logical, momentum);
        for (int ranks = 2; ranks <= replicas; ++ranks) {
            BOOST_TEST(train<Contiguous>(ranks, options, logical, un::Reproducible{}, momentum).same_as(one));
            plain_differs = plain_differs || !train<Contiguous>(ranks, options, logical, momentum).same_as(plain_one);
        }
        BOOST_TEST(plain_differs); // otherwise the test above shows nothing
    }
}

BOOST_AUTO_TEST_CASE(neither_reducer_nor_buckets_nor_memory_matter) {
    const un::Replicas logical{6};
    // Its norm, too, does not depend on the owners.
    const un::ClipByNorm clip{.max_norm = 0.4};
    const Result one = train<Contiguous>(1, options, logical, un::Reproducible{}, clip, momentum);
    BOOST_TEST(!train<Contiguous>(1, options, logical, un::Reproducible{}, momentum).same_as(one));
    BOOST_TEST(one.norms.front() > 0.4);
    const auto same = [&](const Result& other) { BOOST_TEST(other.same_as(one)); };
    for (int ranks = 2; ranks <= 6; ++ranks) {
        same(train<Contiguous>(ranks, options, logical, un::Reproducible{}, clip, momentum, un::RingReducer{}));
        same(train<InPieces>(ranks, options, logical, un::Reproducible{}, clip, momentum,
                             un::RingReducer{.chunk_bytes = 8}));
        same(train<InPieces>(ranks, options, logical, un::Reproducible{}, clip, momentum));
        same(train<Contiguous>(ranks, options, logical, un::Reproducible{}, clip, momentum, un::TreeReducer{}));
        same(train<Contiguous>(ranks, options, logical, un::Reproducible{}, clip, momentum,
                               un::HalvingDoublingReducer{}));
        same(train<Contiguous>(ranks, options, logical, un::Reproducible{}, clip, momentum,
                               un::ParameterServerReducer{2}));
        same(train<InPieces>(ranks, options, logical, un::Reproducible{}, clip, momentum,
                             un::ParameterServerReducer{1}));
        same(train<Contiguous>(ranks, options, logical, un::Reproducible{}, clip, momentum, un::AutomaticReducer{}));
        same(train<Contiguous>(ranks, options, logical, un::Reproducible{}, clip, momentum, un::Buckets{1, 1}));
        same(train<Contiguous>(ranks, options, logical, un::Reproducible{}, clip, momentum, un::StateSharding{}));
        same(train<InPieces>(ranks, options, logical, un::Reproducible{}, clip, momentum, un::StateSharding{},
                             un::RingReducer{}));
        same(train<InPieces>(ranks, options, logical, un::Reproducible{}, clip, momentum,
                             test::OwnersOrAll{.sharded = true}));
        same(train<InPieces>(ranks, options, logical, un::Reproducible{}, clip, momentum, un::Buckets{8, 1}));
    }
    auto ahead = options;
    ahead.read_ahead = 2;
    same(train<Contiguous>(3, ahead, logical, un::Reproducible{}, clip, momentum));
}

BOOST_AUTO_TEST_CASE(images_of_four_bytes_have_the_bits_of_sums_straight_from_memory) {
    const un::Replicas logical{6};
    const un::NarrowReproducible narrow{};
    const un::ClipByNorm clip{.max_norm = 0.4};
    const Result one = train<Contiguous>(1, options, logical, narrow, clip, momentum);
    BOOST_TEST(one.losses.back() < one.losses.front());
    const Result wide = train<Contiguous>(1, options, logical, un::Reproducible{}, clip, momentum);
    BOOST_TEST(!wide.same_as(one)); // a coarser grid
    for (std::size_t i = 0; i < one.weights.size(); ++i) BOOST_TEST(std::abs(one.weights[i] - wide.weights[i]) < 1e-4f);
    for (const int ranks : {2, 4, 6}) {
        BOOST_TEST(train<Contiguous>(ranks, options, logical, narrow, clip, momentum).same_as(one));
        BOOST_TEST(train<InPieces>(ranks, options, logical, narrow, clip, momentum, un::RingReducer{.chunk_bytes = 8})
                       .same_as(one));
        BOOST_TEST(train<InPieces>(ranks, options, logical, narrow, clip, momentum, un::StateSharding{}).same_as(one));
    }
}

BOOST_AUTO_TEST_CASE(the_error_of_four_bytes_is_within_its_bound_and_needs_it) {
    // L addends of each element, the greatest of which is just below a power of two, the worst case
    // of the grid.
    constexpr int addends = 8;
    struct Addends {
        std::vector<float> weights = std::vector<float>(1000), gradient = std::vector<float>(1000);
        std::span<float> parameters() { return weights; }
        std::span<float> gradients() { return gradient; }
        static float value(int which, std::size_t i) {
            un::CounterRandom random(3, static_cast<std::uint32_t>(which), i);
            return i == 0 ? 0.5f : std::ldexp(random.uniform() - 0.5f, -static_cast<int>(i % 30));
        }
        double operator()(int which, un::Pass&) {
            for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += value(which, i);
            return 0;
        }
    };
    for (const int headroom : {0, 2, 5}) {
        check_clean(outcomes(2, [&](auto& world) {
            Addends model;
            un::Trainer trainer(world, model, un::NarrowReproducible{.headroom_bits = headroom},
                                un::Sgd{.learning_rate = 1}, un::RingReducer{});
            const int first = world.rank() * addends / 2;
            trainer.step(first, first + 1, first + 2, first + 3);
            // The mean of eight: weights 1, and an exact division.
            const double bound = addends * std::ldexp(0.5, headroom + 4 - 30);
            double worst = 0;
            for (std::size_t i = 0; i < model.weights.size(); ++i) {
                double exact = 0;
                for (int which = 0; which < addends; ++which) exact += static_cast<double>(Addends::value(which, i));
                const double found = -addends * static_cast<double>(model.weights[i]);
                const double rounding = std::abs(exact) * 0x1p-23;
                worst = std::max(worst, std::abs(found - exact) - rounding);
            }
            if (worst > bound) throw std::runtime_error("the bound does not hold");
            if (worst < bound / 16) throw std::runtime_error("the bound is far too wide, or nothing was rounded");
        }));
    }
}

BOOST_AUTO_TEST_CASE(weights_guards_optimizers_and_windows) {
    const un::Replicas logical{5};
    const auto check = [&](auto make) {
        const Result one = make(1);
        for (const int ranks : {2, 3, 5}) BOOST_TEST(make(ranks).same_as(one));
    };
    check([&](int r) {
        return train<Contiguous>(r, options, logical, un::Reproducible{}, un::AdamW{}, un::BySamples{});
    });
    check([&](int r) {
        return train<Sums>(r, options, logical, un::Reproducible{}, un::Adam{}, un::BySamples{},
                           un::SequentialSampler{});
    });
    check([&](int r) {
        return train<Contiguous>(r, options, logical, un::Reproducible{}, momentum, un::Accumulate{.steps = 3});
    });
    check([&](int r) {
        return train<InPieces>(r, options, logical, un::Reproducible{.headroom_bits = 0}, momentum, un::NoGuard{},
                               un::DistributedSampler{.shuffle = false});
    });
}

BOOST_AUTO_TEST_CASE(close_to_sums_in_double) {
    const Result exact = train<Contiguous>(2, options, un::Replicas{6}, un::Reproducible{}, momentum);
    const Result plain = train<Contiguous>(2, options, un::Replicas{6}, momentum);
    for (std::size_t i = 0; i < exact.weights.size(); ++i)
        BOOST_TEST(std::abs(exact.weights[i] - plain.weights[i]) < 1e-5f);
}

BOOST_AUTO_TEST_CASE(replicas_host_each_micro_batch_once_and_name_their_randomness) {
    struct Seen {
        std::multiset<std::vector<std::uint64_t>> all;
        std::mutex mutex;
    };
    struct Watching : Contiguous {
        using Contiguous::Contiguous;
        Seen* seen = nullptr;
        double operator()(const un::RowBatch<float, float>& batch, un::Pass& pass) {
            auto random = pass.random();
            std::vector<std::uint64_t> facts = {pass.epoch(), pass.update(), pass.replica(), pass.replicas(), random()};
            for (const float x : batch.labels) facts.push_back(std::bit_cast<std::uint32_t>(x));
            const std::lock_guard lock(seen->mutex);
            seen->all.insert(facts);
            return Contiguous::operator()(batch, pass);
        }
    };
    const auto seen_by = [&](int ranks) {
        Seen seen;
        check_clean(outcomes(ranks, [&](auto& world) {
            Watching model(columns, 4);
            model.seen = &seen;
            un::Trainer trainer(world, model, un::Replicas{5}, momentum, un::Accumulate{.steps = 2});
            auto set = data();
            auto own = options;
            own.seed = 99;
            trainer.fit(set, own);
        }));
        return seen.all;
    };
    const auto one = seen_by(1);
    // 2 epochs x 4 rounds of 15 samples (padded to 55) x 5 replicas.
    BOOST_TEST(one.size() == 40u);
    for (const int ranks : {2, 3, 4, 5}) BOOST_TEST((seen_by(ranks) == one));
}

BOOST_AUTO_TEST_CASE(evaluation_and_predictions_are_cut_for_the_replicas) {
    // The metric adds a batch's mean in float, so other batches or another order would show.
    struct Judged : Contiguous {
        using Contiguous::Contiguous;
        void evaluate(const un::RowBatch<float, float>& batch, un::MeanMetric& metric) {
            float sum = 0;
            for (std::size_t i = 0; i < batch.rows(); ++i)
                sum += batch.labels[i] * static_cast<float>(output(batch.row(i)));
            metric.add(static_cast<double>(sum / static_cast<float>(batch.rows())), static_cast<double>(batch.rows()));
        }
    };
    const auto judge = [](int ranks, auto... policies) {
        double value = 0;
        std::vector<float> outputs;
        check_clean(outcomes(ranks, [&](auto& world) {
            Judged model(columns);
            for (std::size_t i = 0; i < columns; ++i) model.contiguous[i] = 0.1f + 0.3f * static_cast<float>(i);
            un::Trainer trainer(world, model, policies...);
            auto set = data();
            const auto [mean] = trainer.evaluate(set, {.batch_size = 4}, un::MeanMetric{});
            const auto predicted = trainer.predict(set, {.batch_size = 4});
            if (world.rank() == 0) value = mean.value();
            if (world.rank() == 0) outputs = predicted;
        }));
        return std::pair(value, outputs);
    };
    const auto one = judge(1, un::Replicas{7});
    BOOST_TEST(one.second.size() == samples);
    for (const int ranks : {2, 3, 5, 7}) {
        const auto other = judge(ranks, un::Replicas{7});
        BOOST_TEST(std::memcmp(&other.first, &one.first, sizeof(double)) == 0);
        BOOST_TEST((other.second == one.second));
    }
    BOOST_TEST((judge(3).second == one.second));
}

BOOST_AUTO_TEST_CASE(fewer_replicas_than_ranks_and_two_who_say_how_many_are_refused) {
    for (const Outcome& one : outcomes(3, [&](auto& world) {
             Contiguous model(columns);
             un::Trainer trainer(world, model, un::Replicas{2});
             auto set = data();
             trainer.fit(set, options);
         })) {
        BOOST_TEST(one.failed);
        BOOST_TEST(one.says("Replicas.count is 2; expected 3"));
    }
    for (const Outcome& one : outcomes(1, [&](auto& world) {
             Contiguous model(columns);
             un::Trainer trainer(world, model, un::Reproducible{.headroom_bits = 25});
         }))
        BOOST_TEST(one.says("Reproducible.headroom_bits is 25; expected 0 to 24"));
}

namespace {

/// The batch is its gradient. It counts its calls.
struct Scripted {
    std::vector<float> weights = std::vector<float>(4), gradient = std::vector<float>(4);
    int calls = 0;
    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }
    double operator()(const std::vector<float>& batch, un::Pass&) {
        ++calls;
        for (std::size_t i = 0; i < 4; ++i) gradient[i] += batch[i];
        return batch[0];
    }
};
const un::Sgd plain{.learning_rate = 1};

} // namespace

template <class Summation>
void check_misfits() {
    for (const int ranks : {1, 2, 3}) {
        for (const un::OnMisfit what : {un::OnMisfit::widen, un::OnMisfit::skip, un::OnMisfit::stop}) {
            for (const std::size_t hosted : {1u, 2u}) {
                check_clean(outcomes(ranks, [&](auto& world) {
                    const auto expect = [](bool good, const char* text) {
                        if (!good) throw std::runtime_error(text);
                    };
                    Scripted model;
                    un::Trainer trainer(world, model, Summation{.headroom_bits = 4, .on_misfit = what}, plain);
                    const auto step = [&](std::vector<float> batch) {
                        return hosted == 1 ? trainer.step(batch) : trainer.step(batch, batch);
                    };
                    const auto per_step = static_cast<int>(hosted);
                    expect(step({1, 2, 3, 0}).committed, "first");
                    expect(model.calls == 2 * per_step, "the first is repeated, since nothing was known");
                    expect(model.weights[2] == -3.0f && model.weights[3] == 0.0f, "values");
                    expect(step({1, 2, 20, 0}).committed && model.calls == 3 * per_step, "grows within its headroom");
                    // Only the last rank's gradient is too large.
                    const bool large = world.rank() == world.size() - 1;
                    const std::vector<float> before = model.weights;
                    bool committed = false;
                    bool stopped = false;
                    try {
                        committed = step({1, 2, large ? 4096.0f : 0.0f, 0}).committed;
                    } catch (const un::error& e) {
                        stopped = e.code() == un::ErrorCode::refused;
                    }
                    expect(stopped == (what == un::OnMisfit::stop), "stopped");
                    expect(committed == (what == un::OnMisfit::widen), "committed");
                    const auto mean = 4096.0f / static_cast<float>(world.size());
                    if (committed)
                        expect(model.weights[2] == before[2] - mean && model.calls == 5 * per_step, "repeated");
                    else expect(model.weights == before && model.calls == 4 * per_step, "as before");
                    expect(step({1, 2, 4096.0f, 0}).committed, "goes on with a wider grid");
                }));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(a_gradient_beyond_its_grid_is_repeated_skipped_or_an_error) {
    check_misfits<un::Reproducible>();
    check_misfits<un::NarrowReproducible>();
}

BOOST_AUTO_TEST_CASE(not_finite_is_found_on_all_ranks_with_a_guard_and_without) {
    const auto check = [](auto guard, un::OnMisfit what, bool throws) {
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            check_clean(outcomes(3, [&](auto& world) {
                Scripted model;
                un::Trainer trainer(world, model, un::Reproducible{.on_misfit = what}, plain, guard);
                const std::vector<float> good(4, 1.0f);
                std::vector<float> mine = good;
                if (world.rank() == 1) mine[2] = bad;
                bool thrown = false;
                for (int i = 0; i < 3; ++i) {
                    trainer.step(good);
                    try {
                        if (trainer.step(mine).committed) throw std::runtime_error("committed");
                    } catch (const un::error& e) {
                        if (e.code() != un::ErrorCode::not_finite || e.rank() != 1) throw;
                        thrown = true;
                    }
                    if (model.weights[2] != -static_cast<float>(i + 1)) throw std::runtime_error("changed");
                }
                if (thrown != throws) throw std::runtime_error("outcome");
            }));
        }
    };
    check(un::FiniteGuard{}, un::OnMisfit::widen, true);
    check(un::FiniteGuard{.action = un::OnOffence::skip}, un::OnMisfit::widen, false);
    check(un::NoGuard{}, un::OnMisfit::widen, true);
    check(un::NoGuard{}, un::OnMisfit::skip, false);
}

BOOST_AUTO_TEST_CASE(large_parameters_of_different_scales_straight_from_memory_and_by_images) {
    // Each parameter has a grid of its own, and each rank's part of a bucket begins somewhere
    // within a parameter.
    struct Large {
        std::vector<float> weights = std::vector<float>(2000), gradient = std::vector<float>(2000);
        static std::vector<std::span<float>> cut(std::vector<float>& all) {
            std::vector<std::span<float>> spans;
            std::size_t begin = 0;
            for (const std::size_t end : {700u, 700u, 707u, 1900u, 2000u}) {
                spans.push_back(std::span(all).subspan(begin, end - begin));
                begin = end;
            }
            return spans;
        }
        std::vector<std::span<float>> parameters() { return cut(weights); }
        std::vector<std::span<float>> gradients() { return cut(gradient); }
        double operator()(int which, un::Pass&) {
            un::CounterRandom random(77, static_cast<std::uint32_t>(which));
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                const float scale = i < 700 ? 1.0f : (i < 707 ? 1e-9f : (i < 1900 ? 1e7f : 1e-3f));
                gradient[i] += std::ldexp(scale * (random.uniform() - 0.5f), -static_cast<int>(i % 50));
            }
            return 1.0 / which;
        }
    };
    std::vector<float> one;
    const auto train = [](int ranks, auto... policies) {
        std::vector<float> found;
        check_clean(outcomes(ranks, [&](auto& world) {
            Large model;
            un::Trainer trainer(world, model, un::Reproducible{}, un::Adam{}, policies...);
            for (int update = 0; update < 4; ++update) {
                const int batch = 1 + 4 * update;
                if (ranks == 1) trainer.step(batch, batch + 1, batch + 2, batch + 3);
                else if (ranks == 2) trainer.step(batch + 2 * world.rank(), batch + 2 * world.rank() + 1);
                else trainer.step(batch + world.rank());
            }
            if (world.rank() == 0) found = model.weights;
        }));
        return found;
    };
    one = train(1);
    BOOST_TEST(one[1] != 0.0f);
    const auto same = [&](const std::vector<float>& other) {
        BOOST_TEST(std::memcmp(other.data(), one.data(), one.size() * sizeof(float)) == 0);
    };
    same(train(2));
    same(train(4));
    same(train(4, un::Buckets{1, 1}));
    same(train(4, un::ParameterServerReducer{3}));
    same(train(2, un::ParameterServerReducer{2}));
    same(train(4, un::RingReducer{.chunk_bytes = 100}));
    // One micro-batch in total, beside ranks without one: small elements are still rounded to the
    // grid.
    const auto alone = [](int ranks, auto... policies) {
        std::vector<float> found;
        check_clean(outcomes(ranks, [&](auto& world) {
            Large model;
            un::Trainer trainer(world, model, un::Reproducible{}, plain, policies...);
            if (world.rank() == ranks - 1) trainer.step(3);
            else trainer.step();
            if (world.rank() == 0) found = model.weights;
        }));
        return found;
    };
    one = alone(1);
    same(alone(2));
    same(alone(3, un::TreeReducer{}));
}

BOOST_AUTO_TEST_CASE(own_loops_host_as_many_as_they_like) {
    // 7 micro-batches, hosted in different numbers: 7; 3 + 4; 1 + 0 + 6; 2 + 2 + 2 + 1.
    std::vector<std::vector<int>> ways = {{7}, {3, 4}, {1, 0, 6}, {2, 2, 2, 1}};
    std::vector<float> expected;
    for (const auto& way : ways) {
        std::vector<float> found;
        check_clean(outcomes(static_cast<int>(way.size()), [&](auto& world) {
            Scripted model;
            un::Trainer trainer(world, model, un::Reproducible{}, un::Adam{.learning_rate = 0.1});
            int first = 0;
            for (int r = 0; r < world.rank(); ++r) first += way[static_cast<std::size_t>(r)];
            for (int update = 0; update < 5; ++update) {
                const auto batch = [&](int i) {
                    un::CounterRandom random(5, static_cast<std::uint32_t>(first + i),
                                             static_cast<std::uint64_t>(update));
                    return std::vector<float>{random.uniform(), random.uniform() * 1e-3f, random.uniform() * 1e6f,
                                              -0.0f};
                };
                switch (way[static_cast<std::size_t>(world.rank())]) {
                case 0: trainer.step(); break;
                case 1: trainer.step(batch(0)); break;
                case 2: trainer.step(batch(0), batch(1)); break;
                case 3: trainer.step(batch(0), batch(1), batch(2)); break;
                case 4: trainer.step(batch(0), batch(1), batch(2), batch(3)); break;
                case 6: trainer.step(batch(0), batch(1), batch(2), batch(3), batch(4), batch(5)); break;
                default: trainer.step(batch(0), batch(1), batch(2), batch(3), batch(4), batch(5), batch(6)); break;
                }
            }
            if (world.rank() == 0) found = model.weights;
        }));
        if (expected.empty()) expected = found;
        BOOST_TEST(expected.size() == 4u);
        BOOST_TEST(std::memcmp(found.data(), expected.data(), 16) == 0);
    }
}

namespace {

/// Its gradients do not lie in one piece of memory, so ranks cannot sum them there.
struct TwoPieces {
    std::vector<float> weights[2] = {std::vector<float>(1), std::vector<float>(1)};
    std::vector<float> sums[2] = {std::vector<float>(1), std::vector<float>(1)};
    std::array<std::span<float>, 2> parameters() { return {weights[0], weights[1]}; }
    std::array<std::span<float>, 2> gradients() { return {sums[0], sums[1]}; }
    double operator()(const std::array<float, 2>& batch, un::Pass&) {
        for (std::size_t i = 0; i < 2; ++i) sums[i][0] += batch[i];
        return 1;
    }
};

void need(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(std::string("expected that ") + what);
}

/// The second update: the rank `idle` has no micro-batch.
template <class... Policies>
void check_refused(int idle, Policies... policies) {
    const std::array<float, 2> large = {2e38f, 3}, one = {1, 1}; // four times the former is not finite
    check_clean(outcomes(2, [&](auto& world) {
        TwoPieces model;
        un::Trainer trainer(world, model, un::FiniteGuard{.action = un::OnOffence::skip}, un::Sgd{.learning_rate = 1},
                            policies...);
        need(!trainer.step(large, large).committed, "the first update is left out");
        const bool second = world.rank() == idle ? trainer.step().committed : trainer.step(one).committed;
        need(second && model.sums[0][0] == 0 && model.sums[1][0] == 0, "gradients are zero after the second");
        need(trainer.step(one).committed, "the third update is made");
        need(model.weights[1][0] == -2, "the second weight is -2"); // on the first one's grid, 1 is nothing
    }));
}

} // namespace

BOOST_AUTO_TEST_CASE(what_a_refused_update_has_left_is_in_no_later_one) {
    for (const int idle : {0, 1}) {
        check_refused(idle, un::Reproducible{});
        check_refused(idle, un::Reproducible{}, un::StateSharding{});
        check_refused(idle, un::PlainSums{});
        check_refused(idle, un::PlainSums{}, un::StateSharding{});
    }
}

BOOST_AUTO_TEST_SUITE_END()
