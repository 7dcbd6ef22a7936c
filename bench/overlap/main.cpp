// The time of an update whose reduction takes as long as its backward pass, as a multiple of
// either. First in virtual time, exactly. Then by real sockets whose rate the kernel limits, while
// the backward pass sleeps, as a host does whose accelerator computes.

#include "support/layers.hpp"
#include "support/report.hpp"

#include <unisono/compression.hpp>
#include <unisono/group/progress_thread.hpp>
#include <unisono/reducer/scheduled.hpp>
#include <unisono/simulate.hpp>
#include <unisono/tcp.hpp>
#include <unisono/trainer/trainer.hpp>
#ifdef BENCH_LIBFABRIC
#include <unisono/libfabric.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace un = unisono;

namespace {

constexpr un::Buckets a_layer_each = {.first_bytes = 1, .bytes = 1};
constexpr double bytes_per_second = 125e6; // 1 Gbit/s

struct Setting {
    int ranks = 2;
    std::size_t layers = 32, pieces = 1;
    std::size_t count = 2'000'000; ///< floats
    bool overlaps = true;
    bool threaded = false; ///< a ProgressThread moves messages in flight
};

/// The lower bound of any overlap: the first gradient is ready after one layer's pass, and the last
/// reduction begins when the pass ends. Either leaves the time of one layer without overlap.
double floor_of(const Setting& setting) { return 1 + 1 / static_cast<double>(setting.layers); }

template <class... Policies>
double virtual_ns(const Setting& setting, double backward_ns, const Policies&... policies) {
    const auto time = [&](int updates) {
        const auto report = un::simulate(setting.ranks, {.link = {20'000, bytes_per_second}}, [&](auto& world) {
            const auto pass_time = [&](double part) {
                world.endpoint().compute(static_cast<un::nanoseconds>(backward_ns * part));
            };
            bench::Layers model(setting.layers, setting.count / setting.layers, setting.pieces, setting.overlaps,
                                pass_time);
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, a_layer_each, policies...};
            for (int i = 0; i < updates; ++i) trainer.step(i);
        });
        return static_cast<double>(report.time);
    };
    return (time(3) - time(1)) / 2;
}

template <class... Policies>
void simulated(bench::Report& report, const std::string& name, Setting setting, const Policies&... policies) {
    const double alone = virtual_ns(setting, 0, policies...);
    const double both = virtual_ns(setting, alone, policies...);
    setting.overlaps = false;
    const double one_by_one = virtual_ns(setting, alone, policies...);
    report.row({name, std::to_string(setting.ranks), std::to_string(setting.layers), std::to_string(setting.pieces),
                bench::format("%.1f ms", alone * 1e-6), bench::format("%.2f x", floor_of(setting)),
                bench::format("%.2f x", both / alone), bench::format("%.2f x", one_by_one / alone)});
    report.add({{"case", name + ", simulated"},
                {"ranks", setting.ranks},
                {"layers", setting.layers},
                {"pieces", setting.pieces},
                {"reduction_ms", alone * 1e-6},
                {"floor", floor_of(setting)},
                {"update", both / alone},
                {"update_without_overlap", one_by_one / alone}});
}

/// Limits the rate of every stream socket of this process, in bytes per second. Returns false if
/// the kernel refuses.
bool limit_sockets(unsigned rate) {
    bool all = true;
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    for (int file = 3; file < static_cast<int>(std::min<rlim_t>(files.rlim_cur, 4096)); ++file) {
        int type = 0;
        socklen_t size = sizeof type;
        if (::getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) continue;
        all = ::setsockopt(file, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0 && all;
    }
    return all;
}

struct Took {
    /// Medians. The backward pass has its real time, because sleeps last longer than requested.
    double update_s = 0, backward_s = 0;
};

template <class Transport>
Took real(un::Group<Transport>& world, const Setting& setting, double backward_s, int updates) {
    using Clock = std::chrono::steady_clock;
    const auto since = [](Clock::time_point before) {
        return std::chrono::duration<double>(Clock::now() - before).count();
    };
    double slept = 0;
    const auto pass_time = [&](double part) {
        if (backward_s == 0) return;
        const auto before = Clock::now();
        std::this_thread::sleep_for(std::chrono::duration<double>(backward_s * part));
        slept += since(before);
    };
    bench::Layers model(setting.layers, setting.count / setting.layers, setting.pieces, setting.overlaps, pass_time);
    std::optional<un::ProgressThread<Transport>> thread;
    if (setting.threaded) thread.emplace(world);
    un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, a_layer_each, un::RingReducer{}};
    std::vector<double> all, backward;
    for (int i = 0; i < updates + 2; ++i) {
        un::barrier(world);
        slept = 0;
        const auto before = Clock::now();
        trainer.step(i);
        const double took = since(before);
        if (i < 2) continue; // the first ones make buffers
        all.push_back(took);
        backward.push_back(slept);
    }
    const auto median = [](std::vector<double>& of) {
        std::sort(of.begin(), of.end());
        return of[of.size() / 2];
    };
    Took took{median(all), median(backward)};
    un::broadcast(world, std::span(&took.update_s, 1), 0);
    return took;
}

template <class Transport>
void by_sockets(bench::Report& report, const Setting& setting, int updates) {
    un::run<Transport>(setting.ranks, [&](un::Group<Transport>& world) {
        static_cast<void>(real(world, setting, 0, 2)); // makes all connections
        un::barrier(world);
        int limited = world.rank() != 0 || limit_sockets(static_cast<unsigned>(bytes_per_second)) ? 1 : 0;
        un::broadcast(world, std::span(&limited, 1), 0);
        if (limited == 0) {
            if (world.rank() == 0) std::printf("the kernel does not limit the rate of sockets here: nothing to show\n");
            return;
        }
        const double reduction = real(world, setting, 0, updates).update_s;
        const Took overlapped = real(world, setting, reduction, updates);
        Setting apart = setting;
        apart.overlaps = false;
        const Took one_by_one = real(world, apart, reduction, updates);
        if (world.rank() != 0) return;
        const auto ratio = [&](const Took& took) { return took.update_s / std::max(reduction, took.backward_s); };
        const std::string name = std::string(Transport::name) + (setting.threaded ? ", progress thread" : "");
        report.row({name + ", 1 Gbit/s", std::to_string(setting.ranks), std::to_string(setting.layers),
                    std::to_string(setting.pieces), bench::format("%.1f ms", reduction * 1e3),
                    bench::format("%.2f x", floor_of(setting)), bench::format("%.2f x", ratio(overlapped)),
                    bench::format("%.2f x", ratio(one_by_one))});
        report.add({{"case", name},
                    {"ranks", setting.ranks},
                    {"layers", setting.layers},
                    {"pieces", setting.pieces},
                    {"reduction_ms", reduction * 1e3},
                    {"floor", floor_of(setting)},
                    {"backward_ms", overlapped.backward_s * 1e3},
                    {"update", ratio(overlapped)},
                    {"update_without_overlap", ratio(one_by_one)}});
    });
}

template <class Transport>
void sockets(bench::Report& report, std::size_t count, bool quick) {
    const int updates = quick ? 3 : 15;
    for (const bool threaded : {false, true}) {
        if (!quick) by_sockets<Transport>(report, {2, 8, 1, count, true, threaded}, updates);
        by_sockets<Transport>(report, {2, 32, 1, count, true, threaded}, updates);
        if (quick) continue;
        by_sockets<Transport>(report, {2, 32, 4, count, true, threaded}, updates);
        by_sockets<Transport>(report, {4, 32, 1, count, true, threaded}, updates);
        by_sockets<Transport>(report, {4, 32, 4, count, true, threaded}, updates);
    }
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("overlap", options);
    report.header({"reduction", "ranks", "layers", "pieces", "alone", "floor", "update", "without overlap"});
    const std::size_t count = options.quick ? 200'000 : 2'000'000;
    if (options.only != "sockets")
        for (const int ranks : {2, 4, 8})
            for (const std::size_t layers : {std::size_t{8}, std::size_t{32}})
                for (const std::size_t pieces : {std::size_t{1}, std::size_t{4}}) {
                    const Setting setting{ranks, layers, pieces, count};
                    simulated(report, "ring", setting, un::RingReducer{});
                    simulated(report, "halving and doubling", setting, un::HalvingDoublingReducer{});
                    simulated(report, "bf16 wire, ring", setting, un::Bf16Wire{}, un::RingReducer{});
                    simulated(report, "int8 wire", setting, un::Int8Wire{});
                }
    if (options.only == "virtual") return 0;
    sockets<un::Tcp>(report, count, options.quick);
#ifdef BENCH_LIBFABRIC
    sockets<un::Libfabric>(report, count, options.quick);
#endif
}
