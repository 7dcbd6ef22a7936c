// Processes that train over an elastic world are struck, which means killed or stopped, at moments
// that a seed decides. The remaining ones end with the bits of an undisturbed training.
//
//   export UNISONO_ELASTIC_KILLS=250 UNISONO_ELASTIC_FROM=1000 UNISONO_TEST_TIMEOUT_S=3000
//   test_elastic --run_test='elastic_processes/killed*'
//
// tries that number of seeds instead of the few that always run. Every fourth of them also stops
// ranks.
#pragma once

#include "../../support/fails.hpp"
#include "../../support/folder.hpp"
#include "forks.hpp"
#include "training.hpp"

#include <unisono/launch/processes.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <sys/time.h>
#include <unistd.h>

namespace unisono_test {

struct Told {
    bool done = false;
    Result result = {};
    int code = -1;
    std::uint64_t changes = 0, added = 0;
    int made = 0; ///< updates, including repeated ones
    bool was_in = false;
    double slowest_ms = 0;
    char text[400] = {};
};
/// The ranks write it, and the parent reads it.
using Shared = Records<Told>;

inline void says(const Told& told, const std::string& words) { test::says(told.text, words); }
/// The process has ended with the undisturbed result.
inline void ends_well(const Told& told) {
    BOOST_TEST(told.done, told.text);
    BOOST_TEST((told.result == undisturbed()), "another result than undisturbed");
}

/// A rank is struck some microseconds after it has made an update (0: while its trainer begins).
struct Strike {
    int rank = 0;
    int signal = SIGKILL;
    std::uint64_t update = 0;
    unsigned after_us = 0;
};

inline int chosen_signal = SIGKILL;
inline void strike(int) { ::kill(::getpid(), chosen_signal); }
inline void strike_after(const Strike& how) {
    chosen_signal = how.signal;
    struct sigaction action {};
    action.sa_handler = &strike;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGALRM, &action, nullptr);
    itimerval timer{};
    timer.it_value.tv_usec = static_cast<suseconds_t>(how.after_us + 1);
    ::setitimer(ITIMER_REAL, &timer, nullptr);
}

/// Where ranks run. Each process first calls `enter(process)`.
struct Place {
    std::function<void(int process)> enter = [](int) {};
    un::RendezvousPoint meeting = {}; ///< its folder is a new one for each training
};

/// `body(world)` returns the report. The rank is one of the first world, or one that joins (-1).
template <class Transport, class Body>
int be_rank(int rank, int ranks, const std::string& folder, un::ElasticOptions options, Told& told, Body body,
            un::RendezvousPoint meeting = {}) {
    std::optional<un::ElasticWorld<Transport>> world;
    options.folder = folder;
    options.joins = rank < 0;
    if (meeting.host.empty()) meeting.folder = folder;
    try {
        if (rank < 0) world.emplace(un::join<un::Elastic<Transport>>(options));
        else
            world.emplace(un::join<un::Elastic<Transport>>(
                un::rendezvous(un::identity_of(rank, ranks), meeting, options.join.rendezvous), options));
        told.was_in = true;
        told.result = body(*world);
        told.done = true;
    } catch (const un::error& failed) {
        told.code = static_cast<int>(failed.code());
        std::snprintf(told.text, sizeof told.text, "%s", failed.what());
    }
    if (world) {
        told.changes = world->changes().size();
        for (const un::WorldChange& change : world->changes()) told.added += change.joined.size();
        for (const un::WorldChange& change : world->changes())
            told.slowest_ms = std::max(told.slowest_ms, static_cast<double>(change.took.count()) / 1e6);
    }
    return told.done ? 0 : 1;
}

/// The training in which ranks are struck. Ranks pause after each update.
template <class... More>
auto struck(int rank, const std::vector<Strike>& strikes, unsigned pause_us = 300, More... more) {
    return [rank, &strikes, pause_us, more...](auto& world) {
        const auto look = [&](std::uint64_t update) {
            for (const Strike& one : strikes)
                if (one.rank == rank && one.update == update) strike_after(one);
        };
        look(0);
        return train(
            world,
            [&](const un::UpdateReport& report) {
                look(report.number);
                ::usleep(pause_us);
            },
            true, 0.01, more...);
    };
}

/// For tests in which living ranks are silent. On a busy machine the other ranks must not seem
/// silent.
inline un::ElasticOptions impatient() {
    un::ElasticOptions options = patient();
    options.join.timeout = 1s;
    options.patience = 1500ms;
    options.give_up = 4s;
    return options;
}

struct StruckSums {
    int trials = 0, killed = 0, stopped = 0, left_behind = 0, no_majority = 0, changes = 0, unchanged = 0, added = 0;
    double slowest_ms = 0;
};

/// Resumes stopped ranks after a while, or when all others have ended.
class Waker {
public:
    Waker(const un::Processes& processes, int count)
        : processes_(&processes), since_(static_cast<std::size_t>(count)) {}
    /// Called every few milliseconds. `after`: the time for each process; `never`: when all others
    /// have ended.
    void look(const std::map<int, un::nanoseconds>& after) {
        int stopped = 0;
        for (int i = 0; i < static_cast<int>(since_.size()); ++i) {
            if (!processes_->is_running(i) || !un::detail::is_stopped(processes_->pid(i))) continue;
            un::nanoseconds& since = since_[static_cast<std::size_t>(i)];
            if (since == 0) {
                since = un::steady_now();
                ++seen_;
            }
            ++stopped;
            const auto length = after.find(i);
            if (length != after.end() && un::steady_now() - since >= length->second)
                ::kill(processes_->pid(i), SIGCONT);
        }
        if (stopped == processes_->running()) processes_->signal_all(SIGCONT);
    }
    [[nodiscard]] int seen() const { return seen_; }

private:
    const un::Processes* processes_;
    std::vector<un::nanoseconds> since_;
    int seen_ = 0;
};

/// The faults of a seed, and their processes.
struct StruckPlan {
    int ranks = 0, come = 0;
    std::vector<Strike> strikes = {};
    std::array<unsigned, 2> after_us = {};           ///< when they join
    std::map<int, un::nanoseconds> stopped_for = {}; ///< short: no rank takes it for dead
    bool stops = false;
};
inline StruckPlan struck_plan(unsigned seed, bool may_stop) {
    std::mt19937 random(seed);
    const auto draw = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
    StruckPlan p;
    p.ranks = 2 + static_cast<int>(draw(4));
    const unsigned kills = 1 + draw(static_cast<unsigned>(p.ranks) - 1);
    std::vector<int> order;
    for (int rank = 0; rank < p.ranks; ++rank) order.push_back(rank);
    std::shuffle(order.begin(), order.end(), random);
    // Rank 0 first.
    if (draw(3) == 0) std::swap(*std::find(order.begin(), order.end(), 0), order[0]);
    std::uint64_t update = draw(14);
    for (unsigned i = 0; i < kills; ++i) {
        // Otherwise close to the last one: while the others form a new world.
        if (draw(2) == 0) update = draw(16);
        p.strikes.push_back({order[i], SIGKILL, update, draw(2) == 0 ? draw(500) : draw(6'000)});
    }
    p.come = static_cast<int>(draw(3));
    for (int i = 0; i < p.come; ++i) {
        p.after_us[static_cast<std::size_t>(i)] = draw(30'000);
        if (draw(4) == 0) p.strikes.push_back({p.ranks + i, SIGKILL, draw(16), draw(6'000)});
    }
    p.stops = may_stop && seed % 4 == 3;
    if (p.stops)
        for (Strike& one : p.strikes) {
            if (draw(3) == 0) continue;
            one.signal = SIGSTOP;
            if (draw(2) == 0) p.stopped_for[one.rank] = un::nanoseconds{1'000'000} * (10 + draw(300));
        }
    return p;
}

template <class Transport>
void try_seed(unsigned seed, bool may_stop, const Place& place, StruckSums& sums) {
    const StruckPlan p = struck_plan(seed, may_stop);
    const int ranks = p.ranks, all = p.ranks + p.come;
    const un::ElasticOptions options = p.stops ? impatient() : patient();
    // Ranks that join later find a running training.
    const unsigned pause_us = p.come > 0 ? 10'000 : 300;
    const Shared told;
    const Folder folder;
    un::Processes processes;
    for (int rank = 0; rank < ranks; ++rank)
        processes.start([&] {
            place.enter(rank);
            return be_rank<Transport>(rank, ranks, folder.path(), options, told[rank],
                                      struck(rank, p.strikes, pause_us), place.meeting);
        });
    for (int i = 0; i < p.come; ++i)
        processes.start([&, i] {
            place.enter(ranks + i);
            ::usleep(p.after_us[static_cast<std::size_t>(i)]);
            un::ElasticOptions later = options;
            later.join.rendezvous.timeout = 3s;
            return be_rank<Transport>(-1, 0, folder.path(), later, told[ranks + i],
                                      struck(ranks + i, p.strikes, pause_us));
        });
    int survivors = 0, ended_early = 0;
    bool changed = false;
    Waker waker(processes, all);
    const un::nanoseconds until = un::steady_now() + (test::sanitized ? 120 : 40) * 1'000'000'000LL;
    while (processes.running() > 0 && un::steady_now() < until) {
        const auto end = processes.wait_any(un::steady_now() + 10'000'000);
        if (p.stops) waker.look(p.stopped_for);
        if (!end) continue;
        const Told& rank = told[end->index];
        BOOST_TEST_CONTEXT(Transport::name << ", seed " << seed << ", rank " << end->index << " of " << ranks << ": "
                                           << rank.text) {
            if (end->signal != 0) {
                BOOST_TEST(end->signal == SIGKILL);
                ++sums.killed;
                continue;
            }
            // The training had ended, or was about to.
            if (end->index >= ranks && !rank.was_in) {
                BOOST_TEST(rank.code == static_cast<int>(un::ErrorCode::timeout));
                continue;
            }
            // The rank was silent itself, or too many others were.
            if (p.stops && !rank.done) {
                const std::string text = rank.text;
                const bool behind = text.find("left behind") != text.npos;
                BOOST_TEST((behind || text.find("not two worlds") != text.npos));
                ++(behind ? sums.left_behind : sums.no_majority);
                ++ended_early;
                continue;
            }
            ++survivors;
            sums.added += end->index >= ranks ? 1 : 0;
            BOOST_TEST(end->status == 0);
            BOOST_TEST((rank.result == undisturbed()), "another result than undisturbed");
            sums.changes += static_cast<int>(rank.changes);
            sums.slowest_ms = std::max(sums.slowest_ms, rank.slowest_ms);
            changed = changed || rank.changes != 0;
        }
    }
    BOOST_TEST_CONTEXT(Transport::name << ", seed " << seed) {
        BOOST_REQUIRE_MESSAGE(processes.running() == 0, "a rank hangs");
        BOOST_TEST(survivors + ended_early > 0);
        if (!p.stops) BOOST_TEST(survivors > 0);
    }
    ++sums.trials;
    sums.stopped += waker.seen();
    sums.unchanged += changed ? 0 : 1;
}

template <class Transport>
void kill_many(unsigned usual, const Place& place = {}) {
    const char* const wanted = std::getenv("UNISONO_ELASTIC_KILLS");
    const unsigned seeds = wanted != nullptr ? static_cast<unsigned>(std::strtoul(wanted, nullptr, 10)) : usual;
    const char* const from = std::getenv("UNISONO_ELASTIC_FROM");
    const unsigned first = from != nullptr ? static_cast<unsigned>(std::strtoul(from, nullptr, 10)) : 0;
    StruckSums sums;
    for (unsigned seed = first; seed < first + seeds; ++seed) try_seed<Transport>(seed, wanted != nullptr, place, sums);
    BOOST_TEST_MESSAGE(Transport::name << ": " << sums.trials << " trainings, " << sums.killed << " ranks killed, "
                                       << sums.stopped << " stopped (" << sums.left_behind << " left behind, "
                                       << sums.no_majority << " found no majority), " << sums.added << " added, "
                                       << sums.changes << " changes of world; slowest " << sums.slowest_ms << " ms; in "
                                       << sums.unchanged << " trainings no rank was killed in time");
    BOOST_TEST(sums.killed >= sums.trials / 2);
    BOOST_TEST(sums.changes > 0);
    if (seeds >= 20) BOOST_TEST(sums.added > 0);
}

} // namespace unisono_test
