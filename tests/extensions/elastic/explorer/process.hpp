#pragma once

/// One process of an explored elastic world: a member, as it is shipped, and around it as much of a
/// training as the explorer needs, which is a count of committed updates and of rounds in worlds.
/// explorer.hpp says what happens to it. Nothing here has a clock: `patience` is 0, so
/// every wait may end at once, and the explorer says when it does.

#include "state.hpp"
#include <unisono/extensions/elastic/evidence.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// A membership with those before it. No process sends it: with it the explorer compares what
/// processes believe.
struct MembershipPath {
    int before = -1; ///< the path up to the membership before; -1: none
    std::uint64_t epoch = 0;
    std::vector<int> members = {};
    std::uint64_t updates = 0; ///< committed updates with which this membership begins
    int source = 0;
};

/// All memberships of an exploration.
class MembershipPaths {
public:
    explicit MembershipPaths(int first) {
        MembershipPath root;
        for (int member = 0; member < first; ++member) root.members.push_back(member);
        all_.push_back(root);
    }
    [[nodiscard]] const MembershipPath& operator[](int path) const { return all_[static_cast<std::size_t>(path)]; }
    int after(int path, const unisono::detail::Successor& next) {
        StateBytes key;
        key.put_all(path, next);
        const auto [found, is_new] = numbers_.try_emplace(std::move(key.bytes()), static_cast<int>(all_.size()));
        if (is_new) all_.push_back({path, (*this)[path].epoch + 1, next.members, next.updates, next.source});
        return found->second;
    }
    /// The membership of this epoch, on the way to `path`; -1: none.
    [[nodiscard]] int at(int path, std::uint64_t epoch) const {
        while (path >= 0 && (*this)[path].epoch > epoch) path = (*this)[path].before;
        return path >= 0 && (*this)[path].epoch == epoch ? path : -1;
    }
    [[nodiscard]] bool leads_to(int path, int later) const { return at(later, (*this)[path].epoch) == path; }

private:
    std::vector<MembershipPath> all_;
    std::map<std::string, int> numbers_;
};

/// A message, or a new connection, from one process to another.
struct ExploredLetter {
    bool is_connection = false;
    int number = -1;      ///< of a connection: the sender's number
    int your_number = -1; ///< of a connection: the receiver's number
    int path = -1;        ///< of the first message to an added process: the membership that added it
    unisono::detail::MembershipMessage message = {};

    void write(StateBytes& to) const {
        to.put_all(is_connection, number, your_number, path);
        if (!is_connection) to.put(message);
    }
};

/// The state of a process.
enum class Stand : std::uint8_t {
    waits,    ///< waits to be added
    trains,   ///< is in a world
    votes,    ///< looks for the next world
    finished, ///< has ended with all updates
    gave_up,  ///< has ended with an error
    crashed
};

/// The last contribution of a process to a world.
struct Contribution {
    int path = 0;             ///< of the world
    int given = 0;            ///< 0: is ready for the world; n: has contributed to the first n rounds
    std::uint64_t begins = 0; ///< its updates when it entered the world
};

/// One process. Process p of the first world has the number p; process `first` is added later.
template <class Rules>
class ExploredProcess {
    using Member = unisono::detail::Membership<Rules>;
    using State = unisono::detail::MembershipState<Rules>;
    using Phase = unisono::detail::MembershipPhase;
    static constexpr unisono::detail::MembershipTimes times = {.patience = 0, .give_up = 1};

public:
    /// `hosts`: bit p says which of two hosts process p runs on.
    ExploredProcess(int me, int first, unsigned hosts, MembershipPaths& paths)
        : me_(me), first_(first), hosts_(hosts), paths_(&paths) {
        if (me >= first) return;
        member_.emplace(me, paths[0].members, times);
        set_up();
        number_ = me;
        path_ = 0;
        for (int other = 0; other < first; ++other)
            if (other != me) open_ |= 1u << other;
        known_ = open_;
        stand = Stand::votes;
        contributions.push_back({0, 0, 0});
        enter();
    }

    // Events. Each call ends with `settle`.

    void hear(int from, const ExploredLetter& letter) {
        if (letter.is_connection) {
            if (number_ >= 0 && number_ != letter.your_number) return;
            number_ = letter.your_number;
            open_ |= 1u << from;
            known_ |= 1u << from;
            if (member_) {
                member_->place(letter.number, host_of(from));
                member_->introduce(letter.number);
            }
        } else if (!member_) {
            if (letter.message.word != unisono::detail::MembershipWord::ready || letter.path < 0) return;
            member_.emplace(number_, letter.message, times, 0);
            set_up();
            path_ = letter.path;
            updates = unisono::detail::no_state_yet;
            stand = Stand::votes;
            for (int other = 0; other < first_; ++other)
                if ((known_ >> other & 1) != 0) member_->introduce(other);
            member_->receive(from, letter.message, 0);
        } else {
            if (letter.message.word == unisono::detail::MembershipWord::goodbye) goodbyes_ |= 1u << from;
            member_->receive(number_of(from), letter.message, 0);
        }
        settle();
    }
    /// The connection to the other process has ended. `is_here`: this host says that the process
    /// has ended. Otherwise its host refuses connections, which `trusts` takes for a proof.
    void examine(int other, bool is_here, bool trusts) {
        unisono::detail::Evidence evidence;
        const bool was_cut = (cut_ >> other & 1) != 0;
        evidence.connection_ended(0);
        const nanoseconds now = was_cut && !trusts ? unisono::detail::Evidence::longest_end + 1 : 0;
        if (is_here) evidence.ended_here(true, now);
        for (const nanoseconds then : {now, now + unisono::detail::Evidence::refused_for})
            if (!is_here) evidence.refused(trusts, then);
        const unisono::detail::Conclusion found = evidence.conclusion(now + unisono::detail::Evidence::refused_for);
        if (found == unisono::detail::Conclusion::ended) open_ &= ~(1u << other);
        if (member_ && found == unisono::detail::Conclusion::ended)
            member_->lost(number_of(other), 0, evidence.was_heard(now, unisono::detail::Evidence::longest_end));
        if (member_ && found == unisono::detail::Conclusion::refuses) member_->suspect(number_of(other), 0);
        settle();
    }
    void connect_again(int other) {
        open_ |= 1u << other;
        member_->introduce(number_of(other));
        settle();
    }
    void cut_from(unsigned others) {
        cut_ |= known_ & others;
        open_ &= ~others;
    }
    void let_time_pass() {
        member_->tick(0);
        settle();
    }
    void let_all_time_pass() {
        member_->tick(1);
        settle();
    }
    /// The world, or the attempt to form it, has failed.
    void fail() {
        stand = Stand::votes;
        if (waiting_) member_->expect({{.identity = 1}});
        waiting_ = false;
        member_->begin(updates, 0);
        settle();
    }
    void let_apply() { waiting_ = true; }
    void enter() {
        stand = Stand::trains;
        Contribution& here = contributions.back();
        here.given = 1;
        here.begins = updates;
        round = 0;
        member_->work();
        if (path_ != 0 && number_ == paths()[path_].source && updates != paths()[path_].updates)
            violation = "a committed update is lost: the source has other updates than the members have agreed on";
    }
    [[nodiscard]] bool is_to_be_brought() const { return Rules::agrees_on_updates && path_ != 0 && round == 0; }
    void commit() {
        if (is_to_be_brought()) {
            const std::uint64_t brought = paths()[path_].updates;
            if (updates != unisono::detail::no_state_yet && brought < updates)
                violation = "a committed update is lost: the source has fewer updates than another member";
            updates = brought;
        } else {
            ++updates;
            committed_path = path_;
        }
        ++round;
        ++contributions.back().given;
    }
    void finish() { end(Stand::finished); }
    /// Answers those that were left behind no longer.
    void stop_answering() { forget(); }
    void crash() {
        stand = Stand::crashed;
        forget();
    }

    /// All that decides what the process does later.
    void write(StateBytes& to) const {
        to.put_all(me_, static_cast<int>(stand), number_, path_, committed_path, updates, round, std::uint64_t{open_},
                   std::uint64_t{known_}, std::uint64_t{cut_}, std::uint64_t{goodbyes_}, waiting_);
        for (const Contribution& one : contributions) to.put_all(one.path, one.given, one.begins);
        if (member_) State::write(*member_, to);
    }
    [[nodiscard]] Phase phase() const { return member_ ? member_->phase() : Phase::member; }
    [[nodiscard]] int path() const { return path_; }
    [[nodiscard]] unsigned open() const { return open_; }
    [[nodiscard]] unsigned known() const { return known_; }
    [[nodiscard]] unsigned cut() const { return cut_; }
    [[nodiscard]] unsigned goodbyes() const { return goodbyes_; }
    [[nodiscard]] bool has_applicant() const { return waiting_; }
    [[nodiscard]] bool can_give_up() const {
        return member_ && (member_->phase() == Phase::voting || State::awaits_kept(*member_));
    }
    /// Processes that this one knows to have ended.
    [[nodiscard]] unsigned gone() const {
        unsigned found = 0;
        for (int other = 0; member_ && other <= first_; ++other)
            if (State::is_gone(*member_, number_of(other))) found |= 1u << other;
        return found;
    }
    [[nodiscard]] unsigned suspected() const {
        unsigned found = 0;
        for (int other = 0; member_ && other <= first_; ++other)
            if (State::is_suspected(*member_, number_of(other))) found |= 1u << other;
        return found;
    }
    /// Has ended, and still answers those that were left behind.
    [[nodiscard]] bool lingers() const { return has_ended() && member_.has_value(); }
    /// Trains, and looks for messages of those that were left behind between two updates.
    [[nodiscard]] bool answers() const { return stand == Stand::trains && !member_->left_behind().empty(); }
    [[nodiscard]] int process_of(int number) const { return number < first_ ? number : first_; }

    Stand stand = Stand::waits;
    std::uint64_t updates = 0; ///< committed updates
    int round = 0;             ///< of this process's world
    int committed_path = -1;   ///< the last membership in whose world it has committed an update
    std::vector<Contribution> contributions = {};
    unsigned blamed = 0; ///< processes that this event has named as lost or silent
    const char* violation = nullptr;
    std::vector<std::pair<int, ExploredLetter>> sent = {};

private:
    [[nodiscard]] MembershipPaths& paths() const { return *paths_; }
    [[nodiscard]] int number_of(int process) const {
        if (process < first_) return process;
        return process == me_ ? number_ : added_number_;
    }
    [[nodiscard]] std::uint64_t host_of(int process) const { return hosts_ >> process & 1; }
    [[nodiscard]] bool has_ended() const { return stand == Stand::finished || stand == Stand::gave_up; }
    void set_up() {
        member_->take_in_at_most(64);
        for (int other = 0; other < first_; ++other) member_->place(other, host_of(other));
        if (me_ == first_) member_->place(number_, host_of(me_));
    }
    void follow_path() {
        for (std::uint64_t epoch = paths()[path_].epoch; epoch < member_->epoch(); ++epoch) {
            const auto& decisions = State::decisions(*member_);
            const auto decision = decisions.find(epoch);
            if (decision == decisions.end()) {
                violation = "a member has skipped a membership";
                return;
            }
            const unisono::detail::Successor& next = decision->second.successor;
            for (const int member : paths()[path_].members)
                if (!std::binary_search(next.members.begin(), next.members.end(), member))
                    blamed |= 1u << process_of(member);
            path_ = paths().after(path_, next);
        }
    }
    /// As MembershipFormation does: kept members connect to an added one.
    void reach_added() {
        const unisono::detail::Successor& decision = member_->decision();
        if (decision.added.empty() || me_ == first_) return;
        const int number = decision.members[decision.kept()];
        if ((known_ >> first_ & 1) != 0) return;
        added_number_ = number;
        member_->place(number, host_of(first_));
        known_ |= 1u << first_;
        open_ |= 1u << first_;
        sent.push_back({first_, {.is_connection = true, .number = number_, .your_number = number}});
    }
    void send_messages() {
        for (auto& [number, message] : member_->take_messages()) {
            const int to = process_of(number);
            if (to == me_ || (open_ >> to & 1) == 0 || (to == first_ && number != added_number_)) continue;
            ExploredLetter letter{.message = std::move(message)};
            if (to == first_ && letter.message.word == unisono::detail::MembershipWord::ready)
                letter.path = paths().at(path_, letter.message.epoch + 1);
            sent.emplace_back(to, std::move(letter));
        }
    }
    void settle() {
        if (!member_) return;
        if (has_ended()) {
            send_messages();
            if (member_->left_behind().empty()) forget();
            return;
        }
        follow_path();
        if (violation != nullptr) return;
        reach_added();
        send_messages();
        switch (member_->phase()) {
        case Phase::left_behind:
        case Phase::no_state: return end(Stand::gave_up);
        case Phase::no_quorum:
            for (const int number : member_->silent()) blamed |= 1u << process_of(number);
            return end(Stand::gave_up);
        case Phase::formed:
            if (contributions.empty() || contributions.back().path != path_) contributions.push_back({path_, 0, 0});
            return;
        case Phase::voting:
        case Phase::gathering:
        case Phase::member: return;
        }
    }
    void end(Stand how) {
        member_->leave();
        send_messages();
        stand = how;
        if (member_->left_behind().empty()) forget();
    }
    /// The knowledge of a process that has ended does not matter any more. States that differ only
    /// in this are one.
    void forget() {
        member_.reset();
        waiting_ = false;
        number_ = -1;
        open_ = known_ = cut_ = goodbyes_ = 0;
        round = 0;
    }

    int me_, first_;
    unsigned hosts_;
    MembershipPaths* paths_;
    std::optional<Member> member_ = {};
    int number_ = -1;
    int added_number_ = -1; ///< the number of the added process, for a member of the first world
    int path_ = -1;
    unsigned open_ = 0;     ///< processes to which there is a connection
    unsigned known_ = 0;    ///< processes to which there is or was one
    unsigned cut_ = 0;      ///< processes whose connection has ended while they lived
    unsigned goodbyes_ = 0; ///< processes that have said goodbye
    bool waiting_ = false;  ///< a process waits here to be added
};

} // namespace testing
UNISONO_NAMESPACE_END
