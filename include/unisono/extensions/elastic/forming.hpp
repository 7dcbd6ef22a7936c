#pragma once

/// \file
/// How worlds follow one another: a formation makes the first world, and the next one after each
/// loss and when ranks are added. A medium carries the messages between members: sockets
/// (network_medium.hpp), or virtual time (unisono/simulate_elastic.hpp).

#include "unisono/core/threads.hpp"
#include "unisono/extensions/elastic/evidence.hpp"
#include "unisono/extensions/elastic/membership.hpp"
#include "unisono/join.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Options of an elastic world.
struct ElasticOptions {
    int least = 1; ///< least number of ranks with which the world continues; with fewer, all end with an error
    int most = detail::most_ranks; ///< greatest number of ranks
    /// Add this process to a running world. Default: UNISONO_JOINS (1: yes; auto: yes, if a world
    /// is found).
    bool joins = false;
    /// The folder through which new processes find the world. Empty: the rendezvous folder, if
    /// there is one.
    std::string folder = {};
    /// After a loss: the time after which a rank that is silent, and not known to be dead, counts
    /// as lost. It must be longer than a rank may compute without a call of the library, and
    /// several times as long as the ranks need to connect to each other. At least 10 ms.
    std::chrono::nanoseconds patience = std::chrono::seconds(30);
    /// After a loss: the time after which a rank ends with an error, if it is not in a world by
    /// then.
    std::chrono::nanoseconds give_up = std::chrono::minutes(10);
    /// Take the refusal of a connection by another host for the proof that the rank there has
    /// ended. By default only a rank's own host can prove that. Then any number of ranks continues,
    /// each alone on its host if need be. But a firewall, a router or another machine that refuses
    /// in the name of ranks that live makes two worlds. The same on all ranks.
    bool trust_resets = false;
    JoinOptions join = {}; ///< options of each world

    friend bool operator==(const ElasticOptions&, const ElasticOptions&) = default;
};

namespace detail {

inline void check_elastic(const ElasticOptions& options) {
    if (options.least < 1) refuse_input({"ElasticOptions::least is ", options.least, "; expected at least 1"});
    if (options.most < options.least || options.most > most_ranks)
        refuse_input({"ElasticOptions::most is ", options.most, "; expected ", options.least,
                      ", as ElasticOptions::least says, to ", most_ranks});
    const auto patience = options.patience.count();
    if (patience < 10'000'000 || patience > 365 * 86'400'000'000'000)
        refuse_input({"ElasticOptions::patience is ", patience, " ns; expected 10 ms to 365 days"});
    if (options.give_up < options.patience)
        refuse_input("ElasticOptions::give_up must not be less than ElasticOptions::patience");
    check_join(options.join);
}

/// One world of a sequence. `members`: the numbers of its ranks.
template <class Transport>
struct FormedWorld {
    Group<Transport> group;
    std::uint64_t epoch = 0;
    std::vector<int> members = {};
    int source = 0;           ///< the most advanced rank of this world
    nanoseconds agreed = 0;   ///< the time at which its members had been agreed on
    bool is_new_here = false; ///< this process was added, and has no state of the training
};

/// Makes the worlds of an elastic world. One thread uses it.
template <class Transport>
class Formation {
public:
    Formation() = default;
    Formation(const Formation&) = delete;
    Formation& operator=(const Formation&) = delete;
    virtual ~Formation() = default;

    [[nodiscard]] virtual FormedWorld<Transport> first() = 0;
    /// Makes the next world, after the last one has failed because of `why` and was destroyed. This
    /// rank has made `updates`, or has `no_state_yet`. Errors: see ElasticWorld.
    [[nodiscard]] virtual FormedWorld<Transport> next(std::uint64_t updates, const Fault& why) = 0;
    /// True if `next` limits how often worlds fail because of `why`: this one has lost the
    /// connection between two ranks before it has worked, or one of the two has ended.
    [[nodiscard]] virtual bool limits(std::uint64_t, const Fault&) const { return false; }
    /// True if processes wait that can be added. Cheap; does not wait.
    [[nodiscard]] virtual bool look_for_applicants() { return false; }
    /// Sets the number of members beyond which no process is added, because it would have no work.
    virtual void take_in_at_most(int) {}
    /// A number that the members of this job have, and no other job; 0: none.
    [[nodiscard]] virtual std::uint64_t job() const { return 0; }
    /// The time by the clock that the formation uses.
    [[nodiscard]] virtual nanoseconds now() const { return steady_now(); }
    /// Tells that the training is complete: processes that come later find no world.
    void set_complete(bool complete) { complete_ = complete; }
    [[nodiscard]] bool is_complete() const { return complete_; }

private:
    bool complete_ = false;
};

/// The reason why a member is not in the next world. `epoch`: of its membership, or of the one that
/// has left it behind.
inline error not_in_next_world(MembershipPhase phase, int me, const std::vector<int>& silent, const Successor& decision,
                               std::uint64_t epoch) {
    using Phase = MembershipPhase;
    Fault fault{.code = ErrorCode::timeout, .rank = me, .operation = "elastic", .sequence = epoch + 1};
    if (phase == Phase::left_behind) {
        fault.sequence = epoch;
        fault.code = ErrorCode::aborted;
        fault.message = concat(
            {"rank ", me, " was silent for too long or could not be reached, and has been left behind: ",
             decision.members.empty() ? std::string("the others") : concat({"members ", list_of(decision.members)}),
             " continue without it as membership ", epoch, ". A new process can be added in its place"});
    } else if (phase == Phase::no_state) {
        fault.code = ErrorCode::peer_lost;
        fault.message =
            concat({"rank ", me, " was added to membership ", epoch,
                    ", and all ranks that had the training's state were lost before they had sent it; start "
                    "again from a checkpoint"});
    } else {
        fault.message = concat(
            {"rank ", me, " found neither a majority of membership ", epoch, " nor a proof that all others are gone",
             silent.empty() ? std::string() : concat({"; no answer from members ", list_of(silent)}),
             ". This rank ends, so that there are not two worlds. If they live and only answer late, set "
             "ElasticOptions::patience to more"});
    }
    return error(fault);
}
/// The ranks agree, but cannot connect to each other.
inline error not_connected(const Fault& last, int me, std::uint64_t epoch, int attempts,
                           const ElasticOptions& options) {
    const auto ms = [](std::chrono::nanoseconds time) { return time.count() / 1'000'000; };
    return error(Fault{
        .code = ErrorCode::timeout,
        .rank = me,
        .operation = "elastic",
        .sequence = epoch,
        .message = concat({"rank ", me, " was in no world for ", ms(options.give_up),
                           " ms (ElasticOptions::give_up): the ranks agreed ", attempts,
                           " times on the members of the next one, and did not connect to each other within ",
                           ms(options.patience) / 2,
                           " ms, which is half of ElasticOptions::patience (the last time: ", last.message,
                           "). If the network is slow, set ElasticOptions::patience to several times what connecting "
                           "takes; otherwise open the ports of all ranks to all others"})});
}

/// A formation over a medium. The medium connects members, makes a group of the next world's ranks,
/// and reads from processes that wait to be added. `Medium`:
///
///     nanoseconds now() const;
///     int me() const;                        -1: this process has no number yet
///     std::uint64_t job() const;             equal on all members, and on no others
///     bool is_to_be_added() const;
///     std::vector<int> connect();            the first world's members, connected. Collective.
///     Group<Transport> first_group();        a group of all of them. Collective.
///     void send(int to, const MembershipMessage&);
///     bool knows(int member) const;          whether there is or was a connection
///     bool is_connected(int member) const;   whether messages to it leave this process
///     std::uint64_t host_of(int member) const;   0: unknown
///     Conclusion reach(int member, Applicant);   connects
///     void wait(until, heard, lost, refused, came);   calls heard(from, message), came(member),
///                                            lost(member, whether its last messages have arrived),
///                                            refused(member)
///     Group<Transport> meet(members, epoch, allowed, wait(until));
///     void all_are_here();                   no process connects until the next change
///     void listen(first, in_first_world);    `first`: this member listens for applicants
///     bool look();                           whether an applicant waits
///     std::vector<Applicant> applicants() const;
///     void forget(const std::vector<Applicant>&);   those that are left out ask again
///     void refuse(const std::vector<Applicant>&, why);   tells them why they are left out
///     void end_training() const;             called by each member that finishes, as it leaves
///     void hear_refusal();                   of an applicant. Errors: why it is left out
///     void apply(nanoseconds deadline);      asks to be added, once. Errors: refused.
///     error not_added() const;               after the deadline
template <class Transport, class Medium, class Rules = MembershipRules>
class MembershipFormation final : public Formation<Transport> {
public:
    MembershipFormation(const ElasticOptions& options, Medium medium) : options_(options), medium_(std::move(medium)) {}
    /// In a forked child of the process, sends nothing: it would speak in the parent's name.
    ~MembershipFormation() override {
        const NotCancelled whole;
        if (!membership_ || owner_ != ::getpid()) return;
        if (this->is_complete() && std::uncaught_exceptions() == 0 && membership_->phase() == Phase::member)
            medium_.end_training();
        try {
            leave();
        } catch (const std::exception&) { // the others wait for a majority then
        }
    }

    [[nodiscard]] FormedWorld<Transport> first() override {
        if (medium_.is_to_be_added()) return added();
        std::vector<int> all = medium_.connect();
        check_least(all.size());
        membership_ = std::make_unique<Membership<Rules>>(medium_.me(), all, times());
        try {
            FormedWorld<Transport> made{medium_.first_group(), 0, std::move(all), 0, medium_.now()};
            listen(true);
            return made;
        } catch (const error& failed) {
            if (!is_loss(failed)) throw;
        }
        return next(0, {});
    }
    [[nodiscard]] FormedWorld<Transport> next(std::uint64_t updates, const Fault& why) override {
        if (has_worked(updates) || !is_apart(why)) attempts_ = {};
        else if (++attempts_.worlds > 1) wait_for_connection(why);
        membership_->take_in_at_most(most_members());
        if (medium_.look()) membership_->expect(medium_.applicants());
        for (const int member : membership_->members()) place(member);
        membership_->begin(updates, medium_.now());
        return form(updates);
    }
    [[nodiscard]] bool limits(std::uint64_t updates, const Fault& why) const override {
        return is_apart(why) ? !has_worked(updates) : has_lost_connection(why);
    }
    [[nodiscard]] bool look_for_applicants() override {
        const nanoseconds now = medium_.now();
        if (now < look_at_) return false;
        look_at_ = now + 10'000'000;
        if (!membership_->left_behind().empty()) wait(now); // they may ask
        return medium_.look() && membership_->members().size() < most_members();
    }
    void take_in_at_most(int ranks) override { busy_ = ranks; }
    [[nodiscard]] std::uint64_t job() const override { return medium_.job(); }
    [[nodiscard]] nanoseconds now() const override { return medium_.now(); }

private:
    using Phase = MembershipPhase;
    /// The most complaints of a rank. After every second attempt in vain that took half of
    /// `patience`, it says which others it could not reach. The number is small, since ranks must
    /// not leave out one another if the network or the hosts are slow for all.
    static constexpr int most_complaints = 3;

    [[nodiscard]] std::size_t most_members() const { return static_cast<std::size_t>(std::min(options_.most, busy_)); }
    [[nodiscard]] MembershipTimes times() const {
        return {.patience = options_.patience.count(), .give_up = options_.give_up.count()};
    }
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
    /// Says goodbye, and answers ranks that were left behind and wait for a majority, at most for
    /// `patience`. They end with an error then, and leave too.
    void leave() {
        const std::vector<int> behind = membership_->left_behind();
        membership_->leave();
        send();
        const auto may_wait = [&](int member) {
            const std::vector<int> left = membership_->left_behind();
            return medium_.is_connected(member) && std::find(left.begin(), left.end(), member) != left.end();
        };
        for (const nanoseconds until = medium_.now() + options_.patience.count();
             medium_.now() < until && std::any_of(behind.begin(), behind.end(), may_wait);)
            wait(until);
    }
    void listen(bool in_first_world) { medium_.listen(membership_->members().front() == medium_.me(), in_first_world); }

    /// Completes the choice of the next membership, and forms its world.
    FormedWorld<Transport> form(std::uint64_t updates) {
        // How long to wait for a rank of the next world. It may have died after its vote, or all
        // may be slow: then the members vote again. A rank that waits here answers no votes, so it
        // must give up before the others suspect it.
        if (attempts_.allowed == 0) {
            attempts_.allowed =
                std::min<nanoseconds>(300'000'000 + 5'000'000 * static_cast<nanoseconds>(membership_->members().size()),
                                      options_.patience.count() / 4);
            attempts_.began = medium_.now();
        }
        for (;;) {
            settle();
            const nanoseconds agreed = medium_.now();
            check_least(membership_->members().size());
            ++attempts_.made;
            try {
                Group<Transport> group = medium_.meet(membership_->members(), membership_->epoch(), attempts_.allowed,
                                                      [&](nanoseconds until) { wait(until); });
                medium_.forget(membership_->have_been_added());
                membership_->work();
                const Successor& decision = membership_->decision();
                const auto source = std::find(decision.members.begin(), decision.members.end(), decision.source);
                medium_.all_are_here();
                listen(false);
                formed_with_ = updates;
                formed_at_ = medium_.now();
                return {std::move(group), membership_->epoch(),
                        decision.members, static_cast<int>(source - decision.members.begin()),
                        agreed,           updates == no_state_yet};
            } catch (const device_error&) { // no added member is the cause
                throw;
            } catch (const error& failed) {
                if (is_loss(failed)) wait_out(agreed);
                else if (!leave_out_added(failed)) throw;
                note_failure(failed.why());
            }
            membership_->begin(updates, medium_.now());
        }
    }
    /// Every failed attempt but the first takes as long as one that waits for a rank in vain,
    /// unless a member has ended. Otherwise the ranks would try without a pause while something
    /// stays broken, such as NCCL. The first attempt may have failed by a death of which this
    /// member has not heard yet.
    void wait_out(nanoseconds began) {
        const nanoseconds until =
            std::min(began + attempts_.allowed, deadline_after(attempts_.began, options_.give_up));
        const auto has_ended = [&](int member) { return membership_->has_ended(member); };
        const auto all_live = [&] {
            return std::none_of(membership_->members().begin(), membership_->members().end(), has_ended);
        };
        while (attempts_.made > 1 && medium_.now() < until && all_live()) wait(until);
    }
    void note_failure(const Fault& why) {
        if (medium_.now() - attempts_.began >= options_.give_up.count())
            throw not_connected(why, medium_.me(), membership_->epoch(), attempts_.made, options_);
        const nanoseconds longest = options_.patience.count() / 2;
        attempts_.failures += attempts_.allowed >= longest ? 1 : 0;
        const int failures = attempts_.failures;
        const bool complains = failures > 0 && failures % 2 == 0 && failures <= 2 * most_complaints;
        membership_->miss(complains ? missed(why) : std::vector<int>());
        attempts_.allowed = std::min(2 * attempts_.allowed, longest);
    }
    [[nodiscard]] bool has_worked(std::uint64_t updates) const {
        return updates != formed_with_ || medium_.now() - formed_at_ > options_.patience.count();
    }
    [[nodiscard]] bool has_lost_connection(const Fault& why) const {
        return why.code == ErrorCode::peer_lost && member_of(why.peer) >= 0;
    }
    /// The two ranks live, as far as this one knows.
    [[nodiscard]] bool is_apart(const Fault& why) const {
        return has_lost_connection(why) && !membership_->has_ended(member_of(why.peer));
    }
    /// The ranks have met, but two of them cannot connect. Forming a world takes little time then,
    /// so each attempt waits as long as if it had waited for a rank that does not come.
    void wait_for_connection(const Fault& why) {
        const nanoseconds until = medium_.now() + attempts_.allowed;
        while (medium_.now() < until && is_apart(why)) wait(until);
        if (is_apart(why)) note_failure(why);
    }
    /// The world failed, and no rank was lost. If members were added, they are the cause, and this
    /// member proposes the next membership without them.
    bool leave_out_added(const error& failed) {
        const Successor& decision = membership_->decision();
        const auto added = decision.members.begin() + static_cast<std::ptrdiff_t>(decision.kept());
        if (decision.added.empty() || std::find(added, decision.members.end(), medium_.me()) != decision.members.end())
            return false;
        medium_.refuse(decision.added,
                       concat({"the elastic world could not be formed with this process: ", failed.why().message}));
        membership_->leave_out({added, decision.members.end()});
        return true;
    }
    /// The member with this rank in the last world; -1 if there is none.
    [[nodiscard]] int member_of(int rank) const {
        const std::vector<int>& members = membership_->members();
        return rank >= 0 && rank < static_cast<int>(members.size()) ? members[static_cast<std::size_t>(rank)] : -1;
    }
    /// The member to which this one could not connect, according to the fault.
    [[nodiscard]] std::vector<int> missed(const Fault& why) const {
        const int other = member_of(why.peer);
        if (other < 0 || why.rank == why.peer || member_of(why.rank) != medium_.me()) return {};
        return {other};
    }
    /// Waits until members of a running world have added this process.
    FormedWorld<Transport> added() {
        const nanoseconds deadline = deadline_after(medium_.now(), options_.join.rendezvous.timeout);
        while (!membership_ && medium_.now() < deadline) {
            medium_.apply(deadline);
            wait(std::min(deadline, medium_.now() + 20'000'000));
        }
        if (!membership_) throw medium_.not_added();
        return form(no_state_yet);
    }
    /// Handles the first message to an added process, which names the members.
    void become_member(int from, const MembershipMessage& message) {
        if (message.word != MembershipWord::ready ||
            !std::binary_search(message.successor.members.begin(), message.successor.members.end(), medium_.me()))
            return;
        membership_ = std::make_unique<Membership<Rules>>(medium_.me(), message, times(), medium_.now());
        for (const int member : {from, medium_.me()}) place(member);
        for (const int member : message.successor.members)
            if (medium_.knows(member)) membership_->introduce(member);
        membership_->receive(from, message, medium_.now());
    }
    /// Kept members connect to each added member. An added member connects to those with lower
    /// numbers.
    void reach_added() {
        if (membership_->decision().added.empty()) return;
        const Successor decision = membership_->decision();
        const auto is_added = decision.members.begin() + static_cast<std::ptrdiff_t>(decision.kept());
        const bool me_too = std::find(is_added, decision.members.end(), medium_.me()) != decision.members.end();
        for (std::size_t i = 0; i < decision.added.size(); ++i) {
            const int number = decision.members[decision.kept() + i];
            if (medium_.knows(number) || number == medium_.me() || (me_too && number > medium_.me())) continue;
            const Conclusion found = medium_.reach(number, decision.added[i]);
            place(number);
            if (found == Conclusion::ended) membership_->lost(number, medium_.now());
            else if (found == Conclusion::refuses) membership_->suspect(number, medium_.now());
            else if (me_too) membership_->introduce(number);
        }
    }

    void send() {
        if (!membership_) return;
        reach_added();
        for (const auto& [to, message] : membership_->take_messages()) medium_.send(to, message);
    }
    /// Tells the membership which members see each other's deaths. An added member's host is known
    /// once its first message has arrived.
    void place(int member) { membership_->place(member, medium_.host_of(member)); }
    /// Waits for messages until the given time, and handles them.
    void wait(nanoseconds until) {
        medium_.wait(
            until,
            [&](int from, const MembershipMessage& message) {
                if (!membership_) return become_member(from, message);
                place(from);
                membership_->receive(from, message, medium_.now());
            },
            [&](int member, bool all_heard) {
                if (!membership_) return;
                place(member);
                membership_->lost(member, medium_.now(), all_heard);
            },
            [&](int member) {
                if (membership_) membership_->suspect(member, medium_.now());
            },
            [&](int member) {
                if (membership_) membership_->introduce(member);
            });
        if (membership_) membership_->tick(medium_.now());
        send();
    }
    void settle() {
        send();
        const auto busy = [&] {
            return membership_->phase() == Phase::voting || membership_->phase() == Phase::gathering;
        };
        while (busy()) wait(membership_->next_tick());
        if (membership_->phase() == Phase::formed) return;
        medium_.hear_refusal();
        const bool is_behind = membership_->phase() == Phase::left_behind;
        throw not_in_next_world(membership_->phase(), medium_.me(), membership_->silent(), membership_->decision(),
                                is_behind ? membership_->later_epoch() : membership_->epoch());
    }

    ElasticOptions options_;
    Medium medium_;
    int owner_ = ::getpid();
    std::unique_ptr<Membership<Rules>> membership_;
    /// Attempts to form a world, until one makes an update or lives longer than `patience`.
    struct Attempts {
        nanoseconds began = 0, allowed = 0; ///< how long the next one may take
        int made = 0, failures = 0;
        int worlds = 0; ///< formed, and lost a connection before an update
    };
    Attempts attempts_ = {};
    std::uint64_t formed_with_ = 0; ///< updates before the last world
    nanoseconds formed_at_ = 0;     ///< when the last world was formed
    nanoseconds look_at_ = 0;
    int busy_ = 0; ///< number of ranks for which the training has work
};

} // namespace detail
UNISONO_NAMESPACE_END
