#pragma once

/// \file
/// The command line of unisono-run.

#include "unisono/core/text.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/launch/environment.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The command line of unisono-run, parsed.
struct LaunchOptions {
    int ranks = 1;
    bool bind_to_cores = false; ///< binds rank r to the r-th available core, modulo their number
    bool label = true;          ///< each line of output begins with its rank
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max(); ///< time limit of the whole job
    std::chrono::nanoseconds grace = std::chrono::seconds(5);           ///< time from SIGTERM to SIGKILL
    /// Time from the first rank's successful end to the last rank's.
    std::chrono::nanoseconds wait = std::chrono::hours(1);
    /// For an elastic job: the other ranks continue when a rank dies, if at least this number is
    /// left; 0: not elastic.
    int least = 0;
    int most = 0;      ///< for an elastic job: lost ranks are replaced, up to this number of ranks; 0: they are not
    int restarts = 10; ///< greatest number of processes that replace lost ranks
    std::string log_dir = {};              ///< folder for files of each rank's output; empty: none
    std::vector<std::string> command = {}; ///< program and arguments

    friend bool operator==(const LaunchOptions&, const LaunchOptions&) = default;
};

namespace detail {

inline constexpr std::string_view launcher_help =
    R"(Usage: unisono-run [OPTIONS] PROGRAM [ARGUMENTS...]

Runs a program as several ranks on this machine: processes that find each other by the variables that torchrun sets (RANK,
WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and by Unisono's own. Each line that they print is
labelled with its rank. When one fails, the others are stopped.

  -n, --ranks N     Ranks (as many as there are cores); also -np N, -nN
  --bind-to-cores   Each rank to a core of its own, modulo their number
  --timeout S       Stop the job after so many seconds
  --grace S         Seconds between SIGTERM and SIGKILL for ranks that are to stop (5)
  --wait S          Once a rank has ended well: seconds until those that still run are named and stopped (3600)
  --elastic LEAST   A program with elastic worlds: when ranks die, the others live on as long as LEAST are left
  --elastic LEAST:MOST
                    Also starts a process in the place of each rank that dies; SIGUSR1 asks for a rank more, at most
                    MOST, and SIGUSR2 for one less, at least LEAST
  --restarts N      With LEAST:MOST, at most N processes in the place of ranks that died (10)
  --log-dir DIR     Write each rank's output to DIR/rank_R.out and DIR/rank_R.err as well
  --no-label        Lines as they are
  -h, --help        This text
  --version         The version

Exit status: 0 if all ranks end well, or with --elastic so many as LEAST; else that of the first rank that failed (128 +
signal if it was killed), with --elastic of the first that was not to be spared; 124 after --timeout or --wait, 126 or 127 if
the program cannot be started, 2 for a wrong command line.

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on, and SIGKILL follows after the grace time, or when a second one comes;
SIGCONT is passed on, and SIGUSR1 and SIGUSR2 unless they change the number of ranks. A signal that is ignored at the start, as
SIGHUP is under nohup, stays so. Standard input goes to rank 0 unless it is a terminal.

Where some ranks have come and others have not, a line on standard error says which, first after 3 seconds;
UNISONO_NOTICE_AFTER=S sets that time, and 0 silences it.
)";

/// The edit distance of two words: the least number of letters to insert, delete or replace, or of
/// neighbours to swap.
inline std::size_t edits_between(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> least(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                least[i][j] = i + j;
                continue;
            }
            const std::size_t replaced = least[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            least[i][j] = std::min({replaced, least[i - 1][j] + 1, least[i][j - 1] + 1});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
        }
    }
    return least[a.size()][b.size()];
}

/// The option that the user probably meant; empty if none is similar. Compares the spelling, and
/// the names that other launchers use.
inline std::string_view option_meant(std::string_view written) {
    struct Foreign {
        std::string_view name, ours;
    };
    constexpr Foreign foreign[] = {{"-c", "-n"},
                                   {"-N", "-n"},
                                   {"-w", "-n"},
                                   {"--np", "-n"},
                                   {"--nproc", "--ranks"},
                                   {"--nproc-per-node", "--ranks"},
                                   {"--nproc_per_node", "--ranks"},
                                   {"--num-proc", "--ranks"},
                                   {"--ntasks", "--ranks"},
                                   {"--processes", "--ranks"},
                                   {"--world-size", "--ranks"},
                                   {"--bind-to", "--bind-to-cores"},
                                   {"--bind-to-core", "--bind-to-cores"},
                                   {"--bind-core", "--bind-to-cores"},
                                   {"--cpu-bind", "--bind-to-cores"},
                                   {"--output-dir", "--log-dir"},
                                   {"--time", "--timeout"},
                                   {"-t", "--timeout"},
                                   {"-V", "--version"},
                                   {"-v", "--version"},
                                   {"-?", "--help"}};
    for (const Foreign& each : foreign)
        if (each.name == written) return each.ours;
    std::string_view nearest;
    std::size_t least = 3; // with three changes it is another word
    for (const std::string_view ours : {"--ranks", "--bind-to-cores", "--timeout", "--grace", "--wait", "--elastic",
                                        "--restarts", "--log-dir", "--no-label", "--help", "--version"}) {
        if (written.size() < 4 || written.size() > 40) break;
        if (const std::size_t edits = edits_between(written, ours); edits < least) {
            least = edits;
            nearest = ours;
        }
    }
    return nearest;
}

/// Parses "LEAST" or "LEAST:MOST".
inline bool parse_elastic(std::string_view text, LaunchOptions& options) {
    const std::size_t colon = text.find(':');
    options.most = 0;
    if (!parse_count(text.substr(0, colon), 4096, options.least) || options.least == 0) return false;
    return colon == text.npos ||
           (parse_count(text.substr(colon + 1), 4096, options.most) && options.most >= options.least);
}

} // namespace detail

/// The result of a command line: the options of a launch, or the status with which to end at once
/// and the text to print before.
struct LaunchRequest {
    LaunchOptions options = {};
    int status = -1; ///< -1: launch
    std::string text = {};
};

/// Options end at the program's name, or at "--".
inline LaunchRequest parse_launch(const std::vector<std::string>& arguments) {
    LaunchRequest request;
    LaunchOptions& options = request.options;
    options.ranks = detail::available_cores();
    const auto wrong = [&](std::initializer_list<detail::TextPart> what) {
        request.status = 2;
        request.text = concat({"unisono-run: ", concat(what), " (--help shows the options)\n"});
        return request;
    };
    std::size_t at = 0;
    for (; at < arguments.size() && arguments[at].starts_with('-') && arguments[at] != "-"; ++at) {
        std::string name = arguments[at];
        if (name == "--") {
            ++at;
            break;
        }
        if (name.starts_with("-np")) name.erase(2, 1); // as in mpirun
        std::string value;
        bool attached = false; // "-n4"
        if (name.starts_with("-n") && name.size() > 2 && name.find_first_not_of("0123456789", 2) == name.npos) {
            value = name.substr(2);
            name.resize(2);
            attached = true;
        }
        const std::size_t equals = name.find('=');
        const bool joined = name.starts_with("--") && equals != std::string::npos;
        if (joined) {
            value = name.substr(equals + 1);
            name.resize(equals);
        }
        if (name == "-h" || name == "--help") {
            request.status = 0;
            request.text = detail::launcher_help;
            return request;
        }
        if (name == "--version" && !joined) {
            request.status = 0;
            request.text = concat(
                {"unisono-run ", UNISONO_VERSION_MAJOR, ".", UNISONO_VERSION_MINOR, ".", UNISONO_VERSION_PATCH, "\n"});
            return request;
        }
        bool* const flag = name == "--bind-to-cores" ? &options.bind_to_cores
                           : name == "--no-label"    ? &options.label
                                                     : nullptr;
        if (flag != nullptr) {
            if (joined) return wrong({name, " takes no value"});
            *flag = name != "--no-label";
            continue;
        }
        if (name != "-n" && name != "--ranks" && name != "--timeout" && name != "--grace" && name != "--wait" &&
            name != "--elastic" && name != "--restarts" && name != "--log-dir") {
            const std::string_view meant = detail::option_meant(name);
            if (meant.empty()) return wrong({"unknown option ", detail::quoted(name)});
            return wrong({"unknown option ", detail::quoted(name), "; did you mean ", meant, "?"});
        }
        if (!joined && !attached) {
            if (at + 1 == arguments.size()) return wrong({name, " needs a value"});
            value = arguments[++at];
        }
        if (name == "--timeout" && !detail::parse_seconds(value, 1e-3, options.timeout)) {
            return wrong({"--timeout is ", detail::quoted(value), ", expected seconds above 0"});
        }
        if (name == "--grace" && !detail::parse_seconds(value, 0, options.grace)) {
            return wrong({"--grace is ", detail::quoted(value), ", expected seconds"});
        }
        if (name == "--wait" && !detail::parse_seconds(value, 0, options.wait)) {
            return wrong({"--wait is ", detail::quoted(value), ", expected seconds"});
        }
        if (name == "--elastic" && !detail::parse_elastic(value, options)) {
            return wrong({"--elastic is ", detail::quoted(value),
                          ", expected LEAST or LEAST:MOST, each 1 to 4096, such as 2:4"});
        }
        if (name == "--restarts" && !detail::parse_count(value, 1'000'000, options.restarts)) {
            return wrong({"--restarts is ", detail::quoted(value), ", expected 0 to 1000000"});
        }
        if (name == "--log-dir") {
            if (value.empty()) return wrong({"--log-dir needs the path of a folder"});
            options.log_dir = value;
        }
        if ((name == "-n" || name == "--ranks") &&
            (!detail::parse_count(value, 4096, options.ranks) || options.ranks == 0)) {
            return wrong({name, " is ", detail::quoted(value), ", expected 1 to 4096"});
        }
    }
    options.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
    if (options.least > options.ranks)
        return wrong({"--elastic is ", options.least, ", expected at most ", options.ranks, ", the number of ranks"});
    if (options.most != 0 && options.most < options.ranks)
        return wrong({"--elastic is ", options.least, ":", options.most, ", expected at least ", options.ranks,
                      ", the number of ranks, behind the colon"});
    if (options.command.empty() || options.command.front().empty()) return wrong({"no program given"});
    return request;
}

UNISONO_NAMESPACE_END
