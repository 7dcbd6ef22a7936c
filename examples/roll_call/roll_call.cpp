// Processes that a launcher started find each other, exchange their numbers, and notice when one of
// them dies:
//     unisono-run -n 3 roll_call            (or torchrun --no-python, mpirun, srun)
//     unisono-run -n 3 roll_call --die 1
// Without a launcher the program is the only rank.

#include <unisono/core/number.hpp>
#include <unisono/launch.hpp>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

namespace un = unisono;
using namespace std::chrono_literals;

int main(int argc, char** argv) {
    try {
        const bool dies = argc == 3 && std::strcmp(argv[1], "--die") == 0;
        if (argc != 1 && !dies) un::refuse_input("roll_call: expected no argument, or --die RANK");
        const int victim = dies ? un::read_number<int>(argv[2], "--die", 0) : -1;
        const un::Identity me = un::identify();
        un::ControlPlane plane = un::rendezvous({.timeout = 30s});
        const un::Placement place = plane.placement();
        std::printf("rank %d of %d, number %d of %d on this host (%s)\n", plane.rank(), plane.size(), place.local_rank,
                    place.local_world, un::name_of(me.launcher).data());
        std::fflush(stdout);

        // Each rank's message to the others: any bytes, up to 1 MiB.
        const int mine = plane.rank() * plane.rank();
        int sum = 0;
        for (const un::Blob& blob :
             plane.all_gather(std::as_bytes(std::span(&mine, 1)), un::steady_now() + 30'000'000'000)) {
            int theirs = 0;
            std::memcpy(&theirs, blob.data(), sizeof theirs);
            sum += theirs;
        }
        if (plane.rank() == 0) std::printf("the squares of all ranks add up to %d\n", sum);
        std::fflush(stdout);

        if (victim >= 0) {
            if (plane.rank() == victim) std::raise(SIGKILL);
            std::this_thread::sleep_for(100ms); // computes; the control plane watches meanwhile
            static_cast<void>(plane.all_gather({}, un::steady_now() + 30'000'000'000));
        }
        return 0;
    } catch (const un::error& failed) {
        std::fprintf(stderr, "%s\n", failed.what());
        return 1;
    }
}
