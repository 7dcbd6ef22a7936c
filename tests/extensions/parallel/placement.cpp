// Which layers are on which ranks, what memory they take there, and which widths could be better.
#include "../../support/allocation_counter.hpp"
#include "network.hpp"

#include "support/refusal.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>

using namespace unisono_test;
using test::Group;
using test::refusal_of;

namespace {

/// The slowest part's time, found by trying every placement.
double best(const std::vector<un::LayerCost>& layers, std::size_t first, std::size_t parts, std::size_t most_bytes) {
    if (parts == 0) return first == layers.size() ? 0 : INFINITY;
    double found = INFINITY, time = 0;
    std::size_t bytes = 0;
    for (std::size_t end = first; end < layers.size(); ++end) {
        time += layers[end].time;
        bytes += layers[end].bytes;
        if (bytes > most_bytes) break;
        found = std::min(found, std::max(time, best(layers, end + 1, parts - 1, most_bytes)));
    }
    return found;
}

/// Does nothing, for the given number of rounds.
struct Slow {
    std::size_t rounds;
    [[nodiscard]] static std::size_t inputs() { return 4; }
    [[nodiscard]] static std::size_t outputs() { return 4; }
    [[nodiscard]] static std::size_t parameters() { return 1; }
    static void initialise(std::span<float> values) { values[0] = 1; }
    void forward(un::LayerForward<float>& call) const {
        for (std::size_t r = 0; r < rounds; ++r)
            for (std::size_t i = 0; i < call.output.size(); ++i) call.output[i] = call.input[i] + call.output[i] * 0.5f;
    }
    static void backward(un::LayerBackward<float>&) {}
};

bool says(const std::string& text, const std::string& words) {
    if (text.find(words) != std::string::npos) return true;
    BOOST_TEST_MESSAGE("found \"" << text << "\", expected \"" << words << "\"");
    return false;
}

} // namespace

BOOST_AUTO_TEST_SUITE(placement)

BOOST_AUTO_TEST_CASE(none_has_a_faster_slowest_part) {
    un::Mt19937 random(3);
    for (int trial = 0; trial < 200; ++trial) {
        std::vector<un::LayerCost> layers(3 + random() % 7);
        for (auto& one : layers) one = {static_cast<double>(random() % 50), 1 + random() % 20};
        const std::size_t parts = 1 + random() % 3, most = 25 + random() % 60;
        const double expected = best(layers, 0, parts, most);
        if (std::isinf(expected)) {
            BOOST_CHECK_THROW(un::balanced_placement(layers, parts, most), un::error);
            continue;
        }
        const un::LayerPlacement placement = un::balanced_placement(layers, parts, most);
        double slowest = 0;
        std::size_t at = 0;
        for (const std::size_t count : placement) {
            BOOST_TEST(count > 0u);
            double time = 0;
            std::size_t bytes = 0;
            for (std::size_t i = 0; i < count; ++i, ++at) {
                time += layers.at(at).time;
                bytes += layers.at(at).bytes;
            }
            BOOST_TEST(bytes <= most);
            slowest = std::max(slowest, time);
        }
        BOOST_TEST(at == layers.size());
        BOOST_TEST(slowest == expected);
    }
}

BOOST_AUTO_TEST_CASE(by_what_was_measured) {
    test::on_ranks(3, [&](Group& world, test::Findings& findings) {
        un::Layers<float> layers{Slow{30'000}, Slow{1}, Slow{1}, Slow{1}, Slow{1}, Slow{1}};
        const auto costs = un::measure_layers(world, layers, {.samples = 8, .copies_of_parameters = 3});
        findings.expect(costs.size() == 6 && costs[3].bytes == sizeof(float) * (3 + 8 * 4), "bytes");
        // The rest together takes less time, even if ranks are disturbed: only rank 0 measures,
        // and the fastest time counts.
        findings.expect(un::balanced_placement(costs, 2) == un::LayerPlacement{1, 5}, "the slow layer is not alone");
        std::vector<double> times;
        for (const auto& one : costs) times.push_back(one.time);
        std::vector<double> most = times;
        un::all_reduce(world, most, un::Max{});
        findings.expect(most == times, "ranks have other times");
    });
}

BOOST_AUTO_TEST_CASE(what_cannot_be_is_refused) {
    const std::vector<un::LayerCost> three = {{1, 1000}, {1, 3000}, {1, 1000}};
    BOOST_TEST(says(refusal_of([&] { un::balanced_placement(three, 4); }),
                    "on 4 parts needs at least one layer for each, found 3"));
    BOOST_TEST(says(refusal_of([&] { un::balanced_placement(three, 2, 2048); }),
                    "at most 2.0 KiB each: all layers take 4.9 KiB, the largest 2.9 KiB"));
    BOOST_TEST(says(refusal_of([] {
                        un::Layers<float> layers{Dense<float>{3, 4}, Dense<float>{5, 4}};
                    }),
                    "layer 1 has 5 inputs, but layer 0 has 4 outputs"));
    BOOST_TEST(says(refusal_of([] {
                        un::Layers<float> layers{Dense<float>{3, 0}};
                    }),
                    "layer 0 has 3 inputs and 0 outputs"));
    const auto model = [](const un::PipelineOptions& options) {
        return refusal_of([&] {
            test::run(2, [&](Group& world) {
                un::PipelineModel{world, layers<float>(), Distance<float>{results}, un::OneForwardOneBackward{},
                                  options};
            });
        });
    };
    BOOST_TEST(says(model({.placement = {16}}), "has 1 parts, expected 2"));
    BOOST_TEST(says(model({.placement = {16, 0}}), "part 1 has no layers"));
    BOOST_TEST(says(model({.placement = {8, 9}}), "has 17 layers, expected 16"));
    BOOST_TEST(says(model({.placement = {15, 1}}), "the layers of stage 1 have no parameters"));
    BOOST_TEST(says(model({.micro_batches = 0}), "found 0"));
}

BOOST_AUTO_TEST_CASE(a_rank_holds_its_share) {
    constexpr std::size_t wide = 200;
    constexpr int stages = 4;
    std::array<un::PipelineMemory, stages> memory;
    std::size_t before = 0, after = 0;
    const std::vector<float> values(12 * wide);
    const std::vector<std::int32_t> labels(12);
    test::run(
        stages,
        [&](Group& world) {
            const auto make = [] {
                un::Layers<float> layers;
                for (unsigned l = 0; l < 16; ++l) layers.add(Dense<float>{wide, wide, l});
                return layers;
            };
            std::vector<std::size_t> all(12);
            const auto batch = un::RowData(values, wide, labels).batch(all);
            un::Pass pass;
            // The memory that a world keeps for messages exists before.
            un::PipelineModel another{world, make(), Distance<float>{wide}};
            another(batch, pass);
            un::barrier(world);
            if (world.rank() == 0) before = live_bytes_of_process();
            un::barrier(world);
            un::PipelineModel model{world, make(), Distance<float>{wide}};
            model(batch, pass);
            un::barrier(world);
            if (world.rank() == 0) after = live_bytes_of_process();
            un::barrier(world);
            memory[static_cast<std::size_t>(world.rank())] = model.memory();
        },
        test::limit);
    const auto share = static_cast<double>(16 * wide * (wide + 1) * sizeof(float)) / stages;
    std::size_t all = 0;
    for (std::size_t stage = 0; stage < stages; ++stage) {
        const un::PipelineMemory& one = memory[stage];
        BOOST_TEST(std::abs(static_cast<double>(one.parameters) / share - 1) < 0.05);
        BOOST_TEST(std::abs(static_cast<double>(one.gradients) / share - 1) < 0.05);
        // 4 layers of 3 samples for each micro-batch in flight; an input, except on the first
        // stage; and twice what travels back.
        const std::size_t values_a_row = (stages - stage) * (4 + (stage != 0 ? 1 : 0)) + (stage != 0 ? 4 : 2);
        BOOST_TEST(one.activations == values_a_row * 3 * wide * sizeof(float));
        all += one.parameters + one.gradients + one.activations + one.work;
    }
    const auto counted = static_cast<double>(after - before);
    BOOST_TEST(counted < 1.05 * static_cast<double>(all));
    BOOST_TEST(counted > 0.95 * static_cast<double>(all));
}

BOOST_AUTO_TEST_CASE(widths_that_could_be_better) {
    BOOST_TEST(un::padded(1000, 16) == 1008u);
    BOOST_TEST(un::padded(1024, 128) == 1024u);
    const un::Layers<float> layers{Dense<float>{5, 1000}, Dense<float>{1000, 64}, Dense<float>{64, 1030}};
    BOOST_TEST(un::padding_hints(layers) == "  widths that are not multiples of the sizes that devices prefer:\n"
                                            "  layer  outputs  padded to    more\n"
                                            "  -----  -------  ---------  ------\n"
                                            "  0        1,000      1,008   0.8 %\n"
                                            "  2        1,030      1,152  11.8 %\n");
    BOOST_TEST(un::padding_hints(un::Layers<float>{Dense<float>{5, 10}}) == "");
}

BOOST_AUTO_TEST_SUITE_END()
