#include "train_rank.hpp"

void unisono_test::train_reproducible(World& world, const Case& how, RankResult& out) {
    train_stage<un::Reproducible, un::NativeReducer>(world, how, out);
}
