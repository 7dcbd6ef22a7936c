#pragma once

/// \file
/// Which provider, interface and ports a world over libfabric uses: said by the program, else by the environment.

#include "unisono/transport/network/device_memory.hpp"
#include "unisono/transport/network/options.hpp"

#include <cstddef>
#include <string>

UNISONO_NAMESPACE_BEGIN

/// Which provider and interface a rank uses.
struct LibfabricOptions {
    /// As `fi_info` names it: "net", "tcp;ofi_rxm", "verbs;ofi_rxm", "efa", "shm". Empty: as UNISONO_PROVIDER says; else the
    /// fastest network that the machine has. The same on all ranks.
    std::string provider = {};
    /// Name (eth0) or address (10.0.0.1) of a network interface, or name of a provider's domain (mlx5_0). Empty: as
    /// UNISONO_INTERFACE says; else the loopback where all ranks are of one host, and where not, the provider's first that other
    /// hosts reach. shm has none.
    std::string interface = {};
    /// Of the port that this rank listens at, where the provider's addresses have ports; none: as UNISONO_PORT_RANGE says, else any.
    PortRange port_range = {};
    /// Messages up to this size are sent at once, into memory that their receiver keeps ready (16 times so much; above 64 KiB 4 times). 0: what was measured to
    /// be best for the provider. Where ranks differ, the smaller one holds.
    std::size_t eager_bytes = 0;
    /// Of a device, to send from and receive into: set by Cuda<Libfabric> (CudaOptions::transfers).
    detail::DeviceMemoryWish device_memory = {};

    friend bool operator==(const LibfabricOptions&, const LibfabricOptions&) = default;

    /// With what the environment says where these say nothing. Errors: bad_input.
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
