#include "pairwise.hpp"

BOOST_AUTO_TEST_CASE(pairwise_3) { unisono_matrix::check_rows<14>(std::make_index_sequence<8>{}); }

static_assert(unisono_matrix::rows.size() == 27, "each row is checked by one of the four files");

BOOST_AUTO_TEST_CASE(owners_of_slices_have_no_place_in_updates_of_each_ranks_own) {
    using namespace unisono_matrix;
    const int ran = counts().ran;
    const auto with = [](const auto& reducer, const auto& sharding) {
        check(reducer, un::LocalSteps{}, sharding, un::FiniteGuard{}, un::Sgd{}, un::DistributedSampler{},
              un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
    };
    with(un::NativeReducer{}, EqualShards{});
    with(un::ParameterServerReducer{}, un::Replicated{});
    BOOST_TEST(counts().ran == ran);
}
