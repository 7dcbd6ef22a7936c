#pragma once

/// \file
/// Ranks of an MPI communicator. Needs an MPI library (CMake target unisono::mpi) that implements
/// version 3.0 of the standard or newer.

#include "unisono/extensions/mpi/wire.hpp"
#include "unisono/extensions/network/framed_endpoint.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/launch/host.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sched.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The transport of one rank over MPI: the library's schedules over MPI's point-to-point messages.
/// It is made by `adopt(communicator)` (unisono/mpi.hpp).
///
/// Faults: an error that a rank throws or finds reaches all others by messages. The launcher
/// handles a rank's death: mpirun ends the job. A rank that stops is a timeout at the deadline:
/// the ranks ask each other what they wait for, and the fault names the rank that does not answer.
class Mpi : public detail::FramedEndpoint<detail::MpiWire> {
public:
    static constexpr std::string_view name = "mpi";

    /// Errors: refused unless MPI was initialised with MPI_THREAD_SERIALIZED or more.
    void check_may_change_threads() override {
        int level = 0;
        detail::check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
        if (level < MPI_THREAD_SERIALIZED)
            throw error(ErrorCode::refused, "ProgressThread: MPI was initialised with less than MPI_THREAD_SERIALIZED; "
                                            "expected that or more, since two threads call it by turns");
    }

    /// Makes the ranks of a communicator a world. Collective over the communicator, which is
    /// duplicated and remains its owner's. The duplicate is freed after all ranks have ended the
    /// world: in the next call of this function, at the end of another world, or in
    /// MPI_Finalize; after a fault it is kept. MPI must be initialised with at least
    /// MPI_THREAD_FUNNELED, and finalised after the world has ended. Errors: refused, bad_input.
    static Mpi adopt(MPI_Comm communicator) {
        using namespace detail;
        int initialized = 0;
        MPI_Initialized(&initialized);
        if (initialized == 0)
            throw error(ErrorCode::refused, "adopt: MPI has not been initialised; expected MPI_Init_thread before");
        int level = 0;
        check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
        if (level < MPI_THREAD_FUNNELED)
            throw error(ErrorCode::refused, "adopt: MPI was initialised with MPI_THREAD_SINGLE; expected "
                                            "MPI_THREAD_FUNNELED or more, since a data loader has threads");
        if (communicator == MPI_COMM_NULL) refuse_input("adopt: found MPI_COMM_NULL; expected a communicator");
        int between_groups = 0;
        check_mpi(MPI_Comm_test_inter(communicator, &between_groups), "MPI_Comm_test_inter");
        if (between_groups != 0)
            refuse_input("adopt: found an intercommunicator; expected the communicator of one group");
        MpiKeeper::look_again(); // MPI has few numbers for communicators
        MpiCommunicator own = copy_of(communicator);
        int rank = 0;
        int size = 0;
        MPI_Comm_rank(own.get(), &rank);
        MPI_Comm_size(own.get(), &size);
        auto overseer = std::make_unique<MpiOverseer>();
        MpiOverseer& faults = *overseer;
        const bool crowded = more_ranks_than_cores(own.get(), size);
        auto world = std::make_shared<World>(std::vector<std::string>(static_cast<std::size_t>(size)), JobToken(),
                                             crowded, std::move(overseer));
        return {world, rank, MpiWire(own.take(), faults, crowded), EndpointFacts{.name = name}};
    }

    /// For a timeout, asks all ranks for its cause, for at most two seconds.
    void abort(const Fault& fault) override {
        const bool asks = fault.code == ErrorCode::timeout && fault.rank == rank() && first_fault() == nullptr;
        FramedEndpoint::abort(asks ? wire().looked_into(fault) : fault);
    }

private:
    using FramedEndpoint::FramedEndpoint;

    /// True if the ranks on this host outnumber its cores.
    static bool more_ranks_than_cores(MPI_Comm communicator, int size) {
        struct Card {
            std::uint64_t host;
            cpu_set_t cores;
        };
        const Card mine{.host = detail::host_number(), .cores = detail::own_cores()};
        std::vector<Card> all(static_cast<std::size_t>(size));
        detail::check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, communicator),
                          "MPI_Allgather");
        detail::SharedCores cores;
        for (const Card& one : all)
            if (one.host == mine.host) cores.add(one.cores);
        return cores.fewer_than_ranks();
    }
};
static_assert(transport<Mpi>);

UNISONO_NAMESPACE_END
