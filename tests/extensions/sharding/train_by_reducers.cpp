#include "train_rank.hpp"

// A ring sums slices in one operation. A tree does not support slices.
void unisono_test::train_by_reducers(World& world, const Case& how, RankResult& out) {
    if (how.sums == Sums::by_ring) train_rank<un::ParameterSharding, un::PlainSums, un::RingReducer>(world, how, out);
    else train_rank<un::GradientSharding, un::PlainSums, un::TreeReducer>(world, how, out);
}
