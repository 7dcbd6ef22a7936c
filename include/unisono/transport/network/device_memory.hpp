#pragma once

/// \file
/// Device memory for a network that can send from it and receive into it directly.

#include "unisono/core/error.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Set by Cuda<Network>; nothing is wanted where there is nothing to try with.
struct DeviceMemoryWish {
    const std::byte* probe = nullptr; ///< some of it: whether the network can reach that decides
    std::size_t probe_bytes = 0;
    int device = 0;
    bool required = false; ///< else what cannot go straight goes through the host
    bool of_host = false;  ///< a runtime whose memory of a device is the host's
    /// Where the network finds what the program knows at an address; nullptr: there.
    std::byte* (*seen)(const std::byte*) = nullptr;

    friend bool operator==(const DeviceMemoryWish&, const DeviceMemoryWish&) = default;
};

/// How a network sees memory of a device whose runtime has this type of streams: as CUDA's, at the
/// same address. A runtime with the same API and its memory elsewhere specialises this.
template <class Stream>
struct SightOfDevice {
    static constexpr bool of_host = false;
    static constexpr std::byte* (*seen)(const std::byte*) = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
