#pragma once

/// \file
/// Each rank makes updates of its own, and averages its parameters with those of few others.

#include "unisono/core/list.hpp"
#include "unisono/update/neighbours.hpp"

#include <bit>

UNISONO_NAMESPACE_BEGIN

/// With whom a rank averages.
enum class GossipGraph : std::uint8_t {
    ring,       ///< with both neighbours, each time: rank - 1, rank, rank + 1
    exponential ///< with one: in round r with the rank that is 2^(r mod ceil(log2 ranks)) before it; with 2^k ranks k rounds are a mean of all
};

/// Gossip: after every `steps` updates of its own a rank sends its parameters to the neighbours of that round, and takes the mean of its own
/// and of those that come, each with the same weight. All send as many as they receive, so that the mean over all ranks stays what it is, and
/// that moves as by updates with the mean gradient; ranks differ by what they have not told each other yet. Nobody waits but for its
/// neighbours: a slow rank, or link, holds up the others only as fast as the graph spreads it. All ranks make as many updates.
/// Where ranks meet (`synchronise()`, the end of `fit`, `evaluate`), parameters become the mean of all ranks.
/// Bytes of an update with `steps` 1: a model's sent by each rank, on the ring two. Memory: an image of the parameters, and one a neighbour.
/// Source: Lian et al. 2017 (D-PSGD), algorithm 1, with the average behind the step instead of beside it; the graph of Assran et al. 2019
/// (SGP), section 4, on which all weights stay 1, so that no push-sum is needed.
struct Gossip {
    GossipGraph graph = GossipGraph::exponential;
    std::uint64_t steps = 1;
    std::uint64_t warm_up = 0; ///< so many updates at the beginning are those of Synchronous

    static constexpr std::string_view name = "gossip";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    friend bool operator==(const Gossip&, const Gossip&) = default;

    void check() const {
        if (steps == 0) refuse_input({name, ".steps is 0; expected at least one update between two averages"});
    }
    template <class Training>
    detail::GossipRun<Training, Gossip> start(Training& training) const {
        return detail::GossipRun<Training, Gossip>(training, *this);
    }

    /// Whether a round follows so many updates since the ranks last met.
    [[nodiscard]] bool gossips_after(std::uint64_t own) const { return own % steps == 0; }
    /// The ranks from which `rank` gets parameters in a round (from 0); each sends to as many. In the order in which they are added.
    [[nodiscard]] detail::List<int> sources(int rank, int ranks, std::uint64_t round) const {
        return around(rank, ranks, round, -1);
    }
    /// The ranks that `rank` sends to: those of whom it is a source.
    [[nodiscard]] detail::List<int> targets(int rank, int ranks, std::uint64_t round) const {
        return around(rank, ranks, round, 1);
    }

private:
    [[nodiscard]] detail::List<int> around(int rank, int ranks, std::uint64_t round, int way) const {
        detail::List<int> all;
        if (ranks == 1) return all;
        const auto at = [&](int distance) { return (rank + way * distance + ranks) % ranks; };
        if (graph == GossipGraph::ring) {
            all.push_back(at(1));
            if (ranks > 2) all.push_back(at(-1));
        } else {
            const auto distances = static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(ranks - 1)));
            all.push_back(at(1 << static_cast<int>(round % distances)));
        }
        return all;
    }
};
static_assert(update_policy<Gossip>);

UNISONO_NAMESPACE_END
