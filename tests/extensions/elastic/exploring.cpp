// Explores small elastic worlds in every order of their events, and finds each variant of the
// protocol in which one condition is missing. With as many states of large worlds:
//
//   UNISONO_EXPLORE=10000000 test_elastic --run_test=exploring/large_worlds
#include "../../support/sanitizers.hpp"
#include "broken_rules.hpp"
#include "explorer/explorer.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace un = unisono;
namespace testing = unisono::testing;
using testing::Explored;
using testing::ExploredEvent;
using testing::ExploreOptions;
using testing::MembershipExplorer;
using namespace unisono_test;

namespace {

void expect_clean(const ExploreOptions& options, bool complete = true) {
    const Explored found = MembershipExplorer<>(options).run();
    BOOST_TEST_MESSAGE(found.text());
    BOOST_TEST(found.violation == "");
    BOOST_TEST((found.is_complete || !complete));
    BOOST_TEST(found.states > 1'000u);
}

/// The variant has a counter-example of at most 25 events after the first ones, and the protocol
/// has none.
template <class Rules>
void expect_found(const ExploreOptions& options, std::string_view violation) {
    const Explored found = MembershipExplorer<Rules>(options).run();
    BOOST_TEST_MESSAGE(found.text());
    BOOST_TEST(found.violation.find(violation) == 0u);
    BOOST_TEST(found.length <= 25u + options.begins_with.size());
    BOOST_TEST(found.trace.size() > 2u);
    ExploreOptions same = options;
    same.tries_to_end = true;
    same.most_depth = static_cast<int>(found.length - options.begins_with.size()) + 1;
    BOOST_TEST(MembershipExplorer<>(same).run().violation == "");
}

} // namespace

BOOST_AUTO_TEST_SUITE(exploring)

BOOST_AUTO_TEST_CASE(small_worlds) {
    expect_clean({.members = 3, .deaths = 2, .timeouts = 0});
    expect_clean({.members = 3, .deaths = 1, .timeouts = 1});
    expect_clean({.members = 2, .deaths = 1, .timeouts = 2, .cuts = 1});
    expect_clean({.members = 2, .deaths = 1, .timeouts = 2, .cuts = 1, .hosts = 1});
    expect_clean({.members = 3, .deaths = 0, .timeouts = 1, .resets = 1, .heals = 1, .hosts = 1});
    expect_clean({.members = 3, .deaths = 0, .timeouts = 1, .losses = 1, .doubles = 1});
    expect_clean({.members = 2, .applicants = 1, .deaths = 1, .timeouts = 0});
    expect_clean({.members = 2, .deaths = 0, .timeouts = 3, .losses = 1});
}

#ifndef UNISONO_TEST_SANITIZED // half a million states, or a variant: a sanitizer needs minutes, and has seen this code
BOOST_AUTO_TEST_CASE(many_timeouts) { expect_clean({.members = 2, .deaths = 0, .timeouts = 4, .losses = 1}); }

/// A result of one event was taken for that of another one here.
BOOST_AUTO_TEST_CASE(many_resets) {
    expect_clean({.deaths = 1, .timeouts = 2, .resets = 2, .heals = 1, .hosts = 1, .most_depth = 11}, false);
}

BOOST_AUTO_TEST_CASE(broken_variants) {
    expect_found<NoEpochCheck>({.timeouts = 0}, "no end");
    expect_found<OwnUpdates>({.timeouts = 0}, "ranks with different numbers");
    expect_found<NoQuorum>({.deaths = 0, .timeouts = 4}, "two worlds");
    expect_found<AnyHalf>({.members = 2, .deaths = 0, .timeouts = 4, .cuts = 1, .tries_to_end = false}, "two worlds");
    expect_found<TellsNobody>({.members = 2, .deaths = 0, .timeouts = 3, .losses = 1}, "two worlds");
    expect_found<NoLastWords>({.members = 2, .deaths = 0, .timeouts = 4, .cuts = 1, .tries_to_end = false},
                              "two worlds");
    expect_found<DoubtsDecisions>({.members = 2, .deaths = 0, .timeouts = 3, .losses = 1}, "two worlds");
    expect_found<VotesUnread>({.members = 2, .deaths = 0, .timeouts = 4, .losses = 1}, "two worlds");
}

/// A process is added by many events, so these explorations begin with them.
BOOST_AUTO_TEST_CASE(broken_variants_with_an_added_member) {
    using enum ExploredEvent::What;
    // Process 2 proposes, and dies. 0 does not know that yet, and 1 has promised 2's ballot.
    expect_found<AsksOnce>({.members = 2,
                            .applicants = 1,
                            .timeouts = 3,
                            .begins_with = {{apply, 0},
                                            {fail, 0},
                                            {fail, 1},
                                            {deliver, 1, 0},
                                            {deliver, 0, 1},
                                            {deliver, 1, 0},
                                            {deliver, 0, 1},
                                            {deliver, 1, 0},
                                            {deliver, 0, 1},
                                            {deliver, 2, 0},
                                            {deliver, 2, 1},
                                            {deliver, 2, 1},
                                            {deliver, 0, 2},
                                            {deliver, 1, 2},
                                            {deliver, 1, 2}}},
                           "blame");
    // Members 0 and 1 add process 3 while 2 is silent, and 0 dies before it tells 2. Then 1 dies.
    expect_found<NoElders>(
        {.members = 3,
         .applicants = 1,
         .deaths = 2,
         .timeouts = 2,
         .begins_with = {{apply, 0},      {fail, 0},       {fail, 1},       {deliver, 1, 0},    {deliver, 0, 1},
                         {time_out, 0},   {deliver, 1, 0}, {deliver, 0, 1}, {crash, 0, 1 << 2}, {deliver, 3, 0},
                         {deliver, 3, 0}, {deliver, 1, 0}, {deliver, 3, 1}, {prove, 1, 0},      {prove, 3, 0},
                         {deliver, 3, 1}, {deliver, 3, 1}, {deliver, 3, 1}, {deliver, 1, 3},    {deliver, 1, 3},
                         {deliver, 1, 3}, {deliver, 3, 1}, {deliver, 1, 3}, {deliver, 3, 1},    {deliver, 1, 3},
                         {deliver, 3, 1}, {enter, 1},      {enter, 3},      {commit, 1},        {commit, 3}}},
        "two worlds");
}

#endif

/// The end of a connection proves nothing about a process.
BOOST_AUTO_TEST_CASE(trusted_resets) {
    const Explored found =
        MembershipExplorer<>({.members = 2, .deaths = 0, .resets = 1, .hosts = 1, .trusts_resets = true}).run();
    BOOST_TEST_MESSAGE(found.text());
    BOOST_TEST(found.violation.find("two worlds") == 0u);
    BOOST_TEST(found.length <= 25u);
}

/// As many states as the environment says; by default few.
BOOST_AUTO_TEST_CASE(large_worlds) {
    const char* const text = std::getenv("UNISONO_EXPLORE");
    const std::size_t most = text != nullptr ? std::strtoull(text, nullptr, 10) : 50'000;
    expect_clean({.members = 4, .applicants = 1, .deaths = 2, .timeouts = 1, .cuts = 1, .most_states = most}, false);
    expect_clean({.members = 4, .deaths = 2, .timeouts = 1, .cuts = 1, .hosts = 3, .most_states = most}, false);
    expect_clean({.members = 3, .applicants = 1, .deaths = 2, .timeouts = 1, .most_states = most}, false);
    expect_clean({.members = 3, .deaths = 2, .timeouts = 2, .cuts = 1, .most_states = most}, false);
    expect_clean({.members = 3, .deaths = 1, .timeouts = 2, .resets = 2, .heals = 1, .hosts = 1, .most_states = most},
                 false);
}

BOOST_AUTO_TEST_SUITE_END()
