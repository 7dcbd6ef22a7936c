#pragma once

/// \file
/// The members that decide on the next membership, and their proposal.
///
/// A *quorum* is either a majority of the membership, or all of its members that are not gone. A
/// member is *gone* when its death is proven, or when it has sent a goodbye in this epoch. So after
/// proven deaths any number of members can continue; after mere silence only a majority can.
///
/// Why there are never two worlds: two quorums have a member in common, which reports what it has
/// accepted, unless all members of one quorum are gone. In that case a late `decided` of theirs
/// must not count: a member acts on it only if it has not promised a higher ballot since. (Paxos
/// alone does not require that.) A member that has acted on a decision answers older messages with
/// `joined`, which counts as its promise and its acceptance in every ballot. So while it lives, no
/// member that must hear all living members can choose otherwise.
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
#include "unisono/elastic/membership_messages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
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
    static constexpr bool added_members_wait = true; ///< until the kept members have acted on the decision
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
        gone_[member] = true;
        if (!heard) unheard_[member] = true;
    }
    /// True if a member is not gone, or its last messages have not arrived.
    [[nodiscard]] bool says_nothing(int member) const {
        return !is_gone(member) || unheard_.find(member) != unheard_.end();
    }
    [[nodiscard]] int first_here() const {
        for (const int member : members_)
            if (!is_gone(member)) return member;
        return me_;
    }

    /// The number of members that propose before this one.
    [[nodiscard]] nanoseconds turn() const {
        nanoseconds before = 0;
        for (const int member : members_) {
            if (member == me_) break;
            if (!is_gone(member)) ++before;
        }
        return before;
    }
    /// True if a message says that this member is not among those that continue.
    [[nodiscard]] bool is_end_for_me(const MembershipMessage& message) const {
        return message.word == MembershipWord::decided &&
               !std::binary_search(message.successor.members.begin(), message.successor.members.end(), me_);
    }
    /// True for a majority, or for all members that are not gone.
    [[nodiscard]] bool has_quorum(const std::map<int, bool>& by) const {
        if (!Rules::needs_quorum) return true;
        // A cheap test first: too few for a majority, and not all that are left.
        if (2 * by.size() <= kept_members() && by.size() + gone_.size() < members_.size()) return false;
        const auto kept = members_.begin() + static_cast<std::ptrdiff_t>(kept_members());
        const auto heard =
            std::count_if(members_.begin(), kept, [&](int member) { return by.find(member) != by.end(); });
        return (2 * heard > kept - members_.begin() || (has_all(by) && !may_be_left_behind())) && has_elder(by);
    }
    /// Members have ended whose last words this one did not hear. They may have gone on without it,
    /// with members that have died since, and may have finished.
    [[nodiscard]] bool may_be_left_behind() const {
        return kept_members() > 2 && std::any_of(members_.begin(), members_.end(),
                                                 [&](int member) { return unheard_.find(member) != unheard_.end(); });
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

    /// The proposal of a proposer that is free to choose: the members that have promised, and the
    /// applicants that wait at them.
    [[nodiscard]] Successor successor_of(const Promises& promises) const {
        Successor proposed;
        for (const auto& [from, promise] : promises) {
            if (is_unwanted(from)) continue;
            proposed.members.push_back(from);
            if (promise.updates == no_state_yet) continue;
            if (proposed.source >= 0 && promise.updates <= proposed.updates) continue;
            proposed.source = from;
            proposed.updates = promise.updates;
        }
        proposed.next_number = next_number_;
        note_doubtful(promises, proposed);
        add_applicants(promises, proposed);
        return proposed;
    }

    int me_;
    std::vector<int> members_;
    Successor decision_; ///< the decision that has made `members_`
    int next_number_;
    std::size_t most_ = ~std::size_t{0};
    std::map<int, bool> gone_;
    std::map<int, bool> unheard_; ///< gone members whose connections to this member were cut before
    std::vector<int> unwanted_;   ///< members that live, but that this member leaves out of its proposals

private:
    [[nodiscard]] bool is_unwanted(int member) const {
        return std::find(unwanted_.begin(), unwanted_.end(), member) != unwanted_.end();
    }
    void note_doubtful(const Promises& promises, Successor& proposed) const {
        const auto note = [&](int member) {
            if (!is_gone(member) && (promises.find(member) == promises.end() || is_unwanted(member)))
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

} // namespace detail
UNISONO_NAMESPACE_END
