#pragma once

/// \file
/// The properties of a simulated world: its links, its faults, and the seed of all random choices.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/laboratory/cluster_model.hpp"
#include "unisono/transport/transport.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A message of n bytes takes n / bytes_per_second to leave, and arrives `latency_ns` later.
struct Link {
    nanoseconds latency_ns = 1'000;
    double bytes_per_second = 10e9;
    friend bool operator==(const Link&, const Link&) = default;
};

/// The resource that carries one message at a time; other messages wait for it.
enum class Contention : std::uint8_t {
    none,     ///< nothing: any number of messages at full speed
    link,     ///< each pair of ranks, in each direction
    sender,   ///< each rank's way out
    endpoints ///< each rank's way out, and its way in: messages from many ranks to one queue up
};

/// A rank that stops for ever, at any point of its work. What it has sent still arrives.
struct RankCrash {
    int rank = 0;
    nanoseconds at_ns = 0;
    friend bool operator==(const RankCrash&, const RankCrash&) = default;
};

/// A rank that does nothing for a while; messages to it wait.
struct RankStop {
    int rank = 0;
    nanoseconds at_ns = 0;
    nanoseconds for_ns = 0;
    friend bool operator==(const RankStop&, const RankStop&) = default;
};

/// Ranks that are separated from all others for a while: messages between the two sides wait.
struct NetworkPartition {
    std::vector<int> ranks = {};
    nanoseconds at_ns = 0;
    nanoseconds for_ns = 0;

    [[nodiscard]] bool has(int rank) const { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }
    friend bool operator==(const NetworkPartition&, const NetworkPartition&) = default;
};

/// The kind of an event of a message or of a rank.
enum class TraceKind : std::uint8_t { sent, arrived, lost, crashed, stopped, left };

constexpr std::string_view name_of(TraceKind kind) {
    constexpr std::string_view names[] = {"sent", "arrived", "lost", "crashed", "stopped", "left"};
    return names[static_cast<std::size_t>(kind)];
}

/// One event. Without a message, `from` is the rank concerned.
struct TraceRecord {
    nanoseconds time = 0;
    TraceKind kind = TraceKind::sent;
    int from = -1;
    int to = -1;
    std::uint64_t bytes = 0;
    Tag tag = {};
    friend bool operator==(const TraceRecord&, const TraceRecord&) = default;
};

/// A simulated network; a seed makes a run that repeats exactly.
struct SimulationOptions {
    std::uint64_t seed = 0;
    Link link = {};
    std::function<Link(int from, int to)> link_between = {}; ///< replaces `link` if pairs differ; a pure function
    Contention contention = Contention::endpoints;
    std::size_t eager_bytes = 4096; ///< sends up to this size are done at once, larger ones when they have left
    /// Messages take as long as in this cluster, which replaces all of the above. Its `eager_bytes`
    /// is not used: messages do not wait for their receivers.
    std::optional<ClusterModel> cluster = {};

    nanoseconds jitter_ns = 0; ///< each message is delayed by a uniform random time up to this
    bool reorder = false;      ///< jitter lets messages of a pair overtake each other; otherwise they stay in order
    double loss = 0.0;         ///< probability that a message never arrives
    std::vector<RankCrash> crashes = {};
    int random_crashes = 0;                           ///< further ranks that crash, chosen by the seed ...
    nanoseconds random_crashes_before_ns = 1'000'000; ///< ... before this time
    std::vector<RankStop> stops = {};
    std::vector<NetworkPartition> partitions = {}; ///< overlapping ones in the order of their times
    nanoseconds detection_ns = 1'000'000;          ///< from a crash until all ranks know; `never`: only deadlines help

    nanoseconds poll_ns = 1'000; ///< the time of a fruitless poll by a rank that polls instead of waiting
    std::function<void(const TraceRecord&)> trace = {}; ///< called for every event, in order

    /// Refuses invalid options for a world of `ranks` ranks. \throws error bad_input
    void check(int ranks) const {
        const auto refuse = [](const std::string& name, const std::string& found, const std::string& expected) {
            refuse_input({"SimulationOptions::", name, " is ", found, ", expected ", expected});
        };
        const auto duration = [&](const std::string& name, nanoseconds value, nanoseconds most = longest) {
            if (value < 0 || value > most) {
                refuse(name, std::to_string(value), concat({"0 to ", most, " nanoseconds"}));
            }
        };
        const auto member = [&](const std::string& name, int rank) {
            if (rank < 0 || rank >= ranks) {
                refuse(name, concat({"rank ", rank}), concat({"a rank below ", ranks}));
            }
        };
        if (cluster) cluster->check();
        duration("link.latency_ns", link.latency_ns);
        if (!(link.bytes_per_second > 0.0)) {
            refuse("link.bytes_per_second", std::to_string(link.bytes_per_second), "more than 0");
        }
        duration("jitter_ns", jitter_ns);
        if (!(loss >= 0.0 && loss <= 1.0)) refuse("loss", std::to_string(loss), "0 to 1");
        for (const RankCrash& crash : crashes) {
            member("crashes", crash.rank);
            duration("crashes", crash.at_ns);
        }
        for (const RankStop& stop : stops) {
            member("stops", stop.rank);
            duration("stops", stop.at_ns);
            duration("stops", stop.for_ns);
        }
        for (const NetworkPartition& one : partitions) {
            for (const int rank : one.ranks) member("partitions", rank);
            duration("partitions", one.at_ns);
            duration("partitions", one.for_ns);
        }
        const auto others = static_cast<int>(ranks_without_crash(ranks).size());
        if (random_crashes < 0 || random_crashes > others) {
            refuse("random_crashes", std::to_string(random_crashes),
                   concat({"0 to ", others, crashes.empty() ? "" : ", the ranks that `crashes` does not name"}));
        }
        duration("random_crashes_before_ns", random_crashes_before_ns);
        duration("detection_ns", detection_ns, never);
        if (poll_ns < 1 || poll_ns > longest) {
            refuse("poll_ns", std::to_string(poll_ns), concat({"1 to ", longest, " nanoseconds"}));
        }
    }

    /// The ranks that `crashes` does not name, in rank order.
    [[nodiscard]] std::vector<int> ranks_without_crash(int ranks) const {
        std::vector<char> crashed(static_cast<std::size_t>(ranks));
        for (const RankCrash& crash : crashes) crashed[static_cast<std::size_t>(crash.rank)] = 1;
        std::vector<int> others;
        for (int rank = 0; rank < ranks; ++rank)
            if (crashed[static_cast<std::size_t>(rank)] == 0) others.push_back(rank);
        return others;
    }

    static constexpr nanoseconds longest = 1'000'000'000'000'000; ///< eleven days: sums of such times do not overflow
};

UNISONO_NAMESPACE_END
