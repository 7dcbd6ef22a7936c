#pragma once

/// \file
/// A server of a served update (extensions/updates/served.hpp): receives pushes, and updates
/// parameters.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/arithmetic/scan.hpp"
#include "unisono/collective/point_to_point.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/update/update.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

enum class PushKind : std::uint64_t {
    gradient,    ///< a gradient follows
    empty,       ///< no data this time
    left_out,    ///< a guard left the gradient out
    synchronises ///< the worker has reached a synchronisation; not answered
};

/// The header of a push. `clock`: the worker's pushes before this one.
struct WorkerPush {
    PushKind kind = PushKind::empty;
    std::uint64_t clock = 0;
    double rate = 0;
    double divisor = 0; ///< the divisor of the gradient: the sum of its weights
    double largest = 0; ///< a bound on its magnitudes; 0: so small that no sum overflows
};

/// The header of an answer.
struct ServerAnswer {
    Verdict verdict = Verdict::empty; ///< commit: the push was applied
    bool late = false;                ///< the push was dropped
    std::array<std::uint8_t, 6> unused = {};
    std::uint64_t number = 0;    ///< updates of this server so far, including that of the push
    std::uint64_t staleness = 0; ///< staleness of the push's gradient
    std::uint64_t ahead = 0;     ///< clocks by which the worker is now ahead of the slowest
    /// The push was left out because the sum of this parameter's gradients is not finite.
    std::size_t not_finite = npos;
};
// They are sent as they are, so each byte has a value.
static_assert(sizeof(WorkerPush) == 40 && sizeof(ServerAnswer) == 40);

inline constexpr int push_tag = 0, gradient_tag = 1, answer_tag = 2, parameters_tag = 3;

/// Owns the elements in `training.owned()`, in the model's memory. When a worker may continue, the
/// server copies the parameters for it at once, so that all of them have the same version. Memory:
/// for each worker as much as this server owns; twice that if the policy compensates.
///
/// Determinism: the order in which pushes are served depends on which have arrived when the server
/// looks. If several have arrived, workers take turns.
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

    /// Serves until all workers have reached a synchronisation. `timeout` limits the time without a
    /// message.
    void serve(std::chrono::nanoseconds timeout) {
        for (std::size_t w = 0; w < clients_.size(); ++w) {
            Client& client = clients_[w];
            client.clock = 0;
            client.synchronises = client.waits = client.gradient_comes = false;
            client.version = version();
            client.round = round_;
            if constexpr (compensates) copy_parameters(client.read.data());
            listen(w);
        }
        for (std::size_t left = clients_.size(), next = 0; left != 0;) {
            const std::size_t w = Operation::wait_any({news_.data(), news_.size()}, next, timeout);
            next = (w + 1) % clients_.size();
            if (!heard(w, timeout)) continue; // a gradient follows
            Client& client = clients_[w];
            if (client.push.kind == PushKind::synchronises) {
                client.synchronises = true;
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
    static constexpr std::size_t chunk = 16384 / sizeof(T); ///< elements that fit the first-level cache

    /// A worker, as this server sees it.
    struct Client {
        WorkerPush push = {};
        ServerAnswer answer = {};
        Memory<T> values = {};     ///< the worker's gradient, then the parameters for it
        std::vector<T> read = {};  ///< the parameters that the worker has read; for compensation
        std::uint64_t version = 0; ///< the number of updates that the read parameters contain
        std::uint64_t round = 0;   ///< the round in which the worker read its parameters, if pushes are taken together
        std::uint64_t clock = 0;   ///< pushes of this worker since the last synchronisation
        bool synchronises = false; ///< the worker has reached a synchronisation
        bool waits = false;        ///< the worker waits for an answer
        bool gradient_comes = false; ///< the next message is a gradient, not a header
        Operation sent_head = {}, sent = {};
    };

    [[nodiscard]] std::uint64_t version() const { return training_->applied(); }

    void listen(std::size_t w) {
        clients_[w].gradient_comes = false;
        news_[w] = start_receive(*lane_, std::span(&clients_[w].push, 1), static_cast<int>(w), push_tag);
    }

    /// Handles a message of worker w. Returns true if the push is complete.
    bool heard(std::size_t w, std::chrono::nanoseconds timeout) {
        Client& client = clients_[w];
        if (client.gradient_comes) return true;
        client.sent_head.wait(timeout); // done: the worker continues, so it has received the last answer
        client.sent.wait(timeout);
        if (client.push.kind != PushKind::gradient || count_ == 0) return true;
        client.gradient_comes = true;
        news_[w] = start_receive(*lane_, std::span<T>(client.values.data(), count_), static_cast<int>(w), gradient_tag);
        return false;
    }

    /// Applies one push as one update.
    void take(Client& client) {
        client.answer = {.verdict = client.push.kind == PushKind::left_out ? Verdict::skip : Verdict::empty,
                         .number = version()};
        if (client.push.kind != PushKind::gradient) return;
        client.answer.staleness = version() - client.version;
        client.answer.not_finite = first_not_finite(client, client.push.largest);
        if constexpr (compensates) {
            if (client.answer.not_finite == npos) client.answer.not_finite = compensate(client);
        }
        if (client.answer.not_finite != npos) {
            client.answer.verdict = Verdict::skip;
            return;
        }
        update(client, compensates ? 1.0 : client.push.divisor);
        client.answer.verdict = Verdict::commit;
        client.answer.number = version();
    }

    /// Drops a push that came too late for its round.
    void drop(std::size_t w) {
        Client& client = clients_[w];
        client.answer = {.verdict = Verdict::skip,
                         .late = client.push.kind == PushKind::gradient,
                         .number = version(),
                         .staleness = version() - client.version};
        answer(w, slowest());
    }

    /// Takes the waiting pushes if there are enough: one for each worker still in training, less
    /// the backups. Once no more than `backups` workers are left, drops their pushes.
    ///
    /// Several servers may choose different pushes, and do not wait for each other: a server takes
    /// the pushes of the oldest round. If a worker does not wait at this server, it waits at
    /// another one, with parameters of a later round. So its push was dropped here, and at most
    /// `backups` workers can have missed that round.
    void take_if_enough() {
        std::size_t at_work = 0, waiting = 0, backups = 0;
        for (const Client& client : clients_) {
            at_work += client.synchronises ? 0 : 1;
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
    /// Makes one update of the waiting pushes. Makes none if a guard has left out one of them, or
    /// their sum is not finite. The learning rate is that of the worker with the most pushes.
    void take_together() {
        Client* first = nullptr;
        const Client* ahead = nullptr;
        double divisor = 0, largest = 0;
        bool left_out = false;
        for (Client& client : clients_) {
            if (!client.waits) continue;
            left_out = left_out || client.push.kind == PushKind::left_out;
            if (client.push.kind != PushKind::gradient) continue;
            divisor += client.push.divisor;
            largest += client.push.largest;
            if (first == nullptr) first = &client;
            if (ahead == nullptr || client.clock > ahead->clock) ahead = &client;
        }
        std::size_t not_finite = npos;
        Verdict verdict = left_out ? Verdict::skip : first == nullptr ? Verdict::empty : Verdict::commit;
        if (verdict == Verdict::commit) {
            const std::span<T> sum(first->values.data(), count_);
            for (Client* other = first + 1; other != clients_.data() + clients_.size(); ++other)
                if (other->waits && other->push.kind == PushKind::gradient)
                    accumulate(sum, std::span<const T>(other->values.data(), count_));
            not_finite = first_not_finite(*first, largest);
            first->push.rate = ahead->push.rate;
            if (not_finite == npos) update(*first, divisor);
            else verdict = Verdict::skip;
        }
        for (Client& client : clients_)
            if (client.waits) client.answer = {.verdict = verdict, .number = version(), .not_finite = not_finite};
        ++round_;
    }

    /// Returns the first parameter whose sum of gradients, in `client.values`, is not finite; or
    /// npos. `largest`: the sum of the bounds of all added gradients. With several servers, a
    /// server does not see the others' slices, so each leaves the update out by this bound alone. A
    /// server without a large element then returns the number of parameters.
    [[nodiscard]] std::size_t first_not_finite(const Client& client, double largest) const {
        if (largest <= static_cast<double>(std::numeric_limits<T>::max()) / 2) return npos;
        const std::span<const T> values(client.values.data(), count_);
        std::size_t found = first_non_finite(values);
        if (found == npos && policy_.servers == 1) return npos;
        if (found == npos) found = first_at_least(values, std::numeric_limits<T>::max_exponent / 2);
        return parameter_of(found);
    }
    /// The parameter of the `found`-th element that this server owns; for npos, the number of
    /// parameters.
    [[nodiscard]] std::size_t parameter_of(std::size_t found) const {
        const Layout& layout = training_->flat().layout();
        for (const Slice& slice : training_->owned()) {
            if (found < slice.count) return layout.element_at(slice.first + found).parameter;
            if (found != npos) found -= slice.count;
        }
        return layout.parameters();
    }

    [[nodiscard]] std::uint64_t slowest() const {
        std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
        for (const Client& client : clients_)
            if (!client.synchronises) least = std::min(least, client.clock);
        return least;
    }
    /// Answers the workers that may continue, in rank order.
    void answer() {
        const std::uint64_t least = slowest();
        for (std::size_t w = 0; w < clients_.size(); ++w)
            if (clients_[w].waits && policy_.goes_on(clients_[w].clock, least)) answer(w, least);
    }
    void answer(std::size_t w, std::uint64_t slowest) {
        Client& client = clients_[w];
        client.waits = false;
        client.answer.ahead = client.clock - slowest;
        const std::span<const ServerAnswer> head(&client.answer, 1);
        client.sent_head = start_send(*lane_, head, static_cast<int>(w), answer_tag);
        client.version = version();
        client.round = round_;
        if (count_ != 0) {
            copy_parameters(client.values.data());
            if constexpr (compensates)
                std::copy(client.values.data(), client.values.data() + count_, client.read.data());
            client.sent = start_send(*lane_, std::span<const T>(client.values.data(), count_), static_cast<int>(w),
                                     parameters_tag);
        }
        listen(w);
    }

    void copy_parameters(T* to) const {
        visit([&](const auto& one, std::size_t at) { std::copy(one.parameters, one.parameters + one.count, to + at); });
    }
    /// Calls visit(stretch, its offset among the elements that this server owns).
    template <class Visit>
    void visit(Visit visit) const {
        std::size_t at = 0;
        for (const Slice& slice : training_->owned())
            training_->flat().visit(slice, [&](const auto& one) {
                visit(one, at);
                at += one.count;
            });
    }

    /// Calls visit(offset among the elements that this server owns, parameters, gradients of
    /// `client`) for chunks that fit the first-level cache.
    template <class Visit>
    void in_chunks(Client& client, Visit visit_chunk) const {
        visit([&](const auto& one, std::size_t at) {
            for (std::size_t done = 0, n = 0; done < one.count; done += n) {
                n = std::min(chunk, one.count - done);
                visit_chunk(at + done, std::span<T>(one.parameters + done, n),
                            std::span<T>(client.values.data() + at + done, n));
            }
        });
    }

    /// Replaces the gradient in `client.values` by the mean gradient at the current parameters. If
    /// the guard looks at gradients, returns the first parameter of which the result is not finite;
    /// else npos.
    [[nodiscard]] std::size_t compensate(Client& client) const {
        std::size_t found = npos;
        in_chunks(client, [&](std::size_t at, std::span<T> parameters, std::span<T> gradients) {
            policy_.compensate(gradients, 1.0 / client.push.divisor, std::span<const T>(parameters),
                               std::span<const T>(client.read.data() + at, gradients.size()));
            if (!training_->guards_sums() || found != npos) return;
            if (const std::size_t first = first_non_finite(std::span<const T>(gradients)); first != npos)
                found = at + first;
        });
        return found == npos ? npos : parameter_of(found);
    }

    /// Applies the gradient in `client.values`, divided by `divisor`.
    void update(Client& client, double divisor) {
        training_->restore_applied(version() + 1);
        in_chunks(client, [&](std::size_t at, std::span<T> parameters, std::span<T> gradients) {
            training_->policies().update(training_->state().slice(at, gradients.size()), parameters.data(),
                                         gradients.data(), {client.push.rate, version(), 1.0 / divisor});
        });
    }

    World* lane_;
    Training* training_;
    Policy policy_;
    std::size_t count_ = 0;   ///< elements that this server owns
    std::uint64_t round_ = 0; ///< number of times that pushes were taken together
    std::vector<Client> clients_;
    std::vector<Operation> news_; ///< the next message from each worker
};

} // namespace detail
UNISONO_NAMESPACE_END
