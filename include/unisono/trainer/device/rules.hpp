#pragma once

/// \file
/// What a model on a device asks of its group and of the policies, and what a Trainer says where they do not give it.
///
/// | rule                                                       | because                                                            |
/// |------------------------------------------------------------|--------------------------------------------------------------------|
/// | the transport has streams                                  | sums start from memory of the device                               |
/// | the model has `stream()`                                   | kernels and sums come after what it enqueued                        |
/// | the source can compute on the device                       | the trainer's kernels are compiled in it                            |
/// | the reducer's verbs take DeviceSpan                        | gradients never leave the device                                    |
/// | no sharding that is measured, no update of servers, in memory of all ranks, or among neighbours | they compute on the host: not built |
/// | a guard looks for what is not finite, or for nothing       | any other looks at the elements, on the host                        |

#include "unisono/arithmetic/stream_arithmetic.hpp"
#include "unisono/core/device_span.hpp"
#include "unisono/group/stream_steps.hpp"
#include "unisono/model/model.hpp"
#include "unisono/sharding/automatic.hpp"
#include "unisono/trainer/place.hpp"
#include "unisono/trainer/policies.hpp"

#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class World, class Model>
concept enqueues_for = requires(World& world, Model& model) {
    { model.stream() } -> std::convertible_to<decltype(world.endpoint().stream())>;
};
template <class World>
concept computes_on_device =
    has_stream_arithmetic<std::remove_cvref_t<decltype(std::declval<World&>().endpoint().stream())>> &&
    requires { sizeof(DevicePlace<World>); };
template <class Run, class World>
concept sums_on_device = requires(Run& run, World& group, DeviceSpan<float> values) { run.sum(group, values); } ||
                         requires(Run& run, World& group, DeviceSpan<float> values) { run.sum_to(group, values, 0); };
template <class Reducer, class World>
concept reduces_on_device =
    sums_on_device<decltype(std::declval<const Reducer&>().start(std::declval<World&>())), World>;

/// Of models on the host nothing is asked.
template <class World, class Model, class Policies>
struct DeviceRules {
    static constexpr bool good = true;
};
template <class World, trained_on_device Model, class Policies>
struct DeviceRules<World, Model, Policies> {
    using Guard = typename Policies::Guard;
    static constexpr bool has_device = streaming_transport<typename World::transport_type>;
    static constexpr bool has_stream = !has_device || enqueues_for<World, Model>;
    static constexpr bool has_kernels = !has_device || computes_on_device<World>;
    static constexpr bool reduces = !has_kernels || reduces_on_device<typename Policies::Reducer, World>;
    static constexpr bool unmeasured = !measured_sharding<typename Policies::Sharding>;
    using Update = typename Policies::Update;
    static constexpr bool meets_all = !served_update<Update> && !in_common<Update> && !gossips<Update>;
    static constexpr bool looks_for_finite = !Guard::inspects || requires { requires Guard::only_finite; };
    static constexpr bool good =
        has_device && has_stream && has_kernels && reduces && unmeasured && meets_all && looks_for_finite;

    /// The first rule that is broken; empty if none is.
    static constexpr std::string_view refusal =
        !has_device         ? "the model is on a device and the transport has no streams"
        : !has_stream       ? "the model on a device has no stream"
        : !has_kernels      ? "the source cannot compute on a device"
        : !reduces          ? "the reducer's verbs do not take memory of a device"
        : !unmeasured       ? "the sharding is measured first, with a model on the host"
        : !meets_all        ? "the update has servers, common memory or neighbours, which compute on the host"
        : !looks_for_finite ? "the guard looks at elements, on the host"
                            : "";
};

template <class World, class Model, class Policies>
struct DeviceOfPolicies {
    static constexpr bool good = true;
};
template <class World, trained_on_device Model, class Policies>
struct DeviceOfPolicies<World, Model, Policies> {
    using Rules = DeviceRules<World, Model, Policies>;
    static_assert(
        Rules::has_device,
        "unisono::Trainer: found a model on a device (its spans are DeviceSpan), with a group whose transport "
        "has no streams. Required: Group<Nccl> or Group<Cuda<...>>, or the model as DeviceModel. Why: its gradients "
        "are summed "
        "where they are.");
    static_assert(Rules::has_stream,
                  "unisono::Trainer: found a model on a device without stream(). Required: the stream on which it "
                  "enqueues, of the transport's type. Why: the trainer's kernels and sums come after the model's.");
    static_assert(Rules::has_kernels,
                  "unisono::Trainer: found a model on a device, in a source that cannot compute there. Required: "
                  "unisono/nccl.hpp, in a source that nvcc compiles; or the model as DeviceModel. Why: the trainer's "
                  "kernels are compiled with it.");
    static_assert(Rules::reduces,
                  "unisono::Trainer: found a model on a device, with a reducer whose verbs do not take "
                  "DeviceSpan. Required: any of the library's, or verbs that are templates of Values. Why: "
                  "gradients are summed where they are.");
    static_assert(Rules::unmeasured,
                  "unisono::Trainer: found a model on a device, with a sharding that is measured first. Required: "
                  "Replicated or StateSharding. Why: it is tried out with a model on the host.");
    static_assert(Rules::meets_all,
                  "unisono::Trainer: found a model on a device, with an update that declares `served`, `in_common` or "
                  "`gossips`. Required: one in lockstep, as Synchronous, or whose ranks all meet, as LocalSteps and "
                  "Diloco; or the model as DeviceModel. Why: servers and neighbours compute on the host.");
    static_assert(Rules::looks_for_finite,
                  "unisono::Trainer: found a model on a device, with a guard that does not declare `only_finite`. "
                  "Required: FiniteGuard or NoGuard. Why: any other looks at elements, on the host.");
    static constexpr bool good = Rules::good;
};

} // namespace detail
UNISONO_NAMESPACE_END
