// A thread advances the operations in flight while the program computes: over sockets, its purpose,
// and between threads.
#include "../collective/findings.hpp"

#include <unisono/group/progress_thread.hpp>
#include <unisono/tcp.hpp>
#include <unisono/unisono.hpp>

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

using Transports = boost::mpl::list<un::InProcess, un::Tcp>;
constexpr un::RunOptions limit = {.timeout = 30s};

/// Three layers, each ready as soon as its gradient is computed.
struct Layers {
    static constexpr std::size_t each = 3000;
    std::array<std::vector<float>, 3> weights = {std::vector<float>(each, 1.0f), std::vector<float>(each, 2.0f),
                                                 std::vector<float>(each, 3.0f)};
    std::array<std::vector<float>, 3> slopes = {std::vector<float>(each), std::vector<float>(each),
                                                std::vector<float>(each)};
    std::array<std::span<float>, 3> parameters() { return {weights[0], weights[1], weights[2]}; }
    std::array<std::span<float>, 3> gradients() { return {slopes[0], slopes[1], slopes[2]}; }
    double operator()(int batch, un::Pass& pass) {
        for (std::size_t layer = 3; layer-- > 0;) {
            for (std::size_t i = 0; i < each; ++i)
                slopes[layer][i] += weights[layer][i] * 0.001f * static_cast<float>(batch + static_cast<int>(i % 7));
            pass.ready(layer);
        }
        return 1;
    }
};

template <class Transport>
std::vector<float> trained(bool threaded) {
    std::vector<float> result;
    un::run<Transport>(
        3,
        [&](auto& world) {
            std::optional<un::ProgressThread<Transport>> thread;
            if (threaded) thread.emplace(world);
            Layers model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1, .momentum = 0.9}, un::RingReducer{},
                                un::Buckets{.first_bytes = 1, .bytes = 5000}};
            for (int i = 0; i < 20; ++i) trainer.step(i + world.rank());
            if (world.rank() != 0) return;
            for (const auto& layer : model.weights) result.insert(result.end(), layer.begin(), layer.end());
        },
        limit);
    return result;
}

} // namespace

BOOST_AUTO_TEST_SUITE(progress_thread)

BOOST_AUTO_TEST_CASE_TEMPLATE(a_rank_that_computes_takes_part_all_the_same, Transport, Transports) {
    test::Findings findings;
    std::atomic<bool> ended = false;
    un::run<Transport>(
        2,
        [&](auto& world) {
            std::vector<float> values(2'000'000, 1.0f); // more than sockets hold
            if (world.rank() == 1) {
                un::all_reduce(world, values, un::Sum{}, un::RingSchedule{});
                ended = true;
            } else {
                const un::ProgressThread thread(world);
                un::Operation reduced = un::start_all_reduce(world, values, un::Sum{}, un::RingSchedule{});
                const auto until = std::chrono::steady_clock::now() + 20s;
                while (!ended && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
                findings.expect(ended, "the other rank waits for one that does not call");
                reduced.wait();
            }
            findings.expect(values.front() == 2.0f && values.back() == 2.0f, "another sum");
        },
        limit);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_training_has_the_same_bits, Transport, Transports) {
    BOOST_TEST(trained<Transport>(true) == trained<Transport>(false), boost::test_tools::per_element());
}

// As the program's thread would: here it flushes subnormal sums to zero. Rank 0's program does not
// enter the group until rank 1 has the half that rank 0's thread has summed.
BOOST_AUTO_TEST_CASE_TEMPLATE(it_computes_in_the_programs_floating_point_mode, Transport, Transports) {
    test::Findings findings(2);
    std::atomic<bool> ended = false;
    un::run<Transport>(
        2,
        [&](auto& world) {
            std::optional<un::ProgressThread<Transport>> thread;
            if (world.rank() == 0) thread.emplace(world);
            un::detail::set_floating_point_mode(un::detail::FloatingPointMode::flushes_results);
            std::vector<float> values(4000, 1e-40f);
            un::Operation reduced = un::start_all_reduce(world, values, un::Sum{}, un::RingSchedule{});
            const auto until = std::chrono::steady_clock::now() + 20s;
            while (world.rank() == 0 && !ended && std::chrono::steady_clock::now() < until)
                std::this_thread::sleep_for(1ms);
            findings.expect(world.rank() == 1 || ended, "the thread does not take part");
            reduced.wait();
            ended = true;
            findings.expect(std::bit_cast<std::uint32_t>(values[0]) == 0 &&
                                std::bit_cast<std::uint32_t>(values[3999]) == 0,
                            "a sum that is not flushed");
        },
        limit);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(groups_and_messages_come_and_go_beside_it, Transport, Transports) {
    test::Findings findings;
    un::run<Transport>(
        4,
        [&](auto& world) {
            const un::ProgressThread thread(world, {.pause = 1us});
            for (int round = 0; round < 10; ++round) {
                auto pair = world.split(world.rank() / 2, world.rank());
                std::vector<double> all(5000, 1.0), half(300, 1.0), message(40, world.rank()), got(40);
                un::Operation one = un::start_all_reduce(world, all, un::Sum{}, un::RingSchedule{.chunk_bytes = 4096});
                un::Operation two = un::start_all_reduce(pair, half, un::Max{}, un::TreeSchedule{});
                un::Operation come = un::start_receive(pair, got, 1 - pair.rank(), round);
                un::send(pair, message, 1 - pair.rank(), round);
                while (!two.poll()) std::this_thread::yield();
                come.wait();
                one.wait();
                un::barrier(pair);
                findings.expect(all[4999] == 4.0 && half[299] == 1.0, "another reduction");
                findings.expect(got[0] == static_cast<double>(world.rank() ^ 1), "another message");
                auto memory = pair.template allocate<float>(100);
                un::all_reduce(pair, memory);
            }
        },
        limit);
}

/// Each call is the first of its size, so the rank prepares operations while the thread moves
/// others.
BOOST_AUTO_TEST_CASE_TEMPLATE(calls_of_new_sizes_start_beside_it, Transport, Transports) {
    test::Findings findings;
    un::run<Transport>(
        2,
        [&](auto& world) {
            const un::ProgressThread<Transport> thread(world);
            std::vector<std::vector<float>> data;
            std::vector<un::Operation> started;
            for (std::size_t n = 1; n < 60; ++n) data.emplace_back(700 * n, 1.0f);
            for (auto& one : data) started.push_back(un::start_all_reduce(world, one, un::Sum{}, un::RingSchedule{}));
            for (un::Operation& one : started) one.wait();
            for (const auto& one : data) findings.expect(one == std::vector<float>(one.size(), 2.0f), "a sum");
        },
        limit);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_rank_that_fails_is_named_and_the_thread_ends, Transport, Transports) {
    test::Findings findings;
    try {
        un::run<Transport>(
            3,
            [&](auto& world) {
                const un::ProgressThread thread(world);
                std::vector<float> values(1000, 1.0f);
                try { // the fault may reach a rank before it has finished the first
                    un::all_reduce(world, values, un::Sum{}, un::RingSchedule{});
                    if (world.rank() == 1) throw std::runtime_error("enough");
                    un::Operation never = un::start_all_reduce(world, values, un::Sum{}, un::RingSchedule{});
                    never.wait();
                    findings.expect(false, "it ended without a rank");
                } catch (const un::error& failed) {
                    findings.expect(failed.rank() == 1, failed.what());
                    throw;
                }
            },
            limit);
        BOOST_TEST(false, "nothing was thrown");
    } catch (const std::exception& failed) {
        BOOST_TEST(std::string(failed.what()).find("enough") != std::string::npos, failed.what());
    }
}

BOOST_AUTO_TEST_CASE(a_second_one_and_a_pause_of_nothing_are_refused) {
    un::run<un::InProcess>(1, [&](auto& world) {
        const auto code_of = [&](const un::ProgressThreadOptions& options) {
            try {
                const un::ProgressThread made(world, options);
                return un::ErrorCode::none;
            } catch (const un::error& refused) {
                return refused.code();
            }
        };
        BOOST_TEST((code_of({.pause = 0ns}) == un::ErrorCode::bad_input));
        {
            const un::ProgressThread one(world);
            BOOST_TEST((code_of({}) == un::ErrorCode::refused));
        }
        const un::ProgressThread again(world);
    });
}

BOOST_AUTO_TEST_SUITE_END()
