// The wire formats of the library and of an example, with policies of the other families.
#include "../../../examples/own_compression/sign_compression.hpp"
#include "wires.hpp"

#include "unisono/extensions/compression/adasum.hpp"
#include "unisono/extensions/compression/cast.hpp"
#include "unisono/extensions/compression/fp8.hpp"
#include "unisono/extensions/compression/int8.hpp"
#include "unisono/extensions/compression/one_bit.hpp"
#include "unisono/extensions/compression/power_sgd.hpp"
#include "unisono/extensions/compression/top_k.hpp"

BOOST_AUTO_TEST_CASE(compressed) {
    using namespace unisono_matrix;
    const un::DistributedSampler shuffled{.seed = 4};
    const un::InterleavedSampler interleaved{.replicas = 2, .seed = 7};
    const un::SequentialSampler in_order{};
    const un::ScatterSampler scattered{.seed = 8};
    check_wire(0.02, un::Bf16Wire{}, un::Synchronous{}, shuffled, un::NoAccumulation{}, un::BySamples{}, momentum,
               un::NoClipping{}, un::RingReducer{.chunk_bytes = 16});
    check_wire(0.005, un::Fp16Wire{}, un::Synchronous{}, interleaved, un::Accumulate{.steps = 2}, un::ByTokens{},
               momentum, un::ClipByValue{.limit = 0.1}, un::TreeReducer{}, un::NoGuard{}, un::StateSharding{});
    check_wire(0.02, un::Int8Wire{.block = 4}, un::Diloco<>{.steps = 2, .warm_up = 2}, in_order,
               un::AccumulateSamples{.samples = 7}, un::ReplicasAlike{}, un::RmsProp{.learning_rate = 0.01},
               un::NoClipping{});
    check_wire(0.05, un::Fp8Wire{.block = 4}, un::Synchronous{}, scattered, un::NoAccumulation{}, un::BySamples{},
               un::Adam{.learning_rate = 0.02}, un::ClipByNorm{.max_norm = 0.3});
    check_wire(0.3, un::OneBit{.warm_up = 4}, un::Synchronous{}, shuffled, un::AccumulateTokens{.tokens = 20},
               un::ByTokens{}, momentum, un::NoClipping{});
    check_wire(0.5, un::TopK{.fraction = 0.4}, OwnUpdate{}, interleaved, un::NoAccumulation{}, un::BySamples{},
               momentum, un::NoClipping{});
    check_wire(1e-11, un::PowerSgd{.rank = 1}, un::LocalSteps{.steps = 3}, scattered, un::Accumulate{.steps = 3},
               un::ReplicasAlike{}, un::Adagrad{.learning_rate = 0.05}, un::NoClipping{},
               un::HalvingDoublingReducer{}); // of vectors
    check_wire(0.5, un::Adasum{}, un::Synchronous{}, in_order, un::Accumulate{.steps = 2}, un::BySamples{}, momentum,
               un::NoClipping{});
}

/// Of an example, in no list of the library.
BOOST_AUTO_TEST_CASE(own_compression) {
    using namespace unisono_matrix;
    check_wire(0.5, SignCompression{}, un::Synchronous{}, un::InterleavedSampler{.replicas = 2, .seed = 7},
               un::Accumulate{.steps = 2}, un::ByTokens{}, momentum, un::ClipByNorm{.max_norm = 0.3});
    check_wire(0.5, SignCompression{}, un::LocalSteps{.steps = 3}, un::DistributedSampler{.seed = 4},
               un::NoAccumulation{}, un::BySamples{}, un::Adam{.learning_rate = 0.02}, un::NoClipping{});
    count_refused<SignCompression>();
}

BOOST_AUTO_TEST_CASE(compressions_that_are_refused) {
    using namespace unisono_matrix;
    count_refused<un::Bf16Wire>();
    count_refused<un::Fp16Wire>();
    count_refused<un::Int8Wire>();
    count_refused<un::Fp8Wire>();
    count_refused<un::OneBit>();
    count_refused<un::TopK>();
    count_refused<un::PowerSgd>();
    count_refused<un::Adasum>();
}
