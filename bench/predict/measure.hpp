#pragma once

// Point-to-point measurements between the ranks of a world, as by osu_latency, osu_bw, osu_bibw and
// osu_mbw_mr: a table that `fit` reads.

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <unisono/collective/collective.hpp>
#include <utility>
#include <vector>

namespace bench {

using Pairs = std::vector<std::pair<int, int>>;

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The result of one of the pair while all pairs do the same; 0 on the other ranks. The median of
/// several turns.
template <class World, class Work>
double in_pairs(World& world, const Pairs& pairs, const Work& work) {
    int peer = -1;
    bool first = false;
    for (const auto& [a, b] : pairs) {
        if (world.rank() != a && world.rank() != b) continue;
        first = world.rank() == a;
        peer = first ? b : a;
    }
    std::vector<double> turns;
    for (int turn = 0; turn < 7; ++turn) {
        unisono::barrier(world);
        const auto begin = std::chrono::steady_clock::now();
        if (peer >= 0) work(peer, first);
        turns.push_back(seconds_since(begin));
    }
    std::sort(turns.begin(), turns.end());
    return first ? turns[turns.size() / 2] : 0;
}

/// The table of one kind of link, for all pairs in `all`. The first pair measures what one pair
/// does alone.
template <class World>
nlohmann::json measure_place(World& world, const Pairs& all) {
    nlohmann::json table;
    const Pairs one{all.front()};
    std::vector<std::vector<std::byte>> buffers(2 * 16, std::vector<std::byte>(std::size_t{1} << 20));
    const auto stream = [&](const Pairs& pairs, std::size_t bytes, bool both) {
        constexpr std::size_t window = 16;
        const int windows = bytes <= 8192 ? 20 : 2;
        const double seconds = in_pairs(world, pairs, [&](int peer, bool first) {
            for (int i = 0; i < windows; ++i) {
                std::vector<unisono::Operation> operations;
                for (std::size_t m = 0; m < window; ++m) {
                    if (!first || both)
                        operations.push_back(
                            unisono::start_receive(world, std::span(buffers[m]).first(bytes), peer, first ? 1 : 2));
                    if (first || both)
                        operations.push_back(unisono::start_send(
                            world, std::span<const std::byte>(buffers[window + m]).first(bytes), peer, first ? 2 : 1));
                }
                for (unisono::Operation& operation : operations) operation.wait();
                std::byte end{};
                if (first) unisono::receive(world, std::span(&end, 1), peer, 3);
                else unisono::send(world, std::span<const std::byte>(&end, 1), peer, 3);
            }
        });
        const double moved = static_cast<double>(bytes * window) * windows * (both ? 2 : 1);
        std::vector<double> rate{seconds > 0 ? moved / seconds * 1e-6 : 0};
        unisono::all_reduce(world, std::span(rate)); // of all pairs
        return rate.front();
    };
    for (std::size_t bytes = 1; bytes <= std::size_t{1} << 20; bytes *= 4) {
        const int repetitions = bytes <= 8192 ? 100 : 10;
        std::vector<double> seconds{in_pairs(world, one, [&](int peer, bool first) {
            const auto out = std::span<const std::byte>(buffers[0]).first(bytes);
            const auto in = std::span(buffers[1]).first(bytes);
            for (int i = 0; i < repetitions; ++i) {
                if (first) unisono::send(world, out, peer);
                unisono::receive(world, in, peer);
                if (!first) unisono::send(world, out, peer);
            }
        })};
        unisono::all_reduce(world, std::span(seconds)); // all but one are 0
        table["latency_us"].push_back({bytes, seconds.front() / repetitions / 2 * 1e6});
        table["bandwidth_mb_s"].push_back({bytes, stream(one, bytes, false)});
        table["both_ways_mb_s"].push_back({bytes, stream(one, bytes, true)});
        table["multi_pair_bandwidth_mb_s"].push_back({bytes, stream(all, bytes, false)});
    }
    return table;
}

/// Megabytes per second of one operand combined with another, in a cache.
inline double combine_mb_s() {
    std::vector<float> sum(std::size_t{1} << 16), addend(sum.size(), 1.0f);
    const auto begin = std::chrono::steady_clock::now();
    constexpr int repetitions = 200;
    for (int i = 0; i < repetitions; ++i)
        for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += addend[j];
    const double seconds = seconds_since(begin);
    return sum[1] > 0 ? static_cast<double>(sum.size() * sizeof(float)) * repetitions / seconds * 1e-6 : 0;
}

/// The whole table, and for comparison all_reduce by the schedules that `compare` predicts. Ranks
/// of a host must be consecutive.
template <class World>
nlohmann::json measure(World& world, int per_host) {
    Pairs within, between;
    for (int r = 0; r + 1 < per_host; r += 2) within.emplace_back(r, r + 1);
    for (int r = 0; r < per_host && per_host + r < world.size(); ++r) between.emplace_back(r, per_host + r);
    nlohmann::json table{
        {"machine", "measured here"}, {"source", "bench_predict --measure"}, {"ranks_per_host", per_host}};
    if (!within.empty()) table["within"] = measure_place(world, within);
    if (!between.empty()) table["between"] = measure_place(world, between);
    if (within.empty()) table["within"] = table["between"];
    if (between.empty()) table["between"] = table["within"];
    table["combine_mb_s"] = combine_mb_s();
    const auto add = [&](const char* name, const auto& family) {
        nlohmann::json times;
        for (std::size_t bytes = 64; bytes <= std::size_t{1} << 20; bytes *= 16) {
            std::vector<float> values(bytes / sizeof(float));
            std::vector<double> turns;
            for (int turn = 0; turn < 25; ++turn) {
                unisono::barrier(world);
                const auto begin = std::chrono::steady_clock::now();
                unisono::all_reduce(world, std::span(values), unisono::Sum{}, family);
                turns.push_back(seconds_since(begin));
            }
            std::sort(turns.begin(), turns.end());
            std::vector<double> mean{turns[turns.size() / 2] / world.size()};
            unisono::all_reduce(world, std::span(mean));
            times.push_back({bytes, mean.front() * 1e6});
        }
        table["all_reduce"].push_back({{"ranks", world.size()}, {"algorithm", name}, {"us", times}});
    };
    add("ring", unisono::RingSchedule{});
    add("tree", unisono::TreeSchedule{});
    add("halving_doubling", unisono::HalvingDoublingSchedule{});
    return table;
}

} // namespace bench
