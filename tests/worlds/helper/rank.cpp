// A rank of a world for the tests: world_rank MODE [NUMBERS...], started by any launcher. What it prints is what the tests
// look at.

#include <unisono/collective/collective.hpp>
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

namespace un = unisono;
using namespace std::chrono_literals;
using Group = un::Group<un::SharedMemory>;

namespace {

/// Of who shall be disappointed: in that time all others have come to wait, on a busy machine, too.
constexpr auto patience = 2s;

int wrong = 0;

void expect(bool holds, const char* what) {
    if (holds) return;
    ++wrong;
    std::printf("wrong: %s\n", what);
}

template <class Data>
bool all_are(const Data& data, float value) {
    for (const float one : data) {
        if (one != value) return false;
    }
    return true;
}

/// Every collective a little, small and large, in memory of the world and elsewhere, over several schedules.
void use(Group& world) {
    const int ranks = world.size();
    const auto count_of_ranks = static_cast<std::size_t>(ranks);
    const float mine = static_cast<float>(world.rank() + 1);
    const float sum = static_cast<float>(ranks * (ranks + 1) / 2);
    for (const std::size_t count : {1u, 500u, 100'000u}) {
        std::vector<float> own(count, mine);
        un::Memory<float> shared = world.allocate<float>(count);
        std::fill(shared.begin(), shared.end(), mine);
        un::all_reduce(world, own);
        expect(all_are(own, sum), "all_reduce");
        un::all_reduce(world, shared, un::Max{}, un::RingSchedule{.chunk_bytes = 65536});
        expect(all_are(shared, static_cast<float>(ranks)), "all_reduce by a ring");
        std::vector<float> all(count * count_of_ranks), part(count), block(count, mine);
        un::all_gather(world, block, all);
        expect(all.back() == static_cast<float>(ranks), "all_gather");
        std::fill(all.begin(), all.end(), mine);
        un::reduce_scatter(world, all, part);
        expect(all_are(part, sum), "reduce_scatter");
        std::vector<float> exchanged(all.size());
        un::all_to_all(world, all, exchanged);
        expect(exchanged.front() == 1 && exchanged.back() == static_cast<float>(ranks), "all_to_all");
        std::fill(part.begin(), part.end(), world.rank() == ranks - 1 ? 7.0f : 0.0f);
        un::broadcast(world, part, ranks - 1);
        expect(all_are(part, 7), "broadcast");
        std::fill(part.begin(), part.end(), mine);
        std::vector<float> result(count);
        un::reduce(world, part, result, 0);
        if (world.rank() == 0) expect(all_are(result, sum), "reduce");
        un::gather(world, block, all, 0);
        un::scatter(world, all, part, 0);
        expect(all_are(part, mine), "gather and scatter");
        if (world.rank() == 0 && ranks > 1) un::send(world, block, 1, 3);
        if (world.rank() == 1) un::receive(world, part, 0, 3);
        if (world.rank() == 1) expect(all_are(part, 1), "send and receive");
    }
    un::barrier(world);
    Group half = world.split(world.rank() % 2, world.rank());
    std::vector<float> one(10, 1.0f);
    un::all_reduce(half, one);
    expect(all_are(one, static_cast<float>(half.size())), "all_reduce in a group of its own");
}

int run(const std::string& mode, const std::vector<int>& numbers) {
    const un::JoinOptions options{.timeout = 20s, .rendezvous = {.timeout = 20s, .linger = 10s}};
    if (mode == "alone") {
        auto world = un::join<un::InProcess>(options);
        std::vector<float> one(3, 1.0f);
        un::all_reduce(world, one);
        std::printf("rank %d of %d\n", world.rank(), world.size());
        return 0;
    }
    if (mode == "throw") { // what it threw reaches all
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
    if (mode == "forks") { // what a child of a rank does, and that it ends, is nobody's business
        const int child = ::fork();
        if (child == 0) {
            {
                const Group ends = std::move(world);
            }
            ::_exit(0); // what threads held here is lost, and a leak sanitizer would say so
        }
        int status = -1;
        if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) return 6;
        use(world);
        std::printf("rank %d of %d: %s\n", world.rank(), world.size(), wrong == 0 ? "all is well" : "wrong");
        return wrong == 0 ? 0 : 1;
    }
    const int victim = numbers.at(0);
    const int me = world.rank();
    if (mode == "early") { // one rank's work is done before the others'
        Group rest = world.split(me == victim ? un::no_colour : 0, me);
        if (me == victim) return 0;
        std::this_thread::sleep_for(300ms);
        for (int i = 0; i < 3; ++i) use(rest);
        std::printf("%s\n", wrong == 0 ? "all is well" : "wrong");
        return wrong == 0 ? 0 : 1;
    }
    std::vector<float> data(20'000, 1.0f);
    un::barrier(world);
    if (mode == "unwind") { // it leaves by an exception that nobody has told of
        if (me == victim) throw std::runtime_error("not told");
        un::barrier(world);
    } else if (mode == "exit") { // without a goodbye
        if (me == victim) ::_exit(numbers.at(1));
        un::barrier(world);
    } else if (mode == "return") { // with one
        if (me == victim) return 0;
        un::barrier(world);
    } else if (mode == "kill") { // while others reduce; then it is known at once
        if (me == victim) {
            std::this_thread::sleep_for(100ms);
            std::printf("killed at %lld\n", static_cast<long long>(un::steady_now() / 1'000'000));
            std::fflush(stdout);
            ::raise(SIGKILL);
        }
        un::all_reduce(world, data);
    } else if (mode == "check") { // the others compute, and ask now and then
        if (me == victim) ::raise(SIGKILL);
        const un::nanoseconds until = un::steady_now() + 15'000'000'000;
        while (un::steady_now() < until) {
            world.check();
            std::this_thread::sleep_for(1ms);
        }
    } else if (mode == "chain") {
        // Everybody waits for its neighbour, and one rank is stopped, or (with a second number) computes: it is at the root,
        // whoever complains first.
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
