// Reducers, shardings, updates and accumulations that are in no row, and the counts.
#include "elastic_matrix.hpp"

#include "support/owners_or_all.hpp"
#include "unisono/unisono.hpp"

#include <cstdio>

namespace {

using namespace unisono_elastic_matrix;

struct Counted {
    Counted() = default;
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() {
        int refused = 0;
        for (const auto& [reason, count] : counts().refused) refused += count;
        std::printf("policy matrix over an elastic world: %d combinations lost a rank and got one, and have the bits "
                    "of an undisturbed run; %d "
                    "were refused at compile time\n",
                    counts().ran, refused);
        for (const auto& [reason, count] : counts().refused) std::printf("  %3d refused: %s\n", count, reason.c_str());
    }
};

template <class Reducer, class Update, class Sharding, class Accumulation>
bool with(const Reducer& reducer, const Update& update, const Sharding& sharding, const Accumulation& accumulation) {
    return check_elastic(reducer, update, sharding, un::FiniteGuard{}, un::Sgd{.learning_rate = 0.1, .momentum = 0.9},
                         un::DistributedSampler{.seed = 4}, accumulation, un::BySamples{}, un::ConstantRate{});
}

} // namespace

BOOST_TEST_GLOBAL_FIXTURE(Counted);

BOOST_AUTO_TEST_CASE(others) {
    BOOST_TEST(
        with(un::RingReducer{.chunk_bytes = 16}, OwnUpdate{}, un::Replicated{}, un::AccumulateSamples{.samples = 7}));
    BOOST_TEST(with(SumOnlyReducer{}, un::Synchronous{}, un::Replicated{}, un::AccumulateTokens{.tokens = 20}));
    BOOST_TEST(with(un::HalvingDoublingReducer{}, un::Synchronous{}, un::Replicated{}, un::NoAccumulation{}));
    BOOST_TEST(with(un::NativeReducer{}, un::Synchronous{}, EqualShards{}, un::NoAccumulation{}));
    BOOST_TEST(with(un::NativeReducer{}, un::Synchronous{}, un::StateSharding{}, un::NoAccumulation{}));
    BOOST_TEST(with(un::NativeReducer{}, un::Synchronous{}, test::OwnersOrAll{.sharded = true}, un::NoAccumulation{}));
}

// Runs after all others. These numbers change if a combination is lost, or if a new rule refuses
// it.
BOOST_AUTO_TEST_CASE(as_many_combinations_as_ever,
                     *boost::unit_test::depends_on("rows_1") * boost::unit_test::depends_on("rows_2") *
                         boost::unit_test::depends_on("rows_3") * boost::unit_test::depends_on("rows_4") *
                         boost::unit_test::depends_on("others")) {
    int refused = 0;
    for (const auto& [reason, count] : counts().refused) refused += count;
    BOOST_TEST(counts().ran == 33);
    BOOST_TEST(refused == 27);
}
