#pragma once

/// \file
/// The built-in samplers, all by a `SampleStream` (stream.hpp).

#include "unisono/core/text.hpp"
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

/// DistributedSampler's order for L = W x `replicas`. Each rank hosts `replicas` of them: rank r
/// hosts those from r x replicas on. Each replica's list is cut into micro-batches as on a rank of
/// its own, and an update takes one micro-batch of each replica. So W x n ranks with
/// DistributedSampler{} and W ranks with InterleavedSampler{.replicas = n} put the same
/// micro-batches into each update, for any data size and batch size. Plain accumulation does not:
/// it puts n consecutive micro-batches of one list into an update. With an accumulation of s steps,
/// s must be a multiple of `replicas`.
struct InterleavedSampler {
    std::int64_t replicas = 1; ///< number of replicas that each rank hosts
    bool shuffle = true;
    std::uint64_t seed = 0;
    bool drop_last = false;

    static constexpr std::string_view name = "InterleavedSampler";
    static constexpr Family family = Family::sampler;
    static constexpr bool fixes_hosting = true; ///< a rank always hosts `replicas` replicas
    friend bool operator==(const InterleavedSampler&, const InterleavedSampler&) = default;

    [[nodiscard]] std::int64_t replicas_per_rank() const {
        if (replicas < 1) refuse_input({"InterleavedSampler: replicas is ", replicas, ", expected 1 or more"});
        return replicas;
    }

    /// The shape has the number of hosted replicas; `shape_of_rank` takes it from `replicas`.
    /// \throws error bad_input: an invalid shape or position
    [[nodiscard]] SampleStream stream(const SamplerShape& shape, Epoch epoch, std::int64_t consumed = 0) const {
        if (shape.hosted != replicas_per_rank())
            refuse_input({"InterleavedSampler: the shape has hosted = ", shape.hosted, ", expected replicas, which is ",
                          replicas});
        check_shape(shape, name);
        return DistributedSampler{.shuffle = shuffle, .seed = seed, .drop_last = drop_last}.stream(shape, epoch,
                                                                                                   consumed);
    }
};

UNISONO_CERTIFY(sampler_policy<InterleavedSampler>);

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
