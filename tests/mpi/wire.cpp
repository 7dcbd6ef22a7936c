// Run by mpirun of each MPI: MPI's wire without a group above it, and worlds that end while their messages are under way. Each rank prints
// "ok", or what is wrong.
//     wire pieces      messages of more bytes than MPI takes at once
//     wire no_memory   the handler has no memory for such a message
#include "unisono/mpi.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

namespace un = unisono;
using un::detail::MpiOverseer;
using un::detail::MpiWire;

void require(bool condition, const char* what) {
    if (!condition) throw std::runtime_error(std::string("wrong: ") + what);
}

MPI_Comm copy_of_world() {
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
    return made;
}

/// What a group would be above a wire: all messages go to one memory, if there is one.
struct Above : un::detail::AnyFrameHandler {
    std::vector<std::byte> into;
    bool has_memory = true;
    int out = 0, begun = 0, complete_ones = 0, whole = 0;

    void sent(un::Token) { ++out; }
    void message(int, const un::Envelope&, const std::byte*) { ++whole; }
    std::uint32_t begin(int, const un::Envelope& envelope, std::size_t) {
        into.resize(static_cast<std::size_t>(envelope.bytes));
        ++begun;
        return 0;
    }
    std::byte* memory(std::uint32_t) { return has_memory ? into.data() : nullptr; }
    void complete(std::uint32_t) { ++complete_ones; }
};

/// Polls until `done()`, ten seconds at most.
template <class Done>
void poll_until(MpiWire& wire, Above& above, Done done) {
    for (const un::nanoseconds until = un::steady_now() + 10'000'000'000; !done(); wire.poll(above))
        require(un::steady_now() < until, "a wait without an end");
}
void poll_for(MpiWire& wire, Above& above, un::nanoseconds time) {
    const un::nanoseconds until = un::steady_now() + time;
    poll_until(wire, above, [&] { return un::steady_now() >= until; });
}

std::vector<std::byte> numbers(std::size_t bytes) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 2654435761u >> 7);
    return made;
}

/// Rank 0 sends to rank 1, in pieces of 4 KiB.
void pieces(int rank, bool has_memory) {
    MpiOverseer overseer;
    MpiWire wire(copy_of_world(), copy_of_world(), overseer, true, 4096);
    Above above;
    above.has_memory = has_memory;
    const std::vector<std::byte> data = numbers(has_memory ? 100'001 : 12'288);
    un::Envelope envelope;
    envelope.bytes = data.size();
    if (rank == 0) {
        require(!wire.send(1, envelope, data.data(), 1), "a large message cannot be out at once");
        if (has_memory) poll_until(wire, above, [&] { return above.out == 1; });
    } else {
        poll_until(wire, above, [&] { return above.begun == 1; });
        if (has_memory) {
            poll_until(wire, above, [&] { return above.complete_ones == 1; });
            require(above.into == data, "the bytes of a message in pieces");
        } else {
            poll_for(wire, above, 300'000'000);
            require(above.complete_ones == 0, "what has no memory is not complete");
            static_cast<void>(overseer.settle({.code = un::ErrorCode::mismatch, .message = "too long"}));
            wire.forget();
        }
    }
    if (has_memory) return wire.goodbye(un::steady_now() + 2'000'000'000);
    poll_until(wire, above, [&] { return overseer.first_fault() != nullptr; });
    require(overseer.first_fault()->message == "too long", "the fault that was told");
    wire.forget();
}

void work(const std::string& what, int rank) {
    if (what == "pieces" || what == "no_memory") return pieces(rank, what == "pieces");
    throw std::runtime_error("wrong: no such trial: " + what);
}

} // namespace

int main(int argc, char** argv) {
    ::alarm(60);
    int level = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    try {
        work(argc > 1 ? argv[1] : "", rank);
        std::puts("ok");
        std::fflush(stdout);
    } catch (const std::exception& failed) {
        std::printf("rank %d: %s\n", rank, failed.what());
        std::fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
}
