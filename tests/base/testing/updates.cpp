// The steps around an update: the laws of runs and of servers, for the library's policies, one of
// the examples, and faulty ones.
#include "../../../examples/own_update/elastic_averaging.hpp"
#include "support.hpp"

#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/extensions/updates/gossip.hpp"
#include "unisono/extensions/updates/hogwild.hpp"
#include "unisono/extensions/updates/streaming_diloco.hpp"
#include "unisono/testing/update_laws.hpp"
#include "unisono/update/averaging.hpp"
#include "unisono/update/update.hpp"

#include <cmath>
#include <string>
#include <string_view>

namespace un = unisono;
using namespace un::testing;
using unisono_test::expect_lawful;
using unisono_test::expect_reported;

namespace unisono_faulty {

enum class Fault {
    none,
    never_meets,
    keeps_count,
    moves_at_discard,
    forgets_state,
    learns_nothing,
    drifts,
    last_bit,
    throws,
    keeps_on_return,
    leaves_a_sum,
    counts_commits
};

template <class Training, class Policy>
class FaultyRun : public un::detail::Averaging<Training, Policy> {
    using Base = un::detail::Averaging<Training, Policy>;

public:
    FaultyRun(Training& training, const Policy& policy) : Base(training, policy), fault_(policy.fault) {}
    un::Verdict apply() {
        if (fault_ != Fault::learns_nothing) return Base::apply();
        Base::discard(un::Verdict::skip);
        return un::Verdict::commit;
    }
    un::Verdict discard(un::Verdict verdict) {
        if (fault_ == Fault::moves_at_discard) this->all([](const auto& one) { one.parameters[0] += 1; });
        return Base::discard(verdict);
    }
    [[nodiscard]] bool after(un::Verdict verdict) {
        if (fault_ == Fault::counts_commits && verdict != un::Verdict::commit) return false;
        const bool due = Base::after(verdict);
        if (fault_ != Fault::leaves_a_sum) return due;
        left_.wait();
        this->allocate_sum();
        left_ = this->training().start_sum(this->sum(), 1);
        return due;
    }
    void synchronise() {
        left_.wait();
        static int drift = 0;
        if (fault_ == Fault::never_meets) return;
        if (fault_ == Fault::throws && this->world().rank() == 1) un::refuse_input("does not want to meet");
        const bool some = this->own() != 0;
        Base::synchronise();
        if (fault_ == Fault::keeps_count && some) static_cast<void>(this->count_update());
        if (fault_ == Fault::drifts && this->world().rank() == 0) ++drift;
        if (fault_ == Fault::last_bit && this->world().rank() == 1)
            this->all([](const auto& one) { one.parameters[3] = std::nextafter(one.parameters[3], 0.0); });
        if (fault_ == Fault::drifts)
            this->all([&](const auto& one) { one.parameters[0] += 1e-3 * (this->world().rank() == 0 ? drift : 1); });
    }
    void restore(std::uint64_t synchronisations) {
        if (fault_ == Fault::keeps_on_return) return;
        Base::restore(synchronisations);
        if (fault_ == Fault::forgets_state)
            for (double& value : this->state().array(0)) value = 0;
    }

private:
    Fault fault_;
    un::Operation left_;
};

/// Diloco with a fault that is chosen at run time.
struct Faulty : un::Diloco<> {
    Fault fault = Fault::none;
    static constexpr std::string_view name = "faulty";
    friend bool operator==(const Faulty&, const Faulty&) = default;
    template <class Training>
    FaultyRun<Training, Faulty> start(Training& training) const {
        return {training, *this};
    }
};
inline Violations laws_of(Fault fault) {
    Faulty policy;
    policy.steps = 3;
    policy.fault = fault;
    return update_laws(policy);
}

} // namespace unisono_faulty
using namespace unisono_faulty;

BOOST_AUTO_TEST_SUITE(certified_updates)

BOOST_AUTO_TEST_CASE(built_in_archetype_and_example) {
    expect_lawful(update_laws(ArchetypeUpdate{}));
    expect_lawful(update_laws(un::Synchronous{}));
    expect_lawful(update_laws(un::LocalSteps{.steps = 3}));
    expect_lawful(update_laws(un::LocalSteps{.steps = 2, .warm_up = 9}));
    expect_lawful(update_laws(un::StreamingDiloco<>{.steps = 4, .fragments = 2}));
    expect_lawful(update_laws(un::Gossip{}));
    expect_lawful(update_laws(un::Hogwild{}));
    expect_lawful(update_laws(ElasticAveraging{.steps = 2, .strength = 0.2}));
    expect_lawful(update_laws(ElasticAveraging{.steps = 3}, {.ranks = 1}));
    expect_lawful(laws_of(Fault::none)); // Diloco
}

BOOST_AUTO_TEST_CASE(what_is_no_violation) {
    // The outer optimizer moves at the synchronisation after an update, also after a skipped one.
    expect_lawful(update_laws(un::Diloco<>{.steps = 1}));
    // Ranks that are not in lockstep reach some mean of all targets, or the targets of the last
    // rank.
    expect_lawful(update_laws(un::Hogwild{}, {.ranks = 5, .updates = 1}));
}

BOOST_AUTO_TEST_CASE(faulty_ones) {
    expect_reported(laws_of(Fault::never_meets),
                    {"after synchronisation 1 rank 1 holds", "expected the same on all ranks"});
    expect_reported(laws_of(Fault::keeps_count), {"after synchronisation 1 rank 0 counts 1 updates of its own"});
    expect_reported(laws_of(Fault::moves_at_discard),
                    {"an update that all ranks skipped changed the parameters of rank 0"});
    expect_reported(laws_of(Fault::forgets_state), {"a training that was restored holds", "state() lacks something"});
    expect_reported(laws_of(Fault::learns_nothing), {"after 400 updates the first parameter is 0", "within 5 %"});
    expect_reported(laws_of(Fault::drifts), {"the next training holds", "as the first time"});
    expect_reported(laws_of(Fault::throws), {"faulty: threw ", "does not want to meet"});
    expect_reported(laws_of(Fault::counts_commits), {"faulty: threw ", "`after` counts every update"});
    expect_reported(laws_of(Fault::keeps_on_return), {"a training that went back holds", "restore() keeps something"});
    expect_reported(laws_of(Fault::leaves_a_sum), {"a trainer that ended between two synchronisations broke the world",
                                                   "dropped the handle of an unfinished operation"});
    const std::string apart = laws_of(Fault::last_bit).text();
    const auto number_after = [&](std::string_view words) {
        const std::size_t at = apart.find(words) + words.size();
        return apart.substr(at, apart.find(' ', at) - at);
    };
    BOOST_TEST(apart.find(" in parameter 3; expected the same on all ranks") != std::string::npos, apart);
    BOOST_TEST(number_after("rank 1 holds ") != number_after("and rank 0 "));
}

BOOST_AUTO_TEST_CASE(servers) {
    expect_lawful(served_update_laws(un::Asynchronous{}));
    for (const std::uint64_t s : {0u, 1u, 5u}) expect_lawful(served_update_laws(un::BoundedStaleness{.staleness = s}));
    expect_lawful(served_update_laws(un::BackupWorkers{}));
    expect_lawful(served_update_laws(un::DelayCompensated{.lambda = 2, .servers = 3}));
}

namespace {

struct NobodyGoesOn : un::BoundedStaleness {
    [[nodiscard]] bool goes_on(std::uint64_t clock, std::uint64_t slowest) const { return clock < slowest; }
};
struct OnlyTheFast : un::BoundedStaleness {
    [[nodiscard]] bool goes_on(std::uint64_t clock, std::uint64_t slowest) const {
        return clock == slowest || clock - slowest == 3;
    }
};
struct Hasty : un::DelayCompensated {
    template <class T>
    void compensate(std::span<T> gradients, double, std::span<const T>, std::span<const T>) const {
        for (T& g : gradients) g *= 2;
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(faulty_servers) {
    expect_reported(served_update_laws(NobodyGoesOn{}), {"goes_on() is false for the slowest worker"});
    expect_reported(served_update_laws(OnlyTheFast{}),
                    {"and false at a smaller clock", "and false if the slowest is further"});
    expect_reported(served_update_laws(Hasty{}), {"became 3", "a gradient of 1.5", "that is not stale"});
    NobodyGoesOn none;
    none.servers = 0;
    expect_reported(served_update_laws(none), {"servers is 0"});
}

BOOST_AUTO_TEST_SUITE_END()
