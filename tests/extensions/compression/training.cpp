// Training with compressed gradients reaches the known answer, with any other policies.
#include "../../base/trainer/models.hpp"
#include "../../base/trainer/outcomes.hpp"

#include "unisono/extensions/compression/adasum.hpp"
#include "unisono/extensions/compression/cast.hpp"
#include "unisono/extensions/compression/fp8.hpp"
#include "unisono/extensions/compression/int8.hpp"
#include "unisono/extensions/compression/one_bit.hpp"
#include "unisono/extensions/compression/power_sgd.hpp"
#include "unisono/extensions/compression/top_k.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr std::size_t columns = 12;
constexpr std::size_t rows = 48;

double answer(std::size_t i) { return std::sin(1 + 2.0 * static_cast<double>(i)); }

/// Rows with exactly known targets.
struct Task {
    std::vector<double> x = std::vector<double>(rows * columns), targets = std::vector<double>(rows);
    Task() {
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < columns; ++j) {
                x[i * columns + j] = std::cos(static_cast<double>(7 * i + 3 * j + i * j));
                targets[i] += x[i * columns + j] * answer(j);
            }
    }
    [[nodiscard]] un::RowData<double, double> data() const { return {x, columns, targets}; }
};

template <class... Policies>
void check_answer(int ranks, double bound, const Policies&... policies) {
    const Task task;
    check_clean(outcomes(ranks, [&](auto& world) {
        LeastSquares<double> model(columns, 5);
        model.says_ready = true; // buckets travel during the pass
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.05, .momentum = 0.5},
                            un::Buckets{.first_bytes = 1, .bytes = 50}, policies...};
        trainer.fit(task.data(), {.epochs = 60, .batch_size = 4, .progress = false});
        trainer.verify_replicas();
        for (std::size_t j = 0; j < columns; ++j)
            if (!(std::abs(model.values()[j] - answer(j)) <= bound))
                throw std::runtime_error("weight " + std::to_string(j) + " is off by " +
                                         std::to_string(std::abs(model.values()[j] - answer(j))));
    }));
}

/// Its gradients are consecutive numbers, times the batch. It reports a matrix if a compression
/// asks.
struct Given {
    std::vector<double> values = std::vector<double>(24), slopes = std::vector<double>(24);
    std::vector<std::vector<std::size_t>> shapes = {{4, 6}};
    std::span<double> parameters() { return values; }
    std::span<double> gradients() { return slopes; }
    auto& parameter_shapes() { return shapes; }
    static double slope(std::size_t i) { return 1 + std::sin(static_cast<double>(i * i)); }
    double operator()(const std::vector<double>& batch, un::Pass& pass) {
        for (std::size_t i = 0; i < slopes.size(); ++i) slopes[i] += batch[0] * pass.loss_scale() * slope(i);
        return 0;
    }
};

/// What earlier calls have left on the stack is gone.
[[gnu::noinline]] void overwrite_stack() {
    std::array<volatile unsigned char, 65536> room;
    for (volatile unsigned char& one : room) one = 0xff;
}

/// Sums everything in `finish`, by the reductions that `begin` got.
struct LateSums {
    static constexpr std::string_view name = "late sums";
    static constexpr un::Family family = un::Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = false;
    bool operator==(const LateSums&) const = default;
    void check() const {}

    template <class T, class World>
    class Run {
    public:
        Run(World& world, std::span<const un::Slice> buckets)
            : world_(&world), buckets_(buckets.begin(), buckets.end()) {}
        template <class Reduction>
        void begin(std::size_t b, T* values, Reduction& reduction) {
            const std::span<T> all(values, buckets_[b].count);
            late_.push_back([this, all, &reduction] { reduction.sum(*world_, all).wait(); });
        }
        void finish() {
            overwrite_stack();
            for (const auto& sum : late_) sum();
            late_.clear();
        }
        void forget() { late_.clear(); }
        [[nodiscard]] static std::size_t bytes() { return 0; }

    private:
        World* world_;
        std::vector<un::Slice> buckets_;
        std::vector<std::function<void()>> late_;
    };
    template <class T, class World>
    [[nodiscard]] Run<T, World> start(World& world, std::span<const un::Slice> buckets) const {
        return {world, buckets};
    }
};

/// Checks how many slopes the parameters have moved, after everything left over has been sent.
template <class Model>
void check_way(const Model& model, double way, double bound) {
    for (std::size_t i = 0; i < model.values.size(); ++i)
        if (const double off = model.values[i] + way * Model::slope(i); !(std::abs(off) <= bound))
            throw std::runtime_error("parameter " + std::to_string(i) + " is off by " + std::to_string(off));
}

} // namespace

BOOST_AUTO_TEST_SUITE(compressed_training)

BOOST_AUTO_TEST_CASE(
    // Errors shrink with the gradients, so training reaches the last digits.
    it_comes_to_the_known_answer) {
    for (const int ranks : {1, 2, 3}) {
        check_answer(ranks, 1e-6, un::Bf16Wire{});
        check_answer(ranks, 1e-6, un::Fp16Wire{}, un::RingReducer{});
        check_answer(ranks, 1e-6, un::Int8Wire{.block = 4});
        check_answer(ranks, 1e-6, un::Fp8Wire{.block = 4});
        check_answer(ranks, 1e-3, un::OneBit{.warm_up = 20, .block = 4});
        check_answer(ranks, 1e-3, un::TopK{.fraction = 0.3});
        check_answer(ranks, 1e-6, un::PowerSgd{.rank = 1}); // vectors, which are not compressed
        check_answer(ranks, 1e-6, un::Adasum{});
    }
}

BOOST_AUTO_TEST_CASE(composed_with_others) {
    check_answer(2, 1e-5, un::Int8Wire{.block = 4}, un::Accumulate{.steps = 2}, un::ClipByNorm{.max_norm = 5});
    check_answer(3, 1e-5, un::Bf16Wire{}, un::BySamples{}, un::Accumulate{.steps = 3});
}

BOOST_AUTO_TEST_CASE(a_run_may_sum_until_finish_ends) {
    for (const int ranks : {2, 3}) {
        check_answer(ranks, 1e-6, LateSums{});
        check_answer(ranks, 1e-3, LateSums{}, un::LocalSteps{.steps = 2});
    }
}

BOOST_AUTO_TEST_CASE(ranks_that_meet_compress_how_far_they_have_come) {
    for (const int ranks : {1, 2, 3}) {
        check_answer(ranks, 1e-6, un::Int8Wire{.block = 4}, un::LocalSteps{.steps = 3});
        check_answer(ranks, 1e-6, un::TopK{.fraction = 0.5}, un::LocalSteps{.steps = 2, .warm_up = 5});
        check_answer(ranks, 1e-3, un::Bf16Wire{}, un::Diloco<>{.steps = 4}, un::RingReducer{});
    }
}

BOOST_AUTO_TEST_CASE(a_skipped_update_leaves_nothing_behind) {
    const auto train = [](const auto& policy) {
        check_clean(outcomes(2, [&](auto& world) {
            LeastSquares<double> model(columns);
            un::Trainer trainer{world, model, policy, un::FiniteGuard{un::OnOffence::skip}};
            Task task;
            const auto good = task.data();
            const std::vector<std::size_t> first = {0, 1, 2};
            trainer.step(good.batch(first));
            std::vector<double> bad = task.targets;
            if (world.rank() == 1) bad[1] = std::numeric_limits<double>::infinity();
            const un::RowData<double, double> poisoned(task.x, columns, bad);
            if (trainer.step(poisoned.batch(first)).committed) throw std::runtime_error("committed");
            for (int i = 0; i < 5; ++i)
                if (!trainer.step(good.batch(first)).committed) throw std::runtime_error("not committed");
            for (const double x : model.values())
                if (!std::isfinite(x)) throw std::runtime_error("a NaN was kept");
            trainer.verify_replicas();
        }));
    };
    train(un::Bf16Wire{});
    train(un::Int8Wire{});
    train(un::TopK{.fraction = 0.2});
    train(un::OneBit{});
    train(un::PowerSgd{.rank = 1});
}

BOOST_AUTO_TEST_CASE(what_is_left_over_comes_with_the_weight_that_it_had) {
    const std::vector<double> one{1}, none{0}, much{1e5};
    // A window of eight micro-batches, and windows of one, whose sums are divided by an eighth.
    const auto windows = [&](const std::vector<double>& batch, double bound, const auto&... policies) {
        check_clean(outcomes(3, [&](auto& world) {
            Given model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1}, policies...};
            trainer.step(batch, batch, batch, batch, batch, batch, batch, batch);
            for (int i = 0; i < 60; ++i) {
                trainer.step(none);
                // And no step is too large.
                for (std::size_t at = 0; at < model.values.size(); ++at)
                    if (-model.values[at] > (3 * Given::slope(at) + 1.5) * batch[0])
                        throw std::runtime_error("too far");
            }
            check_way(model, batch[0], bound);
        }));
    };
    // The same on ranks with different windows: later updates compensate for what was sent in
    // excess.
    const auto uneven = [&](double bound, const auto&... policies) {
        check_clean(outcomes(3, [&](auto& world) {
            Given model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1}, policies...};
            trainer.step(one, one, one);
            if (world.rank() == 1) trainer.step(none);
            else trainer.step();
            if (world.rank() == 2) trainer.step(none, none, none, none, none);
            else trainer.step(none);
            for (int i = 0; i < 60; ++i) trainer.step(none);
            check_way(model, 1, bound);
        }));
    };
    // A loss scale that doubles after each update.
    const auto scales = [&](double bound, const auto&... policies) {
        check_clean(outcomes(2, [&](auto& world) {
            Given model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1},
                                un::LossScaling{.initial = 8, .growth_interval = 1}, policies...};
            trainer.step(one);
            for (int i = 0; i < 60; ++i) trainer.step(none);
            check_way(model, 1, bound);
        }));
    };
    const auto check = [&](const auto& policy, double bound) {
        BOOST_TEST_CONTEXT(policy.name) {
            windows(one, bound, policy);
            uneven(bound, policy);
            scales(bound, policy);
        }
    };
    check(un::TopK{.fraction = 0.2}, 1e-6);
    check(un::Int8Wire{.block = 8}, 1e-6);
    check(un::Fp8Wire{.block = 8}, 1e-6);
    check(un::OneBit{.block = 8}, 1e-3);
    check(un::PowerSgd{.rank = 1}, 1e-6);
    windows(much, 100, un::Fp16Wire{}); // it cannot send it at once; its sums are rounded
}

BOOST_AUTO_TEST_CASE(the_plan_names_the_form) {
    check_clean(outcomes(1, [](auto& world) {
        LeastSquares<double> model(columns);
        un::Trainer trainer{world, model, un::Int8Wire{.block = 64}};
        if (trainer.describe().find("int8 wire(block 64, error_feedback true)") == std::string::npos)
            throw std::runtime_error(trainer.describe());
        un::Trainer other{world, model, un::Fp8Wire{.format = un::Fp8Format::e5m2, .block = 64}};
        if (other.describe().find("fp8 wire(format 1, block 64, error_feedback true)") == std::string::npos)
            throw std::runtime_error(other.describe());
    }));
}

BOOST_AUTO_TEST_SUITE_END()
