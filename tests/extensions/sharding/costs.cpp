// The purpose of the stages: how much memory a rank needs, and how many bytes travel.
#include "../../base/trainer/models.hpp"
#include "support/allocation_counter.hpp"

#include "unisono/automatic.hpp"
#include "unisono/extensions/master_weights/master_weights.hpp"
#include "unisono/extensions/sharded/policies.hpp"
#include "unisono/extensions/sharded/resident_units.hpp"
#include "unisono/extensions/sharded/store.hpp"
#include "unisono/simulate.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr int ranks = 4;
constexpr std::size_t unit_count = 16;

/// Units of equal sizes.
template <class T>
struct Wide {
    using Element = T;
    std::vector<std::size_t> sizes;
    explicit Wide(std::size_t of_each) : sizes(unit_count, of_each) {}
    [[nodiscard]] const std::vector<std::size_t>& units() const { return sizes; }
    static void initialise(std::size_t, std::span<T> values) { std::fill(values.begin(), values.end(), T(1.0f)); }
    double operator()(int, un::UnitPass<T>& pass) const {
        double loss = 0;
        for (std::size_t u = 0; u < sizes.size(); ++u)
            loss += static_cast<double>(static_cast<float>(pass.parameters(u)[0]));
        for (std::size_t u = sizes.size(); u-- > 0;) {
            const auto weights = pass.parameters(u);
            const auto gradient = pass.gradient(u);
            // Its target is zero.
            for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = weights[i];
            pass.ready(u);
        }
        return loss;
    }
};

/// Some updates with the given number of micro-batches.
template <class Sharding, class T, class World>
void train(World& world, std::size_t of_each, int updates, int micro_batches) {
    Wide<T> wide(of_each);
    const auto with = [&](auto& model) {
        un::Trainer trainer{world, model, Sharding{}, un::Adam{}};
        for (int i = 0; i < updates; ++i) {
            if (micro_batches == 1) trainer.step(i);
            else trainer.step(i, i, i);
        }
    };
    if constexpr (sizeof(T) == 2) {
        un::MasterWeights master(wide);
        with(master);
    } else if constexpr (un::detail::shards_gradients<Sharding>) {
        with(wide);
    } else {
        un::ResidentUnits all(world, wide);
        with(all);
    }
}

/// The most memory that a rank used for its training, in bytes per parameter: what grows with the
/// parameters.
template <class Sharding, class T = float>
double memory(int micro_batches) {
    const auto most = [&](std::size_t of_each) {
        const std::size_t before = live_bytes_of_process();
        forget_peak();
        un::run<un::InProcess>(ranks, [&](auto& world) { train<Sharding, T>(world, of_each, 1, micro_batches); });
        return static_cast<double>(peak_bytes_of_process() - before);
    };
    constexpr std::size_t small = 1024, large = 65536;
    return (most(large) - most(small)) / (ranks * unit_count * (large - small));
}

/// The bytes that all ranks send in an update, per parameter.
template <class Sharding, class T = float>
double traffic(int micro_batches) {
    constexpr std::size_t of_each = 1024;
    const auto bytes = [&](int updates) {
        return un::simulate(ranks, {}, [&](auto& world) { train<Sharding, T>(world, of_each, updates, micro_batches); })
            .bytes;
    };
    return static_cast<double>(bytes(4) - bytes(2)) / (2 * unit_count * of_each);
}

/// A model in units of these sizes.
struct OfSizes {
    using Element = float;
    std::vector<std::size_t> sizes;
    [[nodiscard]] std::vector<std::size_t> units() const { return sizes; }
    void initialise(std::size_t, std::span<float>) const {}
    double operator()(int, un::UnitPass<float>&) const { return 0; }
};

} // namespace

BOOST_AUTO_TEST_SUITE(costs_of_stages)

// Adam: 4 bytes of parameter, 4 of gradient and 8 of state each, and two units of gradients and of
// parameters.
BOOST_AUTO_TEST_CASE(memory_of_a_rank) {
    const double replicated = memory<un::Replicated>(1);
    BOOST_TEST(replicated >= 16 * 0.98);
    BOOST_TEST(replicated <= 16 * 1.1);
    BOOST_TEST(memory<un::StateSharding>(1) <= (8 + 8.0 / ranks) * 1.1);
    constexpr double rooms = 2 * 4.0 / unit_count;
    BOOST_TEST(memory<un::GradientSharding>(3) <= (4 + 12.0 / ranks) * 1.1 + rooms);
    BOOST_TEST(memory<un::ParameterSharding>(3) <= 16.0 / ranks * 1.1 + 2 * rooms);
    // In 16 bits: 2 bytes for each parameter, or for two units; float weights, sums and state of
    // owned slices; and the gradient of one more unit. Whole units are float once, before the first
    // update.
    const double low = rooms + 2.0 / unit_count + 4.0 / unit_count;
    BOOST_TEST((memory<un::GradientSharding, un::bfloat16>(3) <= (2 + 16.0 / ranks) * 1.1 + low));
    BOOST_TEST((memory<un::ParameterSharding, un::bfloat16>(3) <= 16.0 / ranks * 1.1 + rooms / 2 + low));
}

// All ranks together send 2 (p - 1) times the gradients in an update of all_reduce.
BOOST_AUTO_TEST_CASE(bytes_of_an_update) {
    const double replicated = traffic<un::Replicated>(1);
    BOOST_TEST(replicated >= 2 * (ranks - 1) * 4.0);
    BOOST_TEST(replicated <= 2 * (ranks - 1) * 4.0 * 1.05);
    BOOST_TEST(traffic<un::StateSharding>(1) <= replicated * 1.02);
    BOOST_TEST(traffic<un::GradientSharding>(1) <= replicated * 1.02);
    BOOST_TEST(traffic<un::ParameterSharding>(1) <= replicated * 1.5 * 1.02);
    // Three micro-batches: each after the first repeats the sums, and the gathering of parameters.
    BOOST_TEST(traffic<un::GradientSharding>(3) <= replicated * 2 * 1.02);
    BOOST_TEST(traffic<un::ParameterSharding>(3) <= replicated * 4.5 * 1.02);
    // 16-bit parameters are half as many bytes. Sums of gradients stay as large.
    BOOST_TEST((traffic<un::GradientSharding, un::bfloat16>(1) <= replicated * 0.75 * 1.02));
    BOOST_TEST((traffic<un::ParameterSharding, un::bfloat16>(1) <= replicated * 1.02));
}

BOOST_AUTO_TEST_CASE(units_without_elements_are_refused) {
    for (const std::vector<std::size_t>& sizes : {std::vector<std::size_t>{2, 0, 3}, {}}) {
        std::array<std::string, 2> told;
        un::run<un::InProcess>(1, [&](auto& world) {
            const auto note = [&](std::string& text, auto make) {
                try {
                    OfSizes model{sizes};
                    make(model);
                } catch (const un::error& refused) {
                    text = refused.what();
                }
            };
            note(told[0], [&](OfSizes& model) { un::ResidentUnits all(world, model); });
            note(told[1], [&](OfSizes& model) { un::Trainer t{world, model, un::GradientSharding{}, un::Sgd{}}; });
        });
        BOOST_TEST(told[0] == told[1]);
        BOOST_TEST(told[0].find("expected at least one") != std::string::npos, "found \"" << told[0] << "\"");
    }
}

BOOST_AUTO_TEST_SUITE_END()
