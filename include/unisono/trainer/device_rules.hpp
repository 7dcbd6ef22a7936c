#pragma once

/// \file
/// The rules for models on a device: what such a model requires of its group and of the policies. A
/// table of rules, as in policy_rules.hpp.

#include "unisono/arithmetic/stream_kernel.hpp"
#include "unisono/core/device_span.hpp"
#include "unisono/core/rule.hpp"
#include "unisono/core/value.hpp"
#include "unisono/model/model.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/transport/transport.hpp"

#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class World, class Model>
concept enqueues_for = requires(World& world, Model& model) {
    { model.stream() } -> detail::converts_to<decltype(world.endpoint().stream())>;
};
template <class World>
concept computes_on_device =
    has_stream_arithmetic<std::remove_cvref_t<decltype(std::declval<World&>().endpoint().stream())>> &&
    requires { sizeof(DeviceKernels<float, World>); };
template <class Guard>
inline constexpr bool looks_for_finite = requires { requires Guard::only_finite; };
template <class Run, class World>
concept sums_on_device = requires(Run& run, World& group, DeviceSpan<float> values) { run.sum(group, values); } ||
                         requires(Run& run, World& group, DeviceSpan<float> values) { run.sum_to(group, values, 0); };
template <class Reducer, class World>
concept reduces_on_device =
    sums_on_device<decltype(std::declval<const Reducer&>().start(std::declval<World&>())), World>;

namespace rule {

UNISONO_RULE(device_has_streams, "the model is on a device and the transport has no streams",
             "a model on a device (its spans are DeviceSpan), with a group whose transport has no streams",
             "Group<Nccl> or Group<Cuda<...>>, or the model as DeviceModel", "its gradients are summed where they are",
             streaming_transport<typename P::World::transport_type>);
UNISONO_RULE(device_model_has_stream, "the model on a device has no stream", "a model on a device without stream()",
             "the stream on which it enqueues, of the transport's type",
             "the trainer's kernels and sums come after the model's",
             enqueues_for<typename P::World, typename P::Model>);
UNISONO_RULE(
    device_has_kernels, "the source cannot compute on a device",
    "a model on a device, in a source that cannot compute there",
    "unisono/nccl.hpp or unisono/cuda.hpp, linked to the CMake target unisono::devices or in a source that nvcc "
    "compiles; or the model as DeviceModel",
    "nvcc compiles the trainer's kernels, for that library or with the source", computes_on_device<typename P::World>);
UNISONO_RULE(device_reducer, "the reducer's verbs do not take memory of a device",
             "a model on a device, with a reducer whose verbs do not take DeviceSpan",
             "any of the library's, or verbs that are templates of Values", "gradients are summed where they are",
             reduces_on_device<typename P::Reducer, typename P::World>);
UNISONO_RULE(device_meets_all, "the update computes on the host",
             "a model on a device, with an update that declares neither `agrees` nor `on_device`",
             "one in lockstep, as Synchronous, or that synchronises all ranks, as LocalSteps and Diloco; or the model "
             "as DeviceModel",
             "servers and neighbours compute on the host", updates_on_device<typename P::Update>);
UNISONO_RULE(device_guard, "the guard looks at elements, on the host",
             "a model on a device, with a guard that does not declare `only_finite`", "FiniteGuard or NoGuard",
             "any other looks at elements, on the host",
             !inspects<typename P::Guard> || looks_for_finite<typename P::Guard>);

} // namespace rule

/// Applies only to models on a device.
using DeviceRules = RuleTable<rule::device_has_streams, rule::device_model_has_stream, rule::device_has_kernels,
                              rule::device_reducer, rule::device_meets_all, rule::device_guard>;

} // namespace detail
UNISONO_NAMESPACE_END
