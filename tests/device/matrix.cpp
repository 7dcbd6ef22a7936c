// Policies crossed on memory of a device: each occurs with several others, and trains like the serial loop of tests/matrix.
#include "on_device.hpp"

namespace test {

template <class M>
struct Held {
    M held;
};
/// The model of a rank, on its device, in pieces.
template <class M>
class DeviceModelOf : Held<M>, public OnDevice<M> {
public:
    explicit DeviceModelOf(Group& world) : OnDevice<M>(world, this->held, 1) {}
};

} // namespace test

#define UNISONO_TEST_MODEL_IN test::DeviceModelOf
#include "matrix/matrix.hpp"

#include <unisono/reproducible.hpp>

namespace un = unisono;

BOOST_AUTO_TEST_SUITE(device_matrix)

BOOST_AUTO_TEST_CASE(policies) {
    using namespace unisono_matrix;
    const test::Clean clean;
    const un::DistributedSampler distributed{.seed = 4};
    check(un::ParameterServerReducer{.servers = 2}, un::Synchronous{}, un::Replicated{}, un::FiniteGuard{},
          un::Adagrad{.learning_rate = 0.05}, un::InterleavedSampler{.replicas = 2, .seed = 7}, un::NoAccumulation{},
          un::ByTokens{}, un::CosineRate{.final_factor = 0.1}, un::PlainSums{}, un::ClipByValue{.limit = 0.1});
    check(un::RingReducer{}, AgreeFirst{}, EqualShards{}, un::NoGuard{},
          un::RmsProp{.learning_rate = 0.01, .momentum = 0.5}, distributed, un::Accumulate{.steps = 3}, un::BySamples{},
          un::ConstantRate{}, un::PlainSums{}, un::ClipByNorm{.max_norm = 0.3});
    check(un::HalvingDoublingReducer{}, un::Synchronous{}, un::StateSharding{}, un::FiniteGuard{},
          un::Sgd{.learning_rate = 0.1, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01},
          un::ScatterSampler{.seed = 8}, un::AccumulateTokens{.tokens = 20}, un::ReplicasAlike{}, un::ConstantRate{},
          un::Reproducible{}, un::NoClipping{});
    BOOST_TEST(counts().ran == 3);
    BOOST_TEST(counts().refused.empty());
}

BOOST_AUTO_TEST_SUITE_END()
