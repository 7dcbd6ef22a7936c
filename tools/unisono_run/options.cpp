#include "options.hpp"

#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/launch/cores.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace unisono_run {
namespace {

using unisono::concat;
using unisono::detail::parse_count;
using unisono::detail::parse_seconds;
using unisono::detail::TextPart;

constexpr std::string_view launcher_help =
    R"(Usage: unisono-run [OPTIONS] PROGRAM [ARGUMENTS...]

Runs a program as several ranks on this machine: processes that find each other by the variables that torchrun sets (RANK,
WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and by Unisono's own. Each line that they print is
labelled with its rank. When one fails, the others are stopped.

  -n, --ranks N     Number of ranks (default: the number of cores); also -np N, -nN
  --bind-to-cores   Bind each rank to a core of its own, modulo their number
  --timeout S       Stop the job after S seconds
  --grace S         Seconds between SIGTERM and SIGKILL for ranks that are to stop (5)
  --wait S          Seconds after the first rank's success until ranks that still run are named and stopped (3600)
  --elastic LEAST   A program with elastic worlds: when ranks die, the others continue as long as LEAST are left
  --elastic LEAST:MOST
                    Also start a process in the place of each rank that dies; SIGUSR1 asks for one rank more, at most
                    MOST, and SIGUSR2 for one less, at least LEAST
  --restarts N      With LEAST:MOST, start at most N processes in the place of ranks that died (10)
  --log-dir DIR     Write each rank's output to DIR/rank_R.out and DIR/rank_R.err as well
  --no-label        Print lines without labels
  -h, --help        Print this text
  --version         Print the version

Exit status: 0 if all ranks succeed, or with --elastic at least LEAST; else that of the first rank that failed (128 + signal
if it was killed), with --elastic of the first failure that left fewer than LEAST; 124 after --timeout or --wait, 126 or 127
if the program cannot be started, 2 for a wrong command line.

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on, and SIGKILL follows after the grace time, or at a second signal;
SIGCONT is passed on, and SIGUSR1 and SIGUSR2 unless they change the number of ranks. A signal that is ignored at the start, as
SIGHUP is under nohup, stays so. Standard input goes to rank 0 unless it is a terminal.

While some ranks have come and others have not, a line on standard error says which, first after 3 seconds;
UNISONO_NOTICE_AFTER=S sets that time, and 0 silences it.
)";

/// The edit distance of two words: the least number of letters to insert, delete or replace, or of
/// neighbours to swap.
std::size_t edits_between(std::string_view a, std::string_view b) {
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
std::string_view option_meant(std::string_view written) {
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
bool parse_elastic(std::string_view text, LaunchOptions& options) {
    const std::size_t colon = text.find(':');
    options.most = 0;
    if (!parse_count(text.substr(0, colon), 4096, options.least) || options.least == 0) return false;
    return colon == text.npos ||
           (parse_count(text.substr(colon + 1), 4096, options.most) && options.most >= options.least);
}

[[noreturn]] void refuse(std::initializer_list<TextPart> what) { throw CLI::ValidationError(concat(what)); }

/// The options of CLI11, which write into `options`.
class CommandLine {
public:
    explicit CommandLine(LaunchOptions& options) {
        app_.set_help_flag("-h,--help");
        app_.set_version_flag("--version", concat({"unisono-run ", UNISONO_VERSION_MAJOR, ".", UNISONO_VERSION_MINOR,
                                                   ".", UNISONO_VERSION_PATCH, "\n"}));
        app_.add_flag("--bind-to-cores", options.bind_to_cores);
        app_.add_flag("--no-label", [&options](std::int64_t) { options.label = false; });
        ranks_ = add("-n,--ranks", [this, &options](const std::string& value) {
            if (!parse_count(value, 4096, options.ranks) || options.ranks == 0)
                refuse({ranks_as_, " is ", unisono::detail::quoted(value), ", expected 1 to 4096"});
        });
        add("--timeout", [&options](const std::string& value) {
            if (!parse_seconds(value, 1e-3, options.timeout))
                refuse({"--timeout is ", unisono::detail::quoted(value), ", expected seconds above 0"});
        });
        add("--grace", [&options](const std::string& value) {
            if (!parse_seconds(value, 0, options.grace))
                refuse({"--grace is ", unisono::detail::quoted(value), ", expected seconds"});
        });
        add("--wait", [&options](const std::string& value) {
            if (!parse_seconds(value, 0, options.wait))
                refuse({"--wait is ", unisono::detail::quoted(value), ", expected seconds"});
        });
        add("--elastic", [&options](const std::string& value) {
            if (!parse_elastic(value, options))
                refuse({"--elastic is ", unisono::detail::quoted(value),
                        ", expected LEAST or LEAST:MOST, each 1 to 4096, such as 2:4"});
        });
        add("--restarts", [&options](const std::string& value) {
            if (!parse_count(value, 1'000'000, options.restarts))
                refuse({"--restarts is ", unisono::detail::quoted(value), ", expected 0 to 1000000"});
        });
        add("--log-dir", [&options](const std::string& value) {
            if (value.empty()) refuse({"--log-dir needs the path of a folder"});
            options.log_dir = value;
        });
    }

    /// Reads the options one after the other, and stops at the first that is wrong or asks for
    /// help. Returns the index of the program's name.
    std::size_t parse(const std::vector<std::string>& arguments) {
        std::size_t at = 0;
        for (; at < arguments.size() && arguments[at].starts_with('-') && arguments[at] != "-"; ++at) {
            if (arguments[at] == "--") return at + 1;
            auto [name, value] = split(arguments[at]);
            const CLI::Option& option = known(name);
            std::vector<std::string> own{name};
            if (option.get_items_expected_max() != 0) {
                if (!value && at + 1 == arguments.size()) refuse({name, " needs a value"});
                if (&option == ranks_) ranks_as_ = name;
                own.insert(own.begin(), value ? *value : arguments[++at]); // reversed, as CLI11 takes them
            } else if (value && name != "--help") {
                refuse({name, " takes no value"});
            }
            app_.parse(std::move(own));
        }
        return at;
    }

private:
    template <class Take>
    CLI::Option* add(const std::string& names, Take take) {
        return app_.add_option_function<std::string>(names, take);
    }

    /// Splits "--name=value", "-n3" and "-np3". CLI11 would take the next argument as the value
    /// where this one is empty, and any letters behind a short name.
    static std::pair<std::string, std::optional<std::string>> split(const std::string& written) {
        if (written.starts_with("--")) {
            const std::size_t equals = written.find('=');
            if (equals == written.npos) return {written, {}};
            return {written.substr(0, equals), written.substr(equals + 1)};
        }
        const std::size_t digits = written.starts_with("-np") ? 3 : 2; // -np as in mpirun
        if (!written.starts_with("-n") || written.find_first_not_of("0123456789", digits) != written.npos)
            return {written, {}};
        if (written.size() == digits) return {"-n", {}};
        return {"-n", written.substr(digits)};
    }

    const CLI::Option& known(const std::string& name) {
        const CLI::Option* const option = app_.get_option_no_throw(name);
        if (option != nullptr) return *option;
        const std::string_view meant = option_meant(name);
        if (meant.empty()) refuse({"unknown option ", unisono::detail::quoted(name)});
        refuse({"unknown option ", unisono::detail::quoted(name), "; did you mean ", meant, "?"});
    }

    CLI::App app_;
    CLI::Option* ranks_ = nullptr;
    std::string ranks_as_; ///< -n or --ranks, as it is written
};

} // namespace

LaunchRequest parse_launch(const std::vector<std::string>& arguments) {
    LaunchRequest request;
    LaunchOptions& options = request.options;
    options.ranks = unisono::detail::available_cores();
    try {
        CommandLine line(options);
        const std::size_t at = line.parse(arguments);
        options.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
        if (options.least > options.ranks)
            refuse({"--elastic is ", options.least, ", expected at most ", options.ranks, ", the number of ranks"});
        if (options.most != 0 && options.most < options.ranks)
            refuse({"--elastic is ", options.least, ":", options.most, ", expected at least ", options.ranks,
                    ", the number of ranks, behind the colon"});
        if (options.command.empty() || options.command.front().empty()) refuse({"no program given"});
    } catch (const CLI::CallForHelp&) {
        request.status = 0;
        request.text = launcher_help;
    } catch (const CLI::CallForVersion& version) {
        request.status = 0;
        request.text = version.what();
    } catch (const CLI::ParseError& wrong) {
        request.status = 2;
        request.text = concat({"unisono-run: ", wrong.what(), " (--help shows the options)\n"});
    }
    return request;
}

} // namespace unisono_run
