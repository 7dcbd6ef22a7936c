// How often worlds may fail before they have worked, by hand: two members, of which this is 0.
#include "alone.hpp"
#include "support/fails.hpp"

#include <unisono/extensions/elastic/forming.hpp>
#include <unisono/transport/in_process.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace un = unisono;

namespace {

constexpr un::nanoseconds ms = 1'000'000, patience = 100 * ms;

struct Other {
    un::nanoseconds now = ms;
    un::detail::Membership<> member{1, {0, 1}, {.patience = patience, .give_up = 20 * patience}};
    int meetings = 0;
    int dies_in = 0; ///< the meeting of the next world's ranks in which it dies; 0: none
    bool has_died = false;
    bool is_broken = false; ///< no world of both can be made, and each attempt fails after 1 ms
};

/// Time passes only in `wait`, if there is nothing to hear.
struct ByHand : test::Alone {
    std::shared_ptr<Other> other;

    [[nodiscard]] un::nanoseconds now() const { return other->now; }
    static int me() { return 0; }
    static bool is_to_be_added() { return false; }
    static std::vector<int> connect() { return {0, 1}; }
    static un::Group<un::InProcess> first_group() { return {}; }
    void send(int to, const un::detail::MembershipMessage& message) const {
        if (to == 1) other->member.receive(0, message, now());
    }
    static std::uint64_t host_of(int) { return 1; }
    template <class Heard, class Lost, class Refused, class Came>
    void wait(un::nanoseconds until, Heard heard, Lost lost, Refused, Came) {
        if (other->has_died) return lost(1, true);
        const auto messages = other->member.take_messages();
        for (const auto& [to, message] : messages)
            if (to == 0) heard(1, message);
        if (messages.empty()) other->now = std::max(other->now, until);
    }
    template <class Wait>
    un::Group<un::InProcess> meet(const std::vector<int>& members, std::uint64_t, un::nanoseconds, Wait wait) {
        const bool fails = other->is_broken && members.size() > 1;
        other->has_died = ++other->meetings == other->dies_in;
        if (other->has_died && !fails) wait(now());
        if (fails) {
            other->now += ms;
            other->member.begin(1, now());
            throw un::error(un::Fault{.code = un::ErrorCode::peer_lost, .rank = 0, .message = "broken by hand"});
        }
        other->member.work();
        return {};
    }
};

class Job {
public:
    Job() { static_cast<void>(formation_.first()); }
    /// The world fails, and the next one is formed. Returns the time that it took.
    un::nanoseconds next(std::uint64_t updates, const un::Fault& why) {
        const un::nanoseconds began = other_->now;
        other_->member.begin(updates, began);
        members_ = formation_.next(updates, why).members;
        return other_->now - began;
    }
    void pass(un::nanoseconds time) { other_->now += time; }
    /// In the next meeting of the ranks, or in a later one.
    void let_other_die(int later = 0) { other_->dies_in = other_->meetings + 1 + later; }
    void break_all() { other_->is_broken = true; }
    [[nodiscard]] un::nanoseconds now() const { return other_->now; }
    [[nodiscard]] int meetings() const { return other_->meetings; }
    [[nodiscard]] bool limits(std::uint64_t updates, const un::Fault& why) { return formation_.limits(updates, why); }
    [[nodiscard]] std::size_t members() const { return members_.size(); }

private:
    std::shared_ptr<Other> other_ = std::make_shared<Other>();
    un::detail::MembershipFormation<un::InProcess, ByHand> formation_{
        {.patience = std::chrono::nanoseconds(patience), .give_up = std::chrono::nanoseconds(20 * patience)},
        {{}, other_}};
    std::vector<int> members_ = {0, 1};
};

un::Fault fault(un::ErrorCode code, int peer) {
    return {.code = code, .rank = 0, .peer = peer, .operation = "all_reduce", .sequence = 3, .message = "by hand"};
}
const un::Fault apart = fault(un::ErrorCode::peer_lost, 1);

} // namespace

BOOST_AUTO_TEST_SUITE(forming)

/// The two lose their connection again and again. Each attempt takes longer, until one is left out.
BOOST_AUTO_TEST_CASE(worlds_that_do_not_work) {
    Job job;
    std::vector<un::nanoseconds> took;
    while (job.members() == 2 && took.size() < 100) took.push_back(job.next(1, apart));
    BOOST_TEST(job.members() == 1u);
    BOOST_REQUIRE(took.size() > 4u);
    BOOST_TEST(took[1] == 0);
    BOOST_TEST(took[2] == patience / 4);
    BOOST_TEST(took[3] == patience / 2);
}

/// Longer than give_up: a world that has made an update, or has lived for `patience`, is not
/// counted among those that have failed before.
BOOST_AUTO_TEST_CASE(worlds_that_have_worked) {
    for (const bool by_updates : {true, false}) {
        BOOST_TEST_CONTEXT("by updates: " << by_updates) {
            Job job;
            std::uint64_t updates = 1;
            for (int time = 0; time < 3; ++time) job.next(updates, apart);
            for (int time = 0; time < 100; ++time) {
                job.pass(by_updates ? patience / 2 : patience + 1);
                updates += by_updates ? 1 : 0;
                BOOST_REQUIRE(job.next(updates, apart) == 0);
                BOOST_REQUIRE(job.members() == 2u);
            }
        }
    }
}

/// No world can be made, although nobody is lost: the pauses between attempts grow up to half of
/// `patience`, and end at give_up.
BOOST_AUTO_TEST_CASE(a_library_that_stays_broken) {
    Job job;
    job.break_all();
    const un::nanoseconds began = job.now();
    test::fails(un::ErrorCode::timeout, {"broken by hand"},
                [&] { static_cast<void>(job.next(1, fault(un::ErrorCode::peer_lost, -1))); });
    BOOST_TEST(job.now() - began == 20 * patience);
    BOOST_TEST(job.meetings() >= 20);
    BOOST_TEST(job.meetings() <= 42, job.meetings() << " attempts in 20 times `patience`");
}

/// A rank that ends meanwhile is not waited for.
BOOST_AUTO_TEST_CASE(a_rank_ends_while_the_others_pause) {
    Job job;
    job.break_all();
    job.let_other_die(2);
    const un::nanoseconds two_attempts = ms + patience / 2;
    BOOST_TEST(job.next(1, fault(un::ErrorCode::peer_lost, -1)) == two_attempts + ms);
    BOOST_TEST(job.members() == 1u);
}

/// The formation limits what it counts, and the trainer all else.
BOOST_AUTO_TEST_CASE(what_is_limited) {
    Job job;
    job.next(1, apart);
    BOOST_TEST(job.limits(1, apart));
    BOOST_TEST(!job.limits(2, apart));
    BOOST_TEST(!job.limits(1, fault(un::ErrorCode::timeout, 1)));
    BOOST_TEST(!job.limits(1, fault(un::ErrorCode::peer_lost, -1)));
    BOOST_TEST(!job.limits(1, fault(un::ErrorCode::peer_lost, 2)));
    job.pass(patience + 1);
    BOOST_TEST(!job.limits(1, apart));
    job.let_other_die();
    job.next(1, apart);
    job.pass(patience + 1);
    BOOST_TEST(job.limits(1, apart), "the next world differs");
}

BOOST_AUTO_TEST_SUITE_END()
