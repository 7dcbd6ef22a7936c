// The proofs that a member has ended. A cut connection proves nothing. A child that a rank has
// forked is not the rank.
#include "ranks.hpp"

#include <unisono/extensions/elastic/mesh.hpp>

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>

using namespace unisono_test;
using namespace std::chrono_literals;

namespace {

/// Asks as a member asks that waits for others.
bool ends_within(un::detail::ProcessWatch& watch, std::chrono::nanoseconds limit) {
    for (const un::nanoseconds until = un::steady_now() + limit.count(); un::steady_now() < until;) {
        pollfd one = watch.polled();
        ::poll(&one, 1, un::detail::poll_timeout(std::min(until, watch.due())));
        if (watch.look(one.revents, {}, un::steady_now()) == un::detail::Conclusion::ended) return true;
    }
    return false;
}

/// Cuts all TCP connections of this process, as a router does that forgets them: both ends see the
/// other end close.
void cut_connections() {
    std::vector<int> all;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
        all.push_back(std::stoi(each.path().filename().string()));
    for (const int fd : all) {
        sockaddr_storage peer{};
        socklen_t length = sizeof peer;
        if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 && peer.ss_family != AF_UNIX)
            ::shutdown(fd, SHUT_RDWR);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(elastic_ends)

/// A process of this host whose number is unknown: if a process still listens there, a closed
/// connection proves nothing. A refusal by this kernel does.
BOOST_AUTO_TEST_CASE(connections_that_this_host_refuses_prove_an_end) {
    un::detail::Listener listener = un::detail::listen_at(true, 0);
    un::detail::ProcessWatch watch;
    watch.know_address("127.0.0.1", listener.port);
    BOOST_TEST(watch.due() == un::never);
    BOOST_TEST((watch.look(0, {}, un::steady_now()) == un::detail::Conclusion::none));
    watch.suspect();
    BOOST_TEST(!ends_within(watch, 200ms));
    { // it closes connections on which nothing is sent
        const un::detail::FileDescriptor came(::accept(listener.socket.get(), nullptr, nullptr));
        BOOST_TEST(came.valid());
    }
    BOOST_TEST(!ends_within(watch, 200ms));
    listener.socket.close();
    BOOST_TEST(ends_within(watch, 5s));
}

BOOST_AUTO_TEST_CASE(one_of_which_nothing_is_known_is_silent) {
    un::detail::ProcessWatch unknown;
    unknown.suspect();
    BOOST_TEST(!ends_within(unknown, 50ms));
}

BOOST_AUTO_TEST_CASE(the_system_knows_processes_of_this_host) {
    for (const bool is_other : {false, true}) {
        un::Processes processes;
        processes.start([] {
            ::pause();
            return 0;
        });
        const int pid = processes.pid(0);
        const un::detail::Listener listener = un::detail::listen_at(true, 0);
        un::detail::ProcessCard card = un::detail::ProcessCard::of_this("127.0.0.1", listener.port);
        card.pid = static_cast<std::uint64_t>(pid);
        card.born = un::detail::ProcessCard::birth_of(pid) + (is_other ? 1 : 0);
        un::detail::ProcessWatch watch;
        watch.know(card);
        BOOST_TEST(!ends_within(watch, 20ms));
        watch.suspect();
        BOOST_TEST(!ends_within(watch, 50ms));
        processes.signal_all(SIGKILL);
        // The process ID belongs to another process.
        BOOST_TEST(ends_within(watch, is_other ? 200ms : 10s) == !is_other);
        await_end(processes);
    }
}

/// Both ranks live. The half with the lowest rank continues, and the other one does not: also not
/// when it sees that the first one has ended, since it did not hear its last words.
BOOST_AUTO_TEST_CASE(two_ranks_cut_apart_are_no_two_worlds) {
    const Shared told;
    run_ranks<un::Tcp>(2, impatient(), told, [&](int rank) {
        return [rank](auto& world) {
            return train(world, [&](const un::UpdateReport& report) {
                if (rank == 0 && report.number == 5) cut_connections();
                if (world.changes().empty()) ::usleep(150'000);
            });
        };
    });
    BOOST_TEST(told[0].done, told[0].text);
    BOOST_TEST(told[0].slowest_ms > 1500); // it has waited for the other rank
    BOOST_TEST(!told[1].done, "two worlds");
    says(told[1], "not two worlds");
}

/// The other ranks are a majority.
BOOST_AUTO_TEST_CASE(rank_that_is_cut_off_is_left_behind) {
    un::ElasticOptions options = impatient();
    options.patience = 2s; // long after the rank has noticed
    options.give_up = 12s;
    for (const int victim : {0, 2}) {
        const Shared told;
        run_ranks<un::Tcp>(3, options, told, [&](int rank) {
            return [rank, victim](auto& world) {
                return train(world, [&](const un::UpdateReport& report) {
                    if (rank == victim && report.number == 5) cut_connections();
                    // All ranks notice before the end.
                    if (world.changes().empty()) ::usleep(150'000);
                });
            };
        });
        for (int rank = 0; rank < 3; ++rank)
            BOOST_TEST_CONTEXT("rank " << rank << " of which " << victim << " is cut off, with " << told[rank].changes
                                       << " changes, the slowest of " << told[rank].slowest_ms
                                       << " ms: " << told[rank].text) {
                BOOST_TEST(told[rank].done == (rank != victim));
                if (rank == victim) says(told[rank], "not two worlds");
                else BOOST_TEST((told[rank].result == undisturbed()), "another result than undisturbed");
            }
    }
}

/// The child stands for a worker of the rank's loader. It holds all connections of the rank.
template <class Transport>
void kill_rank_with_child() {
    const Shared told;
    run_ranks<Transport>(2, told, [&](int rank) {
        return [&, rank](auto& world) {
            return train(world, [&](const un::UpdateReport& report) {
                if (rank != 1 || report.number != 4) return;
                if (::fork() == 0) {
                    for (int i = 0; i < 1500 && !told[0].done; ++i) ::usleep(10'000);
                    ::_exit(0);
                }
                ::kill(::getpid(), SIGKILL);
            });
        };
    });
    ends_well(told[0]);
    const std::chrono::duration<double, std::milli> patience = patient().patience;
    BOOST_TEST(told[0].slowest_ms < patience.count()); // nobody waited for the child
}
BOOST_AUTO_TEST_CASE(killed_with_a_child_in_shared_memory) { kill_rank_with_child<un::SharedMemory>(); }
BOOST_AUTO_TEST_CASE(killed_with_a_child_over_sockets) { kill_rank_with_child<un::Tcp>(); }

/// A child that unwinds destroys its copy of the world. It sends nothing in its parent's name.
BOOST_AUTO_TEST_CASE(a_child_that_returns_is_not_the_rank) {
    const Shared told;
    const Folder folder;
    un::Processes processes;
    const std::string file = un::detail::rendezvous_path(un::detail::admission_point({.folder = folder.path()}));
    start_ranks<un::SharedMemory>(processes, 3, folder, patient(), told, [&](int rank) {
        return [&, rank](auto& world) {
            if (rank != 2) {
                const pid_t child = ::fork();
                if (child == 0) {
                    world.set_complete(true);
                    world.leave(); // as the world's destructor does
                    ::_exit(0);
                }
                ::waitpid(child, nullptr, 0);
                if (rank == 0 && ::access(file.c_str(), F_OK) != 0) un::refuse_input("the file has gone");
            }
            return train(world, [&](const un::UpdateReport& report) {
                if (rank == 2 && report.number == 4) ::kill(::getpid(), SIGKILL);
            });
        };
    });
    await_end(processes);
    for (const int rank : {0, 1}) BOOST_TEST_CONTEXT("rank " << rank << ": " << told[rank].text) {
            ends_well(told[rank]);
            BOOST_TEST(told[rank].changes == 1u);
        }
}

/// No process applies, and the folder for applications is gone. With `dies`, the next first rank
/// finds no folder.
BOOST_AUTO_TEST_CASE(without_a_folder_the_training_goes_on) {
    for (const bool dies : {false, true}) {
        const Shared told;
        const Folder folder;
        un::Processes processes;
        start_ranks<un::SharedMemory>(processes, 3, folder, patient(), told, [&](int rank) {
            return [&, rank](auto& world) {
                return train(world, [&](const un::UpdateReport& report) {
                    ::usleep(15'000); // the first rank looks for applications
                    if (rank != 0 || report.number != 4) return;
                    std::filesystem::remove_all(folder.path());
                    std::ofstream(folder.path()) << "in the way of the folder";
                    if (dies) ::kill(::getpid(), SIGKILL);
                });
            };
        });
        await_end(processes);
        for (int rank = dies ? 1 : 0; rank < 3; ++rank) BOOST_TEST_CONTEXT("rank " << rank << ": " << told[rank].text) {
                ends_well(told[rank]);
            }
    }
}

/// If a launcher restarts ranks, each rank that reaches the end records that the training has
/// ended, even if a rank dies at that time.
BOOST_AUTO_TEST_CASE(each_rank_that_ends_says_that_the_training_has_ended) {
    ::setenv("UNISONO_JOINS", "auto", 1);
    const Shared told;
    const Folder folder;
    un::Processes processes;
    start_ranks<un::SharedMemory>(processes, 2, folder, patient(), told, [&](int rank) {
        return [rank](auto& world) {
            const Result result = train(world, [](const un::UpdateReport&) {});
            if (rank == 0) ::kill(::getpid(), SIGKILL);
            return result;
        };
    });
    await_end(processes);
    ::unsetenv("UNISONO_JOINS");
    BOOST_TEST(told[1].done, told[1].text);
    const un::RendezvousPoint point = un::detail::admission_point({.folder = folder.path()});
    BOOST_TEST(::access(un::detail::end_of_training_path(point).c_str(), F_OK) == 0);
}

/// Rank 2 helps the stranger: it starts to join only after five silent connections have reached
/// rank 0, so that rank 1's connection comes after them. Then rank 2 stays away, and the others
/// name the missing rank.
BOOST_AUTO_TEST_CASE(idle_connections_delay_no_start) {
    const std::uint16_t port = un::detail::listen_at(true, 0).port;
    const Shared told;
    const Folder folder;
    un::Processes processes;
    for (int rank = 0; rank < 3; ++rank)
        processes.start([&, rank] {
            const un::nanoseconds until = un::steady_now() + 20'000'000'000;
            if (rank == 0)
                ::setenv("UNISONO_PORT_RANGE", (std::to_string(port) + "-" + std::to_string(port)).c_str(), 1);
            un::ControlPlane plane =
                un::rendezvous(un::identity_of(rank, 3), un::RendezvousPoint{.folder = folder.path()});
            if (rank < 2) {
                try {
                    const un::detail::Mesh mesh(plane, un::steady_now() + 4'000'000'000);
                } catch (const un::error& failed) {
                    std::snprintf(told[rank].text, sizeof told[rank].text, "%s", failed.what());
                }
                told[rank].done = true;
                return 0;
            }
            static_cast<void>(un::detail::has_other_hosts(plane, until));
            std::vector<un::detail::FileDescriptor> idle;
            while (idle.size() < 5 && un::steady_now() < until) {
                std::string why;
                const auto addresses = un::detail::resolve("127.0.0.1", port, why);
                idle.push_back(un::detail::connect_to(addresses.at(0), until, why));
                if (idle.back().valid()) continue;
                idle.pop_back();
                ::usleep(5'000);
            }
            static_cast<void>(plane.all_gather(un::Blob(40), until));
            for (int i = 0; i < 1000 && !(told[0].done && told[1].done); ++i) ::usleep(10'000);
            return 0;
        });
    await_end(processes);
    says(told[0], "rank 0 waited for rank 2 to connect");
    says(told[1], "rank 1 waited for rank 2 to connect");
}

BOOST_AUTO_TEST_SUITE_END()
