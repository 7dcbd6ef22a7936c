#pragma once

/// \file
/// Predicts when the ranks of a collective end, by the model of
/// extensions/laboratory/cluster_model.hpp: the schedule's own rounds run in virtual time, without
/// data. transport/simulated runs whole programs, with data, by the same model. This header is for
/// figures of many ranks, up to 100,000; ranks with equal steps may be folded into one.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/cluster_model.hpp"
#include "unisono/schedule/schedule.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The result of `predict`.
struct Prediction {
    double seconds = 0;         ///< until the last rank is done
    double mean_seconds = 0;    ///< mean over ranks of the time until a rank is done, as osu_allreduce prints
    std::uint64_t messages = 0; ///< of all ranks
    std::uint64_t played = 0;   ///< rounds that were played; folded ranks count once
    friend bool operator==(const Prediction&, const Prediction&) = default;
};

namespace schedule {
namespace detail {

/// Plays the rounds of all ranks, or of the first `ranks` ranks, which stand for the others.
template <class Make>
class RoundPlayer {
public:
    RoundPlayer(const Make& make, int world, int ranks, std::uint64_t bytes, std::uint64_t element,
                const ClusterModel& model)
        : make_(make), world_(world), ranks_(ranks), element_(element), elements_(bytes / element), model_(model),
          states_(static_cast<std::size_t>(ranks)), clock_(model, ranks) {}

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
            found_.mean_seconds += state.time * 1e-9 / ranks_;
        }
        found_.messages *= static_cast<std::uint64_t>(world_ / ranks_);
        return found_;
    }

private:
    struct Receive {
        int peer = 0;
        bool combines = false;
        double bytes = 0;
    };
    struct State {
        std::uint32_t round = 0; ///< the next one
        std::uint32_t next = 0;  ///< index of the next receive
        bool waits = false;      ///< true while it waits for its receives
        double time = 0;
        double sent = 0;               ///< the time when all sends of the round are done
        std::vector<Receive> receives; ///< of the current round
        std::uint32_t first = none;    ///< index in `messages_` of the first message that was sent to it
        std::uint32_t last = none;
    };
    struct Message {
        double arrival = 0;
        int from = 0; ///< the played rank that sent it
        std::uint32_t next = none;
    };
    using Begin = std::pair<double, int>;
    static constexpr std::uint32_t none = 0xffffffff;

    State& at(int rank) { return states_[static_cast<std::size_t>(rank)]; }

    void put(State& receiver, int from, double arrival) {
        std::uint32_t index = free_;
        if (index == none) {
            index = static_cast<std::uint32_t>(messages_.size());
            messages_.emplace_back();
        } else free_ = messages_[index].next;
        messages_[index] = {arrival, from, none};
        (receiver.last == none ? receiver.first : messages_[receiver.last].next) = index;
        receiver.last = index;
    }

    /// The arrival of the first message from this peer to the receiver; removes the message. -1:
    /// there is none.
    double take(State& receiver, int from) {
        std::uint32_t before = none;
        for (std::uint32_t index = receiver.first; index != none; before = index, index = messages_[index].next) {
            if (messages_[index].from != from) continue;
            const Message found = messages_[index];
            (before == none ? receiver.first : messages_[before].next) = found.next;
            if (receiver.last == index) receiver.last = before;
            messages_[index].next = free_;
            free_ = index;
            return found.arrival;
        }
        return -1;
    }

    template <class Schedule>
    [[nodiscard]] double bytes_of(const Schedule& schedule, const Blocks& blocks) const {
        const std::uint64_t all = schedule.blocks();
        if (all == 0) return 0;
        const auto offset = [&](std::uint64_t i) { return i * (elements_ / all) + std::min(i, elements_ % all); };
        return static_cast<double>((offset(std::uint64_t{blocks.first} + blocks.count) - offset(blocks.first)) *
                                   element_);
    }

    /// A rank posts the sends of its round, and then receives. A round without messages costs only
    /// its combinations.
    void begin(int rank, double time) {
        const auto schedule = make_(Shape{world_, rank, 0});
        State& state = at(rank);
        state.time = time;
        if (state.round == schedule.rounds()) return;
        state.receives.clear();
        state.next = 0;
        state.sent = 0;
        ++found_.played;
        double own = 0;
        schedule.round(state.round, [&](const Step& step) {
            if (step.kind == StepKind::send) send(rank, step.peer, bytes_of(schedule, step.source));
            else if (step.kind == StepKind::receive || step.kind == StepKind::receive_combine)
                state.receives.push_back(
                    {step.peer, step.kind == StepKind::receive_combine, bytes_of(schedule, step.target)});
            else if (step.kind == StepKind::combine_ranks)
                own += bytes_of(schedule, step.target) * static_cast<double>(world_ - 1);
        });
        if (ranks_ != world_) expect_alike(schedule, rank, state.round);
        ++state.round;
        state.waits = true;
        state.time += own * model_.combine_ns_per_byte;
        receive(rank);
    }

    void send(int rank, int peer, double bytes) {
        State& state = at(rank);
        const unisono::detail::ClusterClock::Times times = clock_.send(rank, peer, bytes, state.time);
        state.time = times.sender_free;
        state.sent = std::max(state.sent, times.sent);
        ++found_.messages;
        const int receiver = peer % ranks_;
        put(at(receiver), rank, times.arrival);
        if (receiver != rank) receive(receiver);
    }

    /// Continues the receives of the current round, in order, for as many messages as have been
    /// sent.
    void receive(int rank) {
        State& state = at(rank);
        if (!state.waits) return;
        while (state.next != state.receives.size()) {
            const Receive& awaited = state.receives[state.next];
            const double arrival = take(state, awaited.peer % ranks_);
            if (arrival < 0) return;
            const double there = clock_.met(awaited.peer, rank, awaited.bytes, arrival, state.time);
            state.time = std::max(state.time, there) + model_.of(awaited.peer, rank).overhead(awaited.bytes) +
                         (awaited.combines ? awaited.bytes * model_.combine_ns_per_byte : 0);
            ++state.next;
        }
        state.waits = false;
        state.time = std::max(state.time, state.sent);
        begins_.push({state.time, rank});
    }

    /// Checks that the last rank of `rank`'s class does the same steps, with peers shifted by the
    /// distance between the two.
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
    std::uint64_t element_;
    std::uint64_t elements_;
    const ClusterModel& model_;
    std::vector<State> states_;
    unisono::detail::ClusterClock clock_;
    std::vector<Message> messages_;
    std::uint32_t free_ = none;
    std::priority_queue<Begin, std::vector<Begin>, std::greater<>> begins_;
    std::vector<std::pair<int, double>> mine_;
    std::vector<std::pair<int, double>> other_;
    Prediction found_;
};

} // namespace detail

/// The time that `world` ranks take for the schedule that `make(Shape)` returns for each, on
/// `bytes` bytes in all blocks together.
///
/// `stand_for_all`: only the first `stand_for_all` ranks are played; rank r stands for every rank r
/// + k * stand_for_all. 0: all ranks are played. Ranks of one class must have the same steps, with
/// peers shifted by their distance: a ring, on whole hosts, with equal blocks. In each round one
/// rank of each class is compared with another.
/// Cost: time and memory are proportional to the messages of the played ranks. Depends only on its
/// arguments.
/// \throws error bad_input: a bad model; elements of no bytes; ranks that cannot stand for others
template <class Make>
Prediction predict(const Make& make, int world, std::uint64_t bytes, const ClusterModel& model, int stand_for_all = 0,
                   std::uint64_t element_bytes = 1) {
    model.check();
    if (world < 1) refuse_input({"predict: a world of ", world, " ranks, expected at least 1"});
    if (element_bytes < 1) refuse_input("predict: elements of 0 bytes, expected at least 1");
    const auto first = make(Shape{world, 0, 0});
    static_assert(!first.mapped, "found: a schedule over mapped memory; required: one of messages");
    int ranks = world;
    if (stand_for_all != 0) {
        ranks = stand_for_all;
        const bool whole = ranks > 0 && world % ranks == 0 && ranks % model.ranks_per_host == 0;
        if (!whole)
            refuse_input({"predict: ", ranks, " ranks are to stand for ", world, " on hosts of ", model.ranks_per_host,
                          "; expected whole hosts that divide the world"});
        if (first.blocks() != 0 && bytes % (first.blocks() * element_bytes) != 0)
            refuse_input({"predict: ", bytes, " bytes in ", first.blocks(),
                          " blocks; expected equal blocks, since ranks stand for others"});
    }
    return detail::RoundPlayer<Make>(make, world, ranks, bytes, element_bytes, model).play();
}

} // namespace schedule

UNISONO_NAMESPACE_END
