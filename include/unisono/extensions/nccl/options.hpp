#pragma once

/// \file
/// Options of ranks over NCCL, from the program or the environment.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/tcp/tcp.hpp"

#include <cstddef>
#include <string>

UNISONO_NAMESPACE_BEGIN

/// The device of a rank, and the network over which ranks exchange messages.
struct NcclOptions {
    /// For host messages; NCCL chooses a network of its own (NCCL_SOCKET_IFNAME, NCCL_IB_HCA) for
    /// device data.
    TcpOptions network = {};
    int device = -1; ///< as this process numbers them; -1: the one with the rank's number on its host
    /// The size from which on native collectives on host memory pass through the device; smaller
    /// ones use messages. Equal on all ranks. 0: UNISONO_NCCL_STAGED_BYTES, else 65,536 (chosen,
    /// not measured).
    std::size_t staged_bytes = 0;

    /// The number of a group's NCCL collectives per check. In a check the ranks compare, by
    /// messages, what they have started since the last one. 0: UNISONO_NCCL_CHECK_EVERY, else 1.
    /// Equal on all ranks. More than 1 saves messages, a few microseconds per call, but a mismatch
    /// is found later, and only at the deadline if NCCL hangs because of it.
    int check_every = 0;

    friend bool operator==(const NcclOptions&, const NcclOptions&) = default;

    /// These options, completed from the environment. Errors: bad_input.
    [[nodiscard]] NcclOptions with(const Environment& environment) const {
        NcclOptions all = *this;
        all.network = network.with(environment);
        if (device < -1) refuse_input({"NcclOptions::device is ", device, "; expected -1 or a device's number"});
        if (check_every < 0) refuse_input({"NcclOptions::check_every is ", check_every, "; expected 0 or more"});
        if (all.staged_bytes == 0)
            all.staged_bytes = static_cast<std::size_t>(said_by(environment, "UNISONO_NCCL_STAGED_BYTES", 65536));
        if (all.check_every == 0) all.check_every = said_by(environment, "UNISONO_NCCL_CHECK_EVERY", 1);
        return all;
    }

private:
    static int said_by(const Environment& environment, const char* name, int otherwise) {
        const std::string* const said = environment.find(name);
        if (said == nullptr) return otherwise;
        int number = 0;
        if (!detail::parse_count(*said, 1 << 30, number) || number == 0)
            refuse_input({name, " must be a number from 1 to 2^30, found ", detail::quoted(*said)});
        return number;
    }
};

UNISONO_NAMESPACE_END
