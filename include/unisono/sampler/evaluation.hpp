#pragma once

/// \file
/// Each sample exactly once over all ranks, in blocks: for metrics and predictions.

#include "unisono/sampler/stream.hpp"

UNISONO_NAMESPACE_BEGIN

/// Round k covers the samples k L b to (k + 1) L b - 1 as stored, where b is the batch size;
/// replica r gets the r-th block of b. The last, short round is spread evenly: blocks of ceil(rest
/// / L), of which the last ones are shorter or empty. No sample is repeated, so metrics equal those
/// of one rank. A micro-batch is contiguous in the data set, and so are the micro-batches of a
/// round in replica order: predictions are gathered in data-set order.
/// Memory: the indices of one micro-batch.
struct EvaluationSampler {
    static constexpr std::string_view name = "EvaluationSampler";
    static constexpr Family family = Family::sampler;
    friend bool operator==(const EvaluationSampler&, const EvaluationSampler&) = default;

    [[nodiscard]] std::int64_t replicas_per_rank() const { return 1; }

    /// \throws error bad_input: an invalid shape or position
    [[nodiscard]] SampleStream stream(const SamplerShape& shape, Epoch epoch, std::int64_t consumed = 0) const {
        check_shape(shape, name);
        return {{.shape = shape, .deal = sampling::Deal::blocks}, epoch, consumed};
    }
};

UNISONO_CERTIFY(sampler_policy<EvaluationSampler>);

UNISONO_NAMESPACE_END
