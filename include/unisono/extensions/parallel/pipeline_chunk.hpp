#pragma once

/// \file
/// One rank's part of a pipeline: a batch cut into micro-batches, consecutive layers with their
/// activations and passes, and the activations and gradients in flight to or from this stage. A
/// batch type other than RowBatch has `batch.rows()`, and `batch.slice(first, count)`, which
/// returns an object with `values` (a span of the first layer's inputs, sample by sample) and the
/// data that the loss needs.

#include "unisono/collective/point_to_point.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/parallel/layer.hpp"
#include "unisono/extensions/parallel/pipeline.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/model/model.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Some rows of a RowBatch, with the same members. The RowBatch must outlive it.
template <class T, class Label>
struct RowSlice {
    std::span<const T> values = {};
    std::span<const Label> labels = {};
    std::size_t width = 0;

    [[nodiscard]] std::size_t rows() const { return width == 0 ? 0 : values.size() / width; }
    [[nodiscard]] std::span<const T> row(std::size_t i) const { return values.subspan(i * width, width); }
};

namespace detail {

template <class Batch>
concept sliced_by_itself =
    requires(const Batch& batch) { std::span(batch.slice(std::size_t{0}, std::size_t{1}).values); };

/// Samples [first, first + count) of a batch.
template <class Batch>
auto slice_of(const Batch& batch, std::size_t first, std::size_t count) {
    if constexpr (sliced_by_itself<Batch>) {
        return batch.slice(first, count);
    } else {
        static_assert(
            requires {
                std::span(batch.values);
                std::span(batch.labels);
                batch.width;
                batch.rows();
            }, "unisono: found a batch that cannot be cut into micro-batches. Required: a RowBatch, or "
               "batch.rows() and batch.slice(first, count) (extensions/parallel/pipeline_chunk.hpp).");
        using T = typename decltype(std::span(batch.values))::value_type;
        using Label = typename decltype(std::span(batch.labels))::value_type;
        const std::span<const T> values(batch.values);
        const std::span<const Label> labels(batch.labels);
        return RowSlice<T, Label>{values.subspan(first * batch.width, count * batch.width),
                                  labels.empty() ? labels : labels.subspan(first, count), batch.width};
    }
}

/// Cuts samples into micro-batches, none of them empty. If the number does not divide evenly, the
/// first ones are larger by one sample.
struct MicroBatches {
    std::size_t samples = 0;
    std::uint32_t count = 0;

    MicroBatches(std::size_t all, std::uint32_t wanted)
        : samples(all), count(static_cast<std::uint32_t>(std::min<std::size_t>(all, wanted))) {}
    [[nodiscard]] std::size_t first(std::uint32_t i) const {
        return i * (samples / count) + std::min<std::size_t>(i, samples % count);
    }
    [[nodiscard]] std::size_t size(std::uint32_t i) const { return first(i + 1) - first(i); }
    [[nodiscard]] std::size_t largest() const { return (samples + count - 1) / count; }
};

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

/// Working memory of a chunk. One chunk of a rank uses it at a time.
template <class T>
struct ChunkWork {
    std::span<T> activations = {};              ///< activations, if they are recomputed
    std::array<std::span<T>, 2> gradients = {}; ///< gradients between the chunk's layers
};

/// A *slot* holds the activations of a micro-batch: the chunk's input (except for the model's first
/// part, whose input is the batch), and for each layer its output and its `kept`. With
/// recomputation it holds only the input and the last output.
template <class T>
class PipelineChunk {
public:
    PipelineChunk(const Layers<T>& layers, std::size_t first, std::size_t count, std::uint32_t part, bool recomputes)
        : layers_(&layers), first_(first), count_(count), part_(part), recomputes_(recomputes) {
        if (part != 0) slot_width_ += inputs();
        for (std::size_t l = 0; l < count; ++l) {
            const bool in_slot = !recomputes || l + 1 == count;
            kept_at_.push_back(recomputes ? work_width_ : slot_width_);
            (recomputes ? work_width_ : slot_width_) += layer(l).kept;
            output_at_.push_back(in_slot ? slot_width_ : work_width_);
            (in_slot ? slot_width_ : work_width_) += layer(l).outputs;
            if (l != 0) gradient_width_ = std::max(gradient_width_, layer(l).inputs);
        }
    }

    [[nodiscard]] std::size_t first_layer() const { return first_; }
    [[nodiscard]] std::size_t layers() const { return count_; }
    [[nodiscard]] std::uint32_t part() const { return part_; }
    [[nodiscard]] AnyLayer<T>& layer(std::size_t l) const { return (*layers_)[first_ + l]; }
    [[nodiscard]] std::size_t inputs() const { return (*layers_)[first_].inputs; }
    [[nodiscard]] std::size_t outputs() const { return layer(count_ - 1).outputs; }
    /// Elements per sample of `ChunkWork`.
    [[nodiscard]] std::size_t work_width() const { return work_width_; }
    [[nodiscard]] std::size_t gradient_width() const { return gradient_width_; }
    [[nodiscard]] std::size_t slot_count() const { return slots_; }
    [[nodiscard]] std::size_t bytes() const {
        std::size_t all = memory_.size();
        for (const auto* both : {&output_gradients_, &input_gradients_})
            for (const Memory<T>& one : *both) all += one.size();
        return all * sizeof(T);
    }

    /// Allocates memory for the given numbers of samples and slots. `gradients`: also for the
    /// gradients that chunks exchange.
    template <class World>
    void reserve(World& world, std::size_t samples, std::size_t slot_count, bool gradients) {
        // Each buffer grows separately: a prediction's larger batch needs no gradients.
        const auto grow = [&](Memory<T>& one, std::size_t count) {
            if (one.size() >= count) return;
            one = {};
            one = world.template allocate<T>(count);
        };
        samples_ = std::max(samples, samples_);
        slots_ = std::max(slot_count, slots_);
        grow(memory_, samples_ * slots_ * slot_width_);
        if (!gradients) return;
        for (Memory<T>& one : output_gradients_) grow(one, samples * outputs());
        if (part_ != 0)
            for (Memory<T>& one : input_gradients_) grow(one, samples * inputs());
    }

    [[nodiscard]] std::span<T> input(std::size_t slot, std::size_t n) { return in_slot(slot, 0, n * inputs()); }
    [[nodiscard]] std::span<T> output(std::size_t slot, std::size_t n) {
        return in_slot(slot, output_at_[count_ - 1], n * outputs());
    }
    /// The gradients of the loss with respect to this chunk's outputs and inputs. Micro-batches i
    /// and i + 2 share memory.
    [[nodiscard]] std::span<T> output_gradient(std::uint32_t i, std::size_t n) {
        return {output_gradients_[i % gradient_places].data(), n * outputs()};
    }
    [[nodiscard]] std::span<T> input_gradient(std::uint32_t i, std::size_t n) {
        return {input_gradients_[i % gradient_places].data(), part_ != 0 ? n * inputs() : 0};
    }

    /// `input`: that of the slot, or of the batch. parameters(l): those of the chunk's l-th layer.
    template <class Parameters>
    void forward(std::size_t slot, std::size_t n, std::span<const T> input, const ChunkWork<T>& work,
                 const Parameters& parameters, const Pass* pass, std::size_t first_sample) {
        for (std::size_t l = 0; l < count_; ++l) {
            LayerForward<T> call{n,
                                 parameters(l),
                                 input,
                                 place(slot, work, output_at_[l], n * layer(l).outputs, l),
                                 kept(slot, work, n, l),
                                 pass,
                                 first_sample};
            layer(l).forward(call);
            input = call.output;
        }
    }

    /// gradient(l): that of the parameters of the chunk's l-th layer. done(l) is called when it is
    /// complete.
    template <class Parameters, class Gradient, class Done>
    void backward(std::size_t slot, std::uint32_t i, std::size_t n, std::span<const T> input, const ChunkWork<T>& work,
                  const Parameters& parameters, const Gradient& gradient, const Done& done, const Pass* pass,
                  std::size_t first_sample) {
        if (recomputes_) forward(slot, n, input, work, parameters, pass, first_sample);
        std::span<const T> above = output_gradient(i, n);
        for (std::size_t l = count_; l-- > 0;) {
            const std::span<T> below = l == 0 ? input_gradient(i, n) : work.gradients[l % 2].first(n * layer(l).inputs);
            const std::span<const T> ahead =
                l == 0 ? input : place(slot, work, output_at_[l - 1], n * layer(l - 1).outputs, l - 1);
            LayerBackward<T> call{n,
                                  parameters(l),
                                  ahead,
                                  place(slot, work, output_at_[l], n * layer(l).outputs, l),
                                  kept(slot, work, n, l),
                                  above,
                                  below,
                                  gradient(l)};
            layer(l).backward(call);
            done(l);
            above = below;
        }
    }

private:
    std::span<T> in_slot(std::size_t slot, std::size_t at, std::size_t count) {
        return {memory_.data() + samples_ * (slot * slot_width_ + at), count};
    }
    std::span<T> place(std::size_t slot, const ChunkWork<T>& work, std::size_t at, std::size_t count, std::size_t l) {
        if (recomputes_ && l + 1 != count_) return work.activations.subspan(samples_ * at, count);
        return in_slot(slot, at, count);
    }
    std::span<T> kept(std::size_t slot, const ChunkWork<T>& work, std::size_t n, std::size_t l) {
        const std::size_t count = n * layer(l).kept;
        if (recomputes_) return work.activations.subspan(samples_ * kept_at_[l], count);
        return in_slot(slot, kept_at_[l], count);
    }

    const Layers<T>* layers_;
    std::size_t first_, count_;
    std::uint32_t part_;
    bool recomputes_;
    std::size_t slot_width_ = 0, work_width_ = 0, gradient_width_ = 0;
    /// Offsets per sample: in the slot, or in the memory for recomputation.
    std::vector<std::size_t> kept_at_, output_at_;
    std::size_t samples_ = 0, slots_ = 0; ///< samples per slot, and slots, for which there is memory
    Memory<T> memory_;
    std::array<Memory<T>, gradient_places> output_gradients_, input_gradients_;
};

} // namespace detail
UNISONO_NAMESPACE_END
