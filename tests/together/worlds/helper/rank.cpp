// A rank of a world for the tests: world_rank MODE [NUMBERS...], started by any launcher. The tests
// read what it prints.

#include "use.hpp"

#include <unisono/join.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using Group = un::Group<un::SharedMemory>;

namespace {

/// Of the rank that times out: in that time all others have begun to wait, also on a busy machine.
constexpr auto patience = 2s;

int run(const std::string& mode, const std::vector<int>& numbers) {
    const un::JoinOptions options{.timeout = 20s, .rendezvous = {.timeout = 20s, .linger = 10s}};
    if (mode == "alone") {
        auto world = un::join<un::InProcess>(options);
        std::vector<float> one(3, 1.0f);
        un::all_reduce(world, one);
        std::printf("rank %d of %d\n", world.rank(), world.size());
        return 0;
    }
    if (mode == "throw") { // its error reaches all ranks
        un::run_joined<un::SharedMemory>(
            [&](Group& world) {
                un::barrier(world);
                if (world.rank() == numbers.at(0)) throw std::runtime_error("its own reason");
                un::barrier(world);
            },
            options);
        return 0;
    }
    Group world = un::join<un::SharedMemory>(options);
    if (mode == "use") {
        for (int round = 0; round < 3; ++round) use(world);
        std::printf("rank %d of %d: %s\n", world.rank(), world.size(), wrong == 0 ? "all is well" : "wrong");
        return wrong == 0 ? 0 : 1;
    }
    // A rank's child and its end do not concern other ranks.
    if (mode == "forks") {
        const int child = ::fork();
        if (child == 0) {
            {
                const Group ends = std::move(world);
            }
            // The memory that threads held here is lost, which a leak sanitizer would report.
            ::_exit(0);
        }
        int status = -1;
        if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) return 6;
        use(world);
        std::printf("rank %d of %d: %s\n", world.rank(), world.size(), wrong == 0 ? "all is well" : "wrong");
        return wrong == 0 ? 0 : 1;
    }
    const int victim = numbers.at(0);
    const int me = world.rank();
    if (mode == "early") { // one rank finishes before the others
        Group rest = world.split(me == victim ? un::no_colour : 0, me);
        if (me == victim) return 0;
        std::this_thread::sleep_for(300ms);
        for (int i = 0; i < 3; ++i) use(rest);
        std::printf("%s\n", wrong == 0 ? "all is well" : "wrong");
        return wrong == 0 ? 0 : 1;
    }
    std::vector<float> data(20'000, 1.0f);
    un::barrier(world);
    if (mode == "unwind") { // an exception ends it that is not reported
        if (me == victim) throw std::runtime_error("not told");
        un::barrier(world);
    } else if (mode == "exit") { // without a goodbye
        if (me == victim) ::_exit(numbers.at(1));
        un::barrier(world);
    } else if (mode == "return") { // with a goodbye
        if (me == victim) return 0;
        un::barrier(world);
    } else if (mode == "kill") { // while others reduce; they are told immediately
        if (me == victim) {
            std::this_thread::sleep_for(100ms);
            std::printf("killed at %lld\n", static_cast<long long>(un::steady_now() / 1'000'000));
            std::fflush(stdout);
            ::raise(SIGKILL);
        }
        un::all_reduce(world, data);
    } else if (mode == "check") { // the others compute, and check now and then
        if (me == victim) ::raise(SIGKILL);
        const un::nanoseconds until = un::steady_now() + 15'000'000'000;
        while (un::steady_now() < until) {
            world.check();
            std::this_thread::sleep_for(1ms);
        }
    } else if (mode == "chain") {
        // Each rank waits for its neighbour. One rank is stopped or, with a second number,
        // computes. It is the root cause, whichever rank complains first.
        world.set_timeout(me == (victim + 2) % world.size() ? patience : 20s);
        if (me == victim) {
            if (numbers.size() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(numbers[1]));
            else ::raise(SIGSTOP);
        }
        std::vector<float> one(1);
        const int before = (me + world.size() - 1) % world.size(), after = (me + 1) % world.size();
        if (me == victim) un::send(world, one, after, 1);
        un::receive(world, one, before, 1);
        if (me != victim) un::send(world, one, after, 1);
    } else if (mode == "stop") {
        world.set_timeout(patience);
        if (me == victim) ::raise(SIGSTOP);
        for (int i = 0; i < 3; ++i) un::all_reduce(world, data);
    } else if (mode == "slow") { // it is never declared dead
        if (me == victim) std::this_thread::sleep_for(std::chrono::milliseconds(numbers.at(1)));
        un::all_reduce(world, data);
        std::printf("all came\n");
    } else if (mode == "mismatch") {
        un::all_reduce(world, std::span<float>(data).first(me == victim ? 100u : 200u));
    } else if (mode == "poll") { // the deadline of one rank passes while others poll
        if (me == victim) ::raise(SIGSTOP);
        un::Operation sum = un::start_all_reduce(world, data);
        if (me == (victim + 1) % world.size()) sum.wait(patience);
        while (!sum.poll()) {
        }
    } else {
        return 64;
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    std::vector<int> numbers;
    for (int i = 2; i < argc; ++i) numbers.push_back(std::atoi(argv[i]));
    try {
        return run(argc > 1 ? argv[1] : "", numbers);
    } catch (const un::error& failed) {
        std::printf("%s rank %d peer %d at %lld: %s\n", std::string(un::name_of(failed.code())).c_str(), failed.rank(),
                    failed.peer(), static_cast<long long>(un::steady_now() / 1'000'000), failed.what());
        return 1;
    } catch (const std::exception& failed) {
        std::printf("threw %s\n", failed.what());
        return 5;
    }
}
