#pragma once

/// \file
/// Distributes the logical replicas of a training over the ranks that host them. Checks or derives
/// global batch = micro-batch x accumulation x world.

#include "unisono/accumulation/accumulation.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/sampler/replicas.hpp"
#include "unisono/sampler/sampler.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

class StopOnSignal;

/// Options of `fit`. Equal on all ranks.
struct FitOptions {
    std::int64_t epochs = 1;            ///< epochs of this call; the rest of a resumed epoch counts as one
    std::int64_t batch_size = 0;        ///< samples of a replica's micro-batch; 0: derived from global_batch_size
    std::int64_t global_batch_size = 0; ///< samples of a full update over all ranks; 0: follows from the other sizes
    std::optional<Position> start = {}; ///< default: where the last `fit` of this trainer ended
    std::uint64_t seed = 0;             ///< seed of the random numbers that a pass offers to the model
    int read_ahead = 0;                 ///< batches that a thread of each rank reads ahead; 0: no thread
    bool progress = true;               ///< rank 0 shows progress, if the trainer has an observer that shows it
    /// A signal ends the call on all ranks after the same update (stop_on_signal.hpp); null: no
    /// signal.
    const StopOnSignal* stop_on = nullptr;
};

/// The distribution of the micro-batches of an update.
struct TrainingPlan {
    SamplerShape shape = {};
    std::int64_t world = 1;
    std::int64_t counted = 1;            ///< micro-batches per round, as the accumulation counts them
    std::int64_t most_hosted = 1;        ///< number of replicas on the rank that hosts the most
    std::int64_t rounds_per_update = 1;  ///< 0: depends on the data (a target of tokens)
    std::int64_t samples_per_update = 0; ///< samples of a full update over all ranks; 0: depends on the data
    std::int64_t rounds_per_epoch = 0;
    std::int64_t updates_per_epoch = 0; ///< updates of a full epoch; 0: depends on the data

    /// Micro-batches of this rank in a full update.
    [[nodiscard]] std::int64_t hosted() const { return shape.hosted * rounds_per_update; }
    /// Micro-batches of all ranks.
    [[nodiscard]] std::int64_t micro_batches() const { return shape.replicas * rounds_per_update; }
};

namespace detail {

/// The rounds from a stream's position to the end of its epoch.
struct EpochRounds {
    std::int64_t rounds = 0;
    std::int64_t samples_of_one = 0; ///< samples of a full round of all replicas
    std::int64_t samples = 0;
};
template <sample_stream Stream>
EpochRounds rounds_of(const Stream& stream) {
    EpochRounds all{stream.rounds(), stream.global_batch(), stream.rounds() * stream.global_batch()};
    if constexpr (requires { stream.samples(); }) all.samples = stream.samples();
    return all;
}

/// The properties of an accumulation and of a policy of replicas, without their types.
struct UpdateTerms {
    std::string_view accumulation;
    bool counts_tokens = false;
    bool logical = false;
};
template <class Policies>
inline constexpr UpdateTerms update_terms{Policies::Accumulation::name, Policies::Accumulation::counts_tokens,
                                          Policies::Hosting::logical};

/// Refuses invalid options by name, before any communication.
[[gnu::cold]] inline void check_fit(const FitOptions& options, std::size_t data_size) {
    if (data_size == 0) refuse_input("fit: the data set is empty (size() is 0)");
    if (options.epochs < 1) refuse_input({"FitOptions.epochs is ", options.epochs, "; expected at least 1"});
    if (options.batch_size < 0)
        refuse_input({"FitOptions.batch_size is ", options.batch_size, "; expected at least 1"});
    if (options.global_batch_size < 0)
        refuse_input({"FitOptions.global_batch_size is ", options.global_batch_size,
                      "; expected at least 1, or 0 to leave it open"});
    if (options.batch_size == 0 && options.global_batch_size == 0)
        refuse_input("FitOptions.batch_size is 0; expected at least 1, or a global_batch_size to derive it from");
}

/// The number of equal rounds that close a window; 0 if tokens decide.
template <class Window>
[[gnu::cold]] std::int64_t rounds_to_close(Window window, const UpdateTerms& terms, std::int64_t hosted,
                                           std::int64_t round_samples) {
    if (terms.counts_tokens) return 0;
    constexpr std::int64_t most = std::int64_t{1} << 24;
    const Totals round{hosted, round_samples, 0};
    for (std::int64_t rounds = 1; rounds <= most; ++rounds) {
        if (window.would_close(round)) return rounds;
        window.add(round);
    }
    refuse_input({terms.accumulation, ": an update would take more than ", most, " micro-batches of each replica (",
                  round_samples, " samples per round); expected fewer"});
}

/// Derives the size of a micro-batch from `global_batch_size`. `epoch` and `shape` describe
/// micro-batches of one sample.
template <class Window>
[[gnu::cold]] std::int64_t derive_batch_size(const Window& window, const UpdateTerms& terms, std::int64_t counted,
                                             const EpochRounds& epoch, const SamplerShape& shape,
                                             std::int64_t global_batch, std::int64_t world) {
    const std::int64_t rounds = rounds_to_close(window, terms, counted, epoch.samples_of_one);
    const std::int64_t unit = epoch.samples_of_one * rounds;
    if (rounds == 0 || global_batch % unit != 0)
        refuse_input({"FitOptions.global_batch_size is ", global_batch, "; expected a multiple of ", unit,
                      (unit > 0 ? concat({", such as ", (global_batch / unit + 1) * unit}) : std::string()), " (",
                      (terms.logical ? shape.replicas : world), (terms.logical ? " replicas x " : " ranks x "),
                      (terms.logical ? rounds : shape.hosted * rounds),
                      " micro-batches each), so that batch_size can be derived"});
    return global_batch / unit;
}

/// The shape of rank `rank` of `world` ranks that compute gradients. `Policies`: a trainer's.
template <class Policies>
SamplerShape shape_of_fit(const Policies& policies, const FitOptions& options, std::size_t data_size, int world,
                          int rank) {
    const auto& hosting = policies.hosting;
    const auto& sampler = policies.sampler;
    check_fit(options, data_size);
    const auto size = static_cast<std::int64_t>(data_size);
    std::int64_t batch_size = options.batch_size;
    if (batch_size == 0) {
        const SamplerShape shape = hosting.shape(sampler, size, 1, world, 0);
        const std::int64_t counted = hosting.counted(sampler);
        batch_size =
            derive_batch_size(policies.accumulation.window(counted), update_terms<Policies>, counted,
                              rounds_of(sampler.stream(shape, Epoch{0})), shape, options.global_batch_size, world);
    }
    return hosting.shape(sampler, size, batch_size, world, rank);
}

/// The number of updates until the epoch's end. The last window may be short; it is kept or
/// dropped.
template <class Window>
[[gnu::cold]] std::int64_t updates_of(Window window, const TrainingPlan& plan, const EpochRounds& epoch) {
    if (epoch.rounds == 0) return 0;
    const std::int64_t windows = (epoch.rounds - 1) / plan.rounds_per_update; // before the last window
    const std::int64_t full = epoch.rounds - windows * plan.rounds_per_update - 1;
    window.add({plan.counted * full, epoch.samples_of_one * full, 0});
    window.add({plan.counted, epoch.samples - (epoch.rounds - 1) * epoch.samples_of_one, 0});
    return windows + (window.due_at_end() ? 1 : 0);
}

template <class Window>
[[gnu::cold]] void plan_updates(TrainingPlan& plan, const Window& window, const UpdateTerms& terms,
                                const EpochRounds& epoch, const FitOptions& options) {
    plan.rounds_per_update = rounds_to_close(window, terms, plan.counted, epoch.samples_of_one);
    plan.samples_per_update = plan.rounds_per_update * epoch.samples_of_one;
    plan.rounds_per_epoch = epoch.rounds;
    if (plan.rounds_per_epoch == 0)
        refuse_input({"fit: an epoch of ", plan.shape.data_size, " samples has no micro-batch for ",
                      plan.shape.replicas, " replicas; expected more samples, or a sampler that drops none"});
    if (plan.rounds_per_update == 0) return;
    if (options.global_batch_size != 0 && options.global_batch_size != plan.samples_per_update)
        refuse_input({"FitOptions.global_batch_size is ", options.global_batch_size, "; expected ",
                      plan.samples_per_update, ": ", (terms.logical ? plan.shape.replicas : plan.world),
                      (terms.logical ? " replicas x " : " ranks x "),
                      (terms.logical ? plan.rounds_per_update : plan.hosted()), " micro-batches each, of batch_size ",
                      plan.shape.batch_size});
    plan.updates_per_epoch = updates_of(window, plan, epoch);
    if (plan.updates_per_epoch == 0)
        refuse_input({terms.accumulation, ": an update takes ", plan.rounds_per_update,
                      " micro-batches of each replica, an epoch has ", plan.rounds_per_epoch,
                      ", and short windows are dropped: there would be no update; expected fewer, more samples",
                      ", or ShortWindow::keep"});
}

/// The plan for a stream at the beginning of an epoch.
template <class Policies>
[[gnu::cold]] TrainingPlan plan_training(const EpochRounds& epoch, const Policies& policies, const SamplerShape& shape,
                                         const FitOptions& options, int world) {
    TrainingPlan plan{.shape = shape,
                      .world = world,
                      .counted = policies.hosting.counted(policies.sampler),
                      .most_hosted = policies.hosting.most_hosted(policies.sampler, world)};
    plan_updates(plan, policies.accumulation.window(plan.counted), update_terms<Policies>, epoch, options);
    return plan;
}

} // namespace detail
UNISONO_NAMESPACE_END
