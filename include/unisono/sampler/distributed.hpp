#pragma once

/// \file
/// PyTorch's DistributedSampler, index for index.

#include "unisono/sampler/stream.hpp"

UNISONO_NAMESPACE_BEGIN

/// For N samples and L replicas, each replica gets c samples: c = ceil(N / L), or with drop_last
/// floor(N / L). The order is randperm(N) of a generator seeded with seed + epoch, or 0 to N - 1.
/// It is padded to c L by repetition from its head, or cut to c L. Replica r gets positions r, r +
/// L, r + 2L, ... and cuts them into micro-batches. The last micro-batch is short on all replicas
/// if batch_size does not divide c.
///
/// Padded samples count like all others, as in PyTorch. To see each sample once, use
/// SequentialSampler or, for metrics, EvaluationSampler. With drop_last and fewer samples than
/// replicas, the stream has no rounds.
/// Memory: 4 bytes per sample if shuffled, and the indices of one micro-batch.
/// Source: torch.utils.data.DistributedSampler.
struct DistributedSampler {
    bool shuffle = true;
    std::uint64_t seed = 0;
    bool drop_last = false;

    static constexpr std::string_view name = "DistributedSampler";
    static constexpr Family family = Family::sampler;
    friend bool operator==(const DistributedSampler&, const DistributedSampler&) = default;

    [[nodiscard]] std::int64_t replicas_per_rank() const { return 1; }

    /// \throws error bad_input: an invalid shape or position
    [[nodiscard]] SampleStream stream(const SamplerShape& shape, Epoch epoch, std::int64_t consumed = 0) const {
        check_shape(shape, name);
        return {{.shape = shape,
                 .tail = drop_last ? sampling::Tail::drop : sampling::Tail::pad,
                 .shuffle = shuffle,
                 .seed = seed},
                epoch,
                consumed};
    }
};

UNISONO_CERTIFY(sampler_policy<DistributedSampler>);

UNISONO_NAMESPACE_END
