#pragma once

/// \file
/// Each rank makes updates of its own, and averages its parameters with those of a few other ranks.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/collective/point_to_point.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/update/averaging.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The run of Gossip. All messages go through a separate group, so that they cannot match a tag of
/// the program.
template <class Training, class Policy>
class GossipRun : public Averaging<Training, Policy> {
    using Base = Averaging<Training, Policy>;
    using typename Base::T;

public:
    /// Collective.
    GossipRun(Training& training, const Policy& policy)
        : Base(training, policy), lane_(training.world().split(0, training.world().rank())) {
        lane_.context().trainer = training.world().context().trainer; // only this trainer uses it
    }

    [[nodiscard]] bool after(Verdict) {
        const std::uint64_t own = this->count_update();
        if (this->policy().gossips_after(own)) average(own / this->policy().steps - 1);
        return false;
    }
    [[nodiscard]] std::size_t bytes() const {
        return Base::bytes() + (own_.size() + come_.size() * this->flat().count()) * sizeof(T);
    }

private:
    /// Replaces the model's parameters by the mean of its own and those of the round's sources. All
    /// ranks call this. All receives are posted before any rank waits, so no order of ranks can
    /// block another.
    void average(std::uint64_t round) {
        const std::size_t count = this->flat().count();
        const auto sources = this->policy().sources(lane_.rank(), lane_.size(), round);
        const auto targets = this->policy().targets(lane_.rank(), lane_.size(), round);
        if (sources.empty()) return;
        if (own_.empty()) own_ = lane_.template allocate<T>(count);
        while (come_.size() < sources.size()) come_.push_back(lane_.template allocate<T>(count));
        operations_.clear();
        for (std::size_t i = 0; i < sources.size(); ++i)
            operations_.push_back(start_receive(lane_, std::span<T>(come_[i].data(), count), sources[i], tag));
        this->all(
            [&](const auto& one) { std::copy(one.parameters, one.parameters + one.count, own_.data() + one.flat); });
        for (const int target : targets)
            operations_.push_back(start_send(lane_, std::span<const T>(own_.data(), count), target, tag));
        for (Operation& operation : operations_) operation.wait(lane_.timeout());
        this->all([&](const auto& one) {
            const std::span<T> sum(one.parameters, one.count);
            for (std::size_t i = 0; i < sources.size(); ++i)
                accumulate(sum, std::span<const T>(come_[i].data() + one.flat, one.count));
            divide(sum, static_cast<int>(sources.size()) + 1);
        });
    }

    static constexpr int tag = 0;

    typename Training::World lane_;
    Memory<T> own_;               ///< the memory that is sent: the model may change before it was read
    std::vector<Memory<T>> come_; ///< the memory of each source's parameters
    std::vector<Operation> operations_;
};

} // namespace detail

/// The graph of neighbours with which a rank averages.
enum class GossipGraph : std::uint8_t {
    ring, ///< in each round with both neighbours: rank - 1 and rank + 1
    /// In round r with one rank, which is 2^(r mod ceil(log2 ranks)) before this one; with 2^k
    /// ranks, k rounds give the mean of all.
    exponential
};

/// Gossip: after every `steps` updates of its own, a rank sends its parameters to the neighbours of
/// that round, and takes the mean of its own parameters and those that it receives, with equal
/// weights. Each rank sends as many messages as it receives, so averaging does not change the mean
/// over all ranks, and that mean moves as in updates with the mean gradient. A rank waits only for
/// its neighbours: the delay of a slow rank or link spreads along the graph, one round at a time.
/// All ranks make the same number of updates. At a synchronisation (`synchronise()`, the end of
/// `fit`, `evaluate`), the parameters become the mean over all ranks.
///
/// Bytes per update with `steps` 1: each rank sends one model, on the ring two models. Memory: a
/// copy of the parameters, and one per neighbour.
/// Source: Lian et al. 2017 (D-PSGD), algorithm 1, with the average after the step instead of in
/// parallel; the graph of Assran et al. 2019 (SGP), section 4, on which all weights stay 1, so that
/// no push-sum is needed.
struct Gossip {
    GossipGraph graph = GossipGraph::exponential;
    std::uint64_t steps = 1;
    std::uint64_t warm_up = 0; ///< this many updates at the beginning are synchronous

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

    /// True if a round follows after `own` updates since the last synchronisation.
    [[nodiscard]] bool gossips_after(std::uint64_t own) const { return own % steps == 0; }
    /// The ranks from which `rank` receives parameters in a round (from 0), in the order of their
    /// addition. Each rank has as many targets as sources.
    [[nodiscard]] detail::List<int> sources(int rank, int ranks, std::uint64_t round) const {
        return around(rank, ranks, round, -1);
    }
    /// The ranks to which `rank` sends in a round: those for which it is a source.
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
UNISONO_CERTIFY(update_policy<Gossip>);

UNISONO_NAMESPACE_END
