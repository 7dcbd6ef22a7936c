// The calls that a model in units may make, and the errors of others.
#include "base/trainer/outcomes.hpp"

#include "support/allocation_counter.hpp"

#include "unisono/extensions/sharded/policies.hpp"
#include "unisono/extensions/sharded/store.hpp"
#include "unisono/optimizer/sgd.hpp"
#include "unisono/trainer/trainer.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;
using Pass = un::UnitPass<float>;

/// Three units, or one per size. The test defines a pass.
struct Loose {
    using Element = float;
    std::vector<std::size_t> sizes = {3, 70, 33};
    std::function<double(int, Pass&)> pass = ordinary;
    float first = 1; ///< of all values

    [[nodiscard]] const std::vector<std::size_t>& units() const { return sizes; }
    void initialise(std::size_t unit, std::span<float> values) const {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i % 7 + unit);
    }
    double operator()(const int& seed, Pass& given) const { return pass(seed, given); }

    static void add(int seed, std::size_t unit, Pass& own) {
        const auto weights = own.parameters(unit);
        const auto gradient = own.gradient(unit);
        for (std::size_t i = 0; i < gradient.size(); ++i)
            gradient[i] += 0.01f * weights[i] * static_cast<float>(seed + static_cast<int>(i % 3));
    }
    static double ordinary(int seed, Pass& own) {
        double loss = 0;
        for (std::size_t unit = 0; unit < 3; ++unit)
            for (const float x : own.parameters(unit)) loss += static_cast<double>(x);
        for (std::size_t unit = 3; unit-- > 0;) {
            add(seed, unit, own);
            own.ready(unit);
        }
        return loss;
    }
};

constexpr un::Sgd sgd{.learning_rate = 0.1};

/// The sum of what this rank holds.
template <class Trainer>
double sum_of(Trainer& trainer) {
    double sum = 0;
    trainer.visit_parameters({0, trainer.layout().count()}, [&](std::size_t, std::span<const float> part) {
        for (const float x : part) sum += static_cast<double>(x);
    });
    return sum;
}

/// Each rank makes an update by `pass`, then calls `then`.
template <class Sharding, class Update>
std::vector<Outcome> update(int ranks, std::function<double(int, Pass&)> pass, Update then) {
    return outcomes(ranks, [&](auto& world) {
        Loose model;
        model.pass = pass;
        un::Trainer trainer{world, model, Sharding{}, sgd};
        trainer.step(world.rank());
        then(trainer);
    });
}

void refused(const std::string& text, const std::function<double(int, Pass&)>& pass) {
    const auto nothing = [](auto&) {};
    for (const int ranks : {1, 2}) {
        BOOST_TEST_CONTEXT(text << ", on " << ranks << " ranks") {
            for (const auto& all : {update<un::GradientSharding>(ranks, pass, nothing),
                                    update<un::ParameterSharding>(ranks, pass, nothing)})
                for (const Outcome& one : all) {
                    BOOST_TEST(one.failed);
                    BOOST_TEST(one.says(text), one.what);
                }
        }
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(units)

/// The sum of the parameters after updates in which odd numbers have no token: their losses and
/// gradients are `nothing`.
template <class Sharding>
double sum_after(int ranks, float nothing) {
    std::array<double, 2> sums = {};
    check_clean(outcomes(ranks, [&](auto& world) {
        Loose model;
        model.pass = [&](int seed, Pass& pass) {
            pass.count_tokens(seed % 2 == 0 ? 3 : 0);
            if (seed % 2 == 0) return Loose::ordinary(seed, pass);
            for (std::size_t unit = 3; unit-- > 0;) {
                for (float& x : pass.gradient(unit)) x += nothing;
                pass.ready(unit);
            }
            return static_cast<double>(nothing);
        };
        un::Trainer trainer{world, model, Sharding{}, un::ByTokens{}, sgd};
        for (int i = 0; i < 4; ++i) {
            const auto report = trainer.step(world.rank() + i);
            if (report.committed != (ranks > 1 || i % 2 == 0) || !std::isfinite(report.loss))
                throw std::runtime_error("an update of nothing");
        }
        sums[static_cast<std::size_t>(world.rank())] = sum_of(trainer);
    }));
    return sums[0] + sums[1];
}

BOOST_AUTO_TEST_CASE(a_pass_without_tokens_counts_nothing_even_if_it_is_not_a_number) {
    for (const int ranks : {1, 2}) {
        BOOST_TEST_CONTEXT(ranks << " ranks") {
            const float nan = std::numeric_limits<float>::quiet_NaN();
            BOOST_TEST(sum_after<un::GradientSharding>(ranks, nan) == sum_after<un::GradientSharding>(ranks, 0));
            BOOST_TEST(sum_after<un::ParameterSharding>(ranks, nan) == sum_after<un::ParameterSharding>(ranks, 0));
        }
    }
}

BOOST_AUTO_TEST_CASE(wrong_orders_are_refused) {
    refused("pass.parameters(3): the model has 3 units", [](int, Pass& pass) {
        static_cast<void>(pass.parameters(3));
        return 0.0;
    });
    refused("pass.gradient(7): the model has 3 units", [](int, Pass& pass) {
        static_cast<void>(pass.gradient(7));
        return 0.0;
    });
    refused("unit 1 was asked for while the model still holds the parameters of unit 0", [](int, Pass& pass) {
        const auto one = pass.parameters(0);
        static_cast<void>(pass.parameters(1));
        return 0.0;
    });
    refused("pass.parameters(2) was asked for after unit 0 of the backward pass", [](int, Pass& pass) {
        static_cast<void>(pass.gradient(0));
        static_cast<void>(pass.parameters(2));
        return 0.0;
    });
    refused("pass.gradient(1) was asked for after unit 1 of the backward pass", [](int, Pass& pass) {
        static_cast<void>(pass.gradient(1));
        pass.ready(1);
        static_cast<void>(pass.gradient(1));
        return 0.0;
    });
    refused("pass.gradient(2) was asked for after unit 2 of the backward pass", [](int, Pass& pass) {
        pass.ready(2);
        pass.ready(2);
        return 0.0;
    });
}

// Whatever a pass leaves out, all ranks move the same units. The sums over ranks are as if the pass
// had added zeros.
BOOST_AUTO_TEST_CASE(units_may_be_left_out) {
    const auto all_but = [](std::size_t left_out, bool ready) {
        return [left_out, ready](int seed, Pass& pass) {
            for (std::size_t unit = 3; unit-- > 0;) {
                if (unit == left_out) continue;
                static_cast<void>(pass.gradient(unit)); // the pass goes backward now
                Loose::add(seed + 1, unit, pass);
                Loose::add(seed + 1, unit, pass); // the same memory twice
                if (ready) pass.ready(unit);
            }
            return 1.0;
        };
    };
    for (const std::size_t left_out : {0u, 1u, 2u}) {
        std::array<std::array<double, 3>, 4> sums{}; // by rank
        const auto expect = [&](std::size_t way) {
            return [&sums, way](auto& trainer) {
                sums[way][static_cast<std::size_t>(trainer.world().rank())] = sum_of(trainer);
            };
        };
        for (const auto& all : {update<un::GradientSharding>(3, all_but(left_out, true), expect(0)),
                                update<un::GradientSharding>(3, all_but(left_out, false), expect(1)),
                                update<un::ParameterSharding>(3, all_but(left_out, true), expect(2)),
                                update<un::ParameterSharding>(3, all_but(left_out, false), expect(3))})
            for (const Outcome& one : all) BOOST_TEST(!one.failed, one.what);
        double before = 0, after = 0; // computed by hand
        for (std::size_t unit = 0; unit < 3; ++unit)
            for (std::size_t i = 0; i < Loose{}.sizes[unit]; ++i) {
                const double x = 1 + static_cast<double>(i % 7 + unit);
                before += x;
                after += unit == left_out ? x : x - 0.1 * 2 * 0.01 * x * (2 + static_cast<double>(i % 3));
            }
        BOOST_TEST(std::abs(before - after) > 1e-3);
        for (const std::size_t way : {0u, 1u})
            for (const double one : sums[way]) BOOST_TEST(std::abs(one - after) < 1e-3);
        for (const std::size_t way : {2u, 3u})
            BOOST_TEST(std::abs(sums[way][0] + sums[way][1] + sums[way][2] - after) < 1e-3);
    }
}

BOOST_AUTO_TEST_CASE(first_values_are_those_of_rank_0) {
    const auto all = outcomes(3, [](auto& world) {
        Loose model;
        model.first = static_cast<float>(1 + world.rank());
        un::Trainer trainer{world, model, un::GradientSharding{}, sgd};
        trainer.verify_replicas();
        if (std::abs(sum_of(trainer) - 549) > 1e-3) // those of rank 0, computed by hand
            throw std::runtime_error("the sum is " + std::to_string(sum_of(trainer)));
    });
    for (const Outcome& one : all) BOOST_TEST(!one.failed, one.what);
}

BOOST_AUTO_TEST_CASE(sizes_that_make_no_sense) {
    const auto make = [](std::vector<std::size_t> sizes, int other = -1) {
        return outcomes(2, [&](auto& world) {
            Loose model;
            model.sizes = sizes;
            if (world.rank() == other) model.sizes.back() += 1;
            un::Trainer trainer{world, model, un::ParameterSharding{}, sgd};
        });
    };
    for (const Outcome& one : make({})) BOOST_TEST(one.says("the model has no units"), one.what);
    for (const Outcome& one : make({3, 0, 2})) BOOST_TEST(one.says("unit 1 has no elements"), one.what);
    for (const Outcome& one : make({3, 2}, 1))
        BOOST_TEST(one.says("parameter 1 has 3 elements on rank 1 and 2 on rank 0"), one.what);
}

BOOST_AUTO_TEST_CASE(a_model_that_throws) {
    const auto throws = [](int seed, Pass& pass) {
        if (seed == 1) {
            const auto held = pass.parameters(0);
            throw std::runtime_error("no more");
        }
        return Loose::ordinary(seed, pass);
    };
    const auto all = update<un::ParameterSharding>(3, throws, [](auto&) {});
    for (std::size_t rank = 0; rank < 3; ++rank) {
        BOOST_TEST(all[rank].says("no more"), all[rank].what);
        if (rank == 1) continue;
        BOOST_TEST((all[rank].code == un::ErrorCode::aborted), all[rank].what);
        BOOST_TEST(all[rank].rank == 1);
    }
    // A rank by itself may continue.
    std::array<double, 2> sums{};
    for (const bool disturbed : {false, true}) {
        const auto alone = outcomes(1, [&](auto& world) {
            Loose model;
            model.pass = throws;
            un::Trainer trainer{world, model, un::ParameterSharding{}, sgd};
            trainer.step(0, 5);
            if (disturbed) BOOST_CHECK_THROW(trainer.step(2, 1), std::runtime_error);
            trainer.step(3);
            sums[disturbed ? 1 : 0] = sum_of(trainer);
        });
        BOOST_TEST(!alone[0].failed, alone[0].what);
    }
    BOOST_TEST(sums[0] == sums[1]);
}

template <class Sharding>
void names_a_gradient_that_is_no_number() {
    const auto all = outcomes(3, [](auto& world) {
        Loose model;
        model.pass = [](int seed, Pass& pass) {
            for (std::size_t unit = 3; unit-- > 0;) {
                Loose::add(1, unit, pass);
                if (seed < 0 && unit == 1) pass.gradient(unit)[5] = std::numeric_limits<float>::quiet_NaN();
            }
            return 1.0;
        };
        un::Trainer trainer{world, model, Sharding{}, sgd};
        trainer.step(1);
        const double before = sum_of(trainer);
        try {
            trainer.step(world.rank() == 2 ? -1 : 1);
            throw std::runtime_error("it was not found");
        } catch (const un::error& found) {
            const std::string text = found.what();
            if (text.find("the gradient of parameter 1 is NaN or infinite on rank 2") == std::string::npos) throw;
        }
        if (sum_of(trainer) != before) throw std::runtime_error("the parameters have changed");
        trainer.step(1); // all ranks may continue
        if (trainer.updates() != 2 || !(sum_of(trainer) < before)) throw std::runtime_error("no second update");
    });
    for (const Outcome& one : all) BOOST_TEST(!one.failed, one.what);
}
BOOST_AUTO_TEST_CASE(a_gradient_that_is_no_number) {
    names_a_gradient_that_is_no_number<un::ParameterSharding>();
    names_a_gradient_that_is_no_number<un::GradientSharding>();
}

// Ranks take turns with two micro-batches or none. A rank without further data joins the others'
// updates.
BOOST_AUTO_TEST_CASE(uneven_ranks) {
    const auto sum_after = [](int ranks, auto sharding) {
        std::array<double, 3> sums{};
        const auto all = outcomes(ranks, [&](auto& world) {
            Loose model;
            un::Trainer trainer{world, model, sharding, sgd};
            if (ranks == 1) {
                trainer.step(1, 2, 3);
                trainer.step(4);
                trainer.step(5);
            } else {
                if (world.rank() == 0) trainer.step(1, 2);
                else if (world.rank() == 1) trainer.step(3);
                else trainer.step();
                if (world.rank() == 0) {
                    if (trainer.join() != 2) throw std::runtime_error("rank 0 did not take part in two updates");
                } else {
                    if (world.rank() == 1) trainer.step(4), trainer.step();
                    else trainer.step(), trainer.step(5);
                    if (trainer.join() != 0) throw std::runtime_error("an update that no rank had data for");
                }
            }
            if (trainer.updates() != 3) throw std::runtime_error("not three updates");
            sums[static_cast<std::size_t>(world.rank())] = sum_of(trainer);
        });
        for (const Outcome& one : all) BOOST_TEST(!one.failed, one.what);
        return sums;
    };
    const double expected = sum_after(1, un::GradientSharding{})[0];
    BOOST_TEST(std::abs(expected - 549) > 1);
    for (const double one : sum_after(3, un::GradientSharding{})) BOOST_TEST(std::abs(one - expected) < 1e-3);
    const auto parts = sum_after(3, un::ParameterSharding{});
    BOOST_TEST(std::abs(parts[0] + parts[1] + parts[2] - expected) < 1e-3);
}

/// The last rank owns everything.
struct LastOwnsAll {
    static constexpr std::string_view name = "last owns all";
    static constexpr un::Family family = un::Family::sharding;
    static constexpr bool gives_owners = true;
    static constexpr bool shards_gradients = true;
    friend bool operator==(const LastOwnsAll&, const LastOwnsAll&) = default;
    [[nodiscard]] un::Owners owners(const un::BucketFacts& facts) const {
        return un::Owners::chosen(facts.count, {facts.world - 1}, facts.world);
    }
};
BOOST_AUTO_TEST_CASE(every_rank_owns_a_slice) {
    const auto all = outcomes(2, [](auto& world) {
        Loose model;
        un::Trainer trainer{world, model, LastOwnsAll{}, sgd};
    });
    for (const Outcome& one : all) BOOST_TEST(one.says("not every rank owns a slice of unit 0 of 3"), one.what);
}

BOOST_AUTO_TEST_CASE(a_step_does_not_allocate) {
    const auto measure = [](auto sharding) {
        return outcomes(2, [&](auto& world) {
            Loose model;
            un::Trainer trainer{world, model, sharding, sgd};
            for (int i = 0; i < 5; ++i) trainer.step(i, i + 1);
            const std::size_t before = allocations_of_thread();
            for (int i = 0; i < 20; ++i) trainer.step(i, i + 1);
            const std::size_t made = allocations_of_thread() - before;
            if (made != 0) throw std::runtime_error(std::to_string(made) + " allocations in 20 steps");
        });
    };
    for (const Outcome& one : measure(un::GradientSharding{})) BOOST_TEST(!one.failed, one.what);
    for (const Outcome& one : measure(un::ParameterSharding{})) BOOST_TEST(!one.failed, one.what);
}

BOOST_AUTO_TEST_SUITE_END()
