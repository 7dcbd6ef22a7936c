#include "train_rank.hpp"

void unisono_test::train_plain(World& world, const Case& how, RankResult& out) {
    train_stage<un::PlainSums, un::NativeReducer>(world, how, out);
}
