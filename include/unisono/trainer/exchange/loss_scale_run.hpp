#pragma once

/// \file
/// The loss scale during a training.

#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/loss_scaling.hpp"
#include "unisono/model/pass.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class Policy>
class LossScaleRun {
public:
    explicit LossScaleRun(const Policy& policy) : policy_(policy), state_(policy.start()) {}

    /// Starts an update.
    void begin() { backed_off_ = false; }
    void grow() { policy_.grow(state_); }
    void back_off() { backed_off_ = policy_.back_off(state_); }

    [[nodiscard]] double scale() const { return state_.scale; }
    [[nodiscard]] const LossScale& state() const { return state_; }
    /// True if this update was left out and the scale lowered.
    [[nodiscard]] bool backed_off() const { return backed_off_; }

    /// Refuses a model that does not ask for the loss scale: its gradients would be divided by a
    /// scale that the model did not apply.
    void check(const Pass& pass) const {
        if (!Policy::scales || pass.asked_for_scale()) return;
        refuse_input({Policy::name,
                      ": the model did not ask for pass.loss_scale(); expected a model that multiplies its "
                      "loss by it before its backward pass"});
    }
    void restore(const LossScale& saved) {
        if (!(saved.scale > 0) || !detail::is_finite(saved.scale) || saved.good_updates < 0)
            refuse_input({"restore_loss_scale: found the scale ", saved.scale, " after ", saved.good_updates,
                          " good updates; expected a finite scale above 0, and at least 0 good updates"});
        state_ = saved;
    }

private:
    Policy policy_;
    LossScale state_;
    bool backed_off_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
