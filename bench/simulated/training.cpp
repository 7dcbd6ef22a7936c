// A Trainer on simulated ranks, each a thread: the time of an update and of a death in virtual
// time, and what the simulation costs on this machine.
#include "training.hpp"

#include <unisono/optimizer/adam.hpp>
#include <unisono/simulate_elastic.hpp>
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace un = unisono;

namespace {

constexpr std::size_t width = 4;

/// A line through samples: the smallest model.
template <class Compute>
struct Line {
    Compute compute;
    std::array<float, width> weights = {}, slopes = {};
    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return slopes; }
    double operator()(const un::RowBatch<float>& batch, un::Pass&) {
        compute();
        double loss = 0;
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            float error = -1;
            for (std::size_t i = 0; i < width; ++i) error += weights[i] * x[i];
            loss += static_cast<double>(error * error);
            for (std::size_t i = 0; i < width; ++i) slopes[i] += error * x[i];
        }
        return loss / static_cast<double>(batch.rows());
    }
};

/// The hash of the parameters after a number of updates, each with one sample per rank of the whole
/// world.
template <class World, class Compute, class OnUpdate>
std::uint64_t hash_after(World& world, const ElasticJob& training, Compute compute, OnUpdate on_update) {
    static const std::vector<float> values = un::torch_rand(5, static_cast<std::size_t>(training.ranks) * width);
    const un::RowData<float> data(values, width);
    Line<Compute> model{compute};
    un::Trainer trainer{world, model, un::Replicas{training.ranks}, un::Reproducible{},
                        un::AdamW{.learning_rate = 0.01}};
    trainer.fit(data, {.epochs = training.updates, .batch_size = 1, .progress = false}, on_update);
    if constexpr (requires { trainer.now(); })
        return trainer.collectively([](auto& now) { return un::state_hash(now).parameters; });
    else return un::state_hash(trainer).parameters;
}

double ms(un::nanoseconds time) { return static_cast<double>(time) * 1e-6; }
double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all.empty() ? 0 : all[all.size() / 2];
}

/// A rank's view of its training, in virtual milliseconds.
struct Seen {
    /// Updates before the first change of the world, and later undisturbed ones.
    std::vector<double> before, after;
    /// The time from one update to the next, if the world changed in between.
    std::vector<double> disturbed;

    /// Records an update. `changes_so_far`: the world's changes before it.
    void add(un::nanoseconds now, std::size_t changes_so_far) {
        const std::size_t since = changes_so_far - std::exchange(known_, changes_so_far);
        const un::nanoseconds began = std::exchange(last_, now);
        if (began == 0) return;
        if (since != 0) disturbed.push_back(ms(now - began) / static_cast<double>(since));
        else (changes_so_far == 0 ? before : after).push_back(ms(now - began));
    }

private:
    un::nanoseconds last_ = 0;
    std::size_t known_ = 0;
};

un::ElasticSimulation simulation_of(const ElasticJob& training, int deaths) {
    un::ElasticSimulation simulation;
    un::SimulationOptions& network = simulation.network;
    network.seed = training.seed;
    if (!training.cluster.empty()) {
        std::ifstream file(training.cluster);
        network.cluster = un::ClusterModel::load(std::string(std::istreambuf_iterator<char>(file), {}));
    }
    un::CounterRandom random(training.seed, 1);
    const auto draw = [&](un::nanoseconds below) {
        const std::uint64_t high = random();
        return static_cast<un::nanoseconds>((high << 32 | random()) % static_cast<std::uint64_t>(below));
    };
    std::vector<int> hosts; // groups of `together` ranks that die at one time
    for (int host = 0; host < training.ranks / training.together; ++host) hosts.push_back(host);
    for (int i = 0; i < deaths; i += training.together) {
        const auto host = hosts.begin() + draw(static_cast<un::nanoseconds>(hosts.size()));
        const un::nanoseconds at = draw(std::max<un::nanoseconds>(1, training.updates * training.compute_us * 1000));
        for (int rank = 0; rank < std::min(training.together, deaths - i); ++rank)
            network.crashes.push_back({*host * training.together + rank, at});
        hosts.erase(host);
    }
    return simulation;
}

bool train_with(const ElasticJob& training, int deaths) {
    const auto begin = std::chrono::steady_clock::now();
    std::uint64_t expected = 0;
    un::run<un::InProcess>(1, [&](auto& world) {
        expected = hash_after(
            world, training, [] {}, [](const un::UpdateReport&) {});
    });
    std::uint64_t alike = 0;
    Seen of_last;
    /// As seen by the ranks that left the failed world last.
    std::map<std::uint64_t, un::WorldChange> changes;
    const auto body = [&](auto& world) {
        Seen seen;
        alike += expected == hash_after(
                                 world, training, [&] { world.group().endpoint().compute(training.compute_us * 1000); },
                                 [&](const un::UpdateReport&) { seen.add(world.now(), world.changes().size()); });
        of_last = std::move(seen);
        for (const un::WorldChange& one : world.changes()) {
            const auto place = changes.try_emplace(one.epoch, one).first;
            if (one.recovery() < place->second.recovery()) place->second = one;
        }
    };
    const un::ElasticSimulationReport report =
        un::simulate_elastic(training.ranks, simulation_of(training, deaths), body);
    std::uint64_t crashed = 0;
    std::string why;
    for (const un::SimulatedProcess& one : report.processes) {
        crashed += one.crashed;
        if (one.crashed || !one.threw || !why.empty()) continue;
        try {
            std::rethrow_exception(one.threw);
        } catch (const std::exception& failed) {
            why = failed.what();
        }
    }
    const bool good = alike != 0 && crashed == static_cast<std::uint64_t>(deaths) &&
                      alike + crashed == report.processes.size() && !report.two_worlds;
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto text = [](std::vector<double> times) {
        char number[32] = "none";
        if (!times.empty()) std::snprintf(number, sizeof number, "%.3f ms", median(std::move(times)));
        return std::string(number);
    };
    const auto part = [&](std::chrono::nanoseconds (*of)(const un::WorldChange&)) {
        std::vector<double> all;
        for (const auto& one : changes) all.push_back(ms(of(one.second).count()));
        return text(all);
    };
    std::printf("%d ranks, %d updates; %llu ranks died, in %zu changes of the world\n", training.ranks,
                training.updates, static_cast<unsigned long long>(crashed), changes.size());
    std::printf("  in virtual time, an update: %s before the first death, %s after it; all: %.0f ms\n",
                text(of_last.before).c_str(), text(of_last.after).c_str(), ms(report.time));
    std::printf("  a change, once the last rank has left the failed world: %s (agreeing %s, meeting %s, starting %s)\n",
                part([](const auto& c) { return c.recovery(); }).c_str(),
                part([](const auto& c) { return c.agreeing; }).c_str(),
                part([](const auto& c) { return c.took - c.ending - c.agreeing; }).c_str(),
                part([](const auto& c) { return c.starting; }).c_str());
    std::printf("  an update in which ranks die, until it has been made: %s\n", text(of_last.disturbed).c_str());
    std::printf("  here: %.0f s (%.0f s of processor), peak %.1f GiB; %llu of %llu end with the bits of one rank: %s\n",
                wall, static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec),
                static_cast<double>(usage.ru_maxrss) / 1048576, static_cast<unsigned long long>(alike),
                static_cast<unsigned long long>(report.processes.size() - crashed), good ? "right" : "WRONG");
    if (!why.empty()) std::printf("  a rank ended with: %s\n", why.c_str());
    std::fflush(stdout);
    return good;
}

} // namespace

bool train(const ElasticJob& training) {
    const int hosts = training.ranks / training.together;
    for (const int deaths : training.deaths) {
        if (deaths == 0 || (deaths < training.ranks && deaths <= hosts * training.together)) continue;
        std::fprintf(
            stderr,
            "found --deaths %d of %d ranks, which die by hosts of %d; expected at most %d, so that whole hosts "
            "suffice and a rank is left\n",
            deaths, training.ranks, training.together, std::min(training.ranks - 1, hosts * training.together));
        return false;
    }
    bool good = true;
    // Each in a process of its own, so that peaks do not mix.
    for (const int deaths : training.deaths) {
        const pid_t child = fork();
        if (child < 0) {
            std::perror("fork");
            return false;
        }
        if (child == 0) _exit(train_with(training, deaths) ? 0 : 1);
        int status = 0;
        waitpid(child, &status, 0);
        good = WIFEXITED(status) && WEXITSTATUS(status) == 0 && good;
    }
    return good;
}
