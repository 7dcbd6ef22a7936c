// A stage changes where numbers are, and does not change the numbers.
#define UNISONO_TEST_TRANSPORT unisono::AnyTransport
#include "train_rank.hpp"

#include "support/folder.hpp"
#include "support/ranks.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cmath>

namespace unisono_test {

Result train(const Case& how) {
    const test::Shared<std::array<RankResult, 8>> told;
    test::any_on_processes = how.processes && !test::under_thread_sanitizer;
    const auto body = [&](World& world) {
        RankResult& mine = told->at(static_cast<std::size_t>(world.rank()));
        try {
            if (how.sums == Sums::reproducible && !how.low) train_reproducible(world, how, mine);
#ifndef UNISONO_TEST_FEW
            else if (how.low) train_low(world, how, mine);
            else if (how.sums == Sums::plain) train_plain(world, how, mine);
            else train_by_reducers(world, how, mine);
#endif
        } catch (const std::exception& failed) {
            std::string(failed.what()).copy(mine.failed, sizeof mine.failed - 1);
            throw;
        }
    };
    try {
        test::run(how.ranks, body, {.timeout = std::chrono::seconds(30)});
    } catch (const un::error&) {
        // each rank has reported
    }
    Result result = told->at(0).result;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(how.ranks); ++rank) {
        const RankResult& one = told->at(rank);
        BOOST_TEST(one.failed == "", "rank " << rank << ": " << one.failed);
        for (std::size_t i = 0; i < parameter_count; ++i) {
            if (one.has[i]) {
                if (told->at(0).has[i]) BOOST_TEST(result.weights[i] == one.result.weights[i]);
                result.weights[i] = one.result.weights[i];
            }
        }
        Result same = one.result;
        same.weights = told->at(0).result.weights;
        BOOST_TEST((same == told->at(0).result), "rank " << rank << " came to something else than rank 0");
    }
    for (std::size_t i = 0; i < parameter_count; ++i) {
        int holders = 0;
        for (const RankResult& one : *told) holders += one.has[i] ? 1 : 0;
        const bool one_owner = how.stage == Stage::parameters || (how.low && how.stage == Stage::gradients);
        BOOST_TEST(holders == (one_owner ? 1 : how.ranks));
    }
    return result;
}

} // namespace unisono_test

namespace {

using namespace unisono_test;

std::string text(const Case& how) {
    return "stage " + std::to_string(static_cast<int>(how.stage)) + ", sums " +
           std::to_string(static_cast<int>(how.sums)) + ", " + std::to_string(how.ranks) +
           (how.processes ? " processes, " : " threads, ") + std::to_string(how.replicas) + " replicas, " +
           std::to_string(how.steps) + " steps" + (how.low ? ", 16 bits" : "");
}

void same_bits(const Case& how, const Result& expected) {
    BOOST_TEST_CONTEXT(text(how)) { BOOST_TEST((train(how) == expected)); }
}

[[maybe_unused]] void near(const Case& how, const Result& expected) {
    BOOST_TEST_CONTEXT(text(how)) {
        const Result found = train(how);
        BOOST_TEST(found.updates == expected.updates);
        for (std::size_t i = 0; i < parameter_count; ++i)
            BOOST_TEST(std::abs(found.weights[i] - expected.weights[i]) <= 1e-6f,
                       "weight " << i << " is " << found.weights[i] << ", expected " << expected.weights[i]);
    }
}

void on_any_ranks(std::int64_t steps) {
    const Result expected = train({.steps = steps});
    BOOST_TEST(expected.updates == (steps == 1 ? 9u : 3u));
    for (const Stage stage : every_stage) same_bits({.ranks = 3, .stage = stage, .steps = steps}, expected);
    for (const Stage stage : {Stage::gradients, Stage::parameters}) {
        for (const int ranks : {1, 2, 4, 5}) same_bits({.ranks = ranks, .stage = stage, .steps = steps}, expected);
        same_bits({.ranks = 2, .stage = stage, .processes = true, .steps = steps}, expected);
    }
}

/// Saved with that stage on `ranks` ranks, resumed with any stage on 1 to 4 ranks: 16 of all 256
/// ways, and fewer with a sanitizer.
void resumes(Stage before, int ranks) {
    static const Result expected = train({});
    const Folder folder;
    // Within an epoch.
    const Case saved{.ranks = ranks, .stage = before, .folder = folder.path(), .stop_after = 5};
    train(saved);
    for (const Stage after : every_stage)
        for (int on = 1; on <= 4; ++on) {
#ifdef UNISONO_TEST_FEW
            if ((static_cast<int>(after) + on + 2 * ranks) % 8 != 0) continue;
#endif
            BOOST_TEST_CONTEXT("saved by " << text(saved))
            same_bits({.ranks = on, .stage = after, .folder = folder.path(), .resume = true}, expected);
        }
}

void resumes(Stage before) {
    for (int ranks = 1; ranks <= 4; ++ranks) resumes(before, ranks);
}

} // namespace

BOOST_AUTO_TEST_SUITE(stages)

BOOST_AUTO_TEST_CASE(reproducible_on_any_ranks) { on_any_ranks(1); }
BOOST_AUTO_TEST_CASE(accumulated_on_any_ranks) { on_any_ranks(3); }

BOOST_AUTO_TEST_CASE(clipped_and_without_ready) {
    const Result expected = train({.max_norm = 0.05});
    BOOST_TEST((expected != train({})));
    for (const Stage stage : {Stage::gradients, Stage::parameters})
        for (const bool ready : {false, true})
            same_bits({.ranks = 3, .stage = stage, .max_norm = 0.05, .says_ready = ready}, expected);
}

// In training, evaluation and prediction: an operation that completes need not be a unit's
// gradient.
BOOST_AUTO_TEST_CASE(a_model_that_advances_operations_in_flight) {
    const Result expected = train({});
    for (const Stage stage : every_stage)
        for (const int ranks : {1, 3}) same_bits({.ranks = ranks, .stage = stage, .progresses = true}, expected);
}

// The law of clipping: it applies to the gradient of the whole update, whichever rank holds which
// slice and hosts how many micro-batches.
void clipped_under_every_stage(std::int64_t steps, double limit) {
    const Result expected = train({.steps = steps, .max_norm = 0.05, .limit = limit});
    BOOST_TEST((expected != train({.steps = steps})));
    if (limit < 1) BOOST_TEST((expected != train({.steps = steps, .max_norm = 0.05})));
    for (const Stage stage : every_stage)
        for (const int ranks : {2, 3})
            same_bits({.ranks = ranks, .stage = stage, .steps = steps, .max_norm = 0.05, .limit = limit}, expected);
}
BOOST_AUTO_TEST_CASE(clipped_by_norm_under_every_stage) { clipped_under_every_stage(1, 1e9); }
BOOST_AUTO_TEST_CASE(clipped_by_value_under_every_stage) { clipped_under_every_stage(1, 0.01); }
BOOST_AUTO_TEST_CASE(accumulated_and_clipped_by_norm) { clipped_under_every_stage(3, 1e9); }
BOOST_AUTO_TEST_CASE(accumulated_and_clipped_by_value) { clipped_under_every_stage(3, 0.01); }

// From 23 samples 5 replicas of 2 make 3 rounds, so a window of two rounds stays open at the end of
// each epoch.
BOOST_AUTO_TEST_CASE(windows_that_are_dropped) {
    const Result expected = train({.steps = 2, .drops = true});
    BOOST_TEST(expected.updates == 3u);
    for (const Stage stage : {Stage::gradients, Stage::parameters})
        for (const int ranks : {2, 3}) same_bits({.ranks = ranks, .stage = stage, .steps = 2, .drops = true}, expected);
}

#ifndef UNISONO_TEST_FEW
// One micro-batch per rank, over mapped memory: slices are summed as the whole is, rank after rank.
BOOST_AUTO_TEST_CASE(plain_sums_of_one_micro_batch) {
    for (const int ranks : {1, 2, 3, 5}) {
        const Case whole{.ranks = ranks, .sums = Sums::plain, .replicas = ranks};
        const Result expected = train(whole);
        for (const Stage stage : {Stage::gradients, Stage::parameters}) {
            Case how = whole;
            how.stage = stage;
            const Result found = train(how);
            BOOST_TEST_CONTEXT(text(how)) {
                BOOST_TEST(found.weights == expected.weights, boost::test_tools::per_element());
                BOOST_TEST(found.outputs == expected.outputs, boost::test_tools::per_element());
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(plain_sums_of_several) {
    const Result expected = train({.ranks = 2, .sums = Sums::plain, .steps = 2});
    for (const Stage stage : {Stage::gradients, Stage::parameters})
        for (const int ranks : {1, 2, 3, 4, 5})
            near({.ranks = ranks, .stage = stage, .sums = Sums::plain, .steps = 2}, expected);
    for (const int ranks : {1, 2, 3, 5}) {
        near({.ranks = ranks, .stage = Stage::parameters, .sums = Sums::by_ring, .steps = 2}, expected);
        near({.ranks = ranks, .stage = Stage::gradients, .sums = Sums::by_tree, .steps = 2}, expected);
    }
}

#endif

#ifndef UNISONO_TEST_FEW
// The initial scale is too high for 16 bits, so all ranks skip some updates.
void sixteen_bits(std::int64_t steps) {
    const Case whole{.steps = steps, .max_norm = 0.3, .low = true, .loss_scale = 0x1p18};
    const Result expected = train(whole);
    BOOST_TEST(expected.updates > 0u);
    BOOST_TEST(expected.updates < (steps == 1 ? 9u : 6u)); // of those that were tried
    for (const int ranks : {1, 2, 3})
        for (const Stage stage : {Stage::replicated, Stage::gradients, Stage::parameters}) {
            Case how = whole;
            how.ranks = ranks;
            how.stage = stage;
            how.processes = ranks == 2;
            same_bits(how, expected);
        }
}
BOOST_AUTO_TEST_CASE(sixteen_bits_have_the_bits_of_replicated_weights) { sixteen_bits(1); }
BOOST_AUTO_TEST_CASE(accumulated_sixteen_bits_too) { sixteen_bits(2); }

BOOST_AUTO_TEST_CASE(sixteen_bits_are_saved_in_float) {
    const Result expected = train({.low = true});
    BOOST_TEST(expected.updates == 9u);
    constexpr Stage stages[] = {Stage::replicated, Stage::gradients, Stage::parameters};
    for (const Stage before : stages) {
        const Folder folder;
        train({.ranks = 2, .stage = before, .low = true, .folder = folder.path(), .stop_after = 5});
        for (const Stage after : stages)
            same_bits({.ranks = 3, .stage = after, .low = true, .folder = folder.path(), .resume = true}, expected);
    }
}

#endif

// Each stage is resumed by each stage, and each number of ranks by each number.
BOOST_AUTO_TEST_CASE(saved_replicated) { resumes(Stage::replicated); }
BOOST_AUTO_TEST_CASE(saved_with_state_in_slices) { resumes(Stage::state); }
BOOST_AUTO_TEST_CASE(saved_with_gradients_in_slices) { resumes(Stage::gradients); }
BOOST_AUTO_TEST_CASE(saved_with_parameters_in_slices) { resumes(Stage::parameters); }

BOOST_AUTO_TEST_SUITE_END()
