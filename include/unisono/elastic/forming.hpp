#pragma once

/// \file
/// How worlds follow one another: a formation makes the first one, and after each loss the next.

#include "unisono/elastic/membership.hpp"
#include "unisono/elastic/mesh.hpp"
#include "unisono/join.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Options of an elastic world.
struct ElasticOptions {
    int least = 1; ///< least number of ranks with which it continues; with fewer, all end with an error
    /// After a loss: how long a rank may be silent, without being known to be dead, before it
    /// counts as lost. It must be longer than a rank may compute without a call of the library.
    std::chrono::nanoseconds patience = std::chrono::seconds(30);
    std::chrono::nanoseconds give_up = std::chrono::minutes(10); ///< wait for a majority that does not answer
    JoinOptions join = {};                                       ///< of each world

    friend bool operator==(const ElasticOptions&, const ElasticOptions&) = default;
};

namespace detail {

inline void check_elastic(const ElasticOptions& options) {
    if (options.least < 1) refuse_input({"ElasticOptions::least is ", options.least, "; expected at least 1"});
    if (options.patience.count() <= 0) refuse_input("ElasticOptions::patience must be positive");
    if (options.give_up < options.patience)
        refuse_input("ElasticOptions::give_up must not be less than ElasticOptions::patience");
    check_join(options.join);
}

/// One of several consecutive worlds. `members`: the numbers that its ranks had in the first one.
template <class Transport>
struct FormedWorld {
    Group<Transport> group;
    std::uint64_t epoch = 0;
    std::vector<int> members = {};
    int source = 0;         ///< a rank of this world whose committed updates are the most
    nanoseconds agreed = 0; ///< when its members had been agreed on
};

/// The source of an elastic world's worlds. One thread uses it.
template <class Transport>
class Formation {
public:
    Formation() = default;
    Formation(const Formation&) = delete;
    Formation& operator=(const Formation&) = delete;
    virtual ~Formation() = default;

    [[nodiscard]] virtual FormedWorld<Transport> first() = 0;
    /// Call this after the last world has failed and was destroyed; this rank has committed
    /// `updates`. Errors: see ElasticWorld.
    [[nodiscard]] virtual FormedWorld<Transport> next(std::uint64_t updates) = 0;
};

inline std::string members_text(const std::vector<int>& members) { return list_of(members); }

/// The reason why a member is not in the next world.
inline error not_in_next_world(Membership<>::Phase phase, int me, const std::vector<int>& silent,
                               const Successor& decision, std::uint64_t epoch) {
    using Phase = Membership<>::Phase;
    Fault fault{.code = ErrorCode::timeout, .rank = me, .peer = -1, .operation = "elastic", .sequence = epoch + 1};
    if (phase == Phase::left_behind) {
        fault.code = ErrorCode::aborted;
        fault.message = concat({"rank ", me, " was silent for too long, and has been left behind: ",
                                decision.members.empty() ? "the others" : members_text(decision.members),
                                " (numbers of the first world) went on without it as membership ", epoch + 1});
    } else {
        fault.message =
            concat({"rank ", me, " found neither a majority of membership ", epoch,
                    " nor a proof that all others are gone; ", silent.empty() ? "no rank" : members_text(silent),
                    " (numbers of the first world) did not answer. It ends, so that there are no two worlds"});
    }
    return error(fault);
}

/// Over sockets, for transports that join by a control plane. `Join(control, options)` makes a
/// world of processes that have met.
template <class Transport, class Join>
class NetworkFormation final : public Formation<Transport> {
public:
    NetworkFormation(ElasticOptions options, Join join) : options_(std::move(options)), join_(std::move(join)) {}
    ~NetworkFormation() override {
        if (!membership_) return;
        membership_->leave();
        send();
    }

    [[nodiscard]] FormedWorld<Transport> first() override {
        return first(unisono::rendezvous(options_.join.rendezvous));
    }
    [[nodiscard]] FormedWorld<Transport> first(ControlPlane control) {
        const nanoseconds deadline = deadline_after(steady_now(), options_.join.rendezvous.timeout);
        std::vector<int> all;
        for (int member = 0; member < control.size(); ++member) all.push_back(member);
        check_least(all.size());
        mesh_ = std::make_unique<Mesh>(control, deadline);
        membership_ = std::make_unique<Membership<>>(
            control.rank(), all,
            Membership<>::Times{.patience = options_.patience.count(), .give_up = options_.give_up.count()});
        // A member that fails from here on has all its connections: if others continue, they have
        // theirs, too.
        try {
            ControlPlane plane = std::move(control);
            Mesh::await_all(plane, deadline);
            return {join_(std::move(plane), options_.join), 0, std::move(all), 0, steady_now()};
        } catch (const error& failed) {
            if (!is_loss(failed)) throw;
        }
        return next(0);
    }

    [[nodiscard]] FormedWorld<Transport> next(std::uint64_t updates) override {
        // If a rank dies that has voted for the next world, the others wait for it this long; if
        // all are just slow they try again.
        nanoseconds allowed = 300'000'000 + 5'000'000 * static_cast<nanoseconds>(mesh_->members());
        for (int attempt = 0;; ++attempt) {
            vote(updates);
            const nanoseconds agreed = steady_now();
            check_least(membership_->members().size());
            try {
                Group<Transport> group = meet(allowed);
                membership_->work();
                const Successor& decision = membership_->decision();
                const auto source = std::find(decision.members.begin(), decision.members.end(), decision.source);
                return {std::move(group), membership_->epoch(), decision.members,
                        static_cast<int>(source - decision.members.begin()), agreed};
            } catch (const error& failed) {
                if (!is_loss(failed) || attempt == most_attempts) throw;
            }
            allowed = std::min<nanoseconds>(2 * allowed, std::max<nanoseconds>(allowed, options_.patience.count()));
        }
    }

private:
    using Phase = Membership<>::Phase;
    static constexpr int most_attempts = 100;

    static bool is_loss(const error& failed) {
        return failed.code() == ErrorCode::peer_lost || failed.code() == ErrorCode::timeout ||
               failed.code() == ErrorCode::aborted;
    }
    void check_least(std::size_t ranks) const {
        if (ranks >= static_cast<std::size_t>(options_.least)) return;
        throw error(ErrorCode::refused,
                    concat({"an elastic world of ", ranks, ranks == 1 ? " rank" : " ranks", "; expected at least ",
                            options_.least, ", as ElasticOptions::least says"}));
    }

    void send() {
        for (const auto& [to, message] : membership_->take_messages()) mesh_->send(to, encode(message));
    }
    /// Reads what comes, and passes it on.
    void wait(nanoseconds until) {
        mesh_->wait(
            until,
            [&](int from, const Blob& bytes) {
                MembershipMessage message;
                NextMeeting meeting;
                if (decode(bytes, mesh_->members(), message)) membership_->receive(from, message, steady_now());
                else if (decode(bytes, meeting)) meeting_ = std::move(meeting);
            },
            [&](int peer) {
                lost_.push_back(peer);
                membership_->lost(peer, steady_now());
            });
        membership_->tick(steady_now());
        send();
    }

    void vote(std::uint64_t updates) {
        membership_->begin(updates, steady_now());
        send();
        const auto busy = [&] {
            return membership_->phase() == Phase::voting || membership_->phase() == Phase::gathering;
        };
        while (busy()) wait(membership_->next_tick());
        if (membership_->phase() != Phase::formed)
            throw not_in_next_world(membership_->phase(), mesh_->me(), membership_->silent(), membership_->decision(),
                                    membership_->epoch());
    }

    /// The members of the next world meet as its ranks.
    Group<Transport> meet(nanoseconds allowed) {
        const std::vector<int>& members = membership_->members();
        const auto world = static_cast<int>(members.size());
        if (world == 1) return join_(ControlPlane(), options_.join);
        const int rank = static_cast<int>(std::find(members.begin(), members.end(), mesh_->me()) - members.begin());
        JoinOptions options = options_.join;
        options.rendezvous.timeout = std::chrono::nanoseconds(allowed);
        options.rendezvous.notice_after = {};
        MeetingPoint point;
        point.token = mesh_->secret_of(membership_->epoch());
        point.further_ports = 7; // somebody else may take the first
        if (rank == 0) {
            point.host = mesh_->host();
            point.port = listen_at(mesh_->is_on_loopback(), 0).port;
            if (point.port > 65535 - 7) point.port -= 7;
            const NextMeeting meeting{membership_->epoch(), point.host, point.port};
            for (const int member : members) mesh_->send(member, encode(meeting));
        } else {
            const NextMeeting meeting = await_meeting(deadline_after(steady_now(), options.rendezvous.timeout));
            point.host = meeting.host;
            point.port = meeting.port;
        }
        return join_(unisono::rendezvous(unisono::identity_of(rank, world), point, options.rendezvous), options);
    }
    NextMeeting await_meeting(nanoseconds deadline) {
        const std::vector<int>& members = membership_->members();
        while (!meeting_ || meeting_->epoch != membership_->epoch()) {
            lost_.clear();
            if (steady_now() >= deadline) throw error(ErrorCode::timeout, "the next world's first rank says nothing");
            wait(deadline);
            for (const int peer : lost_)
                if (std::binary_search(members.begin(), members.end(), peer))
                    throw error(ErrorCode::peer_lost, "a rank of the next world has died");
        }
        return *std::exchange(meeting_, std::nullopt);
    }

    ElasticOptions options_;
    Join join_;
    std::unique_ptr<Mesh> mesh_;
    std::unique_ptr<Membership<>> membership_;
    std::optional<NextMeeting> meeting_;
    std::vector<int> lost_;
};

} // namespace detail
UNISONO_NAMESPACE_END
