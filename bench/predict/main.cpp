// How long an all_reduce takes on a cluster, from measurements between two ranks only:
//
//     bench_predict TABLE.json
//         fits the model, predicts the collectives in the table, and compares
//     bench_predict TABLE.json --ranks N... --bytes B...
//         prints what the model predicts for other worlds, by schedule
//     bench_predict TABLE.json --save MODEL.txt
//         fits the model and saves it for un::ClusterModel::load
//     unisono-run -n 4 bench_predict TABLE.json --measure [--ranks-per-host N] [--save MODEL.txt]
//         writes a table of these ranks first
//
// A table is the output of osu_latency, osu_bw, osu_bibw and osu_mbw_mr, see
// tests/support/data/c5n_efa.json. The fit does not use its collectives. Measured ranks use
// sockets, and shared memory within a host if --ranks-per-host says that ranks share one.

#include "measure.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unisono/hosts.hpp>
#include <unisono/laboratory.hpp>
#include <unisono/schedule/hierarchical.hpp>
#include <unisono/tcp.hpp>
#include <unisono/unisono.hpp>

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

constexpr std::uint64_t element_bytes = 4; // of what osu_allreduce sums

/// Algorithms of MPI libraries that the library does not have: recursive doubling with whole
/// vectors; and Rabenseifner's all_reduce in their order, which begins with the nearest rank and
/// the largest message, by halves there and back. Ranks beyond a power of two give their vector to
/// a neighbour before, and get the sum after.
struct Recursive {
    static constexpr bool mapped = false;
    sc::Shape shape;
    bool halves = false;

    [[nodiscard]] int power() const { return static_cast<int>(std::bit_floor(static_cast<unsigned>(shape.world))); }
    [[nodiscard]] std::uint32_t blocks() const { return halves ? static_cast<std::uint32_t>(power()) : 1; }
    [[nodiscard]] std::uint32_t levels() const {
        return static_cast<std::uint32_t>(std::bit_width(static_cast<unsigned>(power()))) - 1;
    }
    [[nodiscard]] std::uint32_t rounds() const { return (halves ? 2 : 1) * levels() + 2; }
    template <class Visit>
    void round(std::uint32_t r, Visit&& visit) const {
        const int extra = shape.world - power();
        const bool paired = shape.rank < 2 * extra;
        const bool out = paired && shape.rank % 2 == 0;
        const sc::Blocks all = sc::output_blocks(0, blocks());
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
        const bool back = r > levels(); // of the halves
        const std::uint32_t level = back ? 2 * levels() - r : r - 1;
        const auto number = static_cast<std::uint32_t>(paired ? shape.rank / 2 : shape.rank - extra);
        const auto other = static_cast<int>(number ^ (1u << level));
        const int peer = other < extra ? 2 * other + 1 : other + extra;
        sc::Blocks mine = all, theirs = all;
        if (halves) {
            std::uint32_t first = 0;
            for (std::uint32_t i = 0; i < level; ++i) first += (number >> i & 1) * (blocks() >> (i + 1));
            const std::uint32_t count = blocks() >> (level + 1);
            const bool upper = (number >> level & 1) != 0;
            mine = sc::output_blocks(upper ? first + count : first, count);
            theirs = sc::output_blocks(upper ? first : first + count, count);
        }
        visit(sc::send_to(peer, back ? mine : theirs));
        if (back) visit(sc::receive_from(peer, theirs));
        else visit(sc::combine_from(peer, mine, mine));
    }
};

/// The sum goes up a k-nomial tree of each host's ranks, up a tree of the hosts' first ranks, and
/// down both, as in a library that knows hosts. A rank sends to all its children at once.
struct TwoLevels {
    static constexpr bool mapped = false;
    static constexpr int radix = 4;
    sc::Shape shape;
    int per_host = 1;

    [[nodiscard]] static std::uint32_t blocks() { return 1; }
    [[nodiscard]] static std::uint32_t rounds() { return 8; }
    template <class Visit>
    void round(std::uint32_t r, Visit&& visit) const {
        const sc::Blocks all = sc::output_blocks(0);
        const bool head = shape.rank % per_host == 0;
        const auto from = [&](int peer) {
            visit(r < 4 ? sc::combine_from(peer, all, all) : sc::receive_from(peer, all));
        };
        const auto to = [&](int peer) { visit(sc::send_to(peer, all)); };
        if (r == 0) for_each_child(false, from);
        else if (r == 1 && !head) to(parent(false));
        else if (r == 2 && head) for_each_child(true, from);
        else if (r == 3 && head && shape.rank != 0) to(parent(true));
        else if (r == 4 && head && shape.rank != 0) from(parent(true));
        else if (r == 5 && head) {
            for_each_child(true, to);
            for_each_child(false, to);
        } else if (r == 6 && !head) from(parent(false));
        else if (r == 7 && !head) for_each_child(false, to);
    }

private:
    template <class Visit>
    void for_each_child(bool across, Visit visit) const {
        const int stride = across ? per_host : 1;
        const int member = across ? shape.rank / per_host : shape.rank % per_host;
        const int members = across ? shape.world / per_host : per_host;
        for (int mask = 1; mask < members && member % (mask * radix) == 0; mask *= radix)
            for (int i = 1; i < radix && member + i * mask < members; ++i) visit(shape.rank + i * mask * stride);
    }
    [[nodiscard]] int parent(bool across) const {
        const int member = across ? shape.rank / per_host : shape.rank % per_host;
        int mask = 1;
        while (member % (mask * radix) == 0) mask *= radix;
        return shape.rank - member % (mask * radix) * (across ? per_host : 1);
    }
};

/// Nanoseconds per message, from megabytes per second. An absent table gives no time.
un::TimeBySize time_of(const json& measured, const char* name, double share = 1) {
    un::TimeBySize time;
    if (!measured.contains(name)) return time;
    for (const auto& point : measured.at(name)) {
        const double bytes = point.at(0);
        time.points.emplace_back(bytes, bytes / point.at(1).get<double>() * 1e3 * share);
    }
    return time;
}

/// The size in bytes of the largest message that is sent without a handshake. If the next size
/// takes more than twice as long, it has a handshake.
double eager_bytes_of(const un::TimeBySize& one_way) {
    for (std::size_t i = 1; i < one_way.points.size(); ++i)
        if (one_way.points[i - 1].first > 0 && one_way.points[i].second > 2 * one_way.points[i - 1].second)
            return one_way.points[i - 1].first;
    return std::numeric_limits<double>::infinity();
}

/// osu_latency is the time one way, and osu_bw is the gap. Half of the time that osu_bibw needs for
/// a message each way is the overhead at each end, if it is less than the gap. osu_mbw_mr is what
/// the ranks of a host share.
un::MessageTimes fit(const json& measured) {
    un::MessageTimes times;
    for (const auto& point : measured.at("latency_us"))
        times.one_way.points.emplace_back(point.at(0).get<double>(), point.at(1).get<double>() * 1e3);
    times.gap = time_of(measured, "bandwidth_mb_s");
    times.overhead = measured.contains("both_ways_mb_s") ? time_of(measured, "both_ways_mb_s") : times.gap;
    for (auto& [bytes, overhead] : times.overhead.points)
        overhead = std::min({overhead, times.gap(bytes), times.one_way(bytes) / 2});
    times.shared = time_of(measured, "multi_pair_bandwidth_mb_s");
    times.eager_bytes = eager_bytes_of(times.one_way);
    if (measured.contains("buffered_bytes")) times.buffered_bytes = measured.at("buffered_bytes");
    return times;
}

un::ClusterModel fit_all(const json& table) {
    un::ClusterModel model;
    model.ranks_per_host = table.at("ranks_per_host");
    model.between = fit(table.at("between"));
    model.within = fit(table.at("within"));
    model.combine_ns_per_byte = 1e3 / table.at("combine_mb_s").get<double>();
    model.check();
    return model;
}

template <class Family>
un::Prediction by(const Family& family, int ranks, std::uint64_t bytes, const un::ClusterModel& model, int fold = 0) {
    return sc::predict(
        [&](const sc::Shape& shape) { return sc::schedule_of<un::Collective::all_reduce>(family, shape); }, ranks,
        bytes, model, fold);
}

/// A ring, within hosts or across them, is the same on each host if blocks are equal, so bytes are
/// rounded up to equal blocks.
template <class Family>
un::Prediction by_one_host(const Family& family, int ranks, std::uint64_t bytes, const un::ClusterModel& model) {
    const auto p = static_cast<std::uint64_t>(ranks);
    if (ranks % model.ranks_per_host != 0 || ranks == model.ranks_per_host) return by(family, ranks, bytes, model);
    return by(family, ranks, (bytes + p - 1) / p * p, model, model.ranks_per_host);
}

/// By the algorithm that a table names.
un::Prediction by_name(const std::string& name, int ranks, std::uint64_t bytes, const un::ClusterModel& model) {
    const auto play = [&](const auto& make) { return sc::predict(make, ranks, bytes, model, 0, element_bytes); };
    const auto recursive = [](bool halves) { return [=](const sc::Shape& shape) { return Recursive{shape, halves}; }; };
    if (name == "recursive_doubling") return play(recursive(false));
    // MPICH's has a block for each rank of a power of two. Otherwise it uses recursive doubling.
    if (name == "rabenseifner") return play(recursive(bytes / element_bytes >= std::bit_floor(unsigned(ranks))));
    if (name == "ring") return play([](const sc::Shape& shape) { return sc::RingAllReduce{{shape}}; });
    if (name == "tree") return play([](const sc::Shape& shape) { return sc::TreeAllReduce{{shape}}; });
    if (name == "halving_doubling")
        return play([](const sc::Shape& shape) { return sc::HalvingDoublingAllReduce{{shape}}; });
    if (name == "two_levels")
        return play([&](const sc::Shape& shape) { return TwoLevels{shape, model.ranks_per_host}; });
    if (name == "hierarchical")
        return play([&](const sc::Shape& shape) {
            const un::HierarchicalSchedule levels{.ranks_per_host = model.ranks_per_host};
            return sc::schedule_of<un::Collective::all_reduce>(levels, shape);
        });
    if (name == "default") { // a library that chooses well
        un::Prediction best{.mean_seconds = 1e300};
        for (const char* one : {"two_levels", "rabenseifner", "ring", "hierarchical"})
            if (const auto found = by_name(one, ranks, bytes, model); found.mean_seconds < best.mean_seconds)
                best = found;
        return best;
    }
    throw std::runtime_error("no algorithm is called '" + name + "'");
}

void compare(const json& table, const un::ClusterModel& model) {
    std::printf("%-20s %6s %9s %12s %12s %8s\n", "all_reduce", "ranks", "bytes", "measured us", "predicted us",
                "error");
    std::vector<double> errors;
    std::map<std::pair<int, std::uint64_t>, std::vector<std::pair<double, double>>> orders;
    for (const auto& row : table.at("all_reduce")) {
        const int ranks = row.at("ranks");
        const std::string algorithm = row.at("algorithm");
        for (const auto& point : row.at("us")) {
            const std::uint64_t bytes = point.at(0);
            const double measured = point.at(1);
            const double predicted = by_name(algorithm, ranks, bytes, model).mean_seconds * 1e6;
            orders[{ranks, bytes}].emplace_back(measured, predicted);
            const double error = predicted / measured - 1;
            errors.push_back(std::abs(error));
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
    std::sort(errors.begin(), errors.end());
    std::printf("median error: %.0f %% of %zu; of two algorithms the faster one is named in %d of %d cases\n",
                100 * errors.at(errors.size() / 2), errors.size(), right, pairs);
}

std::string in_digits(double value) {
    char text[32];
    std::snprintf(text, sizeof text, value < 10 ? "%.2f" : "%.0f", value);
    return text;
}

/// Rows of docs/scale.md: milliseconds of an all_reduce.
void tell(const std::vector<int>& worlds, const std::vector<std::uint64_t>& sizes, const un::ClusterModel& model) {
    std::printf("| ranks | bytes | ring | tree | halving and doubling | hierarchical |\n");
    for (const std::uint64_t bytes : sizes) {
        for (const int ranks : worlds) {
            std::string took;
            std::printf("| %d | %llu |", ranks, static_cast<unsigned long long>(bytes));
            const auto one = [&](auto run) {
                const auto begin = std::chrono::steady_clock::now();
                const double seconds = run().seconds;
                took += ' ' + in_digits(bench::seconds_since(begin));
                std::printf(" %s |", in_digits(seconds * 1e3).c_str());
            };
            one([&] { return by_one_host(un::RingSchedule{}, ranks, bytes, model); });
            one([&] { return by(un::TreeSchedule{}, ranks, bytes, model); });
            one([&] { return by(un::HalvingDoublingSchedule{}, ranks, bytes, model); });
            const un::HierarchicalSchedule hosts{.ranks_per_host = model.ranks_per_host};
            one([&] { return by_one_host(hosts, ranks, bytes, model); });
            std::printf("\n");
            std::fprintf(stderr, "took s:%s\n", took.c_str());
        }
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::fprintf(stderr, "peak memory: %ld MiB\n", usage.ru_maxrss / 1024);
}

/// Rows of docs/scale.md: what an update of `parameters` floats with Adam exchanges, by mode. The
/// cheapest all_reduce counts.
void tell_training(const std::vector<int>& worlds, std::uint64_t parameters, const un::ClusterModel& model) {
    constexpr double local_steps = 100;
    std::printf(
        "| ranks | mode | ms per update | MB sent per rank | MB of memory per rank | ms that a death costs |\n");
    for (const int ranks : worlds) {
        const std::uint64_t bytes = 4 * parameters;
        const un::HierarchicalSchedule hosts{.ranks_per_host = model.ranks_per_host};
        const double sum = 1e3 * std::min({by_one_host(un::RingSchedule{}, ranks, bytes, model).seconds,
                                           by(un::HalvingDoublingSchedule{}, ranks, bytes, model).seconds,
                                           by(un::TreeSchedule{}, ranks, bytes, model).seconds,
                                           by_one_host(hosts, ranks, bytes, model).seconds});
        const auto mb = static_cast<double>(bytes) * 1e-6;
        const double others = (ranks - 1.0) / ranks;
        // One of the remaining ranks asks the others for their state, proposes the members, and
        // sends the decision, and then that all are ready. It sends one message after another while
        // answers arrive.
        const un::MessageTimes& between = ranks > model.ranks_per_host ? model.between : model.within;
        const double meet =
            (7 * between.one_way(128) + 4 * ranks * std::max(between.gap(128), between.overhead(128))) * 1e-6;
        // A server's network card receives and sends what all workers send and receive.
        const double served = ranks * between.gap(static_cast<double>(bytes)) * 1e-6;
        const auto row = [&](const char* mode, double time, double sent, double memory, const std::string& death) {
            std::printf("| %d | %s | %s | %s | %s | %s |\n", ranks, mode, in_digits(time).c_str(),
                        in_digits(sent).c_str(), in_digits(memory).c_str(), death.c_str());
        };
        row("Synchronous", sum, 2 * others * mb, 4 * mb, in_digits(meet + sum));
        row("Synchronous, StateSharding", sum, 2 * others * mb, (2 + 2.0 / ranks) * mb, "the job");
        row("LocalSteps, every 100", sum / local_steps, 2 * others * mb / local_steps, 4 * mb, "the job");
        row("Asynchronous, one server", served, mb, 2 * mb, "the job");
    }
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app("How long an all_reduce takes on a cluster, from measurements between two ranks");
    std::string file;
    std::vector<int> worlds;
    std::vector<std::uint64_t> sizes = {8, 1'000'000, 100'000'000};
    std::optional<int> per_host;
    bool measures = false;
    std::uint64_t parameters = 0;
    app.add_option("--parameters", parameters,
                   "what an update of a model of this size costs by mode, in place of an all_reduce");
    std::string save;
    app.add_option("table", file, "a table of point-to-point measurements")->required();
    app.add_flag("--measure", measures, "measure between the ranks of this job, and write the table");
    app.add_option("--save", save, "write the model, as un::ClusterModel::load reads it");
    app.add_option("--ranks", worlds, "worlds to predict, in place of the table's collectives")
        ->check(CLI::PositiveNumber);
    app.add_option("--bytes", sizes, "sizes to predict");
    app.add_option("--ranks-per-host", per_host, "in place of the table's")->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    try {
        if (measures) {
            const auto take = [&](auto world) {
                const json table = bench::measure(world, per_host.value_or(1));
                if (world.rank() == 0) std::ofstream(file) << table.dump(1) << '\n';
                return world.rank() == 0;
            };
            const bool first =
                per_host.value_or(1) > 1 ? take(un::join<un::Hosts<un::Tcp>>()) : take(un::join<un::Tcp>());
            if (!first) return 0;
        }
        std::ifstream in(file);
        if (!in) throw std::runtime_error("the table cannot be read");
        const json table = json::parse(in);
        un::ClusterModel model = fit_all(table);
        if (per_host) model.ranks_per_host = *per_host;
        std::printf("%s\nfitted: overhead %.0f ns, latency of 8 bytes %.0f ns, a host's card %.0f ns a message and "
                    "%.1f GB/s, %d ranks a host\n",
                    table.at("machine").get<std::string>().c_str(), model.between.overhead(8), model.between.one_way(8),
                    model.between.shared(8), 1e6 / model.between.shared(1e6), model.ranks_per_host);
        if (!save.empty() && !(std::ofstream(save) << model.save()))
            throw std::runtime_error(save + " cannot be written");
        if (worlds.empty()) compare(table, model);
        else if (parameters != 0) tell_training(worlds, parameters, model);
        else tell(worlds, sizes, model);
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "bench_predict: %s: %s\n", file.c_str(), failed.what());
        return 1;
    }
}
