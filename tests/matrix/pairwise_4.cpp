#include "../../examples/own_update/elastic_averaging.hpp"
#include "pairwise.hpp"

#include "unisono/update/streaming_diloco.hpp"

BOOST_AUTO_TEST_CASE(pairwise_4) { unisono_matrix::check_rows<22>(std::make_index_sequence<5>{}); }

BOOST_AUTO_TEST_CASE(streaming) {
    using namespace unisono_matrix;
    check(un::TreeReducer{}, un::StreamingDiloco<>{.steps = 3, .fragments = 1, .overlap = 0, .mix = 0, .warm_up = 1},
          un::Replicated{}, un::FiniteGuard{}, un::Adam{.learning_rate = 0.02},
          un::InterleavedSampler{.replicas = 2, .seed = 7}, un::NoAccumulation{}, un::ByTokens{},
          un::CosineRate{.final_factor = 0.1}, un::PlainSums{}, un::ClipByNorm{.max_norm = 0.3});
    check(un::ParameterServerReducer{}, un::StreamingDiloco<>{}, un::Replicated{}, un::FiniteGuard{}, un::Sgd{},
          un::DistributedSampler{}, un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
    check(un::NativeReducer{}, un::StreamingDiloco<>{}, un::StateSharding{}, un::FiniteGuard{}, un::Sgd{},
          un::DistributedSampler{}, un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
}

/// Of the example: in no list of the library's.
BOOST_AUTO_TEST_CASE(own_update) {
    using namespace unisono_matrix;
    check(un::TreeReducer{}, ElasticAveraging{.steps = 3, .strength = 0.15}, un::Replicated{}, un::FiniteGuard{},
          un::Adam{.learning_rate = 0.02}, un::InterleavedSampler{.replicas = 2, .seed = 7},
          un::Accumulate{.steps = 2, .short_window = un::ShortWindow::drop}, un::ByTokens{},
          un::CosineRate{.final_factor = 0.1}, un::PlainSums{}, un::ClipByNorm{.max_norm = 0.3});
    check(un::NativeReducer{}, ElasticAveraging{.steps = 2, .strength = 0.1}, un::StateSharding{}, un::FiniteGuard{},
          un::Sgd{}, un::DistributedSampler{}, un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
}
