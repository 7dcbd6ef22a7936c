#pragma once

/// \file
/// When gradients are exchanged and parameters change.
///
/// The trainer makes one update after another: it collects the gradients of this rank's
/// micro-batches, gets the verdict of the guards, and applies the optimizer. An update policy
/// decides what happens before and after. Its `start(training)` returns a *run*, which lives as
/// long as the trainer. The trainer calls the run in this order:
/// - `alone(updates)` before the passes, with the number of committed updates. True: the update
///   uses this rank's gradients only, and no other rank sees them.
/// - `before()` before an update for which `alone` was true, to remember the common parameters.
/// - `apply()` if the verdict is commit: changes the parameters. Returns the final verdict.
/// - `publish()` after that: sends parameters from their owners to all ranks.
/// - `discard(verdict)` otherwise: leaves parameters and optimizer state as they were. Returns the
///   final verdict.
/// - `after(verdict)` after an update for which `alone` was true, to exchange parameters. True, the
///   same on all ranks unless the policy is `asynchronous`: the ranks must synchronise now.
/// - `synchronise()` then, at the end of `fit`, in the trainer's `synchronise` and before
///   `evaluate`. Collective: afterwards all ranks hold the same parameters.
///
/// A run also answers the trainer's questions (`agrees`, `reduces`, `optimizes`, `workers`, ...)
/// and has functions for reports. `UpdateRun` has a default for each: the behaviour of
/// `Synchronous`. A run derives from it and replaces the functions in which it differs. A run whose
/// updates are alone derives from `LocalRun` (update/local.hpp), which adds `state()`, `own()`,
/// `synchronisations()` and `restore(synchronisations)` for checkpoints, and for the run's own use
/// the functions that average parameters on the host. The run of an
/// `asynchronous` policy derives from `AsynchronousRun` (extensions/updates/asynchronous_run.hpp).
///
/// The trainer calls the policy's `check()`, if it has one, before `start`.
///
/// `start` gets a reference to the training, which outlives the run. It has the types `World`,
/// `Element` and `Array`, and
/// - `world()`: the group of all ranks that train;
/// - `flat()`: the parameters. It has `count()`, and `visit(slice, f)` calls f(one) for each range
///   that is contiguous in memory: `one.flat` is its position in the flat order, `one.parameters`
///   and `one.count` its memory;
/// - `kernels()`: loops over the memory that holds the parameters, on the host or a device
///   (trainer/kernels.hpp), with `arithmetic()` for functors; its `allocate<Element>(n)` returns an
///   `Array`, with `data()` and `size()`;
/// - `start_sum(first, count)`: starts to sum elements of such an array over all ranks, from the
///   address `first` on, by the trainer's reducer, and returns an `Operation` (group/operation.hpp)
///   to wait for;
/// - `apply()`, `publish()`, `discard()`: the trainer's part of the functions above.
///
/// A policy declares `agrees` if all ranks commit or leave out the same updates and hold equal
/// parameters after each. A policy without `agrees` may declare:
/// - `asynchronous`: ranks may make different numbers of updates, gradients may be stale, and no
///   reducer is used;
/// - `sums_buckets`: ranks synchronise by sums of whole buckets, which a compression can compute;
/// - `shares_memory`: ranks must map each other's memory;
/// - `on_device`: its run computes by `kernels()` alone, and so also trains models on a device;
/// - `Sharding`: servers own the parameters, in the slices that `sharding(ranks)` returns
///   (extensions/updates/served.hpp).
///
/// Laws (testing/update_laws.hpp certifies them): after `synchronise` all ranks hold the same
/// parameters, whatever each did before, and `own()` is 0. A run that is restored from `state()`
/// and `synchronisations()` continues as the saved run, whatever it did before. A run may end
/// between two synchronisations, and leaves the world usable: it holds its operations in flight as
/// `OperationInFlight` (update/in_flight.hpp).
///
/// Menu:
/// - `Synchronous`: every update uses the gradients of all ranks.
/// - `LocalSteps`: each rank uses its own gradients; every few updates the parameters are averaged.
///   With a warm-up, it is post-local SGD.
/// - `Diloco`: as `LocalSteps`, at longer intervals; an outer optimizer steps by the ranks'
///   movements. SlowMo and Lookahead are settings of it.
/// - `StreamingDiloco`: as `Diloco`, one fragment of the parameters at a time, while ranks train.
/// - `Gossip`: each rank uses its own gradients, then averages with neighbours.
/// - `Asynchronous`: servers apply each worker's gradient as it arrives, however stale.
/// - `BoundedStaleness`: as `Asynchronous`, with a bound on a worker's lead over the slowest.
/// - `DelayCompensated`: as `Asynchronous`, each gradient corrected to the current parameters.
/// - `BackupWorkers`: servers use the first gradients that arrive, and drop those of the slowest.
/// - `Hogwild`: workers update common parameters in place, in shared memory.

#include "unisono/core/policy.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN

/// The verdict of all ranks on one update.
enum class Verdict : std::uint8_t {
    commit,
    skip,  ///< a guard refused it, its sum or norm is not finite, it does not fit its grid, or it came too late
    empty, ///< no rank had data
};

/// The run of an update that all ranks make together, and the base of all other runs.
template <class Training>
class UpdateRun {
public:
    explicit UpdateRun(Training& training) : training_(&training) {}
    UpdateRun(const UpdateRun&) = delete;
    UpdateRun& operator=(const UpdateRun&) = delete;

    [[nodiscard]] static constexpr bool alone(std::uint64_t) { return false; }
    static constexpr void before() {}
    Verdict apply() { return training_->apply(); }
    void publish() { training_->publish(); }
    Verdict discard(Verdict verdict) {
        training_->discard();
        return verdict;
    }
    [[nodiscard]] static constexpr bool after(Verdict) { return false; }
    static constexpr void synchronise() {}

    /// As the policy declares it. False: ranks have parameters of their own until `synchronise`,
    /// and a rank may fail alone.
    [[nodiscard]] static constexpr bool agrees() { return true; }
    /// True if the run uses the trainer's reducer and sharding.
    [[nodiscard]] static constexpr bool reduces() { return true; }
    /// True if `apply` runs the optimizer on this rank; false if it waits for ranks that do.
    [[nodiscard]] static constexpr bool optimizes() { return true; }
    /// Ranks 0 to `workers()` - 1 compute gradients; the others serve.
    [[nodiscard]] int workers() const { return training_->world().size(); }
    /// The hosting of replicas in `evaluate`: that of the workers, or one replica per rank.
    template <class Hosting, class OnePerRank>
    [[nodiscard]] static constexpr Hosting evaluation_hosting(const Hosting& of_workers, OnePerRank) {
        return of_workers;
    }
    /// `fit` may stop after an update, on all ranks. \throws error bad_input if it cannot
    static constexpr void check_may_stop() {}
    /// Called at the end of `fit`, after `synchronise`: `position` and `report` become the same on
    /// all ranks.
    template <class Position, class Report>
    static constexpr void end_fit(Position&, Report&) {}

    [[nodiscard]] static constexpr std::size_t bytes() { return 0; } ///< bytes beside the model's and the optimizer's
    template <class Report>
    static constexpr void tell(Report&) {} ///< adds to the report of the last update
    template <class Row>
    static constexpr void describe(Row&&) {} ///< calls row(name, text) for each row of the trainer's description

protected:
    [[nodiscard]] Training& training() const { return *training_; }

private:
    Training* training_;
};

/// Policies that say when ranks exchange gradients or parameters.
template <class U>
concept update_policy = policy_of<U, Family::update> && requires {
    { U::agrees } -> detail::converts_to<bool>;
};

/// The type that `start` returns. \see UpdateRun
template <class R>
concept update_run = requires(R& run, const R& seen, std::uint64_t updates, Verdict verdict) {
    { seen.alone(updates) } -> std::same_as<bool>;
    run.before();
    { run.apply() } -> std::same_as<Verdict>;
    run.publish();
    { run.discard(verdict) } -> std::same_as<Verdict>;
    { run.after(verdict) } -> std::same_as<bool>;
    run.synchronise();
    { R::agrees() } -> std::same_as<bool>;
    { R::reduces() } -> std::same_as<bool>;
    { R::optimizes() } -> std::same_as<bool>;
    run.check_may_stop();
    { seen.bytes() } -> detail::converts_to<std::size_t>;
    { seen.workers() } -> detail::converts_to<int>;
};

namespace detail {

template <class P>
inline constexpr bool agrees = requires { requires P::agrees; };
template <class P>
inline constexpr bool asynchronous = requires { requires P::asynchronous; };
template <class P>
inline constexpr bool sums_buckets = agrees<P> || requires { requires P::sums_buckets; };
template <class P>
inline constexpr bool updates_shared_memory = requires { requires P::shares_memory; };
template <class P>
inline constexpr bool updates_on_device = agrees<P> || requires { requires P::on_device; };
template <class P>
inline constexpr bool has_servers = requires { typename P::Sharding; };

/// The owners of parameters: the update's servers, if it has some; else as `given` says.
template <class Update, class Sharding>
[[nodiscard]] auto sharding_of(const Update& update, const Sharding& given, int ranks) {
    if constexpr (has_servers<Update>) return update.sharding(ranks);
    else return given;
}

} // namespace detail

/// An update commits after all ranks have agreed on every bucket and every guard; otherwise it does
/// not happen. After each update the parameters are equal on all ranks. Source: synchronous SGD
/// with all-reduce (Das et al. 2016; Goyal et al. 2017).
struct Synchronous {
    static constexpr std::string_view name = "synchronous";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = true;
    friend bool operator==(const Synchronous&, const Synchronous&) = default;

    template <class Training>
    UpdateRun<Training> start(Training& training) const {
        return UpdateRun<Training>(training);
    }
};
UNISONO_CERTIFY(update_policy<Synchronous>);

UNISONO_NAMESPACE_END
