#pragma once

/// \file
/// The times at which simulated messages leave and arrive; and the memory of messages in flight.

#include "unisono/core/random.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/cluster_model.hpp"
#include "unisono/extensions/simulated/options.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

UNISONO_NAMESPACE_BEGIN
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
        if (envelope.bytes != 0) {
            std::memcpy(message.payload != nullptr ? message.payload : message.small.data(), data, envelope.bytes);
        }
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
        if (link.latency_ns < 0 || link.latency_ns > SimulationOptions::longest || !(link.bytes_per_second > 0.0)) {
            refuse_input({"SimulationOptions::link_between gave latency_ns ", link.latency_ns, " and bytes_per_second ",
                          link.bytes_per_second, " for ranks ", from, " to ", to,
                          ", expected at least 0 and more than 0"});
        }
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
