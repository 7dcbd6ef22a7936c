#pragma once

/// \file
/// Samples in stored order, each once: replica r gets r, r + L, r + 2L, ... without padding.

#include "unisono/sampler/stream.hpp"

UNISONO_NAMESPACE_BEGIN

/// Samples in stored order, each exactly once per epoch. If the data do not divide evenly, the last
/// round is short, and some replicas have one sample less or none. Gradients are weighted sums, so
/// the result is right without padding.
/// Memory: the indices of one micro-batch.
struct SequentialSampler {
    static constexpr std::string_view name = "SequentialSampler";
    static constexpr Family family = Family::sampler;
    friend bool operator==(const SequentialSampler&, const SequentialSampler&) = default;

    [[nodiscard]] std::int64_t replicas_per_rank() const { return 1; }

    /// \throws error bad_input: an invalid shape or position
    [[nodiscard]] SampleStream stream(const SamplerShape& shape, Epoch epoch, std::int64_t consumed = 0) const {
        check_shape(shape, name);
        return {{.shape = shape}, epoch, consumed};
    }
};

UNISONO_CERTIFY(sampler_policy<SequentialSampler>);

UNISONO_NAMESPACE_END
