#pragma once

/// \file
/// All that an elastic world asks of a device: copies of the state in which a model is trained, to
/// the host and back, and whether the device has failed. Membership and recovery know nothing else
/// of devices.
///
/// A transport whose ranks have devices offers
/// - `state_copies(stream)`: an object with `to_host(to, from, bytes)` and `to_device(to, from,
///   bytes)`, which run after the earlier work of the model's stream and wait for it; the object
///   outlives the transport;
/// - `alone()`: a transport of this rank alone, on the same device;
/// - `device()`: the device's number, and an option of that name, which later memberships get, with
///   the option `is_later`: there an error of a rank's device is a device_error, which ends that
///   rank alone;
/// - `fail_alone()`: from now on the others learn of this device's failure as of a death
///   (peer_lost);
/// - `own_failure()`: the text of such a failure, after which this rank ends; empty: there is none.

#include "unisono/group/group.hpp"
#include "unisono/model/model.hpp"
#include "unisono/optimizer/optimizer.hpp"

#include <cstddef>
#include <cstring>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
}

struct HostStateCopies {
    static void to_host(void* to, const void* from, std::size_t bytes) { copy_bytes(to, from, bytes); }
    static void to_device(void* to, const void* from, std::size_t bytes) { copy_bytes(to, from, bytes); }
};

/// The copies for the model's parameters and the optimizer's arrays.
template <class World, class Model>
auto state_copies(World& world, Model& model) {
    if constexpr (model_on_device<Model>) return world.endpoint().state_copies(model.stream());
    else return HostStateCopies{};
}

/// A world in which this rank is alone.
template <class Transport>
Group<Transport> alone_beside(Group<Transport>& world) {
    if constexpr (requires { world.endpoint().alone(); }) return Group<Transport>(world.endpoint().alone());
    else return Group<Transport>();
}

/// The text of the failure of this rank's device; empty: there is none, or there is no device.
template <class Transport>
std::string failure_of_device(const Transport& endpoint) {
    if constexpr (requires { endpoint.own_failure(); }) return endpoint.own_failure();
    else return {};
}

/// The optimizer's arrays behind what a trainer shows.
template <class T>
OptimizerState<T>& arrays_behind(OptimizerState<T>& state) {
    return state;
}
template <class Shown>
auto& arrays_behind(const Shown& shown)
    requires requires { shown.referred(); }
{
    return shown.referred();
}

} // namespace detail
UNISONO_NAMESPACE_END
