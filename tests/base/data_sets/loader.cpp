#include "unisono/data/loader.hpp"
#include "unisono/sampler/samplers.hpp"

#include "support/allocation_counter.hpp"
#include "support/refusal.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>

namespace un = unisono;
using test::refusal_of;

namespace {

using Indices = std::vector<std::size_t>;

/// A data set whose batch is its list of indices. It is movable only, and counts, fails and waits
/// on demand.
struct Probe {
    std::size_t count = 100;
    std::size_t fails_at = static_cast<std::size_t>(-1); ///< the index whose batch throws
    std::atomic<int> batches{0};
    std::atomic<int> inside{0};
    std::atomic<int> most_inside{0};
    std::atomic<bool> gate{true}; ///< false: batch() waits

    [[nodiscard]] std::size_t size() const { return count; }
    std::unique_ptr<Indices> batch(std::span<const std::size_t> indices) {
        const int now = ++inside;
        most_inside = std::max(most_inside.load(), now);
        for (int i = 0; i < 10000 && !gate; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
        ++batches;
        --inside;
        for (const std::size_t i : indices)
            if (i == fails_at) throw std::runtime_error("sample " + std::to_string(i) + " is broken");
        return std::make_unique<Indices>(indices.begin(), indices.end());
    }
};
static_assert(un::data_set<Probe>);
static_assert(!un::data_set<const Probe>);

un::SampleStream stream_of(std::int64_t size, std::int64_t batch, std::int64_t epoch = 0, bool shuffle = true) {
    return un::DistributedSampler{.shuffle = shuffle, .seed = 1}.stream({.data_size = size, .batch_size = batch},
                                                                        un::Epoch{epoch});
}

template <class L>
std::vector<Indices> drain(L& loader) {
    std::vector<Indices> all;
    while (auto* item = loader.next()) {
        const Indices listed(item->entry.samples.begin(), item->entry.samples.end());
        if (item->batch) BOOST_CHECK(**item->batch == listed);
        all.push_back(listed);
    }
    return all;
}

/// Waits until `f()` holds, for at most ten seconds.
template <class F>
bool eventually(F&& f) {
    for (int i = 0; i < 10000; ++i) {
        if (f()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return false;
}

} // namespace

BOOST_AUTO_TEST_SUITE(loader)

BOOST_AUTO_TEST_CASE(any_depth_gives_the_streams_batches_in_its_order) {
    auto stream = stream_of(100, 7);
    std::vector<Indices> expected;
    while (!stream.done()) {
        const auto micro = stream.next();
        expected.emplace_back(micro.samples.begin(), micro.samples.end());
    }
    for (const int depth : {0, 1, 2, 3, 50}) {
        Probe data;
        un::Loader reader{data, stream_of(100, 7), {.depth = depth}};
        BOOST_CHECK(drain(reader) == expected);
        BOOST_CHECK(reader.next() == nullptr); // and stays at its end
        BOOST_CHECK_EQUAL(data.most_inside.load(), 1);
        for (int epoch = 1; epoch < 4; ++epoch) {
            reader.restart(un::Epoch{epoch});
            BOOST_CHECK(drain(reader) != expected);
        }
        reader.restart(un::Epoch{0});
        BOOST_CHECK(drain(reader) == expected);
        reader.restart(un::Epoch{0}, 70); // the remainder after ten batches
        BOOST_CHECK(drain(reader) == std::vector<Indices>(expected.begin() + 10, expected.end()));
    }
}

BOOST_AUTO_TEST_CASE(it_reads_as_far_ahead_as_told_and_no_further) {
    for (const int depth : {0, 1, 3}) {
        Probe data;
        un::Loader reader{data, stream_of(100, 5), {.depth = depth}};
        for (int taken = 0; taken < 10; ++taken) {
            BOOST_CHECK(eventually([&] { return data.batches == taken + depth; }));
            std::this_thread::sleep_for(std::chrono::milliseconds{2}); // time to read one too many
            BOOST_CHECK_EQUAL(data.batches.load(), taken + depth);
            BOOST_REQUIRE(reader.next() != nullptr);
        }
    }
}

BOOST_AUTO_TEST_CASE(an_exception_comes_in_its_place_and_ends_the_stream) {
    for (const int depth : {0, 1, 2, 30}) {
        Probe data;
        data.fails_at = 42;
        un::Loader reader{data, stream_of(100, 5, 0, false), {.depth = depth}};
        for (std::size_t k = 0; k < 8; ++k) {
            auto* item = reader.next();
            BOOST_REQUIRE(item != nullptr);
            BOOST_REQUIRE_EQUAL(item->entry.samples[0], k * 5);
        }
        BOOST_CHECK_EXCEPTION(reader.next(), std::runtime_error,
                              [](const auto& e) { return std::string(e.what()) == "sample 42 is broken"; });
        BOOST_CHECK(reader.next() == nullptr);
        BOOST_CHECK_EQUAL(data.batches.load(), 9); // none after it
        data.fails_at = static_cast<std::size_t>(-1);
        reader.restart(un::Epoch{0});
        BOOST_CHECK_EQUAL(drain(reader).size(), 20u);
    }
}

namespace {
/// A stream that breaks after three lists.
struct BrokenStream {
    struct Entry {
        std::span<const std::size_t> samples = {};
    };
    Indices one = {4};
    int given = 0;
    [[nodiscard]] bool done() const { return false; }
    Entry next() {
        if (++given > 3) throw std::logic_error("the stream broke");
        return {one};
    }
};
} // namespace

BOOST_AUTO_TEST_CASE(an_exception_of_the_stream_comes_in_its_place) {
    for (const int depth : {0, 1, 8}) {
        Probe data;
        un::Loader reader{data, BrokenStream{}, {.depth = depth}};
        for (int i = 0; i < 3; ++i) BOOST_REQUIRE(reader.next() != nullptr);
        BOOST_CHECK_THROW(reader.next(), std::logic_error);
        BOOST_CHECK(reader.next() == nullptr);
    }
}

namespace {
struct StreamWithoutEnd : BrokenStream {
    [[nodiscard]] bool done() const { return given == 3 ? throw std::logic_error("its end is not known") : false; }
};
} // namespace

BOOST_AUTO_TEST_CASE(an_exception_of_a_streams_end_comes_in_its_place) {
    for (const int depth : {0, 1, 5}) {
        Probe data;
        un::Loader reader{data, StreamWithoutEnd{}, {.depth = depth}};
        for (int i = 0; i < 3; ++i) BOOST_REQUIRE(reader.next() != nullptr);
        BOOST_CHECK_THROW(reader.next(), std::logic_error);
        BOOST_CHECK(reader.next() == nullptr);
    }
}

BOOST_AUTO_TEST_CASE(it_stops_at_any_moment) {
    for (int taken = 0; taken < 12; ++taken)
        for (const int depth : {0, 1, 2, 4}) {
            Probe data;
            {
                un::Loader reader{data, stream_of(100, 10), {.depth = depth}};
                for (int i = 0; i < taken; ++i) reader.next();
                if (taken % 2 == 1) {
                    reader.restart(un::Epoch{5});
                    if (taken % 3 == 0) reader.next();
                }
            }
            BOOST_CHECK_EQUAL(data.inside.load(), 0);
        }
}

BOOST_AUTO_TEST_CASE(what_was_held_before_a_restart_is_dropped) {
    Probe data;
    un::Loader reader{data, stream_of(100, 10, 0, false), {.depth = 3}};
    reader.next();
    reader.next();
    reader.restart(un::Epoch{0}, 50);
    BOOST_CHECK_EQUAL(reader.next()->entry.samples[0], 50u);
    BOOST_CHECK_EQUAL(reader.next()->entry.samples[0], 60u);
    BOOST_CHECK_THROW(reader.restart(un::Epoch{0}, 101), un::error);
    BOOST_CHECK(reader.next() == nullptr); // a refused restart leaves it at its end
    reader.restart(un::Epoch{0});
    BOOST_CHECK_EQUAL(drain(reader).size(), 10u);
}

BOOST_AUTO_TEST_CASE(a_restart_waits_for_the_batch_that_is_being_read_and_drops_it) {
    Probe data;
    data.gate = false;
    un::Loader reader{data, stream_of(100, 10, 0, false), {.depth = 2}};
    BOOST_REQUIRE(eventually([&] { return data.inside == 1; }));
    std::thread opener{[&] {
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
        data.gate = true;
    }};
    reader.restart(un::Epoch{0}, 50);
    BOOST_CHECK(data.gate);
    opener.join();
    const auto rest = drain(reader);
    BOOST_CHECK_EQUAL(rest.size(), 5u);
    BOOST_CHECK_EQUAL(rest.at(0).at(0), 50u);
}

BOOST_AUTO_TEST_CASE(items_carry_what_the_stream_says_and_empty_lists_ask_nothing) {
    for (const int depth : {0, 2}) {
        Probe data;
        data.count = 5;
        un::Loader reader{data,
                          un::EvaluationSampler{}.stream({.data_size = 5, .batch_size = 2, .replicas = 4, .replica = 3},
                                                         un::Epoch{7}),
                          {.depth = depth}};
        auto* item = reader.next();
        BOOST_REQUIRE(item != nullptr);
        BOOST_CHECK(!item->batch);
        BOOST_CHECK_EQUAL(item->entry.replica, 3);
        BOOST_CHECK_EQUAL(item->entry.round_samples, 5);
        BOOST_CHECK(item->entry.ends_epoch);
        BOOST_CHECK((item->entry.resume == un::Position{un::Epoch{7}, 5}));
        BOOST_CHECK(reader.next() == nullptr);
        BOOST_CHECK_EQUAL(data.batches.load(), 0);
    }
}

BOOST_AUTO_TEST_CASE(a_data_set_that_takes_too_long_is_an_error_and_may_yet_answer) {
    Probe data;
    data.gate = false;
    un::Loader reader{data, stream_of(100, 10), {.depth = 1, .timeout = std::chrono::milliseconds{20}}};
    try {
        reader.next();
        BOOST_ERROR("no timeout");
    } catch (const un::error& e) {
        BOOST_CHECK(e.code() == un::ErrorCode::timeout);
        BOOST_CHECK_MESSAGE(std::string(e.what()).find("20 ms") != std::string::npos, e.what());
    }
    data.gate = true;
    bool answered = false;
    for (int i = 0; i < 500 && !answered; ++i) {
        try {
            answered = reader.next() != nullptr;
        } catch (const un::error&) {
        }
    }
    BOOST_CHECK(answered);
}

BOOST_AUTO_TEST_CASE(nothing_is_allocated_for_a_batch_but_by_the_data_set) {
    struct Frugal { // its batch is the first index
        [[nodiscard]] std::size_t size() const { return 1000; }
        [[nodiscard]] std::size_t batch(std::span<const std::size_t> indices) const { return indices[0]; }
    };
    const Frugal data;
    for (const int depth : {0, 1, 3}) {
        un::Loader reader{data, stream_of(1000, 7), {.depth = depth}};
        // Every slot has been used.
        for (int i = 0; i < 20; ++i) BOOST_REQUIRE(reader.next() != nullptr);
        const std::size_t before = unisono_test::allocations_of_process();
        std::size_t batches = 0;
        for (std::int64_t epoch = 1; epoch < 4; ++epoch) {
            reader.restart(un::Epoch{epoch});
            while (reader.next() != nullptr) ++batches;
        }
        const std::size_t after = unisono_test::allocations_of_process();
        BOOST_CHECK_EQUAL(after - before, 0u);
        BOOST_CHECK_EQUAL(batches, 3 * 143u);
    }
}

BOOST_AUTO_TEST_CASE(bad_input_is_refused_by_name) {
    Probe data;
    Probe empty;
    empty.count = 0;
    BOOST_CHECK(refusal_of([&] { un::Loader{empty, stream_of(10, 2)}; }).find("empty") != std::string::npos);
    BOOST_CHECK(refusal_of([&] {
                    un::Loader{data, stream_of(10, 2), {.depth = -1}};
                }).find("depth is -1") != std::string::npos);
    BOOST_CHECK(refusal_of([&] {
                    un::Loader{data, stream_of(10, 2), {.depth = 1 << 20}};
                }).find("depth is 1048576") != std::string::npos);
    BOOST_CHECK(refusal_of([&] {
                    un::Loader{data, stream_of(10, 2), {.timeout = std::chrono::nanoseconds{0}}};
                }).find("timeout is 0") != std::string::npos);
    un::Loader patient{data, stream_of(10, 2), {.timeout = std::chrono::nanoseconds::max()}};
    BOOST_CHECK_EQUAL(drain(patient).size(), 5u);
}

BOOST_AUTO_TEST_SUITE_END()
