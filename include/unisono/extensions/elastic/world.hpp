#pragma once

/// \file
/// A world that outlives its ranks: when ranks are lost, the others form the next world.

#include "unisono/extensions/elastic/memory.hpp"
#include "unisono/extensions/elastic/network_medium.hpp"
#include "unisono/extensions/hosts/world.hpp"
#include "unisono/group/run.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Names a transport whose worlds can follow one another: `un::join<un::Elastic<un::Tcp>>()`.
template <class Transport>
struct Elastic {
    using transport = Transport;
};

/// One change of an elastic world, as this rank saw it.
struct WorldChange {
    std::uint64_t epoch = 0;             ///< epoch of the new membership; the first world has 0
    std::vector<int> lost = {};          ///< numbers of the ranks that are no longer in it
    std::vector<int> joined = {};        ///< numbers of the ranks that were added
    std::uint64_t updates = 0;           ///< number of updates that this rank had committed
    std::chrono::nanoseconds took{};     ///< time from the fault until the new group was formed. Its parts:
    std::chrono::nanoseconds ending{};   ///< until the old group had ended,
    std::chrono::nanoseconds agreeing{}; ///< then until its members had agreed; the rest is the rendezvous
    /// From then until the trainer continued, including the transfer of state to ranks that were
    /// behind.
    std::chrono::nanoseconds starting{};
    std::string why = {}; ///< the fault that ended the old world

    /// Time from the fault until the training continued.
    [[nodiscard]] std::chrono::nanoseconds recovery() const { return took + starting; }
    /// One line without its end: "membership 2, after update 40: lost rank 0, added rank 5; 34.5 ms
    /// (ending 0.1, agreeing 1.9, forming 30.0, starting 2.5)".
    [[nodiscard]] std::string text() const {
        const auto ms = [](std::chrono::nanoseconds time) {
            return fixed_text(static_cast<double>(time.count()) * 1e-6, 1);
        };
        const auto numbers = [](const char* what, const std::vector<int>& ranks) {
            return ranks.empty() ? std::string() : concat({what, detail::list_of(ranks)});
        };
        const std::string left = numbers("lost ", lost), came = numbers("added ", joined);
        const std::string_view between = left.empty() || came.empty() ? "" : ", ";
        const std::string_view same = left.empty() && came.empty() ? "the same ranks" : "";
        return concat({"membership ", epoch, ", after update ", updates, ": ", left, between, came, same, "; "}) +
               concat({ms(recovery()), " ms (ending ", ms(ending), ", agreeing ", ms(agreeing), ", forming ",
                       ms(took - ending - agreeing), ", starting ", ms(starting), ")"});
    }
};

namespace detail {

[[noreturn]] inline void throw_in_no_world() {
    throw error(ErrorCode::refused, "this rank is no longer in a world: an earlier call threw the reason");
}

} // namespace detail

/// Ranks that may be lost and added. Move-only. The trainer over it continues when ranks are lost,
/// and takes in processes that wait.
///
/// Laws
/// - A rank whose process has ended is dead if its own host says so: this rank, or another one on
///   that host. Then any number of the others continue. Nothing that comes from another host proves
///   a death (but see ElasticOptions::trust_resets). If ranks are only silent (stopped, cut off, or
///   the last one on their host), a majority of the last membership continues, or the half with its
///   lowest rank, and the others end with an error. So there are not two worlds, but for the two
///   cases of docs/elastic.md.
/// - A rank has another number in each world (`rank()`), and a permanent one (`number()`), which no
///   other rank ever gets.
/// - A process that was left behind, or has ended, can come back only as a new rank:
///   `ElasticOptions::joins`.
///
/// Errors of calls that lose a rank and cannot continue, on the ranks concerned: aborted (this rank
/// was left behind), timeout (no majority answers), refused (fewer ranks than
/// `ElasticOptions::least`), peer_lost (this rank was added, and no rank could give it the state).
/// Errors of a process that waits to be added: timeout (no world takes it in), refused (another
/// program, or another version of the library).
template <transport Transport>
class ElasticWorld {
public:
    using transport_type = Transport;

    explicit ElasticWorld(std::unique_ptr<detail::Formation<Transport>> formation)
        : formation_(std::move(formation)), formed_(formation_->first()), fresh_(formed_->epoch != 0),
          new_here_(formed_->is_new_here) {
        number_ = number_in(*formed_);
    }
    ElasticWorld(ElasticWorld&&) noexcept = default;
    ElasticWorld& operator=(ElasticWorld&&) = delete;

    /// The rank in the current world; -1 if this rank could not continue.
    [[nodiscard]] int rank() const { return formed_ ? formed_->group.rank() : -1; }
    [[nodiscard]] int size() const {
        return formed_ ? formed_->group.size() : 0;
    } ///< 0 if this rank could not continue
    /// This rank's number in the first world, or the one that it got when it was added.
    [[nodiscard]] int number() const { return number_; }
    [[nodiscard]] std::uint64_t epoch() const { return formed().epoch; }
    /// A number that the ranks of this job have, and no other job.
    [[nodiscard]] std::uint64_t job() const { return static_cast<void>(formed()), formation_->job(); }
    /// The numbers of the current ranks, in their order.
    [[nodiscard]] const std::vector<int>& members() const { return formed().members; }
    [[nodiscard]] const std::vector<WorldChange>& changes() const { return changes_; }
    /// The current group, for collectives. It belongs to one epoch: after a change there is another
    /// group.
    [[nodiscard]] Group<Transport>& group() {
        static_cast<void>(formed());
        return formed_->group;
    }
    /// The most advanced rank, after a change of the world.
    [[nodiscard]] int source() const { return formed().source; }
    /// True if ranks of this world may have committed different numbers of updates: until `settle`.
    /// Before it, no other collective is allowed.
    [[nodiscard]] bool is_fresh() const { return fresh_; }
    void settle() { fresh_ = new_here_ = false; }
    /// True if this rank was added and has no state of the training yet: until `settle`.
    [[nodiscard]] bool is_new_here() const { return new_here_; }
    /// Called between two updates. If processes wait to be added, the world ends, and all ranks
    /// form the next one with them.
    void take_in_applicants() {
        static_cast<void>(formed());
        if (!formation_->look_for_applicants()) return;
        abort({.code = ErrorCode::peer_lost,
               .rank = rank(),
               .operation = "elastic",
               .sequence = epoch(),
               .message = concat({"rank ", rank(), " adds the ranks that wait; all ranks form the next world"})});
        if (size() == 1) formed_->group.check(); // a rank alone waits for no other, and would not notice a fault
    }
    /// Sets the number of ranks for which the training has work. Before the first call no process
    /// is added. The same on all ranks.
    void take_in_at_most(int ranks) {
        static_cast<void>(formed());
        formation_->take_in_at_most(ranks);
    }
    /// Sets whether the training is complete, so that processes that come later have nothing to do
    /// (`training_has_ended`), if the world ends without an exception. `fit` sets true, unless a
    /// signal stopped it; a loop of your own may. It matters if UNISONO_JOINS is auto.
    void set_complete(bool complete) {
        if (formation_) formation_->set_complete(complete);
    }
    [[nodiscard]] bool is_complete() const { return formation_ && formation_->is_complete(); }
    /// Ends this rank's part after an exception: the others need not wait for it.
    void end_by_exception() {
        abort({.code = ErrorCode::aborted,
               .rank = rank(),
               .operation = "Trainer",
               .message = concat({"an exception ended the trainer of rank ", rank()})});
    }
    /// Why this rank's device has failed; empty: it works, or there is none.
    [[nodiscard]] std::string device_failure() const {
        return formed_ ? detail::failure_of_device(formed_->group.endpoint()) : std::string();
    }
    /// Ends this rank's part: the others need not wait for it.
    void leave() {
        formed_.reset();
        formation_.reset();
    }
    /// Registers the world's trainer. Only one is allowed: the state that passes from world to
    /// world is that of one trainer, and a rank that is behind or was added could not distinguish
    /// two.
    void begin_trainer() {
        if (std::exchange(has_trainer_, true))
            refuse_input("Trainer: found a second trainer over an elastic world; expected one per world, which may "
                         "make several calls of fit");
    }
    /// Called when the trainer could not begin.
    void end_trainer() { has_trainer_ = false; }
    /// The time by the clock that measures changes.
    [[nodiscard]] nanoseconds now() const { return static_cast<void>(formed()), formation_->now(); }
    /// Called when the trainer has begun in the world of the last change, this long after it was
    /// formed.
    void started(std::chrono::nanoseconds after) {
        if (!changes_.empty()) changes_.back().starting = after;
    }

    /// Memory for the model. It does not move when the world changes. After a change peers no
    /// longer map it, and messages from it are copied.
    template <element E>
    [[nodiscard]] Memory<E> allocate(std::size_t count) {
        return group().template allocate<E>(count);
    }
    void abort(const Fault& fault) {
        if (formed_) formed_->group.abort(fault);
    }

    /// True if a thrown error means that ranks were lost: then `form_next` may be called.
    [[nodiscard]] bool has_lost(const error& thrown) {
        if (!formed_) return false;
        const auto loss = [](ErrorCode code) { return code == ErrorCode::peer_lost || code == ErrorCode::timeout; };
        const Fault* const first = formed_->group.endpoint().first_fault();
        return first != nullptr && loss(first->code) && loss(thrown.code());
    }

    /// True if the formation limits how often worlds fail as this one has.
    [[nodiscard]] bool is_limited(std::uint64_t passes) const {
        const Fault* const first = formed_ ? formed_->group.endpoint().first_fault() : nullptr;
        return first != nullptr && formation_->limits(made(passes), *first);
    }
    /// Called after a loss: the remaining ranks form the next world, and the old group ends. This
    /// rank has committed `updates`; the rank with the most `passes` is the most advanced. The old
    /// group must not be in use. Collective over the remaining ranks. Errors: above.
    void form_next(std::uint64_t updates, std::uint64_t passes) {
        WorldChange change{.updates = updates};
        Fault why;
        if (const Fault* const first = formed_->group.endpoint().first_fault()) why = *first;
        change.why = why.message;
        const auto timeout = formed_->group.timeout();
        const std::vector<int> before = formed_->members;
        const nanoseconds began = formation_->now();
        formed_.reset();
        const nanoseconds ended = formation_->now();
        change.ending = std::chrono::nanoseconds(ended - began);
        formed_.emplace(formation_->next(made(passes), why));
        fresh_ = true;
        change.agreeing = std::chrono::nanoseconds(formed_->agreed - ended);
        formed_->group.set_timeout(timeout);
        change.took = std::chrono::nanoseconds(formation_->now() - began);
        change.epoch = formed_->epoch;
        const std::vector<int>& now = formed_->members;
        std::set_difference(before.begin(), before.end(), now.begin(), now.end(), std::back_inserter(change.lost));
        std::set_difference(now.begin(), now.end(), before.begin(), before.end(), std::back_inserter(change.joined));
        changes_.push_back(std::move(change));
    }

private:
    [[nodiscard]] std::uint64_t made(std::uint64_t passes) const { return new_here_ ? detail::no_state_yet : passes; }
    [[nodiscard]] const detail::FormedWorld<Transport>& formed() const {
        if (!formed_) detail::throw_in_no_world();
        return *formed_;
    }
    static int number_in(const detail::FormedWorld<Transport>& world) {
        return world.members[static_cast<std::size_t>(world.group.rank())];
    }

    std::unique_ptr<detail::Formation<Transport>> formation_;
    std::optional<detail::FormedWorld<Transport>> formed_;
    std::vector<WorldChange> changes_;
    int number_ = 0;
    bool fresh_ = false;
    bool new_here_ = false;
    bool has_trainer_ = false;
};

namespace detail {

template <class E>
inline constexpr bool is_elastic = false;
template <class T>
inline constexpr bool is_elastic<Elastic<T>> = true;

/// A transport of processes that can end independently. One that enqueues its collectives on a
/// device says whether it can be used further then.
template <class T>
concept elastic_transport =
    (joinable_transport<T> || network_transport<T>)&&(!enqueues<T> || requires { requires T::outlives_ranks; });

template <class Transport, class Join>
ElasticWorld<Transport> join_elastic(const ElasticOptions& options, Join join) {
    check_elastic(options);
    heed_launcher();
    using Medium = NetworkMedium<Transport, Join>;
    return ElasticWorld<Transport>(
        std::make_unique<MembershipFormation<Transport, Medium>>(options, Medium(options, std::move(join))));
}
template <class Transport, class Join>
ElasticWorld<Transport> join_elastic(ControlPlane control, const ElasticOptions& options, Join join) {
    check_elastic(options);
    using Medium = NetworkMedium<Transport, Join>;
    return ElasticWorld<Transport>(std::make_unique<MembershipFormation<Transport, Medium>>(
        options, Medium(std::move(control), options, std::move(join))));
}
/// Names this rank's host. Keeps the name in worlds that have fewer ranks than there are names.
template <class Options>
void keep_host_name(Options& network, int rank, int ranks) {
    if constexpr (places_by_name<Options>) {
        try {
            network.host = network.name_of(rank, ranks, Environment::of_process());
            network.hosts.clear();
        } catch (const error&) { // `join` reports the error on all ranks
        }
    } else if constexpr (requires { network.network.hosts; }) {
        keep_host_name(network.network, rank, ranks);
    }
}
/// Names the device on which this rank's model is, for later worlds, where the rank may have
/// another number, and where not all ranks end if one of them cannot begin.
template <class Options, class Transport>
void keep_device(Options& network, Transport& endpoint) {
    if constexpr (requires { network.device = endpoint.device(); }) {
        network.device = endpoint.device();
        network.is_later = true;
        endpoint.fail_alone();
    }
}
template <class T>
auto joining() {
    return
        [](ControlPlane control, const JoinOptions& options) { return unisono::join<T>(std::move(control), options); };
}
template <class T>
auto joining(const typename T::Options& network) {
    return [kept = network](ControlPlane control, const JoinOptions& options) mutable {
        keep_host_name(kept, control.rank(), control.size());
        Group<T> made = unisono::join<T>(std::move(control), options, kept);
        keep_device(kept, made.endpoint());
        return made;
    };
}

} // namespace detail

/// The elastic world that this process belongs to, as its environment describes it (see `join` in
/// join.hpp).
///
///     auto world = un::join<un::Elastic<un::SharedMemory>>({.least = 2});
///
/// The launcher must not end the others when a rank dies: docs/elastic.md. Collective. Errors: as
/// `join`.
template <class E>
    requires detail::is_elastic<E> && joinable_transport<typename E::transport> &&
             detail::elastic_transport<typename E::transport>
[[nodiscard]] auto join(const ElasticOptions& options = {}) {
    return detail::join_elastic<typename E::transport>(options, detail::joining<typename E::transport>());
}
/// As above, for processes after their rendezvous.
template <class E>
    requires detail::is_elastic<E> && joinable_transport<typename E::transport> &&
             detail::elastic_transport<typename E::transport>
[[nodiscard]] auto join(ControlPlane control, const ElasticOptions& options = {}) {
    return detail::join_elastic<typename E::transport>(std::move(control), options,
                                                       detail::joining<typename E::transport>());
}
/// As above, over a network, whose options name the interface and ports.
template <class E>
    requires detail::is_elastic<E> && network_transport<typename E::transport> &&
             detail::elastic_transport<typename E::transport>
[[nodiscard]] auto join(const ElasticOptions& options = {}, const typename E::transport::Options& network = {}) {
    return detail::join_elastic<typename E::transport>(options, detail::joining<typename E::transport>(network));
}
/// As above, for processes after their rendezvous by this control plane.
template <class E>
    requires detail::is_elastic<E> && network_transport<typename E::transport> &&
             detail::elastic_transport<typename E::transport>
[[nodiscard]] auto join(ControlPlane control, const ElasticOptions& options = {},
                        const typename E::transport::Options& network = {}) {
    return detail::join_elastic<typename E::transport>(std::move(control), options,
                                                       detail::joining<typename E::transport>(network));
}
/// Refuses a transport that cannot lose a rank.
template <class E>
    requires detail::is_elastic<E> && (!detail::elastic_transport<typename E::transport>)
void join(const ElasticOptions& = {}) {
    static_assert(detail::never_true<E>,
                  "unisono::join: found Elastic of a transport that is not made by a control plane. Required: "
                  "SharedMemory, Tcp, or another one whose ranks are processes that join; Cuda of one of these; Nccl "
                  "with the headers of NCCL 2.30 or newer. Why: the threads of InProcess die together, MPI ends a job "
                  "when a rank is "
                  "lost, and NCCL before 2.30 cannot end the work on a communicator without that rank "
                  "(ncclCommRevoke).");
}

UNISONO_NAMESPACE_END
