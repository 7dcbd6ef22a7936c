#pragma once

/// \file
/// The properties of a simulated world: its links, its faults, and the seed of all random choices;
/// the times at which messages leave and arrive by them; and the memory of messages in flight.

#include "unisono/core/error.hpp"
#include "unisono/core/random.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/laboratory/cluster_model.hpp"
#include "unisono/transport/transport.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
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
            if (value < 0 || value > most) refuse(name, std::to_string(value), concat({"0 to ", most, " nanoseconds"}));
        };
        const auto member = [&](const std::string& name, int rank) {
            if (rank < 0 || rank >= ranks) refuse(name, concat({"rank ", rank}), concat({"a rank below ", ranks}));
        };
        if (cluster) cluster->check();
        duration("link.latency_ns", link.latency_ns);
        if (!(link.bytes_per_second > 0.0))
            refuse("link.bytes_per_second", std::to_string(link.bytes_per_second), "more than 0");
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
        if (random_crashes < 0 || random_crashes > others)
            refuse("random_crashes", std::to_string(random_crashes),
                   concat({"0 to ", others, crashes.empty() ? "" : ", the ranks that `crashes` does not name"}));
        duration("random_crashes_before_ns", random_crashes_before_ns);
        duration("detection_ns", detection_ns, never);
        if (poll_ns < 1 || poll_ns > longest)
            refuse("poll_ns", std::to_string(poll_ns), concat({"1 to ", longest, " nanoseconds"}));
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

namespace detail {

/// A message in flight, with a copy of its bytes: its sender may continue, or be gone.
struct SimulatedMessage {
    static constexpr std::size_t small_bytes = 24;

    Envelope envelope;
    int from = 0;
    int to = 0;
    Token token = 0;              ///< of the send, for its departure
    nanoseconds transfer_ns = 0;  ///< the time for which it occupies the way out or in
    std::byte* payload = nullptr; ///< nullptr: in `small`
    std::array<std::byte, small_bytes> small;
    std::uint64_t view = 0; ///< its sender's group of ranks
    bool lost = false;
    bool in = false;              ///< it has waited for its receiver's way in
    bool acknowledgement = false; ///< it only acknowledges a send

    [[nodiscard]] const std::byte* data() const { return payload != nullptr ? payload : small.data(); }
};

/// Messages by index, and their memory by powers of two; both are reused.
class SimulatedMessages {
public:
    SimulatedMessages() = default;
    SimulatedMessages(const SimulatedMessages&) = delete;
    SimulatedMessages& operator=(const SimulatedMessages&) = delete;

    SimulatedMessage& operator[](std::uint32_t index) { return messages_[index]; }

    std::uint32_t make(const Envelope& envelope, const std::byte* data) {
        if (free_.empty()) {
            free_.push_back(static_cast<std::uint32_t>(messages_.size()));
            messages_.emplace_back();
        }
        const std::uint32_t index = free_.back();
        free_.pop_back();
        SimulatedMessage& message = messages_[index];
        message.envelope = envelope;
        message.payload = nullptr;
        message.lost = false;
        message.in = false;
        message.acknowledgement = false;
        if (envelope.bytes > SimulatedMessage::small_bytes) message.payload = take(envelope.bytes);
        if (envelope.bytes != 0)
            std::memcpy(message.payload != nullptr ? message.payload : message.small.data(), data, envelope.bytes);
        return index;
    }

    void release(std::uint32_t index) {
        SimulatedMessage& message = messages_[index];
        if (message.payload != nullptr) rooms_[room_of(message.envelope.bytes)].push_back(message.payload);
        free_.push_back(index);
    }

private:
    static std::size_t room_of(std::size_t bytes) { return 64 - static_cast<std::size_t>(std::countl_zero(bytes - 1)); }

    std::byte* take(std::size_t bytes) {
        const std::size_t room = room_of(bytes);
        auto& free = rooms_[room];
        if (free.empty()) {
            blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(std::size_t{1} << room));
            return blocks_.back().get();
        }
        std::byte* const found = free.back();
        free.pop_back();
        return found;
    }

    std::vector<SimulatedMessage> messages_;
    std::vector<std::uint32_t> free_;
    std::array<std::vector<std::byte*>, 64> rooms_;
    std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

/// Converts sends to times. Random numbers come from streams of the seed, one per kind of fault, so
/// that enabling one kind does not change the others.
class SimulatedNetwork {
public:
    SimulatedNetwork(const SimulationOptions& options, int size)
        : options_(options), out_free_(static_cast<std::size_t>(size), 0), in_free_(static_cast<std::size_t>(size), 0),
          jitter_(options.seed, 1), loss_(options.seed, 2) {
        if (options.cluster) cluster_.emplace(*options.cluster, size);
    }

    struct Times {
        nanoseconds departure = 0;
        nanoseconds arrival = 0;
        nanoseconds sender_free = 0; ///< set in a cluster
    };

    /// Sets `transfer_ns` and `lost`.
    Times send(SimulatedMessage& message, nanoseconds now) {
        message.lost = options_.loss > 0.0 && static_cast<double>(loss_.uniform()) < options_.loss;
        if (cluster_) return send_in_cluster(message, now);
        const Link link = link_of(message.from, message.to);
        const double transfer = static_cast<double>(message.envelope.bytes) * 1e9 / link.bytes_per_second;
        message.transfer_ns =
            static_cast<nanoseconds>(std::min(transfer + 0.5, static_cast<double>(SimulationOptions::longest)));
        nanoseconds start = now;
        const bool keeps_order = options_.jitter_ns != 0 && !options_.reorder;
        Pair* const pair =
            keeps_order || options_.contention == Contention::link ? &pair_of(message.from, message.to) : nullptr;
        if (options_.contention == Contention::link) {
            start = std::max(start, pair->free);
            pair->free = start + message.transfer_ns;
        } else if (options_.contention != Contention::none) {
            nanoseconds& free = out_free_[static_cast<std::size_t>(message.from)];
            start = std::max(start, free);
            free = start + message.transfer_ns;
        }
        Times times{.departure = start + message.transfer_ns};
        times.arrival = when_joined(message.from, message.to, times.departure + link.latency_ns + draw_jitter());
        if (keeps_order) {
            times.arrival = std::max(times.arrival, pair->last_arrival);
            pair->last_arrival = times.arrival;
        }
        return times;
    }

    /// The time when a message that would arrive at `arrival` does arrive: later if a partition
    /// separates the two ranks.
    [[nodiscard]] nanoseconds when_joined(int from, int to, nanoseconds arrival) const {
        for (const NetworkPartition& one : options_.partitions)
            if (arrival >= one.at_ns && arrival < one.at_ns + one.for_ns && one.has(from) != one.has(to))
                arrival = one.at_ns + one.for_ns + (arrival - one.at_ns) % 1000;
        return arrival;
    }
    /// The arrival of a small item that is no message of a group.
    [[nodiscard]] nanoseconds small_arrival(int from, int to, nanoseconds now) {
        return when_joined(from, to, now + small_way(from, to));
    }

    /// The arrival of an item of `bytes` bytes that is no message of a group. In a cluster it
    /// occupies the network as messages do.
    [[nodiscard]] nanoseconds arrival_of(int from, int to, std::size_t bytes, nanoseconds now) {
        if (!cluster_) return small_arrival(from, to, now);
        const auto size = static_cast<double>(bytes);
        const double arrival = cluster_->send(from, to, size, static_cast<double>(now)).arrival;
        return when_joined(from, to, rounded(arrival + options_.cluster->of(from, to).overhead(size)) + draw_jitter());
    }

    /// The time when a message that reaches its receiver at `now` is complete: later if the way in
    /// was busy.
    nanoseconds receive(const SimulatedMessage& message, nanoseconds now) {
        if (cluster_ || options_.contention != Contention::endpoints) return now;
        nanoseconds& free = in_free_[static_cast<std::size_t>(message.to)];
        return free = std::max(now, free + message.transfer_ns);
    }

    /// The time for which a message occupies the rank that receives it.
    [[nodiscard]] nanoseconds overhead(const SimulatedMessage& message) const {
        if (!cluster_) return 0;
        const MessageTimes& times = options_.cluster->of(message.from, message.to);
        return rounded(times.overhead(static_cast<double>(message.envelope.bytes)));
    }

    /// The time that a rank takes to access memory that ranks share: that of an empty message to
    /// its owner, rank 0.
    nanoseconds reach(int rank) { return small_way(rank, 0); }

private:
    struct Pair {
        nanoseconds free = 0;
        nanoseconds last_arrival = 0;
    };

    nanoseconds small_way(int from, int to) {
        return (cluster_ ? rounded(options_.cluster->of(from, to).one_way(0)) : link_of(from, to).latency_ns) +
               draw_jitter();
    }
    static nanoseconds rounded(double time) {
        return static_cast<nanoseconds>(std::min(time + 0.5, static_cast<double>(SimulationOptions::longest)));
    }

    Times send_in_cluster(const SimulatedMessage& message, nanoseconds now) {
        const auto bytes = static_cast<double>(message.envelope.bytes);
        const ClusterClock::Times times = cluster_->send(message.from, message.to, bytes, static_cast<double>(now));
        nanoseconds arrival = when_joined(message.from, message.to, rounded(times.arrival) + draw_jitter());
        if (options_.jitter_ns != 0 && !options_.reorder) {
            nanoseconds& last = pair_of(message.from, message.to).last_arrival;
            arrival = last = std::max(arrival, last);
        }
        return {rounded(times.sent), arrival, rounded(times.sender_free)};
    }

    Pair& pair_of(int from, int to) {
        return pairs_[(static_cast<std::uint64_t>(from) << 32) | static_cast<std::uint32_t>(to)];
    }

    [[nodiscard]] Link link_of(int from, int to) const {
        if (!options_.link_between) return options_.link;
        const Link link = options_.link_between(from, to);
        if (link.latency_ns < 0 || link.latency_ns > SimulationOptions::longest || !(link.bytes_per_second > 0.0))
            refuse_input({"SimulationOptions::link_between gave latency_ns ", link.latency_ns, " and bytes_per_second ",
                          link.bytes_per_second, " for ranks ", from, " to ", to,
                          ", expected at least 0 and more than 0"});
        return link;
    }

    nanoseconds draw_jitter() {
        if (options_.jitter_ns == 0) return 0;
        const std::uint64_t high = jitter_();
        const std::uint64_t draw = (high << 32) | jitter_();
        return static_cast<nanoseconds>(draw % (static_cast<std::uint64_t>(options_.jitter_ns) + 1));
    }

    const SimulationOptions& options_;
    std::optional<ClusterClock> cluster_;
    std::vector<nanoseconds> out_free_;
    std::vector<nanoseconds> in_free_;
    std::unordered_map<std::uint64_t, Pair> pairs_;
    CounterRandom jitter_;
    CounterRandom loss_;
};

} // namespace detail
UNISONO_NAMESPACE_END
