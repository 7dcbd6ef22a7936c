#pragma once

/// \file
/// The laws of guard/loss_scaling.hpp for any loss scaling, and a minimal loss scaling.

#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/loss_scaling.hpp"
#include "unisono/testing/testing.hpp"

#include <cstdint>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal loss scaling: a constant, and half of it after the first gradient that is not
/// finite.
struct ArchetypeLossScaling {
    static constexpr std::string_view name = "archetype loss scaling";
    static constexpr Family family = Family::loss_scaling;
    static constexpr bool scales = true;
    friend bool operator==(const ArchetypeLossScaling&, const ArchetypeLossScaling&) = default;

    void check() const {}
    [[nodiscard]] LossScale start() const { return {1024, 0}; }
    void grow(LossScale&) const {}
    bool back_off(LossScale& state) const {
        if (state.scale < 1024) return false;
        state.scale = 512;
        return true;
    }
};
static_assert(loss_scaling_policy<ArchetypeLossScaling>);

/// The scale is always a finite number above 0. Later scales depend on the state alone, so ranks
/// that had the same updates have the same scale. `grow` does not lower it. `back_off` lowers it
/// and returns true, or leaves it and returns false; after some thousand calls it can lower it no
/// more. If `scales` is false, the scale is always 1.
template <loss_scaling_policy Scaling>
Violations loss_scaling_laws(const Scaling& policy) {
    Violations found{std::string(Scaling::name)};
    policy.check();
    const Scaling copy = policy;
    LossScale state = policy.start(), other = copy.start();
    const auto expect_sound = [&](const char* after) {
        const std::string what = concat({"the scale after ", after, " is ", number_text(state.scale)});
        if (!(state.scale > 0) || !unisono::detail::is_finite(state.scale)) found.add(what);
        if (!Scaling::scales && state.scale != 1) found.add(what + ", although `scales` is false");
        if (!(state == other)) found.add(concat({"a copy has another scale after ", after}));
    };
    expect_sound("the start");
    const auto grow = [&] {
        const double before = state.scale;
        policy.grow(state);
        copy.grow(other);
        if (state.scale < before) found.add(concat({"`grow` lowered ", number_text(before)}));
        expect_sound("an update that happened");
    };
    const auto back_off = [&] {
        const double before = state.scale;
        const bool lowered = policy.back_off(state);
        static_cast<void>(copy.back_off(other));
        if (lowered != (state.scale < before))
            found.add(concat({"`back_off` returned ", lowered ? "true" : "false", ", and changed the scale from ",
                              number_text(before), " to ", number_text(state.scale)}));
        expect_sound("a gradient that was not finite");
        return lowered;
    };
    std::uint64_t events = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < 20'000 && found.lawful(); ++i) {
        events = events * 6364136223846793005u + 1442695040888963407u;
        if (events >> 56 == 0) static_cast<void>(back_off());
        else grow();
    }
    int times = 0;
    while (found.lawful() && back_off())
        if (++times == 10'000) found.add("`back_off` lowers the scale for ever, so that a NaN is never reported");
    for (int i = 0; i < 10'000 && found.lawful(); ++i) grow();
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
