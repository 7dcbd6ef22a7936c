#pragma once

/// \file
/// One rank hosts n replicas: the training of W x n ranks under DistributedSampler, on W ranks.

#include "unisono/core/text.hpp"
#include "unisono/sampler/distributed.hpp"

UNISONO_NAMESPACE_BEGIN

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

UNISONO_NAMESPACE_END
