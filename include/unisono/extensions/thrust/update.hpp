#pragma once

/// \file
/// An optimizer's update on one of Thrust's systems, in one pass through memory
/// (device/fused_update.hpp). The optimizer's state is in that system's memory.
///
///     using Vector = thrust::device_vector<float>;
///     auto state = un::ThrustOptimizerState<Vector>(policy.state(), parameters.size());
///     un::update_on(on, policy, state.all(), parameters, gradients,
///                   {.learning_rate = 1e-3, .number = n});

#include "unisono/extensions/device/fused_update.hpp"
#include "unisono/extensions/thrust/thrust.hpp"
#include "unisono/optimizer/optimizer.hpp"

#include <cstddef>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// An optimizer's state in Thrust's vectors, with the interface of `OptimizerState`.
template <class Vector>
class ThrustOptimizerState {
public:
    using T = typename Vector::value_type;

    ThrustOptimizerState() = default;
    ThrustOptimizerState(const StateArrays& arrays, std::size_t count) : count_(count) {
        vectors_.reserve(arrays.size());
        for (const StateArray& one : arrays) vectors_.emplace_back(count, static_cast<T>(one.initial));
    }
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] std::size_t size() const { return vectors_.size(); }
    [[nodiscard]] std::span<T> array(std::size_t i) { return span_of(vectors_[i]); }
    [[nodiscard]] OptimizerSlice<T> slice(std::size_t first, std::size_t count) {
        if (first > count_ || count > count_ - first)
            refuse_input({"optimizer state of ", count_, " elements has no slice [", first, ", +", count, ")"});
        OptimizerSlice<T> part;
        part.count = count;
        for (std::size_t i = 0; i < size() && count != 0; ++i) part.arrays[i] = array(i).data() + first;
        return part;
    }
    [[nodiscard]] OptimizerSlice<T> all() { return slice(0, count_); }

private:
    std::vector<Vector> vectors_;
    std::size_t count_ = 0;
};

UNISONO_NAMESPACE_END
