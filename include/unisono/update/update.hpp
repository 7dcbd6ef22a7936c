#pragma once

/// \file
/// When gradients are exchanged and parameters change.
///
/// The trainer makes one update after another: it collects the gradients of this rank's micro-batches, hears the verdict of the guards,
/// and applies the optimizer. An update policy says what surrounds that. Its `start(training)` gives a *run*, which lives as long as the
/// trainer. The trainer calls it in this order:
///
/// | call               | when                                               | purpose                                                    |
/// |--------------------|----------------------------------------------------|------------------------------------------------------------|
/// | `alone(updates)`   | before the passes; so many updates were committed   | true: the update uses this rank's own gradients, and nobody hears of them |
/// | `before()`         | before an update that is alone                      | to remember what the ranks have in common                  |
/// | `apply()`          | the verdict is commit                               | changes the parameters; returns the last word              |
/// | `publish()`        | then                                               | brings parameters from their owners to all ranks           |
/// | `discard(verdict)` | else                                                | leaves parameters and optimizer state as they were; returns the last word |
/// | `after(verdict)`   | after an update that was alone                      | to exchange parameters; true: it is time to meet           |
/// | `meet()`           | then, at the end of `fit`, in `synchronise` and before `evaluate` | collective: all ranks hold the same parameters afterwards |
///
/// and besides `state()`, `own()`, `met()` and `restore(met)` for checkpoints, `bytes()` and `tell(report)` for reports. `UpdateRun` has
/// a default for each, which are those of `Synchronous`; a run derives from it and replaces what it does otherwise.
///
/// The training that `start` is given (a reference, which outlives the run) has `World`, `Element` and
///  - `world()`: the group of all ranks that train;
///  - `flat()`: the parameters: `count()`, and `visit(slice, f)` with f(one) for each piece of memory: `one.flat` is its place in the flat order,
///    `one.parameters` and `one.count` say where it lies;
///  - `place()`: where parameters are, host or device: `allocate`, `allocate_own`, `arithmetic()` (trainer/place.hpp);
///  - `start_sum(at, count)`: begins to sum elements of memory from `place().allocate` over all ranks, by the trainer's reducer;
///  - `apply()`, `publish()`, `discard()`: what `UpdateRun` does with the gradient.
///
/// A policy declares `agrees`: all ranks commit or leave out the same updates, and hold equal parameters after each. One that does not may declare:
///
/// | property        | meaning                                                                                                 |
/// |-----------------|---------------------------------------------------------------------------------------------------------|
/// | `asynchronous`  | ranks need not make as many updates as each other; gradients may be stale; no reducer is used            |
/// | `sums_buckets`  | ranks meet by sums of whole buckets, which a compression can form                                       |
/// | `shares_memory` | ranks must see each other's memory                                                                      |
/// | `on_device`     | its run computes by `place()` alone, and so trains models on a device, too                              |
/// | `Sharding`      | servers own the parameters: a sharding of its own, made by `sharding(ranks)` (update/served.hpp)          |
///
/// Laws (testing/update_laws.hpp certifies them): after `meet` all ranks hold the same parameters, whatever each did before; `own()` is 0 then;
/// a run that is restored from `state()` and `met()` goes on as the one that was saved.
///
/// | policy        | when                                                        |
/// |---------------|-------------------------------------------------------------|
/// | `Synchronous` | at every update, with the gradients of all ranks             |
/// | `LocalSteps`  | each rank with its own gradients; every few updates the parameters are averaged        |
/// | `Diloco`      | the same, rarely, and an outer optimizer steps by what the ranks have moved            |
/// | `StreamingDiloco` | as `Diloco`, a fragment of the parameters at a time, while the ranks go on         |
/// | `Gossip`      | each rank with its own gradients, and then an average with neighbours                  |
/// | `Asynchronous`     | servers apply each worker's gradient as it comes, however stale                   |
/// | `BoundedStaleness` | the same, and no worker gets more than so many updates ahead of the slowest       |
/// | `DelayCompensated` | as `Asynchronous`, each gradient carried on to the parameters of now              |
/// | `BackupWorkers`    | together, by servers, with the first gradients that come; those of the slowest few are dropped |
/// | `Hogwild`     | workers update common parameters where they lie, in memory that they share             |

#include "unisono/core/policy.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// What all ranks found about one update.
enum class Verdict : std::uint8_t {
    commit,
    skip,  ///< the guard says so, or a gradient that cannot be clipped; of one gradient: it came too late
    empty, ///< no rank had data
};

/// A run of an update in lockstep, and the base of all others.
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
    static constexpr void meet() {}

    [[nodiscard]] static constexpr std::size_t bytes() { return 0; } ///< of memory beside the model and the optimizer
    template <class Report>
    static constexpr void tell(Report&) {} ///< adds to the report of the last update

    /// Ranks 0 to `workers()` - 1 compute gradients; the others serve.
    [[nodiscard]] int workers() const { return training_->world().size(); }

protected:
    [[nodiscard]] Training& training() const { return *training_; }

private:
    Training* training_;
};

template <class U>
concept update_policy = policy_of<U, Family::update> && requires {
    { U::agrees } -> std::convertible_to<bool>;
};

/// What `start` returns. \see UpdateRun
template <class R>
concept update_run = requires(R& run, const R& seen, std::uint64_t updates, Verdict verdict) {
    { seen.alone(updates) } -> std::same_as<bool>;
    run.before();
    { run.apply() } -> std::same_as<Verdict>;
    run.publish();
    { run.discard(verdict) } -> std::same_as<Verdict>;
    { run.after(verdict) } -> std::same_as<bool>;
    run.meet();
    { seen.bytes() } -> std::convertible_to<std::size_t>;
    { seen.workers() } -> std::convertible_to<int>;
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

} // namespace detail
UNISONO_NAMESPACE_END
