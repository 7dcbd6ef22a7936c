#pragma once

/// \file
/// The run of Gossip: a rank averages its parameters with those of its neighbours.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/arithmetic/scale.hpp"
#include "unisono/collective/point_to_point.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/update/averaging.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// All messages go through a separate group, so that they cannot match a tag of the program.
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
UNISONO_NAMESPACE_END
