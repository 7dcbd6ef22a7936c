#pragma once

/// \file
/// In what form gradients travel: fewer bytes, and a gradient that is not quite the sum.
///
/// A policy's `start<T>(group, buckets)` makes its *run* for one model; `buckets` are slices of the flat order. Who wants to know of the
/// parameters in them, too, offers `start<T>(group, buckets, parameters)` instead: a `ParameterMatrix` for each, in flat order. A run's verbs:
///  - `begin(b, values, reduction)`: encodes this rank's gradient of bucket b, and starts to exchange it, without waiting. The values
///    must stay where they are;
///  - `finish()`: waits; the values of all buckets that were begun are the sum over all ranks of what each has encoded;
///  - `forget()`: what encoding has left over so far is dropped: the update was left out on all ranks;
///  - `bytes()`: memory beside the model's.
///
/// Of a model on a device the trainer copies gradients to the host before `begin`, and the sums back after `finish` (trainer/device/wire.hpp).
/// A policy that computes there itself has `start_on<T>(device, group, buckets)`, whose run is given addresses of the device, and may give its reduction a
/// DeviceSpan; `device` has what CastWire's detail::WiresOnHost has.
///
/// Laws
/// - All ranks begin the same buckets in the same order, and have the same bits after `finish`.
/// - With error feedback what an update's encoding leaves over is added to the next one's gradient, so that nothing is lost, only
///   late (Seide et al. 2014; Karimireddy et al. 2019): the sum over updates of what was sent differs from that of the gradients
///   by what is left over now (and, where sums are rounded on the way, by that: see CastWire).
/// - Encoding does not depend on the time or on other ranks.
///
/// | policy      | an element takes               | sums                            | wins                                               |
/// |-------------|--------------------------------|---------------------------------|----------------------------------------------------|
/// | `NoCompression` | 4 or 8 bytes               | the reducer's                   | fast networks                                      |
/// | `CastWire<bfloat16>`, `CastWire<float16>` | 2 bytes | the reducer's, in 16 bits    | safe: half of the bytes                            |
/// | `Int8Wire`  | 1 byte, and 4 a block          | at each slice's owner, in float | a quarter of the bytes                             |
/// | `Fp8Wire`   | 1 byte, and 4 a block          | at each slice's owner, in float | the same, where a block's magnitudes differ much   |
/// | `OneBit`    | 1 bit, and 8 bytes a block     | at each slice's owner, in float | slow links, after a warm-up                        |
/// | `TopK`      | 8 bytes for one in a hundred   | everybody's, by everybody       | very slow links, few ranks: bytes grow with ranks  |
/// | `PowerSgd`  | 2 rank (n + m) elements for n m | the reducer's                  | very slow links, large matrices, any number of ranks |
/// | `Adasum`    | 4 or 8 bytes                   | no sum: pairwise in a tree      | many ranks at a learning rate that was found for few |
///
/// Declared properties: `compresses` (false: nothing of all this happens), `own_exchange` (it does not use the reducer, so none may be
/// given beside it), `sums_to_owners` (its run asks the reduction for nothing but one `sum` of as many elements as the bucket has, and
/// after `finish` each element depends on that of the sum alone: then owners of slices may be given, who get the sums of theirs only. For gradients
/// that are sharded it has `Wire`, the type of such an element, which converts to float, and `encode(wire, values, ranks)`).
/// Deliberately absent: formats without error feedback by default, except where it was switched off; 1-bit Adam (Tang et al. 2021), which
/// sends momentum: here the optimizer has that, and sees the sum of gradients (OneBit says what comes near it).

#include "unisono/core/policy.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

template <class C>
concept compression_policy = policy_of<C, Family::compression> && requires(const C& policy) {
    { C::compresses } -> std::convertible_to<bool>;
    { C::own_exchange } -> std::convertible_to<bool>;
    policy.check();
};

/// A parameter: where it lies in the flat order, and how many columns it has as a matrix, row after row (the first dimension of its
/// `parameter_shapes()` are the rows, and all others the columns; a vector is one row). 0: the model does not say.
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

/// A policy's run, however it is started.
template <class T, class C, class World>
[[nodiscard]] auto start_compression(const C& policy, World& world, std::span<const Slice> buckets,
                                     std::span<const ParameterMatrix> parameters) {
    if constexpr (compresses_parameters<C, T, World>) return policy.template start<T>(world, buckets, parameters);
    else return policy.template start<T>(world, buckets);
}

/// Elements of the flat order up to the end of the last bucket.
inline std::size_t end_of(std::span<const Slice> buckets) {
    std::size_t end = 0;
    for (const Slice& bucket : buckets) end = std::max(end, bucket.end());
    return end;
}

} // namespace detail

/// Gradients travel as they are.
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
static_assert(compression_policy<NoCompression>);

UNISONO_NAMESPACE_END
