#pragma once

/// \file
/// The members that decide on the next membership, and their proposal.
///
/// A *quorum* is a majority of the membership, or a half of it that has its lowest member, or all
/// of its members that are not gone. A member is *gone* when its death is proven, or when it has
/// sent a goodbye. So after proven deaths any number of members can continue; after mere silence
/// only a majority, or the half with the lowest member, can.
///
/// *Proof.* Only a death that was seen on the member's own host is proven: by this process, or by
/// another member there, which tells the others (`gone`). Nothing that comes from another host
/// proves anything. A member whose host refuses connections is *suspected*: a majority does not
/// wait for its answer.
///
/// Why there are not two worlds, but for the two cases of docs/elastic.md: two quorums have a
/// member in common, which reports what it has accepted, unless all members of one quorum are gone.
/// In that case a late `decided` of theirs must not count: a member acts on it only if it has not
/// promised a higher ballot since, or if it is not among those that continue. (Paxos alone does not
/// require that.) A member that has acted on a decision answers older messages with `joined`, which
/// counts as its promise and its acceptance in every ballot. So while it lives, no member that must
/// hear all living members can choose otherwise. When it ends, its goodbye says in which membership
/// it was. If its last messages did not arrive (it is *unheard*), and the members that are gone
/// could have been a quorum, then the others cannot know whether these have continued without them:
/// all members that are left are no quorum.
///
/// *Adding.* A successor may contain added members: processes that wait at a member. A member that
/// did not hear the decision does not know the added members. If all members that it knows die, it
/// continues alone. Three rules stop the added members from continuing as well:
/// - An added member takes part in nothing until each of the kept members has acted on the decision
///   (it is `ready`), or is gone. Then all kept members that live answer with `joined`, and none of
///   them can choose otherwise. They tell the added members which members are `gone`.
/// - A member that was left behind, and is not known to be gone, is *doubtful*. While there is a
///   doubtful member, a quorum needs one of that member's *elders*, the members that it knows: as
///   long as an elder lives, the doubtful member does not continue alone.
/// - Until the next membership, the majority is one of the kept members. So an added member that is
///   silent from the start stops no other.
/// An added member has no state until it gets the state in a world. If no member with a state is
/// left, all members end with an error.

#include "unisono/core/time.hpp"
#include "unisono/extensions/elastic/membership_messages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The conditions of the protocol's proof. Tests leave out one of them, and check that they detect
/// the violation.
struct MembershipRules {
    static constexpr bool checks_epochs = true;
    static constexpr bool needs_quorum = true;
    static constexpr bool agrees_on_updates = true;
    static constexpr bool needs_elders = true;
    static constexpr bool needs_last_words = true;        ///< of members that could have been a quorum
    static constexpr bool needs_lowest_of_halves = true;  ///< otherwise any half continues
    static constexpr bool tells_those_left_behind = true; ///< when a member leaves
    static constexpr bool believes_late_decisions = true; ///< of members that continue without this one
    static constexpr bool reads_early_decisions = true;   ///< of others, before this member votes
    static constexpr bool asks_those_that_refuse = true;  ///< again with a higher ballot, before it leaves them out
    static constexpr bool repeats_deaths = true;          ///< in each epoch, to other hosts
    static constexpr bool added_members_wait = true;      ///< until the kept members have acted on the decision
};

/// The state of a member in the protocol.
enum class MembershipPhase : std::uint8_t {
    member,      ///< the member's world works
    voting,      ///< votes for the next membership
    gathering,   ///< waits for the others of the next membership
    formed,      ///< all members of the next membership are there
    left_behind, ///< the next membership is without this member
    no_quorum,   ///< too many members have been silent for too long
    no_state,    ///< all members that had the training's state are gone
};

struct MembershipTimes {
    nanoseconds patience = 30'000'000'000; ///< time until a silent member is suspected
    nanoseconds give_up = 600'000'000'000; ///< time without a decision after which there is none
};

/// The knowledge of a member about its membership.
template <class Rules>
class Electorate {
protected:
    using Promises = std::map<int, MembershipMessage>;

    Electorate(int me, std::vector<int> members, Successor decision, int next_number)
        : me_(me), members_(std::move(members)), decision_(std::move(decision)), next_number_(next_number) {}

    [[nodiscard]] bool is_member(int one) const { return std::binary_search(members_.begin(), members_.end(), one); }
    [[nodiscard]] bool is_gone(int member) const {
        const auto found = gone_.find(member);
        return found != gone_.end() && found->second;
    }
    /// Notes that a member is gone. `heard`: its last messages have arrived.
    void note_gone(int member, bool heard) {
        const bool is_new = !is_gone(member);
        gone_[member] = true;
        suspected_.erase(member);
        if (heard) unheard_.erase(member);
        else if (is_new) unheard_[member] = {};
    }
    /// A member of that epoch has heard the last messages of a member that is gone.
    void note_vouched(int member, std::uint64_t epoch) {
        const auto found = unheard_.find(member);
        if (found != unheard_.end() && (epoch == epoch_ || (epoch > epoch_ && Rules::repeats_deaths)))
            found->second.insert(epoch);
    }
    [[nodiscard]] bool is_unheard(int member) const {
        const auto found = unheard_.find(member);
        return found != unheard_.end() && found->second.find(epoch_) == found->second.end();
    }
    /// True if a member is not gone, or its last messages have not arrived.
    [[nodiscard]] bool says_nothing(int member) const { return !is_gone(member) || is_unheard(member); }
    [[nodiscard]] bool is_suspected(int member) const { return suspected_.find(member) != suspected_.end(); }
    [[nodiscard]] int first_here() const {
        for (const int member : members_)
            if (!is_gone(member) && !is_suspected(member)) return member;
        return me_;
    }

    /// The number of members that propose before this one.
    [[nodiscard]] nanoseconds turn() const {
        nanoseconds before = 0;
        for (const int member : members_) {
            if (member == me_) break;
            if (!is_gone(member) && !is_suspected(member)) ++before;
        }
        return before;
    }
    /// True if this member is not among those that continue.
    [[nodiscard]] bool is_end_for_me(const Successor& next) const {
        return !std::binary_search(next.members.begin(), next.members.end(), me_);
    }
    /// True if these are a majority of the kept members, or a half with the lowest one.
    template <class Among>
    [[nodiscard]] bool is_majority(Among is_among) const {
        const auto kept = static_cast<std::ptrdiff_t>(kept_members());
        const auto found = std::count_if(members_.begin(), members_.begin() + kept, is_among);
        return 2 * found > kept ||
               (2 * found == kept && kept != 0 && (!Rules::needs_lowest_of_halves || is_among(members_.front())));
    }
    /// True for a majority, a half with the lowest member, or all members that are not gone.
    [[nodiscard]] bool has_quorum(const std::map<int, bool>& by) const {
        if (!Rules::needs_quorum) return true;
        // A cheap test first: too few for a half, and not all that are left.
        if (2 * by.size() < kept_members() && by.size() + gone_.size() < members_.size()) return false;
        const auto has_answered = [&](int member) { return by.find(member) != by.end(); };
        return (is_majority(has_answered) || (has_all(by) && !may_be_left_behind())) && has_elder(by);
    }
    /// Members that are gone could have been a quorum, and this member did not hear the last words
    /// of one of them. They may have continued without it.
    [[nodiscard]] bool may_be_left_behind() const {
        return Rules::needs_last_words &&
               std::any_of(members_.begin(), members_.end(), [&](int one) { return is_unheard(one); }) &&
               is_majority([&](int one) { return is_gone(one); });
    }
    /// No membership can follow: `may_be_left_behind`, and no other member lives.
    [[nodiscard]] bool is_alone_in_doubt() const {
        return may_be_left_behind() &&
               std::all_of(members_.begin(), members_.end(), [&](int one) { return one == me_ || is_gone(one); });
    }
    /// The number of members that this membership has kept from the one before.
    [[nodiscard]] std::size_t kept_members() const {
        return decision_.members.empty() ? members_.size() : decision_.kept();
    }
    [[nodiscard]] bool has_elder(const std::map<int, bool>& by) const {
        if (!Rules::needs_elders || !has_doubtful()) return true;
        return std::any_of(decision_.elders.begin(), decision_.elders.end(),
                           [&](int elder) { return by.find(elder) != by.end(); });
    }
    [[nodiscard]] bool has_doubtful() const {
        return std::any_of(decision_.doubtful.begin(), decision_.doubtful.end(),
                           [&](int member) { return !is_gone(member); });
    }
    /// No membership can follow: a member that was left behind may live, and every member that it
    /// knows is gone.
    [[nodiscard]] bool has_no_elders() const {
        return Rules::needs_elders && has_doubtful() &&
               std::all_of(decision_.elders.begin(), decision_.elders.end(), [&](int elder) { return is_gone(elder); });
    }
    [[nodiscard]] bool has_all(const std::map<int, bool>& by) const {
        return by.size() + gone_.size() >= members_.size() && // a cheap test first
               std::all_of(members_.begin(), members_.end(),
                           [&](int member) { return is_gone(member) || by.find(member) != by.end(); });
    }

    /// True if each member has answered, is gone, or is suspected.
    [[nodiscard]] bool awaits_none(const std::map<int, bool>& by) const {
        return by.size() + gone_.size() + suspected_.size() >= members_.size() && // a cheap test first
               std::all_of(members_.begin(), members_.end(), [&](int member) {
                   return is_gone(member) || is_suspected(member) || by.find(member) != by.end();
               });
    }

    /// The proposal of a proposer that is free to choose: the members that have promised, and the
    /// applicants that wait at them.
    [[nodiscard]] Successor successor_of(const Promises& promises) const {
        Successor proposed;
        for (const auto& one : promises)
            if (!is_unwanted(one.first)) proposed.members.push_back(one.first);
        leave_out_unreachable(promises, proposed.members);
        for (const int from : proposed.members) {
            const MembershipMessage& promise = promises.at(from);
            if (promise.updates == no_state_yet) continue;
            if (proposed.source >= 0 && promise.updates <= proposed.updates) continue;
            proposed.source = from;
            proposed.updates = promise.updates;
        }
        proposed.next_number = next_number_;
        note_doubtful(proposed);
        add_applicants(promises, proposed);
        return proposed;
    }

    int me_;
    std::vector<int> members_;
    std::uint64_t epoch_ = 0;
    Successor decision_; ///< the decision that has made `members_`
    int next_number_;
    std::size_t most_ = ~std::size_t{0};
    std::map<int, bool> gone_;
    /// Gone members whose last messages did not arrive, with the epochs in which another member has
    /// vouched for them.
    std::map<int, std::set<std::uint64_t>> unheard_;
    std::set<int> suspected_;   ///< members whose hosts refuse this one; not gone
    std::vector<int> unwanted_; ///< members that live, but that this member leaves out of its proposals

private:
    [[nodiscard]] bool is_unwanted(int member) const {
        return std::find(unwanted_.begin(), unwanted_.end(), member) != unwanted_.end();
    }
    /// Leaves out members that could not connect to others when the next world was to be formed:
    /// first those with the most such others. Leaves out none if the rest is not a majority of the
    /// members that are not gone, or a half of them with the lowest one.
    void leave_out_unreachable(const Promises& promises, std::vector<int>& members) const {
        std::set<std::pair<int, int>> apart;
        for (const int one : members)
            for (const int other : promises.at(one).missed)
                if (one != other && std::binary_search(members.begin(), members.end(), other))
                    apart.insert({std::min(one, other), std::max(one, other)});
        std::vector<int> rest = members;
        while (!apart.empty()) {
            std::map<int, int> missed;
            for (const auto& [one, other] : apart) ++missed[one], ++missed[other];
            const int worst =
                std::max_element(missed.begin(), missed.end(), [](const auto& one, const auto& other) {
                    return one.second != other.second ? one.second < other.second : one.first < other.first;
                })->first;
            std::erase(rest, worst);
            std::erase_if(apart, [&](const auto& pair) { return pair.first == worst || pair.second == worst; });
        }
        std::vector<int> here;
        std::copy_if(members_.begin(), members_.end(), std::back_inserter(here),
                     [&](int one) { return !is_gone(one); });
        const bool is_half = !rest.empty() && 2 * rest.size() == here.size() && rest.front() == here.front();
        if (2 * rest.size() > here.size() || is_half) members = std::move(rest);
    }
    void note_doubtful(Successor& proposed) const {
        const auto note = [&](int member) {
            if (!is_gone(member) && !std::binary_search(proposed.members.begin(), proposed.members.end(), member))
                proposed.doubtful.push_back(member);
        };
        std::for_each(decision_.doubtful.begin(), decision_.doubtful.end(), note);
        if (!proposed.doubtful.empty()) proposed.elders = decision_.elders;
        std::for_each(members_.begin(), members_.end(), note);
        if (!proposed.doubtful.empty() && proposed.elders.empty()) proposed.elders = proposed.members;
    }
    void add_applicants(const Promises& promises, Successor& proposed) const {
        const std::size_t kept = proposed.members.size();
        for (const auto& [from, promise] : promises) {
            for (const Applicant& one : promise.applicants) {
                const auto is_it = [&](const Applicant& other) { return other.identity == one.identity; };
                if (kept + proposed.added.size() >= most_ ||
                    std::any_of(proposed.added.begin(), proposed.added.end(), is_it) ||
                    std::any_of(decision_.added.begin(), decision_.added.end(), is_it))
                    continue;
                proposed.added.push_back(one);
                proposed.members.push_back(proposed.next_number++);
            }
        }
    }
};

/// The messages that a member has to send. Members that are gone get none.
template <class Rules>
class MembershipOutbox : protected Electorate<Rules> {
    using Base = Electorate<Rules>;

public:
    /// The messages to send, with their receivers.
    [[nodiscard]] std::vector<std::pair<int, MembershipMessage>> take_messages() { return std::exchange(out_, {}); }

protected:
    using Base::Base;

    void send(int to, MembershipMessage message) {
        if (to != Base::me_ && !Base::is_gone(to)) out_.emplace_back(to, std::move(message));
    }
    void send_as(MembershipWord word, int to, MembershipMessage message) {
        message.word = word;
        send(to, std::move(message));
    }
    void send_all(const MembershipMessage& message) {
        for (const int member : Base::members_) send(member, message);
    }
    /// Sends a message to the members that the last decision has added.
    void send_added_as(MembershipWord word, const MembershipMessage& message) {
        const Successor& last = Base::decision_;
        for (std::size_t i = last.kept(); i < last.members.size(); ++i) send_as(word, last.members[i], message);
    }

private:
    std::vector<std::pair<int, MembershipMessage>> out_;
};

} // namespace detail
UNISONO_NAMESPACE_END
