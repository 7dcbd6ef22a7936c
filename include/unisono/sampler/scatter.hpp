#pragma once

/// \file
/// One order for all replicas, each global batch cut into contiguous parts, as in
/// torch.nn.DataParallel.

#include "unisono/sampler/stream.hpp"

UNISONO_NAMESPACE_BEGIN

/// Deals samples as torch.nn.DataParallel does, where a master rank draws a global batch and
/// scatters it by torch.chunk: parts of ceil(batch / L), the last one shorter, and possibly fewer
/// parts than replicas. Replicas without a part get an empty micro-batch. Here `batch_size` is the
/// *global* batch, as that of a DataLoader under DataParallel. Every rank computes its part by
/// itself; the trainer moves the data from the master if its policies ask for that.
///
/// The order is randperm(N) of a generator seeded with seed + epoch, or 0 to N - 1. drop_last
/// leaves out a last, short global batch; otherwise each sample is seen once per epoch. Weigh by
/// samples (BySamples), since parts are uneven.
/// Memory: 4 bytes per sample if shuffled, and the indices of one micro-batch.
struct ScatterSampler {
    bool shuffle = true;
    std::uint64_t seed = 0;
    bool drop_last = false;

    static constexpr std::string_view name = "ScatterSampler";
    static constexpr Family family = Family::sampler;
    friend bool operator==(const ScatterSampler&, const ScatterSampler&) = default;

    [[nodiscard]] std::int64_t replicas_per_rank() const { return 1; }

    /// \throws error bad_input: an invalid shape or position
    [[nodiscard]] SampleStream stream(const SamplerShape& shape, Epoch epoch, std::int64_t consumed = 0) const {
        check_shape(shape, name);
        return {{.shape = shape,
                 .deal = sampling::Deal::blocks,
                 .tail = drop_last ? sampling::Tail::drop : sampling::Tail::keep,
                 .shuffle = shuffle,
                 .seed = seed,
                 .global_batch = shape.batch_size},
                epoch,
                consumed};
    }
};

UNISONO_CERTIFY(sampler_policy<ScatterSampler>);

UNISONO_NAMESPACE_END
