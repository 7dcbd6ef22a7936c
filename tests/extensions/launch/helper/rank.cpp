// A rank of a job for the tests of launchers and control planes: launch_rank MODE [NUMBERS...]. The
// tests read what it prints.

#include <unisono/extensions/launch/rendezvous/elastic_folder.hpp>
#include <unisono/extensions/launch/sockets/fork_run.hpp>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <pthread.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

un::nanoseconds in(std::chrono::nanoseconds duration) { return un::deadline_after(un::steady_now(), duration); }

void print(const un::Fault& fault) {
    std::printf("fault %s peer %d: %s\n", std::string(un::name_of(fault.code)).c_str(), fault.peer,
                fault.message.c_str());
    std::fflush(stdout);
}

/// Waits for the first fault, which was caused at `since`.
int await_fault(un::ControlPlane& plane, un::nanoseconds since) {
    const un::nanoseconds limit = in(20s);
    while (plane.first_fault() == nullptr) {
        if (un::steady_now() > limit) {
            std::printf("no fault\n");
            return 3;
        }
        std::this_thread::sleep_for(1ms);
    }
    print(*plane.first_fault());
    std::printf("after %lld ms\n", static_cast<long long>((un::steady_now() - since) / 1'000'000));
    return 1;
}

/// A time, known to all ranks, at which one rank does something. All clocks of one host are one
/// clock.
un::nanoseconds agree_on_moment(un::ControlPlane& plane) {
    const un::nanoseconds mine = in(50ms);
    const auto blobs = plane.all_gather(std::as_bytes(std::span(&mine, 1)), in(20s));
    un::nanoseconds moment = 0;
    std::memcpy(&moment, blobs[0].data(), sizeof moment);
    return moment;
}

void sleep_until(un::nanoseconds moment) {
    const un::nanoseconds left = moment - un::steady_now();
    if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
}

/// Acts as the first rank of an elastic world, in a process of its own, which ends with its process
/// group.
int listen_for_newcomers() {
    un::RendezvousPoint point = un::detail::admission_point({.folder = std::getenv("UNISONO_ELASTIC_FOLDER")});
    const un::detail::Listener listener = un::detail::listen_at(true, 0);
    point.host = "127.0.0.1";
    point.port = listener.port;
    point.token = un::JobToken::random();
    un::detail::RendezvousFile file(point);
    if (::fork() != 0) {
        std::fflush(nullptr);
        ::_exit(0); // the file stays
    }
    for (const int fd : {0, 1, 2}) ::close(fd);
    std::this_thread::sleep_for(60s);
    ::_exit(0);
}

int run(const std::string& mode, const std::vector<int>& numbers) {
    if (mode == "alone") {
        const un::Identity me = un::identify();
        std::printf("rank %d of %d, local %d of %d, %d hosts\n", me.rank, me.world, me.local_rank, me.local_world,
                    me.hosts);
        return 0;
    }
    if (mode ==
        // The ranks of a first elastic world meet. One of them listens for processes that join, and
        // leaves its file.
        "world") {
        if (std::getenv("UNISONO_JOINS") != nullptr) return 0;
        { const un::ControlPlane plane = un::rendezvous({.timeout = 20s, .linger = 10s}); }
        const bool listens = std::strcmp(std::getenv("UNISONO_RANK"), "0") == 0;
        return listens && std::getenv("UNISONO_ELASTIC_FOLDER") != nullptr ? listen_for_newcomers() : 0;
    }
    un::ControlPlane plane = un::rendezvous({.timeout = 20s, .linger = 10s});
    if (mode == "gather") {
        const std::string text = std::to_string(plane.rank());
        std::string all;
        for (const auto& blob : plane.all_gather(std::as_bytes(std::span(text)), in(20s))) {
            all += static_cast<char>(blob.at(0));
        }
        std::printf("gathered %s, host has %d\n", all.c_str(), plane.placement().local_world);
        return 0;
    }
    // SIGTERM ends all ranks. Rank 0 writes something before it ends.
    if (mode == "asked") {
        static std::atomic<bool> asked = false;
        std::signal(SIGTERM, [](int) { asked = true; });
        std::puts("ready");
        std::fflush(stdout);
        while (!asked) std::this_thread::sleep_for(1ms);
        if (plane.rank() == 0) {
            std::this_thread::sleep_for(500ms);
            if (plane.first_fault() != nullptr) print(*plane.first_fault());
            else std::puts("no fault");
        }
        return 143;
    }
    const int victim = numbers.at(0);
    const un::nanoseconds moment = agree_on_moment(plane);
    // The victim gets a signal. With a third number it leaves a child that holds its files.
    if (mode == "signal") {
        if (plane.rank() == victim) {
            sleep_until(moment);
            if (numbers.size() > 2 && ::fork() == 0) {
                std::this_thread::sleep_for(std::chrono::milliseconds(numbers[2]));
                ::_exit(0);
            }
            ::kill(::getpid(), numbers.at(1));
        }
        return await_fault(plane, moment);
    }
    if (mode == "exit") {
        if (plane.rank() == victim) {
            sleep_until(moment);
            ::_exit(numbers.at(1));
        }
        return await_fault(plane, moment);
    }
    // The victim is stopped, and the others' deadline passes.
    if (mode == "stop") {
        if (plane.rank() == victim) {
            sleep_until(moment);
            ::kill(::getpid(), SIGSTOP);
            return 0;
        }
        sleep_until(moment + 50'000'000);
        try {
            static_cast<void>(plane.all_gather({}, in(std::chrono::milliseconds(numbers.at(1)))));
        } catch (const un::error& failed) {
            print(failed.why());
            return 1;
        }
        return 0;
    }
    // The victim gets a signal at any time during a busy exchange.
    if (mode == "storm") {
        std::thread storm;
        if (plane.rank() == victim) {
            storm = std::thread([&] {
                sleep_until(moment + numbers.at(2) * 1000);
                ::kill(::getpid(), numbers.at(1));
            });
        }
        try {
            std::vector<std::byte> blob(static_cast<std::size_t>(100 + 5000 * plane.rank()));
            for (;;) static_cast<void>(plane.all_gather(blob, in(2s)));
        } catch (const un::error& failed) {
            print(failed.why());
        }
        if (storm.joinable()) storm.join();
        return 1;
    }
    // The victim computes for longer than a rank waits for an answer.
    if (mode == "slow") {
        if (plane.rank() == victim) {
            const un::nanoseconds until = in(std::chrono::milliseconds(numbers.at(1)));
            volatile unsigned work = 0;
            while (un::steady_now() < until) work = work + 1;
        }
        static_cast<void>(plane.all_gather({}, in(20s)));
        std::printf("all came\n");
        return 0;
    }
    if (mode == "throw") {
        if (plane.rank() == victim) {
            plane.abort({.code = un::ErrorCode::aborted, .rank = victim, .message = "its own reason"});
            return 5;
        }
        return await_fault(plane, moment);
    }
    return 64;
}

template <class Body>
int expect_error(Body body) {
    try {
        body();
        std::printf("no error\n");
        return 1;
    } catch (const un::error& failed) {
        std::printf("%s rank %d peer %d: %s\n", std::string(un::name_of(failed.code())).c_str(), failed.rank(),
                    failed.peer(), failed.what());
        return 0;
    }
}

/// Tests fork_run, which requires a process without threads.
int forked(const std::string& what) {
    const auto gather = [](un::ControlPlane& plane) { static_cast<void>(plane.all_gather({}, in(20s))); };
    const auto fails = [](int ranks, auto body, const un::ForkOptions& options = {}) {
        return expect_error([&] { un::fork_run(ranks, body, options); });
    };
    if (what == "well") {
        std::printf("before\n");
        un::fork_run(4, [&](un::ControlPlane& plane) {
            gather(plane);
            std::printf("rank %d of %d\n", plane.rank(), plane.size());
        });
        un::fork_run(3, [](const un::Identity& me) { std::printf("alone %d of %d\n", me.local_rank, me.local_world); });
        std::printf("after\n");
        return 0;
    }
    // Standard streams have buffers of their own; nothing in them is lost, or written twice.
    if (what == "streams") {
        std::ios::sync_with_stdio(false);
        std::cout << "before\n";
        un::fork_run(2, [](const un::Identity& me) {
            std::cout << "rank " << me.rank << " speaks\n";
            std::clog << "rank " << me.rank << " logs\n";
        });
        std::cout << "after\n";
        std::cout.flush();
        return 0;
    }
    // What the parent had on its stack must not end in a rank.
    if (what == "ended") {
        struct Parents {
            ~Parents() { std::printf("the parent's object ends\n"); }
        } object;
        return fails(3, [&](un::ControlPlane& plane) {
            gather(plane);
            if (plane.rank() == 1) ::pthread_exit(nullptr);
            gather(plane);
        });
    }
    if (what == "throw") {
        return fails(4, [&](un::ControlPlane& plane) {
            gather(plane);
            if (plane.rank() == 2) throw std::runtime_error("the user's own");
            gather(plane);
        });
    }
    if (what == "error") {
        return fails(3, [&](const un::Identity& me) {
            if (me.rank == 1) un::refuse_input("wrong here");
        });
    }
    if (what == "kill") {
        return fails(3, [&](un::ControlPlane& plane) {
            gather(plane);
            if (plane.rank() == 0) ::raise(SIGKILL);
            gather(plane);
        });
    }
    // The others ignore the signal.
    if (what == "stubborn") {
        const auto body = [](const un::Identity& me) {
            if (me.rank == 1) ::_exit(4);
            std::this_thread::sleep_for(60s);
        };
        return fails(3, body, {.timeout = 30s, .grace = 100ms});
    }
    // A child of a rank holds the rank's pipe for longer than the job may take.
    if (what == "orphan") {
        int pids[2];
        if (::pipe(pids) != 0) return 1;
        const auto body = [&](const un::Identity& me) {
            if (me.rank == 0) return;
            const int child = ::fork();
            if (child == 0) {
                std::this_thread::sleep_for(30s);
                ::_exit(0);
            }
            if (::write(pids[1], &child, sizeof child) == sizeof child) throw std::runtime_error("the user's own");
        };
        const int status = fails(2, body, {.timeout = 10s, .grace = 100ms});
        int child = 0;
        if (::read(pids[0], &child, sizeof child) == sizeof child && ::kill(child, SIGKILL) == 0)
            std::printf("in time\n"); // the child was still there
        return status;
    }
    if (what == "late") {
        const auto body = [](const un::Identity& me) {
            if (me.rank == 1) std::this_thread::sleep_for(60s);
        };
        return fails(3, body, {.timeout = 300ms});
    }
    // SIGCHLD is ignored, so the system does not report how a rank ended.
    if (what == "unheard") {
        std::signal(SIGCHLD, SIG_IGN);
        static_cast<void>(fails(3, [](un::ControlPlane&) {}));
        static_cast<void>(fails(3, [](const un::Identity&) {}));
        const auto throws = [&](un::ControlPlane& plane) {
            gather(plane);
            if (plane.rank() == 1) throw std::runtime_error("its own");
        };
        const auto dies = [](const un::Identity& me) {
            if (me.rank == 2) ::raise(SIGKILL);
        };
        const int first = fails(3, throws);
        return first + fails(3, dies);
    }
    // A pipe may have only one page, if a user has many pipes or asks for it.
    if (what == "long") {
        return fails(2, [&](const un::Identity& me) {
            for (int fd = 3; fd < 64; ++fd) static_cast<void>(::fcntl(fd, F_SETPIPE_SZ, 4096));
            if (me.rank == 1) throw std::runtime_error(std::string(20'000, 'x'));
        });
    }
    if (what == "threads") {
        std::atomic<bool> done{false};
        std::thread other([&] {
            while (!done.load()) std::this_thread::sleep_for(1ms);
        });
        const int status = fails(2, [](const un::Identity&) {});
        done = true;
        other.join();
        un::fork_run(2, [](const un::Identity&) {}); // the other thread has ended
        return status;
    }
    if (what == "again") {
        return expect_error([] {
            for (int i = 0; i < 20; ++i) un::fork_run(2, [](un::ControlPlane&) {});
            if (::waitpid(-1, nullptr, 0) != -1) std::printf("a child is left\n");
            un::refuse_input("done");
        });
    }
    if (what == "numbers") return fails(0, [](const un::Identity&) {});
    return 64;
}

} // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    std::vector<int> numbers;
    for (int i = 2; i < argc; ++i) numbers.push_back(std::atoi(argv[i]));
    try {
        return mode == "fork" ? forked(argc > 2 ? argv[2] : "") : run(mode, numbers);
    } catch (const un::error& failed) {
        print(failed.why());
        return 1;
    } catch (const std::exception& failed) {
        std::printf("%s\n", failed.what());
        return 2;
    }
}
