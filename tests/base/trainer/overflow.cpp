// Gradients that are finite on every rank, but whose sum over the ranks is not.
#include "outcomes.hpp"

#include "unisono/extensions/compression/cast.hpp"
#include "unisono/extensions/compression/int8.hpp"
#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/sharded.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

/// A batch is the gradient of parameter 1. The gradient of parameter 0 is small.
template <class T>
struct Whole {
    using Number = T;
    std::vector<T> first = std::vector<T>(5, T{1}), second = std::vector<T>(3, T{1});
    std::vector<T> first_gradient = std::vector<T>(5), second_gradient = std::vector<T>(3);
    std::array<std::span<T>, 2> parameters() { return {first, second}; }
    std::array<std::span<T>, 2> gradients() { return {first_gradient, second_gradient}; }
    double operator()(double slope, un::Pass& pass) {
        for (T& x : first_gradient) x += T{0.5} * static_cast<T>(pass.loss_scale());
        for (T& x : second_gradient) x += static_cast<T>(slope * pass.loss_scale());
        return 1;
    }
};

/// The same in units.
template <class T>
struct InUnits {
    using Number = T;
    using Element = T;
    static std::array<std::size_t, 2> units() { return {5, 3}; }
    static void initialise(std::size_t, std::span<T> values) {
        for (T& x : values) x = T{1};
    }
    double operator()(double slope, un::UnitPass<T>& pass) {
        for (const std::size_t u : {0u, 1u}) static_cast<void>(pass.parameters(u));
        for (const std::size_t u : {1u, 0u}) {
            for (T& x : pass.gradient(u)) x += u == 0 ? T{0.5} : static_cast<T>(slope);
            pass.ready(u);
        }
        return 1;
    }
};

template <class Trainer>
std::vector<typename Trainer::Element> held(Trainer& trainer) {
    std::vector<typename Trainer::Element> all;
    trainer.visit_parameters({0, trainer.layout().count()}, [&](std::size_t, auto values) {
        for (const auto x : values) all.push_back(x);
    });
    return all;
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// One update on all ranks. A single rank has two micro-batches.
template <class World, class Trainer>
un::UpdateReport step(World& world, Trainer& trainer, double slope) {
    return world.size() > 1 ? trainer.step(slope) : trainer.step(slope, slope);
}

template <class Model, class... Policies>
void check(const char* name, const Policies&... policies) {
    using T = typename Model::Number;
    // Every element of such a block becomes NaN.
    constexpr bool in_blocks = (std::is_same_v<Policies, un::Int8Wire> || ...);
    constexpr auto most = static_cast<double>(std::numeric_limits<T>::max());
    for (const int ranks : {1, 2, 3})
        for (const un::OnOffence action : {un::OnOffence::skip, un::OnOffence::stop})
            for (const Outcome& one : outcomes(ranks, [&](auto& world) {
                     Model model, twin;
                     const un::Sgd sgd{.learning_rate = 1 / most};
                     un::Trainer trainer{world, model, sgd, un::FiniteGuard{action}, policies...};
                     un::Trainer unguarded{world, twin, sgd, un::NoGuard{}, policies...};
                     expect(step(world, trainer, 1).committed && step(world, unguarded, 1).committed, "1");
                     const auto before = held(trainer);
                     bool stopped = false;
                     try {
                         const un::UpdateReport report = step(world, trainer, 0.75 * most);
                         expect(!report.committed, "committed an infinite sum");
                         expect(world.size() == 1 ||
                                    (report.offender_rank == -1 && report.offender_parameter == (in_blocks ? 0 : 1)),
                                "the report's offender");
                     } catch (const un::error& failed) {
                         stopped = true;
                         const std::string text = failed.what();
                         expect(failed.code() == un::ErrorCode::not_finite &&
                                    text.find("is NaN or infinite") != std::string::npos,
                                text);
                         expect(world.size() == 1 ||
                                    (failed.rank() == -1 && text.find("the sum of the gradients of") != text.npos &&
                                     text.find("over all micro-batches is NaN or infinite, in update 2") != text.npos),
                                text);
                     }
                     expect(stopped == (action == un::OnOffence::stop), "the guard's action");
                     expect(same(before, held(trainer)), "parameters have changed");
                     // The check of sums changes no sum.
                     for (const double slope : {most / 8, 0x1p-20 * most, -2.0}) {
                         expect(step(world, trainer, slope).committed, "a sum that is finite");
                         expect(step(world, unguarded, slope).committed, "unguarded");
                         expect(same(held(trainer), held(unguarded)), "other bits than without a guard");
                     }
                     for (const T x : held(trainer)) expect(std::isfinite(x), "a parameter is not finite");
                     if constexpr (requires { trainer.verify_replicas(); }) trainer.verify_replicas();
                 }))
                BOOST_TEST(!one.failed, name << " on " << ranks << " ranks: " << one.what);
}

} // namespace

BOOST_AUTO_TEST_SUITE(overflow)

BOOST_AUTO_TEST_CASE(of_whole_gradients) {
    check<Whole<float>>("plain");
    check<Whole<double>>("double");
    check<Whole<float>>("ring", un::RingReducer{});
    check<Whole<float>>("clipped", un::ClipByNorm{.max_norm = 1e30});
}
BOOST_AUTO_TEST_CASE(of_slices) {
    check<Whole<float>>("state sharding", un::StateSharding{});
    check<Whole<float>>("state sharding, ring", un::StateSharding{}, un::RingReducer{});
    check<Whole<float>>("state sharding, clipped", un::StateSharding{}, un::ClipByNorm{.max_norm = 1e30});
}
BOOST_AUTO_TEST_CASE(of_compressed_gradients) { check<Whole<float>>("int8", un::Int8Wire{.error_feedback = false}); }
BOOST_AUTO_TEST_CASE(on_a_grid) {
    check<Whole<float>>("grid", un::Reproducible{});
    check<Whole<float>>("narrow grid, ring", un::NarrowReproducible{}, un::RingReducer{});
    check<Whole<float>>("grid, slices", un::Reproducible{}, un::StateSharding{});
    check<Whole<float>>("grid, clipped", un::Reproducible{}, un::ClipByNorm{.max_norm = 1e30});
}
BOOST_AUTO_TEST_CASE(in_units) {
    check<InUnits<float>>("gradients", un::GradientSharding{});
    check<InUnits<double>>("parameters", un::ParameterSharding{});
    check<InUnits<float>>("parameters, grid", un::ParameterSharding{}, un::Reproducible{});
}

// Casts limit what they send, so that no sum overflows. The rest is sent later, or dropped.
BOOST_AUTO_TEST_CASE(of_casts) {
    const auto finite = [](const char* name, auto model, const auto&... policies) {
        for (const Outcome& one : outcomes(3, [&](auto& world) {
                 auto own = model;
                 un::Trainer trainer{world, own, un::Sgd{.learning_rate = 1e-38}, policies...};
                 for (const double slope : {1e37, 3e38, 3e38, 1.0, 3e38}) {
                     expect(trainer.step(slope).committed, "a cut gradient");
                     for (const float x : held(trainer)) expect(std::isfinite(x), "a parameter is not finite");
                 }
                 trainer.verify_replicas();
             }))
            BOOST_TEST(!one.failed, name << ": " << one.what);
    };
    finite("whole", Whole<float>{}, un::Bf16Wire{.error_feedback = false});
    finite("units", InUnits<float>{}, un::GradientSharding{}, un::Bf16Wire{.error_feedback = false});
}

BOOST_AUTO_TEST_CASE(lowers_the_loss_scale) {
    const auto trains = [](const char* name, const auto&... policies) {
        for (const Outcome& one : outcomes(2, [&](auto& world) {
                 Whole<float> model;
                 un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1e-9}, un::LossScaling{.initial = 0x1p99},
                                     policies...};
                 const un::UpdateReport report = trainer.step(3e8);
                 expect(!report.committed && report.offender_parameter == 1, "committed");
                 expect(trainer.loss_scale().scale == 0x1p98, "the scale");
                 expect(trainer.step(3e8).committed && std::abs(model.second[0] - 0.7f) < 1e-6f, "the next");
             }))
            BOOST_TEST(!one.failed, name << ": " << one.what);
    };
    trains("plain");
    trains("slices", un::StateSharding{});
    trains("grid, no guard", un::NoGuard{}, un::Reproducible{});
}

BOOST_AUTO_TEST_CASE(on_servers) {
    for (const int servers : {1, 2}) {
        for (const Outcome& one : outcomes(2 + servers, [&](auto& world) {
                 Whole<float> model;
                 un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1e-38},
                                     un::FiniteGuard{un::OnOffence::skip}, un::BoundedStaleness{0, servers}};
                 if (world.rank() < 2) {
                     expect(trainer.step(1e37).committed, "1e37");
                     const un::UpdateReport report = trainer.step(3e38);
                     expect(!report.committed && report.offender_rank == -1 && report.offender_parameter == 1,
                            "committed an infinite sum");
                     expect(trainer.step(2.0).committed, "2");
                 }
                 trainer.synchronise();
                 for (const float x : held(trainer)) expect(std::isfinite(x), "a parameter is not finite");
                 trainer.verify_replicas();
             }))
            BOOST_TEST(!one.failed, servers << " servers, skip: " << one.what);
        for (const Outcome& one : outcomes(2 + servers, [&](auto& world) {
                 Whole<float> model;
                 un::Trainer trainer{world, model, un::Sgd{.learning_rate = 1e-38}, un::BoundedStaleness{0, servers}};
                 if (world.rank() < 2) trainer.step(3e38);
                 trainer.synchronise();
             }))
            BOOST_TEST((one.failed && one.code == un::ErrorCode::not_finite &&
                        one.says("the sum of the gradients of parameter 1")),
                       servers << " servers, stop: " << one.what);
    }
}

BOOST_AUTO_TEST_SUITE_END()
