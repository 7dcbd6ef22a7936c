#pragma once

/// \file
/// The options of a rendezvous, and the rendezvous point of a job's processes: a known address, or
/// a file in a common folder.

#include "unisono/core/time.hpp"
#include "unisono/extensions/launch/rendezvous/identity.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_rules.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"

#include <chrono>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {
inline constexpr std::chrono::nanoseconds usual_notice_after = std::chrono::seconds(3);
} // namespace detail

/// Options of a rendezvous.
struct RendezvousOptions {
    std::chrono::nanoseconds timeout = std::chrono::minutes(5); ///< time until all ranks have come
    /// Time for which rank 0 waits for the others at the end.
    std::chrono::nanoseconds linger = std::chrono::minutes(5);
    /// Time after which a waiting rank first reports that on standard error; 0: never.
    /// UNISONO_NOTICE_AFTER takes precedence (waiting_notice.hpp).
    std::chrono::nanoseconds notice_after = detail::usual_notice_after;
    /// Ranks on several hosts may have a rendezvous without a secret: any process that can reach
    /// their ports can take part, which is right only if you trust all machines that can.
    /// UNISONO_TRUSTED_NETWORK=1 has the same effect. See docs/security.md.
    bool trusted_network = false;

    friend bool operator==(const RendezvousOptions&, const RendezvousOptions&) = default;
};

namespace detail {
/// The process that started this rank, by number and start time: the parent, or, if that is a
/// script that the launcher started as this rank, the parent's. The ranks that one launcher started
/// on a host have the same one.
std::string parent_process();
/// As above, for messages: "mpirun (process 4711)".
std::string name_of_parent_process();
} // namespace detail

/// The rendezvous point of this process's job, from its environment. Pure, except for the user's
/// name and the owner of XDG_RUNTIME_DIR. `parent` identifies the process that started this one.
///
/// In this order: UNISONO_HUB=host:port (a launcher listens there); UNISONO_MASTER=host:port (rank
/// 0 listens); UNISONO_FOLDER (common to all; UNISONO_JOB distinguishes jobs that use it at the
/// same time); MASTER_ADDR and MASTER_PORT or PET_MASTER_*. Otherwise, on one host, a folder of
/// this user in XDG_RUNTIME_DIR or /tmp; on several hosts, the first host of SLURM_JOB_NODELIST or
/// SM_HOSTS. If torchrun has its own store at MASTER_PORT, ranks of one host use a file, and ranks
/// of several hosts use the next ports.
///
/// The job's secret is UNISONO_TOKEN or the text of UNISONO_TOKEN_FILE. Without one, ranks of one
/// host use a file that only this user can read, in which rank 0 writes a secret that it draws,
/// even if an address is given. With UNISONO_TRUSTED_NETWORK=1 there is no secret.
/// Errors: bad_input for malformed variables; refused if there is no rendezvous point, or if ranks
/// of several hosts have no secret.
RendezvousPoint rendezvous_point(const Environment& environment, const Identity& me,
                                 std::string_view parent = detail::parent_process());

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {
/// True if the process was started with the variables by which launchers number this process, as a
/// script is that a launcher started in this rank's place.
inline bool is_started_as_this_rank(int process) {
    std::string theirs;
    if (std::FILE* const file = std::fopen(concat({"/proc/", process, "/environ"}).c_str(), "re")) {
        char part[4096];
        for (std::size_t got = 1; got != 0; theirs.append(part, got)) got = std::fread(part, 1, sizeof part, file);
        static_cast<void>(std::fclose(file));
    }
    int same = 0;
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK", "LOCAL_RANK", "SLURM_PROCID"}) {
        const char* const value = std::getenv(name); // NOLINT(concurrency-mt-unsafe): the library never sets one
        if (value == nullptr) continue;
        const std::string entry = concat({std::string_view("\0", 1), name, "=", value, std::string_view("\0", 1)});
        if ((std::string(1, '\0') + theirs).find(entry) == std::string::npos) return false;
        ++same;
    }
    return same > 0;
}

/// The number of the process that started this rank.
inline int number_of_parent_process() {
    int process = ::getppid();
    for (int above = 0; is_started_as_this_rank(process); process = above)
        if (!parse_number(process_field(process, 4), 1, std::numeric_limits<int>::max(), above)) break;
    return process;
}

UNISONO_DEFINITION std::string parent_process() {
    const int parent = number_of_parent_process();
    return concat({parent, "@", process_field(parent, 22)});
}

UNISONO_DEFINITION std::string name_of_parent_process() {
    const int parent = number_of_parent_process();
    std::string name = read_small_file(concat({"/proc/", parent, "/comm"}));
    if (name.ends_with('\n')) name.pop_back();
    return concat({name.empty() ? "unknown" : name, " (process ", parent, ")"});
}
} // namespace detail

UNISONO_DEFINITION RendezvousPoint rendezvous_point(const Environment& environment, const Identity& me,
                                                    std::string_view parent) {
    RendezvousPoint point;
    const std::string* host = environment.find("MASTER_ADDR");
    const std::string* port = environment.find("MASTER_PORT");
    if (host == nullptr && port == nullptr) {
        host = environment.find("PET_MASTER_ADDR");
        port = environment.find("PET_MASTER_PORT");
    }
    const std::string* store = environment.find("TORCHELASTIC_USE_AGENT_STORE");
    const bool taken = store != nullptr && (*store == "True" || *store == "1");
    const bool one_host = me.hosts == 1;

    if (const std::string* hub = environment.find("UNISONO_HUB")) {
        detail::parse_address("UNISONO_HUB", *hub, point);
        point.launcher_listens = true;
        if (const std::string* process = environment.find("UNISONO_LAUNCHER_PROCESS"))
            static_cast<void>(parse_number(*process, 1, std::numeric_limits<int>::max(), point.launcher));
        const auto secret = detail::given_secret(environment);
        if (!secret) refuse_input("UNISONO_HUB is set, but UNISONO_TOKEN is not");
        point.token = *secret;
    } else if (const std::string* master = environment.find("UNISONO_MASTER")) {
        detail::parse_address("UNISONO_MASTER", *master, point);
    } else if (const std::string* folder = environment.find("UNISONO_FOLDER")) {
        if (folder->empty()) refuse_input("UNISONO_FOLDER is empty, expected the path of a folder that all ranks see");
        detail::meet_by_file(environment, folder, parent, point);
        point.ports = PortRange::of(environment);
        if (const std::string* name = detail::given_host(environment)) point.listen_host = *name;
        else if (!one_host) point.listen_host = "*"; // replaced by this host's name
    } else if (host != nullptr || port != nullptr) {
        if (host == nullptr || port == nullptr)
            refuse_input({host == nullptr ? "MASTER_PORT" : "MASTER_ADDR", " is set, but ",
                          host == nullptr ? "MASTER_ADDR" : "MASTER_PORT", " is not"});
        int number = 0;
        point.host = detail::host_in(*host);
        if (!detail::parse_count(detail::trimmed(*port), 65535, number) || number == 0 || point.host.empty())
            refuse_input({"MASTER_ADDR=", detail::quoted(*host), " and MASTER_PORT=", detail::quoted(*port),
                          ": expected a host and a port from 1 to 65535"});
        point.port = static_cast<std::uint16_t>(number);
        if (taken && one_host) {
            detail::meet_by_file(environment, nullptr, parent, point);
        } else if (taken) {
            if (number > 65535 - 9)
                refuse_input({"MASTER_PORT=", *port, " is taken by torchrun, and no port is above it"});
            ++point.port;
            point.further_ports = 7;
        }
    } else if (one_host) {
        detail::meet_by_file(environment, nullptr, parent, point);
    } else {
        const std::string* nodes = environment.find("SLURM_JOB_NODELIST");
        const std::string* hosts = environment.find("SM_HOSTS");
        const std::string* job = environment.find("SLURM_JOB_ID");
        std::vector<std::string> names;
        if (me.launcher == Launcher::srun && nodes != nullptr) point.host = detail::first_host(*nodes);
        if (hosts != nullptr && detail::parse_hosts(*hosts, names)) point.host = names.front();
        const std::uint64_t number = job == nullptr ? 0 : read_number<std::uint64_t>(*job, "SLURM_JOB_ID");
        point.port = static_cast<std::uint16_t>(20'000 + number % 10'000); // below the ports that systems assign
        point.further_ports = 7;
        if (point.host.empty())
            throw error(
                ErrorCode::refused,
                concat({"nothing says where the ", me.world, " ranks (launcher: ", name_of(me.launcher),
                        ") meet: set MASTER_ADDR and MASTER_PORT, or UNISONO_FOLDER to a folder that all hosts see"}));
    }
    if (point.folder.empty() && !point.launcher_listens) detail::guard_address(environment, me, point);
    return point;
}

UNISONO_NAMESPACE_END
#endif
