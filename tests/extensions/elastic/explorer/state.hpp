#pragma once

/// The state of a member as bytes, for the explorer: two members with equal bytes behave equally.

#include <unisono/extensions/elastic/membership.hpp>
#include <unisono/extensions/elastic/membership_messages.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// Appends values to bytes. Numbers have as many bytes as they need.
class StateBytes {
public:
    void number(std::uint64_t value) {
        for (; value >= 128; value >>= 7) bytes_.push_back(static_cast<char>(value | 128));
        bytes_.push_back(static_cast<char>(value));
    }
    void put(std::uint64_t value) { number(value); }
    void put(std::int64_t value) { number(static_cast<std::uint64_t>(value) + 2); }
    void put(int value) { number(static_cast<std::uint64_t>(std::int64_t{value} + 2)); }
    void put(bool value) { number(value ? 1 : 0); }
    void put(const unisono::detail::Applicant& one) { number(one.identity); }
    void put(const unisono::detail::MembershipMessage& message) {
        const Blob encoded = unisono::detail::encode(message);
        number(encoded.size());
        bytes_.append(reinterpret_cast<const char*>(encoded.data()), encoded.size());
    }
    void put(const unisono::detail::Successor& one) {
        unisono::detail::MembershipMessage message;
        message.successor = one;
        put(message);
    }
    template <class First, class Second>
    void put(const std::pair<First, Second>& one) {
        put(one.first);
        put(one.second);
    }
    template <class T>
    void put(const std::vector<T>& all) {
        number(all.size());
        for (const T& one : all) put(one);
    }
    template <class T>
    void put(const std::set<T>& all) {
        number(all.size());
        for (const T& one : all) put(one);
    }
    template <class Key, class T>
    void put(const std::map<Key, T>& all) {
        number(all.size());
        for (const auto& one : all) put(one);
    }
    template <class... T>
    void put_all(const T&... all) {
        (put(all), ...);
    }
    [[nodiscard]] std::string& bytes() { return bytes_; }

private:
    std::string bytes_;
};

} // namespace testing

namespace detail {

/// Reads the fields of members.
template <class Rules>
struct MembershipState {
    using Member = Membership<Rules>;

    /// The fields of a member, to notice when one is added: then `write` must have it as well.
    struct Fields {
        int me;
        std::vector<int> members;
        std::uint64_t epoch;
        Successor decision;
        int next_number;
        std::size_t most;
        std::map<int, bool> gone;
        std::map<int, std::set<std::uint64_t>> unheard;
        std::set<int> suspected;
        std::vector<int> unwanted;
        std::vector<std::pair<int, MembershipMessage>> out;
        MembershipTimes times;
        MembershipPhase phase;
        std::uint64_t updates, later_epoch;
        bool is_left_out, has_left, awaits_kept, replays;
        std::vector<Applicant> applicants, have_been_added;
        std::map<int, bool> heard;
        std::map<int, std::uint64_t> place;
        std::set<int> told;
        std::vector<int> missed;
        std::uint64_t promised, highest, accepted_ballot;
        Successor accepted;
        std::uint8_t proposing;
        std::uint64_t ballot;
        std::map<int, bool> promised_by;
        std::map<int, MembershipMessage> promises;
        Successor proposed;
        std::map<int, bool> accepted_by;
        std::map<std::uint64_t, MembershipMessage> past;
        std::map<std::uint64_t, std::map<int, bool>> ready;
        std::vector<std::pair<int, MembershipMessage>> later;
        std::uint64_t whole;
        nanoseconds started, due;
    };
    static_assert(sizeof(Member) == sizeof(Fields), "Membership has other fields; add them here and to write()");

    /// Leaves out what a member does not read before it sets it again: the ballot in progress of
    /// one that proposes nothing, and a vote that is over.
    static void write(const Member& of, testing::StateBytes& to) {
        to.put_all(of.me_, of.members_, of.decision_, of.next_number_, std::uint64_t{of.most_}, of.gone_, of.unheard_,
                   of.suspected_, of.unwanted_, static_cast<int>(of.phase_), of.epoch_, of.updates_, of.later_epoch_,
                   of.is_left_out_, of.has_left_, of.awaits_kept_, of.applicants_, of.have_been_added_, of.told_,
                   of.missed_, of.highest_, static_cast<int>(of.proposing_), of.past_, of.ready_, of.later_, of.whole_,
                   of.started_, of.due_);
        const bool votes = of.phase_ == MembershipPhase::voting || !Rules::checks_epochs;
        if (votes) to.put_all(of.heard_, of.promised_, of.accepted_ballot_, of.accepted_);
        if (votes && of.proposing_ != Member::Proposing::nothing)
            to.put_all(of.ballot_, of.promised_by_, of.promises_, of.proposed_, of.accepted_by_);
    }
    [[nodiscard]] static const std::map<std::uint64_t, MembershipMessage>& decisions(const Member& of) {
        return of.past_;
    }
    [[nodiscard]] static bool awaits_kept(const Member& of) { return of.awaits_kept_; }
    [[nodiscard]] static bool is_suspected(const Member& of, int member) { return of.is_suspected(member); }
    [[nodiscard]] static bool is_gone(const Member& of, int member) { return of.is_gone(member); }
};

} // namespace detail
UNISONO_NAMESPACE_END
