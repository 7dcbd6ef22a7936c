// A pipeline in virtual time has the same gradients, and as many messages as its schedule states.
#include "network.hpp"

#include <unisono/simulate.hpp>

#include <boost/test/unit_test.hpp>

using namespace unisono_test;

namespace {

struct Found {
    std::vector<std::vector<double>> gradients;
    double loss = 0;
    un::SimulationReport report;
};

template <class Schedule>
Found simulated(int ranks, const Schedule& schedule, const un::SimulationOptions& how) {
    Found found;
    std::vector<std::vector<std::vector<double>>> all(16);
    found.report = un::simulate(
        ranks, how,
        [&](un::Group<un::Simulated>& world) {
            un::PipelineModel model{
                world, layers<double>(), Distance<double>{results}, schedule,
                un::PipelineOptions{.micro_batches = 6,
                                    .placement = even_placement(static_cast<std::size_t>(ranks) * schedule.chunks)}};
            std::vector<std::size_t> indices(13);
            for (std::size_t i = 0; i < 13; ++i) indices[i] = i;
            const Samples<double> samples(13);
            un::Pass pass;
            const double loss = model(samples.data().batch(indices), pass);
            if (world.rank() == 0) found.loss = loss;
            for (std::size_t p = 0; p < model.gradients().size(); ++p) {
                const auto one = model.gradients()[p];
                all[static_cast<std::size_t>(std::stoi(model.parameter_names()[p].substr(6)))].emplace_back(one.begin(),
                                                                                                            one.end());
            }
        },
        {.timeout = std::chrono::seconds(100)});
    for (auto& layer : all)
        for (auto& one : layer) found.gradients.push_back(std::move(one));
    return found;
}

} // namespace

BOOST_AUTO_TEST_SUITE(pipelines_simulated)

BOOST_AUTO_TEST_CASE(the_same_gradients_whatever_the_network_does) {
    const Found one = simulated(1, un::GPipe{}, {});
    BOOST_TEST(one.gradients.size() == 8u);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        const un::SimulationOptions how{
            .seed = seed, .eager_bytes = seed % 2 == 0 ? 16u : 4096u, .jitter_ns = 50'000, .reorder = true};
        for (const int ranks : {2, 4, 8}) {
            const Found found = simulated(ranks, un::OneForwardOneBackward{}, how);
            BOOST_TEST((found.gradients == one.gradients), "seed " << seed << ", " << ranks << " ranks");
            BOOST_TEST(found.loss == one.loss);
        }
        const Found found = simulated(4, un::Interleaved{2}, how);
        BOOST_TEST((found.gradients == one.gradients), "seed " << seed << ", interleaved");
    }
}

BOOST_AUTO_TEST_CASE(messages_are_those_of_the_schedule) {
    // Two more messages per micro-batch for each additional part. The messages before and after, by
    // which all ranks agree, are the same.
    const auto few = simulated(4, un::OneForwardOneBackward{}, {}).report.messages;
    const auto many = simulated(4, un::Interleaved{2}, {}).report.messages;
    BOOST_TEST(many - few == 2u * 6 * 4);
}

BOOST_AUTO_TEST_CASE(a_rank_that_crashes_is_named) {
    try {
        simulated(4, un::OneForwardOneBackward{}, {.crashes = {{.rank = 2, .at_ns = 8'000}}});
        BOOST_TEST(false, "no rank noticed");
    } catch (const un::error& lost) {
        BOOST_TEST((lost.code() == un::ErrorCode::peer_lost), lost.what());
        BOOST_TEST(lost.peer() == 2);
    }
}

BOOST_AUTO_TEST_SUITE_END()
