#pragma once

/// \file
/// Mixed precision on a device: a model that computes in 16 bits there and is trained in float
/// there.
///
///     Network network;                          // DeviceSpans of bfloat16 or float16; stream()
///     un::MasterWeights master(world, network); // the world's transport has the device
///     un::Trainer trainer{world, master, un::LossScaling{}, un::AdamW{}};

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/arithmetic/stream_kernel.hpp"
#include "unisono/core/config.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/device/on_device.hpp"
#include "unisono/extensions/master_weights/master_weights.hpp"
#include "unisono/model/wrapped_model.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// Device addresses. The weights are contiguous; the 16-bit copy is in the model's own spans.
template <class Low>
class LowWeights {
public:
    explicit LowWeights(const float* weights = nullptr) : weights_(weights) {}

    /// Adds the memory for the copy of the next `count` weights.
    void add(Low* low, std::size_t count) {
        if (count == 0) return;
        if (!pieces_.empty() && pieces_.back().low + pieces_.back().count == low) pieces_.back().count += count;
        else pieces_.push_back({end_, count, low});
        end_ += count;
    }
    [[nodiscard]] std::size_t count() const { return end_; }
    [[nodiscard]] const float* weights() const { return weights_; }

    /// True if `at` is one of the weights.
    [[nodiscard]] bool has(const void* at) const {
        const auto begin = reinterpret_cast<std::uintptr_t>(weights_);
        const auto asked = reinterpret_cast<std::uintptr_t>(at);
        return asked >= begin && asked - begin < end_ * sizeof(float);
    }
    /// Calls visit(first, n, low) for each contiguous range of the copy of [at, at + count): `low`
    /// holds the copies of weights at[first, first + n).
    template <class Visit>
    void visit(const float* at, std::size_t count, Visit&& visit) const {
        const auto begin = static_cast<std::size_t>(at - weights_);
        const std::size_t end = begin + count;
        const Piece* const pieces = pieces_.data();
        const Piece* one =
            partition_point(pieces, pieces + pieces_.size(), [&](const Piece& other) { return other.first <= begin; });
        for (one -= one == pieces ? 0 : 1; one != pieces + pieces_.size() && one->first < end; ++one) {
            const std::size_t from = std::max(one->first, begin);
            const std::size_t to = std::min(one->first + one->count, end);
            if (from < to) visit(from - begin, to - from, one->low + (from - one->first));
        }
    }

    // From now on the code that changes weights also changes the copy, so no other code has to.

    void keep() { ++keepers_; }
    void let_go() { --keepers_; }
    [[nodiscard]] bool kept() const { return keepers_ != 0; }

private:
    struct Piece {
        std::size_t first, count; ///< weights
        Low* low;
    };

    const float* weights_;
    std::vector<Piece> pieces_;
    std::size_t end_ = 0;
    int keepers_ = 0;
};

UNISONO_NO_CONTRACTION_BEGIN

/// Adds to a sum and sets the addend to zero.
template <class Low>
struct TakeElement {
    UNISONO_INLINE void operator()(float& sum, Low& one) const {
        Add<float, Low>{}(sum, one);
        one = Low{};
    }
};

UNISONO_NO_CONTRACTION_END

template <class M>
concept works_on_a_stream = requires(M& m) { m.stream(); };

} // namespace detail

template <class World, class M>
MasterWeights(World&, M&) -> MasterWeights<M>;

/// A float model on a device around a bfloat16 or float16 model on the same device. Weights, their
/// gradients and the optimizer's state are float, in device memory. The model's weights are a
/// rounded copy, which the trainer writes in the optimizer's pass. As the model's gradients become
/// ready, they are added to the float gradients and zeroed, in one pass. While a trainer lives,
/// other writes to the model's weights are lost. After other writes to the float weights, call
/// `refresh()` to update the model's. No data pass through the host.
///
/// The bits are those of MasterWeights on the host. Device memory: 8 bytes per element beside the
/// model's 4. The model must outlive this object, and its memory must not move.
/// \throws error bad_input: spans that do not match; refused: no memory
template <model_on_device M>
class MasterWeights<M> : public detail::MasterWeightsBase<MasterWeights<M>, M> {
    static_assert(detail::works_on_a_stream<M>,
                  "unisono::MasterWeights: found a model on a device without stream(). Required: the stream on which "
                  "it enqueues. Why: its gradients are added, and its weights rounded, behind that.");
    using Base = detail::MasterWeightsBase<MasterWeights<M>, M>;
    using Frame = detail::ConvertedModel<MasterWeights<M>, M>;
    friend Frame; // take, zero
    using Stream = std::remove_cvref_t<decltype(std::declval<M&>().stream())>;
    static_assert(
        has_stream_arithmetic<Stream>,
        "unisono::MasterWeights: found a model on a device, in a source that cannot compute there. Required: "
        "unisono/nccl.hpp or unisono/cuda.hpp, linked to the CMake target unisono::devices or in a source that "
        "nvcc compiles. Why: nvcc compiles its kernels, for that library or with the source.");

public:
    using typename Base::Low;
    using LowCopy = detail::LowWeights<Low>; ///< for the trainer's kernels

    template <streaming_transport Transport>
    MasterWeights(Group<Transport>& world, M& model)
        : Base(model), on_(model.stream()), settle_([](Stream stream) { Transport::settle(stream); }),
          weights_(allocate_on_device<float>(world, count_)), gradients_(allocate_on_device<float>(world, count_)),
          low_weights_(weights_.data()) {
        this->lay_out(weights_.data(), gradients_.data());
        for (const std::span<Low> one : low_) low_weights_.add(one.data(), one.size());
        low_weights_.visit(weights_.data(), count_, [&](std::size_t first, std::size_t n, Low* low) {
            on_.accumulate_first(std::span<float>(weights_.data() + first, n), std::span<const Low>(low, n), 1.0);
        });
        if (count_ != 0) on_.zero(std::span<float>(gradients_.data(), count_));
        for (std::size_t p = 0; p < low_.size(); ++p) zero(p);
    }
    /// Its memory outlives the memberships of an elastic world.
    template <class World>
        requires streaming_transport<typename World::transport_type> && requires(World& world) { world.group(); }
    MasterWeights(World& elastic, M& model) : MasterWeights(elastic.group(), model) {}
    template <class World>
        requires(!streaming_transport<typename World::transport_type>)
    MasterWeights(World&, M& model) : Base(model), on_(model.stream()) {
        static_assert(detail::never_true<World>,
                      "unisono::MasterWeights: found a model on a device, and a world whose ranks have no device. "
                      "Required: a group or an elastic world over Nccl or Cuda<...>. Why: its transport gives memory "
                      "of the device.");
    }
    template <class Nothing = void>
    explicit MasterWeights(M& model) : Base(model), on_(model.stream()) {
        static_assert(!std::is_void_v<Nothing>,
                      "unisono::MasterWeights: found a model on a device, and no group. Required: "
                      "MasterWeights(world, model). Why: its transport gives memory of the device.");
    }
    /// Waits for the work that it has enqueued.
    ~MasterWeights() { settle_(this->wrapped().stream()); }

    [[nodiscard]] std::span<const DeviceSpan<float>> parameters() { return weight_spans_; }
    [[nodiscard]] std::span<const DeviceSpan<float>> gradients() { return gradient_spans_; }
    [[nodiscard]] auto stream() { return this->wrapped().stream(); }

    /// Writes the model's weights. Needed only after code other than a trainer wrote the float
    /// weights.
    void refresh() {
        low_weights_.visit(weights_.data(), weights_.size(), [&](std::size_t first, std::size_t n, Low* low) {
            on_.accumulate_first(std::span<Low>(low, n), std::span<const float>(weights_.data() + first, n), 1.0);
        });
    }
    /// True if the model's weights are current. A trainer keeps them current.
    [[nodiscard]] bool fresh() const { return low_weights_.kept(); }
    [[nodiscard]] LowCopy& low_weights() { return low_weights_; } ///< for the trainer

private:
    void take(std::size_t p) {
        if (!low_[p].empty())
            on_.apply(detail::TakeElement<Low>{},
                      std::span<float>(gradient_spans_[p].data(), gradient_spans_[p].size()), low_gradients_[p]);
    }
    void zero(std::size_t p) {
        if (!low_[p].empty()) on_.fill(low_gradients_[p], Low{});
    }

    using Base::count_, Base::low_, Base::low_gradients_, Base::weight_spans_, Base::gradient_spans_;
    StreamArithmetic<Stream> on_;
    void (*settle_)(Stream stream) = nullptr;
    DeviceMemory<float> weights_, gradients_;
    LowCopy low_weights_;
};

UNISONO_NAMESPACE_END
