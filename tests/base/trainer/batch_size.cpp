// The fastest micro-batch that fits, with a known memory and known work.
#include "outcomes.hpp"

#include "unisono/extensions/trainers/batch_size.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cmath>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

/// A process with a memory of 1000 bytes, of which a sample takes 100 (more on rank 1).
struct Ledger {
    std::uint64_t* worst;
    void reset() const { *worst = 1000; }
    [[nodiscard]] std::uint64_t peak() const { return *worst; }
};

} // namespace

BOOST_AUTO_TEST_SUITE(batch_sizes)

BOOST_AUTO_TEST_CASE(sizes_that_make_up_the_batch_are_tried_until_one_does_not_fit) {
    check_clean(outcomes(2, [](auto& world) {
        std::uint64_t worst = 0;
        std::vector<std::int64_t> runs;
        const auto run = [&](std::int64_t samples) {
            runs.push_back(samples);
            worst = std::max(worst, 1000 + static_cast<std::uint64_t>(samples) * (world.rank() == 1 ? 150 : 100));
        };
        const un::BatchSize found =
            un::find_batch_size(world, {.global_batch = 48, .most_bytes = 2500, .repetitions = 2}, run, Ledger{&worst});
        // Sizes out of 24 per rank: 1, 2, 3, 6 and 12. 4 and 8 are too close to the size before. 12
        // does not fit on rank 1.
        std::vector<std::int64_t> sizes;
        for (const un::BatchTrial& one : found.trials) {
            sizes.push_back(one.micro_batch);
            expect(one.micro_batch * one.accumulation * 2 == 48, "they make up the batch");
            expect(one.bytes == 1000 + static_cast<std::uint64_t>(one.micro_batch) * 150, "the worst rank's memory");
            expect(one.fits() == (one.micro_batch < 12), "what fits");
        }
        expect(sizes == std::vector<std::int64_t>{1, 2, 3, 6, 12}, "the sizes");
        expect(runs.size() == 15 && runs[2] == 1 && runs[3] == 2, "each warmed up and twice timed");
        expect(found.largest == 6, "the largest that fits");
        expect(found.micro_batch * found.accumulation * 2 == 48 && found.samples_per_second > 0, "what is taken");
        expect(found.text().find("does not fit") != std::string::npos &&
                   found.text().find("taken") != std::string::npos,
               found.text());
    }));
}

BOOST_AUTO_TEST_CASE(the_fastest_is_taken_and_of_equals_the_smallest) {
    check_clean(outcomes(2, [](auto& world) {
        // A micro-batch takes 40 ms whatever its size, so a larger one is faster. Rank 1 is slower
        // with 8, and decides.
        const auto run = [&](std::int64_t samples) {
            std::this_thread::sleep_for(std::chrono::milliseconds(samples == 8 && world.rank() == 1 ? 400 : 40));
        };
        const un::BatchSize found = un::find_batch_size(world, {.global_batch = 16, .repetitions = 4}, run);
        expect(found.micro_batch == 4 && found.accumulation == 2 && found.largest == 8, found.text());
        const auto& [fast, slow] = std::tie(found.trials[2], found.trials[3]); // rank 0 needs as long for both
        expect(slow.seconds > 2 * fast.seconds && slow.bytes == 0, "the slowest rank's time");
        un::BatchSize equal = found;
        expect(std::abs(equal.speed_of({.micro_batch = 4, .accumulation = 2, .seconds = 0.5}) - 16) < 1e-9, "speed");
    }));
}

BOOST_AUTO_TEST_CASE(memory_that_cannot_be_had_does_not_fit) {
    check_clean(outcomes(3, [](auto& world) {
        const un::BatchSize found = un::find_batch_size(world, {.global_batch = 12}, [&](std::int64_t samples) {
            if (samples == 4 && world.rank() == 2) throw std::bad_alloc();
        });
        expect(found.largest == 2 && found.trials.size() == 3 && !found.trials.back().fits(), found.text());
    }));
    std::vector<char> held;
    un::ResidentMemory memory;
    memory.reset();
    const std::uint64_t before = memory.peak();
    held.assign(64 << 20, 1); // written to, so resident
    BOOST_TEST(memory.peak() >= before + (32 << 20));
    BOOST_TEST(held.back() == 1);
}

BOOST_AUTO_TEST_CASE(misuse) {
    const auto refused = [](int ranks, const un::BatchSizeOptions& options, const std::string& words) {
        for (const Outcome& one :
             outcomes(ranks, [&](auto& world) { un::find_batch_size(world, options, [](std::int64_t) {}); }))
            BOOST_TEST((one.code == un::ErrorCode::bad_input && one.says(words)), one.what);
    };
    refused(2, {.global_batch = 7}, "global_batch is 7; expected a multiple of the 2 ranks");
    refused(2, {.global_batch = 0}, "global_batch is 0");
    refused(1, {.global_batch = 4, .repetitions = 0}, "repetitions is 0");
    refused(2, {.global_batch = 4, .most_bytes = 1}, "one sample does not fit");
    const auto thrown = outcomes(2, [](auto& world) {
        un::find_batch_size(world, {.global_batch = 4}, [&](std::int64_t samples) {
            if (samples == 2 && world.rank() == 1) throw std::runtime_error("the disk is gone");
        });
    });
    for (const Outcome& one : thrown) BOOST_TEST(one.says("the disk is gone"), one.what);
    const auto different = outcomes(2, [](auto& world) {
        un::find_batch_size(world, {.global_batch = 4 + 4 * world.rank()}, [](std::int64_t) {});
    });
    for (const Outcome& one : different) BOOST_TEST((one.code == un::ErrorCode::mismatch), one.what);
}

BOOST_AUTO_TEST_SUITE_END()
