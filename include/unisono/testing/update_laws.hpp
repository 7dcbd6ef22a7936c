#pragma once

/// \file
/// The laws of update/update.hpp and of extensions/updates/served.hpp, and a minimal policy.

#include "unisono/core/text.hpp"
#include "unisono/extensions/updates/served.hpp"
#include "unisono/group/run.hpp"
#include "unisono/testing/testing.hpp"
#include "unisono/trainer/trainer.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/update/update.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal update: all ranks together.
struct ArchetypeUpdate {
    static constexpr std::string_view name = "archetype update";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = true;
    friend bool operator==(const ArchetypeUpdate&, const ArchetypeUpdate&) = default;

    template <class Training>
    UpdateRun<Training> start(Training& training) const {
        return UpdateRun<Training>(training);
    }
};
static_assert(update_policy<ArchetypeUpdate>);

/// The parameters of the trial.
struct UpdateTrial {
    int ranks = 3;
    std::uint64_t updates = 7;        ///< updates between two synchronisations
    double learning_rate = 0.1;       ///< learning rate of plain SGD
    std::uint64_t most_updates = 400; ///< updates after which the model must have learned
    /// The remaining distance to the best parameters that is allowed, as a fraction of the initial
    /// one.
    double learned = 0.05;
    std::chrono::nanoseconds timeout = std::chrono::seconds(30); ///< time limit of each wait; a hang is a violation
};

namespace detail {

/// Learns the mean of its targets: the target of element i of a batch is target + i, and its
/// gradient is w[i] - (target + i). A target that is not finite gives a gradient that the guard
/// leaves out.
struct UpdateLawModel {
    static constexpr std::size_t count = 5;
    std::array<double, count> weights = {}, sums = {};

    std::span<double> parameters() { return weights; }
    std::span<double> gradients() { return sums; }
    double operator()(const std::array<double, 1>& batch, Pass&) {
        double loss = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const double difference = weights[i] - (batch[0] + static_cast<double>(i));
            sums[i] += difference;
            loss += difference * difference / 2;
        }
        return loss;
    }
    /// The target of rank r in its n-th update.
    static double target(int rank, std::uint64_t n) { return 1 + rank + 0.25 * static_cast<double>(n % 3); }
};

/// The findings of one rank.
struct UpdateLawFindings {
    std::vector<std::array<double, UpdateLawModel::count>> weights = {}; ///< weights after each synchronisation
    std::vector<std::uint64_t> own = {}; ///< update_run().own() after each synchronisation
    bool moved_by_skip = false;
};

template <class Policy>
using UpdateLawTrainer = Trainer<Group<InProcess>, UpdateLawModel, Policy, Sgd, FiniteGuard>;

template <class TrainerType>
void train_update_law(TrainerType& trainer, int rank, std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t n = from; n < to; ++n) trainer.step(std::array<double, 1>{UpdateLawModel::target(rank, n)});
}

/// The continuation of a training after its first synchronisation.
enum class AfterSynchronisation : std::uint8_t {
    goes_on,
    is_made_anew, ///< a new trainer is restored from the run's `state()`
    goes_back,    ///< the same trainer makes some updates and is then restored
};

/// Trains, synchronises, and continues to train.
template <class Policy>
std::vector<UpdateLawFindings> try_update(const Policy& policy, const UpdateTrial& trial,
                                          AfterSynchronisation then = AfterSynchronisation::goes_on) {
    std::vector<UpdateLawFindings> found(static_cast<std::size_t>(trial.ranks));
    const auto train = [&](auto& world) {
        const int rank = world.rank();
        UpdateLawFindings& mine = found[static_cast<std::size_t>(rank)];
        UpdateLawModel model;
        std::optional<UpdateLawTrainer<Policy>> trainer;
        const auto make = [&] {
            trainer.emplace(world, model, policy, Sgd{.learning_rate = trial.learning_rate},
                            FiniteGuard{.action = OnOffence::skip});
        };
        const auto synchronise = [&] {
            trainer->synchronise();
            mine.weights.push_back(model.weights);
            if constexpr (requires { trainer->state().update_run().own(); })
                mine.own.push_back(trainer->state().update_run().own());
        };
        make();
        train_update_law(*trainer, rank, 0, trial.updates);
        synchronise();
        if (then != AfterSynchronisation::goes_on) {
            const auto weights = model.weights;
            const TrainingProgress progress = trainer->progress();
            std::vector<double> state;
            std::uint64_t synchronisations = 0;
            if constexpr (requires { trainer->state().update_run().restore(synchronisations); }) {
                auto& common = trainer->state().update_run().state();
                synchronisations = trainer->state().update_run().synchronisations();
                if constexpr (requires { common.array(0); })
                    for (std::size_t a = 0; a < common.size(); ++a)
                        state.insert(state.end(), common.array(a).begin(), common.array(a).end());
            }
            if (then == AfterSynchronisation::goes_back) {
                train_update_law(*trainer, rank, trial.updates, 2 * trial.updates - 1);
            } else {
                trainer.reset();
                make();
            }
            model.weights = weights;
            if constexpr (requires { trainer->state().update_run().restore(synchronisations); }) {
                auto& common = trainer->state().update_run().state();
                std::size_t at = 0;
                if constexpr (requires { common.array(0); })
                    for (std::size_t a = 0; a < common.size(); ++a)
                        for (double& value : common.array(a)) value = state[at++];
                trainer->state().update_run().restore(synchronisations);
            }
            trainer->restore(progress);
        }
        train_update_law(*trainer, rank, trial.updates, 2 * trial.updates);
        synchronise();
        const auto before = model.weights;
        trainer->step(std::array<double, 1>{std::numeric_limits<double>::infinity()});
        bool synchronises = false; // a synchronisation in this step: it moves parameters, and not the update
        if constexpr (requires { trainer->state().update_run().own(); })
            synchronises = trainer->state().update_run().own() == 0;
        mine.moved_by_skip = !synchronises && model.weights != before;
        // One rank leaves an update out, alone or with all: the ranks still synchronise together.
        if constexpr (!requires { requires Policy::asynchronous; }) // else a rank sees what others do meanwhile
            trainer->step(std::array<double, 1>{rank == 0 ? std::numeric_limits<double>::infinity()
                                                          : UpdateLawModel::target(rank, 0)});
        trainer->synchronise();
        train_update_law(*trainer, rank, 2 * trial.updates, trial.most_updates);
        synchronise();
    };
    run<InProcess>(trial.ranks, train, {.timeout = trial.timeout});
    return found;
}

/// Trains, and destroys the trainer without a synchronisation. The world must remain usable.
template <class Policy>
void leave_update(const Policy& policy, const UpdateTrial& trial) {
    const auto train = [&](auto& world) {
        UpdateLawModel model;
        {
            UpdateLawTrainer<Policy> trainer(world, model, policy, Sgd{.learning_rate = trial.learning_rate},
                                             FiniteGuard{.action = OnOffence::skip});
            train_update_law(trainer, world.rank(), 0, trial.updates);
        }
        barrier(world);
    };
    run<InProcess>(trial.ranks, train, {.timeout = trial.timeout});
}

/// The first parameter in which two sets of weights differ, as text.
struct WeightDifference {
    std::string found, expected, where;
};
inline std::optional<WeightDifference> difference(const std::array<double, UpdateLawModel::count>& found,
                                                  const std::array<double, UpdateLawModel::count>& expected) {
    for (std::size_t i = 0; i < found.size(); ++i)
        if (std::bit_cast<std::uint64_t>(found[i]) != std::bit_cast<std::uint64_t>(expected[i]))
            return WeightDifference{exact_text(found[i]), exact_text(expected[i]), concat({" in parameter ", i})};
    return std::nullopt;
}

template <class Policy>
void run_update_laws(const Policy& policy, const UpdateTrial& trial, Violations& found) {
    const auto first = try_update(policy, trial);
    for (std::size_t m = 0; m < first[0].weights.size(); ++m)
        for (std::size_t r = 1; r < first.size(); ++r)
            if (const auto other = difference(first[r].weights[m], first[0].weights[m]))
                found.add(concat({"after synchronisation ", m + 1, " rank ", r, " holds ", other->found, " and rank 0 ",
                                  other->expected, other->where, "; expected the same on all ranks"}));
    for (std::size_t r = 0; r < first.size(); ++r) {
        for (std::size_t m = 0; m < first[r].own.size(); ++m)
            if (first[r].own[m] != 0)
                found.add(concat({"after synchronisation ", m + 1, " rank ", r, " counts ", first[r].own[m],
                                  " updates of its own; expected none"}));
        if (first[r].moved_by_skip)
            found.add(concat({"an update that all ranks skipped changed the parameters of rank ", r}));
    }
    double best = 0; // the mean of the targets of all ranks in three updates
    for (int r = 0; r < trial.ranks; ++r)
        for (std::uint64_t n = 0; n < 3; ++n) best += UpdateLawModel::target(r, n) / (3.0 * trial.ranks);
    constexpr bool in_lockstep = !requires { requires Policy::asynchronous; };
    const double least = in_lockstep ? best : UpdateLawModel::target(0, 0); // else faster ranks have more weight:
    // The result is some mean of all targets.
    const double most = in_lockstep ? best : UpdateLawModel::target(trial.ranks - 1, 2);
    const double far = trial.learned * best;
    if (const double learned = first[0].weights.back()[0]; !(learned >= least - far && learned <= most + far))
        found.add(
            concat({"after ", trial.most_updates, " updates the first parameter is ", number_text(learned),
                    "; expected ", in_lockstep ? number_text(best) : number_text(least) + " to " + number_text(most),
                    " within ", number_text(100 * trial.learned), in_lockstep ? " %" : " % of the mean"}));
    if constexpr (in_lockstep) {
        const auto again = try_update(policy, trial);
        const auto anew = try_update(policy, trial, AfterSynchronisation::is_made_anew);
        const auto back = try_update(policy, trial, AfterSynchronisation::goes_back);
        for (std::size_t m = 0; m < first[0].weights.size(); ++m) {
            if (const auto other = difference(again[0].weights[m], first[0].weights[m]))
                found.add(concat({"at synchronisation ", m + 1, " the next training holds ", other->found,
                                  "; expected ", other->expected, other->where, ", as the first time"}));
            if (const auto other = difference(anew[0].weights[m], first[0].weights[m]))
                found.add(concat({"at synchronisation ", m + 1, " a training that was restored holds ", other->found,
                                  "; expected ", other->expected, other->where,
                                  ", as without a stop: state() lacks something that the run remembers"}));
            if (const auto other = difference(back[0].weights[m], first[0].weights[m]))
                found.add(concat({"at synchronisation ", m + 1, " a training that went back holds ", other->found,
                                  "; expected ", other->expected, other->where,
                                  ", as without going back: restore() keeps something of the updates that it undoes"}));
        }
    }
    try {
        leave_update(policy, trial);
    } catch (const std::exception& thrown) {
        found.add(concat({"a trainer that ended between two synchronisations broke the world: ", thrown.what()}));
    }
}

} // namespace detail

/// Trains a small model with the policy, on threads. After a synchronisation all ranks hold the
/// same parameters, bit by bit, and no rank has an update of its own. An update that the guard
/// leaves out on all ranks changes nothing, and after one that a rank leaves out alone the ranks
/// still synchronise together. The model learns. A training gives the same bits when
/// it is repeated; also if a new trainer is restored from `state()` at a synchronisation, as a
/// checkpoint does, or if the trainer is restored to it after further updates. An `asynchronous`
/// policy may give other bits each time. A trainer that ends between two synchronisations leaves
/// the world usable.
template <update_policy Policy>
    requires(!requires { typename Policy::Sharding; }) // servers need `served_update_laws`
Violations update_laws(const Policy& policy, const UpdateTrial& trial = {}) {
    Violations found{std::string(Policy::name)};
    try {
        detail::run_update_laws(policy, trial, found);
    } catch (const error& thrown) {
        const bool waited = !Policy::agrees && thrown.code() != ErrorCode::bad_input;
        found.add(concat({"threw ", thrown.what(),
                          waited ? ". Do all ranks communicate after the same updates? `after` counts every update, "
                                   "whatever the verdict, and returns the same on all ranks"
                                 : ""}));
    } catch (const std::exception& thrown) {
        found.add(concat({"threw ", thrown.what()}));
    }
    return found;
}

namespace detail {

/// Without delay there is no compensation. Equal inputs give equal results.
template <class Policy>
void compensation_laws(const Policy& policy, Violations& found) {
    constexpr std::array<double, 4> gradients = {1.5, -2, 0, 0.25}, now = {1, 2, 3, -4}, read = {0, 4, 3.5, -4};
    const auto carried = [&](const std::array<double, 4>& from) {
        std::array<double, 4> values = gradients;
        policy.compensate(std::span<double>(values), 0.5, std::span<const double>(now), std::span<const double>(from));
        return values;
    };
    const auto fresh = carried(now);
    for (std::size_t i = 0; i < fresh.size(); ++i)
        if (std::abs(fresh[i] - 0.5 * gradients[i]) > 1e-15)
            found.add(concat({"a gradient of ", gradients[i], " x 0.5 that is not stale became ", fresh[i]}));
    const auto once = carried(read);
    if (carried(read) != once) found.add("compensate() differs from call to call");
}

} // namespace detail

/// Checks a policy whose updates servers make. At least one worker may proceed: the slowest. A
/// worker that may proceed may also do so at a smaller clock, or if the slowest has advanced.
/// Waiting for all ends. A gradient that is not stale needs no compensation.
template <served_update_policy Policy>
Violations served_update_laws(const Policy& policy) {
    Violations found{std::string(Policy::name)};
    if (policy.servers < 1) found.add(concat({"servers is ", policy.servers, "; expected at least 1"}));
    for (std::uint64_t clock = 0; clock < 12; ++clock)
        for (std::uint64_t slowest = 0; slowest <= clock; ++slowest) {
            const bool goes = policy.goes_on(clock, slowest);
            const std::string at = concat({"at clock ", clock, ", the slowest at ", slowest, ": "});
            if (clock == slowest && !goes) found.add(at + "goes_on() is false for the slowest worker: all would wait");
            if (goes != policy.goes_on(clock, slowest)) found.add(at + "goes_on() differs from call to call");
            if (goes && clock > slowest && !policy.goes_on(clock - 1, slowest))
                found.add(at + "goes_on() is true, and false at a smaller clock");
            if (goes && slowest < clock && !policy.goes_on(clock, slowest + 1))
                found.add(at + "goes_on() is true, and false if the slowest is further");
        }
    if constexpr (requires { requires Policy::compensates; }) detail::compensation_laws(policy, found);
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
