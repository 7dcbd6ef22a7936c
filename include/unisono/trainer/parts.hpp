#pragma once

/// \file
/// If a rank trains one stage of a model (extensions/parallel/pipeline_model.hpp), the ranks with
/// the other stages are in other groups. An update still happens on all stages or on none.

#include "unisono/collective/of_core.hpp"
#include "unisono/core/config.hpp"

#include <cstddef>
#include <span>

UNISONO_NAMESPACE_BEGIN

/// A model of which this rank has one stage. `sum_over_parts` adds numbers over all ranks that have
/// stages of the same replica.
template <class M>
concept model_part = requires(M& model, std::span<double> values) { model.sum_over_parts(values); };

namespace detail {

class Parts {
public:
    template <class Model>
    explicit Parts([[maybe_unused]] Model& model) {
        if constexpr (model_part<Model>) {
            model_ = &model;
            sum_ = [](void* of, std::span<double> values) { static_cast<Model*>(of)->sum_over_parts(values); };
            order_ = &halving_doubling_sum<double>;
        }
    }
    /// The call by which groups that add the same losses of the same replicas get the same bits,
    /// whichever of their ranks share a host; null if there is one group.
    [[nodiscard]] auto order() const { return order_; }
    /// Replaces the numbers by their sums over the stages. Does nothing if a rank has the whole
    /// model. Collective over the stages.
    void sum(std::span<double> values) const {
        if (sum_ != nullptr) sum_(model_, values);
    }

private:
    void* model_ = nullptr;
    void (*sum_)(void*, std::span<double>) = nullptr;
    Call (*order_)() = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
