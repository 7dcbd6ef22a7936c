#pragma once

/// \file
/// What updates have in common between which each rank goes its own way.
///
/// A rank makes updates of its own: with its own gradients, which it exchanges with nobody. Ranks come together in a *meeting*, after which
/// all hold the same parameters. All ranks make as many updates, unless the policy is `asynchronous`.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/update/update.hpp"

#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline void check_steps(std::string_view name, std::uint64_t steps) {
    if (steps == 0) refuse_input({name, ".steps is 0; expected at least one update between two meetings"});
}

/// No arrays.
struct NoState {
    [[nodiscard]] static constexpr std::size_t size() { return 0; }
    [[nodiscard]] static constexpr std::size_t bytes() { return 0; }
};

} // namespace detail

/// The base of runs in which ranks make updates of their own, behind `warm_up` that are those of Synchronous. It counts them, and has what
/// checkpoints ask for.
template <class Training>
class LocalRun : public UpdateRun<Training> {
public:
    explicit LocalRun(Training& training, std::uint64_t warm_up = 0)
        : UpdateRun<Training>(training), warm_up_(warm_up) {}

    [[nodiscard]] bool alone(std::uint64_t updates) const { return updates >= warm_up_; }

    /// Updates of this rank alone since the ranks last met. A checkpoint needs 0.
    [[nodiscard]] std::uint64_t own() const { return own_; }
    /// How often they met.
    [[nodiscard]] std::uint64_t met() const { return met_; }
    /// What the ranks have in common beside parameters, in arrays that are the same on all ranks (as OptimizerState).
    [[nodiscard]] static detail::NoState& state() {
        static detail::NoState none;
        return none;
    }
    /// The ranks have met so often, and hold the same parameters and `state()`, which the caller has written.
    void restore(std::uint64_t met) {
        own_ = 0;
        met_ = met;
    }

protected:
    std::uint64_t count_update() { return ++own_; }
    /// True if there is something to bring together: a rank has made an update since they last met.
    [[nodiscard]] bool begin_meeting() {
        const bool some = own_ != 0;
        own_ = 0;
        return some;
    }
    void count_meeting() { ++met_; }
    void set_met(std::uint64_t met) { met_ = met; }

private:
    std::uint64_t warm_up_;
    std::uint64_t own_ = 0;
    std::uint64_t met_ = 0;
};

UNISONO_NAMESPACE_END
