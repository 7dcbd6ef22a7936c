#pragma once

/// \file
/// When the ranks of a collective are done, by LogGP with hosts: the schedule's own rounds, played in virtual time without data. A message
/// costs its sender and its receiver an overhead, takes a latency that depends on its size, and goes through the network cards of two
/// hosts, which all ranks of a host share. (Culler et al. 1993; Alexandrov et al. 1995)
///
/// `estimate` (schedule/cost.hpp) is a formula in one rank's cost and chooses between schedules; transport/simulated runs programs with
/// their data. This one is for figures of many ranks: 100,000 of them, where ranks that do the same may be folded into one.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/schedule/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// What a message between two ranks costs, in one kind of place: on one host, or between hosts.
struct MessageTimes {
    double overhead_ns = 0; ///< in which its sender can do nothing else, and its receiver
    /// From the call of the send to the end of the receive, overheads included, of a message that meets no other: bytes and nanoseconds, in
    /// the order of sizes; straight lines between them, and beyond the last one. As a ping-pong measures it.
    std::vector<std::pair<double, double>> one_way = {};

    friend bool operator==(const MessageTimes&, const MessageTimes&) = default;

    [[nodiscard]] double time(double bytes) const {
        if (one_way.size() == 1 || bytes <= one_way.front().first) return one_way.front().second;
        std::size_t i = 1;
        while (i + 1 < one_way.size() && one_way[i].first < bytes) ++i;
        const auto& [from, before] = one_way[i - 1];
        const auto& [to, after] = one_way[i];
        return before + (after - before) * (bytes - from) / (to - from);
    }
};

/// A cluster of hosts with the same number of ranks; rank r is on host r / ranks_per_host.
struct ClusterModel {
    int ranks_per_host = 1;
    MessageTimes within;
    MessageTimes between;
    double card_gap_ns = 0;         ///< between two messages through a host's card, in each direction
    double card_ns_per_byte = 0;    ///< of all that goes through it in a direction
    double combine_ns_per_byte = 0; ///< of one operand combined with another

    friend bool operator==(const ClusterModel&, const ClusterModel&) = default;

    /// \throws error bad_input: a time that is negative or not finite, sizes out of order, hosts without ranks
    void check() const {
        if (ranks_per_host < 1)
            refuse_input({"ClusterModel::ranks_per_host is ", ranks_per_host, ", expected at least 1"});
        const auto time = [](const std::string& name, double value) {
            if (!std::isfinite(value) || value < 0)
                refuse_input({"ClusterModel::", name, " is ", value, ", expected a finite time of at least 0"});
        };
        time("card_gap_ns", card_gap_ns);
        time("card_ns_per_byte", card_ns_per_byte);
        time("combine_ns_per_byte", combine_ns_per_byte);
        for (const MessageTimes* times : {&within, &between}) {
            const std::string name = times == &within ? "within" : "between";
            time(name + ".overhead_ns", times->overhead_ns);
            if (times->one_way.empty())
                refuse_input({"ClusterModel::", name, ".one_way is empty, expected at least one time"});
            for (std::size_t i = 0; i < times->one_way.size(); ++i) {
                time(name + ".one_way", times->one_way[i].second);
                if (i != 0 && !(times->one_way[i].first > times->one_way[i - 1].first))
                    refuse_input({"ClusterModel::", name, ".one_way has ", times->one_way[i].first, " bytes after ",
                                  times->one_way[i - 1].first, ", expected sizes in ascending order"});
            }
        }
    }
};

/// What `predict` found.
struct Prediction {
    double seconds = 0;         ///< until the last rank is done
    std::uint64_t messages = 0; ///< of all ranks
    std::uint64_t played = 0;   ///< rounds that were played: of folded ranks those of one
    friend bool operator==(const Prediction&, const Prediction&) = default;
};

namespace schedule {
namespace detail {

/// Plays the rounds of all ranks, or of the first `ranks` of them, which stand for all.
template <class Make>
class RoundPlayer {
public:
    RoundPlayer(const Make& make, int world, int ranks, std::uint64_t bytes, const ClusterModel& model)
        : make_(make), world_(world), ranks_(ranks), bytes_(bytes), model_(model),
          states_(static_cast<std::size_t>(ranks)), out_free_(hosts()), in_free_(hosts()) {}

    Prediction play() {
        for (int rank = 0; rank < ranks_; ++rank) begins_.push({0.0, rank});
        while (!begins_.empty()) {
            const auto [time, rank] = begins_.top();
            begins_.pop();
            begin(rank, time);
        }
        for (int rank = 0; rank < ranks_; ++rank) {
            const State& state = at(rank);
            if (state.next != state.receives.size())
                refuse_input({"predict: rank ", rank, " waits for ever for rank ", state.receives[state.next].peer,
                              " in round ", state.round - 1});
            found_.seconds = std::max(found_.seconds, state.time * 1e-9);
        }
        found_.messages *= static_cast<std::uint64_t>(world_ / ranks_);
        return found_;
    }

private:
    struct Receive {
        int peer = 0;
        double combined = 0; ///< bytes
    };
    struct State {
        std::uint32_t round = 0; ///< the next one
        double time = 0;
        std::vector<Receive> receives; ///< of the round that is under way
        std::size_t next = 0;
    };
    using Begin = std::pair<double, int>;

    [[nodiscard]] std::size_t hosts() const {
        return static_cast<std::size_t>((ranks_ - 1) / model_.ranks_per_host + 1);
    }
    State& at(int rank) { return states_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] int host(int rank) const { return rank / model_.ranks_per_host; }
    [[nodiscard]] std::size_t played_host(int rank) const { return static_cast<std::size_t>(host(rank % ranks_)); }
    std::vector<double>& arrivals(int from, int to) {
        return channels_[static_cast<std::uint64_t>(from % ranks_) << 32 | static_cast<std::uint32_t>(to % ranks_)];
    }

    template <class Schedule>
    [[nodiscard]] double bytes_of(const Schedule& schedule, const Blocks& blocks) const {
        const std::uint64_t all = schedule.blocks();
        if (all == 0) return 0;
        const auto offset = [&](std::uint64_t i) { return i * (bytes_ / all) + std::min(i, bytes_ % all); };
        return static_cast<double>(offset(std::uint64_t{blocks.first} + blocks.count) - offset(blocks.first));
    }

    /// A rank sends what a round has to send, and then receives; a round without messages costs its combinations.
    void begin(int rank, double time) {
        const auto schedule = make_(Shape{world_, rank, 0});
        State& state = at(rank);
        state.time = time;
        if (state.round == schedule.rounds()) return;
        state.receives.clear();
        state.next = 0;
        ++found_.played;
        double own = 0;
        schedule.round(state.round, [&](const Step& step) {
            if (step.kind == StepKind::send) send(rank, step.peer, bytes_of(schedule, step.source));
            else if (step.kind == StepKind::receive) state.receives.push_back({step.peer, 0});
            else if (step.kind == StepKind::receive_combine)
                state.receives.push_back({step.peer, bytes_of(schedule, step.target)});
            else if (step.kind == StepKind::combine_ranks)
                own += bytes_of(schedule, step.target) * static_cast<double>(world_ - 1);
        });
        if (ranks_ != world_) expect_alike(schedule, rank, state.round);
        ++state.round;
        state.time += own * model_.combine_ns_per_byte;
        receive(rank);
    }

    void send(int rank, int peer, double bytes) {
        State& state = at(rank);
        const bool local = host(rank) == host(peer);
        const MessageTimes& times = local ? model_.within : model_.between;
        double arrival = state.time + times.time(bytes) - times.overhead_ns; // its receiver adds its own overhead
        state.time += times.overhead_ns;
        ++found_.messages;
        if (!local) {
            const double occupied = std::max(model_.card_gap_ns, bytes * model_.card_ns_per_byte);
            double& out = out_free_[played_host(rank)];
            const double late = std::max(0.0, out - (state.time - times.overhead_ns));
            out = std::max(out, state.time - times.overhead_ns) + occupied;
            double& in = in_free_[played_host(peer)];
            arrival = std::max(arrival + late, in + occupied);
            in = arrival;
        }
        arrivals(rank, peer).push_back(arrival);
        const int receiver = peer % ranks_;
        if (receiver != rank) receive(receiver);
    }

    /// Goes on with the receives of the round that is under way, in their order, as far as messages have been sent.
    void receive(int rank) {
        State& state = at(rank);
        if (state.round == 0) return;
        const bool was_done = state.next == state.receives.size();
        if (was_done && !state.receives.empty()) return;
        while (state.next != state.receives.size()) {
            const Receive& awaited = state.receives[state.next];
            std::vector<double>& sent = arrivals(awaited.peer, rank);
            if (sent.empty()) return;
            const MessageTimes& times = host(rank) == host(awaited.peer) ? model_.within : model_.between;
            state.time =
                std::max(state.time, sent.front()) + times.overhead_ns + awaited.combined * model_.combine_ns_per_byte;
            sent.erase(sent.begin());
            ++state.next;
        }
        begins_.push({state.time, rank});
    }

    /// The rank that is farthest away among those for which `rank` stands must do the same, so many ranks further on.
    template <class Schedule>
    void expect_alike(const Schedule& schedule, int rank, std::uint32_t round) {
        const int other = rank + (world_ / ranks_ - 1) * ranks_;
        const auto theirs = make_(Shape{world_, other, 0});
        const auto list = [&](const auto& of, int from, std::vector<std::pair<int, double>>& into) {
            into.clear();
            of.round(round, [&](const Step& step) {
                const int away = step.peer < 0 ? step.peer : (step.peer - from + world_) % world_;
                const double bytes = bytes_of(of, step.kind == StepKind::send ? step.source : step.target);
                into.push_back({static_cast<int>(step.kind) * 2 * world_ + away, bytes});
            });
        };
        list(schedule, rank, mine_);
        list(theirs, other, other_);
        if (mine_ != other_)
            refuse_input({"predict: rank ", rank, " cannot stand for rank ", other,
                          ", which does something else in round ", round,
                          "; expected a schedule in which all ranks do the same"});
    }

    const Make& make_;
    int world_;
    int ranks_;
    std::uint64_t bytes_;
    const ClusterModel& model_;
    std::vector<State> states_;
    std::vector<double> out_free_;
    std::vector<double> in_free_;
    std::unordered_map<std::uint64_t, std::vector<double>> channels_; ///< arrivals, by sender and receiver
    std::priority_queue<Begin, std::vector<Begin>, std::greater<>> begins_;
    std::vector<std::pair<int, double>> mine_;
    std::vector<std::pair<int, double>> other_;
    Prediction found_;
};

} // namespace detail

/// How long `world` ranks take for the schedule that `make(Shape)` gives each of them, on `bytes` in all blocks together.
///
/// `stand_for_all`: only so many ranks are played, each for all that are a multiple of so many ranks further on; 0: all are. They must do the
/// same, so many ranks further on: a ring, on whole hosts, with equal blocks. One rank of each class is compared with another in each round.
/// Cost: time and memory as the messages of the ranks that are played. Depends on nothing but its arguments.
/// \throws error bad_input: a bad model; a schedule of mapped memory; ranks that cannot stand for others
template <class Make>
Prediction predict(const Make& make, int world, std::uint64_t bytes, const ClusterModel& model, int stand_for_all = 0) {
    model.check();
    if (world < 1) refuse_input({"predict: a world of ", world, " ranks, expected at least 1"});
    const auto first = make(Shape{world, 0, 0});
    static_assert(!first.mapped, "found: a schedule over mapped memory; required: one of messages");
    int ranks = world;
    if (stand_for_all != 0) {
        ranks = stand_for_all;
        const bool whole = ranks > 0 && world % ranks == 0 && ranks % model.ranks_per_host == 0;
        if (!whole)
            refuse_input({"predict: ", ranks, " ranks are to stand for ", world, " on hosts of ", model.ranks_per_host,
                          "; expected whole hosts that divide the world"});
        if (first.blocks() != 0 && bytes % first.blocks() != 0)
            refuse_input({"predict: ", bytes, " bytes in ", first.blocks(),
                          " blocks; expected equal blocks, where ranks stand for others"});
    }
    return detail::RoundPlayer<Make>(make, world, ranks, bytes, model).play();
}

} // namespace schedule

UNISONO_NAMESPACE_END
