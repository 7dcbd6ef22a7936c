#pragma once

/// \file
/// The rendezvous point of a job's processes, as a value.

#include "unisono/extensions/launch/secrets/token.hpp"

#include <cstdint>
#include <string>

UNISONO_NAMESPACE_BEGIN

/// The listener is rank 0, or a launcher that outlives the ranks. The address is in `host` and
/// `port`, or in the file `folder`/`job`.meet, which rank 0 writes.
struct RendezvousPoint {
    std::string host = {};           ///< name or address; empty: it is in the file
    std::uint16_t port = 0;          ///< with a folder: the system chooses it
    std::uint16_t further_ports = 0; ///< further ports to try after `port` if it is taken
    std::string folder = {};         ///< private to the user, visible to all ranks; empty: none
    bool by_parent = false;          ///< the file's name also depends on the process that started the ranks
    bool own_folder = false;         ///< the library makes the folder for this user alone, and removes it
    std::string job = "job";         ///< name of the file: different for jobs that run at the same time
    bool launcher_listens = false;   ///< the launcher listens, and not rank 0
    int launcher = 0;                ///< the process that listens, if it is on this host; 0: unknown
    JobToken token = {};             ///< the job's secret; with a folder, rank 0 draws it and writes it to the file
    std::string listen_host = {};    ///< with a folder: the address at which others reach rank 0

    friend bool operator==(const RendezvousPoint&, const RendezvousPoint&) = default;
};

UNISONO_NAMESPACE_END
