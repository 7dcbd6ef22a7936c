// Run by mpirun of each MPI: MPI's wire without a group above it, and worlds that end while their
// messages are in flight. Each rank prints "ok", or what is wrong.
//     wire pieces      messages of more bytes than MPI takes at once
//     wire no_memory   the handler has no memory for such a message
//     wire goodbye     a goodbye overtakes messages
//     wire leaves      rank 0 ends its world and reuses its memory before rank 1 receives
//     wire worlds      more successive worlds than MPI has communicators; each leaves
//                      messages that no rank receives
//     wire fault       after a fault a world's communicators are kept; the next world works
//     wire adopts      a communicator that is not of one group is refused; so is one that
//                      MPI cannot copy, by an exception
//     wire stays       rank 1 never ends its world
#include "unisono/mpi.hpp"
#include "unisono/unisono.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
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

/// Stands for a group above a wire. All messages go to one memory, if there is one.
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

/// Polls until `done()`, for at most ten seconds.
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

/// Rank 0 sends to rank 1, in parts of 4 KiB.
void pieces(int rank, bool has_memory) {
    MpiOverseer overseer;
    MpiWire wire(copy_of_world(), overseer, true, 4096);
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

/// Rank 0 sends one message in a frame that MPI may delay, and a large one. Then it says goodbye
/// and does not call MPI for a while.
void goodbye(int rank) {
    MpiOverseer overseer;
    MpiWire wire(copy_of_world(), overseer, true);
    Above above;
    const std::vector<std::byte> small = numbers(8'000), large = numbers(10'000'000);
    un::Envelope envelope;
    if (rank == 0) {
        envelope.bytes = small.size();
        require(wire.send(1, envelope, small.data(), 1), "a small message leaves from a frame");
        envelope.bytes = large.size();
        wire.send(1, envelope, large.data(), 2);
        wire.goodbye(un::steady_now());
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        poll_until(wire, above, [&] { return above.out == 1; });
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        poll_until(wire, above, [&] { return wire.said_goodbye(0); });
        require(above.whole == 1 && above.complete_ones == 1, "a goodbye comes after all messages");
        require(above.into == large, "the bytes of a large message");
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

un::Group<un::Mpi> world_of(MPI_Comm communicator = MPI_COMM_WORLD) {
    return un::adopt(communicator, std::chrono::seconds(20));
}

void leaves(int rank) {
    constexpr int messages = 40; // more than the buffers of a rank
    const auto value = [](int message, int i) { return 1000 * message + i; };
    if (rank == 0) {
        {
            auto world = world_of();
            std::vector<int> data(2000);
            for (int message = 0; message < messages; ++message) {
                for (int i = 0; i < 2000; ++i) data[static_cast<std::size_t>(i)] = value(message, i);
                un::send(world, data, 1, message);
            }
        }
        // As a program uses its memory afterwards.
        std::vector<std::unique_ptr<std::byte[]>> others;
        for (std::size_t bytes = 8'000; bytes < 9'000; ++bytes) {
            others.push_back(std::make_unique<std::byte[]>(bytes));
            std::memset(others.back().get(), 0xee, bytes);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        auto world = world_of();
        std::this_thread::sleep_for(std::chrono::seconds(3)); // longer than a goodbye lasts
        std::vector<int> data(2000);
        for (int message = 0; message < messages; ++message) {
            un::receive(world, data, 0, message);
            for (int i = 0; i < 2000; ++i)
                require(data[static_cast<std::size_t>(i)] == value(message, i), "a message of a rank that has left");
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

void worlds(int rank) {
    for (int i = 0; i < 2500; ++i) {
        auto world = world_of();
        std::vector<int> number{i}, got{-1};
        if (i % 3 == 0) { // receives this world's message, not an earlier world's
            if (rank == 0) un::send(world, number, 1, 5);
            else un::receive(world, got, 0, 5);
            require(rank == 0 || got[0] == i, "a message of another world");
        } else if (i % 3 == 1) {
            if (rank == 0) un::send(world, number, 1, 5);
        } else {
            un::all_reduce(world, number);
            require(number[0] == 2 * i, "a sum");
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    un::detail::MpiKeeper::look_again();
    MPI_Barrier(MPI_COMM_WORLD);
    const un::nanoseconds until = un::steady_now() + 5'000'000'000;
    while (un::detail::MpiKeeper::look_again() != 0)
        require(un::steady_now() < until, "what ended worlds leave behind is let go of");
}

void fault(int rank) {
    for (int i = 0; i < 10; ++i) {
        auto world = world_of();
        std::vector<float> values(static_cast<std::size_t>(rank + 2000), 1.0f);
        try {
            un::all_reduce(world, values);
            require(false, "ranks that differ are told");
        } catch (const un::error& found) {
            require(found.why().code == un::ErrorCode::mismatch, found.what());
        }
    }
    auto world = world_of();
    std::vector<int> sum{1};
    un::all_reduce(world, sum);
    require(sum[0] == 2, "a sum after faults");
}

void adopts(int rank) {
    MPI_Comm between = MPI_COMM_NULL;
    MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, 0, &between);
    try {
        const auto world = world_of(between);
        require(false, "an intercommunicator is no world");
    } catch (const un::error& found) {
        require(found.code() == un::ErrorCode::bad_input, found.what());
    }
    MPI_Comm_free(&between);
    std::vector<MPI_Comm> all; // Open MPI has more of them than the test has time for
    int code = MPI_SUCCESS;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    while (code == MPI_SUCCESS && all.size() < 3000) {
        all.push_back(MPI_COMM_NULL);
        code = MPI_Comm_dup(MPI_COMM_WORLD, &all.back());
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    if (code == MPI_SUCCESS) return;
    try {
        const auto world = world_of();
        require(false, "there is no communicator left");
    } catch (const un::error& found) {
        require(found.code() == un::ErrorCode::refused, found.what());
    }
    all.pop_back();
    MPI_Comm_free(&all.back());
    all.pop_back();
    auto world = world_of(); // one is enough
    std::vector<int> sum{1};
    un::all_reduce(world, sum);
    require(sum[0] == 2, "a sum after a failed attempt");
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    require(handler == MPI_ERRORS_ARE_FATAL, "the program's handler of errors is as it was");
}

void stays(int rank) {
    auto world = std::make_unique<un::Group<un::Mpi>>(world_of());
    un::barrier(*world);
    if (rank == 1) static_cast<void>(world.release());
}

void work(const std::string& what, int rank) {
    if (what == "pieces" || what == "no_memory") return pieces(rank, what == "pieces");
    if (what == "goodbye") return goodbye(rank);
    if (what == "leaves") return leaves(rank);
    if (what == "worlds") return worlds(rank);
    if (what == "fault") return fault(rank);
    if (what == "adopts") return adopts(rank);
    if (what == "stays") return stays(rank);
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
