// Broken variants of the membership's rules. The tests show that each of them leads to a fault.
#pragma once

#include <unisono/extensions/elastic/membership.hpp>

namespace unisono_test {

struct NoEpochCheck : unisono::detail::MembershipRules {
    static constexpr bool checks_epochs = false;
};
struct NoQuorum : unisono::detail::MembershipRules {
    static constexpr bool needs_quorum = false;
};
struct NoElders : unisono::detail::MembershipRules {
    static constexpr bool needs_elders = false;
};
struct HastyNewcomers : unisono::detail::MembershipRules {
    static constexpr bool added_members_wait = false;
};
struct NoLastWords : unisono::detail::MembershipRules {
    static constexpr bool needs_last_words = false;
};
struct AnyHalf : unisono::detail::MembershipRules {
    static constexpr bool needs_lowest_of_halves = false;
};
struct OwnUpdates : unisono::detail::MembershipRules {
    static constexpr bool agrees_on_updates = false;
};
struct TellsNobody : unisono::detail::MembershipRules {
    static constexpr bool tells_those_left_behind = false;
};
struct VotesUnread : unisono::detail::MembershipRules {
    static constexpr bool reads_early_decisions = false;
};
struct TellsOnce : unisono::detail::MembershipRules {
    static constexpr bool repeats_deaths = false;
};
struct DoubtsDecisions : unisono::detail::MembershipRules {
    static constexpr bool believes_late_decisions = false;
};
struct AsksOnce : unisono::detail::MembershipRules {
    static constexpr bool asks_those_that_refuse = false;
};

} // namespace unisono_test
