// How much time and memory the simulator takes for all_reduce on 4,096 ranks, run by one thread.
// With --deaths it runs a training in which each rank is a thread and some ranks die
// (training.cpp).
//     bench_simulated [--ranks 4096] [--more]
//     bench_simulated --deaths 0 1 8 64 [--ranks 4096] [--together 1] [--updates 20]
//                     [--cluster MODEL.txt]
#include "training.hpp"

#include <CLI/CLI.hpp>
#include <unisono/simulate.hpp>
#include <unisono/unisono.hpp>

#include <chrono>
#include <cstdio>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace un = unisono;

namespace {

template <class Family>
void measure(int ranks, std::size_t count, const Family& family, un::nanoseconds jitter) {
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    std::vector<std::vector<float>> data(static_cast<std::size_t>(ranks), std::vector<float>(count, 1.0f));
    un::SimulationOptions options;
    options.jitter_ns = jitter;
    un::Simulation simulation(ranks, options);
    const double built = seconds();
    simulation.run([&](un::Group<un::Simulated>& group) {
        return un::start_all_reduce(group, data[static_cast<std::size_t>(group.rank())], un::Sum{}, family);
    });
    const double wall = seconds();
    const un::SimulationReport report = simulation.report();
    bool right = true;
    for (const auto& each : data) {
        for (const float value : each) right = right && value == static_cast<float>(ranks);
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds_of = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    std::printf(
        "%-18s %5d ranks %7zu elements%s: %7.3f s (%.3f s to build; %.3f s of processor), %11llu messages, %5.2f "
        "million/s, peak %4ld MiB, virtual %.3f ms, %s\n",
        std::string(Family::name).c_str(), ranks, count, jitter != 0 ? ", jitter" : "", wall, built,
        seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime), static_cast<unsigned long long>(report.messages),
        static_cast<double>(report.messages) / wall * 1e-6, usage.ru_maxrss / 1024,
        static_cast<double>(report.time) * 1e-6, right ? "right" : "WRONG");
    std::fflush(stdout);
    if (!right) std::exit(1);
}

/// Each in a process of its own, so that peaks do not mix.
template <class Family>
bool measure_alone(int ranks, std::size_t count, const Family& family, un::nanoseconds jitter = 0) {
    const pid_t child = fork();
    if (child < 0) {
        std::perror("fork");
        return false;
    }
    if (child == 0) {
        measure(ranks, count, family, jitter);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app("How long the simulator takes for an all_reduce on many ranks, or, with --deaths, for a training in "
                 "which ranks die");
    ElasticJob training;
    bool more = false;
    app.add_option("--ranks,ranks", training.ranks, "ranks of the world")->check(CLI::Range(1, 100'000));
    app.add_flag("--more", more, "also a ring with jitter, and direct schedules");
    CLI::Option* const deaths =
        app.add_option("--deaths", training.deaths,
                       "train, and let this number of ranks die; several numbers: one training each")
            ->check(CLI::NonNegativeNumber);
    app.add_option("--together", training.together, "ranks die by hosts of this size")->check(CLI::PositiveNumber);
    app.add_option("--updates", training.updates, "of each training")->check(CLI::PositiveNumber);
    app.add_option("--compute-us", training.compute_us, "virtual microseconds in which a rank computes one gradient")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--seed", training.seed, "of who dies when");
    app.add_option("--cluster", training.cluster,
                   "a model that bench_predict --save has written, in place of links that are alike")
        ->check(CLI::ExistingFile);
    CLI11_PARSE(app, argc, argv);
    if (deaths->count() != 0) return train(training) ? 0 : 1;
    const int ranks = training.ranks;
    bool good = measure_alone(ranks, 1000, un::TreeSchedule{});
    good = measure_alone(ranks, 1000, un::TreeSchedule{}, 1000) && good;
    good = measure_alone(ranks, 1000, un::HalvingDoublingSchedule{}) && good;
    good = measure_alone(ranks, static_cast<std::size_t>(ranks), un::RingSchedule{}) && good;
    if (more) {
        good = measure_alone(ranks, static_cast<std::size_t>(ranks), un::RingSchedule{}, 1000) && good;
        good = measure_alone(std::min(ranks, 1024), 4096, un::DirectSchedule{}) && good;
    }
    return good ? 0 : 1;
}
