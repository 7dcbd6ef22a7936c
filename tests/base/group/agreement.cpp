// Ranks that are some operations apart: in collectives with a root each rank waits only for those
// whose data it needs. Random programs compute what they should, on threads and processes. A call
// that differs on one rank is named at the latest at the next operation that joins the ranks.
// UNISONO_TEST_AGREEMENT_SEEDS: random programs to run; UNISONO_TEST_AGREEMENT_FIRST: the first.
#include "../collective/campaign.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace un = unisono;
using namespace std::chrono_literals;
using campaign::mixed;

enum Kind { broadcast, reduce, gather, scatter, all_reduce, all_gather, barrier, part, kinds };

struct Step {
    Kind kind = barrier;
    int root = 0;
    std::size_t count = 0;
    bool by_tree = false; ///< over messages
    bool later = false;   ///< start now, wait some steps later
};

Step random_step(campaign::Random& random, int world) {
    constexpr std::size_t counts[] = {0, 1, 1, 2, 7, 8, 60, 200, 260, 700, 5000};
    Step step;
    step.kind = random() % 3 != 0 ? static_cast<Kind>(random() % 4) : static_cast<Kind>(4 + random() % 4);
    step.root = static_cast<int>(random() % static_cast<std::uint64_t>(world));
    step.count = counts[random() % std::size(counts)];
    step.by_tree = random() % 6 == 0;
    step.later = random() % 5 < 2;
    return step;
}

std::int64_t given(std::uint64_t number, int rank, std::size_t i) {
    return static_cast<std::int64_t>(mixed(number * 64 + static_cast<std::uint64_t>(rank), i) % 1000);
}

/// One call: its memory until it is done, and what it must give.
struct Call {
    Step step;
    std::uint64_t number = 0;
    int world = 1, rank = 0;
    std::vector<std::int64_t> in, out;
    std::optional<un::Operation> operation;

    template <class World>
    Call(World& group, const Step& of, std::uint64_t which)
        : step(of), number(which), world(group.size()), rank(group.rank()) {
        const auto all = step.count * static_cast<std::size_t>(world);
        const bool root = rank == step.root;
        if (step.kind != broadcast && (step.kind != scatter || root))
            in.resize(step.kind == scatter ? all : step.count);
        if (step.kind == all_gather || (step.kind == gather && root)) out.resize(all);
        else if ((step.kind != reduce && step.kind != gather) || root) out.resize(step.count);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = given(number, rank, i);
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] = step.kind == broadcast && root ? given(number, rank, i) : -1;
        if (step.by_tree) run(group, un::TreeSchedule{});
        else run(group, un::NativeSchedule{});
    }

    template <class World, class Family>
    void run(World& group, const Family& by) {
        const auto call = [&](auto&& starts, auto&& runs) {
            if (step.later) operation = starts();
            else runs();
        };
        switch (step.kind) {
        case broadcast:
            return call([&] { return un::start_broadcast(group, out, step.root, by); },
                        [&] { un::broadcast(group, out, step.root, by); });
        case reduce:
            return call([&] { return un::start_reduce(group, in, out, step.root, un::Sum{}, by); },
                        [&] { un::reduce(group, in, out, step.root, un::Sum{}, by); });
        case gather:
            return call([&] { return un::start_gather(group, in, out, step.root, {}, by); },
                        [&] { un::gather(group, in, out, step.root, {}, by); });
        case scatter:
            return call([&] { return un::start_scatter(group, in, out, step.root, {}, by); },
                        [&] { un::scatter(group, in, out, step.root, {}, by); });
        case all_reduce:
            return call([&] { return un::start_all_reduce(group, in, out); }, [&] { un::all_reduce(group, in, out); });
        case all_gather:
            return call([&] { return un::start_all_gather(group, in, out); }, [&] { un::all_gather(group, in, out); });
        default: return un::barrier(group);
        }
    }

    void check(test::Findings& findings) {
        if (operation) operation->wait();
        bool good = true;
        for (std::size_t i = 0; i < out.size(); ++i) {
            std::int64_t wanted = -1;
            const std::size_t owner = step.count == 0 ? 0 : i / step.count;
            switch (step.kind) {
            case broadcast: wanted = given(number, step.root, i); break;
            case scatter: wanted = given(number, step.root, i + static_cast<std::size_t>(rank) * step.count); break;
            case gather:
            case all_gather: wanted = given(number, static_cast<int>(owner), i - owner * step.count); break;
            case reduce:
            case all_reduce:
                wanted = 0;
                for (int each = 0; each < world; ++each) wanted += given(number, each, i);
                break;
            default: break;
            }
            good = good && out[i] == wanted;
        }
        findings.expect(good, "call " + std::to_string(number) + " of kind " + std::to_string(step.kind) + ", count " +
                                  std::to_string(step.count) + " on rank " + std::to_string(rank));
    }
};

/// A rank that is late now and then.
void dawdle(std::uint64_t seed, std::uint64_t number, int rank) {
    const std::uint64_t drawn = mixed(mixed(seed, number), static_cast<std::uint64_t>(rank));
    if (drawn % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(drawn / 16 % 300));
    if (drawn % 64 == 1) std::this_thread::sleep_for(1ms);
}

/// The same random steps on all ranks of a group, some of them in parts of it.
template <class World>
void run_random(World& group, std::uint64_t seed, int steps, test::Findings& findings) {
    campaign::Random random(seed);
    std::vector<std::unique_ptr<Call>> open;
    for (int i = 0; i < steps; ++i) {
        const Step step = random_step(random, group.size());
        const std::uint64_t number = mixed(seed, static_cast<std::uint64_t>(i));
        const std::uint64_t draw = random();
        dawdle(seed, number, group.rank());
        if (step.kind == part) {
            if (i % 2 == 0) continue; // not too many
            auto mine = group.split(static_cast<int>((draw >> group.rank()) & 1u), group.rank());
            campaign::Random own(draw + 1);
            for (int k = 0; k < 3; ++k) {
                Step inner = random_step(own, 1);
                inner.root = static_cast<int>(own() % static_cast<std::uint64_t>(mine.size()));
                inner.later = false;
                if (inner.kind == part) inner.kind = broadcast;
                Call(mine, inner, number + static_cast<std::uint64_t>(k)).check(findings);
            }
            continue;
        }
        open.push_back(std::make_unique<Call>(group, step, number));
        while (!open.empty() && (open.size() > draw % 6 || i + 1 == steps)) {
            const std::size_t first = draw / 8 % open.size();
            open[first]->check(findings);
            open.erase(open.begin() + static_cast<std::ptrdiff_t>(first));
        }
    }
    for (auto& one : open) one->check(findings);
}

/// Threads, processes, or under ThreadSanitizer threads that share a world as processes do.
template <class Body>
void run_either(std::uint64_t draw, int ranks, Body body, std::chrono::nanoseconds timeout = 30s) {
    const un::RunOptions options{.timeout = timeout};
    if (draw % 2 == 0) return un::run<un::InProcess>(ranks, body, options);
    if (!test::under_thread_sanitizer) return un::run<un::SharedMemory>(ranks, body, options);
    un::detail::run_world<un::SharedMemory>(std::make_shared<un::SharedMemory::World>(ranks), body, options);
}

/// Runs `body` on all ranks. Each rank, and the world, must end with this error, whose text has all
/// `words`.
template <class Body>
void fails(std::uint64_t draw, int ranks, un::ErrorCode code, const std::vector<std::string>& words, const Body& body,
           std::chrono::nanoseconds timeout = 20s) {
    test::Findings findings;
    const auto check = [&](const un::error& failed) {
        const std::string text = failed.what();
        findings.expect(failed.code() == code, text);
        for (const auto& word : words)
            findings.expect(text.find(word) != std::string::npos, "'" + word + "' not in: " + text);
    };
    try {
        run_either(
            draw, ranks,
            [&](auto& group) {
                try {
                    body(group);
                    findings.expect(false, "rank " + std::to_string(group.rank()) + " did not fail");
                } catch (const un::error& failed) {
                    check(failed);
                    throw;
                }
            },
            timeout);
        findings.expect(false, "run did not throw");
    } catch (const un::error& failed) {
        check(failed);
    }
}

std::uint64_t first_seed() { return campaign::from_environment("UNISONO_TEST_AGREEMENT_FIRST", 1); }
std::uint64_t seeds(std::uint64_t otherwise) {
    return campaign::from_environment("UNISONO_TEST_AGREEMENT_SEEDS", otherwise);
}

} // namespace

BOOST_AUTO_TEST_SUITE(agreement)

BOOST_AUTO_TEST_CASE(random_programs) {
    for (std::uint64_t seed = first_seed(), end = seed + seeds(120); seed < end; ++seed) {
        const std::string name = "the random program " + std::to_string(seed);
        const campaign::Watchdog watchdog(name.c_str(), 60);
        const int world = 2 + static_cast<int>(seed % 4);
        BOOST_TEST_CONTEXT(name) {
            test::Findings findings(world);
            try {
                run_either(seed / 4, world, [&](auto& group) {
                    run_random(group, mixed(seed, 7), 40, findings);
                    findings.expect(true, "");
                });
            } catch (const std::exception& failed) {
                findings.expect(false, failed.what());
            }
        }
    }
}

// One rank differs in one call. Calls over messages may follow, in which ranks that send wait for
// nobody, before one that joins all ranks.
BOOST_AUTO_TEST_CASE(mistakes) {
    constexpr const char* names[] = {"broadcast", "reduce", "gather", "scatter", "all_reduce", "all_gather", "barrier"};
    for (std::uint64_t seed = first_seed(), end = seed + seeds(80); seed < end; ++seed) {
        const std::string name = "the mistake " + std::to_string(seed);
        const campaign::Watchdog watchdog(name.c_str(), 60);
        campaign::Random random(mixed(seed, 99));
        const int world = 2 + static_cast<int>(seed % 4);
        const int odd = static_cast<int>(random() % static_cast<std::uint64_t>(world));
        const auto step_of = [&] {
            Step step = random_step(random, world);
            step.later = false;
            if (step.kind == part) step.kind = broadcast;
            if (step.count == 0) step.count = 3;
            if (step.kind > scatter) step.by_tree = false;
            return step;
        };
        const Step right = step_of();
        Step wrong = right;
        switch (random() % 4) {
        case 0: wrong.root = (right.root + 1) % world; break;
        case 1: ++wrong.count; break;
        case 2: wrong.by_tree = !wrong.by_tree; break;
        default: wrong = step_of();
        }
        const bool has_root = right.kind <= scatter, is_barrier = right.kind == barrier;
        const bool differ = right.kind != wrong.kind || (!is_barrier && right.count != wrong.count) ||
                            (has_root && (right.root != wrong.root || right.by_tree != wrong.by_tree));
        if (!differ) continue;
        const std::uint64_t behind = random() % 3 == 0 ? random() % 14 : 0, before = random() % 5;
        const int sender = static_cast<int>(random() % static_cast<std::uint64_t>(world));
        test::Findings others(0);
        BOOST_TEST_CONTEXT(name)
        fails(seed / 4, world, un::ErrorCode::mismatch,
              {"rank " + std::to_string(odd), names[right.kind], names[wrong.kind]}, [&](auto& group) {
                  run_random(group, mixed(seed, 8), static_cast<int>(before), others);
                  const Call call(group, group.rank() == odd ? wrong : right, 1);
                  for (std::uint64_t i = 0; i < behind; ++i) {
                      std::vector<int> few(4);
                      un::broadcast(group, few, sender, un::TreeSchedule{});
                  }
                  std::vector<double> sum(1);
                  un::all_reduce(group, sum);
              });
    }
}

// The ranks before it may be ahead, and wait for it in other operations.
BOOST_AUTO_TEST_CASE(a_timeout_names_the_rank_that_is_late) {
    for (std::uint64_t seed = first_seed(), end = seed + std::min<std::uint64_t>(seeds(6), 50); seed < end; ++seed) {
        const campaign::Watchdog watchdog("a timeout", 60);
        const int world = 3 + static_cast<int>(seed % 3), late = static_cast<int>(seed / 2) % world;
        const int root = (late + 1) % world;
        fails(
            seed, world, un::ErrorCode::timeout, {"rank " + std::to_string(late)},
            [&](auto& group) {
                std::vector<float> data(seed % 3 == 0 ? 10'000 : 10);
                un::barrier(group);
                if (group.rank() == late) std::this_thread::sleep_for(1500ms);
                try {
                    for (int i = 0; i < 20; ++i) un::broadcast(group, data, root);
                    un::barrier(group);
                } catch (const un::error& failed) {
                    if (failed.why().peer != late)
                        throw un::error(un::ErrorCode::refused,
                                        "blames " + std::to_string(failed.why().peer) + ": " + failed.what());
                    throw;
                }
            },
            400ms);
    }
}

// A rank that is behind, but not so far that others must wait for it, is not to blame.
BOOST_AUTO_TEST_CASE(a_timeout_does_not_name_a_rank_that_is_only_behind) {
    const campaign::Watchdog watchdog("a timeout", 60);
    for (const std::size_t count : {10u, 10'000u}) {
        std::atomic<bool> passed = false; // rank 1 is two operations behind, not more
        fails(
            0, 3, un::ErrorCode::timeout, {"never started by rank 2"},
            [&](auto& group) {
                std::vector<float> data(count);
                un::barrier(group);
                if (group.rank() == 2) std::this_thread::sleep_for(1500ms);
                for (int i = 0; i < 20; ++i) {
                    if (group.rank() == 1 && i == 2) {
                        passed = true;
                        std::this_thread::sleep_for(1200ms);
                    }
                    if (group.rank() == 0 && i == 4 && count == 10)
                        while (!passed) std::this_thread::yield();
                    un::broadcast(group, data, 0);
                }
            },
            400ms);
    }
}

// Each of two ranks takes itself for the root. So many calls follow in which nobody finds it that
// the differing one is no longer announced.
BOOST_AUTO_TEST_CASE(a_mistake_that_is_long_past) {
    for (std::uint64_t draw = 0; draw < 4; ++draw) {
        const campaign::Watchdog watchdog("a mistake", 60);
        fails(draw, 2, un::ErrorCode::mismatch, {"all_reduce", "an earlier broadcast"}, [&](auto& group) {
            std::vector<int> few(4);
            un::broadcast(group, few, group.rank());
            // Rank 1 starts when all data are there: a rank that waits for one of them, or for the
            // message, looks for differences.
            std::vector<std::vector<int>> many(80, few);
            std::vector<un::Operation> open;
            if (group.rank() == 1)
                for (un::Operation all = un::start_receive(group, few, 0); !all.poll();)
                    std::this_thread::sleep_for(1ms);
            for (auto& each : many) open.push_back(un::start_broadcast(group, each, 0, un::TreeSchedule{}));
            if (group.rank() == 0) un::send(group, few, 1);
            for (auto& each : open) each.wait();
            few.resize(draw < 2 ? 4 : 10'000);
            un::all_reduce(group, few);
        });
    }
}

// As above. Then each waits for a message of the other, or for it in another group.
BOOST_AUTO_TEST_CASE(a_mistake_before_a_wait_in_vain) {
    for (std::uint64_t draw = 0; draw < 4; ++draw) {
        for (const bool by_message : {true, false}) {
            const campaign::Watchdog watchdog("a mistake", 60);
            fails(draw, 2, un::ErrorCode::mismatch, {"broadcast", "another root"}, [&](auto& group) {
                auto inner = group.split(0, group.rank());
                std::vector<int> few(4);
                un::broadcast(group, few, group.rank());
                un::barrier(inner); // both have made the call that differs
                group.set_timeout(400ms);
                inner.set_timeout(400ms);
                if (by_message) return un::receive(group, few, 1 - group.rank());
                if (group.rank() == 0) un::barrier(inner);
                else un::receive(inner, few, 0);
            });
        }
    }
}

BOOST_AUTO_TEST_CASE(no_operation_has_the_number_0) {
    un::detail::Announcements::Rank ranks[2];
    const un::detail::Announcements all(ranks);
    un::Signature found;
    BOOST_TEST(!all.find(0, 0, found));
    all.announce(0, 64, found); // in the place of number 0
    BOOST_TEST((all.find(0, 64, found) && !all.find(0, 0, found)));
}

// A rank throws while others are ahead of it, or wait for it in another operation.
BOOST_AUTO_TEST_CASE(exceptions_of_ranks_that_others_are_ahead_of) {
    for (std::uint64_t seed = first_seed(), end = seed + seeds(20); seed < end; ++seed) {
        const campaign::Watchdog watchdog("ranks of which one throws", 60);
        const int world = 2 + static_cast<int>(seed % 4), thrower = static_cast<int>(seed / 4) % world;
        test::Findings findings(world);
        std::string caught;
        try {
            run_either(seed / 2, world, [&](auto& group) {
                try {
                    auto inner = group.split(0, group.rank());
                    std::vector<std::unique_ptr<Call>> open;
                    for (std::uint64_t i = 0; i < 12; ++i) {
                        dawdle(seed, i, group.rank());
                        if (group.rank() == thrower && i == seed % 12) throw std::runtime_error("a bad record");
                        const Step step{.kind = static_cast<Kind>(mixed(seed, i) % 4),
                                        .root = static_cast<int>((seed + i) % static_cast<std::uint64_t>(world)),
                                        .count = i % 3 == 0 ? 1000u : 4u,
                                        .later = i % 4 == 1};
                        open.push_back(std::make_unique<Call>(inner, step, i));
                    }
                    for (auto& each : open) each->check(findings);
                    un::barrier(inner);
                    findings.expect(false, "rank " + std::to_string(group.rank()) + " did not fail");
                } catch (const un::error& failed) {
                    const std::string text = failed.what();
                    const std::string who = "rank " + std::to_string(thrower);
                    findings.expect(text.find(who + " threw: a bad record") != text.npos ||
                                        text.find(who + " dropped the handle of an unfinished") != text.npos,
                                    text);
                    throw;
                } catch (const std::runtime_error&) {
                    findings.expect(true, "");
                    throw;
                }
            });
        } catch (const std::exception& failed) {
            caught = failed.what();
        }
        BOOST_TEST_CONTEXT("seed " << seed)
        BOOST_TEST(!caught.empty(), caught);
    }
}

BOOST_AUTO_TEST_SUITE_END()
