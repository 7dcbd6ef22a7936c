// Ranks that die, stop, and are cut off from each other, in virtual time and from a seed: those that are left agree on one next world, go on
// from the most advanced committed update, and come to the end at which an undisturbed training comes. Others come meanwhile, and are added.
// Five faulty variants of the protocol are found.
//
//   UNISONO_MEMBERSHIP_SEEDS=100000 test_elastic --run_test=membership/campaign
#include "seeded_world.hpp"

#include <unisono/elastic/membership_wire.hpp>

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdlib>
#include <deque>
#include <utility>
#include <vector>

using namespace unisono_test;

namespace {

std::uint64_t seeds_or(std::uint64_t usual) {
    const char* const text = std::getenv("UNISONO_MEMBERSHIP_SEEDS");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : usual;
}

struct NoEpochCheck : un::detail::MembershipRules {
    static constexpr bool checks_epochs = false;
};
struct NoQuorum : un::detail::MembershipRules {
    static constexpr bool needs_quorum = false;
};
struct NoElders : un::detail::MembershipRules {
    static constexpr bool needs_elders = false;
};
struct HastyNewcomers : un::detail::MembershipRules {
    static constexpr bool added_members_wait = false;
};
struct OwnUpdates : un::detail::MembershipRules {
    static constexpr bool agrees_on_updates = false;
};

/// The first seed at which a variant fails; 1000: none. `near`: known to be shortly before it. The search begins at 0 where seeds are asked
/// for, and there otherwise, which takes a tenth of the time.
template <class Rules>
std::uint64_t first_found(std::uint64_t near, bool lonely = false) {
    for (std::uint64_t seed = std::getenv("UNISONO_MEMBERSHIP_SEEDS") != nullptr ? 0 : near; seed < 1000; ++seed)
        if (!SeededWorld<Rules>(seed, lonely).run().empty()) return seed;
    return 1000;
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
    // What the seeds are for happens.
    BOOST_TEST(sum.finished > seeds);
    BOOST_TEST(sum.died > seeds / 2);
    BOOST_TEST(sum.left_behind > seeds / 100);
    BOOST_TEST(sum.no_quorum > seeds / 100);
    BOOST_TEST(sum.epochs > seeds / 2);
    BOOST_TEST(sum.brought > seeds / 100);
    BOOST_TEST(sum.added > seeds / 10);
}

BOOST_AUTO_TEST_CASE(faulty_variants_are_found) {
    const std::uint64_t epochs = first_found<NoEpochCheck>(0), quorum = first_found<NoQuorum>(210),
                        updates = first_found<OwnUpdates>(0), elders = first_found<NoElders>(280, true),
                        hasty = first_found<HastyNewcomers>(0, true);
    BOOST_TEST_MESSAGE("found at seed: no epoch check "
                       << epochs << ", no quorum " << quorum << ", no agreement on the update " << updates
                       << ", no elders asked " << elders << ", newcomers that do not wait " << hasty);
    for (const std::uint64_t found : {epochs, quorum, updates, elders, hasty}) BOOST_TEST(found < 1000u);
}

/// Members travel as runs of numbers: what is read is what was written, and no run is longer than there may be numbers.
BOOST_AUTO_TEST_CASE(members_travel) {
    un::detail::MembershipMessage sent{.word = un::detail::MembershipWord::accept, .epoch = 3, .ballot = 9};
    for (int member = 0; member < 4096; ++member)
        if (member % 1000 != 7 && member != 8) sent.successor.members.push_back(member);
    sent.successor.doubtful = {9, 3, 4};
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
        refused += !un::detail::decode(wrong, read);
        BOOST_TEST(read.successor.members.size() <= std::size_t{1} << 20);
    }
    BOOST_TEST(refused > 40u);
}

/// When the last of many members dies, and the first one or another: the messages grow with the members, and not with their square.
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
        BOOST_TEST(numbers <= 2 * all.size() * all.size()); // `accept` and `decided` say who the members are
    }
}

BOOST_AUTO_TEST_SUITE_END()
