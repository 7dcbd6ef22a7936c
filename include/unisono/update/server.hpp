#pragma once

/// \file
/// A server of an update that servers make (update/served.hpp): from pushes to parameters.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/collective/point_to_point.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/update/service_messages.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Owns what `training.owned()` says, in the model's memory. What a worker reads is copied out at once, so that it is of one moment.
/// Memory: for each worker as much as this server owns; twice where the policy compensates.
///
/// Determinism: what is served in what order depends on what has arrived when the server looks; of several, workers take turns.
template <class Training, class Policy>
class Server {
    using World = typename Training::World;
    using T = typename Training::Element;

public:
    Server(World& lane, Training& training, const Policy& policy, int workers)
        : lane_(&lane), training_(&training), policy_(policy), clients_(static_cast<std::size_t>(workers)),
          news_(clients_.size()) {
        for (const Slice& slice : training.owned()) count_ += slice.count;
        for (Client& client : clients_) {
            client.values = lane.template allocate<T>(count_);
            if constexpr (compensates) client.read.resize(count_);
        }
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// Serves until all workers have said that they meet. `timeout`: without any news.
    void serve(std::chrono::nanoseconds timeout) {
        for (std::size_t w = 0; w < clients_.size(); ++w) {
            Client& client = clients_[w];
            client.clock = 0;
            client.met = client.waits = client.gradient_comes = false;
            client.version = version();
            client.round = round_;
            if constexpr (compensates) copy_parameters(client.read.data());
            listen(w);
        }
        for (std::size_t left = clients_.size(), next = 0; left != 0;) {
            const std::size_t w = Operation::wait_any(news_, next, timeout);
            next = (w + 1) % clients_.size();
            if (!heard(w, timeout)) continue; // its gradient follows
            Client& client = clients_[w];
            if (client.push.kind == PushKind::meets) {
                client.met = true;
                --left;
            } else {
                ++client.clock;
                client.waits = true;
                if (!policy_.together()) take(client);
                else if (client.round != round_) drop(w);
            }
            if (policy_.together()) take_if_enough();
            else answer();
        }
        for (Client& client : clients_) client.sent_head.wait(timeout), client.sent.wait(timeout);
    }

    [[nodiscard]] std::size_t bytes() const { return clients_.size() * count_ * sizeof(T) * (compensates ? 2 : 1); }

private:
    static constexpr bool compensates = requires { requires Policy::compensates; };
    static constexpr std::size_t chunk = 16384 / sizeof(T); ///< elements that stay in the first cache

    /// A worker, as this server knows it.
    struct Client {
        PushHead head = {};
        AnswerHead answer_head = {};
        WorkerPush push = {};
        ServerAnswer answer = {};
        Memory<T> values = {};       ///< its gradient, then its parameters
        std::vector<T> read = {};    ///< the parameters that it has; to compensate
        std::uint64_t version = 0;   ///< of the parameters that it has
        std::uint64_t round = 0;     ///< likewise; where pushes are taken together
        std::uint64_t clock = 0;     ///< its pushes since the ranks met
        bool met = false;            ///< it has come to meet
        bool waits = false;          ///< for an answer
        bool gradient_comes = false; ///< what is awaited is a gradient, not a head
        Operation sent_head = {}, sent = {};
    };

    [[nodiscard]] std::uint64_t version() const { return training_->applied(); }

    void listen(std::size_t w) {
        clients_[w].gradient_comes = false;
        news_[w] = start_receive(*lane_, clients_[w].head, static_cast<int>(w), push_tag);
    }

    /// Something of worker w has come. True once the push is complete.
    bool heard(std::size_t w, std::chrono::nanoseconds timeout) {
        Client& client = clients_[w];
        if (client.gradient_comes) return true;
        client.push = unpack_push(client.head);
        client.sent_head.wait(timeout); // it has what it was sent, since it goes on
        client.sent.wait(timeout);
        if (client.push.kind != PushKind::gradient || count_ == 0) return true;
        client.gradient_comes = true;
        news_[w] = start_receive(*lane_, std::span<T>(client.values.data(), count_), static_cast<int>(w), gradient_tag);
        return false;
    }

    /// One push, by itself.
    void take(Client& client) {
        client.answer = {.verdict = client.push.kind == PushKind::left_out ? Verdict::skip : Verdict::empty,
                         .number = version()};
        if (client.push.kind != PushKind::gradient) return;
        client.answer.staleness = version() - client.version;
        update(client, client.push.divisor);
        client.answer.verdict = Verdict::commit;
        client.answer.number = version();
    }

    /// A push for which the others did not wait.
    void drop(std::size_t w) {
        Client& client = clients_[w];
        client.answer = {.verdict = Verdict::skip,
                         .number = version(),
                         .staleness = version() - client.version,
                         .late = client.push.kind == PushKind::gradient};
        answer(w, slowest());
    }

    /// Those of all that are still at work are enough, but for the backups; and once only so many are left, theirs come too late.
    ///
    /// Servers that choose differently do not wait for each other: take the one whose last round is the oldest. Who does not wait there waits
    /// at another, with parameters of after that; so its push was dropped here, and no more workers can have missed that round than there
    /// are backups.
    void take_if_enough() {
        std::size_t at_work = 0, waiting = 0, backups = 0;
        for (const Client& client : clients_) {
            at_work += client.met ? 0 : 1;
            waiting += client.waits ? 1 : 0;
        }
        if constexpr (requires { policy_.backups; }) backups = static_cast<std::size_t>(policy_.backups);
        if (waiting == 0) return;
        if (at_work <= backups) {
            for (std::size_t w = 0; w < clients_.size(); ++w)
                if (clients_[w].waits) drop(w);
        } else if (waiting + backups >= at_work) {
            take_together();
            answer();
        }
    }
    /// The pushes that wait: one update, or none if a guard has left out one. The rate is that of who has pushed most.
    void take_together() {
        Client* first = nullptr;
        const Client* ahead = nullptr;
        double divisor = 0;
        bool left_out = false;
        for (Client& client : clients_) {
            if (!client.waits) continue;
            left_out = left_out || client.push.kind == PushKind::left_out;
            if (client.push.kind != PushKind::gradient) continue;
            divisor += client.push.divisor;
            if (first == nullptr) first = &client;
            if (ahead == nullptr || client.clock > ahead->clock) ahead = &client;
        }
        const Verdict verdict = left_out ? Verdict::skip : first == nullptr ? Verdict::empty : Verdict::commit;
        if (verdict == Verdict::commit) {
            const std::span<T> sum(first->values.data(), count_);
            for (Client* other = first + 1; other != clients_.data() + clients_.size(); ++other)
                if (other->waits && other->push.kind == PushKind::gradient)
                    accumulate(sum, std::span<const T>(other->values.data(), count_));
            first->push.rate = ahead->push.rate;
            update(*first, divisor);
        }
        for (Client& client : clients_)
            if (client.waits) client.answer = {.verdict = verdict, .number = version()};
        ++round_;
    }

    [[nodiscard]] std::uint64_t slowest() const {
        std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
        for (const Client& client : clients_)
            if (!client.met) least = std::min(least, client.clock);
        return least;
    }
    /// Answers the workers that may go on, in the order of ranks.
    void answer() {
        const std::uint64_t least = slowest();
        for (std::size_t w = 0; w < clients_.size(); ++w)
            if (clients_[w].waits && policy_.goes_on(clients_[w].clock, least)) answer(w, least);
    }
    void answer(std::size_t w, std::uint64_t slowest) {
        Client& client = clients_[w];
        client.waits = false;
        client.answer.ahead = client.clock - slowest;
        client.answer_head = pack(client.answer);
        client.sent_head = start_send(*lane_, client.answer_head, static_cast<int>(w), answer_tag);
        client.version = version();
        client.round = round_;
        if (count_ != 0) {
            copy_parameters(client.values.data());
            if constexpr (compensates) std::copy_n(client.values.data(), count_, client.read.data());
            client.sent = start_send(*lane_, std::span<const T>(client.values.data(), count_), static_cast<int>(w),
                                     parameters_tag);
        }
        listen(w);
    }

    void copy_parameters(T* to) const {
        visit([&](const auto& one, std::size_t at) { std::copy_n(one.parameters, one.count, to + at); });
    }
    /// Calls visit(one, its place among what this server owns).
    template <class Visit>
    void visit(Visit visit) const {
        std::size_t at = 0;
        for (const Slice& slice : training_->owned())
            training_->flat().visit(slice, [&](const auto& one) {
                visit(one, at);
                at += one.count;
            });
    }

    /// Applies what lies in `client.values`, divided by `divisor`.
    void update(Client& client, double divisor) {
        const auto& policies = training_->policies();
        training_->restore_applied(version() + 1);
        visit([&](const auto& one, std::size_t at) {
            for (std::size_t done = 0, n = 0; done < one.count; done += n) {
                n = std::min(chunk, one.count - done);
                const std::span<T> parameters(one.parameters + done, n);
                const std::span<T> gradients(client.values.data() + at + done, n);
                double scale = 1.0 / divisor;
                if constexpr (compensates) {
                    policy_.compensate(gradients, scale, std::span<const T>(parameters),
                                       std::span<const T>(client.read.data() + at + done, n));
                    scale = 1;
                }
                using Clipping = std::remove_cvref_t<decltype(policies.clipping)>;
                if constexpr (Clipping::changes_elements) {
                    policies.clipping.clip(gradients, scale);
                    scale = 1;
                }
                policies.optimizer.update(training_->state().slice(at + done, n), parameters,
                                          std::span<const T>(gradients), {client.push.rate, version(), scale});
            }
        });
    }

    World* lane_;
    Training* training_;
    Policy policy_;
    std::size_t count_ = 0;   ///< elements that this server owns
    std::uint64_t round_ = 0; ///< pushes were taken together so many times
    std::vector<Client> clients_;
    std::vector<Operation> news_; ///< of each worker, what is awaited
};

} // namespace detail
UNISONO_NAMESPACE_END
