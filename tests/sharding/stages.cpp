// What is sharded changes where numbers are, and not what they are.
#define UNISONO_TEST_TRANSPORT unisono::AnyTransport
#include "train_rank.hpp"

#include "support/ranks.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

namespace unisono_test {

Result train(const Case& how) {
    const test::Shared<std::array<RankResult, 8>> told;
    test::any_on_processes = how.processes && !test::under_thread_sanitizer;
    const auto body = [&](World& world) {
        RankResult& mine = told->at(static_cast<std::size_t>(world.rank()));
        try {
            if (how.sums == Sums::reproducible) train_reproducible(world, how, mine);
#ifndef UNISONO_TEST_FEW
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
        // each rank has told
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
        BOOST_TEST(holders == (how.stage == Stage::parameters ? 1 : how.ranks));
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
           std::to_string(how.steps) + " steps";
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

struct Folder {
    Folder() {
        char name[] = "/tmp/unisono-sharding-XXXXXX";
        if (::mkdtemp(name) == nullptr) std::abort();
        path = name;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path;
};

void on_any_ranks(std::int64_t steps) {
    const Result expected = train({.steps = steps});
    BOOST_TEST(expected.updates == (steps == 1 ? 9u : 3u));
    for (const Stage stage : every_stage) same_bits({.ranks = 3, .stage = stage, .steps = steps}, expected);
    for (const Stage stage : {Stage::gradients, Stage::parameters}) {
        for (const int ranks : {1, 2, 4, 5}) same_bits({.ranks = ranks, .stage = stage, .steps = steps}, expected);
        same_bits({.ranks = 2, .stage = stage, .processes = true, .steps = steps}, expected);
    }
}

/// Saved under that stage on 1 to 4 ranks, resumed under any on others.
void resumes(std::size_t before) {
    const Result expected = train({});
    for (std::size_t i = 0; i < 4; ++i) {
        const Folder folder;
        const Case saved{.ranks = static_cast<int>(i) + 1,
                         .stage = every_stage[before],
                         .folder = folder.path,
                         .stop_after = 5}; // within an epoch
        train(saved);
        const Case resumed{.ranks = static_cast<int>((before + i) % 4) + 1,
                           .stage = every_stage[(before + 2 * i + i / 2) % 4],
                           .folder = folder.path,
                           .resume = true};
        BOOST_TEST_CONTEXT("saved by " << text(saved))
        same_bits(resumed, expected);
    }
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

// Of 23 samples 5 replicas of 2 make 3 rounds: a window of two rounds is left open at the end of each epoch.
BOOST_AUTO_TEST_CASE(windows_that_are_dropped) {
    const Result expected = train({.steps = 2, .drops = true});
    BOOST_TEST(expected.updates == 3u);
    for (const Stage stage : {Stage::gradients, Stage::parameters})
        for (const int ranks : {2, 3}) same_bits({.ranks = ranks, .stage = stage, .steps = 2, .drops = true}, expected);
}

#ifndef UNISONO_TEST_FEW
// One micro-batch a rank, over mapped memory: slices are summed as the whole is, rank after rank.
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

// Each stage meets each, and each number of ranks.
BOOST_AUTO_TEST_CASE(saved_replicated) { resumes(0); }
BOOST_AUTO_TEST_CASE(saved_with_state_in_slices) { resumes(1); }
BOOST_AUTO_TEST_CASE(saved_with_gradients_in_slices) { resumes(2); }
BOOST_AUTO_TEST_CASE(saved_with_parameters_in_slices) { resumes(3); }

BOOST_AUTO_TEST_SUITE_END()
