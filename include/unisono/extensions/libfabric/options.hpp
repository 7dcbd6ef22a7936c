#pragma once

/// \file
/// The provider, interface and ports of a world over libfabric, from the program or else the
/// environment.

#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/network/options.hpp"

#include <cstddef>
#include <string>

UNISONO_NAMESPACE_BEGIN

/// The provider, interface and ports that a rank uses.
struct LibfabricOptions {
    /// The provider's name as in `fi_info`: "net", "tcp;ofi_rxm", "verbs;ofi_rxm", "efa", "shm".
    /// Empty: UNISONO_PROVIDER, else the fastest network of the machine. The same on all ranks.
    std::string provider = {};
    /// Name (eth0) or address (10.0.0.1) of a network interface, or name of a provider's domain
    /// (mlx5_0). Empty: UNISONO_INTERFACE; else the loopback if all ranks are on one host, or the
    /// provider's first interface that other hosts reach. shm has none.
    std::string interface = {};
    /// The port at which this rank listens, if the provider's addresses have ports. Empty:
    /// UNISONO_PORT_RANGE, else any.
    PortRange port_range = {};
    /// Messages up to this size are sent at once, into buffers that their receiver has posted: 16
    /// buffers of this size, or 4 if it is above 64 KiB. 0: the size that was measured to be best
    /// for the provider. If ranks differ, the smaller size is used.
    std::size_t eager_bytes = 0;

    friend bool operator==(const LibfabricOptions&, const LibfabricOptions&) = default;

    /// These options, completed from the environment. Errors: bad_input.
    [[nodiscard]] LibfabricOptions with(const Environment& environment) const {
        LibfabricOptions all = *this;
        const std::string* const provider_name = environment.find("UNISONO_PROVIDER");
        if (all.provider.empty() && provider_name != nullptr) all.provider = *provider_name;
        const std::string* const interface_name = environment.find("UNISONO_INTERFACE");
        if (all.interface.empty() && interface_name != nullptr) all.interface = *interface_name;
        const std::string* const ports = environment.find("UNISONO_PORT_RANGE");
        if (all.port_range == PortRange{} && ports != nullptr)
            all.port_range = PortRange::parse(*ports, "UNISONO_PORT_RANGE");
        return all;
    }
};

UNISONO_NAMESPACE_END
