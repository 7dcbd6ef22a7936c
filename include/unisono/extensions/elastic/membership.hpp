#pragma once

/// \file
/// Agreement on the members of the next world. The members of a world that has lost ranks, or gets
/// more, agree on the members of the next one, and on the rank with the most committed updates. It
/// is a state machine without sockets, clocks or threads; tests run it in virtual time.
///
/// A *membership* is a set of members; memberships are numbered by *epochs*. The members of epoch e
/// choose those of epoch e + 1 by a single-decree Paxos (Lamport, "Paxos Made Simple", 2001):
///
///     proposer                   prepare(ballot)             -> all
///     member                     promise(its updates, what it has accepted) -> proposer
///     member                     promise(another's higher ballot) -> proposer of a lower one
///     proposer, with a quorum    accept(ballot, successor)   -> all
///     member                     accepted                    -> proposer
///     proposer, with a quorum    decided(successor)          -> all, also those left behind
///     first member               decided(another's proposal) -> all
///     member of the successor    ready                       -> its first member, and those added
///     member that was added      ready                       -> all
///     first member, with all     whole                       -> the others of the successor
///     member that is behind      ask                         -> the sender of a later epoch
///     first member on a host     gone(member of that host)   -> members on other hosts
///     member that leaves         goodbye(its membership)     -> all, also those left behind
///
/// A change costs each member a few messages. The proposer sends three messages to each member, and
/// the first member one. If another member proposes, the first member sends two.
///
/// electorate.hpp defines a quorum, and says why there are not two worlds.
///
/// A process that was lost or left behind can come back only as a new member, with a new number.

#include "unisono/core/time.hpp"
#include "unisono/extensions/elastic/electorate.hpp"
#include "unisono/extensions/elastic/membership_messages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class Rules>
struct MembershipState; // for tests: reads all fields (tests/extensions/elastic/explorer/state.hpp)

/// One member of a membership.
template <class Rules = MembershipRules>
class Membership : MembershipOutbox<Rules> {
    friend struct MembershipState<Rules>;
    using Base = MembershipOutbox<Rules>;
    using Base::is_member, Base::is_gone, Base::first_here, Base::has_all, Base::has_quorum, Base::has_no_elders,
        Base::successor_of, Base::turn, Base::is_end_for_me, Base::awaits_none;
    using Base::me_, Base::members_, Base::epoch_, Base::decision_, Base::gone_, Base::next_number_, Base::most_,
        Base::unwanted_, Base::suspected_;
    using Base::send, Base::send_as, Base::send_all, Base::send_added_as;

public:
    using Base::take_messages;
    using Phase = MembershipPhase;
    using Times = MembershipTimes;

    Membership(int me, std::vector<int> members, Times times) : Base(me, std::move(members), {}, 0), times_(times) {
        next_number_ = members_.empty() ? 0 : members_.back() + 1;
    }
    /// A member that the message `decided` adds as number `me`.
    Membership(int me, const MembershipMessage& decided, Times times, nanoseconds now)
        : Base(me, decided.successor.members, decided.successor, decided.successor.next_number), times_(times),
          phase_(Phase::gathering), updates_(no_state_yet), awaits_kept_(Rules::added_members_wait), started_(now),
          due_(now + 2 * times.patience) {
        epoch_ = decided.epoch + 1;
        past_[decided.epoch] = decided;
        past_[decided.epoch].word = MembershipWord::decided;
    }

    [[nodiscard]] Phase phase() const { return phase_; }
    [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
    [[nodiscard]] const std::vector<int>& members() const { return members_; }
    /// The last decision; in the phases `gathering` and `formed`.
    [[nodiscard]] const Successor& decision() const { return decision_; }
    /// The membership that does not contain this member; in the phase `left_behind`.
    [[nodiscard]] std::uint64_t later_epoch() const { return later_epoch_; }
    /// True if a member has ended, for which there is proof.
    [[nodiscard]] bool has_ended(int member) const { return is_gone(member); }
    /// The time at which `tick` must be called next.
    [[nodiscard]] nanoseconds next_tick() const {
        return phase_ == Phase::voting || phase_ == Phase::gathering ? std::min(due_, ends()) : never;
    }
    /// The applicants that were added since the last working world, including those that were left
    /// out again because they were silent.
    [[nodiscard]] const std::vector<Applicant>& have_been_added() const { return have_been_added_; }
    /// Sets the applicants at this member, which may be added at the next vote.
    void expect(std::vector<Applicant> applicants) { applicants_ = std::move(applicants); }
    /// Limits the members of this member's proposals: applicants are added only up to this number.
    void take_in_at_most(std::size_t members) { most_ = members; }
    /// Leaves these members out of this member's proposals. They live, so they become doubtful.
    void leave_out(std::vector<int> members) { // NOLINT(performance-unnecessary-value-param): it is moved
        unwanted_ = std::move(members);
    }
    /// Sets the host of a member. Members on one host see each other's deaths.
    void place(int member, std::uint64_t host) { place_[member] = host; }
    /// Sets the members to which this one could not connect, when the next world was to be formed.
    void miss(std::vector<int> members) { missed_ = std::move(members); }
    /// Called when another member can be reached for the first time, or again. Tells it that this
    /// member is there, and repeats what it may not have heard.
    void introduce(int other) {
        suspected_.erase(other);
        send(other, {.word = MembershipWord::ask, .epoch = epoch_});
        for (const int gone : told_) send(other, gone_message(gone));
        if (has_left_) return send(other, goodbye());
        if (!is_member(other)) return tell_that_it_was_left_behind(other);
        const auto past = past_.find(epoch_ - 1);
        if (epoch_ != 0 && past != past_.end()) send_as(MembershipWord::ready, other, past->second);
        if (phase_ != Phase::voting) return;
        if (proposing_ == Proposing::prepares)
            send(other, {.word = MembershipWord::prepare, .epoch = epoch_, .ballot = ballot_});
        if (proposing_ == Proposing::accepts)
            send(other, {.word = MembershipWord::accept, .epoch = epoch_, .ballot = ballot_, .successor = proposed_});
    }

    /// Called when this member's world has failed after `updates` committed updates. The member
    /// votes for the next membership.
    void begin(std::uint64_t updates, nanoseconds now) {
        updates_ = updates;
        start_vote(now);
        replay(now);
    }
    /// Called when the next world has been formed.
    void work() {
        unwanted_.clear();
        missed_.clear();
        have_been_added_.clear();
        phase_ = Phase::member;
        started_ = never;
        // No member asks for these any more.
        if (epoch_ != 0 && !Base::has_doubtful()) past_.erase(past_.begin(), past_.find(epoch_ - 1));
    }
    /// Called when this member ends: says goodbye to all members, and to those that were left
    /// behind. After it the member answers messages only.
    void leave() {
        has_left_ = true;
        for (const int other : members_) send(other, goodbye());
        for (const int other : decision_.doubtful)
            if (Rules::tells_those_left_behind && !is_member(other)) send(other, goodbye());
    }
    /// Members that were left behind, and may still wait for a majority: they have not said
    /// goodbye. Empty if this member has ended with an error.
    [[nodiscard]] std::vector<int> left_behind() const {
        std::vector<int> found;
        if (phase_ != Phase::member || !Rules::tells_those_left_behind) return found;
        for (const int other : decision_.doubtful)
            if (!is_gone(other) && other != me_) found.push_back(other);
        return found;
    }

    /// Called when a member's host refuses this one, which proves nothing.
    void suspect(int member, nanoseconds now) {
        if (is_gone(member) || !is_member(member) || member == me_ || !suspected_.insert(member).second) return;
        if (phase_ == Phase::gathering && !awaits_kept_) {
            start_vote(now);
            return replay(now);
        }
        if (phase_ != Phase::voting) return;
        step_voting(now);
        if (phase_ == Phase::voting && proposing_ == Proposing::nothing && first_here() == me_) propose(now);
    }

    /// Called when a member's process is known to have ended. `heard`: its last messages have
    /// arrived.
    void lost(int member, nanoseconds now, bool heard = true) {
        if (member == me_) return;
        const bool is_new = !is_gone(member);
        Base::note_gone(member, heard);
        act_on_loss(member, is_new, now);
    }

    void receive(int from, const MembershipMessage& message, nanoseconds now) {
        suspected_.erase(from);
        if (message.word == MembershipWord::goodbye) return hear_goodbye(from, message, now);
        if (message.word == MembershipWord::gone) return hear_of_death(message, now);
        if (has_left_) {
            if (message.epoch < epoch_) answer_late(from, message, now);
            return send(from, goodbye());
        }
        if (message.word == MembershipWord::ask && message.epoch == epoch_) return;
        if (awaits_kept_ && message.epoch >= epoch_) {
            if (ends_me(message)) return be_left_behind(message.successor, message.epoch + 1);
            later_.emplace_back(from, message);
            return;
        }
        if (Rules::checks_epochs) {
            if (message.epoch < epoch_) return answer_late(from, message, now);
            if (message.epoch > epoch_ || (phase_ == Phase::member || phase_ == Phase::formed)) {
                if ((phase_ == Phase::voting || phase_ == Phase::gathering) && ends_me(message))
                    return be_left_behind(message.successor, message.epoch + 1);
                if (message.epoch > epoch_ && phase_ == Phase::voting)
                    send(from, {.word = MembershipWord::ask, .epoch = epoch_});
                later_.emplace_back(from, message);
                return;
            }
        }
        if (phase_ == Phase::left_behind || phase_ == Phase::no_quorum || phase_ == Phase::no_state) return;
        if (phase_ == Phase::gathering) { // the others of the next membership have given this member up
            later_.emplace_back(from, message);
            start_vote(now);
            return replay(now);
        }
        handle(from, message, now);
    }

    void tick(nanoseconds now) {
        if (now < std::min(due_, ends())) return;
        if (awaits_kept_) {
            due_ = now + 2 * times_.patience;
            if (now >= ends()) phase_ = Phase::no_quorum;
            return;
        }
        if (phase_ == Phase::gathering) {
            start_vote(now);
            return replay(now);
        }
        if (phase_ != Phase::voting) return;
        if (now >= ends()) {
            phase_ = Phase::no_quorum;
            return;
        }
        // A member that has promised a higher ballot has answered. It must not be left out.
        const bool is_outbid = Rules::asks_those_that_refuse && highest_ > ballot_;
        if (proposing_ == Proposing::prepares && has_quorum(promised_by_) && !is_outbid) return ask_to_accept(now);
        propose(now);
    }

    /// Members that have not answered, and are not gone or could not be heard; for an error's text.
    [[nodiscard]] std::vector<int> silent() const {
        std::vector<int> found;
        for (const int member : members_)
            if (member != me_ && Base::says_nothing(member) && !heard_of(member)) found.push_back(member);
        return found;
    }

private:
    enum class Proposing : std::uint8_t { nothing, prepares, accepts };
    static constexpr std::uint64_t most_members = std::uint64_t{1} << 20;

    [[nodiscard]] static int proposer_of(std::uint64_t ballot) { return static_cast<int>(ballot % most_members); }
    /// The time at which this member gives up.
    [[nodiscard]] nanoseconds ends() const { return started_ == never ? never : started_ + times_.give_up; }
    [[nodiscard]] bool heard_of(int member) const { return heard_.find(member) != heard_.end(); }
    /// For an added member: takes part once each kept member is there or gone.
    void begin_if_kept_are_there(nanoseconds now) {
        const std::map<int, bool>& ready = ready_[epoch_ - 1];
        for (std::size_t i = 0; i < decision_.kept(); ++i)
            if (!is_gone(members_[i]) && ready.find(members_[i]) == ready.end()) return;
        awaits_kept_ = false;
        if (std::any_of(members_.begin(), members_.end(), [&](int member) { return is_gone(member); })) start_vote(now);
        else see_who_is_ready();
        replay(now);
    }
    void act_on_loss(int member, bool is_new, nanoseconds now) {
        if (is_new) tell_added(member);
        tell_other_hosts();
        if (has_left_) return;
        if (awaits_kept_) return begin_if_kept_are_there(now);
        if (phase_ == Phase::voting) {
            step_voting(now);
            if (phase_ != Phase::voting) return;
            const bool is_next = proposing_ == Proposing::nothing && first_here() == me_;
            const bool others_have_decided = !later_.empty();
            if (is_next || is_outbid_by_one_that_is_gone() || (others_have_decided && follows_one_that_is_gone()))
                propose(now);
        } else if (phase_ == Phase::gathering && is_new && is_member(member)) {
            start_vote(now);
            replay(now);
        }
    }

    [[nodiscard]] MembershipMessage gone_message(int member) const {
        return {.word = MembershipWord::gone, .epoch = epoch_, .member = member, .heard = !Base::is_unheard(member)};
    }
    /// Tells the added members that a member is gone. They have no connection to it, or not yet.
    void tell_added(int member) { send_added_as(MembershipWord::gone, gone_message(member)); }
    [[nodiscard]] std::uint64_t place_of(int member) const {
        const auto found = place_.find(member);
        return found == place_.end() ? 0 : found->second;
    }
    /// The first member that lives on this host tells those on other hosts which members of this
    /// host are gone. No other host can prove it.
    void tell_other_hosts() {
        const std::uint64_t here = place_of(me_);
        for (const int one : members_) {
            if (place_of(one) != here || is_gone(one)) continue;
            if (one == me_) break;
            return;
        }
        for (const auto& [member, gone] : gone_) {
            if (!gone || place_of(member) != here || !told_.insert(member).second) continue;
            for (const int other : members_)
                if (place_of(other) != here) send(other, gone_message(member));
        }
    }
    /// In a new epoch, repeats which of its members are gone. Words of an earlier one vouch for
    /// nothing that they did in this one.
    void tell_other_hosts_again() {
        if (!Rules::repeats_deaths) return;
        std::size_t again = 0;
        for (const int member : members_) again += is_gone(member) ? told_.erase(member) : 0;
        if (again != 0) tell_other_hosts();
    }
    /// Another member knows that a member is gone.
    void hear_of_death(const MembershipMessage& message, nanoseconds now) {
        if (message.member == me_) return;
        const bool is_new = !is_gone(message.member);
        Base::note_gone(message.member, false);
        if (message.heard) Base::note_vouched(message.member, message.epoch);
        act_on_loss(message.member, is_new, now);
    }

    /// The last message of this member. A receiver that the membership does not contain was left
    /// behind.
    [[nodiscard]] MembershipMessage goodbye() const {
        return {.word = MembershipWord::goodbye,
                .epoch = phase_ == Phase::left_behind ? later_epoch_ : epoch_,
                .successor = {.members = decision_.members, .next_number = decision_.next_number}};
    }
    /// `next`: a later membership, which does not contain this member.
    void be_left_behind(const Successor& next, std::uint64_t epoch) {
        is_left_out_ = true;
        later_epoch_ = epoch;
        decision_ = Successor{.members = next.members, .next_number = next.next_number};
        if (phase_ != Phase::member && phase_ != Phase::formed) phase_ = Phase::left_behind;
    }
    void tell_that_it_was_left_behind(int other) {
        for (const auto& [epoch, told] : past_) {
            if (std::binary_search(told.successor.members.begin(), told.successor.members.end(), other)) continue;
            return send_as(MembershipWord::joined, other, told);
        }
    }

    void start_vote(nanoseconds now) {
        if (is_left_out_) {
            phase_ = Phase::left_behind;
            return;
        }
        phase_ = Phase::voting;
        if (started_ == never) started_ = now;
        proposing_ = Proposing::nothing;
        promised_ = accepted_ballot_ = 0;
        accepted_ = {};
        heard_.clear();
        if (follow_stored_decision(now)) return;
        // Later than the first member decides without those that are silent: they may be heard.
        due_ = now + turn() * (times_.patience + times_.patience / 8);
        if (turn() == 0) propose(now);
    }
    [[nodiscard]] static bool is_final(const MembershipMessage& message) {
        const bool names_members = message.word == MembershipWord::decided || message.word == MembershipWord::ready ||
                                   message.word == MembershipWord::joined;
        return names_members && !message.successor.members.empty();
    }
    /// Those that have decided without this member, in this epoch or later, may commit at any time,
    /// and end.
    [[nodiscard]] bool ends_me(const MembershipMessage& message) const {
        return (message.epoch > epoch_ ? Rules::reads_early_decisions : Rules::believes_late_decisions) &&
               is_final(message) && is_end_for_me(message.successor);
    }
    /// Others may have decided before this member votes. It has promised nothing yet, so their
    /// decision is final for it as well.
    bool follow_stored_decision(nanoseconds now) {
        if (!Rules::reads_early_decisions) return false;
        const auto first = [&](const auto& holds) {
            return std::find_if(later_.begin(), later_.end(), [&](const auto& one) { return holds(one.second); });
        };
        const auto end = first([&](const auto& one) { return one.epoch >= epoch_ && ends_me(one); });
        const auto next = first([&](const auto& one) { return one.epoch == epoch_ && is_final(one); });
        const auto found = end != later_.end() ? end : next;
        if (found == later_.end()) return false;
        const MembershipMessage decided = found->second; // it stays, since it may say that its sender is ready
        if (end != later_.end()) be_left_behind(decided.successor, decided.epoch + 1);
        else decide(decided.successor, decided.ballot, now, false);
        return true;
    }
    /// Handles messages that had arrived before their epoch, in their order. Those that it has not
    /// reached yet are in `later_`, where a vote looks for a decision.
    void replay(nanoseconds now) {
        if (std::exchange(replays_, true)) return; // the outer call continues with the next message
        for (std::size_t i = 0; i < later_.size();) {
            const auto [from, message] = later_[i];
            later_.erase(later_.begin() + static_cast<std::ptrdiff_t>(i));
            const std::uint64_t epoch = epoch_;
            const std::size_t others = later_.size();
            const bool is_gathering = phase_ == Phase::gathering;
            receive(from, message, now);
            if (later_.size() > others) { // it is still too early for it
                std::rotate(later_.begin() + static_cast<std::ptrdiff_t>(i), later_.end() - 1, later_.end());
                ++i;
            }
            if (epoch_ != epoch || (is_gathering && phase_ == Phase::voting)) i = 0;
        }
        replays_ = false;
    }

    /// If no other member has answered a proposal, by a promise or a higher ballot, the others may
    /// hear this member although it does not hear them. It waits twice as long each time, so that
    /// they can agree without it.
    void propose(nanoseconds now) {
        const bool is_unanswered = proposing_ == Proposing::prepares && promised_by_.size() == 1 && highest_ <= ballot_;
        const std::uint64_t round = std::max(promised_, highest_) / most_members + 1;
        ballot_ = promised_ = highest_ = round * most_members + static_cast<std::uint64_t>(me_);
        proposing_ = Proposing::prepares;
        promised_by_.clear();
        promises_.clear();
        note_promise(me_, {.updates = updates_,
                           .accepted_ballot = accepted_ballot_,
                           .successor = accepted_,
                           .applicants = applicants_,
                           .missed = missed_});
        const nanoseconds times = is_unanswered ? nanoseconds{1} << std::min<std::uint64_t>(round - 1, 5) : 1;
        due_ = now + times * times_.patience;
        send_all({.word = MembershipWord::prepare, .epoch = epoch_, .ballot = ballot_});
        step_voting(now);
    }

    void note_promise(int from, const MembershipMessage& promise) {
        promised_by_[from] = true;
        promises_[from] = promise;
    }

    /// Called after a promise, an acceptance or a death.
    void step_voting(nanoseconds now) {
        if (has_no_elders() || Base::is_alone_in_doubt()) phase_ = Phase::no_quorum;
        else if (proposing_ == Proposing::prepares && awaits_none(promised_by_) && has_quorum(promised_by_))
            ask_to_accept(now);
        else if (proposing_ == Proposing::accepts && has_quorum(accepted_by_)) decide(proposed_, ballot_, now, true);
    }

    void ask_to_accept(nanoseconds now) {
        proposed_ = {};
        std::uint64_t best = 0;
        for (const auto& [from, promise] : promises_) {
            if (promise.accepted_ballot <= best) continue;
            best = promise.accepted_ballot;
            proposed_ = promise.successor;
        }
        if (best == 0) proposed_ = successor_of(promises_);
        proposing_ = Proposing::accepts;
        accepted_by_.clear();
        accepted_by_[me_] = true;
        for (const auto& [from, promise] : promises_)
            if (promise.accepted_ballot == joined_ballot) accepted_by_[from] = true;
        accepted_ = proposed_;
        accepted_ballot_ = ballot_;
        due_ = now + times_.patience;
        send_all({.word = MembershipWord::accept, .epoch = epoch_, .ballot = ballot_, .successor = proposed_});
        step_voting(now);
    }

    void handle(int from, const MembershipMessage& message, nanoseconds now) {
        if (!is_member(from)) return;
        heard_[from] = true;
        highest_ = std::max(highest_, message.ballot);
        switch (message.word) {
        case MembershipWord::prepare:
            if (message.ballot == promised_) return;
            if (message.ballot < promised_) return refuse(from);
            follow(message.ballot, now);
            return send(from, {.word = MembershipWord::promise,
                               .epoch = epoch_,
                               .ballot = promised_,
                               .updates = updates_,
                               .accepted_ballot = accepted_ballot_,
                               .successor = accepted_,
                               .applicants = applicants_,
                               .missed = missed_});
        case MembershipWord::promise:
            if (is_outbid_by_one_that_is_gone()) return propose(now);
            if (proposing_ != Proposing::prepares) return;
            if (message.ballot > ballot_) due_ = std::min(due_, now + times_.patience); // it hears others
            if (message.ballot != ballot_) return;
            note_promise(from, message);
            return step_voting(now);
        case MembershipWord::accept:
            if (message.ballot < promised_) return refuse(from);
            follow(message.ballot, now);
            accepted_ballot_ = message.ballot;
            accepted_ = message.successor;
            return send(from, {.word = MembershipWord::accepted, .epoch = epoch_, .ballot = promised_});
        case MembershipWord::accepted:
            if (proposing_ != Proposing::accepts || message.ballot != ballot_) return;
            accepted_by_[from] = true;
            return step_voting(now);
        case MembershipWord::joined:
            // The sender has acted on it, so it is final.
            if (is_end_for_me(message.successor)) return be_left_behind(message.successor, epoch_ + 1);
            if (proposing_ == Proposing::prepares) {
                note_promise(from, {.accepted_ballot = joined_ballot, .successor = message.successor});
                return step_voting(now);
            }
            if (proposing_ == Proposing::accepts && message.successor == proposed_) {
                accepted_by_[from] = true;
                return step_voting(now);
            }
            return;
        case MembershipWord::ready:
            ready_[epoch_][from] = true;
            // Malformed if empty: the sender knows that this member has decided.
            if (message.successor.members.empty()) return;
            [[fallthrough]];
        case MembershipWord::decided:
            if (ends_me(message)) return be_left_behind(message.successor, epoch_ + 1);
            if (message.ballot >= promised_) return decide(message.successor, message.ballot, now, false);
            // The members that chose it may be gone, and the others may choose again.
            if (follows_one_that_is_gone()) return propose(now);
            later_.emplace_back(from, message); // tells `lost` that others have decided
            return;
        case MembershipWord::gone:
        case MembershipWord::whole:
        case MembershipWord::ask:
        case MembershipWord::goodbye: return;
        }
    }

    /// Another proposer's ballot is in progress: this member waits before it starts its own.
    void follow(std::uint64_t ballot, nanoseconds now) {
        if (ballot != ballot_) proposing_ = Proposing::nothing;
        promised_ = ballot;
        due_ = now + 2 * times_.patience + turn() * times_.patience / 2;
    }

    /// The proposer whose ballot this member has promised is gone and does not answer. Others may
    /// have decided without that ballot, and wait for this member only for a limited time: it asks
    /// them with a higher ballot.
    [[nodiscard]] bool follows_one_that_is_gone() const {
        return proposing_ == Proposing::nothing && promised_ != 0 && is_gone(proposer_of(promised_));
    }

    /// Tells the proposer of a lower ballot the promised ballot.
    void refuse(int proposer) {
        send(proposer, {.word = MembershipWord::promise, .epoch = epoch_, .ballot = promised_});
    }
    /// Members that have promised the ballot of a gone proposer refuse this member's ballot. It
    /// needs a higher ballot, or leaves them out.
    [[nodiscard]] bool is_outbid_by_one_that_is_gone() const {
        return proposing_ != Proposing::nothing && highest_ > ballot_ && is_gone(proposer_of(highest_));
    }

    /// `mine`: this is the member's own proposal, and no other member knows the decision yet. The
    /// first member also tells all: the proposer may have died before it did.
    void decide(const Successor& successor, std::uint64_t ballot, nanoseconds now, bool mine) {
        const MembershipMessage told{
            .word = MembershipWord::decided, .epoch = epoch_, .ballot = ballot, .successor = successor};
        const int first = successor.members.empty() ? -1 : successor.members.front();
        if (mine || first == me_) send_all(told);
        if (is_end_for_me(successor)) return be_left_behind(Successor(successor), epoch_ + 1);
        decision_ = successor;
        have_been_added_.insert(have_been_added_.end(), successor.added.begin(), successor.added.end());
        proposing_ = Proposing::nothing;
        if (successor.source < 0) {
            phase_ = Phase::no_state;
            return;
        }
        send_added_as(MembershipWord::ready, told);
        // If the first member proposed this ballot, it has the decision already.
        if (proposer_of(ballot) == first)
            send(first, {.word = MembershipWord::ready, .epoch = epoch_, .ballot = ballot});
        else send_as(MembershipWord::ready, first, told);
        past_[epoch_] = told;
        members_ = successor.members;
        next_number_ = successor.next_number;
        applicants_.clear();
        promises_.clear();
        accepted_ = proposed_ = {}; // `successor` may refer to one of them
        ready_.erase(ready_.begin(), ready_.lower_bound(epoch_++));
        for (const auto& [member, gone] : gone_)
            if (gone) tell_added(member);
        tell_other_hosts_again();
        highest_ = promised_ = accepted_ballot_ = 0;
        phase_ = Phase::gathering;
        due_ = now + 2 * times_.patience;
        if (std::any_of(members_.begin(), members_.end(), [&](int member) { return is_gone(member); })) start_vote(now);
        else see_who_is_ready();
        replay(now);
    }

    /// Answers members that are still in an epoch that this one has left.
    void answer_late(int from, const MembershipMessage& message, nanoseconds now) {
        const auto past = past_.find(message.epoch);
        if (past == past_.end()) return;
        if (message.word == MembershipWord::ready && message.epoch + 1 == epoch_) {
            ready_[message.epoch][from] = true;
            if (awaits_kept_) return begin_if_kept_are_there(now);
            if (phase_ == Phase::gathering) see_who_is_ready();
        }
        if (message.word == MembershipWord::whole && message.epoch + 1 == epoch_) {
            whole_ = epoch_;
            if (phase_ == Phase::gathering && !awaits_kept_) see_who_is_ready();
        }
        const std::vector<int>& next = past->second.successor.members;
        const bool is_left_out = !std::binary_search(next.begin(), next.end(), from);
        if (message.word == MembershipWord::ask && !is_left_out)
            return send_as(MembershipWord::ready, from, past->second);
        if (message.word == MembershipWord::ask || message.word == MembershipWord::prepare ||
            message.word == MembershipWord::accept)
            send_as(MembershipWord::joined, from, past->second);
    }

    /// The first member waits until all are ready, and tells the others. An added member waits for
    /// all as well, and all wait for it: they must be connected.
    void see_who_is_ready() {
        const std::map<int, bool>& ready = ready_[epoch_ - 1];
        const auto are_ready = [&](std::size_t from) {
            return ready.size() + 1 >= members_.size() - from && // a cheap test first
                   std::all_of(members_.begin() + static_cast<std::ptrdiff_t>(from), members_.end(),
                               [&](int member) { return member == me_ || ready.find(member) != ready.end(); });
        };
        if (members_.front() == me_ && whole_ != epoch_ && are_ready(0)) {
            whole_ = epoch_;
            send_all({.word = MembershipWord::whole, .epoch = epoch_ - 1});
        }
        const std::size_t kept = decision_.kept();
        const bool was_added = kept < members_.size() && me_ >= members_[kept];
        if (whole_ == epoch_ && are_ready(was_added ? 0 : kept)) phase_ = Phase::formed;
    }

    /// A member that has left takes part in no membership any more. If it has left in a later one,
    /// which does not contain this member, then this member was left behind.
    void hear_goodbye(int from, const MembershipMessage& message, nanoseconds now) {
        const std::vector<int>& members = message.successor.members;
        if (message.epoch <= epoch_ || std::binary_search(members.begin(), members.end(), me_)) return lost(from, now);
        Base::note_gone(from, true);
        if (!has_left_) be_left_behind(message.successor, message.epoch);
    }

    static constexpr std::uint64_t joined_ballot = ~std::uint64_t{0}; ///< ballot of a final decision

    Times times_;
    Phase phase_ = Phase::member;
    std::uint64_t updates_ = 0;
    std::uint64_t later_epoch_ = 0; ///< of the membership without this member
    bool is_left_out_ = false;      ///< there is such a membership
    bool has_left_ = false;         ///< this member has said goodbye
    bool awaits_kept_ = false;      ///< this member was added, and does not take part yet
    bool replays_ = false;          ///< this member handles stored messages
    std::vector<Applicant> applicants_;
    std::vector<Applicant> have_been_added_;
    std::map<int, bool> heard_;
    std::map<int, std::uint64_t> place_; ///< host of each member; those without are on one host
    std::set<int> told_;                 ///< gone members of this host of which other hosts were told
    std::vector<int> missed_;            ///< members to which this one could not connect
    std::uint64_t promised_ = 0;
    std::uint64_t highest_ = 0; ///< highest ballot in any message
    std::uint64_t accepted_ballot_ = 0;
    Successor accepted_;
    Proposing proposing_ = Proposing::nothing;
    std::uint64_t ballot_ = 0; ///< ballot of this member's own proposal
    std::map<int, bool> promised_by_;
    std::map<int, MembershipMessage> promises_;
    Successor proposed_;
    std::map<int, bool> accepted_by_;
    std::map<std::uint64_t, MembershipMessage> past_;      ///< decisions, by the epoch in which they were made
    std::map<std::uint64_t, std::map<int, bool>> ready_;   ///< members that have acted on each decision
    std::vector<std::pair<int, MembershipMessage>> later_; ///< messages of later epochs
    std::uint64_t whole_ = 0;                              ///< the epoch whose members are all ready
    nanoseconds started_ = never;
    nanoseconds due_ = never;
};

} // namespace detail
UNISONO_NAMESPACE_END
