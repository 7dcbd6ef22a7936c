#pragma once

/// \file
/// The launchers that the library knows, and each one's statements about a process, read from its
/// variables and not yet compared.

#include "unisono/core/config.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The launcher that started this process, according to its environment.
enum class Launcher : std::uint8_t {
    none,        ///< started by hand
    program,     ///< the program gives its identity itself
    unisono_run, ///< UNISONO_*
    torchrun,    ///< RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; also set by many platforms
    openmpi,     ///< OMPI_COMM_WORLD_*
    mpich,       ///< PMI_*, MPI_LOCAL*
    srun,        ///< SLURM_*
    kubeflow,    ///< PET_*, beside RANK and WORLD_SIZE
    sagemaker,   ///< SM_*: tells hosts only
};

constexpr std::string_view name_of(Launcher which) {
    constexpr std::string_view names[] = {"none",  "program", "unisono-run", "torchrun", "openmpi",
                                          "mpich", "srun",    "kubeflow",    "sagemaker"};
    return names[static_cast<std::size_t>(which)];
}

namespace detail {
inline constexpr int most_ranks = 1 << 20;

/// A number, and the variable that it comes from (a literal).
struct Number {
    int value = -1;
    std::string_view name = {};

    [[nodiscard]] bool known() const { return value >= 0; }
    [[nodiscard]] std::string text() const { return concat({name, "=", value}); }
};

/// One launcher's statements. `node` and `nodes` count hosts, or the agents that start processes on
/// them.
struct Claim {
    Launcher launcher = Launcher::none;
    Number rank = {};
    Number world = {};
    Number local_rank = {};
    Number local_world = {};
    Number node = {};
    Number nodes = {};
};

/// Reads the first variable that is set. If none is set, the names are still kept for messages.
inline Number read(const Environment& environment, std::string_view name, std::string_view otherwise = {}) {
    for (const std::string_view each : {name, otherwise}) {
        if (each.empty()) continue;
        if (const std::string* text = environment.find(each)) {
            Number number{.value = 0, .name = each};
            if (!parse_count(*text, most_ranks, number.value))
                refuse_input({each, " is ", detail::quoted(*text), ", expected a number from 0 to ", most_ranks});
            return number;
        }
    }
    return {.value = -1, .name = name};
}

/// As `read`. The launcher may also say "auto", "gpu" or "1:4"; then the number is unknown.
inline Number read_if_number(const Environment& environment, std::string_view name) {
    const std::string* text = environment.find(name);
    if (text == nullptr || text->empty() || text->find_first_not_of("0123456789") != std::string::npos)
        return {.value = -1, .name = name};
    return read(environment, name);
}

/// The count of node `node` in Slurm's "2(x3),1": 2 on the first three nodes, 1 on the fourth; -1
/// if the text does not contain it.
inline int tasks_on_node(std::string_view text, int node) {
    int passed = 0;
    while (!text.empty()) {
        const std::string_view item = take_until(text, ',');
        const std::size_t open = item.find("(x");
        int tasks = 0;
        int nodes = 1;
        if (!parse_count(item.substr(0, open), most_ranks, tasks)) return -1;
        if (open != std::string_view::npos) {
            if (!item.ends_with(')') ||
                !parse_count(item.substr(open + 2, item.size() - open - 3), most_ranks, nodes)) {
                return -1;
            }
        }
        if (nodes > node - passed) return tasks;
        passed += nodes;
    }
    return -1;
}

inline void unisono_claim(const Environment& environment, std::vector<Claim>& claims) {
    Claim claim{.launcher = Launcher::unisono_run,
                .rank = read(environment, "UNISONO_RANK"),
                .world = read(environment, "UNISONO_WORLD_SIZE"),
                .local_rank = read(environment, "UNISONO_LOCAL_RANK"),
                .local_world = read(environment, "UNISONO_LOCAL_WORLD_SIZE")};
    if (claim.rank.known() || claim.world.known()) claims.push_back(claim);
}

/// torchrun, Kubeflow, and platforms that imitate them. Kubeflow's RANK is a pod's, and a pod may
/// start several processes.
inline void torchrun_claim(const Environment& environment, std::vector<Claim>& claims) {
    Claim claim{.launcher = Launcher::torchrun,
                .rank = read(environment, "RANK"),
                .world = read(environment, "WORLD_SIZE"),
                .local_rank = read(environment, "LOCAL_RANK"),
                .local_world = read(environment, "LOCAL_WORLD_SIZE"),
                .node = read(environment, "GROUP_RANK"),
                .nodes = read(environment, "GROUP_WORLD_SIZE")};
    const bool given = claim.rank.known() || claim.world.known();
    const Number node = read(environment, "PET_NODE_RANK");
    const Number nodes = read_if_number(environment, "PET_NNODES"); // "1:4" where it is elastic
    const Number each = read_if_number(environment, "PET_NPROC_PER_NODE");
    if (!node.known() && !nodes.known() && !each.known()) {
        if (given) claims.push_back(claim);
        return;
    }
    const auto contradict = [](const Number& a, const Number& b, const std::string& why) {
        if (a.known() && b.known() && a.value != b.value)
            refuse_input({"kubeflow: ", a.text(), " and ", b.text(), " contradict: ", why});
    };
    if (claim.local_rank.known() && given) { // torchrun runs inside the pod
        contradict(claim.local_world, each, "both are the processes of a pod");
        contradict(claim.node, node, "both number the pod");
        contradict(claim.nodes, nodes, "both count the pods");
        if (nodes.known() && each.known() && claim.world.known() &&
            nodes.value * std::int64_t{each.value} != claim.world.value) {
            refuse_input({"kubeflow: ", claim.world.text(), " contradicts ", nodes.text(), " pods of ", each.text(),
                          " processes (is WORLD_SIZE that of the pods?)"});
        }
        if (!claim.node.known()) claim.node = node;
        if (!claim.nodes.known()) claim.nodes = nodes;
        claims.push_back(claim);
        return;
    }
    if (each.known() && each.value != 1) {
        const Number& rank = claim.rank.known() ? claim.rank : node;
        refuse_input({"kubeflow: ", (rank.known() ? rank.text() : std::string(rank.name)), " is that of a pod, and ",
                      each.text(), " asks for several processes in each: start the program by `torchrun --no-python`"});
    }
    claim.launcher = Launcher::kubeflow;
    if (each.known()) { // one process per pod
        contradict(claim.rank, node, "a pod has one process");
        contradict(claim.world, nodes, "a pod has one process");
        claim.local_rank = {.value = 0, .name = each.name};
        claim.local_world = each;
    }
    if (!claim.rank.known()) claim.rank = node;
    if (!claim.world.known()) claim.world = nodes;
    if (claim.rank.known() || claim.world.known()) claims.push_back(claim);
}

inline void openmpi_claim(const Environment& environment, std::vector<Claim>& claims) {
    Claim claim{.launcher = Launcher::openmpi,
                .rank = read(environment, "OMPI_COMM_WORLD_RANK"),
                .world = read(environment, "OMPI_COMM_WORLD_SIZE"),
                .local_rank = read(environment, "OMPI_COMM_WORLD_LOCAL_RANK"),
                .local_world = read(environment, "OMPI_COMM_WORLD_LOCAL_SIZE")};
    if (claim.rank.known() || claim.world.known()) claims.push_back(claim);
}

inline void mpich_claim(const Environment& environment, std::vector<Claim>& claims) {
    Claim claim{.launcher = Launcher::mpich,
                .rank = read(environment, "PMI_RANK"),
                .world = read(environment, "PMI_SIZE"),
                .local_rank = read(environment, "MPI_LOCALRANKID"),
                .local_world = read(environment, "MPI_LOCALNRANKS")};
    if (claim.rank.known() || claim.world.known()) claims.push_back(claim);
}

/// True if Slurm's variables may be those of a batch script: task 0 with the job's number of tasks,
/// though srun has not started it. They do not count if another launcher's variables are set.
inline bool may_be_batch_script(const Environment& environment) {
    for (const std::string_view name : {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"})
        if (environment.find(name) != nullptr) return false;
    const std::string* const rank = environment.find("SLURM_PROCID");
    return rank != nullptr && *rank == "0";
}

/// True if an mpirun started this process, and tells how many it started on each host. mpirun
/// starts its daemons by srun, one on each host, and their variables are inherited.
inline bool has_daemons(const Claim& claim) {
    return (claim.launcher == Launcher::openmpi || claim.launcher == Launcher::mpich) && claim.local_world.known();
}

/// Only a task or a batch script has SLURM_PROCID. A shell in an allocation knows only the number
/// of tasks.
inline void srun_claim(const Environment& environment, std::vector<Claim>& claims) {
    Claim claim{.launcher = Launcher::srun,
                .rank = read(environment, "SLURM_PROCID"),
                .world = read(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
                .local_rank = read(environment, "SLURM_LOCALID"),
                .node = read(environment, "SLURM_NODEID"),
                .nodes = read(environment, "SLURM_STEP_NUM_NODES", "SLURM_NNODES")};
    if (!claim.rank.known() || (!claims.empty() && may_be_batch_script(environment))) return;
    if (!claim.world.known()) claim.world.name = "SLURM_NTASKS";
    claim.local_world = read(environment, "SLURM_NTASKS_PER_NODE");
    const int node = claim.node.known() ? claim.node.value : 0;
    for (const std::string_view name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
        const std::string* tasks = environment.find(name);
        // In an allocation of several nodes these variables have the number of tasks of this node;
        // SLURM_NTASKS_PER_NODE is a request.
        if (tasks == nullptr || (!claim.node.known() && claim.nodes.value != 1)) continue;
        if (const int count = tasks_on_node(*tasks, node); count > 0 && count <= claim.world.value) {
            claim.local_world = {.value = count, .name = name};
            break;
        }
    }
    if (!claims.empty() && has_daemons(claims.back()) && claim.local_world.value == 1) return;
    claims.push_back(claim);
}

/// Parses a JSON array of strings such as ["algo-1","algo-2"]. Returns false for other text.
inline bool parse_hosts(std::string_view text, std::vector<std::string>& hosts) {
    std::size_t at = 0;
    const auto skip = [&] { at = std::min(text.find_first_not_of(" \t\r\n", at), text.size()); };
    const auto take = [&](char wanted) { return skip(), at < text.size() && text[at] == wanted && ++at != 0; };
    if (!take('[')) return false;
    do {
        if (!take('"')) return false;
        const std::size_t end = text.find_first_of("\"\\", at);
        if (end == std::string_view::npos || text[end] != '"') return false;
        hosts.emplace_back(text.substr(at, end - at));
        at = end + 1;
    } while (take(','));
    if (!take(']')) return false;
    skip();
    return at == text.size() && hosts.size() <= std::size_t{most_ranks};
}

/// SageMaker starts one process per host. That process may start others, about which SageMaker says
/// nothing.
inline void sagemaker_claim(const Environment& environment, std::vector<Claim>& claims) {
    const std::string* hosts = environment.find("SM_HOSTS");
    const std::string* own = environment.find("SM_CURRENT_HOST");
    if (hosts == nullptr && own == nullptr) return;
    if (hosts == nullptr || own == nullptr)
        refuse_input({"sagemaker: ", own == nullptr ? "SM_HOSTS" : "SM_CURRENT_HOST", " is set, but ",
                      own == nullptr ? "SM_CURRENT_HOST" : "SM_HOSTS", " is not"});
    std::vector<std::string> names;
    if (!parse_hosts(*hosts, names))
        refuse_input(
            {"sagemaker: SM_HOSTS is ", detail::quoted(*hosts), ", expected a list such as [\"algo-1\",\"algo-2\"]"});
    Claim claim{.launcher = Launcher::sagemaker};
    claim.nodes = {.value = static_cast<int>(names.size()), .name = "SM_HOSTS"};
    claim.node.name = "SM_CURRENT_HOST";
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] != *own) continue;
        if (claim.node.known()) refuse_input({"sagemaker: SM_HOSTS names ", detail::quoted(*own), " twice"});
        claim.node.value = static_cast<int>(i);
    }
    if (!claim.node.known())
        refuse_input(
            {"sagemaker: SM_CURRENT_HOST=", detail::quoted(*own), " is not in SM_HOSTS=", detail::quoted(*hosts)});
    claims.push_back(claim);
}

/// The statements of all launchers, the inner ones first. If UNISONO_* is set, or UNISONO_LAUNCHER
/// names a launcher, only the statements of that launcher.
inline std::vector<Claim> claims_of(const Environment& environment) {
    using Reader = void (*)(const Environment&, std::vector<Claim>&);
    struct Known {
        Reader read;
        Launcher name;
        Launcher other_name;
    };
    constexpr Known known[] = {{torchrun_claim, Launcher::torchrun, Launcher::kubeflow},
                               {openmpi_claim, Launcher::openmpi, Launcher::openmpi},
                               {mpich_claim, Launcher::mpich, Launcher::mpich},
                               {srun_claim, Launcher::srun, Launcher::srun},
                               {sagemaker_claim, Launcher::sagemaker, Launcher::sagemaker}};
    std::vector<Claim> claims;
    unisono_claim(environment, claims);
    if (!claims.empty()) return claims;
    const std::string* wanted = environment.find("UNISONO_LAUNCHER");
    if (wanted != nullptr && *wanted == name_of(Launcher::none)) return claims;
    for (const Known& each : known) {
        if (wanted == nullptr || *wanted == name_of(each.name) || *wanted == name_of(each.other_name))
            each.read(environment, claims);
    }
    if (wanted != nullptr && claims.empty())
        refuse_input({"UNISONO_LAUNCHER is ", detail::quoted(*wanted),
                      ", but no variables of such a launcher are set; it knows none, torchrun, kubeflow, openmpi, "
                      "mpich, srun and sagemaker"});
    return claims;
}

} // namespace detail
UNISONO_NAMESPACE_END
