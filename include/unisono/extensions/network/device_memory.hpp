#pragma once

/// \file
/// Device memory for a network that can send from it and receive into it directly.

#include "unisono/core/error.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A request for direct transfers, set by Cuda<Network>. Without memory to try nothing is
/// requested.
struct DeviceMemoryWish {
    const std::byte* probe = nullptr; ///< device memory to try: if the network can reach it, transfers are direct
    std::size_t probe_bytes = 0;
    int device = 0;
    bool required = false; ///< false: what cannot be transferred directly passes through the host
    bool of_host = false;  ///< the runtime's device memory is host memory
    /// The address at which the network finds the program's device address; nullptr: the same one.
    std::byte* (*seen)(const std::byte*) = nullptr;

    friend bool operator==(const DeviceMemoryWish&, const DeviceMemoryWish&) = default;
};

/// How a network sees the memory of a device whose runtime has this type of streams: as CUDA's, at
/// the same address. A runtime with the same API and its memory elsewhere specialises it.
template <class Stream>
struct SightOfDevice {
    static constexpr bool of_host = false;
    static constexpr std::byte* (*seen)(const std::byte*) = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
