// Policies that a model on a device does not support are refused with the reason, by the rules of a
// Trainer.
#include "unisono/compression/compression.hpp"
#include "unisono/extensions/device/kernels.hpp"
#include "unisono/extensions/device/master_weights.hpp"
#include "unisono/extensions/nccl/nccl.hpp"
#include "unisono/extensions/updates/gossip.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/reducer/scheduled.hpp"
#include "unisono/sharding/sharding.hpp"
#include "unisono/trainer/rules.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/unisono.hpp"
#include "unisono/update/update.hpp"

namespace un = unisono;

struct Model {
    un::DeviceSpan<float> parameters() { return {}; }
    un::DeviceSpan<float> gradients() { return {}; }
    cudaStream_t stream() { return {}; }
};
struct WithoutStream {
    un::DeviceSpan<float> parameters() { return {}; }
    un::DeviceSpan<float> gradients() { return {}; }
};
struct Narrow {
    un::DeviceSpan<un::bfloat16> parameters() { return {}; }
    un::DeviceSpan<un::bfloat16> gradients() { return {}; }
    cudaStream_t stream() { return {}; }
};
struct OddGuard : un::FiniteGuard {
    static constexpr bool only_finite = false;
};

#ifndef CASE_no_compiler_for_the_device
template <>
struct un::StreamArithmetic<cudaStream_t> {
    explicit StreamArithmetic(cudaStream_t) {}
};
#endif

struct Chosen {
    using Reducer = un::NativeReducer;
    using Compression = un::NoCompression;
    using Sharding = un::Replicated;
    using Update = un::Synchronous;
    using Guard = un::FiniteGuard;
};
/// Its functions take only memory of the host.
struct OwnReducer {
    struct Run {
        template <class World, class T>
        un::Operation sum(World&, std::span<T>) const {
            return {};
        }
    };
    template <class World>
    Run start(World&) const {
        return {};
    }
};
struct OfTheHost : Chosen {
    using Reducer = OwnReducer;
};
struct Gossiping : Chosen {
    using Update = un::Gossip;
};
struct Guarded : Chosen {
    using Guard = OddGuard;
};
template <class M, class Policies>
inline constexpr bool asked =
    un::detail::DeviceRules::asserted<un::detail::ChosenTraining<un::Group<un::Nccl>, M, Policies>>;

#ifdef CASE_transport
// expect: unisono::Trainer: found a model on a device (its spans are DeviceSpan), with a group whose transport has no streams.
static_assert(!un::detail::DeviceRules::asserted<un::detail::ChosenTraining<un::Group<un::InProcess>, Model, Chosen>>);
#endif

#ifdef CASE_policies
// expect: unisono::Trainer: found a model on a device without stream(). Required: the stream on which it enqueues
// expect: unisono::Trainer: found a model on a device, with a reducer whose verbs do not take DeviceSpan.
// expect: unisono::Trainer: found a model on a device, with an update that declares neither `agrees` nor `on_device`.
// expect: unisono::Trainer: found a model on a device, with a guard that does not declare `only_finite`.
// expect: unisono::MasterWeights: found a model on a device, and no group. Required: MasterWeights(world, model).
// expect: unisono::MasterWeights: found a model on a device, and a world whose ranks have no device.
static_assert(asked<Model, Chosen>);
static_assert(!asked<WithoutStream, Chosen>);
static_assert(!asked<Model, OfTheHost>);
static_assert(!asked<Model, Gossiping>);
static_assert(!asked<Model, Guarded>);
void without_group(Narrow& model) { un::MasterWeights master(model); }
void without_device(un::Group<un::InProcess>& world, Narrow& model) { un::MasterWeights master(world, model); }
#endif

#ifdef CASE_no_compiler_for_the_device
// expect: unisono::Trainer: found a model on a device, in a source that cannot compute there. Required: unisono/nccl.hpp or unisono/cuda.hpp, linked to the CMake target unisono::devices
static_assert(!asked<Model, Chosen>);
#endif
