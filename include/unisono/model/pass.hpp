#pragma once

/// \file
/// What the trainer tells a model during one micro-batch, and what the model may tell the trainer.

#include "unisono/core/random.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN

/// Where a micro-batch stands in the training: the same for every way in which ranks may host the replicas.
struct PassFacts {
    std::uint64_t seed = 0;    ///< of the training
    std::uint64_t epoch = 0;   ///< 0, 1, ...; in a loop of the user's own what `begin_epoch` said
    std::uint64_t update = 0;  ///< updates since the trainer was made
    std::uint64_t replica = 0; ///< logical: which of the `replicas` micro-batches of this update
    std::uint64_t replicas = 1;
    double loss_scale = 1;                     ///< by which the model multiplies its loss before the backward pass
    double weight = 1;                         ///< by which the trainer will multiply this micro-batch's gradient
    std::span<const std::size_t> samples = {}; ///< indices in the data set, in the batch's order; empty: not known
};

/// Given to the model with each micro-batch: `model(batch, pass)`. Not copied, not kept.
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

    /// The factor by which the trainer multiplies this micro-batch's gradient before it adds it to the others'. For
    /// information; the model does not apply it. It is 1 where tokens are not counted yet.
    [[nodiscard]] double weight() const { return facts_.weight; }

    /// With LossScaling: the factor by which the model multiplies its loss before its backward pass, and so its gradient; not the
    /// loss that it returns. A model that is trained so must ask for it in each call. Else 1.
    [[nodiscard]] double loss_scale() const {
        asked_for_scale_ = true;
        return facts_.loss_scale;
    }
    [[nodiscard]] bool asked_for_scale() const { return asked_for_scale_; }
    /// For wrappers of models, which make a pass of their own.
    [[nodiscard]] const PassFacts& facts() const { return facts_; }

    /// Random numbers of this micro-batch alone: a function of the training's seed, the epoch, the update and the
    /// logical replica, so that a dropout mask does not depend on which rank hosts the replica.
    [[nodiscard]] CounterRandom random() const {
        return CounterRandom(facts_.seed ^ (facts_.epoch * 0x9e3779b97f4a7c15u),
                             static_cast<std::uint32_t>(facts_.replica), facts_.update);
    }

    /// Random numbers of the micro-batch's `row`-th sample in one use of it (a number of your own: a layer, say): a function of
    /// the training's seed, the epoch, the sample and the use, whatever else is in the micro-batch. In a loop of the
    /// user's own, where samples are not known, the replica and the row stand for it.
    [[nodiscard]] CounterRandom random(std::size_t row, std::uint32_t use = 0) const {
        if (row < facts_.samples.size()) return sample_random(facts_.seed, facts_.epoch, facts_.samples[row], use);
        const std::uint64_t key = facts_.seed ^ (facts_.update + 1) * 0xd6e8feb86659fd93u;
        return sample_random(key, facts_.epoch, (facts_.replica << 32) + row, use);
    }
    /// The samples' indices in the data set; empty in a loop of the user's own. Valid during the call.
    [[nodiscard]] std::span<const std::size_t> samples() const { return facts_.samples; }

    /// Adds to the tokens of this micro-batch: the unit in which ByTokens weighs. Before the first `ready`.
    void count_tokens(double tokens) { tokens_ += tokens; }
    [[nodiscard]] double tokens() const { return tokens_; }

    /// The gradient of this parameter is complete: the trainer may begin to exchange it while the model works on the
    /// others. Optional, in any order, at most once for each parameter and micro-batch; after it the model does not
    /// touch that gradient until its next call.
    void ready(std::size_t parameter) {
        if (ready_ != nullptr) ready_(trainer_, parameter);
    }

    /// Moves on what is under way, without waiting, as `ready` does: a message that has come is added and passed on, where no network card
    /// or other thread does so. For a model whose layers take long, every fraction of a millisecond or so; costs a look at each operation in flight.
    void progress() { ready(no_parameter); }
    static constexpr std::size_t no_parameter = static_cast<std::size_t>(-1);

private:
    PassFacts facts_ = {};
    ReadyCall ready_ = nullptr;
    void* trainer_ = nullptr;
    double tokens_ = 0;
    mutable bool asked_for_scale_ = false;
};

UNISONO_NAMESPACE_END
