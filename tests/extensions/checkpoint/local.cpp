// Ranks that make updates of their own stop where they have synchronised. The resumed training has
// the bits of one that never stopped.
#include "../../../examples/own_update/elastic_averaging.hpp"
#include "support/fails.hpp"
#include "training.hpp"

#include "unisono/extensions/checkpoint/checkpoints.hpp"
#include "unisono/extensions/updates/gossip.hpp"
#include "unisono/extensions/updates/hogwild.hpp"
#include "unisono/extensions/updates/streaming_diloco.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <span>
#include <stdexcept>

namespace un = unisono;
using unisono_test::Folder;

namespace {

/// y = w . x in two parameters, whose targets are 1.
struct Linear {
    std::vector<float> weights = std::vector<float>(12, 0.1f), slopes = std::vector<float>(12);
    std::array<std::span<float>, 2> parameters() {
        return {std::span(weights).first(5), std::span(weights).subspan(5)};
    }
    std::array<std::span<float>, 2> gradients() { return {std::span(slopes).first(5), std::span(slopes).subspan(5)}; }
    double operator()(const un::RowBatch<float>& batch, un::Pass& pass) {
        double loss = 0;
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            float y = pass.random(row).uniform() - 1.5f;
            for (std::size_t i = 0; i < 12; ++i) y += weights[i] * batch.row(row)[i];
            for (std::size_t i = 0; i < 12; ++i) slopes[i] += y * batch.row(row)[i];
            loss += static_cast<double>(y * y);
        }
        return loss;
    }
};

struct Ways {
    int ranks = 2;
    std::string folder = {};
    bool resume = false;
    std::uint64_t save_at = 0; ///< update at which training saves and stops
    std::uint64_t meet_at = 0; ///< earlier update after which ranks are told to synchronise
    int astray = 0;            ///< updates before it resumes, which must leave no trace
};
struct End {
    std::vector<float> weights = {}, state = {}; ///< the rank's own
    std::uint64_t updates = 0;
    std::string refused = {};
};

/// 3 epochs of 4 updates.
template <class Update>
std::vector<End> train(const Ways& how, const Update& update) {
    std::vector<End> ends(static_cast<std::size_t>(how.ranks));
    const std::vector<float> values = un::torch_rand(3, static_cast<std::size_t>(how.ranks) * 4 * 2 * 12);
    un::run<un::InProcess>(
        how.ranks,
        [&](auto& world) {
            End& end = ends[static_cast<std::size_t>(world.rank())];
            Linear model;
            un::Trainer trainer{world, model, update, un::Sgd{.learning_rate = 0.01, .momentum = 0.9}};
            un::Checkpoints checkpoints(how.folder.empty() ? "/nowhere" : how.folder);
            try {
                const un::RowData<float> data(values, 12);
                for (int i = 0; i < how.astray; ++i) {
                    const auto row = static_cast<std::size_t>(world.rank());
                    trainer.step(data.batch(std::array<std::size_t, 1>{row}));
                }
                if (how.resume && !checkpoints.resume(trainer)) throw std::runtime_error("nothing to resume from");
                trainer.fit(data, {.epochs = 3 - trainer.position().epoch.number(), .batch_size = 2, .progress = false},
                            [&](const un::UpdateReport& report) {
                                if (report.number == how.meet_at) trainer.synchronise();
                                if (report.number != how.save_at) return true;
                                checkpoints.save(trainer);
                                return false;
                            });
            } catch (const un::error& failed) {
                end.refused = failed.what();
            }
            end.weights = model.weights;
            const auto momentum = trainer.state().optimizer_state().array(0);
            end.state.assign(momentum.begin(), momentum.end());
            end.updates = trainer.updates();
        },
        {.timeout = std::chrono::seconds(30)});
    return ends;
}

/// `meet_at`: 0 if ranks synchronise by themselves.
template <class Update>
void goes_on(int ranks, std::uint64_t save_at, const Update& update, std::uint64_t meet_at = 0, int astray = 0) {
    BOOST_TEST_CONTEXT(Update::name << " on " << ranks << " ranks, saved after " << save_at << ", astray " << astray) {
        const auto whole = train({.ranks = ranks, .meet_at = meet_at}, update);
        const Folder folder;
        for (const End& one :
             train({.ranks = ranks, .folder = folder.path(), .save_at = save_at, .meet_at = meet_at}, update))
            BOOST_TEST(one.refused == "");
        const auto ends = train({.ranks = ranks, .folder = folder.path(), .resume = true, .astray = astray}, update);
        for (std::size_t rank = 0; rank < ends.size(); ++rank) {
            BOOST_TEST(ends[rank].refused == "");
            BOOST_TEST(ends[rank].updates == 12u);
            BOOST_TEST(ends[rank].weights == whole[rank].weights, boost::test_tools::per_element());
            BOOST_TEST(ends[rank].state == whole[rank].state, boost::test_tools::per_element());
        }
        // So it matters whose state it is.
        if (ranks > 1) BOOST_TEST(whole[0].state != whole[1].state);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_local)

BOOST_AUTO_TEST_CASE(local_steps_go_on_where_the_ranks_have_met) {
    // Within an epoch.
    for (const int ranks : {1, 2, 3}) goes_on(ranks, 6, un::LocalSteps{.steps = 3});
    goes_on(2, 4, un::LocalSteps{.steps = 3, .warm_up = 4}); // before the first own update
}

BOOST_AUTO_TEST_CASE(so_does_an_outer_optimizer) {
    for (const int ranks : {1, 2, 3}) goes_on(ranks, 6, un::Diloco<>{.steps = 3});
    goes_on(2, 2, un::Diloco<>{.steps = 3, .warm_up = 2}); // it has no state yet
    goes_on(2, 8, un::Diloco<>{.steps = 3, .warm_up = 2});
}

BOOST_AUTO_TEST_CASE(fragments_go_on_where_the_ranks_were_told_to_meet) {
    // In flight after 2, 4, ... updates.
    const un::StreamingDiloco<> two{.steps = 4, .fragments = 2, .overlap = 1};
    for (std::uint64_t at = 1; at < 12; ++at) goes_on(2, at, two, at);
    for (const int ranks : {1, 3}) goes_on(ranks, 6, two, 6);
    const un::StreamingDiloco<> warm{.steps = 2, .fragments = 1, .overlap = 1, .mix = 0.25, .warm_up = 3};
    // Before the first own update, and after it.
    for (const std::uint64_t at : {3u, 4u, 5u}) goes_on(2, at, warm, at);
    // Resumed with or without a fragment in flight.
    for (const int astray : {1, 2, 3}) goes_on(2, 5, two, 5, astray);
    // And the ranks synchronise an update later.
    for (const int astray : {1, 2, 3}) goes_on(2, 11, two, 11, astray);
}

BOOST_AUTO_TEST_CASE(so_do_averages_with_neighbours) {
    for (std::uint64_t at = 1; at < 12; ++at) goes_on(3, at, un::Gossip{}, at);
    goes_on(2, 5, un::Gossip{.steps = 2}, 5);
    goes_on(3, 5, un::Gossip{.graph = un::GossipGraph::ring, .steps = 2}, 5, 3);
    goes_on(2, 3, un::Gossip{.warm_up = 3}, 3);
}

BOOST_AUTO_TEST_CASE(so_does_an_update_of_ones_own) {
    for (const std::uint64_t at : {1u, 4u, 5u, 11u}) goes_on(3, at, ElasticAveraging{.steps = 2, .strength = 0.2}, at);
}

BOOST_AUTO_TEST_CASE(common_parameters_go_on_where_the_ranks_have_met) {
    const std::vector<float> values = un::torch_rand(4, 8 * 2 * 12);
    const un::RowData<float> data(values, 12);
    const Folder folder;
    // One rank at a time.
    const auto turns = [&](std::size_t from, std::size_t to, bool resume, bool save) {
        std::array<End, 2> ends;
        un::run<un::InProcess>(2, [&](auto& world) {
            Linear model;
            un::Trainer trainer{world, model, un::Hogwild{}, un::Sgd{.learning_rate = 0.01, .momentum = 0.9}};
            un::Checkpoints checkpoints(folder.path());
            if (resume && !checkpoints.resume(trainer)) throw std::runtime_error("nothing to resume from");
            for (std::size_t turn = from; turn < to; ++turn) {
                if (static_cast<int>(turn % 2) == world.rank())
                    trainer.step(data.batch(std::array<std::size_t, 2>{2 * turn, 2 * turn + 1}));
                trainer.synchronise();
            }
            if (save) checkpoints.save(trainer);
            End& end = ends[static_cast<std::size_t>(world.rank())];
            const auto momentum = trainer.state().optimizer_state().array(0);
            end = {model.weights, {momentum.begin(), momentum.end()}, trainer.updates()};
        });
        return ends;
    };
    const auto whole = turns(0, 8, false, false);
    const auto half = turns(0, 4, false, true);
    const auto rest = turns(4, 8, true, false);
    BOOST_TEST((half[0].weights != whole[0].weights));
    BOOST_TEST((whole[0].state != whole[1].state));
    for (std::size_t rank = 0; rank < 2; ++rank) {
        BOOST_TEST(rest[rank].updates == 4u);
        BOOST_TEST(rest[rank].weights == whole[rank].weights, boost::test_tools::per_element());
        BOOST_TEST(rest[rank].state == whole[rank].state, boost::test_tools::per_element());
    }
}

// The last round has one of 13 samples: rank 1 makes 3 updates per epoch where rank 0 makes 4. A
// checkpoint after an epoch has both numbers.
BOOST_AUTO_TEST_CASE(ranks_that_have_made_different_numbers_of_updates) {
    const std::vector<float> values = un::torch_rand(3, 13 * 12);
    const un::RowData<float> data(values, 12);
    const auto epochs = [&](const std::string& folder, std::int64_t begin, std::int64_t end) {
        std::vector<End> ends(2);
        un::run<un::InProcess>(2, [&](auto& world) {
            Linear model;
            un::Trainer trainer{world, model, un::LocalSteps{.steps = 2}, un::SequentialSampler{},
                                un::Adam{.learning_rate = 0.01}};
            un::Checkpoints checkpoints(folder);
            if (begin != 0) checkpoints.resume(trainer);
            for (std::int64_t epoch = begin; epoch < end; ++epoch) {
                trainer.fit(data, {.batch_size = 2, .progress = false});
                checkpoints.save(trainer);
            }
            End& mine = ends[static_cast<std::size_t>(world.rank())];
            mine.weights = model.weights;
            const auto average = trainer.state().optimizer_state().array(0);
            mine.state.assign(average.begin(), average.end());
            mine.updates = trainer.updates();
        });
        return ends;
    };
    const Folder whole, stopped;
    const auto expected = epochs(whole.path(), 0, 3);
    epochs(stopped.path(), 0, 2);
    const auto found = epochs(stopped.path(), 2, 3);
    BOOST_TEST(expected[0].updates == 12u);
    BOOST_TEST(expected[1].updates == 9u);
    for (std::size_t rank = 0; rank < 2; ++rank) {
        BOOST_TEST(found[rank].updates == expected[rank].updates);
        BOOST_TEST((found[rank].weights == expected[rank].weights));
        BOOST_TEST((found[rank].state == expected[rank].state));
    }
}

BOOST_AUTO_TEST_CASE(between_two_meetings_nothing_is_saved) {
    const Folder folder;
    for (const End& one : train({.folder = folder.path(), .save_at = 5}, un::LocalSteps{.steps = 3}))
        test::says(one.refused, "rank 0 has made 2 updates of its own since the ranks last synchronised");
    for (const End& one :
         train({.folder = folder.path(), .save_at = 4}, un::StreamingDiloco<>{.steps = 4, .fragments = 2}))
        test::says(one.refused, "rank 0 has made 4 updates of its own");
    BOOST_TEST(un::Checkpoints(folder.path()).list().empty());
}

BOOST_AUTO_TEST_CASE(each_ranks_state_is_for_as_many_ranks) {
    const Folder folder;
    train({.folder = folder.path(), .save_at = 6}, un::LocalSteps{.steps = 3});
    for (const End& one : train({.ranks = 3, .folder = folder.path(), .resume = true}, un::LocalSteps{.steps = 3}))
        test::says(one.refused, "[rank_0.momentum_buffer, rank_1.momentum_buffer]; expected that of");
    for (const End& one : train({.folder = folder.path(), .resume = true}, un::Synchronous{}))
        test::says(one.refused, "[momentum_buffer]");
}

BOOST_AUTO_TEST_SUITE_END()
