#pragma once

/// \file
/// What a program, or its environment, says about ranks over NCCL.

#include "unisono/launch/environment.hpp"
#include "unisono/transport/tcp.hpp"

#include <cstddef>
#include <string>

UNISONO_NAMESPACE_BEGIN

/// Which device a rank has, and by which network the ranks talk about what they do.
struct NcclOptions {
    TcpOptions network =
        {}; ///< for messages of the host's; what NCCL uses is NCCL's business (NCCL_SOCKET_IFNAME, NCCL_IB_HCA)
    int device = -1; ///< as this process numbers them; -1: the one of the rank's number on its host
    /// Collectives on memory of the host go through the device from so many bytes on, by native schedules; smaller ones by messages.
    /// Equal on all ranks. 0: as UNISONO_NCCL_STAGED_BYTES says, else 65,536 (chosen, not measured).
    std::size_t staged_bytes = 0;

    friend bool operator==(const NcclOptions&, const NcclOptions&) = default;

    /// With what the environment says where these say nothing. Errors: bad_input.
    [[nodiscard]] NcclOptions with(const Environment& environment) const {
        NcclOptions all = *this;
        all.network = network.with(environment);
        if (device < -1) refuse_input({"NcclOptions::device is ", device, "; expected -1 or a device's number"});
        if (all.staged_bytes != 0) return all;
        all.staged_bytes = 65536;
        if (const std::string* const said = environment.find("UNISONO_NCCL_STAGED_BYTES")) {
            int bytes = 0;
            if (!detail::parse_count(*said, 1 << 30, bytes) || bytes == 0)
                refuse_input(
                    {"UNISONO_NCCL_STAGED_BYTES must be a number from 1 to 2^30, found ", detail::quoted(*said)});
            all.staged_bytes = static_cast<std::size_t>(bytes);
        }
        return all;
    }
};

UNISONO_NAMESPACE_END
