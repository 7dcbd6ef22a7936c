#pragma once

/// \file
/// Policy: the number of micro-batches in one update.
///
/// A policy makes a *window* for a run. After each round of the sampler (one micro-batch of every
/// replica) the trainer adds the round's counts to the window, and the window says whether the
/// update is due. The counts are the same on all ranks (micro-batches of one rank, samples and
/// tokens of all ranks together), so all ranks close their windows after the same round without
/// communication. An update divides by the accumulated weights, so a short window at an epoch's end
/// is treated correctly as well.
///
/// Laws (tests/base/accumulation): a window closes at the first round that reaches its target and
/// not before; `would_close(next)` predicts `closed()` after `next` is added (the trainer may start
/// to communicate during that round's backward pass); `reset()` restores a new window; equal rounds
/// give equal answers on all ranks; nothing allocates.
///
/// Menu:
/// - `NoAccumulation` closes after each round.
/// - `Accumulate` closes after `steps` micro-batches on each rank.
/// - `AccumulateSamples` closes at `samples` samples or more over all ranks, as the sampler counts.
/// - `AccumulateTokens` closes at `tokens` tokens or more over all ranks. The trainer sums each
///   round's tokens over the ranks.
///
/// Absent: a target that grows during training (start another `fit` with another value).

#include "unisono/core/error.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <cstdint>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The contents of a round, or of a window of rounds.
struct Totals {
    std::int64_t micro_batches = 0; ///< micro-batches of one rank, including empty ones
    std::int64_t samples = 0;       ///< samples of all ranks together
    std::int64_t tokens = 0;        ///< tokens of all ranks together; 0 if they are not counted
    friend bool operator==(const Totals&, const Totals&) = default;
    friend constexpr Totals operator+(Totals a, const Totals& b) {
        return {a.micro_batches + b.micro_batches, a.samples + b.samples, a.tokens + b.tokens};
    }
};

/// The treatment of a window that an epoch's end leaves unfinished.
enum class ShortWindow : std::uint8_t {
    keep, ///< an update with the accumulated micro-batches, divided by their weights
    drop, ///< its gradients are discarded, as in a PyTorch loop that steps after every n micro-batches
};

/// The micro-batches of one update, as an accumulation counts them.
template <class W>
concept accumulation_window = detail::copyable_value<W> && requires(W& window, const W& view, const Totals& next) {
    window.add(next);
    window.reset();
    { view.would_close(next) } -> std::same_as<bool>;
    { view.closed() } -> std::same_as<bool>;
    { view.due_at_end() } -> std::same_as<bool>; // the epoch ends here: is an update due?
    { view.totals() } -> detail::converts_to<Totals>;
};

/// Property `counts_tokens`: the trainer must sum the tokens of each round over all ranks.
template <class A>
concept accumulation_policy = policy_of<A, Family::accumulation> && requires(const A& policy, std::int64_t hosted) {
    { A::counts_tokens } -> detail::converts_to<bool>;
    { policy.window(hosted) } -> accumulation_window; // hosted: replicas per rank, which is micro-batches per round
};

/// The window of all built-in policies: it closes when every target that is set has been reached.
class AccumulationWindow {
public:
    constexpr AccumulationWindow(const Totals& target, ShortWindow at_end) : target_(target), at_end_(at_end) {}

    constexpr void add(const Totals& round) { sum_ = sum_ + round; }
    constexpr void reset() { sum_ = {}; }
    [[nodiscard]] constexpr bool would_close(const Totals& next) const { return reached(sum_ + next); }
    [[nodiscard]] constexpr bool closed() const { return reached(sum_); }
    [[nodiscard]] constexpr bool due_at_end() const {
        return closed() || (at_end_ == ShortWindow::keep && sum_.samples > 0);
    }
    [[nodiscard]] constexpr const Totals& totals() const { return sum_; }

private:
    [[nodiscard]] constexpr bool reached(const Totals& sum) const {
        return sum.micro_batches >= target_.micro_batches && sum.samples >= target_.samples &&
               sum.tokens >= target_.tokens;
    }

    Totals target_;
    Totals sum_ = {};
    ShortWindow at_end_;
};

UNISONO_CERTIFY(accumulation_window<AccumulationWindow>);

namespace accumulation {

/// Refuses a target below 1, naming policy and parameter.
inline void check_target(std::string_view who, std::string_view parameter, std::int64_t found) {
    if (found < 1) refuse_input({who, ": ", parameter, " is ", found, ", expected 1 or more"});
}

} // namespace accumulation

/// One round, one update. A rank that hosts several replicas (InterleavedSampler) takes one
/// micro-batch of each.
struct NoAccumulation {
    static constexpr std::string_view name = "NoAccumulation";
    static constexpr Family family = Family::accumulation;
    static constexpr bool counts_tokens = false;
    friend bool operator==(const NoAccumulation&, const NoAccumulation&) = default;

    /// \throws error bad_input: hosted below 1
    [[nodiscard]] AccumulationWindow window(std::int64_t hosted = 1) const;
};

UNISONO_CERTIFY(accumulation_policy<NoAccumulation>);

/// `steps` micro-batches of each rank make one update: a global batch of batch_size x steps x
/// ranks.
struct Accumulate {
    std::int64_t steps = 1;
    ShortWindow short_window = ShortWindow::keep;

    static constexpr std::string_view name = "Accumulate";
    static constexpr Family family = Family::accumulation;
    static constexpr bool counts_tokens = false;
    friend bool operator==(const Accumulate&, const Accumulate&) = default;

    /// \throws error bad_input: steps below 1, or not a multiple of the replicas that a rank hosts
    /// (an update would take more micro-batches of one replica than of another)
    [[nodiscard]] AccumulationWindow window(std::int64_t hosted = 1) const;
};

UNISONO_CERTIFY(accumulation_policy<Accumulate>);

/// Makes an update after the first round with which all ranks together have at least `samples`
/// samples. Rounds are never split, so an update may exceed the target by up to one round less one
/// sample. The global batch stays about the same for any number of ranks.
struct AccumulateSamples {
    std::int64_t samples = 1;
    ShortWindow short_window = ShortWindow::keep;

    static constexpr std::string_view name = "AccumulateSamples";
    static constexpr Family family = Family::accumulation;
    static constexpr bool counts_tokens = false;
    friend bool operator==(const AccumulateSamples&, const AccumulateSamples&) = default;

    /// \throws error bad_input: samples below 1
    [[nodiscard]] AccumulationWindow window(std::int64_t hosted = 1) const;
};

UNISONO_CERTIFY(accumulation_policy<AccumulateSamples>);

/// Makes an update after the first round with which all ranks together have at least `tokens`
/// tokens (words, pixels, or any other unit over which the model's loss is a mean). The trainer
/// sums each round's tokens over the ranks, by one small all-reduce per round. Rounds are never
/// split, so an update may exceed the target by up to one round.
struct AccumulateTokens {
    std::int64_t tokens = 1;
    ShortWindow short_window = ShortWindow::keep;

    static constexpr std::string_view name = "AccumulateTokens";
    static constexpr Family family = Family::accumulation;
    static constexpr bool counts_tokens = true;
    friend bool operator==(const AccumulateTokens&, const AccumulateTokens&) = default;

    /// \throws error bad_input: tokens below 1
    [[nodiscard]] AccumulationWindow window(std::int64_t hosted = 1) const;
};

UNISONO_CERTIFY(accumulation_policy<AccumulateTokens>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

[[gnu::cold]] UNISONO_DEFINITION AccumulationWindow NoAccumulation::window(std::int64_t hosted) const {
    accumulation::check_target(name, "hosted", hosted);
    return {{.micro_batches = hosted}, ShortWindow::keep};
}

[[gnu::cold]] UNISONO_DEFINITION AccumulationWindow Accumulate::window(std::int64_t hosted) const {
    accumulation::check_target(name, "steps", steps);
    accumulation::check_target(name, "hosted", hosted);
    if (steps % hosted != 0)
        refuse_input({"Accumulate: steps is ", steps, ", expected a multiple of the ", hosted,
                      " replicas that each rank hosts (InterleavedSampler)"});
    return {{.micro_batches = steps}, short_window};
}

[[gnu::cold]] UNISONO_DEFINITION AccumulationWindow AccumulateSamples::window(std::int64_t hosted) const {
    accumulation::check_target(name, "samples", samples);
    accumulation::check_target(name, "hosted", hosted);
    return {{.samples = samples}, short_window};
}

[[gnu::cold]] UNISONO_DEFINITION AccumulationWindow AccumulateTokens::window(std::int64_t hosted) const {
    accumulation::check_target(name, "tokens", tokens);
    accumulation::check_target(name, "hosted", hosted);
    return {{.tokens = tokens}, short_window};
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
