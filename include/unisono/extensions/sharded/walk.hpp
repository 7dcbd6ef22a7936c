#pragma once

/// \file
/// The order in which a pass goes through the units of a model: the same on all ranks, even if a
/// model leaves out units.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"

#include <cstddef>
#include <limits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Steps 0 to n - 1 are the units in order, forward; steps n to 2n - 1 are the units in reverse
/// order, backward. Each step gathers its unit, except step n, whose unit is there already. The
/// turn is the number of the gathering. Turns alternate between two buffers. So the last turn of a
/// training pass (unit 0) is in the buffer of the next pass's first turn, and is used again within
/// an update.
class UnitWalk {
public:
    explicit UnitWalk(std::size_t units) : units_(units) {}

    void begin(bool trains) {
        steps_ = trains ? 2 * units_ : units_;
        at_ = none;
        held_ = 0;
        complete_ = true;
    }
    void end() { has_first_ = steps_ == 2 * units_ || units_ == 1; }
    /// Marks gathered units as out of date, since parameters change.
    void forget() {
        has_first_ = false;
        held_ = 0;
        complete_ = true;
        at_ = none;
    }

    /// \throws error bad_input: the pass has gone beyond this unit
    [[nodiscard]] std::size_t step_of_parameters(std::size_t unit) const {
        check(unit, "parameters");
        if (at_ == none || unit >= at_) return unit; // forward pass
        const std::size_t step = 2 * units_ - 1 - unit;
        if (step >= steps_ || step < at_) refuse(unit, "parameters");
        return step;
    }
    [[nodiscard]] std::size_t step_of_gradient(std::size_t unit) const {
        check(unit, "gradient");
        const std::size_t step = 2 * units_ - 1 - unit;
        if (step >= steps_ || (at_ != none && (step < at_ || (step == at_ && complete_)))) refuse(unit, "gradient");
        return step;
    }
    [[nodiscard]] std::size_t last_step() const { return steps_ - 1; }

    /// \throws error bad_input: the model still holds a unit's parameters
    [[nodiscard]] bool before(std::size_t step) const {
        const bool goes_on = at_ == none || at_ < step;
        const bool turns = step == units_ && at_ + 1 == units_; // the last unit, first forward and then backward
        if (goes_on && held_ != 0 && !turns)
            refuse_input({"unit ", unit_of(step), " was asked for while the model still holds the parameters of unit ",
                          unit(), "; expected that the object that pass.parameters returned has been destroyed"});
        return goes_on;
    }
    void advance() {
        at_ = at_ == none ? 0 : at_ + 1;
        complete_ = at_ < units_;
    }
    void hold() { ++held_; }
    void release() noexcept { --held_; }

    [[nodiscard]] std::size_t unit() const { return unit_of(at_); }
    [[nodiscard]] std::size_t turn() const { return turn_of(at_); }
    [[nodiscard]] bool gathers() const { return at_ != units_; }
    [[nodiscard]] bool at_first() const { return at_ == 0; }
    [[nodiscard]] bool has_first() const { return has_first_; }
    /// True if this pass will gather another unit.
    [[nodiscard]] bool gathers_again() const { return turn() < turn_of(steps_ - 1); }
    [[nodiscard]] std::size_t next_unit() const { return unit_of(at_ + (at_ + 1 == units_ ? 2 : 1)); }

    /// Marks this step's gradient as complete. Returns true if it was not complete before.
    bool complete_gradient() { return at_ != none && !std::exchange(complete_, true); }

private:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
    [[nodiscard]] std::size_t unit_of(std::size_t step) const { return step < units_ ? step : 2 * units_ - 1 - step; }
    [[nodiscard]] std::size_t turn_of(std::size_t step) const { return step < units_ ? step : step - 1; }

    void check(std::size_t unit, const char* what) const {
        if (unit < units_) return;
        refuse_input({"pass.", what, "(", unit, "): the model has ", units_, " units"});
    }
    [[noreturn]] void refuse(std::size_t unit, const char* what) const {
        refuse_input({"pass.", what, "(", unit, ") was asked for after unit ", at_ == none ? 0 : this->unit(),
                      at_ != none && at_ >= units_ ? " of the backward pass" : " of the forward pass",
                      steps_ == units_ ? "; expected units in order, and nothing but a forward pass"
                                       : "; expected units 0 to n - 1 and then n - 1 to 0, each gradient once"});
    }

    std::size_t units_;
    std::size_t steps_ = 0;
    std::size_t at_ = none;  ///< the current step
    int held_ = 0;           ///< number of holders of this step's parameters in the model
    bool complete_ = true;   ///< this step's gradient is complete, if it has one
    bool has_first_ = false; ///< unit 0 is in the buffer where the first turn looks for it
};

} // namespace detail
UNISONO_NAMESPACE_END
