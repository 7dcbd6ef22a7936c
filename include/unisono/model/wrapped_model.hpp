#pragma once

/// \file
/// What a model made of another one passes on unchanged.

#include "unisono/model/model.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Refers to the model, which must live longer and is not moved.
template <class M>
    requires model<M> || unit_model<M>
class WrappedModel {
public:
    static constexpr GradientKind gradient_kind = gradient_kind_of<M>;

    explicit WrappedModel(M& model) : model_(&model) {}

    decltype(auto) parameter_names()
        requires requires(M& m) { m.parameter_names(); }
    {
        return model_->parameter_names();
    }
    decltype(auto) parameter_shapes()
        requires requires(M& m) { m.parameter_shapes(); }
    {
        return model_->parameter_shapes();
    }
    decltype(auto) buffer_names()
        requires requires(M& m) { m.buffer_names(); }
    {
        return model_->buffer_names();
    }
    decltype(auto) buffers()
        requires requires(M& m) { m.buffers(); }
    {
        return model_->buffers();
    }
    [[nodiscard]] M& wrapped() { return *model_; }

private:
    M* model_;
};

} // namespace detail
UNISONO_NAMESPACE_END
