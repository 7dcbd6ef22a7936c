#pragma once

/// \file
/// Asks a network to move device memory directly: it gets some of that memory to try.

#include "unisono/extensions/cuda/memory.hpp"
#include "unisono/extensions/cuda/options.hpp"
#include "unisono/extensions/network/device_memory.hpp"

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A network that may send from device memory and receive into it. `reach_device_memory` lets it
/// use memory as long as the returned object lives. Its options have `device_memory`, the request
/// for direct transfers, unless it is `told_of_devices`.
template <class T>
concept reaches_device_memory = transport<T> && requires(T& t, const T& c, const std::byte* data, std::size_t bytes) {
    { c.moves_device_memory() } -> std::same_as<bool>;
    { c.device_memory_problem() } -> std::same_as<const std::string&>;
    { t.reach_device_memory(data, bytes) } -> std::same_as<std::shared_ptr<void>>;
};

/// A network that exists before it learns of devices. `agree_on_devices(transfers, problem)` is
/// collective; then `takes_device_memory()` tells, the same on all ranks, whether the network's own
/// collectives get device memory. `move_device_memory(wish)` asks for direct messages.
template <class T>
concept told_of_devices =
    reaches_device_memory<T> && requires(T& t, const T& c, const DeviceMemoryWish& wish, const std::string& problem) {
        t.agree_on_devices(DeviceTransfers::automatic, problem);
        { c.takes_device_memory() } -> std::same_as<bool>;
        t.move_device_memory(wish);
    };

/// For a network that exists already: it reports whether it can move device memory.
inline DeviceMemoryWish wish_without_probe(int device) {
    return {
        .device = device, .of_host = SightOfDevice<cudaStream_t>::of_host, .seen = SightOfDevice<cudaStream_t>::seen};
}

/// The options of `Cuda<Network>` with the request for direct transfers, for networks that support
/// it, while the network is made. If there is no memory to try, nothing is requested.
template <class Network>
struct WithDeviceMemory {
    WithDeviceMemory(const CudaOptions<Network>& all, int device) : options(all) {
        if constexpr (reaches_device_memory<Network> && !told_of_devices<Network>) {
            if (all.transfers == DeviceTransfers::staged) return;
            try {
                probe = allocate_device(device, probe_bytes);
            } catch (const error&) { // the network tells the other ranks
                return;
            }
            options.network.device_memory = {.probe = probe.get(),
                                             .probe_bytes = probe_bytes,
                                             .device = device,
                                             .required = all.transfers == DeviceTransfers::direct,
                                             .of_host = SightOfDevice<cudaStream_t>::of_host,
                                             .seen = SightOfDevice<cudaStream_t>::seen};
        }
    }

    static constexpr std::size_t probe_bytes = 65536;
    std::shared_ptr<std::byte> probe;
    CudaOptions<Network> options;
};
template <class Network>
WithDeviceMemory(const CudaOptions<Network>&, int) -> WithDeviceMemory<Network>;

} // namespace detail
UNISONO_NAMESPACE_END
