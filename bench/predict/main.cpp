// How long an all_reduce takes on a cluster, from nothing but measurements between two ranks:
//
//     bench_predict TABLE.json              fits the model, then predicts the collectives that the table has, and compares
//     bench_predict TABLE.json --ranks N... --bytes B...    what the model says of other worlds, by schedule
//
// A table is what osu_latency, osu_bw and osu_mbw_mr print, see tests/data/c5n_efa.json. Its collectives are not looked at by the fit.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unisono/schedule/families.hpp>
#include <unisono/schedule/hierarchical.hpp>
#include <unisono/schedule/timing.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace un = unisono;
namespace sc = unisono::schedule;
using nlohmann::json;

namespace {

/// Everybody has the whole sum after each of log2 p exchanges of whole vectors; ranks beyond a power of two give theirs to a neighbour before,
/// and get the sum after. Not among the library's own, since halving and doubling is never slower by much; MPI libraries have it.
struct RecursiveDoubling {
    static constexpr bool mapped = false;
    sc::Shape shape;

    [[nodiscard]] std::uint32_t blocks() const { return 1; }
    [[nodiscard]] int power() const { return static_cast<int>(std::bit_floor(static_cast<unsigned>(shape.world))); }
    [[nodiscard]] std::uint32_t levels() const {
        return static_cast<std::uint32_t>(std::bit_width(static_cast<unsigned>(power()))) - 1;
    }
    [[nodiscard]] std::uint32_t rounds() const { return levels() + 2; }
    template <class Visit>
    void round(std::uint32_t r, Visit&& visit) const {
        const int extra = shape.world - power();
        const bool paired = shape.rank < 2 * extra;
        const bool out = paired && shape.rank % 2 == 0;
        const sc::Blocks all = sc::output_blocks(0);
        if (r == 0 || r == rounds() - 1) {
            if (!paired) return;
            const bool sends = out == (r == 0);
            const int peer = out ? shape.rank + 1 : shape.rank - 1;
            if (sends) visit(sc::send_to(peer, all));
            else if (r == 0) visit(sc::combine_from(peer, all, all));
            else visit(sc::receive_from(peer, all));
            return;
        }
        if (out) return;
        const int number = paired ? shape.rank / 2 : shape.rank - extra;
        const int other = number ^ (1 << (r - 1));
        const int peer = other < extra ? 2 * other + 1 : other + extra;
        visit(sc::send_to(peer, all));
        visit(sc::combine_from(peer, all, all));
    }
};

double best_of(const json& table, bool least) {
    double best = least ? 1e300 : 0;
    for (const auto& [bytes, value] : table.items()) {
        const double found = value.at(1).get<double>();
        best = least ? std::min(best, found) : std::max(best, found);
    }
    return best;
}

/// The time of a message at the end of a stream of small ones, in nanoseconds.
double gap_of(const json& table) {
    double gap = 1e300;
    for (const auto& point : table) {
        if (point.at(0) > 64) break;
        gap = std::min(gap, point.at(0).get<double>() / point.at(1).get<double>() * 1e3);
    }
    return gap;
}

un::ClusterModel fit(const json& table) {
    const json& measured = table.at("point_to_point");
    const json& assumed = table.at("assumed");
    un::ClusterModel model;
    model.ranks_per_host = table.at("ranks_per_host");
    model.between.one_way.clear();
    for (const auto& point : measured.at("latency_us"))
        model.between.one_way.emplace_back(point.at(0).get<double>(), point.at(1).get<double>() * 1e3);
    model.between.overhead_ns = gap_of(measured.at("bandwidth_mb_s"));
    model.card_gap_ns = gap_of(measured.at("multi_pair_bandwidth_mb_s"));
    model.card_ns_per_byte = 1e3 / best_of(measured.at("multi_pair_bandwidth_mb_s"), false);
    const double latency = assumed.at("within_latency_us").get<double>() * 1e3;
    model.within.overhead_ns = assumed.at("within_overhead_us").get<double>() * 1e3;
    model.within.one_way = {{0, latency}, {1e6, latency + 1e9 / assumed.at("within_mb_s").get<double>()}};
    model.combine_ns_per_byte = 1e3 / assumed.at("combine_mb_s").get<double>();
    model.check();
    return model;
}

template <class Family>
un::Prediction by(const Family& family, int ranks, std::uint64_t bytes, const un::ClusterModel& model, int fold = 0) {
    return sc::predict([&](const sc::Shape& shape) { return family.all_reduce(shape); }, ranks, bytes, model, fold);
}

/// A ring, within hosts or across them, is the same on each host if blocks are equal: bytes are rounded up to such.
template <class Family>
un::Prediction by_one_host(const Family& family, int ranks, std::uint64_t bytes, const un::ClusterModel& model) {
    const auto p = static_cast<std::uint64_t>(ranks);
    if (ranks % model.ranks_per_host != 0 || ranks == model.ranks_per_host) return by(family, ranks, bytes, model);
    return by(family, ranks, (bytes + p - 1) / p * p, model, model.ranks_per_host);
}

std::map<std::string, un::Prediction> by_all(int ranks, std::uint64_t bytes, const un::ClusterModel& model) {
    std::map<std::string, un::Prediction> found;
    found["ring"] = by_one_host(un::RingSchedule{}, ranks, bytes, model);
    found["tree"] = by(un::TreeSchedule{}, ranks, bytes, model);
    found["halving_doubling"] = by(un::HalvingDoublingSchedule{}, ranks, bytes, model);
    const un::HierarchicalSchedule hosts{.ranks_per_host = model.ranks_per_host};
    found["hierarchical"] = by_one_host(hosts, ranks, bytes, model);
    found["recursive_doubling"] =
        sc::predict([](const sc::Shape& shape) { return RecursiveDoubling{shape}; }, ranks, bytes, model);
    return found;
}

void compare(const json& table, const un::ClusterModel& model) {
    std::printf("%-20s %6s %9s %12s %12s %8s\n", "all_reduce", "ranks", "bytes", "measured us", "predicted us",
                "error");
    std::vector<double> errors;
    std::vector<double> known; // of those whose algorithm is known
    std::map<std::pair<int, std::uint64_t>, std::vector<std::pair<double, double>>> orders;
    for (const auto& row : table.at("all_reduce")) {
        const int ranks = row.at("ranks");
        const std::string algorithm = row.at("algorithm");
        for (const auto& point : row.at("us")) {
            const std::uint64_t bytes = point.at(0);
            const double measured = point.at(1);
            const auto all = by_all(ranks, bytes, model);
            double predicted = 1e300;
            if (algorithm == "best") {
                for (const auto& [name, one] : all) predicted = std::min(predicted, one.seconds * 1e6);
            } else {
                predicted = all.at(algorithm).seconds * 1e6;
                orders[{ranks, bytes}].emplace_back(measured, predicted);
            }
            const double error = predicted / measured - 1;
            (algorithm == "best" ? errors : known).push_back(std::abs(error));
            std::printf("%-20s %6d %9llu %12.1f %12.1f %+7.0f %%\n", algorithm.c_str(), ranks,
                        static_cast<unsigned long long>(bytes), measured, predicted, 100 * error);
        }
    }
    int right = 0;
    int pairs = 0;
    for (const auto& [where, times] : orders)
        for (std::size_t i = 0; i < times.size(); ++i)
            for (std::size_t j = 0; j < i; ++j, ++pairs)
                right += (times[i].first < times[j].first) == (times[i].second < times[j].second) ? 1 : 0;
    const auto median = [](std::vector<double> values) {
        if (values.empty()) return 0.0;
        std::sort(values.begin(), values.end());
        return values[values.size() / 2];
    };
    std::printf("median error: %.0f %% where the algorithm is known (%zu), %.0f %% of the best (%zu); of two "
                "algorithms the faster one is named "
                "in %d of %d cases\n",
                100 * median(known), known.size(), 100 * median(errors), errors.size(), right, pairs);
}

void tell(const std::vector<int>& worlds, const std::vector<std::uint64_t>& sizes, const un::ClusterModel& model) {
    std::printf("%8s %12s", "ranks", "bytes");
    for (const char* name : {"ring", "tree", "halving_doubling", "hierarchical"}) std::printf(" %26s", name);
    std::printf("\n%8s %12s", "", "");
    for (int i = 0; i < 4; ++i) std::printf(" %14s %11s", "predicted ms", "took s");
    std::printf("\n");
    for (const int ranks : worlds) {
        for (const std::uint64_t bytes : sizes) {
            std::printf("%8d %12llu", ranks, static_cast<unsigned long long>(bytes));
            const auto one = [&](auto run) {
                const auto begin = std::chrono::steady_clock::now();
                const double seconds = run().seconds;
                const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
                std::printf(" %14.3f %11.2f", seconds * 1e3, took.count());
                std::fflush(stdout);
            };
            one([&] { return by_one_host(un::RingSchedule{}, ranks, bytes, model); });
            one([&] { return by(un::TreeSchedule{}, ranks, bytes, model); });
            one([&] { return by(un::HalvingDoublingSchedule{}, ranks, bytes, model); });
            one([&] {
                return by_one_host(un::HierarchicalSchedule{.ranks_per_host = model.ranks_per_host}, ranks, bytes,
                                   model);
            });
            std::printf("\n");
        }
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("peak memory: %ld MiB\n", usage.ru_maxrss / 1024);
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app("How long an all_reduce takes on a cluster, from measurements between two ranks");
    std::string file;
    std::vector<int> worlds;
    std::vector<std::uint64_t> sizes = {8, 1'000'000, 100'000'000};
    std::optional<int> per_host;
    app.add_option("table", file, "a table of point-to-point measurements")->required()->check(CLI::ExistingFile);
    app.add_option("--ranks", worlds, "worlds to predict, in place of the table's collectives")
        ->check(CLI::PositiveNumber);
    app.add_option("--bytes", sizes, "sizes to predict");
    app.add_option("--ranks-per-host", per_host, "in place of the table's")->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    try {
        std::ifstream in(file);
        const json table = json::parse(in);
        un::ClusterModel model = fit(table);
        if (per_host) model.ranks_per_host = *per_host;
        std::printf("%s\nfitted: overhead %.0f ns, latency of 8 bytes %.0f ns, a host's card %.0f ns a message and "
                    "%.1f GB/s, %d ranks a host\n",
                    table.at("machine").get<std::string>().c_str(), model.between.overhead_ns, model.between.time(8),
                    model.card_gap_ns, 1 / model.card_ns_per_byte, model.ranks_per_host);
        if (worlds.empty()) compare(table, model);
        else tell(worlds, sizes, model);
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "bench_predict: %s: %s\n", file.c_str(), failed.what());
        return 1;
    }
}
