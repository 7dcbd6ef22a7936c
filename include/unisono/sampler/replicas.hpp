#pragma once

/// \file
/// Policy: the number of logical replicas in a round, and the replicas that each rank hosts.
///
/// - `ReplicasOfRanks`: L = W x the sampler's replicas per rank. Each rank hosts that number of
///   replicas (one, except with InterleavedSampler).
/// - `Replicas{L}`: L is given and at least W; rank k of W hosts the replicas from floor(k L / W)
///   to floor((k + 1) L / W) - 1. W need not divide L.
///
/// Laws: the replicas of a rank are consecutive, and those of the next rank follow them. With
/// `Replicas`, the contents of an update depend on L and not on W.

#include "unisono/core/text.hpp"
#include "unisono/sampler/sampler.hpp"

UNISONO_NAMESPACE_BEGIN

/// The default: more ranks make a larger global batch.
struct ReplicasOfRanks {
    static constexpr std::string_view name = "as many as the ranks host";
    static constexpr Family family = Family::replicas;
    static constexpr bool logical = false; ///< L follows the number of ranks
    friend bool operator==(const ReplicasOfRanks&, const ReplicasOfRanks&) = default;

    /// Micro-batches per round on one rank, as an accumulation policy counts them.
    template <sampler_policy Sampler>
    [[nodiscard]] std::int64_t counted(const Sampler& sampler) const {
        return sampler.replicas_per_rank();
    }
    template <sampler_policy Sampler>
    [[nodiscard]] SamplerShape shape(const Sampler& sampler, std::int64_t data_size, std::int64_t batch_size,
                                     std::int64_t world, std::int64_t rank) const {
        return shape_of_rank(sampler, data_size, batch_size, world, rank);
    }
    /// The largest number of replicas that any rank hosts.
    template <sampler_policy Sampler>
    [[nodiscard]] std::int64_t most_hosted(const Sampler& sampler, std::int64_t) const {
        return sampler.replicas_per_rank();
    }
};

/// A global batch consists of the micro-batches of `count` replicas, whichever ranks host them.
/// Batches, random streams and weights are those of `count` ranks that host one replica each, so
/// the number of ranks may change. With an accumulation of s steps, an update takes s micro-batches
/// of each replica. Evaluation cuts the data in the same way.
///
/// With plain sums the results still differ by rounding, since the grouping of the addends depends
/// on the number of ranks. With `Reproducible` (trainer/reproducible.hpp) they are equal.
struct Replicas {
    std::int64_t count = 1;

    static constexpr std::string_view name = "logical replicas";
    static constexpr Family family = Family::replicas;
    static constexpr bool logical = true;
    friend bool operator==(const Replicas&, const Replicas&) = default;

    template <sampler_policy Sampler>
    [[nodiscard]] std::int64_t counted(const Sampler& sampler) const {
        if (const std::int64_t own = sampler.replicas_per_rank(); own != 1)
            refuse_input({"Replicas{.count = ", count, "} with a ", Sampler::name, " of ", own,
                          " replicas per rank; expected one of the two"});
        return 1;
    }
    /// \throws error bad_input: fewer replicas than ranks, or an invalid shape
    template <sampler_policy Sampler>
    [[nodiscard]] SamplerShape shape(const Sampler& sampler, std::int64_t data_size, std::int64_t batch_size,
                                     std::int64_t world, std::int64_t rank) const {
        static_cast<void>(counted(sampler));
        check(world);
        const std::int64_t first = first_of(rank, world);
        const SamplerShape shape{.data_size = data_size,
                                 .batch_size = batch_size,
                                 .replicas = count,
                                 .replica = first,
                                 .hosted = first_of(rank + 1, world) - first};
        check_shape(shape, Sampler::name);
        return shape;
    }
    template <sampler_policy Sampler>
    [[nodiscard]] std::int64_t most_hosted(const Sampler&, std::int64_t world) const {
        return count / world + (count % world != 0 ? 1 : 0);
    }

private:
    void check(std::int64_t world) const {
        if (count < world || count >= std::int64_t{1} << 31)
            refuse_input({"Replicas.count is ", count, "; expected ", world,
                          ", the number of ranks, to 2^31 - 1: a rank hosts at least one"});
    }
    /// Floor of rank * count / world; both are below 2^31.
    [[nodiscard]] std::int64_t first_of(std::int64_t rank, std::int64_t world) const { return rank * count / world; }
};

UNISONO_NAMESPACE_END
