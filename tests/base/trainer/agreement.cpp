// The ranks of a trainer have the same model, each its own, and are in calls of the same trainer.
#include "outcomes.hpp"
#include "support/skip.hpp"

#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/trainer/hashes.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

/// All ranks threw this error, and its text has all of these words.
void check_all(const std::vector<Outcome>& all, un::ErrorCode code, const std::vector<std::string>& words) {
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        BOOST_TEST_CONTEXT("rank " << rank << ": " << all[rank].what) {
            BOOST_TEST(name_of(all[rank].code) == name_of(code));
            for (const auto& word : words) BOOST_TEST(all[rank].says(word), "the message lacks '" << word << "'");
        }
    }
}
void check_none(const std::vector<Outcome>& all) {
    for (const Outcome& one : all) BOOST_TEST(!one.failed, one.what);
}

/// A model of any parameters and buffers, with the names and shapes that it is given.
struct Described {
    std::vector<std::vector<float>> weights = {}, slopes = {};
    std::vector<std::vector<double>> statistics = {};
    std::vector<std::string> names = {}, statistic_names = {};
    std::vector<std::vector<std::size_t>> shapes = {};

    Described(const std::vector<std::size_t>& sizes, const std::vector<std::size_t>& of_buffers = {}) {
        for (const std::size_t size : sizes) {
            weights.emplace_back(size);
            slopes.emplace_back(size);
            shapes.push_back({size});
        }
        for (const std::size_t size : of_buffers) statistics.emplace_back(size);
    }
    std::vector<std::vector<float>>& parameters() { return weights; }
    std::vector<std::vector<float>>& gradients() { return slopes; }
    std::vector<std::vector<double>>& buffers() { return statistics; }
    [[nodiscard]] const std::vector<std::string>& parameter_names() const { return names; }
    [[nodiscard]] const std::vector<std::string>& buffer_names() const { return statistic_names; }
    [[nodiscard]] const std::vector<std::vector<std::size_t>>& parameter_shapes() const { return shapes; }
    double operator()(int, un::Pass&) {
        for (auto& one : slopes)
            for (float& x : one) x += 1;
        return 1;
    }
};

/// The outcomes of three ranks, of which rank 1 changes its model. Afterwards all make a sum.
std::vector<Outcome> with_a_change(const Described& model, const std::function<void(Described&)>& change) {
    return outcomes(3, [&](auto& world) {
        Described mine = model;
        if (world.rank() == 1) change(mine);
        try {
            un::Trainer trainer{world, mine};
            trainer.step(1);
        } catch (const un::error& failed) {
            if (!failed.agreed()) throw std::logic_error("not agreed");
            if (typeid(failed) != typeid(un::error))
                throw std::logic_error(typeid(failed).name()); // as terminate prints
            std::array<int, 1> one = {1};
            un::all_reduce(world, one); // the group remains usable
            if (one[0] != 3) throw std::logic_error("another sum");
            throw;
        }
    });
}

/// One parameter, which steps bring to `target`.
struct Towards {
    double target;
    std::vector<double> w = {0}, g = {0};
    explicit Towards(double value) : target(value) {}
    std::vector<double>& parameters() { return w; }
    std::vector<double>& gradients() { return g; }
    double operator()(int, un::Pass&) {
        g[0] += w[0] - target;
        return 0;
    }
    double operator()(const un::RowBatch<double>&, un::Pass& pass) { return (*this)(0, pass); }
    void evaluate(const un::RowBatch<double>& batch, un::MeanMetric& mean) const {
        for (std::size_t i = 0; i < batch.rows(); ++i) mean.add(batch.row(i)[0] + w[0] - w[0]);
    }
};

struct Summing : Towards {
    using Towards::Towards;
    static constexpr un::GradientKind gradient_kind = un::GradientKind::sum;
};

const std::vector<double> numbers = {1, 2, 3, 4, 5, 6, 7, 8};
un::RowData<double> rows() { return {std::span<const double>(numbers), 1}; }

/// Two trainers on three ranks; `call` makes the same call of both, on rank 1 in the other order.
template <class Call>
std::vector<Outcome> in_another_order(Call call) {
    return outcomes(3, [&](auto& world) {
        Towards a(10), b(20);
        un::Trainer first{world, a, un::Sgd{.learning_rate = 0.5}};
        un::Trainer second{world, b, un::Sgd{.learning_rate = 0.5}};
        for (int i = 0; i < 50; ++i) {
            call(world.rank() == 1 ? second : first);
            call(world.rank() == 1 ? first : second);
        }
    });
}

} // namespace

BOOST_AUTO_TEST_SUITE(agreement)

BOOST_AUTO_TEST_CASE(parameters_in_another_order) {
    Described model({2, 2, 2});
    model.names = {"in", "middle", "out"};
    check_none(with_a_change(model, [](auto&) {}));
    check_all(with_a_change(model, [](auto& its) { std::swap(its.names[1], its.names[2]); }), un::ErrorCode::mismatch,
              {"parameter 1 is 'out' on rank 1 and 'middle' on rank 0", "same parameters in the same order"});
    check_all(with_a_change(model, [](auto& its) { its.names.pop_back(); }), un::ErrorCode::mismatch,
              {"parameter 2 is without a name on rank 1 and 'out' on rank 0"});
    check_all(
        with_a_change(model,
                      [](auto& its) {
                          its = Described({2, 2});
                          its.names = {"in", "out"};
                      }),
        un::ErrorCode::mismatch,
        {"rank 1's model has 2 parameters and rank 0's 3", "parameter 1 is 'out' on rank 1 and 'middle' on rank 0"});
    check_none(with_a_change(model, [](auto& its) { its.names.clear(); })); // there is nothing to compare
    check_all(with_a_change(model,
                            [](auto& its) {
                                its = Described({2, 3, 2});
                                its.names = {"in", "middle", "out"};
                            }),
              un::ErrorCode::mismatch, {"parameter 1 (middle) has 3 elements on rank 1 and 2 on rank 0"});
}

BOOST_AUTO_TEST_CASE(shapes_that_differ) {
    Described model({6, 6});
    model.shapes = {{2, 3}, {6}};
    check_none(with_a_change(model, [](auto&) {}));
    check_all(with_a_change(model,
                            [](auto& its) {
                                its.shapes[0] = {3, 2};
                            }),
              un::ErrorCode::mismatch, {"parameter 0 has the shape (3, 2) on rank 1 and (2, 3) on rank 0"});
    model.names = {"kernel", "bias"};
    check_all(with_a_change(model,
                            [](auto& its) {
                                its.shapes[1] = {6, 1};
                            }),
              un::ErrorCode::mismatch, {"parameter 1 (bias) has the shape (6, 1) on rank 1 and (6) on rank 0"});
}

BOOST_AUTO_TEST_CASE(buffers_that_differ) {
    Described model({2}, {3, 3});
    model.statistic_names = {"mean", "variance"};
    check_none(with_a_change(model, [](auto&) {}));
    check_all(with_a_change(model, [](auto& its) { std::swap(its.statistic_names[0], its.statistic_names[1]); }),
              un::ErrorCode::mismatch,
              {"buffer 0 is 'variance' on rank 1 and 'mean' on rank 0", "same buffers in the same order"});
    check_all(with_a_change(model, [](auto& its) { its.statistics[1].resize(4); }), un::ErrorCode::mismatch,
              {"buffer 1 (variance) has 4 elements on rank 1 and 3 on rank 0"});
    check_all(with_a_change(model,
                            [](auto& its) {
                                its.statistics.emplace_back(3);
                                its.statistic_names.emplace_back("count");
                            }),
              un::ErrorCode::mismatch,
              {"rank 1's model has 3 buffers and rank 0's 2", "buffer 2 is 'count' on rank 1 and without a name"});
    model.statistic_names.clear();
    check_all(with_a_change(model, [](auto& its) { its.statistics.pop_back(); }), un::ErrorCode::mismatch,
              {"rank 1's model has 1 buffers and rank 0's 2"});
}

// Its type fixes their number of elements.
BOOST_AUTO_TEST_CASE(buffers_that_are_one_array) {
    struct WithArray : Described {
        std::array<double, 3> moments = {1, 2, 3};
        using Described::Described;
        std::array<double, 3>& buffers() { return moments; }
        [[nodiscard]] std::vector<std::string> buffer_names() const { return {"moments"}; }
    };
    check_none(outcomes(3, [&](auto& world) {
        WithArray model({4});
        model.moments[2] += world.rank();
        const un::Trainer trainer{world, model};
        if (model.moments != std::array<double, 3>{1, 2, 3}) throw std::logic_error("they are not rank 0's");
    }));
}

BOOST_AUTO_TEST_CASE(kinds_of_gradients_that_differ) {
    const auto make = [](auto& world, auto model) { un::Trainer trainer{world, model}; };
    check_all(outcomes(2,
                       [&](auto& world) {
                           if (world.rank() == 0) make(world, Towards(1));
                           else make(world, Summing(1));
                       }),
              un::ErrorCode::mismatch, {"the gradient_kind of rank 1's model is sum and that of rank 0's mean"});
}

BOOST_AUTO_TEST_CASE(two_trainers_stepped_in_another_order) {
    check_all(in_another_order([](auto& trainer) { trainer.step(1); }), un::ErrorCode::mismatch,
              {"called all_reduce(sum) of", "in trainer 1", "in trainer 2",
               "expected calls of the same trainer on all ranks"});
}

BOOST_AUTO_TEST_CASE(other_calls_of_two_trainers_in_another_order) {
    const auto says = [](const char* what, const std::vector<Outcome>& all) {
        BOOST_TEST_CONTEXT(what) check_all(all, un::ErrorCode::mismatch, {"in trainer 1", "in trainer 2"});
    };
    const un::FitOptions once{.batch_size = 1, .progress = false};
    says("fit", in_another_order([&](auto& trainer) { trainer.fit(rows(), once); }));
    says("evaluate",
         in_another_order([](auto& trainer) { trainer.evaluate(rows(), {.batch_size = 1}, un::MeanMetric{}); }));
    says("verify_replicas", in_another_order([](auto& trainer) { trainer.verify_replicas(); }));
    says("state_hash", in_another_order([](auto& trainer) { static_cast<void>(un::state_hash(trainer)); }));
}

BOOST_AUTO_TEST_CASE(a_trainers_step_beside_a_collective_of_the_program) {
    check_all(outcomes(2,
                       [](auto& world) {
                           Towards model(1);
                           un::Trainer trainer{world, model, un::RingReducer{}};
                           std::array<double, 1> own = {1};
                           if (world.rank() == 0) trainer.step(1);
                           else un::all_reduce(world, own, un::Sum{}, un::RingSchedule{});
                       }),
              un::ErrorCode::mismatch, {"in trainer 1", "outside of a trainer"});
}

// A group that is made in a trainer's call is the program's: its calls outside are in no trainer.
BOOST_AUTO_TEST_CASE(a_group_that_is_made_in_a_trainers_call) {
    check_all(outcomes(2,
                       [](auto& world) {
                           Towards model(1), other(2);
                           un::Trainer outer{world, model};
                           std::optional<std::remove_reference_t<decltype(world)>> made;
                           outer.fit(rows(), {.batch_size = 4, .progress = false}, [&](const un::UpdateReport&) {
                               if (!made) made.emplace(world.split(0, world.rank()));
                           });
                           un::Trainer trainer{*made, other, un::RingReducer{}};
                           std::array<double, 1> own = {1};
                           if (world.rank() == 0) trainer.step(1);
                           else un::all_reduce(*made, own, un::Sum{}, un::RingSchedule{});
                       }),
              un::ErrorCode::mismatch, {"in trainer 1", "outside of a trainer"});
}

// Operations are prepared once and repeated by whatever calls next.
BOOST_AUTO_TEST_CASE(trainers_in_the_same_order_do_not_mix) {
    check_none(outcomes(3, [](auto& world) {
        Towards a(10), b(20);
        un::Trainer first{world, a, un::Sgd{.learning_rate = 0.5}};
        un::Trainer second{world, b, un::StateSharding{}, un::Sgd{.learning_rate = 0.5}};
        for (int i = 0; i < 60; ++i) {
            std::array<double, 1> own = {1};
            un::all_reduce(world, own);
            if (own[0] != 3) throw std::logic_error("another sum");
            first.step(1);
            if (i % 3 == 0) second.step(1), un::all_reduce(world, own);
            second.step(1);
            first.fit(rows(), {.batch_size = 4, .progress = false}, [&](const un::UpdateReport&) {
                second.step(1); // within a call of the other
                second.verify_replicas();
                un::all_reduce(world, own);
            });
        }
        auto pair = world.split(world.rank() / 2, 0);
        Towards c(30);
        un::Trainer third{pair, c, un::Sgd{.learning_rate = 0.5}};
        for (int i = 0; i < 60; ++i) {
            third.step(1);
            first.step(1);
        }
        first.verify_replicas();
        second.verify_replicas();
        if (std::abs(a.w[0] - 10) > 1e-6 || std::abs(b.w[0] - 20) > 1e-6 || std::abs(c.w[0] - 30) > 1e-6)
            throw std::logic_error("wrong parameters");
    }));
}

BOOST_AUTO_TEST_CASE(a_model_that_ranks_share) {
    if (test::will_be_processes()) return test::skip("ranks that are processes have a copy each");
    const std::vector<std::string> words = {"are threads of one process and share a model",
                                            "expected a model of its own on each rank"};
    Towards shared(1);
    check_all(outcomes(3, [&](auto& world) { un::Trainer trainer{world, shared}; }), un::ErrorCode::bad_input, words);
    check_all(outcomes(3,
                       [&](auto& world) {
                           un::Trainer trainer{world, shared};
                       }),
              un::ErrorCode::bad_input,
              {"ranks 0 and 1", "parameter 0 of rank 0 and parameter 0 of rank 1 are in the same memory"});

    // One parameter of several, and only on two ranks.
    std::vector<float> tied(3);
    struct Views {
        std::vector<std::span<float>> w, g;
        std::vector<std::span<float>>& parameters() { return w; }
        std::vector<std::span<float>>& gradients() { return g; }
        [[nodiscard]] std::array<std::string, 2> parameter_names() const { return {"first", "tied"}; }
        double operator()(int, un::Pass&) { return 0; }
    };
    check_all(outcomes(4,
                       [&](auto& world) {
                           std::vector<float> first(3), own(3), slopes(6);
                           Views model{{first, world.rank() % 2 == 1 ? tied : own},
                                       {std::span(slopes).first(3), std::span(slopes).last(3)}};
                           un::Trainer trainer{world, model};
                       }),
              un::ErrorCode::bad_input,
              {"ranks 1 and 3", "parameter 1 (tied) of rank 1 and parameter 1 (tied) of rank 3"});

    // Buffers only.
    Described buffers({1}, {2});
    check_all(outcomes(2,
                       [&](auto& world) {
                           struct Own : Described {
                               Described* other = nullptr;
                               using Described::Described;
                               std::vector<std::vector<double>>& buffers() { return other->statistics; }
                           } model({1}, {2});
                           model.other = &buffers;
                           un::Trainer trainer{world, model};
                       }),
              un::ErrorCode::bad_input, {"buffer 0 of rank 0 and buffer 0 of rank 1"});
}

// What ranks share is no memory that a trainer writes.
BOOST_AUTO_TEST_CASE(objects_that_ranks_may_share) {
    struct InEachThread {
        double rate = 0.5;
        static std::vector<float>& of(bool gradients) {
            thread_local std::vector<float> w(1), g(1);
            return gradients ? g : w;
        }
        std::vector<float>& parameters() { return of(false); }
        std::vector<float>& gradients() { return of(true); }
        double operator()(int, un::Pass&) const { return of(true)[0] += 1, rate; }
    } shared;
    struct Settings {
        int width = 3;
    } settings;
    check_none(outcomes(3, [&](auto& world) {
        un::Trainer trainer{world, shared};
        trainer.step(1);
        struct WithSettings : Towards {
            Settings* its = nullptr;
            using Towards::Towards;
            Settings& wrapped() { return *its; } // is no model
        } model(1);
        model.its = &settings;
        un::Trainer other{world, model};
    }));
}

BOOST_AUTO_TEST_SUITE_END()
