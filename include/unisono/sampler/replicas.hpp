#pragma once

/// \file
/// Policy: how many logical replicas make a round, and which of them each rank hosts.
///
/// | policy            | L                                     | rank k of W hosts                                        |
/// |-------------------|---------------------------------------|----------------------------------------------------------|
/// | `ReplicasOfRanks` | W x what the sampler says of a rank   | as many as the sampler says (one, but for InterleavedSampler) |
/// | `Replicas{L}`     | given, W at most                      | those from k L / W to (k + 1) L / W: W need not divide L   |
///
/// Laws: the replicas of a rank follow one another, and those of the next rank follow them; with `Replicas`, what an update
/// consists of depends on L and not on W.

#include "unisono/core/text.hpp"
#include "unisono/sampler/sampler.hpp"

UNISONO_NAMESPACE_BEGIN

/// The default: more ranks make a larger global batch.
struct ReplicasOfRanks {
    static constexpr std::string_view name = "as many as the ranks host";
    static constexpr Family family = Family::replicas;
    static constexpr bool logical = false; ///< L follows the number of ranks
    friend bool operator==(const ReplicasOfRanks&, const ReplicasOfRanks&) = default;

    /// Micro-batches of a round, as an accumulation policy counts them: those of one rank.
    template <sampler_policy Sampler>
    [[nodiscard]] std::int64_t counted(const Sampler& sampler) const {
        return sampler.replicas_per_rank();
    }
    template <sampler_policy Sampler>
    [[nodiscard]] SamplerShape shape(const Sampler& sampler, std::int64_t data_size, std::int64_t batch_size,
                                     std::int64_t world, std::int64_t rank) const {
        return shape_of_rank(sampler, data_size, batch_size, world, rank);
    }
    /// The most that any rank hosts.
    template <sampler_policy Sampler>
    [[nodiscard]] std::int64_t most_hosted(const Sampler& sampler, std::int64_t) const {
        return sampler.replicas_per_rank();
    }
};

/// A global batch is `count` replicas' micro-batches, on whichever ranks they are hosted: accumulation is hosting more than one. Batches,
/// random streams and weights are those of `count` ranks that host one each, so that the number of ranks is free to change.
/// An accumulation of s steps takes s micro-batches of each replica. Evaluation cuts the data in the same way.
///
/// With plain sums the results then still differ by rounding, since ranks group the addends differently; with `Reproducible`
/// (trainer/reproducible.hpp) they do not.
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
                          " replicas a rank; expected one of the two"});
        return 1;
    }
    /// \throws error bad_input: fewer replicas than ranks, or a shape that makes no sense
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
