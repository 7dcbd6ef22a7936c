#include "../collective/findings.hpp"
#include "../collective/oracle.hpp"

#include <unisono/collective/reproducible_sum.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <pthread.h>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>

#ifndef UNISONO_TEST_RANDOM_FAULTS // rooms with slower worlds define it
#define UNISONO_TEST_RANDOM_FAULTS 40
#endif
#ifndef UNISONO_TEST_NEVER_S
#define UNISONO_TEST_NEVER_S 4
#endif

namespace un = unisono;
using test::all_fail;
using test::Group;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::milliseconds never_comes{UNISONO_TEST_NEVER_S * 1000};

using Mode = un::detail::FloatingPointMode;

/// Sets the thread's floating-point mode, and at its end the mode before.
class InMode {
public:
    explicit InMode(Mode mode) { un::detail::set_floating_point_mode(mode); }
    InMode(const InMode&) = delete;
    InMode& operator=(const InMode&) = delete;
    ~InMode() { un::detail::set_floating_point_mode(before_); }

private:
    Mode before_ = un::detail::floating_point_mode();
};

struct LargerByHalf {
    float operator()(float a, float b) const { return (a > b ? a : b) * 1.5f; }
};

} // namespace

BOOST_AUTO_TEST_SUITE(group_faults)

// The body may move the group that it was given.
BOOST_AUTO_TEST_CASE(a_rank_that_has_moved_its_group_throws) {
    for (const int world : {1, 3}) {
        const int thrower = world - 1;
        for (const bool own : {true, false}) {
            std::string caught;
            try {
                un::run<un::InProcess>(
                    world,
                    [&](auto& group) {
                        auto mine = std::move(group);
                        if (mine.rank() == thrower && own) throw std::out_of_range("no such word");
                        if (mine.rank() == thrower) throw un::error(un::ErrorCode::bad_input, "no such word");
                        un::barrier(mine);
                    },
                    test::limit);
            } catch (const std::exception& failed) {
                caught = failed.what();
            }
            BOOST_TEST(caught.find("no such word") != std::string::npos, caught);
            BOOST_TEST(un::failed_rank() == thrower);
        }
    }
}

// The type of a user's exception is kept, and so is its text, which names no rank.
BOOST_AUTO_TEST_CASE(the_rank_that_threw_is_known_to_a_handler) {
    for (const int world : {1, 4}) {
        const int thrower = world - 1;
        bool caught = false;
        try {
            un::run<un::InProcess>(
                world,
                [&](auto& group) {
                    if (group.rank() == thrower) throw std::out_of_range("no such word");
                    un::barrier(group);
                },
                test::limit);
        } catch (const std::out_of_range& failed) {
            caught = std::string(failed.what()) == "no such word" && un::failed_rank() == thrower;
        }
        BOOST_TEST(caught);
        un::run<un::InProcess>(
            world, [](auto& group) { un::barrier(group); }, test::limit);
        BOOST_TEST(un::failed_rank() == -1);
    }
    // If all ranks get an error, its rank is the one that it is about.
    try {
        un::run<un::InProcess>(
            3,
            [&](auto& group) {
                std::vector<float> data(group.rank() == 2 ? 10u : 1000u);
                un::all_reduce(group, data);
            },
            test::limit);
        BOOST_TEST(false, "nothing was thrown");
    } catch (const un::error& failed) {
        BOOST_TEST(un::failed_rank() == failed.rank());
    }
}

// A thread that flushes subnormal numbers, or rounds otherwise, gives sums of other bits.
BOOST_AUTO_TEST_CASE(different_floating_point_modes_are_named_on_every_rank) {
    const auto body = [](std::size_t count, Mode mode, const auto& family, const auto& op) {
        return [=](Group& group) {
            const InMode standard(Mode::standard);
            std::vector<float> data(count, 1e-40f);
            un::all_reduce(group, data, op, family); // once in the same mode, so that the next is a repetition
            if (group.rank() == 1) un::detail::set_floating_point_mode(mode);
            const int repetitions = count > 512 ? 1 : 8; // the mode is not read for each small reduction
            for (int i = 0; i < repetitions; ++i) un::all_reduce(group, data, op, family);
            un::barrier(group);
        };
    };
    constexpr bool on_device = test::Transport::name == std::string_view("nccl"); // which has a mode of its own
    const std::conditional_t<on_device, un::RingSchedule, un::NativeSchedule> on_host;
    for (const std::size_t count : {1u, 5000u, 300'000u}) {
        const std::vector<std::string> flushes = {"rank 1 flushes subnormal results to zero and rounds to nearest",
                                                  "rank 0 keeps subnormal numbers and rounds to nearest",
                                                  "expected one floating-point mode on all ranks", "-ffast-math"};
        all_fail(2, un::ErrorCode::mismatch, flushes, body(count, Mode::flushes_results, on_host, un::Sum{}));
        all_fail(2, un::ErrorCode::mismatch, {"rank 1 keeps subnormal numbers and rounds up"},
                 body(count, Mode::rounds_up, un::RingSchedule{}, un::Sum{}));
        all_fail(2, un::ErrorCode::mismatch, {"rank 1 keeps subnormal numbers and rounds toward zero"},
                 body(count, Mode::rounds_toward_zero, on_host, un::WeightedMean{.weight = 2}));
    }
    all_fail(3, un::ErrorCode::mismatch, {"rank 1 "}, body(10, Mode::rounds_down, un::TreeSchedule{}, LargerByHalf{}));
}

BOOST_AUTO_TEST_CASE(a_floating_point_mode_of_all_ranks_is_accepted) {
    test::Findings findings(3);
    test::run(3, [&](Group& group) {
        std::array<float, 1> moved = {1e-40f};
        std::array<std::uint32_t, 1> integers = {7};
        { // moves are the same in any mode
            const InMode mode(group.rank() == 1 ? Mode::rounds_up : Mode::standard);
            un::broadcast(group, moved, 0);
        }
        un::all_reduce(group, integers);
        findings.expect(integers[0] == 21, "a sum of integers");
        const InMode flushes(Mode::flushes_results);
        for (const std::size_t count : {1u, 5000u}) {
            std::vector<float> sum(count, 1e-40f);
            un::all_reduce(group, sum);
            if (test::Transport::name == std::string_view("nccl")) continue; // a device computes in its own mode
            findings.expect(std::bit_cast<std::uint32_t>(sum.front()) == 0, "the first is not flushed");
            findings.expect(std::bit_cast<std::uint32_t>(sum.back()) == 0, "the last is not flushed");
        }
    });
}

// A rank that has a call's earlier operation still in flight takes a longer way.
BOOST_AUTO_TEST_CASE(all_ranks_read_their_mode_for_the_same_reductions) {
    test::Findings findings(3);
    test::run(3, [&](Group& group) {
        std::array<float, 4> one = {}, two = {};
        for (int call = 0; call < 60; ++call) {
            const InMode mode(call / 7 % 2 == 1 ? Mode::flushes_results : Mode::standard);
            one.fill(1.0f);
            two.fill(2.0f);
            if (call % 5 == 1) un::broadcast(group, one, 1);
            un::Operation first = un::start_all_reduce(group, one);
            if ((call + group.rank()) % 3 != 0) first.wait();
            un::all_reduce(group, two);
            first.wait();
            findings.expect(one[3] == 3.0f && two[3] == 6.0f, "another sum");
        }
    });
}

BOOST_AUTO_TEST_CASE(different_counts_are_named_on_every_rank) {
    const auto body = [](const auto& family) {
        return [family](Group& group) {
            std::vector<float> data(group.rank() == 2 ? 1001u : 1000u);
            un::all_reduce(group, data, un::Sum{}, family);
        };
    };
    const std::vector<std::string> words{"1000 float32", "1001 float32", "rank 2"};
    all_fail(4, un::ErrorCode::mismatch, words, body(un::NativeSchedule{}));
    all_fail(4, un::ErrorCode::mismatch, words, body(un::RingSchedule{}));
    all_fail(4, un::ErrorCode::mismatch, words, body(un::TreeSchedule{}));
    all_fail(4, un::ErrorCode::mismatch, words, body(un::HalvingDoublingSchedule{}));
}

BOOST_AUTO_TEST_CASE(small_and_large_counts_take_different_paths) {
    all_fail(3, un::ErrorCode::mismatch, {"of 10 float32", "of 1000 float32"}, [](Group& group) {
        std::vector<float> data(group.rank() == 1 ? 10u : 1000u);
        un::all_reduce(group, data);
    });
}

BOOST_AUTO_TEST_CASE(different_element_types_and_operations) {
    all_fail(2, un::ErrorCode::mismatch, {"float32", "int32"}, [](Group& group) {
        std::vector<float> floats(8);
        std::vector<int> ints(8);
        if (group.rank() == 0) un::all_reduce(group, floats);
        else un::all_reduce(group, ints);
    });
    all_fail(2, un::ErrorCode::mismatch, {"all_reduce(sum)", "all_reduce(max)"}, [](Group& group) {
        std::vector<float> floats(8);
        if (group.rank() == 0) un::all_reduce(group, floats);
        else un::all_reduce(group, floats, un::Max{});
    });
}

BOOST_AUTO_TEST_CASE(different_collectives_roots_and_schedules) {
    all_fail(3, un::ErrorCode::mismatch, {"broadcast", "all_reduce"}, [](Group& group) {
        std::vector<float> data(8);
        if (group.rank() == 0) un::broadcast(group, data, 0, un::TreeSchedule{});
        else un::all_reduce(group, data, un::Sum{}, un::RingSchedule{});
        un::barrier(group);
    });
    all_fail(3, un::ErrorCode::mismatch, {"another root"}, [](Group& group) {
        std::vector<float> data(100);
        un::broadcast(group, data, group.rank() == 2 ? 1 : 0, un::TreeSchedule{});
        un::barrier(group);
    });
    all_fail(2, un::ErrorCode::mismatch, {"another schedule"}, [](Group& group) {
        std::vector<float> data(100);
        if (group.rank() == 0) un::all_reduce(group, data, un::Sum{}, un::RingSchedule{});
        else un::all_reduce(group, data, un::Sum{}, un::TreeSchedule{});
    });
}

// Each rank is in a call of one of two trainers; the calls are alike.
BOOST_AUTO_TEST_CASE(calls_of_different_trainers) {
    const std::vector<std::string> words{"in trainer 1", "in trainer 2", "expected calls of the same trainer"};
    const auto body = [](std::size_t count, const auto& family, bool warm) {
        return [=](Group& group) {
            const std::uint64_t first = group.context().next_trainer(), second = group.context().next_trainer();
            std::vector<float> data(count);
            const auto call = [&](std::uint64_t trainer) {
                const un::detail::TrainerCall inside(group.context(), trainer);
                un::all_reduce(group, data, un::Sum{}, family);
            };
            for (int i = 0; warm && i < 3; ++i)
                call(first), call(second), un::all_reduce(group, data, un::Sum{}, family);
            call(group.rank() == 1 ? second : first);
            un::barrier(group);
        };
    };
    for (const std::size_t count : {1u, 8u, 5000u, 100'000u}) {
        for (const bool warm : {false, true}) {
            all_fail(3, un::ErrorCode::mismatch, words, body(count, un::NativeSchedule{}, warm));
            all_fail(2, un::ErrorCode::mismatch, words, body(count, un::RingSchedule{}, warm));
        }
    }
    all_fail(2, un::ErrorCode::mismatch, {"in trainer 1", "outside of a trainer"}, [](Group& group) {
        const un::detail::TrainerCall inside(group.context(), group.rank() == 1 ? 0 : group.context().next_trainer());
        std::vector<float> data(8);
        un::all_reduce(group, data);
    });
    // A group that is made in a call belongs to that trainer.
    all_fail(2, un::ErrorCode::mismatch, {"in trainer 1", "in trainer 2"}, [](Group& group) {
        std::vector<Group> own;
        for (const std::uint64_t trainer : {1u, 2u}) {
            const un::detail::TrainerCall inside(group.context(), trainer);
            own.push_back(group.split(0, group.rank()));
        }
        un::barrier(own[0]);
        un::barrier(own[1]);
        std::vector<float> data(8);
        un::all_reduce(own[0], data);
        const un::detail::TrainerCall inside(group.context(), group.rank() == 1 ? 2 : 1);
        un::all_reduce(group, data);
    });
}

// The group knows only the size of elements of a user's type, and operations of the user by their
// type.
BOOST_AUTO_TEST_CASE(sizes_of_elements_and_types_of_operations) {
    struct Few {
        std::uint64_t words[2];
    };
    struct Many {
        std::uint64_t words[4];
    };
    const auto gathers = [](std::size_t count) {
        return [=](Group& group) {
            const auto gather = [&]<class T>(T) {
                const std::vector<T> mine(count);
                std::vector<T> all(2 * count);
                un::all_gather(group, mine, all);
            };
            if (group.rank() == 0) gather(Few{});
            else gather(Many{});
        };
    };
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}})
        all_fail(2, un::ErrorCode::mismatch, {"opaque", "elements of another size"}, gathers(count));
    all_fail(2, un::ErrorCode::mismatch, {"another operation"}, [](Group& group) {
        std::vector<float> data(3, 2);
        const auto plus = [](float a, float b) { return a + b; };
        const auto times = [](float a, float b) { return a * b; };
        if (group.rank() == 0) un::all_reduce(group, data, plus);
        else un::all_reduce(group, data, times);
    });
}

// The rank waits for another operation, or the others have started more operations than they
// announce.
BOOST_AUTO_TEST_CASE(differences_in_an_operation_behind_others) {
    const auto began = std::chrono::steady_clock::now();
    all_fail(2, un::ErrorCode::mismatch, {"4 float32", "5 float32"}, [](Group& group) {
        std::vector<float> data(group.rank() == 0 ? 4 : 5);
        un::Operation sum = un::start_all_reduce(group, data);
        un::barrier(group);
        sum.wait();
    });
    for (const int more : {8, 20})
        all_fail(2, un::ErrorCode::mismatch, {"all_reduce #1"}, [=](Group& group) {
            std::vector<float> data(group.rank() == 0 ? 4 : 5);
            std::vector<std::vector<float>> others(static_cast<std::size_t>(more), std::vector<float>(4));
            std::vector<un::Operation> operations;
            operations.push_back(un::start_all_reduce(group, data));
            for (auto& each : others) operations.push_back(un::start_all_reduce(group, each));
            for (auto& each : operations) each.wait();
        });
    // Well before any deadline.
    BOOST_TEST((std::chrono::steady_clock::now() - began < never_comes));
}

// An operation that is done at once is not announced as started. A rank that reports what the
// others have started counts it.
BOOST_AUTO_TEST_CASE(a_timeout_counts_what_was_done_at_once) {
    test::Findings findings;
    un::RunOptions soon = test::limit;
    soon.timeout = 300ms;
    try {
        test::run(
            2,
            [&](Group& group) {
                std::vector<double> one(1);
                for (int i = 0; i < 100; ++i) un::all_reduce(group, one);
                if (group.rank() == 1) std::this_thread::sleep_for(1s);
                try {
                    un::all_reduce(group, one);
                } catch (const un::error& failed) {
                    const std::string text = failed.what();
                    const bool says = text.find("has started") != text.npos;
                    findings.expect(!says || text.find("has started 100 operations") != text.npos, text);
                    throw;
                }
            },
            soon);
        findings.expect(false, "run did not throw");
    } catch (const un::error&) {
    }
}

// Vector instructions read the operation from the group's copy.
BOOST_AUTO_TEST_CASE(operations_that_are_aligned) {
    struct alignas(64) Aligned {
        float factor = 1;
        float operator()(float a, float b) const {
            return reinterpret_cast<std::uintptr_t>(this) % 64 == 0 ? a + factor * b : -1000;
        }
    };
    test::Findings findings(2);
    test::run(2, [&](Group& group) {
        std::vector<std::vector<float>> data(12, std::vector<float>(100, 1));
        const Aligned plus;
        std::vector<un::Operation> operations;
        for (auto& each : data) operations.push_back(un::start_all_reduce(group, each, plus));
        for (auto& each : operations) each.wait();
        for (const auto& each : data)
            findings.expect(each == std::vector<float>(100, 2), "the operation's copy is not aligned");
    });
}

BOOST_AUTO_TEST_CASE(a_rank_that_never_comes_is_named_after_the_deadline) {
    all_fail(3, un::ErrorCode::timeout, {"rank 1"},
             [](Group& group) {
                 std::vector<float> data(100);
                 if (group.rank() == 1) std::this_thread::sleep_for(never_comes);
                 un::all_reduce(group, data);
             },
             {.timeout = never_comes / 8 * 3, .bind_to_cores = false});
    all_fail(2, un::ErrorCode::timeout, {"rank 0"},
             [](Group& group) {
                 std::vector<float> data(100);
                 if (group.rank() == 0) std::this_thread::sleep_for(never_comes);
                 else un::receive(group, data, 0);
                 un::barrier(group);
             },
             {.timeout = never_comes / 8 * 3, .bind_to_cores = false});
}

// A caller that polls, as an event loop does, has a deadline of its own.
BOOST_AUTO_TEST_CASE(a_caller_that_polls_gives_up) {
    const auto gives_up = [](auto start) {
        all_fail(2, un::ErrorCode::timeout, {"rank 1", "12345 ms"}, [start](Group& group) {
            std::vector<float> data(100);
            if (group.rank() == 1) std::this_thread::sleep_for(never_comes);
            auto sum = start(group, data);
            for (const un::nanoseconds until = un::steady_now() + 200'000'000; !sum.poll();)
                if (group.rank() == 0 && un::steady_now() >= until) sum.give_up(12345ms);
        });
    };
    gives_up([](Group& group, std::vector<float>& data) { return un::start_all_reduce(group, data); });
    gives_up([](Group& group, std::vector<float>& data) {
        un::Prepared sum = un::prepare_all_reduce(group, data);
        sum.start();
        return sum;
    });
}

// Giving up changes nothing if the operation has ended, or is not in flight.
BOOST_AUTO_TEST_CASE(nothing_is_given_up_that_has_ended) {
    test::on_each_rank(2, [&](Group& group, test::Findings& findings) {
        std::vector<float> data(100, 1);
        un::Operation sum = un::start_all_reduce(group, data);
        while (!sum.poll()) {
        }
        sum.give_up(1h);
        un::Operation none;
        none.give_up(1h);
        un::Prepared again = un::prepare_all_reduce(group, data);
        again.give_up(1h);
        again.run();
        again.give_up(1h);
        un::barrier(group);
        findings.expect(data == std::vector<float>(100, 4), "other results");
    });
}

BOOST_AUTO_TEST_CASE(a_rank_that_throws_stops_the_others_and_its_exception_is_rethrown) {
    test::Findings findings;
    const auto body = [&](Group& group) {
        std::vector<float> data(100);
        try { // the first call, too: a slow rank hears of it there
            un::all_reduce(group, data);
            if (group.rank() == 3) throw std::out_of_range("the user's own");
            un::all_reduce(group, data);
        } catch (const un::error& failed) {
            const std::string text = failed.what();
            findings.expect(failed.code() == un::ErrorCode::aborted && failed.rank() == 3, text);
            findings.expect(text.find("rank 3 threw: the user's own") != std::string::npos, text);
            throw;
        }
    };
    if constexpr (test::on_processes) { // an exception's type does not pass between processes
        BOOST_CHECK_EXCEPTION(test::run(4, body, test::limit), un::error, [](const un::error& e) {
            return e.code() == un::ErrorCode::aborted && e.rank() == 3 &&
                   std::string(e.what()).find("rank 3 threw: the user's own") != std::string::npos;
        });
    } else {
        BOOST_CHECK_EXCEPTION(test::run(4, body, test::limit), std::out_of_range,
                              [](const std::out_of_range& e) { return std::string(e.what()) == "the user's own"; });
    }
}

namespace {
/// Cancels this thread from another one, after a while.
void cancel_soon(std::atomic<bool>& cancelled) {
    static pthread_t whom; // one rank alone
    whom = ::pthread_self();
    std::thread([&cancelled] {
        std::this_thread::sleep_for(50ms);
        cancelled = true; // before, since the end of the thread may be that of the process
        ::pthread_cancel(whom);
    }).detach();
}
struct Silent : std::exception {
    [[nodiscard]] const char* what() const noexcept override { return nullptr; }
};
} // namespace

// pthread_exit and pthread_cancel unwind the stack as if something had been thrown.
BOOST_AUTO_TEST_CASE(a_rank_whose_thread_ends_stops_the_others) {
    for (const std::string_view how : {"exit", "cancel", "cancel in a wait"}) {
        // ThreadSanitizer loses track of a thread that is cancelled in a call that it intercepts.
        if (UNISONO_UNDER_THREAD_SANITIZER && how == "cancel in a wait") continue;
        test::Findings findings;
        const test::Shared<std::atomic<bool>> cancelled;
        const auto body = [&](Group& group) {
            float data = 1;
            try {
                un::all_reduce(group, data);
                if (group.rank() == 1) {
                    if (how == "exit") ::pthread_exit(nullptr);
                    if (how == "cancel") ::pthread_cancel(::pthread_self());
                    else cancel_soon(*cancelled);
                    ::pthread_testcancel();
                    un::receive(group, data, 0); // a transport may let no thread be cancelled in it
                    ::pthread_testcancel();
                }
                if (how == "cancel in a wait" && group.rank() == 0) {
                    while (!*cancelled) std::this_thread::sleep_for(1ms);
                    std::this_thread::sleep_for(100ms);
                    un::send(group, data, 1);
                }
                un::all_reduce(group, data);
                findings.expect(false, "a rank did not hear of it");
            } catch (const un::error& failed) {
                findings.expect(failed.rank() == 1, failed.what());
                throw;
            }
        };
        BOOST_CHECK_EXCEPTION(test::run(3, body, test::limit), un::error, [](const un::error& e) {
            return std::string(e.what()).find("its thread ended") != std::string::npos;
        });
    }
}

BOOST_AUTO_TEST_CASE(an_exception_without_text_is_one) {
    test::Findings findings;
    const auto body = [&](Group& group) {
        float data = 1;
        if (group.rank() == 1) throw Silent();
        try {
            un::all_reduce(group, data);
        } catch (const un::error& failed) {
            findings.expect(std::string(failed.what()).find("what() is null") != std::string::npos, failed.what());
            throw;
        }
    };
    if constexpr (test::on_processes) BOOST_CHECK_THROW(test::run(2, body, test::limit), un::error);
    else BOOST_CHECK_THROW(test::run(2, body, test::limit), Silent);
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_is_lost) {
    const auto body = [&](Group& group) {
        std::vector<float> data(100);
        if (group.rank() == 1) return;
        un::all_reduce(group, data);
    };
    BOOST_CHECK_EXCEPTION(test::run(3, body, test::limit), un::error,
                          [](const un::error& e) { return e.code() == un::ErrorCode::peer_lost && e.peer() == 1; });
}

BOOST_AUTO_TEST_CASE(a_dropped_handle_aborts) {
    BOOST_CHECK_EXCEPTION(test::run(
                              2,
                              [&](Group& group) {
                                  std::vector<float> data(100'000);
                                  if (group.rank() == 0) {
                                      un::Operation dropped = un::start_all_reduce(group, data);
                                  } else {
                                      std::this_thread::sleep_for(50ms);
                                      un::all_reduce(group, data);
                                  }
                                  un::barrier(group);
                              },
                              test::limit),
                          un::error, [](const un::error& e) {
                              return e.code() == un::ErrorCode::aborted &&
                                     std::string(e.what()).find("dropped") != std::string::npos;
                          });
}

BOOST_AUTO_TEST_CASE(bad_arguments) {
    BOOST_CHECK_THROW(test::run(0, [](Group&) {}), un::error);
    BOOST_CHECK_THROW(test::run(-3, [](Group&) {}), un::error);
    BOOST_CHECK_THROW(test::run(1 << 30, [](Group&) {}), un::error);
    BOOST_CHECK_THROW(test::run(1, [](Group&) {}, {.timeout = -1s, .bind_to_cores = false}), un::error);
    test::run(1, [](Group& group) {
        std::vector<float> a(3), b(4);
        BOOST_CHECK_THROW(un::all_reduce(group, a, b), un::error);
        BOOST_CHECK_THROW(un::broadcast(group, a, 1), un::error);
        BOOST_CHECK_THROW(un::broadcast(group, a, -1), un::error);
        BOOST_CHECK_THROW(un::send(group, a, 0), un::error);
        BOOST_CHECK_THROW(static_cast<void>(group.split(-7, 0)), un::error);
        BOOST_CHECK_THROW(un::all_reduce(group, a, un::WeightedMean{.weight = -1.0}), un::error);
        const std::vector<std::size_t> counts{std::size_t{0} - 1, 5};
        BOOST_CHECK_THROW(un::all_gather(group, a, b, counts), un::error);
    });
}

BOOST_AUTO_TEST_CASE(faults_at_random_moments_never_hang) {
    // A rank throws at a random point of several operations, some of them large. The others must
    // stop, and no rank may touch freed memory (which sanitizers would detect).
    for (unsigned seed = 0; seed < UNISONO_TEST_RANDOM_FAULTS; ++seed) {
        const int world = 2 + static_cast<int>(seed % 3);
        const int victim = static_cast<int>(seed / 3) % world;
        const unsigned moment = seed * 7 % 23;
        BOOST_CHECK_THROW(test::run(
                              world,
                              [&](Group& group) {
                                  for (unsigned i = 0; i < 30; ++i) {
                                      std::vector<float> one(20'000, 1.0f), two(300, 1.0f);
                                      un::Operation a = un::start_all_reduce(group, one, un::Sum{}, un::RingSchedule{});
                                      un::Operation b = un::start_all_reduce(group, two);
                                      if (group.rank() == victim && i == moment) throw std::runtime_error("victim");
                                      b.wait();
                                      a.wait();
                                      un::all_reduce(group, one);
                                  }
                              },
                              test::limit),
                          std::exception);
    }
}

// Groups from `split` number their ranks anew. Errors use the world's numbers.
BOOST_AUTO_TEST_CASE(errors_of_a_group_name_ranks_of_the_world) {
    // Ranks 2 and 3 form a group of their own, in which world rank 3 makes the mistake.
    const auto told = [](auto mistake) {
        std::string text;
        int blamed = -1;
        try {
            test::run(
                4,
                [&](Group& world) {
                    Group pair = world.split(world.rank() / 2, 0);
                    if (world.rank() >= 2) mistake(pair, pair.rank() == 1);
                    un::barrier(world);
                },
                test::limit);
            BOOST_ERROR("run did not throw");
        } catch (const un::error& failed) {
            text = failed.what();
            blamed = failed.rank();
        }
        BOOST_TEST(blamed >= 2); // of a mismatch, one of the two
        BOOST_TEST(un::failed_rank() == blamed);
        return text;
    };
    const auto names = [&](const std::string& expected, auto mistake) {
        const std::string text = told(mistake);
        BOOST_TEST(text.find(expected) != std::string::npos, "'" << expected << "' not in: " << text);
    };
    names("rank 3 has a number that is NaN", [](Group& pair, bool mistaken) {
        std::vector<float> data(3, mistaken ? std::numeric_limits<float>::quiet_NaN() : 1.0f);
        un::reproducible_sum(pair, data);
    });
    names("rank 3 gave up: no more disk", [](Group& pair, bool mistaken) {
        if (mistaken) pair.abort(pair.blame(un::ErrorCode::aborted, pair.rank(), {}, {"gave up: ", "no more disk"}));
        un::barrier(pair);
    });
    names("rank 3 called all_reduce", [](Group& pair, bool mistaken) {
        std::vector<float> data(mistaken ? 4 : 3);
        un::all_reduce(pair, data);
    });
    // Arguments that the rank itself refuses.
    names("all_gather on rank 3", [](Group& pair, bool mistaken) {
        std::vector<int> all(mistaken ? 3 : 2);
        un::all_gather(pair, std::array{1}, all);
    });
    names("found on rank 3", [](Group& pair, bool mistaken) {
        std::vector<int> data(1);
        un::broadcast(pair, data, mistaken ? 2 : 0);
    });
    names("all_reduce on rank 3", [](Group& pair, bool mistaken) {
        std::vector<float> data(5);
        un::all_reduce(pair, std::span(data).first(4), std::span(data).subspan(mistaken ? 1 : 0, 4));
    });
    names("rank 3 sends to", [](Group& pair, bool mistaken) {
        if (mistaken) un::send(pair, std::array{1}, pair.rank());
        un::barrier(pair);
    });
}

BOOST_AUTO_TEST_SUITE_END()
