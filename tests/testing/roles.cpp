// Who counts how much, who owns what, and what an update does when: weighing, sharding, update.
#include "support.hpp"

#include "unisono/sharding/automatic.hpp"
#include "unisono/sharding/gradient.hpp"
#include "unisono/sharding/parameter.hpp"
#include "unisono/sharding/replicated.hpp"
#include "unisono/sharding/state.hpp"
#include "unisono/testing/sharding_laws.hpp"
#include "unisono/testing/update_laws.hpp"
#include "unisono/testing/weighing_laws.hpp"
#include "unisono/update/asynchronous.hpp"
#include "unisono/update/backup_workers.hpp"
#include "unisono/update/bounded_staleness.hpp"
#include "unisono/update/delay_compensated.hpp"
#include "unisono/update/synchronous.hpp"

namespace un = unisono;
using namespace un::testing;
using unisono_test::expect_lawful;
using unisono_test::expect_reported;

BOOST_AUTO_TEST_SUITE(certified_weighing)

namespace {

template <class Formula, bool NeedsSamples = true>
struct Weighing {
    static constexpr std::string_view name = "mutant weighing";
    static constexpr un::Family family = un::Family::weighing;
    static constexpr bool needs_samples = NeedsSamples;
    static constexpr bool needs_tokens = false;
    friend bool operator==(const Weighing&, const Weighing&) = default;
    [[nodiscard]] un::Share share(const un::MicroBatchFacts& facts) const { return Formula{}(facts); }
};

struct PerSample {
    un::Share operator()(const un::MicroBatchFacts& facts) const { return {1, facts.samples}; }
};
struct PerToken {
    un::Share operator()(const un::MicroBatchFacts& facts) const { return {1 + facts.tokens, 1}; }
};
struct Negative {
    un::Share operator()(const un::MicroBatchFacts& facts) const { return {4 - facts.samples, 1}; }
};
struct Infinite {
    un::Share operator()(const un::MicroBatchFacts& facts) const { return {1 / (facts.samples - 1), 1}; }
};
struct Counting {
    un::Share operator()(const un::MicroBatchFacts&) const {
        static double calls = 0;
        return {++calls, 1};
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(weighing_laws(ArchetypeWeighing{}));
    expect_lawful(weighing_laws(un::ReplicasAlike{}));
    expect_lawful(weighing_laws(un::BySamples{}));
    expect_lawful(weighing_laws(un::ByTokens{}));
    expect_lawful(weighing_laws(Weighing<PerSample>{}));
}

BOOST_AUTO_TEST_CASE(mutants) {
    expect_reported(weighing_laws(Weighing<PerSample, false>{}),
                    {"mutant weighing", "of 3 samples", "depends on its samples, which needs_samples denies"});
    expect_reported(weighing_laws(Weighing<PerToken>{}), {"depends on its tokens, which needs_tokens denies"});
    expect_reported(weighing_laws(Weighing<Negative>{}), {"is -28 / 1", "finite and not negative"});
    expect_reported(weighing_laws(Weighing<Infinite>{}), {"is inf / 1"});
    expect_reported(weighing_laws(Weighing<Counting>{}), {"differs from call to call"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(certified_sharding)

namespace {

template <class Rule, bool GivesOwners = true>
struct Sharding {
    static constexpr std::string_view name = "mutant sharding";
    static constexpr un::Family family = un::Family::sharding;
    static constexpr bool gives_owners = GivesOwners;
    friend bool operator==(const Sharding&, const Sharding&) = default;
    [[nodiscard]] un::Owners owners(const un::BucketFacts& facts) const { return Rule{}(facts); }
};

struct Equal {
    un::Owners operator()(const un::BucketFacts& facts) const { return un::Owners::equal(facts.count, facts.world); }
};
struct Everyone {
    un::Owners operator()(const un::BucketFacts& facts) const { return un::Owners::everyone(facts.count, facts.world); }
};
struct ForgetsTheRest {
    un::Owners operator()(const un::BucketFacts& facts) const {
        return un::Owners::equal(facts.count / 16 * 16, facts.world);
    }
};
struct FewerRanks {
    un::Owners operator()(const un::BucketFacts& facts) const {
        return un::Owners::equal(facts.count, (facts.world + 1) / 2);
    }
};
struct InTurns {
    un::Owners operator()(const un::BucketFacts& facts) const {
        static int turn = 0;
        un::detail::List<int> one(1);
        one[0] = turn++ % facts.world;
        return un::Owners::chosen(facts.count, std::move(one), facts.world);
    }
};
struct Last {
    un::Owners operator()(const un::BucketFacts& facts) const { return ArchetypeSharding{}.owners(facts); }
};

template <class Rule, bool Gradients = true>
struct OfGradients : Sharding<Rule> {
    static constexpr bool shards_gradients = Gradients;
    static constexpr bool shards_parameters = true;
    friend bool operator==(const OfGradients&, const OfGradients&) = default;
};

} // namespace

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(sharding_laws(ArchetypeSharding{}));
    expect_lawful(sharding_laws(un::GradientSharding{}));
    expect_lawful(sharding_laws(un::ParameterSharding{}));
    expect_lawful(sharding_laws(OfGradients<Equal>{}));
    expect_lawful(sharding_laws(un::Replicated{}));
    expect_lawful(sharding_laws(un::StateSharding{}));
    expect_lawful(sharding_laws(un::AutomaticSharding{}));
    expect_lawful(sharding_laws(un::AutomaticSharding{.costs = {.replicated = 2, .sharded = 1}}));
    expect_lawful(sharding_laws(Sharding<Equal>{}));
}

BOOST_AUTO_TEST_CASE(mutants) {
    expect_reported(sharding_laws(Sharding<Equal, false>{}), {"mutant sharding", "which gives_owners denies"});
    expect_reported(sharding_laws(Sharding<Everyone>{}), {"are all ranks, although gives_owners"});
    expect_reported(sharding_laws(Sharding<ForgetsTheRest>{}), {"of 15 elements", "are those of 0 elements"});
    expect_reported(sharding_laws(Sharding<FewerRanks>{}), {"on 2 ranks are those of 1 ranks"});
    expect_reported(sharding_laws(Sharding<InTurns>{}), {"differ from call to call"});
    expect_reported(sharding_laws(OfGradients<Last>{}),
                    {"are not every rank, in order, which shards_gradients asks for"});
    expect_reported(sharding_laws(OfGradients<Equal, false>{}),
                    {"declares shards_parameters and not shards_gradients"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(certified_updates)

namespace {

template <class Verbs>
struct Update {
    static constexpr std::string_view name = "mutant update";
    static constexpr un::Family family = un::Family::update;
    static constexpr bool agrees = true;
    static constexpr bool needs_owner = false;
    friend bool operator==(const Update&, const Update&) = default;
    un::Verdict run(auto& exchange) const {
        exchange.start();
        const un::Verdict verdict = exchange.agree();
        return Verbs{}(exchange, verdict);
    }
};

struct AppliesAlways {
    un::Verdict operator()(auto& exchange, un::Verdict verdict) const {
        exchange.finish(), exchange.apply(), exchange.publish();
        return verdict;
    }
};
struct NeverFinishes {
    un::Verdict operator()(auto& exchange, un::Verdict verdict) const {
        if (verdict != un::Verdict::commit) return exchange.discard(), verdict;
        verdict = exchange.apply();
        return exchange.publish(), verdict;
    }
};
struct AppliesTooSoon {
    un::Verdict operator()(auto& exchange, un::Verdict verdict) const {
        if (verdict != un::Verdict::commit) return exchange.finish(), exchange.discard(), verdict;
        verdict = exchange.apply();
        return exchange.finish(), exchange.publish(), verdict;
    }
};
struct PublishesFirst {
    un::Verdict operator()(auto& exchange, un::Verdict verdict) const {
        exchange.finish();
        if (verdict != un::Verdict::commit) return exchange.discard(), verdict;
        exchange.publish();
        return exchange.apply();
    }
};
struct EverySecondTime {
    un::Verdict operator()(auto& exchange, un::Verdict verdict) const {
        static int calls = 0;
        exchange.finish();
        if (verdict != un::Verdict::commit || ++calls % 2 == 0) return exchange.discard(), verdict;
        verdict = exchange.apply();
        return exchange.publish(), verdict;
    }
};
struct Deaf {
    un::Verdict operator()(auto& exchange, un::Verdict verdict) const {
        exchange.finish();
        if (verdict != un::Verdict::commit) return exchange.discard(), verdict;
        exchange.apply();
        return exchange.publish(), verdict;
    }
};
} // namespace

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(update_laws(ArchetypeUpdate{}));
    expect_lawful(update_laws(un::Synchronous{}));
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

BOOST_AUTO_TEST_CASE(served_mutants) {
    expect_reported(served_update_laws(NobodyGoesOn{}), {"the slowest itself does not go on"});
    expect_reported(served_update_laws(OnlyTheFast{}),
                    {"would not at a lesser clock", "would not if the slowest had come further"});
    expect_reported(served_update_laws(Hasty{}), {"it makes 3", "of a gradient of 1.5", "that is not stale"});
    NobodyGoesOn none;
    none.servers = 0;
    expect_reported(served_update_laws(none), {"it has 0 servers"});
}

BOOST_AUTO_TEST_CASE(mutants) {
    expect_reported(update_laws(Update<AppliesAlways>{}),
                    {"mutant update", "at the verdict \"skip\"", "apply 1 times; expected never", "discard 0 times"});
    expect_reported(update_laws(Update<NeverFinishes>{}), {"finish 0 times; expected once"});
    expect_reported(update_laws(Update<AppliesTooSoon>{}), {"sums must arrive before they are applied"});
    expect_reported(update_laws(Update<PublishesFirst>{}), {"parameters must be updated before they are published"});
    expect_reported(update_laws(Update<EverySecondTime>{}), {"ranks would part"});
    expect_reported(update_laws(Update<Deaf>{}),
                    {"at the verdict \"commit, then skip\"", "it returns another verdict"});
}

BOOST_AUTO_TEST_SUITE_END()
