#pragma once

/// \file
/// If a rank trains a part of a model (parallel/pipeline_model.hpp), the ranks with the other parts
/// are in other groups; but an update happens on all parts or on none.

#include "unisono/core/config.hpp"

#include <array>
#include <cstddef>
#include <span>

UNISONO_NAMESPACE_BEGIN

/// A model of which this rank has a part: `sum_over_parts` adds numbers of all ranks that have
/// parts of the same replica.
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
        }
    }
    [[nodiscard]] bool any() const { return sum_ != nullptr; } ///< this rank has a part of a model
    /// Does nothing if a rank has the whole model. Collective over the parts.
    template <std::size_t N>
    std::array<double, N> sum(std::array<double, N> values) const {
        if (sum_ != nullptr) sum_(model_, values);
        return values;
    }

private:
    void* model_ = nullptr;
    void (*sum_)(void*, std::span<double>) = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
