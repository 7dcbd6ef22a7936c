#pragma once

/// \file
/// A pipeline's activations and gradients in flight to or from this stage.

#include "unisono/collective/point_to_point.hpp"
#include "unisono/extensions/parallel/pipeline.hpp"
#include "unisono/group/operation.hpp"

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One receive may be posted ahead, so that its data arrive while the stage computes. A send is
/// waited for when its memory is needed again.
template <class World, class T>
class PipelineMessages {
public:
    explicit PipelineMessages(World& world) : world_(&world) {}

    void reserve(std::size_t chunk, std::size_t slot_count) {
        if (activations_.size() <= chunk) {
            activations_.resize(chunk + 1);
            gradients_.resize(chunk + 1);
        }
        if (activations_[chunk].size() < slot_count) activations_[chunk].resize(slot_count);
    }

    /// Starts to receive the data of action number k.
    void post(std::size_t k, std::span<T> to, int peer, int tag) {
        arriving_ = start_receive(*world_, to, peer, tag);
        posted_ = k;
    }
    [[nodiscard]] bool posted() const { return posted_ != nothing; }
    [[nodiscard]] bool posted(std::size_t k) const { return posted_ == k; }
    void arrive() {
        arriving_.wait();
        posted_ = nothing;
    }

    void send_activation(std::size_t chunk, std::size_t slot, std::span<const T> from, int peer, int tag) {
        activations_[chunk][slot] = start_send(*world_, from, peer, tag);
    }
    void send_gradient(std::size_t chunk, std::uint32_t i, std::span<const T> from, int peer, int tag) {
        gradients_[chunk][i % gradient_places] = start_send(*world_, from, peer, tag);
    }
    /// Waits until the slot's memory may be overwritten.
    void await_activation(std::size_t chunk, std::size_t slot) { activations_[chunk][slot].wait(); }
    void await_gradient(std::size_t chunk, std::uint32_t i) { gradients_[chunk][i % gradient_places].wait(); }
    void await_all() {
        for (auto& chunk : activations_)
            for (Operation& one : chunk) one.wait();
        for (auto& chunk : gradients_)
            for (Operation& one : chunk) one.wait();
    }

private:
    static constexpr std::size_t nothing = std::numeric_limits<std::size_t>::max();

    World* world_;
    Operation arriving_;
    std::size_t posted_ = nothing;
    std::vector<std::vector<Operation>> activations_; ///< sends of each chunk and slot
    std::vector<std::array<Operation, gradient_places>> gradients_;
};

} // namespace detail
UNISONO_NAMESPACE_END
