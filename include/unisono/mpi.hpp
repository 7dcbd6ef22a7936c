#pragma once

/// \file
/// Worlds of MPI's ranks. Link unisono::mpi, or compile with an MPI compiler wrapper.
///
///     MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
///     {
///         auto world = un::adopt(MPI_COMM_WORLD); // or another communicator of the program
///         ...
///     }
///     MPI_Finalize();

#include "unisono/extensions/mpi/mpi.hpp"
#include "unisono/group/group.hpp"

#include <chrono>

UNISONO_NAMESPACE_BEGIN

/// The ranks of a communicator as a world, with the same numbers. Collective over the communicator.
/// The world must end before MPI is finalised. Errors: refused (MPI is not initialised, or only for
/// one thread, or has no other communicator left), bad_input (MPI_COMM_NULL, an intercommunicator).
[[nodiscard]] inline Group<Mpi> adopt(MPI_Comm communicator,
                                      std::chrono::nanoseconds timeout = std::chrono::minutes(10)) {
    Group<Mpi> world(Mpi::adopt(communicator));
    world.set_timeout(timeout);
    return world;
}

UNISONO_NAMESPACE_END
