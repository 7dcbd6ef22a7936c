#pragma once

/// \file
/// The rendezvous point of a job's processes: a known address, or a file in a common folder.

#include "unisono/core/number.hpp"
#include "unisono/launch/host.hpp"
#include "unisono/launch/identity.hpp"
#include "unisono/launch/secret.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN

/// The listener is rank 0, or a launcher that outlives the ranks. The address is in `host` and
/// `port`, or in the file `folder`/`job`.meet, which rank 0 writes.
struct MeetingPoint {
    std::string host = {};           ///< name or address; empty: it is in the file
    std::uint16_t port = 0;          ///< with a folder: the system chooses it
    std::uint16_t further_ports = 0; ///< further ports to try after `port` if it is taken
    std::string folder = {};         ///< private to the user, visible to all ranks; empty: none
    bool own_folder = false;         ///< the library makes the folder for this user alone, and removes it
    std::string job = "job";         ///< name of the file: different for jobs that run at the same time
    bool launcher_listens = false;   ///< the launcher listens, and not rank 0
    int launcher = 0;                ///< the process that listens, if it is on this host; 0: unknown
    JobToken token = {};             ///< the job's secret; with a folder, rank 0 draws it and writes it to the file
    std::string listen_host = {};    ///< with a folder: the address at which others reach rank 0

    friend bool operator==(const MeetingPoint&, const MeetingPoint&) = default;
};

namespace detail {

/// Parses "host:port" or "[v6]:port". Errors: bad_input, which names the variable.
inline void parse_address(std::string_view variable, std::string_view text, MeetingPoint& point) {
    const std::size_t colon = text.rfind(':');
    int port = 0;
    if (colon == std::string_view::npos || colon == 0 || !parse_count(text.substr(colon + 1), 65535, port) ||
        port == 0) {
        refuse_input({variable, " is ", detail::quoted(text), ", expected host:port with a port from 1 to 65535"});
    }
    std::string_view host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    point.host = host;
    point.port = static_cast<std::uint16_t>(port);
}

/// The first host of Slurm's "node[03-07,9],other".
inline std::string first_host(std::string_view list) {
    const std::size_t open = list.find('[');
    if (open == std::string_view::npos || list.find(',') < open) return std::string(list.substr(0, list.find(',')));
    const std::size_t end = list.find_first_of("-,]", open);
    const std::size_t close = list.find(']', open);
    if (end == std::string_view::npos || close == std::string_view::npos) return {};
    const std::string_view rest = list.substr(close + 1);
    return std::string(list.substr(0, open)) + std::string(list.substr(open + 1, end - open - 1)) +
           std::string(rest.substr(0, rest.find(',')));
}

inline std::string variables_of(const Environment& environment, std::initializer_list<std::string_view> names) {
    std::string found;
    for (const std::string_view name : names) {
        if (const std::string* value = environment.find(name)) found += concat({name, "=", *value, ";"});
    }
    return found;
}

/// A text that is the same in all processes of this job and differs between jobs, as far as
/// variables tell.
inline std::string job_of(const Environment& environment) {
    std::string known = variables_of(environment, {"UNISONO_JOB", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                                   "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "TRAINING_JOB_NAME"});
    // Processes of mpirun have the step of the daemon that started them, which is none on its own
    // host. Open MPI names its job itself, also on hosts that know nothing of Slurm.
    const bool of_openmpi = environment.find("OMPI_COMM_WORLD_RANK") != nullptr;
    if (!of_openmpi || known.empty()) known += variables_of(environment, {"SLURM_JOB_ID"});
    if (!of_openmpi && environment.find("MPI_LOCALRANKID") == nullptr)
        known += variables_of(environment, {"SLURM_STEP_ID"});
    return known;
}
/// As above, with the address. In some jobs the address has different names in different processes.
inline std::string job_at_address(const Environment& environment) {
    return job_of(environment) + variables_of(environment, {"MASTER_ADDR", "MASTER_PORT"});
}

/// The parent process, by number and start time. The ranks that one launcher started on a host have
/// the same parent.
inline std::string parent_process() {
    const int parent = getppid();
    return concat({parent, "@", process_field(parent, 22)});
}

inline bool is_file_name(std::string_view text) {
    return !text.empty() && text.size() <= 100 && text.front() != '.' &&
           std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                      c == '-' || c == '.';
           });
}

/// The folder for the rendezvous of this user's processes on this host. It is below
/// XDG_RUNTIME_DIR, which the system makes for one user alone and empties when the user has logged
/// out, or else in /tmp.
inline std::string own_meeting_folder(const Environment& environment) {
    const std::string* const runtime = environment.find("XDG_RUNTIME_DIR");
    struct stat about = {};
    if (runtime != nullptr && runtime->starts_with('/') && ::stat(runtime->c_str(), &about) == 0 &&
        S_ISDIR(about.st_mode) && about.st_uid == ::geteuid() && (about.st_mode & 077) == 0)
        return concat({*runtime, "/unisono"});
    return concat({"/tmp/unisono-", ::geteuid()});
}

/// Sets a rendezvous by a file in a folder: the given folder, or this user's on this host.
inline void meet_by_file(const Environment& environment, const std::string* folder, std::string_view parent,
                         MeetingPoint& point) {
    point.folder = folder != nullptr ? *folder : own_meeting_folder(environment);
    point.own_folder = folder == nullptr;
    point.host.clear();
    point.port = 0;
    if (const std::string* job = environment.find("UNISONO_JOB")) {
        if (!is_file_name(*job)) {
            refuse_input(
                {"UNISONO_JOB is ", detail::quoted(*job), ", expected up to 100 letters, digits, '_', '-' or '.'"});
        }
        point.job = *job;
    } else if (const std::string known = job_at_address(environment); folder == nullptr || !known.empty()) {
        point.job = JobToken::derived_from(folder == nullptr ? known + std::string(parent) : known).text();
    }
}

inline constexpr std::size_t most_host_bytes = 256;

/// True if a host's name or address can be written to a rendezvous file, whose line consists of
/// words.
inline bool is_host_word(std::string_view host) {
    return !host.empty() && host.size() <= most_host_bytes &&
           std::none_of(host.begin(), host.end(), [](unsigned char c) { return c <= ' ' || c == 0x7f; });
}

/// UNISONO_HOST; null if it is not set. Errors: bad_input.
inline const std::string* given_host(const Environment& environment) {
    const std::string* const name = environment.find("UNISONO_HOST");
    if (name != nullptr && !is_host_word(*name))
        refuse_input({"UNISONO_HOST is ", detail::quoted(*name),
                      ", expected the name or address of this host, of at most ", most_host_bytes, " bytes"});
    return name;
}

/// Looks at the name only.
inline bool is_loopback_name(std::string_view host) {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// Sets the secret of a job with a known address: the given one, or, if all ranks are on this host,
/// one that rank 0 draws and writes to a file. Errors: refused if there is none, unless the network
/// is trusted.
inline void guard_address(const Environment& environment, const Identity& me, MeetingPoint& point) {
    if (const auto secret = given_secret(environment)) {
        point.token = secret->of_job(job_of(environment));
    } else if (trusts_network(environment)) {
        point.token = JobToken::derived_from(job_at_address(environment) + point.host);
    } else if (me.hosts == 1 || (me.hosts == 0 && is_loopback_name(point.host))) {
        const std::string known = concat({job_at_address(environment), point.host, ":", point.port});
        point.further_ports = 0;
        meet_by_file(environment, nullptr, {}, point);
        point.job = JobToken::derived_from(known).text();
    } else {
        throw error(ErrorCode::refused,
                    concat({"the ", me.world, " ranks (launcher: ", name_of(me.launcher), ") would meet at ",
                            point.host, ":", point.port,
                            " without a secret, where any process that reaches that port could take a rank's place: ",
                            how_to_give_a_secret}));
    }
}

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
inline MeetingPoint meeting_point(const Environment& environment, const Identity& me,
                                  std::string_view parent = detail::parent_process()) {
    MeetingPoint point;
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
        if (const std::string* name = detail::given_host(environment)) point.listen_host = *name;
        else if (!one_host) point.listen_host = "*"; // replaced by this host's name
    } else if (host != nullptr || port != nullptr) {
        if (host == nullptr || port == nullptr) {
            refuse_input({host == nullptr ? "MASTER_PORT" : "MASTER_ADDR", " is set, but ",
                          host == nullptr ? "MASTER_ADDR" : "MASTER_PORT", " is not"});
        }
        int number = 0;
        if (!detail::parse_count(*port, 65535, number) || number == 0 || host->empty()) {
            refuse_input({"MASTER_ADDR=", detail::quoted(*host), " and MASTER_PORT=", detail::quoted(*port),
                          ": expected a host and a port from 1 to 65535"});
        }
        point.host = *host;
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
        if (point.host.empty()) {
            throw error(
                ErrorCode::refused,
                concat({"nothing says where the ", me.world, " ranks (launcher: ", name_of(me.launcher),
                        ") meet: set MASTER_ADDR and MASTER_PORT, or UNISONO_FOLDER to a folder that all hosts see"}));
        }
    }
    if (point.folder.empty() && !point.launcher_listens) detail::guard_address(environment, me, point);
    return point;
}

UNISONO_NAMESPACE_END
