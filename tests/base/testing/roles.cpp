// The weights of gradients and the owners of slices: weighing, sharding.
#include "support.hpp"

#include "support/owners_or_all.hpp"
#include "unisono/extensions/sharded/policies.hpp"
#include "unisono/testing/sharding_laws.hpp"
#include "unisono/testing/weighing_laws.hpp"
#include "unisono/unisono.hpp"

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
                    {"mutant weighing", "of 3 samples", "depends on its samples, although `needs_samples` is false"});
    expect_reported(weighing_laws(Weighing<PerToken>{}), {"depends on its tokens, although `needs_tokens` is false"});
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
        return un::Owners::chosen(facts.count, {turn++ % facts.world}, facts.world);
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
    expect_lawful(sharding_laws(test::OwnersOrAll{}));
    expect_lawful(sharding_laws(test::OwnersOrAll{.sharded = true}));
    expect_lawful(sharding_laws(Sharding<Equal>{}));
}

BOOST_AUTO_TEST_CASE(mutants) {
    expect_reported(sharding_laws(Sharding<Equal, false>{}), {"mutant sharding", "although `gives_owners` is false"});
    expect_reported(sharding_laws(Sharding<Everyone>{}), {"are all ranks, although `gives_owners`"});
    expect_reported(sharding_laws(Sharding<ForgetsTheRest>{}), {"of 15 elements", "are those of 0 elements"});
    expect_reported(sharding_laws(Sharding<FewerRanks>{}), {"on 2 ranks are those of 1 ranks"});
    expect_reported(sharding_laws(Sharding<InTurns>{}), {"differ from call to call"});
    expect_reported(sharding_laws(OfGradients<Last>{}),
                    {"are not all ranks in order, although `shards_gradients` is true"});
    expect_reported(sharding_laws(OfGradients<Equal, false>{}),
                    {"declares shards_parameters and not shards_gradients"});
}

BOOST_AUTO_TEST_SUITE_END()
