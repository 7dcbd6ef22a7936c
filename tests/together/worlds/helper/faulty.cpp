// A rank that suffers a fault from outside: faulty_rank TRANSPORT DEADLINE_MS MODE VICTIM
// [DESCRIPTORS], started by any launcher.
//     MODE: loop      one world, endless collectives
//           worlds    one world after another
//           once      one world, 30 collectives
//           leave     the victim stops itself while the others leave
//           sleep     the victim sleeps there
//           linger    the victim then continues in code of its own
//           gather    only the control plane, endlessly
// The tests read what it prints. Times are milliseconds of the steady clock:
//     ready PID             a world is complete
//     rank R left after W   it ended well; its longest call, which may be leaving, took W
//     rank R CODE peer P after W at T: MESSAGE    it saw a fault; its last call took W

#include <unisono/collective/collective.hpp>
#include <unisono/join.hpp>
#include <unisono/tcp.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace un = unisono;

namespace {

int me = -1;
un::nanoseconds call_began = 0;
un::nanoseconds longest = 0;
int call_count = 0;

long long milliseconds(un::nanoseconds time) { return static_cast<long long>(time / 1'000'000); }

/// A call of the library, timed.
template <class Call>
auto timed(Call call) {
    call_began = un::steady_now();
    struct Note {
        Note() = default;
        Note(const Note&) = delete;
        Note& operator=(const Note&) = delete;
        ~Note() { longest = std::max(longest, un::steady_now() - call_began); }
    };
    const Note note;
    return call();
}

/// Only the control plane: every rank waits for the hub.
int gather(std::chrono::milliseconds deadline) {
    auto plane = timed([&] { return std::make_optional(un::rendezvous({.timeout = deadline})); });
    for (;;) {
        timed([&] { plane->all_gather({}, un::deadline_after(un::steady_now(), deadline)); });
        if (call_count++ != 0) continue;
        std::printf("ready %d\n", ::getpid());
        std::fflush(stdout);
    }
}

template <class Transport>
int run(std::chrono::milliseconds deadline, std::string_view mode, int victim) {
    // In a series of worlds, a rank that waits in the next one must not give up just as a rank
    // arrives that a fault has delayed by the deadline of the last one. That rank would find none,
    // and blame them.
    const auto meeting = mode == "worlds" ? deadline * 3 / 2 : deadline;
    const un::JoinOptions options{.timeout = deadline, .rendezvous = {.timeout = meeting}};
    for (;;) {
        auto world = timed([&] { return std::make_optional(un::join<Transport>(options)); });
        const std::size_t counts[] = {1, 1000, 100'000};
        std::vector<float> data(counts[2], 1.0f);
        timed([&] { un::barrier(*world); });
        std::printf("ready %d\n", ::getpid());
        std::fflush(stdout);
        const int rounds = mode == "worlds" ? 6 : 30;
        for (int round = 0; mode == "loop" || round < rounds; ++round) {
            const std::span<float> part = std::span(data).first(counts[round % 3]);
            std::fill(part.begin(), part.end(), 1.0f);
            timed([&] { un::all_reduce(*world, part); });
            if (std::any_of(part.begin(), part.end(),
                            [&](float one) { return one != static_cast<float>(world->size()); }))
                return 7;
        }
        if (mode == "leave" && me == victim) ::raise(SIGSTOP);
        if (mode == "sleep" && me == victim) std::this_thread::sleep_for(std::chrono::minutes(10));
        timed([&] { world.reset(); });
        if (mode == "linger" && me == victim) std::this_thread::sleep_for(std::chrono::minutes(10));
        if (mode != "worlds") return 0;
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 5) return 64;
    const std::string_view transport = argv[1];
    const std::chrono::milliseconds deadline(std::atoi(argv[2]));
    const std::string_view mode = argv[3];
    const int victim = std::atoi(argv[4]);
    try {
        me = un::identify().rank;
        if (me == victim && argc > 5) {
            const auto most = static_cast<rlim_t>(std::atoi(argv[5]));
            const rlimit limit{most, most};
            if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
        }
        if (mode == "gather") return gather(deadline);
        const int status =
            transport == "tcp" ? run<un::Tcp>(deadline, mode, victim) : run<un::SharedMemory>(deadline, mode, victim);
        std::printf("rank %d left after %lld\n", me, milliseconds(longest));
        return status;
    } catch (const un::error& failed) {
        const un::nanoseconds now = un::steady_now();
        std::printf("rank %d %s peer %d after %lld at %lld: %s\n", me, std::string(un::name_of(failed.code())).c_str(),
                    failed.peer(), milliseconds(now - call_began), milliseconds(now), failed.what());
        return 1;
    } catch (const std::exception& failed) {
        std::printf("rank %d threw: %s\n", me, failed.what());
        return 5;
    }
}
