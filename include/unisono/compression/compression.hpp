#pragma once

/// \file
/// The wire format of gradients: fewer bytes, for a gradient that approximates the sum.
///
/// A policy's `start<T>(group, buckets)` makes its *run* for one model; `buckets` are slices of the
/// flat order. A policy that also needs the parameters in them has `start<T>(group, buckets,
/// parameters)` instead, with a `ParameterMatrix` for each, in flat order. A run (concept
/// `compression_run`) has
/// - `begin(b, values, reduction)`: encodes this rank's gradient of bucket b, and starts its
///   exchange, without waiting. The values must not move;
/// - `finish()`: waits; the values of all buckets in flight are then the sum over all ranks of the
///   encoded gradients;
/// - `forget()`, never between `begin` and `finish`: drops everything that encoding has left over
///   so far, also from earlier updates: all ranks have discarded the update;
/// - `restart()`, only if `forget` does not do it: resets the run to its initial state, before a
///   restored training continues;
/// - `bytes()`: memory beside the model's;
/// - optionally, for error feedback, `rescale(factor)` before an update's first `begin`: the rest
///   of earlier updates counts `factor` times in this update, whose gradients are multiplied by
///   another loss scale, or divided by other weights. And `correct(factor)` between the last
///   `begin` and `finish`: the previous factor should have been multiplied by `factor`. The
///   difference is added to the rest. The values are still those that were passed to `begin`. Both
///   are called only with factors other than 1.
///
/// For a model on a device, the trainer copies gradients to the host before `begin`, and the sums
/// back after `finish` (extensions/device/wire.hpp). A policy that computes on the device has
/// `start_on<T>(device, group, buckets)`. Its run gets device addresses, and may pass a DeviceSpan
/// to its reduction; `device` has the members of CastWire's detail::WiresOnHost.
///
/// If no reducer can sum what is encoded, `start` can return a `GatheredRun`
/// (extensions/compression/gathered.hpp): all ranks get all messages, and the policy has a function
/// that encodes and one that adds.
///
/// A run sums by `reduction.sum(group, values)`, with the group that it was started with, over the
/// trainer's ranks. It may do so until `finish` ends (a policy with `sums_to_owners`: in `begin`).
/// It sums float, double, bfloat16, float16, int32 or int64; if the policy has `Wire`
/// (below), the gradient's type or `Wire`. For anything else it calls collectives itself.
///
/// Laws
/// - All ranks begin the same buckets in the same order, and have the same bits after `finish`.
/// - With error feedback, the rest of an update's encoding is added to the next gradient, so that
///   nothing is lost, only delayed (Seide et al. 2014; Karimireddy et al. 2019): the sum of
///   everything sent over all updates differs from the sum of the gradients by the current rest
///   (and by the rounding of intermediate sums, if there is any: see CastWire).
/// - Encoding does not depend on the time or on other ranks.
///
/// Menu:
/// - `NoCompression`: 4 or 8 bytes per element, the reducer's sums. For fast networks.
/// - `CastWire<bfloat16>`, `CastWire<float16>`: 2 bytes, the reducer's sums in 16 bits. Safe.
/// - `Int8Wire`: 1 byte, and 4 per block; each slice's owner sums in float.
/// - `Fp8Wire`: the same bytes and sums; for blocks whose magnitudes differ much.
/// - `OneBit`: 1 bit, and 8 bytes per block; each slice's owner sums in float. For slow links,
///   after a warm-up.
/// - `TopK`: 8 bytes for one element in a hundred; all ranks sum the entries of all. For very slow
///   links and few ranks, since bytes grow with the ranks.
/// - `PowerSgd`: 2 rank (n + m) elements for n m, the reducer's sums. For very slow links, large
///   matrices and any number of ranks.
/// - `Adasum`: 4 or 8 bytes, no sum: pairwise in a tree. For many ranks at a learning rate that was
///   found for few.
///
/// Declared properties:
/// - `compresses` (false: none of this is used);
/// - `own_exchange`: the policy does not use the reducer, so none may be given beside it;
/// - `sums_to_owners`: its run calls only one `sum` of the reduction, with as many elements as the
///   bucket has, and after `finish` each element depends only on that element of the sum. Then
///   slices may have owners, which get only the sums of their slices. For sharded gradients it has
///   `Wire`, the type of such an element, which converts to float, and `encode(wire, values,
///   ranks)`.
///
/// Deliberately absent: formats without error feedback by default; 1-bit Adam (Tang et al. 2021),
/// which sends momentum: here the optimizer holds the momentum, and sees the sum of gradients
/// (OneBit names the alternative).

#include "unisono/core/memory.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/value.hpp"
#include "unisono/group/operation.hpp" // a run holds what `reduction.sum` returns
#include "unisono/layout/owners.hpp"

#include <cstddef>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// Policies that change how gradients travel.
template <class C>
concept compression_policy = policy_of<C, Family::compression> && requires(const C& policy) {
    { C::compresses } -> detail::converts_to<bool>;
    { C::own_exchange } -> detail::converts_to<bool>;
    policy.check();
};

/// Runs for gradients of type T. `Reduction`: the type of the object by which `begin` sums.
template <class R, class T, class Reduction>
concept compression_run = requires(R& run, const R& seen, std::size_t bucket, T* values, Reduction& reduction) {
    run.begin(bucket, values, reduction);
    run.finish();
    run.forget();
    { seen.bytes() } -> detail::converts_to<std::size_t>;
};

/// A parameter as a matrix: its position in the flat order, and its number of columns; row after
/// row (the first dimension of its `parameter_shapes()` is the number of rows, the product of the
/// others the number of columns; a vector is one row). 0 columns: the model has no shapes.
struct ParameterMatrix {
    Slice slice;
    std::size_t columns = 0;
    friend bool operator==(const ParameterMatrix&, const ParameterMatrix&) = default;
};

namespace detail {

template <class C, class T, class World>
concept compresses_parameters =
    requires(const C& policy, World& world, std::span<const Slice> buckets,
             std::span<const ParameterMatrix> parameters) { policy.template start<T>(world, buckets, parameters); };

template <class C, class T, class World>
concept compresses_buckets = requires(const C& policy, World& world, std::span<const Slice> buckets) {
    policy.template start<T>(world, buckets);
};

/// A policy's run, made by either form of `start`.
template <class T, class C, class World>
[[nodiscard]] auto start_compression(const C& policy, World& world, std::span<const Slice> buckets,
                                     std::span<const ParameterMatrix> parameters) {
    static_assert(compresses_parameters<C, T, World> || compresses_buckets<C, T, World>,
                  "unisono::Trainer: the compression lacks what compression/compression.hpp asks of one: `template "
                  "<class T, class World> ... start(World&, std::span<const Slice> buckets) const`");
    if constexpr (compresses_parameters<C, T, World>) return policy.template start<T>(world, buckets, parameters);
    else return policy.template start<T>(world, buckets);
}

/// Starts a compression for gradients in the trainer's memory. For memory of a device,
/// `start_device_compression(type, kernels, ...)` is found by argument-dependent lookup.
template <class T, class Computes, class C, class World>
[[nodiscard]] auto start_compression_on([[maybe_unused]] const Computes& kernels, const C& policy, World& world,
                                        std::span<const Slice> buckets, std::span<const ParameterMatrix> parameters) {
    if constexpr (!Computes::on_device || !C::compresses)
        return start_compression<T>(policy, world, buckets, parameters);
    else return start_device_compression(std::type_identity<T>(), kernels, policy, world, buckets, parameters);
}

/// Resets a run to its initial state: nothing is left over, and a warm-up begins anew.
template <class Run>
void restart_compression(Run& run) {
    if constexpr (requires { run.restart(); }) run.restart();
    else run.forget();
}

/// The number of elements in flat order up to the end of the last bucket.
inline std::size_t end_of(std::span<const Slice> buckets) {
    std::size_t end = 0;
    for (const Slice& bucket : buckets) end = std::max(end, bucket.end());
    return end;
}

} // namespace detail

/// Gradients travel unchanged.
struct NoCompression {
    static constexpr std::string_view name = "none";
    static constexpr Family family = Family::compression;
    static constexpr bool compresses = false;
    static constexpr bool own_exchange = false;
    friend bool operator==(const NoCompression&, const NoCompression&) = default;
    void check() const {}

    struct Run {
        static constexpr std::size_t bytes() { return 0; }
    };
    template <class T, class World>
    [[nodiscard]] Run start(World&, std::span<const Slice>) const {
        return {};
    }
};
UNISONO_CERTIFY(compression_policy<NoCompression>);

UNISONO_NAMESPACE_END
