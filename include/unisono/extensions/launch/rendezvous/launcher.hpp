#pragma once

/// \file
/// The launchers that the library knows.

#include "unisono/core/config.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

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
} // namespace detail

UNISONO_NAMESPACE_END
