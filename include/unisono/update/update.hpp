#pragma once

/// \file
/// When gradients are exchanged and parameters change.
///
/// The trainer offers an *exchange*, with the verbs of one update; an update policy says in which order, and when. The
/// exchange works on the gradients that this rank's micro-batches left behind.
///
/// | verb          | does                                                                                         |
/// |---------------|----------------------------------------------------------------------------------------------|
/// | `start()`     | begins to sum the buckets that the backward pass has not begun already, in bucket order; does not wait |
/// | `agree()`     | weights, loss and the guard's findings of all ranks, in one small all-reduce; the verdict    |
/// | `finish()`    | waits until the sums have arrived at their owners                                            |
/// | `apply()`     | runs the optimizer on the slices that this rank owns; its verdict is the last word, the same on all ranks: where clipping finds no finite norm nothing is applied, and the gradients are discarded already |
/// | `publish()`   | brings the owners' parameters to all ranks; nothing to do where everyone owns everything     |
/// | `discard()`   | leaves parameters and optimizer state as they were                                           |
///
/// Laws: a policy that `agrees` calls the verbs in the same order on all ranks, and applies exactly if the verdict says
/// so, and returns what `apply` says. Between two updates everything that was started has been finished.
///
/// Declared properties: `agrees` (all ranks commit or leave out the same updates, and hold equal parameters after each),
/// `local` (between times each rank has updates of its own: update/local.hpp), `served` (servers apply each rank's gradient as it comes:
/// update/served.hpp), `in_common` (local, and ranks update one set of parameters: update/hogwild.hpp), `needs_owner` (each slice must have exactly one owner: for updates without lockstep).
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
#include <cstdint>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// What all ranks found about one update.
enum class Verdict : std::uint8_t {
    commit,
    skip,  ///< the guard says so, or a gradient that cannot be clipped; of one gradient: it came too late
    empty, ///< no rank had data
};

template <class X>
concept update_exchange = requires(X& exchange) {
    exchange.start();
    { exchange.agree() } -> std::same_as<Verdict>;
    exchange.finish();
    { exchange.apply() } -> std::same_as<Verdict>;
    exchange.publish();
    exchange.discard();
};

namespace detail {
struct AnyExchange {
    void start() {}
    Verdict agree() { return Verdict::commit; }
    void finish() {}
    Verdict apply() { return Verdict::commit; }
    void publish() {}
    void discard() {}
};
} // namespace detail

template <class U>
concept update_policy = policy_of<U, Family::update> && requires(const U& update, detail::AnyExchange& exchange) {
    { update.run(exchange) } -> std::same_as<Verdict>;
    { U::agrees } -> std::convertible_to<bool>;
    { U::needs_owner } -> std::convertible_to<bool>;
};

UNISONO_NAMESPACE_END
