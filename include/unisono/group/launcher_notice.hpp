#pragma once

/// \file
/// A warning where `run` makes ranks in a process that a launcher started as one of several, and
/// that has not joined the others.

#include "unisono/core/config.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Prints one line on standard error, once, in the launcher's rank 0, if each of several processes
/// makes a world of `ranks` ranks of its own.
void warn_of_launcher(int ranks);
/// Says that this process takes part in the launcher's job. No warning follows.
void heed_launcher() noexcept;

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/core/text.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION std::atomic<bool>& launcher_is_known() noexcept {
    static std::atomic<bool> known{false};
    return known;
}

UNISONO_DEFINITION void heed_launcher() noexcept { launcher_is_known() = true; }

[[gnu::noinline]] UNISONO_DEFINITION void warn_of_launcher(int ranks) {
    if (launcher_is_known().exchange(true)) return;
    struct Launcher {
        const char* rank;
        const char* world;
    };
    for (const Launcher& one : {Launcher{"UNISONO_RANK", "UNISONO_WORLD_SIZE"},
                                {"RANK", "WORLD_SIZE"},
                                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                {"PMI_RANK", "PMI_SIZE"},
                                {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}) {
        const char* const rank = std::getenv(one.rank);   // NOLINT(concurrency-mt-unsafe)
        const char* const world = std::getenv(one.world); // NOLINT(concurrency-mt-unsafe)
        if (rank == nullptr || world == nullptr) continue;
        if (std::strtol(world, nullptr, 10) < 2 || std::strtol(rank, nullptr, 10) != 0) return;
        const std::string line =
            concat({"unisono: warning: run starts ", ranks, " ranks in this process, and a launcher started ", world,
                    " such processes (", one.world, "): these are ", world, " worlds that know nothing of each other.",
                    " For one world call run_joined or join, or start one process\n"});
        static_cast<void>(std::fputs(line.c_str(), stderr));
        return;
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
