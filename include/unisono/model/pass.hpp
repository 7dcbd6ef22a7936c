#pragma once

/// \file
/// The exchange of information between a trainer and a model during one micro-batch.

#include "unisono/core/random.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN

/// The position of a micro-batch in the training. It does not depend on which rank hosts the
/// replica.
struct PassFacts {
    std::uint64_t seed = 0;    ///< seed of the training
    std::uint64_t epoch = 0;   ///< 0, 1, ...; in a loop of your own the epoch of `set_epoch`
    std::uint64_t update = 0;  ///< updates since the trainer was made
    std::uint64_t replica = 0; ///< logical number of the replica, 0 to `replicas` - 1
    std::uint64_t replicas = 1;
    double loss_scale = 1; ///< factor by which the model multiplies its loss before the backward pass
    double weight = 1;     ///< factor by which the trainer multiplies this micro-batch's gradient
    std::span<const std::size_t> samples = {}; ///< indices in the data set, in the batch's order; empty: not known
};

/// The second argument of a model's call, `model(batch, pass)`: tells the model the position in the
/// training, and takes reports from it. Valid during the call; not copyable.
class Pass {
public:
    using ReadyCall = void (*)(void* trainer, std::size_t parameter);

    Pass() = default;
    explicit Pass(const PassFacts& facts, ReadyCall call = nullptr, void* trainer = nullptr)
        : facts_(facts), ready_(call), trainer_(trainer) {}
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

    [[nodiscard]] std::uint64_t epoch() const { return facts_.epoch; }
    [[nodiscard]] std::uint64_t update() const { return facts_.update; }
    [[nodiscard]] std::uint64_t replica() const { return facts_.replica; }
    [[nodiscard]] std::uint64_t replicas() const { return facts_.replicas; }

    /// The factor by which the trainer multiplies this micro-batch's gradient before it adds it to
    /// the sum. For information only: the model does not apply it. It is 1 if the weight depends on
    /// tokens that are not yet counted.
    [[nodiscard]] double weight() const { return facts_.weight; }

    /// With LossScaling, the factor by which the model multiplies its loss before its backward
    /// pass, and so its gradient; otherwise 1. The model returns its loss without the factor. With
    /// LossScaling a model must call this function in each pass.
    [[nodiscard]] double loss_scale() const {
        asked_for_scale_ = true;
        return facts_.loss_scale;
    }
    [[nodiscard]] bool asked_for_scale() const { return asked_for_scale_; }
    /// For wrappers of models, which construct a pass of their own.
    [[nodiscard]] const PassFacts& facts() const { return facts_; }

    /// Random numbers of this micro-batch: a function of the training's seed, the epoch, the update
    /// and the logical replica. So a dropout mask does not depend on the rank that hosts the
    /// replica.
    [[nodiscard]] CounterRandom random() const {
        return CounterRandom(facts_.seed ^ (facts_.epoch * 0x9e3779b97f4a7c15u),
                             static_cast<std::uint32_t>(facts_.replica), facts_.update);
    }

    /// Random numbers of the micro-batch's `row`-th sample in one use of it (`use` is a number of
    /// your choice, such as a layer): a function of the training's seed, the epoch, the sample and
    /// the use, independent of the rest of the micro-batch. In a loop of your own the trainer does
    /// not know the samples; then the replica and the row replace the sample.
    [[nodiscard]] CounterRandom random(std::size_t row, std::uint32_t use = 0) const {
        if (row < facts_.samples.size()) return sample_random(facts_.seed, facts_.epoch, facts_.samples[row], use);
        const std::uint64_t key = facts_.seed ^ (facts_.update + 1) * 0xd6e8feb86659fd93u;
        return sample_random(key, facts_.epoch, (facts_.replica << 32) + row, use);
    }
    /// The samples' indices in the data set; empty in a loop of your own. Valid during the call.
    [[nodiscard]] std::span<const std::size_t> samples() const { return facts_.samples; }

    /// Adds to the number of tokens of this micro-batch. ByTokens weighs the micro-batch by it.
    /// Call it before the first `ready`.
    void count_tokens(double tokens) {
        tokens_ += tokens;
        counted_tokens_ = true;
    }
    [[nodiscard]] double tokens() const { return tokens_; }
    [[nodiscard]] bool counted_tokens() const { return counted_tokens_; } ///< also where there were none

    /// Tells the trainer that the gradient of this parameter is complete: the trainer may start to
    /// exchange it while the model works on the others. Optional, in any order, at most once for
    /// each parameter and micro-batch. The model does not touch that gradient again until its next
    /// call.
    void ready(std::size_t parameter) {
        if (first_ready_ == no_parameter) { // also after `progress`, which reports no parameter
            first_ready_ = parameter;
            tokens_when_ready_ = tokens_;
        }
        if (ready_ != nullptr) ready_(trainer_, parameter);
    }

    /// Advances operations in flight without waiting, as `ready` does: adds and forwards messages
    /// that have arrived, unless a network card or another thread does so. For a model whose layers
    /// take long: call it several times per millisecond. Cost: one poll of each operation in
    /// flight.
    void progress() { ready(no_parameter); }
    static constexpr std::size_t no_parameter = static_cast<std::size_t>(-1);
    /// For the trainer: the parameter that was ready first, and the tokens counted by then.
    [[nodiscard]] std::size_t first_ready() const { return first_ready_; }
    [[nodiscard]] double tokens_when_ready() const { return tokens_when_ready_; }

private:
    PassFacts facts_ = {};
    ReadyCall ready_ = nullptr;
    void* trainer_ = nullptr;
    double tokens_ = 0;
    bool counted_tokens_ = false;
    std::size_t first_ready_ = no_parameter;
    double tokens_when_ready_ = 0;
    mutable bool asked_for_scale_ = false;
};

namespace detail {
/// Reports to a trainer's pass what a model has told a wrapper's own.
template <class Inner>
void report_to(Pass& outer, const Inner& inner) {
    if (inner.counted_tokens()) outer.count_tokens(inner.tokens() - outer.tokens());
    if (inner.asked_for_scale()) static_cast<void>(outer.loss_scale());
}
} // namespace detail

UNISONO_NAMESPACE_END
