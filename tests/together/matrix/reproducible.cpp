// Sums on a grid, crossed with the other policies that determine how gradients are combined.
#include "matrix.hpp"

#include "unisono/trainer/reproducible.hpp"

namespace {

using namespace unisono_matrix;

template <class Reducer>
void check_on_grid(const Reducer& reducer) {
    const un::Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
    const auto with = [&](const auto& update, const auto& sharding) {
        check(reducer, update, sharding, un::FiniteGuard{}, sgd, un::DistributedSampler{.seed = 4},
              un::NoAccumulation{}, un::ReplicasAlike{}, un::ConstantRate{}, un::Reproducible{});
        check(reducer, update, sharding, un::NoGuard{}, sgd, un::InterleavedSampler{.replicas = 2, .seed = 7},
              un::AccumulateTokens{.tokens = 20}, un::ByTokens{}, un::ConstantRate{}, un::Reproducible{},
              un::ClipByNorm{.max_norm = 0.3});
    };
    with(un::Synchronous{}, un::Replicated{});
    with(OwnUpdate{}, EqualShards{});
    if constexpr (std::is_same_v<Reducer, un::NativeReducer>) with(OwnUpdate{}, un::ParameterSharding{});
}

} // namespace

BOOST_AUTO_TEST_CASE(on_a_grid) {
    check_on_grid(un::NativeReducer{});
    check_on_grid(un::RingReducer{.chunk_bytes = 16});
    check_on_grid(SumOnlyReducer{});
    check_on_grid(un::ParameterServerReducer{.servers = 2});
}
