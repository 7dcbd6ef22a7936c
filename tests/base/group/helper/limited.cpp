// A program under a limit of threads: group_limited PART. It asks a part of the library for a
// thread, prints the error, and then ends by SIGTERM, unless the part has left the signal blocked.

#include <unisono/extensions/launch/sockets/fork_run.hpp>
#include <unisono/group/progress_thread.hpp>
#include <unisono/join.hpp>
#include <unisono/simulate.hpp>
#include <unisono/unisono.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

/// Allows `threads` threads beside this one. Root, whom no limit binds, becomes a user that has no
/// other process; for any other user the limit is below what he has.
void limit(unsigned threads) {
    const auto user = static_cast<uid_t>(1'000'000 + ::getpid());
    const bool alone = ::geteuid() == 0 && ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0;
    const rlimit most{alone ? threads + 1 : 1, alone ? threads + 1 : 1};
    if (::setrlimit(RLIMIT_NPROC, &most) != 0) std::perror("setrlimit");
}

/// A stream of no index lists.
struct Nothing {
    struct Entry {
        std::span<const std::size_t> samples = {};
    };
    [[nodiscard]] bool done() const { return true; }
    Entry next() { return {}; }
};

void ask(const std::string& part) {
    const std::vector<float> values(8);
    un::RowData data(values, 2);
    if (part == "worlds") {                                           // no limit: what it prints about a launcher
        un::simulate(2, {}, [](auto& world) { un::barrier(world); }); // simulated ranks are no world of the launcher's
        std::fputs("simulated\n", stderr);
        for (int i = 0; i < 2; ++i) un::run<un::InProcess>(2, [](auto& world) { un::barrier(world); });
    } else if (part == "run") {
        limit(2);
        un::run<un::InProcess>(4, [](auto& world) { un::barrier(world); }, {.timeout = 20s});
    } else if (part == "loader") {
        limit(0);
        un::Loader loader(data, Nothing{});
    } else if (part == "progress") {
        un::run<un::InProcess>(1, [](auto& world) {
            limit(0);
            un::ProgressThread thread(world);
        });
    } else if (part == "fork") {
        limit(0);
        un::fork_run(2, [](const un::Identity&) {});
    } else if (part == "processes") {
        limit(0);
        un::run<un::SharedMemory>(2, [](auto& world) { un::barrier(world); });
    } else { // a rank of a job: all, or the one that is named
        if (part == "all" || part == std::getenv("RANK")) limit(0);
        auto world = un::join<un::SharedMemory>({.timeout = 20s, .rendezvous = {.timeout = 20s}});
        un::barrier(world);
        un::run<un::InProcess>(2, [](auto& threads) { un::barrier(threads); });
        std::puts("met");
    }
}

} // namespace

int main(int, char** argv) {
    try {
        ask(argv[1]);
        std::puts("nothing was thrown");
    } catch (const un::error& failed) {
        std::printf("%s\n", failed.what());
    } catch (const std::exception& failed) {
        std::printf("not an error of the library: %s\n", failed.what());
    }
    std::fflush(stdout);
    ::raise(SIGTERM);
    std::puts("SIGTERM is blocked");
    return 0;
}
