// How often worlds may fail before they have worked, by hand: two members, of which this is 0.
#include "alone.hpp"

#include <unisono/extensions/elastic/forming.hpp>
#include <unisono/transport/in_process.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace un = unisono;

namespace {

constexpr un::nanoseconds ms = 1'000'000, patience = 100 * ms;

struct Other {
    un::nanoseconds now = ms;
    un::detail::Membership<> member{1, {0, 1}, {.patience = patience, .give_up = 20 * patience}};
    bool dies = false; ///< while the ranks of the next world meet
    bool has_died = false;
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
    un::Group<un::InProcess> meet(const std::vector<int>&, std::uint64_t, un::nanoseconds, Wait wait) {
        other->has_died = other->dies;
        if (other->has_died) wait(now());
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
    void let_other_die() { other_->dies = true; }
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
