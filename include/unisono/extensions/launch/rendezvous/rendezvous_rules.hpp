#pragma once

/// \file
/// The rendezvous point of a job's processes, as a value, the secret that a user gives to the job
/// (UNISONO_TOKEN, or a file that UNISONO_TOKEN_FILE names), and the rules by which a process's
/// environment determines them.

#include "unisono/core/descriptor.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/number.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/rendezvous/identity.hpp"
#include "unisono/extensions/launch/secrets/token.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/launch/sockets/interface.hpp"
#include "unisono/launch/host.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN

/// The listener is rank 0, or a launcher that outlives the ranks. The address is in `host` and
/// `port`, or in the file `folder`/`job`.meet, which rank 0 writes.
struct RendezvousPoint {
    std::string host = {};           ///< name or address; empty: it is in the file
    std::uint16_t port = 0;          ///< with a folder: chosen by rank 0
    std::uint16_t further_ports = 0; ///< further ports to try after `port` if it is taken
    std::string folder = {};         ///< private to the user, visible to all ranks; empty: none
    bool by_parent = false;          ///< the file's name also depends on the process that started the ranks
    bool own_folder = false;         ///< the library makes the folder for this user alone, and removes it
    std::string job = "job";         ///< name of the file: different for jobs that run at the same time
    bool launcher_listens = false;   ///< the launcher listens, and not rank 0
    int launcher = 0;                ///< the process that listens, if it is on this host; 0: unknown
    JobToken token = {};             ///< the job's secret; with a folder, rank 0 draws it and writes it to the file
    std::string listen_host = {};    ///< with a folder: the address at which others reach rank 0
    PortRange ports = {};            ///< with a folder: from which rank 0 chooses the port, if other hosts reach it

    friend bool operator==(const RendezvousPoint&, const RendezvousPoint&) = default;
};

namespace detail {

/// Reads 32 hexadecimal digits, followed by white space. The file must belong to this user or root,
/// and no other user may be able to read it; a link to it may belong to another user, as in
/// Kubernetes. Errors: refused, bad_input.
inline JobToken read_token_file(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid())
        throw error(ErrorCode::refused,
                    concat({"cannot read UNISONO_TOKEN_FILE=", detail::quoted(path), ": ", errno_text(errno)}));
    struct stat about = {};
    if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
        (about.st_uid != ::geteuid() && about.st_uid != 0) || (about.st_mode & 077) != 0) {
        throw error(
            ErrorCode::refused,
            concat({"UNISONO_TOKEN_FILE=", detail::quoted(path),
                    " is not a file that this user alone can read; expected one that this user owns, with mode 0600"}));
    }
    char text[256];
    const ssize_t got = ::read(file.get(), text, sizeof text);
    std::string_view digits(text, got > 0 ? static_cast<std::size_t>(got) : 0);
    while (!digits.empty() && (digits.back() == '\n' || digits.back() == '\r' || digits.back() == ' '))
        digits.remove_suffix(1);
    return JobToken::parse(digits, "UNISONO_TOKEN_FILE's file");
}

/// Returns nothing if no secret was given. Errors: refused, bad_input.
inline std::optional<JobToken> given_secret(const Environment& environment) {
    const std::string* const text = environment.find("UNISONO_TOKEN");
    const std::string* const file = environment.find("UNISONO_TOKEN_FILE");
    if (text != nullptr && file != nullptr)
        refuse_input("UNISONO_TOKEN and UNISONO_TOKEN_FILE are both set, expected one of them");
    if (text != nullptr) return JobToken::parse(*text);
    if (file != nullptr) return read_token_file(*file);
    return std::nullopt;
}

/// True if the environment says that the job needs no secret. Errors: bad_input.
inline bool trusts_network(const Environment& environment) {
    const std::string* const said = environment.find("UNISONO_TRUSTED_NETWORK");
    if (said == nullptr || *said == "0") return false;
    if (*said != "1") refuse_input({"UNISONO_TRUSTED_NETWORK is ", detail::quoted(*said), ", expected 0 or 1"});
    return true;
}

/// The advice for jobs without a secret.
inline constexpr std::string_view how_to_give_a_secret =
    "set UNISONO_TOKEN to the same 32 hexadecimal digits on all ranks (od -An -N16 -tx1 /dev/urandom | tr -d ' ' draws "
    "some), or UNISONO_TOKEN_FILE to a file of mode 0600 that has them; or, where only machines that you trust reach "
    "this network, UNISONO_TRUSTED_NETWORK=1 (RendezvousOptions::trusted_network in a program)";

/// Without the blanks around it, which scripts and YAML leave there.
inline std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n";
    const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
    return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}
/// A host's name or address: without blanks around it, and without the brackets of "[::1]".
inline std::string_view host_in(std::string_view text) {
    text = trimmed(text);
    const bool bracketed = text.size() > 2 && text.front() == '[' && text.back() == ']';
    return bracketed ? text.substr(1, text.size() - 2) : text;
}

/// Parses "host:port" or "[v6]:port". Errors: bad_input, which names the variable.
inline void parse_address(std::string_view variable, std::string_view all, RendezvousPoint& point) {
    const std::string_view text = trimmed(all);
    const std::size_t colon = text.rfind(':');
    int port = 0;
    if (colon == std::string_view::npos || colon == 0 || !parse_count(text.substr(colon + 1), 65535, port) ||
        port == 0) {
        refuse_input({variable, " is ", detail::quoted(text), ", expected host:port with a port from 1 to 65535"});
    }
    point.host = host_in(text.substr(0, colon));
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
    for (const std::string_view name : names)
        if (const std::string* value = environment.find(name)) found += concat({name, "=", *value, ";"});
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

inline bool names_openmpis_job(const Environment& environment) {
    return environment.find("OMPI_COMM_WORLD_RANK") != nullptr &&
           (environment.find("PMIX_NAMESPACE") != nullptr || environment.find("OMPI_MCA_ess_base_jobid") != nullptr);
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
inline std::string own_rendezvous_folder(const Environment& environment) {
    const std::string* const runtime = environment.find("XDG_RUNTIME_DIR");
    struct stat about = {};
    if (runtime != nullptr && runtime->starts_with('/') && ::stat(runtime->c_str(), &about) == 0 &&
        S_ISDIR(about.st_mode) && about.st_uid == ::geteuid() && (about.st_mode & 077) == 0)
        return concat({*runtime, "/unisono"});
    return concat({"/tmp/unisono-", ::geteuid()});
}

/// Sets a rendezvous by a file in a folder: the given folder, or this user's on this host.
inline void meet_by_file(const Environment& environment, const std::string* folder, std::string_view parent,
                         RendezvousPoint& point) {
    point.folder = folder != nullptr ? *folder : own_rendezvous_folder(environment);
    point.own_folder = folder == nullptr;
    point.host.clear();
    point.port = 0;
    if (const std::string* job = environment.find("UNISONO_JOB")) {
        if (!is_file_name(*job))
            refuse_input(
                {"UNISONO_JOB is ", detail::quoted(*job), ", expected up to 100 letters, digits, '_', '-' or '.'"});
        point.job = *job;
    } else if (const std::string known = job_at_address(environment); folder == nullptr || !known.empty()) {
        // Open MPI names its jobs. Otherwise jobs of one user differ in the process that started
        // their ranks.
        point.by_parent = folder == nullptr && !parent.empty() && !names_openmpis_job(environment);
        point.job = JobToken::derived_from(point.by_parent ? known + std::string(parent) : known).text();
    }
}

/// For errors about a file or folder that must be this user's alone: what it is instead.
inline std::string whose(const struct stat& about) {
    if (about.st_uid == ::geteuid()) return {};
    return concat({" (it belongs to user ", about.st_uid, ", and this process is user ", ::geteuid(),
                   about.st_uid == 65534 || ::geteuid() == 0
                       ? "; a network file system with root_squash gives root's files to nobody: run as another user, "
                         "or name a folder of a local disk"
                       : "",
                   ")"});
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
inline void guard_address(const Environment& environment, const Identity& me, RendezvousPoint& point) {
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
UNISONO_NAMESPACE_END
