// Fragments that are synchronised in turn, compared with the formula in double.
#include "ends.hpp"

#include "unisono/collective/exchange.hpp"
#include "unisono/extensions/updates/streaming_diloco.hpp"
#include "unisono/simulate.hpp"
#include "unisono/trainer/trainer.hpp"
#include "unisono/update/averaging.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr double rate = 0.05, momentum = 0.9, outer_rate = 0.6, outer_momentum = 0.8;
constexpr un::Sgd outer = {.learning_rate = outer_rate, .momentum = outer_momentum, .nesterov = true};
using Streaming = un::StreamingDiloco<>;

template <class Update>
Ends trained(int ranks, int updates, const Update& update) {
    const auto step = [&](auto& trainer, auto& world) {
        for (int i = 0; i < updates; ++i) trainer.step(seed_of(i, world.rank()));
    };
    return ends_of(ranks, false, step, un::Sgd{.learning_rate = rate, .momentum = momentum}, update);
}

/// Douillard et al. 2025, algorithm 2: element i is in fragment f, which is sent at t and arrives
/// at t + overlap.
Ends reference(int ranks, std::uint64_t updates, const Streaming& policy) {
    const auto n = static_cast<std::size_t>(ranks);
    std::vector<Values> x(n, Values(served_count)), v(n, Values(served_count));
    Values common(served_count), velocity(served_count), gone(served_count);
    for (std::size_t i = 0; i < served_count; ++i) {
        common[i] = served_initial(i);
        for (auto& one : x) one[i] = common[i];
    }
    const auto set_out = [&](std::size_t i) {
        gone[i] = 0;
        for (const Values& one : x) gone[i] += (common[i] - one[i]) / ranks;
    };
    const auto arrive = [&](std::size_t i, double mix) {
        velocity[i] = outer_momentum * velocity[i] + gone[i];
        common[i] -= outer_rate * (gone[i] + outer_momentum * velocity[i]);
        for (Values& one : x) one[i] = mix * one[i] + (1 - mix) * common[i];
    };
    const std::uint64_t apart = policy.steps / policy.fragments;
    std::uint64_t under_way = 0; // when it was sent
    const auto of = [&](std::size_t i, std::uint64_t t) {
        const std::uint64_t f = (t / apart - 1) % policy.fragments;
        return i >= served_count * f / policy.fragments && i < served_count * (f + 1) / policy.fragments;
    };
    for (std::uint64_t t = 1; t <= updates; ++t) {
        for (std::size_t r = 0; r < n; ++r)
            for (std::size_t i = 0; i < served_count; ++i) {
                const int seed = seed_of(static_cast<int>(t) - 1, static_cast<int>(r));
                v[r][i] = momentum * v[r][i] + served_slope(seed, i, x[r][i]);
                x[r][i] -= rate * v[r][i];
            }
        if (under_way != 0 && t == under_way + policy.overlap) {
            for (std::size_t i = 0; i < served_count; ++i)
                if (of(i, under_way)) arrive(i, policy.mix);
            under_way = 0;
        }
        if (t % apart != 0) continue;
        for (std::size_t i = 0; i < served_count; ++i) {
            if (!of(i, t)) continue;
            set_out(i);
            if (policy.overlap == 0) arrive(i, policy.mix);
        }
        if (policy.overlap != 0) under_way = t;
    }
    Ends ends{.before = x, .after = {}};
    if (under_way != 0)
        for (std::size_t i = 0; i < served_count; ++i)
            if (of(i, under_way)) arrive(i, policy.mix);
    for (std::size_t i = 0; i < served_count; ++i) set_out(i), arrive(i, 0);
    ends.after = x;
    return ends;
}

/// A trainer ends after the given number of updates, whatever is in flight then. The world
/// continues. `spoil(rank, update)` may throw.
template <class World, class Spoil>
void end_after(World& world, int updates, Spoil spoil) {
    Bowl<double> model;
    Values last;
    {
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = rate, .momentum = momentum},
                            Streaming{.steps = 6, .fragments = 2, .overlap = 2, .outer = outer}};
        for (int i = 0; i < updates; ++i) trainer.step(spoil(world.rank(), i));
        last = model.values();
    }
    if (model.values() != last) throw std::runtime_error("the end changed parameters");
    barrier(world);
    un::Trainer next{world, model, un::Sgd{.learning_rate = rate, .momentum = momentum},
                     Streaming{.steps = 6, .fragments = 2, .overlap = 2, .outer = outer}};
    for (int i = 0; i < 4; ++i) next.step(seed_of(i, world.rank()));
    next.synchronise();
    next.verify_replicas();
}

template <class Spoil>
std::vector<Outcome> ended(bool simulated, int updates, Spoil spoil) {
    if (!simulated) return outcomes(3, [&](auto& world) { end_after(world, updates, spoil); });
    std::vector<Outcome> all(3);
    un::simulate(3, {}, [&](auto& world) { // each rank is a thread
        Outcome& mine = all[static_cast<std::size_t>(world.rank())];
        try {
            end_after(world, updates, spoil);
        } catch (const un::error& found) {
            mine = {true, true, found.code(), found.rank(), found.what()};
        } catch (const std::exception& found) {
            mine = {true, false, un::ErrorCode::none, world.rank(), found.what()};
        }
    });
    return all;
}

} // namespace

BOOST_AUTO_TEST_SUITE(streaming_diloco)

BOOST_AUTO_TEST_CASE(is_the_papers_algorithm) {
    const std::array<Streaming, 5> all = {
        Streaming{.steps = 6, .fragments = 3, .overlap = 1, .outer = outer},
        Streaming{.steps = 6, .fragments = 2, .overlap = 2, .mix = 0.25, .outer = outer},
        Streaming{.steps = 4, .fragments = 1, .overlap = 3, .outer = outer},
        Streaming{.steps = 4, .fragments = 4, .overlap = 0, .mix = 0, .outer = outer},
        Streaming{.steps = 60, .fragments = 60, .overlap = 0, .outer = outer}};
    for (const int ranks : {1, 3})
        for (const Streaming& policy : all)
            for (const std::uint64_t updates : {13u, 14u}) {
                BOOST_TEST_CONTEXT(ranks << " ranks, " << policy.fragments << " fragments, " << updates << " updates") {
                    const Ends expected = reference(ranks, updates, policy);
                    const Ends found = trained(ranks, static_cast<int>(updates), policy);
                    for (std::size_t r = 0; r < found.after.size(); ++r) {
                        check_near(found.before[r], expected.before[r]);
                        check_near(found.after[r], expected.after[r]);
                    }
                }
            }
}

BOOST_AUTO_TEST_CASE(one_fragment_is_diloco_to_the_bit) {
    const Streaming one{.steps = 4, .fragments = 1, .overlap = 0, .mix = 0, .outer = outer};
    BOOST_TEST((trained(3, 12, one).before == trained(3, 12, un::Diloco<>{.steps = 4, .outer = outer}).before));
}

BOOST_AUTO_TEST_CASE(a_trainer_ends_with_a_fragment_under_way) {
    for (const bool simulated : {false, true})
        for (const int updates : {0, 2, 3, 4, 5, 7})
            BOOST_TEST_CONTEXT("simulated: " << simulated << ", " << updates << " updates")
    for (const auto& one : ended(simulated, updates, [](int rank, int i) { return seed_of(i, rank); }))
        BOOST_TEST(!one.failed, one.what);
}

BOOST_AUTO_TEST_CASE(a_rank_that_throws_ends_all_by_then) {
    struct Spoilt {
        int update;
        bool in_model;
    };
    for (const bool simulated : {false, true})
        for (const Spoilt spoilt : {Spoilt{2, false}, Spoilt{3, false}, Spoilt{3, true}})
            BOOST_TEST_CONTEXT("simulated: " << simulated << ", at " << spoilt.update
                                             << ", in it: " << spoilt.in_model) {
                const auto all = ended(simulated, 4, [&](int rank, int i) {
                    if (rank != 1 || i != spoilt.update) return seed_of(i, rank);
                    if (!spoilt.in_model) throw std::runtime_error("no more");
                    return -1; // NaN
                });
                for (const Outcome& one : all) {
                    BOOST_TEST(one.failed);
                    BOOST_TEST((one.code != un::ErrorCode::timeout), one.what);
                }
                BOOST_TEST(all[1].says(spoilt.in_model ? "not_finite" : "no more"), all[1].what);
            }
}

BOOST_AUTO_TEST_CASE(ends_at_different_updates_are_bounded) {
    std::array<bool, 3> failed = {}; // of threads
    un::simulate(3, {}, [&](auto& world) {
        try {
            end_after(world, world.rank() == 1 ? 2 : 3, [](int rank, int i) { return seed_of(i, rank); });
        } catch (const un::error&) {
            failed[static_cast<std::size_t>(world.rank())] = true;
        }
    });
    for (const bool one : failed) BOOST_TEST(one);
}

BOOST_AUTO_TEST_CASE(bad_parameters_are_refused) {
    const auto refused = [](const Streaming& policy, const std::string& expected) {
        for (const auto& one : outcomes(1, [&](auto& world) {
                 Bowl<double> model;
                 un::Trainer trainer{world, model, un::Sgd{.learning_rate = rate, .momentum = momentum}, policy};
             }))
            BOOST_TEST(one.says(expected), one.what);
    };
    refused({.steps = 0}, "streaming Diloco.steps is 0; expected at least one");
    refused({.steps = 10, .fragments = 4}, "streaming Diloco.steps is 10 and .fragments is 4; expected at least one");
    refused({.steps = 8, .fragments = 4, .overlap = 2}, "streaming Diloco.overlap is 2; expected less than 2 updates");
    refused({.mix = 1.5}, "streaming Diloco.mix is 1.5");
}

BOOST_AUTO_TEST_SUITE_END()
