#pragma once

/// \file
/// Asks a network to move device memory directly: it gets some of that memory to try.

#include "unisono/transport/cuda/memory.hpp"
#include "unisono/transport/cuda/options.hpp"
#include "unisono/transport/network/device_memory.hpp"

#include <cstddef>
#include <memory>

UNISONO_NAMESPACE_BEGIN
namespace detail {

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
        if constexpr (requires { options.network.device_memory; }) {
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
