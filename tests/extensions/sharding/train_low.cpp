#include "train_rank.hpp"

void unisono_test::train_low(World& world, const Case& how, RankResult& out) {
    using Network = LayersOf<un::float16>;
    switch (how.stage) {
    case Stage::replicated:
        return train_rank<un::Replicated, un::Reproducible, un::NativeReducer, Network>(world, how, out);
    case Stage::state: throw std::runtime_error("of weights in 16 bits see tests/base/trainer/mixed_precision.cpp");
    case Stage::gradients:
        return train_rank<un::GradientSharding, un::Reproducible, un::NativeReducer, Network>(world, how, out);
    case Stage::parameters:
        return train_rank<un::ParameterSharding, un::Reproducible, un::NativeReducer, Network>(world, how, out);
    }
}
