// The cost of waiting ranks for themselves and others. The library's way of waiting takes turns
// with its predecessor, which is kept here: 4,096 pauses, then 61,440 yields, then sleeps of 50 us.
//
// latency: all_reduce with a core per rank and no other load. Batches of the two take turns. share:
// each rank has a team of threads, as many as there are cores, bound to them. The ranks in turn
// compute with their teams while all others wait in an all_reduce. The benchmark measures the time
// of that computation with either way of waiting, and with the others blocked in the system. Then
// it measures an update in which all teams compute at once, and one rank computes twice as much as
// the others.

#include "support/meeting.hpp"
#include "support/memory.hpp"
#include "support/report.hpp"

#include <unisono/collective/collective.hpp>
#include <unisono/group/run_processes.hpp>
#include <unisono/transport/shared_memory.hpp>

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <semaphore.h>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace un = unisono;

namespace {

/// Ranks that wait in the previous way.
class Spinning : public un::SharedMemory {
public:
    using SharedMemory::SharedMemory;
    void idle(std::uint32_t attempt, un::nanoseconds until) override {
        if (!world().more_ranks_than_cores() && attempt < 4096) return __builtin_ia32_pause();
        if (attempt < 65536) return std::this_thread::yield();
        const un::nanoseconds left = until == un::never ? 1'000'000 : until - un::steady_now();
        if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<un::nanoseconds>(left, 50'000)));
    }
};

/// Memory that the forked ranks share.
template <class T>
class Common {
public:
    Common() : value_(::new(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{}) {}
    Common(const Common&) = delete;
    Common& operator=(const Common&) = delete;
    ~Common() { munmap(value_, sizeof(T)); }
    T* operator->() const { return value_; }

private:
    T* value_;
};

/// Threads that compute together and sleep in between, like an OpenMP team with
/// OMP_WAIT_POLICY=passive.
class Team {
public:
    Team(int threads, int first) : threads_(threads) {
        for (int me = 1; me < threads; ++me)
            helpers_.emplace_back([this, core = first + me] {
                bench::bind_to(bench::cores(), core);
                help();
            });
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;
    ~Team() {
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
        }
        begin_.notify_all();
        for (std::thread& helper : helpers_) helper.join();
    }

    /// Runs `steps` steps on each thread, in `parts` parallel regions.
    void compute(int parts, std::uint64_t steps) {
        for (int part = 0; part < parts; ++part) {
            {
                const std::lock_guard lock(mutex_);
                steps_ = steps / static_cast<std::uint64_t>(parts);
                ++turn_;
                at_work_ = threads_ - 1;
            }
            begin_.notify_all();
            work(steps_);
            std::unique_lock lock(mutex_);
            end_.wait(lock, [&] { return at_work_ == 0; });
        }
    }

private:
    static void work(std::uint64_t steps) {
        std::uint64_t x = 88172645463325252u;
        for (std::uint64_t i = 0; i < steps; ++i) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            asm volatile("" : "+r"(x));
        }
    }
    void help() {
        std::uint64_t done = 0;
        for (;;) {
            std::unique_lock lock(mutex_);
            begin_.wait(lock, [&] { return ending_ || turn_ != done; });
            if (ending_) return;
            done = turn_;
            const std::uint64_t steps = steps_;
            lock.unlock();
            work(steps);
            lock.lock();
            if (--at_work_ == 0) end_.notify_all();
        }
    }

    int threads_;
    std::mutex mutex_;
    std::condition_variable begin_;
    std::condition_variable end_;
    bool ending_ = false;
    std::uint64_t turn_ = 0;
    std::uint64_t steps_ = 0;
    int at_work_ = 0;
    std::vector<std::thread> helpers_;
};

constexpr int most_ranks = 8;

/// A barrier of all processes, which block in the system.
class Gate {
public:
    Gate() {
        for (sem_t& one : open_) sem_init(&one, 1, 0);
        sem_init(&come_, 1, 0);
    }
    void pass(int me, int ranks) {
        if (me == 0) {
            for (int other = 1; other < ranks; ++other) sem_wait(&come_);
            for (int other = 1; other < ranks; ++other) sem_post(&open_[other]);
        } else {
            sem_post(&come_);
            sem_wait(&open_[me]);
        }
    }

private:
    sem_t come_;
    sem_t open_[most_ranks];
};

struct Latencies {
    std::array<double, 512> now{};
    std::array<double, 512> before{};
};

struct Shared {
    Gate gate;
    std::array<double, 512> alone{};
    std::array<double, 512> now{};
    std::array<double, 512> before{};
    std::array<double, 512> all_alone{};
    std::array<double, 512> all_now{};
    std::array<double, 512> all_before{};
};

bench::Series series(const char* name, const std::array<double, 512>& values, int first, int rounds) {
    bench::Series made{name, {}};
    for (int round = first; round < rounds; ++round) made.add(values[static_cast<std::size_t>(round)]);
    return made;
}

/// Two worlds in the same processes.
template <class Body>
void run_both(int ranks, Body body) {
    const auto before = std::make_shared<un::SharedMemory::World>(ranks);
    un::run<un::SharedMemory>(ranks, [&](un::Group<un::SharedMemory>& now) {
        un::Group<Spinning> spinning{Spinning(before, now.rank())};
        body(now, spinning);
    });
}

void latency(bench::Report& report, bool quick) {
    const int ranks = static_cast<int>(bench::cores().size());
    report.header(
        {"us, all_reduce", "sleeping", "spread", "spinning", "ratio", "paired", "best quarter", "more", "goal"});
    for (const std::size_t bytes : {8u, 512u, 2048u, 32768u, 524288u, 2097152u, 33554432u}) {
        if (quick && bytes > 2097152) continue;
        const Common<Latencies> times;
        const Common<std::array<std::byte, bench::Meeting::page_bytes>> page;
        const int rounds = quick ? 10 : bytes > 2097152 ? 40 : 200;
        const int batch = bytes <= 2048 ? 2000 : bytes <= 32768 ? 500 : bytes <= 524288 ? 50 : bytes <= 2097152 ? 8 : 1;
        run_both(ranks, [&](auto& now, auto& before) {
            const int me = now.rank();
            bench::Meeting meeting(ranks, page.operator->());
            const auto time = [&](auto& world, auto& data, double& seconds) {
                const double span = meeting.time(me, [&] {
                    for (int i = 0; i < batch; ++i) {
                        data[0] = static_cast<float>(i);
                        un::all_reduce(world, data);
                        if (data[0] != static_cast<float>(i * ranks)) std::abort();
                    }
                });
                if (me == 0) seconds = span / batch;
            };
            auto a = now.template allocate<float>(bytes / sizeof(float));
            auto b = before.template allocate<float>(bytes / sizeof(float));
            std::fill(a.begin(), a.end(), 0.0f);
            std::fill(b.begin(), b.end(), 0.0f);
            for (std::size_t round = 0; round < static_cast<std::size_t>(rounds); ++round) {
                time(now, a, times->now[round]);
                time(before, b, times->before[round]);
            }
        });
        report.compare(bench::in_words(bytes), series("sleeping", times->now, 1, rounds),
                       {series("spinning", times->before, 1, rounds)}, 1.02);
    }
}

std::uint64_t steps_in(double seconds) {
    Team one(1, 0);
    const double began = bench::now_s();
    one.compute(1, 20'000'000);
    return static_cast<std::uint64_t>(20'000'000 * seconds / (bench::now_s() - began));
}

void share(bench::Report& report, bool quick) {
    const int cores = static_cast<int>(bench::cores().size());
    const int ranks = std::min(cores, most_ranks);
    report.header({"ms, team's part", "sleeping", "spinning", "no rank waits", "sleeping/", "spinning/",
                   "all: sleeping", "all: spinning", "all: blocked"});
    for (const double milliseconds : {0.05, 0.2, 1.0, 5.0, 25.0}) {
        if (quick && milliseconds > 2) continue;
        const Common<Shared> shared;
        const int rounds = quick ? 10 : milliseconds > 10 ? 40 : 120;
        const std::uint64_t steps = steps_in(milliseconds * 1e-3);
        const int parts = milliseconds > 1 ? 8 : 1;
        run_both(ranks, [&](auto& now, auto& before) {
            const int me = now.rank();
            bench::bind_to(bench::cores(), me);
            Team team(cores, me);
            const auto ask = [&](std::array<double, 512>& alone, std::array<double, 512>& all, int round, auto meet) {
                shared->gate.pass(me, ranks);
                const double began = bench::now_s();
                if (round % ranks == me) {
                    team.compute(parts, steps);
                    alone[static_cast<std::size_t>(round)] = bench::now_s() - began;
                }
                meet();
                shared->gate.pass(me, ranks);
                const double second = bench::now_s();
                team.compute(parts, steps / static_cast<std::uint64_t>(ranks) * (round % ranks == me ? 2 : 1));
                meet();
                if (me == 0) all[static_cast<std::size_t>(round)] = bench::now_s() - second;
            };
            std::vector<float> data(1000);
            for (int round = 0; round < rounds; ++round) {
                ask(shared->now, shared->all_now, round, [&] { un::all_reduce(now, data); });
                ask(shared->before, shared->all_before, round, [&] { un::all_reduce(before, data); });
                ask(shared->alone, shared->all_alone, round, [&] { shared->gate.pass(me, ranks); });
            }
        });
        const auto a = series("sleeping", shared->now, 1, rounds);
        const auto b = series("spinning", shared->before, 1, rounds);
        const auto c = series("no rank waits", shared->alone, 1, rounds);
        const auto all_a = series("sleeping", shared->all_now, 1, rounds);
        const auto all_b = series("spinning", shared->all_before, 1, rounds);
        const auto all_c = series("blocked", shared->all_alone, 1, rounds);
        const auto ms = [](const bench::Series& one) { return bench::format("%.3f", one.median() * 1e3); };
        report.row({bench::format("%.2f ms", milliseconds), ms(a), ms(b), ms(c),
                    bench::format("%.2f x", bench::paired_ratio(a, c)),
                    bench::format("%.2f x", bench::paired_ratio(b, c)), ms(all_a), ms(all_b), ms(all_c)});
        report.add({{"case", bench::format("%.2f ms", milliseconds)},
                    {"one_computes", {a.json(), b.json(), c.json()}},
                    {"all_compute", {all_a.json(), all_b.json(), all_c.json()}}});
    }
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("idle_ranks", options);
    if (options.only.empty() || options.only == "latency") latency(report, options.quick);
    if (options.only.empty() || options.only == "share") share(report, options.quick);
}
