// Ranks die, stop, and are cut off from each other, in virtual time and from a seed. The remaining
// ranks agree on one next world, continue from the most advanced committed update, and reach the
// end of an undisturbed training. Other processes join meanwhile. The tests find faulty variants of
// the protocol.
//
//   UNISONO_MEMBERSHIP_SEEDS=100000 test_elastic --run_test=membership/campaign
#include "../../support/sanitizers.hpp"
#include "broken_rules.hpp"
#include "seeded_world.hpp"

#include <unisono/extensions/elastic/evidence.hpp>
#include <unisono/extensions/elastic/forming.hpp>
#include <unisono/extensions/elastic/membership_messages.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <list>
#include <string>
#include <utility>
#include <vector>

using namespace unisono_test;

namespace {

std::uint64_t seeds_or(std::uint64_t usual) {
    const char* const text = std::getenv("UNISONO_MEMBERSHIP_SEEDS");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : usual;
}

/// Returns the first seed at which a variant fails, or `most`.
template <class Rules>
std::uint64_t first_found(bool lonely, std::uint64_t most) {
    for (std::uint64_t seed = 0; seed < most; ++seed)
        if (!SeededWorld<Rules>(seed, lonely).run().empty()) return seed;
    return most;
}

} // namespace

BOOST_AUTO_TEST_SUITE(membership)

BOOST_AUTO_TEST_CASE(campaign) {
    Outcomes sum;
    const std::uint64_t seeds = seeds_or(500);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SeededWorld<> world(seed);
        const std::string failure = world.run();
        BOOST_REQUIRE_MESSAGE(failure.empty(), "seed " << seed << ": " << failure);
        sum.add(world.outcomes());
    }
    BOOST_TEST_MESSAGE(seeds << " seeds: " << sum.finished << " ranks ended with the undisturbed hash, " << sum.died
                             << " died, " << sum.left_behind << " were left behind, " << sum.no_quorum
                             << " found no majority; " << sum.epochs << " memberships after the first, " << sum.brought
                             << " ranks brought forward; " << sum.added << " ranks added, " << sum.not_taken
                             << " that came were not, " << sum.no_state << " were left without a state");
    // The events that the seeds should cause do happen.
    BOOST_TEST(sum.finished > seeds);
    BOOST_TEST(sum.died > seeds / 2);
    BOOST_TEST(sum.left_behind > seeds / 100);
    BOOST_TEST(sum.no_quorum > seeds / 100);
    BOOST_TEST(sum.epochs > seeds / 2);
    BOOST_TEST(sum.brought > seeds / 100);
    BOOST_TEST(sum.added > seeds / 10);
}

#ifndef UNISONO_TEST_SANITIZED // the rules' variants are the same code, and the campaign has run it
BOOST_AUTO_TEST_CASE(faulty_variants_are_found) {
    // Newcomers that do not wait fail at one seed in about 10,000, first at 5188.
    constexpr std::uint64_t few = 1000, many = 6000;
    const std::uint64_t epochs = first_found<NoEpochCheck>(false, few), quorum = first_found<NoQuorum>(false, few),
                        updates = first_found<OwnUpdates>(false, few), hasty = first_found<HastyNewcomers>(true, many),
                        half = first_found<AnyHalf>(false, few);
    BOOST_TEST_MESSAGE("found at seed: no epoch check "
                       << epochs << ", no quorum " << quorum << ", no agreement on the update " << updates
                       << ", newcomers that do not wait " << hasty << ", any half " << half);
    for (const std::uint64_t found : {epochs, quorum, updates, half}) BOOST_TEST(found < few);
    BOOST_TEST(hasty < many);
}
#endif

/// Members travel as runs of numbers. Decoding inverts encoding, and a run is no longer than the
/// most numbers.
BOOST_AUTO_TEST_CASE(members_travel) {
    un::detail::MembershipMessage sent{.word = un::detail::MembershipWord::accept, .epoch = 3, .ballot = 9};
    for (int member = 0; member < 4096; ++member)
        if (member % 1000 != 7 && member != 8) sent.successor.members.push_back(member);
    sent.successor.doubtful = {9, 3, 4};
    sent.successor.next_number = 4096;
    const un::Blob bytes = un::detail::encode(sent);
    BOOST_TEST(bytes.size() < 200u);
    un::detail::MembershipMessage found;
    BOOST_REQUIRE(un::detail::decode(bytes, found));
    BOOST_TEST(found.successor.members == sent.successor.members, boost::test_tools::per_element());
    BOOST_TEST(found.successor.doubtful == sent.successor.doubtful, boost::test_tools::per_element());
    std::size_t refused = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        un::Blob wrong = bytes;
        wrong[i] ^= std::byte{0xff};
        un::detail::MembershipMessage read;
        const bool accepted = un::detail::decode(wrong, read);
        BOOST_TEST(read.successor.members.size() <= std::size_t{1} << 20);
        if (accepted)
            BOOST_TEST((un::detail::encode(read) == wrong), "byte " << i << " was changed, and nobody sees it");
        else ++refused;
    }
    // The numbers of epoch, ballots and updates may have any value, and some of the runs.
    BOOST_TEST(refused + 50 >= bytes.size());
}

/// A few bytes may describe many members. Each list has at most as many members as there are
/// numbers, and no others.
BOOST_AUTO_TEST_CASE(false_members_are_refused) {
    using Runs = std::vector<std::uint32_t>; // first, length
    /// Encodes a message with a list of runs, as `encode` does: the members (0), the doubtful (1)
    /// or the elders (2).
    const auto is_read = [](std::uint32_t next_number, int list, const Runs& runs) {
        un::detail::WireWriter out;
        out.u8(static_cast<std::uint8_t>(un::detail::MembershipWord::accept));
        for (int i = 0; i < 5; ++i) out.u64(0);
        for (const std::uint32_t number : {0u, 0u, next_number}) out.u32(number);
        out.u8(0);
        for (int i = 0; i < 4; ++i) {
            out.u32(i == list ? static_cast<std::uint32_t>(runs.size() / 2) : 0);
            if (i == list)
                for (const std::uint32_t number : runs) out.u32(number);
        }
        for (int i = 0; i < 2; ++i) out.u32(0); // applicants
        un::detail::MembershipMessage read;
        const bool good = un::detail::decode(out.take(), read);
        for (const std::vector<int>* const each :
             {&read.successor.members, &read.successor.doubtful, &read.successor.elders})
            BOOST_TEST(each->size() <= next_number);
        return good;
    };
    const std::uint32_t most = un::detail::most_numbers;
    for (const int list : {0, 1, 2}) {
        BOOST_TEST_CONTEXT("list " << list) {
            BOOST_TEST(is_read(0, list, {}));
            BOOST_TEST(is_read(8, list, {0, 2, 3, 5}));
            BOOST_TEST(is_read(most, list, {0, most}));
            BOOST_TEST(!is_read(8, list, {0, 0}));            // an empty run
            BOOST_TEST(!is_read(8, list, {8, 1}));            // no such number
            BOOST_TEST(!is_read(8, list, {7, 2}));            // first + length is beyond
            BOOST_TEST(!is_read(8, list, {4, 0xffff'fffcu})); // the same, and 0 in 32 bits
            BOOST_TEST(!is_read(8, list, {0, 0x8000'0000u})); // 2^31
            BOOST_TEST(!is_read(most, list, {1, most}));      // beyond the largest number
            BOOST_TEST(!is_read(most + 1, list, {0, 1}));     // too many numbers
            BOOST_TEST(!is_read(0, list, {0, 1}));            // none
            BOOST_TEST(!is_read(0xffff'ffffu, list, {0, 1})); // -1
            BOOST_TEST(!is_read(8, list, {0, 8, 0, 1}));      // more members than numbers
            // Overlap: only members ascend.
            BOOST_TEST(is_read(8, list, {0, 2, 1, 2}) == (list != 0));
            BOOST_TEST(is_read(8, list, {4, 2, 0, 2}) == (list != 0)); // descending
        }
    }
}

/// Without these two rules of Paxos there could be two decisions: a member accepts no ballot below
/// the one that it has promised, and tells each later proposer what it has accepted.
BOOST_AUTO_TEST_CASE(what_a_member_has_promised_and_accepted) {
    using un::detail::MembershipMessage, un::detail::MembershipWord;
    un::detail::Membership<> member(2, {0, 1, 2}, {});
    member.begin(5, 0);
    static_cast<void>(member.take_messages());
    const auto answer = [&](int from, MembershipWord word, std::uint64_t ballot, const un::detail::Successor& next) {
        member.receive(from, {.word = word, .ballot = ballot, .successor = next}, 0);
        const auto answers = member.take_messages();
        BOOST_TEST_REQUIRE(answers.size() == 1u);
        BOOST_TEST(answers[0].first == from);
        return answers[0].second;
    };
    constexpr std::uint64_t round = 1 << 20; // ballot: a round and its proposer
    const un::detail::Successor some{.members = {0, 2}, .next_number = 3, .source = 0, .updates = 5},
        others{.members = {1, 2}, .next_number = 3, .source = 1, .updates = 5};
    const MembershipMessage promise = answer(1, MembershipWord::prepare, round + 1, {});
    BOOST_TEST((promise.word == MembershipWord::promise && promise.ballot == round + 1));
    BOOST_TEST(promise.accepted_ballot == 0u);
    const MembershipMessage refusal = answer(0, MembershipWord::accept, round, some);
    BOOST_TEST((refusal.word == MembershipWord::promise && refusal.ballot == round + 1));
    const MembershipMessage accepted = answer(1, MembershipWord::accept, round + 1, others);
    BOOST_TEST((accepted.word == MembershipWord::accepted && accepted.ballot == round + 1));
    const MembershipMessage later = answer(0, MembershipWord::prepare, 2 * round, {});
    BOOST_TEST((later.word == MembershipWord::promise && later.ballot == 2 * round));
    BOOST_TEST(later.accepted_ballot == round + 1);
    BOOST_TEST((later.successor == others));
    BOOST_TEST(answer(1, MembershipWord::prepare, round + 1, {}).ballot == 2 * round);
}

/// The first, the last or another of many members dies. The number of messages grows with the
/// number of members, and not with its square.
BOOST_AUTO_TEST_CASE(messages_of_a_change) {
    using Member = un::detail::Membership<>;
    for (const int dead : {0, 7, 99}) {
        std::vector<int> all(100);
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
        std::vector<Member> members;
        for (const int one : all) members.emplace_back(one, all, un::detail::MembershipTimes{});
        std::deque<std::pair<std::pair<int, int>, un::detail::MembershipMessage>> under_way;
        std::size_t messages = 0, numbers = 0;
        const auto send = [&](int from) {
            for (auto& [to, message] : members[static_cast<std::size_t>(from)].take_messages()) {
                ++messages;
                numbers += message.successor.members.size();
                if (to != dead) under_way.push_back({{from, to}, std::move(message)});
            }
        };
        for (const int one : all) {
            if (one == dead) continue;
            members[static_cast<std::size_t>(one)].begin(5, 0);
            members[static_cast<std::size_t>(one)].lost(dead, 0);
            send(one);
        }
        while (!under_way.empty()) {
            const auto [way, message] = std::move(under_way.front());
            under_way.pop_front();
            members[static_cast<std::size_t>(way.second)].receive(way.first, message, 0);
            send(way.second);
        }
        for (const int one : all)
            BOOST_TEST(
                (one == dead || members[static_cast<std::size_t>(one)].phase() == un::detail::MembershipPhase::formed));
        BOOST_TEST(messages <= 8 * all.size());
        // `accept` and `decided` list the members.
        BOOST_TEST(numbers <= 2 * all.size() * all.size());
    }
}

namespace {

/// Members whose messages a test delivers or drops, and which it kills. No time passes.
template <class Rules = un::detail::MembershipRules>
class ByHand {
public:
    using Member = un::detail::Membership<Rules>;
    struct Letter {
        int from, to;
        un::detail::MembershipMessage message;
    };

    /// `hosts`: the host of each member. By default all are on one.
    explicit ByHand(int count, const std::vector<std::uint64_t>& hosts = {}) : dead_(static_cast<std::size_t>(count)) {
        std::vector<int> all;
        for (int one = 0; one < count; ++one) all.push_back(one);
        for (const int one : all) members_.emplace_back(one, all, un::detail::MembershipTimes{});
        for (std::size_t i = 0; i < hosts.size(); ++i)
            for (Member& one : members_) one.place(static_cast<int>(i), hosts[i]);
    }
    Member& at(int member) { return members_[static_cast<std::size_t>(member)]; }
    void begin() {
        for (int one = 0; one < count(); ++one) {
            at(one).begin(5, 0);
            collect(one);
        }
    }
    /// So much time passes that nobody waits any longer for members that are silent.
    void let_patience_end(int member) {
        const un::nanoseconds now = at(member).next_tick();
        at(member).tick(now);
        collect(member);
    }
    void suspect(int member, int other) {
        at(member).suspect(other, 0);
        collect(member);
    }
    void leave(int member) {
        at(member).leave();
        collect(member);
        dead_[static_cast<std::size_t>(member)] = true;
    }
    /// The connection of two members is made again.
    void introduce(int one, int other) {
        at(one).introduce(other);
        at(other).introduce(one);
        collect(one);
        collect(other);
    }
    void work(const std::vector<int>& members) {
        for (const int one : members) at(one).work();
    }
    void expect(int member, un::detail::MembershipPhase phase) { BOOST_TEST((at(member).phase() == phase)); }
    /// The member sends nothing more. Its messages in flight are lost.
    void die(int member) {
        dead_[static_cast<std::size_t>(member)] = true;
        std::erase_if(under_way_, [&](const Letter& one) { return one.from == member || one.to == member; });
    }
    void hear_of_death(int member, int dead) {
        at(member).lost(dead, 0);
        collect(member);
    }
    void all_hear_of_death(int dead) {
        for (int one = 0; one < count(); ++one)
            if (!dead_[static_cast<std::size_t>(one)]) hear_of_death(one, dead);
    }
    /// Delivers the messages that `chosen` accepts, answers included. The others stay in flight.
    template <class Chosen>
    void deliver(Chosen chosen) {
        for (auto next = under_way_.begin(); next != under_way_.end();) {
            if (!chosen(*next)) {
                ++next;
                continue;
            }
            const Letter letter = std::move(*next);
            under_way_.erase(next);
            at(letter.to).receive(letter.from, letter.message, 0);
            collect(letter.to);
            next = under_way_.begin();
        }
    }
    void deliver_all() {
        deliver([](const Letter&) { return true; });
    }
    /// Takes the messages that `chosen` accepts from those in flight.
    template <class Chosen>
    std::list<Letter> take(Chosen chosen) {
        std::list<Letter> taken;
        for (auto next = under_way_.begin(); next != under_way_.end();) {
            const auto one = next++;
            if (chosen(*one)) taken.splice(taken.end(), under_way_, one);
        }
        return taken;
    }
    void put(std::list<Letter>& letters) { under_way_.splice(under_way_.begin(), letters); }
    void expect_formed(const std::vector<int>& expected) {
        for (const int one : expected) {
            BOOST_TEST_CONTEXT("member " << one) {
                BOOST_TEST((at(one).phase() == un::detail::MembershipPhase::formed));
                BOOST_TEST(at(one).members() == expected, boost::test_tools::per_element());
            }
        }
    }

    void collect(int from) {
        for (auto& [to, message] : at(from).take_messages())
            if (!dead_[static_cast<std::size_t>(from)] && !dead_[static_cast<std::size_t>(to)])
                under_way_.push_back({from, to, std::move(message)});
    }

private:
    [[nodiscard]] int count() const { return static_cast<int>(members_.size()); }

    std::vector<Member> members_;
    std::vector<bool> dead_;
    std::list<Letter> under_way_;
};

using Phase = un::detail::MembershipPhase;
using Word = un::detail::MembershipWord;

} // namespace

/// The proposer dies while it sends the decision. So does the next proposer, which a member without
/// the decision follows. The others do not wait long for that member, so it must ask at once.
BOOST_AUTO_TEST_CASE(a_decision_that_some_have_not_heard) {
    for (const bool knows_before : {true, false}) {
        BOOST_TEST_CONTEXT("knows of the second death before it hears the decision: " << knows_before) {
            ByHand<> world(7);
            world.begin();
            world.deliver(
                [](const auto& one) { return one.message.word != Word::decided || (one.to != 1 && one.to != 3); });
            world.die(0);
            world.hear_of_death(1, 0);
            world.deliver([](const auto& one) { return one.from == 1 && one.to == 3; });
            world.die(1);
            world.all_hear_of_death(0);
            for (const int one : {2, 4, 5, 6}) world.hear_of_death(one, 1);
            if (knows_before) world.hear_of_death(3, 1);
            world.deliver_all();
            if (!knows_before) world.hear_of_death(3, 1);
            world.deliver_all();
            world.expect_formed({2, 3, 4, 5, 6});
        }
    }
}

/// A proposer dies when one member has its prepare. That member refuses the next proposer's lower
/// ballot. It must not be left out.
BOOST_AUTO_TEST_CASE(a_higher_ballot_of_a_dead_proposer) {
    for (const bool at_once : {true, false}) {
        BOOST_TEST_CONTEXT("the next proposer knows of the death at once: " << at_once) {
            ByHand<> world(4);
            world.begin();
            world.deliver([](const auto& one) { return one.to == 1; });
            world.die(0);
            world.hear_of_death(1, 0);
            world.deliver([](const auto& one) { return one.from == 1 && one.to == 3; });
            world.die(1);
            world.all_hear_of_death(0);
            if (at_once) world.hear_of_death(2, 1);
            else world.at(2).tick(world.at(2).next_tick());
            world.collect(2);
            world.deliver_all();
            if (!at_once) world.hear_of_death(2, 1);
            world.hear_of_death(3, 1);
            world.deliver_all();
            world.expect_formed({2, 3});
        }
    }
}

/// A dead proposer's prepare arrives late. Its receiver refuses what the others accept and decide.
BOOST_AUTO_TEST_CASE(a_late_prepare_of_a_dead_proposer) {
    for (const int count : {4, 7}) {
        BOOST_TEST_CONTEXT(count << " members") {
            ByHand<> world(count);
            const int last = count - 1;
            world.begin();
            world.deliver([](const auto& one) { return one.to == 1; });
            world.die(0);
            world.hear_of_death(1, 0);
            auto late = world.take([&](const auto& one) { return one.from == 1 && one.to == last; });
            world.die(1);
            for (int one = 2; one < count; ++one) world.hear_of_death(one, 0);
            for (int one = 2; one < last; ++one) world.hear_of_death(one, 1);
            world.deliver([](const auto& one) { return one.message.word == Word::prepare; });
            world.put(late);
            world.deliver([&](const auto& one) { return one.from == 1; });
            world.deliver_all();
            world.hear_of_death(last, 1);
            world.deliver_all();
            std::vector<int> left;
            for (int one = 2; one < count; ++one) left.push_back(one);
            world.expect_formed(left);
        }
    }
}

/// A proposer that leaves itself out dies when only the first member has its decision. The first
/// member tells the others.
BOOST_AUTO_TEST_CASE(a_decision_that_the_first_member_alone_has_heard) {
    ByHand<> world(4);
    world.at(0).leave_out({0});
    world.begin();
    world.deliver([](const auto& one) { return one.message.word != Word::decided || one.to == 1; });
    world.die(0);
    world.all_hear_of_death(0);
    world.deliver_all();
    world.expect_formed({1, 2, 3});
}

/// The network is cut into two halves: the one with the lowest member continues, whatever its
/// number of members, and the other one does not.
BOOST_AUTO_TEST_CASE(the_half_with_the_lowest_member) {
    for (const int count : {2, 4, 6}) {
        BOOST_TEST_CONTEXT(count << " members") {
            ByHand<> world(count);
            const auto side = [&](int one) { return one % 2; };
            const auto within = [&](const auto& one) { return side(one.from) == side(one.to); };
            std::vector<int> even;
            for (int one = 0; one < count; one += 2) even.push_back(one);
            world.begin();
            world.deliver(within);
            for (int again = 0; again < 4; ++again) // to propose, and to do without those that are silent
                for (const int one : {0, 1}) {
                    world.let_patience_end(one);
                    world.deliver(within);
                }
            world.expect_formed(even);
            world.expect(1, Phase::voting);
        }
    }
}

/// Members of one host see each other's deaths. The first one tells the other hosts, if it lives.
BOOST_AUTO_TEST_CASE(a_death_is_told_to_other_hosts) {
    ByHand<> world(6, {7, 8, 7, 8, 7, 8});
    world.begin();
    world.die(0);
    world.die(2);
    for (const int seen : {2, 0}) world.hear_of_death(4, seen);
    world.deliver_all();
    world.expect_formed({1, 3, 4, 5});
    // Also if no majority is left, and the first member of a host dies while it tells.
    world.work({1, 3, 4, 5});
    for (const int one : {4, 5}) {
        world.at(one).begin(6, 0);
        world.collect(one);
    }
    world.die(1);
    world.hear_of_death(3, 1);
    world.deliver([](const auto& one) { return one.to == 4; });
    world.die(3);
    world.hear_of_death(5, 1);
    world.hear_of_death(5, 3);
    world.deliver_all();
    world.expect_formed({4, 5});
}

/// One member of each host dies, after one host has heard a decision and before the other one has.
/// What each host says of its dead counts in the epoch of both.
BOOST_AUTO_TEST_CASE(a_death_between_two_epochs) {
    const auto play = [](auto world) {
        world.begin();
        const auto is_heard = [](const auto& one) { return one.message.word != Word::decided || one.to != 2; };
        world.deliver(is_heard);
        world.die(0);
        world.die(3);
        world.hear_of_death(1, 0);
        world.hear_of_death(2, 3);
        world.deliver_all();
        for (int again = 0; again < 6; ++again)
            for (const int one : {1, 2}) {
                if (world.at(one).phase() == Phase::voting) world.let_patience_end(one);
                world.deliver_all();
            }
        return world;
    };
    play(ByHand<>(4, {7, 7, 8, 8})).expect_formed({1, 2});
    ByHand<TellsOnce> waits = play(ByHand<TellsOnce>(4, {7, 7, 8, 8}));
    for (const int one : {1, 2}) waits.expect(one, Phase::voting);
}

/// A host that refuses proves nothing. A majority does not wait for its members; a minority waits.
BOOST_AUTO_TEST_CASE(a_host_that_refuses) {
    ByHand<> world(3, {1, 2, 3});
    world.begin();
    const auto among = [](const auto& one) { return one.from != 0 && one.to != 0; };
    for (const int other : {1, 2}) world.suspect(0, other);
    world.deliver(among);
    world.expect(0, Phase::voting);
    for (const int one : {1, 2}) world.suspect(one, 0);
    world.deliver(among);
    world.expect_formed({1, 2});
    world.let_patience_end(0);
    world.expect(0, Phase::voting);
    // A message shows that it lives, and the connection is made again.
    world.work({1, 2});
    world.introduce(0, 1);
    world.deliver_all();
    world.expect(0, Phase::left_behind);
}

/// Members that leave tell the members that were left behind, and answer what these have asked
/// meanwhile.
BOOST_AUTO_TEST_CASE(goodbye_to_those_left_behind) {
    for (const bool asks : {true, false}) {
        BOOST_TEST_CONTEXT("the member that was left behind asks: " << asks) {
            ByHand<> world(4);
            world.begin();
            const auto without_0 = [](const auto& one) { return one.from != 0 && one.to != 0; };
            for (int again = 0; again < 2; ++again) {
                world.let_patience_end(1);
                world.deliver(without_0);
            }
            world.expect_formed({1, 2, 3});
            world.work({1, 2, 3});
            BOOST_TEST(world.at(2).left_behind() == std::vector<int>{0}, boost::test_tools::per_element());
            world.take([](const auto& one) { return one.from == 0 || one.to == 0; }); // lost
            if (asks) {
                world.at(2).leave();
                world.let_patience_end(0);
                world.deliver([](const auto& one) { return one.to == 2 || one.from == 2; });
            } else world.leave(2), world.deliver_all();
            world.expect(0, Phase::left_behind);
            BOOST_TEST(world.at(0).decision().members == (std::vector<int>{1, 2, 3}), boost::test_tools::per_element());
            world.leave(0);
            world.deliver_all();
            for (const int one : {1, 3}) BOOST_TEST(world.at(one).left_behind().empty());
        }
    }
}

/// All others are known to be dead, and could have continued without this member before they died:
/// it has not heard their last words.
BOOST_AUTO_TEST_CASE(last_words_that_were_not_heard) {
    for (const int me : {0, 1}) {
        BOOST_TEST_CONTEXT("member " << me << " is left") {
            ByHand<> world(2);
            world.begin();
            world.take([](const auto&) { return true; });
            world.die(1 - me);
            world.at(me).lost(1 - me, 0, false);
            world.expect(me, me == 0 ? Phase::formed : Phase::no_quorum); // 0 alone would be a half with 0
        }
    }
    un::detail::Membership<NoLastWords> hasty(1, {0, 1}, {});
    hasty.begin(5, 0);
    hasty.lost(0, 0, false);
    BOOST_TEST((hasty.phase() == Phase::formed));
    // Another member has heard them.
    ByHand<> world(4, {1, 1, 2, 1});
    world.begin();
    world.take([](const auto& one) { return one.from < 2; });
    for (const int dead : {0, 1}) world.die(dead);
    for (const int dead : {0, 1}) world.hear_of_death(3, dead);
    world.deliver_all();
    world.expect_formed({2, 3});
}

/// A decision without a member arrives when it has promised a higher ballot, and those that have
/// decided have ended. They have been in a world.
BOOST_AUTO_TEST_CASE(a_late_decision_without_this_member) {
    ByHand<> world(2);
    world.begin();
    const auto late = [](const auto& one) { return one.to == 1; };
    world.let_patience_end(0);
    auto letters = world.take(late);
    world.expect_formed({0});
    for (int again = 0; again < 3; ++again) world.let_patience_end(1);
    world.take([](const auto&) { return true; });
    world.put(letters);
    world.deliver(late);
    world.hear_of_death(1, 0);
    world.expect(1, Phase::left_behind);
}

/// The others vote again while this member waits for them, and do not choose it. It ends at once.
BOOST_AUTO_TEST_CASE(left_behind_while_it_gathers) {
    un::detail::Membership<> member(2, {0, 1, 2}, {});
    member.begin(5, 0);
    const auto decided = [&](std::uint64_t epoch, std::vector<int> members) {
        const un::detail::Successor next{.members = std::move(members), .next_number = 3, .source = 0, .updates = 5};
        member.receive(0, {.word = Word::decided, .epoch = epoch, .ballot = 1 << 20, .successor = next}, 0);
    };
    decided(0, {0, 1, 2});
    BOOST_TEST((member.phase() == Phase::gathering));
    decided(2, {0, 1});
    BOOST_TEST((member.phase() == Phase::left_behind));
    BOOST_TEST(member.later_epoch() == 3u);
}

/// A member is heard by the others and does not hear them, as behind a firewall. It must not keep
/// them from agreeing, whenever it begins to vote.
BOOST_AUTO_TEST_CASE(a_member_that_does_not_hear) {
    constexpr un::nanoseconds patience = 1000, first = 10 * patience;
    const auto agree_without = [&](int count, int deaf, un::nanoseconds later, bool lowest_first) {
        std::vector<int> all;
        for (int one = 0; one < count; ++one) all.push_back(one);
        std::vector<un::detail::Membership<>> members;
        std::vector<un::nanoseconds> begins(all.size(), first);
        for (const int one : all) members.emplace_back(one, all, un::detail::MembershipTimes{patience, 8 * patience});
        const auto at = [&](int one) -> auto& { return members[static_cast<std::size_t>(one)]; };
        const auto waits = [&](int one) {
            return at(one).phase() != Phase::formed && at(one).phase() != Phase::no_quorum;
        };
        begins[static_cast<std::size_t>(deaf)] += later;
        while (std::any_of(all.begin(), all.end(), [&](int one) { return one != deaf && waits(one); })) {
            int next = -1;
            un::nanoseconds now = un::never;
            for (const int one : all) {
                const un::nanoseconds begin = begins[static_cast<std::size_t>(one)];
                const un::nanoseconds due = begin != 0 ? begin : at(one).next_tick();
                if (due > now || (due == now && lowest_first)) continue;
                now = due;
                next = one;
            }
            if (next < 0) return false;
            if (std::exchange(begins[static_cast<std::size_t>(next)], 0) != 0) at(next).begin(5, now);
            else at(next).tick(now);
            for (bool more = true; more;) {
                more = false;
                for (const int one : all)
                    for (const auto& [to, message] : at(one).take_messages()) {
                        more = true;
                        if (to != deaf) at(to).receive(one, message, now);
                    }
            }
        }
        return std::all_of(all.begin(), all.end(),
                           [&](int one) { return one == deaf || at(one).phase() == Phase::formed; });
    };
    for (const int count : {3, 4, 5})
        for (int deaf = 0; deaf < count; ++deaf)
            for (un::nanoseconds quarters = -4; quarters <= 4; ++quarters)
                for (const bool lowest_first : {true, false})
                    BOOST_TEST(agree_without(count, deaf, quarters * patience / 4, lowest_first),
                               count << " members without " << deaf << ", which begins " << quarters
                                     << " quarters later; the lowest first: " << lowest_first);
}

/// A member that nobody answers waits longer each time. One that is refused hears the others, and
/// proposes again as soon as at first.
BOOST_AUTO_TEST_CASE(a_member_that_is_refused_does_not_wait_long) {
    constexpr un::nanoseconds patience = 1000;
    un::detail::Membership<> member(0, {0, 1, 2}, {.patience = patience, .give_up = 1000 * patience});
    member.begin(5, 0);
    un::nanoseconds now = 0;
    const auto wait = [&] { return member.next_tick() - now; };
    for (const int times : {1, 2, 4, 8, 16, 32, 32}) {
        BOOST_TEST(wait() == times * patience);
        if (times == 32) continue;
        now = member.next_tick();
        member.tick(now);
    }
    const un::detail::MembershipMessage refusal{.word = Word::promise, .epoch = 0, .ballot = 100 << 20};
    now += patience / 2;
    member.receive(1, refusal, now);
    BOOST_TEST(wait() == patience);
    now = member.next_tick();
    member.tick(now);
    BOOST_TEST(wait() == patience);
}

/// Whatever a member waits for, it gives up in time.
BOOST_AUTO_TEST_CASE(a_member_gives_up_in_time) {
    std::vector<int> all;
    for (int one = 0; one < 64; ++one) all.push_back(one);
    un::detail::Membership<> member(63, all, {.patience = 1000, .give_up = 4000});
    member.begin(5, 100);
    member.receive(0, {.word = Word::prepare, .epoch = 0, .ballot = 1 << 20}, 200);
    BOOST_TEST(member.next_tick() == 4100);
    member.tick(4100);
    BOOST_TEST((member.phase() == Phase::no_quorum));
}

/// The error names the membership in which the others are by then.
BOOST_AUTO_TEST_CASE(the_membership_that_left_this_member_behind) {
    un::detail::Membership<> member(1, {0, 1, 2}, {});
    member.begin(5, 0);
    member.receive(0, {.word = Word::goodbye, .epoch = 3, .successor = {.members = {0, 2}, .next_number = 3}}, 0);
    BOOST_TEST((member.phase() == Phase::left_behind));
    const un::error told =
        un::detail::not_in_next_world(member.phase(), 1, member.silent(), member.decision(), member.later_epoch());
    BOOST_TEST(told.why().message.find("as membership 3") != std::string::npos, told.why().message);
    BOOST_TEST(told.why().sequence == 3u);
}

/// A member that the others cannot connect to is left out, if the rest is a majority of those that
/// live. The one that most others cannot reach is it.
BOOST_AUTO_TEST_CASE(who_never_comes) {
    const auto formed_without = [](int count, const std::vector<std::pair<int, std::vector<int>>>& missed,
                                   const std::vector<int>& expected) {
        ByHand<> world(count);
        for (const auto& [member, others] : missed) world.at(member).miss(others);
        world.begin();
        world.deliver_all();
        world.expect_formed(expected);
        for (int one = 0; one < count; ++one)
            if (std::find(expected.begin(), expected.end(), one) == expected.end())
                world.expect(one, Phase::left_behind);
    };
    formed_without(4, {{0, {3}}, {3, {0}}}, {0, 1, 2});
    formed_without(4, {{1, {3}}, {3, {0}}}, {0, 1, 2});
    formed_without(4, {{1, {0}}, {2, {0}}, {3, {0}}}, {1, 2, 3});
    formed_without(2, {{1, {0}}}, {0});
    formed_without(3, {{0, {1, 2}}, {1, {0, 2}}, {2, {0, 1}}}, {0, 1, 2}); // no majority is connected
    formed_without(3, {{0, {7}}}, {0, 1, 2});
}

/// Only the host of a process proves its end. A process that has ended was heard if its connection
/// has ended, too, or if no cable is between.
BOOST_AUTO_TEST_CASE(evidence_of_an_end) {
    using un::detail::Conclusion, un::detail::Evidence;
    constexpr un::nanoseconds ms = 1'000'000;
    Evidence refused;
    refused.connection_ended(0);
    BOOST_TEST((refused.conclusion(0) == Conclusion::none));
    refused.refused(false, ms);
    BOOST_TEST((refused.conclusion(ms) == Conclusion::none)); // one forged packet
    refused.refused(false, ms + Evidence::refused_for);
    BOOST_TEST((refused.conclusion(200 * ms) == Conclusion::refuses));
    refused.answered();
    BOOST_TEST((refused.conclusion(200 * ms) == Conclusion::none));
    refused.refused(true, 300 * ms);
    BOOST_TEST((refused.conclusion(300 * ms) == Conclusion::ended));
    for (const bool is_near : {true, false}) {
        Evidence silent; // its connection has not ended
        silent.ended_here(is_near, 0);
        BOOST_TEST((silent.conclusion(0) == (is_near ? Conclusion::ended : Conclusion::none)));
        BOOST_TEST((silent.conclusion(Evidence::longest_way) == Conclusion::ended));
        BOOST_TEST(silent.was_heard(Evidence::longest_way, 30 * ms) == is_near);
        Evidence closed;
        closed.ended_here(is_near, 0);
        closed.connection_ended(ms);
        BOOST_TEST((closed.conclusion(ms) == Conclusion::ended));
        BOOST_TEST(closed.was_heard(ms, 30 * ms));
        Evidence cut;
        cut.connection_ended(0);
        cut.ended_here(is_near, 5000 * ms);
        BOOST_TEST((cut.conclusion(5000 * ms) == Conclusion::ended));
        BOOST_TEST(!cut.was_heard(5000 * ms, 30'000 * ms));
        // The others may have decided without a member that was silent for `patience`.
        BOOST_TEST(cut.was_heard(200 * ms, 1000 * ms));
        BOOST_TEST(!cut.was_heard(200 * ms, 100 * ms));
    }
}

BOOST_AUTO_TEST_SUITE_END()
