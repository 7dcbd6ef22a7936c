#include "ranks.hpp"
#include "support/fails.hpp"
#include "support/folder.hpp"
#include "support/skip.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <unisono/extensions/launch/rendezvous/rendezvous_sides.hpp>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <thread>
#include <vector>

namespace un = unisono;
namespace d = unisono::detail;
using namespace std::chrono_literals;
using test::blob;
using test::Outcome;

namespace {

/// Joins as each rank of `world` at `point`, and runs the body on the control plane.
template <class Body>
std::vector<Outcome> with_planes(int world, const un::RendezvousPoint& point, Body body) {
    return test::run_ranks(test::all_ranks(world), [&](int rank) {
        un::ControlPlane plane = un::rendezvous(un::identity_of(rank, world), point, test::patience());
        body(plane);
    });
}

const un::Fault& awaited_fault(const un::ControlPlane& plane) {
    for (const auto until = test::in(10s); plane.first_fault() == nullptr; std::this_thread::sleep_for(1ms))
        if (un::steady_now() >= until) throw std::runtime_error("no fault");
    return *plane.first_fault();
}

void gather_some(un::ControlPlane& plane) {
    for (int round = 0; round < 20; ++round) {
        const auto text = [&](int rank) {
            return std::string(static_cast<std::size_t>((rank * 7 + round * 3) % 50), static_cast<char>('a' + rank)) +
                   std::to_string(round);
        };
        const auto blobs = plane.all_gather(blob(text(plane.rank())), test::in(20s));
        if (blobs.size() != static_cast<std::size_t>(plane.size())) throw std::runtime_error("size");
        for (int rank = 0; rank < plane.size(); ++rank) {
            if (test::text_of(blobs[static_cast<std::size_t>(rank)]) != text(rank)) throw std::runtime_error("blob");
        }
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(launch_control_plane)

BOOST_AUTO_TEST_CASE(a_world_of_one_needs_nobody) {
    un::ControlPlane plane = un::rendezvous(un::identity_of(0, 1), {});
    gather_some(plane);
    BOOST_CHECK(plane.first_fault() == nullptr);
    plane.abort({.code = un::ErrorCode::aborted, .message = "mine"});
    BOOST_REQUIRE(plane.first_fault() != nullptr);
    BOOST_CHECK_EQUAL(plane.first_fault()->message, "mine");
    un::ControlPlane moved = std::move(plane);
    BOOST_CHECK_EQUAL(moved.first_fault()->message, "mine");
    BOOST_CHECK_THROW(static_cast<void>(moved.all_gather({}, test::in(1s))), un::error);
}

// Rank 0 still listens for the first world while the others are on their way to the next one.
BOOST_AUTO_TEST_CASE(one_world_after_another_at_one_address) {
    const un::RendezvousPoint point = test::local_point();
    for (const Outcome& each : test::run_ranks(test::all_ranks(3), [&](int rank) {
             for (int world = 0; world < 4; ++world) {
                 const un::ControlPlane plane = un::rendezvous(un::identity_of(rank, 3), point, test::patience());
                 if (rank == 0) std::this_thread::sleep_for(50ms);
             }
         }))
        test::failed_with(each, un::ErrorCode::none, {});
}

BOOST_AUTO_TEST_CASE(blobs_are_gathered_over_tcp) {
    for (const int world : {2, 3, 8}) {
        test::all_well(with_planes(world, test::local_point(), [&](un::ControlPlane& plane) {
            gather_some(plane);
            const un::Placement place = plane.placement();
            if (place.hosts != 1 || place.local_rank != plane.rank() || place.local_world != world)
                throw std::runtime_error("placement");
            if (plane.pid_of(0) != ::getpid()) throw std::runtime_error("pid");
        }));
    }
}

BOOST_AUTO_TEST_CASE(blobs_are_gathered_over_a_file_which_is_gone_then) {
    const unisono_test::Folder folder;
    un::RendezvousPoint point;
    point.folder = folder.path();
    point.job = "run-1";
    // The file of an old run, whose rank 0 has ended, is in the way.
    un::RendezvousPoint old = point;
    old.host = "127.0.0.1";
    old.port = test::free_port();
    old.token = un::JobToken::random();
    {
        auto left_behind = un::detail::RendezvousFile(old);
        test::all_well(with_planes(4, point, [](un::ControlPlane& plane) { gather_some(plane); }));
    }
    test::all_well(with_planes(3, point, [](un::ControlPlane& plane) { gather_some(plane); }));
    BOOST_CHECK(folder.is_empty());
}

// The files hold the tokens of killed jobs.
BOOST_AUTO_TEST_CASE(files_of_long_ago_are_swept) {
    const unisono_test::Folder folder;
    const auto there = [&](const std::string& name) { return ::access((folder / name).c_str(), F_OK) == 0; };
    const auto leave = [&](const std::string& name, int hours, const std::string& text = "unisono1 7 ") {
        const std::string path = folder / name;
        unisono_test::write_file(path, text);
        const timespec then{.tv_sec = std::time(nullptr) - hours * 3600, .tv_nsec = 0};
        const timespec both[2] = {then, then};
        BOOST_REQUIRE_EQUAL(::utimensat(AT_FDCWD, path.c_str(), both, 0), 0);
    };
    const auto leave_all = [&] {
        leave("killed.meet", 48);
        leave("killed.meet.123", 48); // a draft
        leave("waiting.meet", 2);
        for (const char* name : {"notes.txt", "minutes.meeting-notes.txt", "run7.meet.csv", ".meet", "a b.meet"})
            leave(name, 48);
        leave("job.elastic.meet", 48); // of a training that takes days
        leave("job.elastic.meet.123", 48);
        leave("garden.meet", 48, "minutes of the board");
        leave("empty.meet", 48, "");
    };
    leave_all();
    ::symlink("killed.meet", (folder / "link.meet").c_str());
    const std::size_t all = folder.names().size();
    un::RendezvousPoint point = test::local_point();
    point.folder = folder.path();
    { // the user's folder: its files are the user's
        const un::detail::RendezvousFile file(point);
        BOOST_CHECK_EQUAL(folder.names().size(), all + 1);
    }
    point.own_folder = true;
    BOOST_REQUIRE_EQUAL(::chmod(folder.path().c_str(), 0700), 0);
    {
        const un::detail::RendezvousFile file(point);
        BOOST_CHECK(!there("killed.meet") && !there("killed.meet.123"));
        BOOST_CHECK(there("waiting.meet") && there("notes.txt") && there(point.job + ".meet"));
        BOOST_CHECK(there("job.elastic.meet") && there("garden.meet"));
    }
    BOOST_CHECK_EQUAL(folder.names().size(), all - 2);
    point.own_folder = false;
    point.folder = "/proc/no_folder_here";
    test::fails(un::ErrorCode::refused, {"/proc/no_folder_here", "UNISONO_FOLDER"},
                [&] { static_cast<void>(un::detail::RendezvousFile(point)); });
}

BOOST_AUTO_TEST_CASE(a_file_that_others_can_write_is_no_invitation) {
    const unisono_test::Folder folder;
    un::RendezvousPoint point = test::local_point();
    point.folder = folder.path();
    {
        const un::detail::RendezvousFile file(point);
        un::RendezvousPoint found;
        found.folder = folder.path();
        BOOST_CHECK(un::detail::read_rendezvous_file(found));
        BOOST_CHECK(found.token == point.token && found.port == point.port && found.host == point.host);
        BOOST_CHECK_EQUAL(::chmod(un::detail::rendezvous_path(point).c_str(), 0666), 0);
        test::fails(un::ErrorCode::refused, {"this user alone"},
                    [&] { static_cast<void>(un::detail::read_rendezvous_file(found)); });
        // As on a network file system that squashes root.
        if (::geteuid() == 0 && ::chown(un::detail::rendezvous_path(point).c_str(), 65534, 65534) == 0) {
            test::fails(un::ErrorCode::refused,
                        {"it belongs to user 65534, and this process is user 0", "root_squash", "UNISONO_FOLDER"},
                        [&] { static_cast<void>(un::detail::read_rendezvous_file(found)); });
            BOOST_CHECK_EQUAL(::chown(folder.path().c_str(), 65534, 65534), 0);
            test::fails(un::ErrorCode::refused, {"this user alone can enter", "root_squash"},
                        [&] { un::detail::make_rendezvous_folder(folder.path(), true); });
        }
    }
    for (const std::string line :
         {"", "\n", "unisono1", "unisono1 0 aa h\n", "unisono1 5 00 h\n", "unisono2 5 00 h\n"}) {
        un::RendezvousPoint found;
        BOOST_CHECK(!un::detail::parse_rendezvous_line(line, found));
    }
    BOOST_CHECK(folder.is_empty());
}

BOOST_AUTO_TEST_CASE(large_blobs_pass_and_too_large_ones_are_refused) {
    test::all_well(with_planes(3, test::local_point(), [](un::ControlPlane& plane) {
        un::Blob mine(std::size_t{1} << 20, static_cast<std::byte>(plane.rank()));
        const auto blobs = plane.all_gather(mine, test::in(20s));
        for (std::size_t rank = 0; rank < 3; ++rank) {
            if (blobs[rank].size() != mine.size() || blobs[rank].back() != static_cast<std::byte>(rank))
                throw std::runtime_error("blob");
        }
        mine.push_back({});
        try {
            static_cast<void>(plane.all_gather(mine, test::in(20s)));
            throw std::runtime_error("not refused");
        } catch (const un::error& failed) {
            if (failed.code() != un::ErrorCode::bad_input) throw;
        }
        gather_some(plane); // the mismatch changed nothing
    }));
}

BOOST_AUTO_TEST_CASE(the_ranks_that_never_came_are_named) {
    const auto point = test::local_point();
    const auto outcomes = test::run_ranks({0, 2, 5}, [&](int rank) {
        static_cast<void>(un::rendezvous(un::identity_of(rank, 6), point, test::patience(2s)));
    });
    for (const Outcome& outcome : outcomes)
        test::failed_with(outcome, un::ErrorCode::timeout, {"3 never came: ranks 1, 3, 4"}, 1);
    const auto lonely = test::run_ranks({2}, [&](int rank) {
        static_cast<void>(un::rendezvous(un::identity_of(rank, 3), test::local_point(), test::patience(300ms)));
    });
    test::failed_with(lonely[0], un::ErrorCode::timeout, {"rank 0, which never came", "refused"}, 0);
}

BOOST_AUTO_TEST_CASE(two_ranks_that_claim_the_same_rank_hear_it_both) {
    for (const std::vector<int>& ranks : {std::vector<int>{0, 1, 1}, {0, 0, 1}}) {
        const auto point = test::local_point();
        const auto outcomes = test::run_ranks(ranks, [&](int rank) {
            static_cast<void>(un::rendezvous(un::identity_of(rank, 3), point, test::patience(10s)));
        });
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            const std::string twice = "two processes claim to be rank " + std::to_string(ranks[1]);
            if (ranks[i] == ranks[1]) test::failed_with(outcomes[i], un::ErrorCode::bad_input, {twice});
            else BOOST_CHECK(outcomes[i].code != un::ErrorCode::none);
        }
    }
}

// Rank 0 waits for rank 2, which never arrives, because rank 0 might learn what failed. It waits no
// longer than the deadline of all ranks.
BOOST_AUTO_TEST_CASE(a_failure_shortly_before_the_deadline_holds_rank_0_no_longer) {
    const auto point = test::local_point();
    std::atomic<un::nanoseconds> last = 0;
    std::atomic<int> came = 0;
    const un::nanoseconds began = un::steady_now();
    test::run_ranks({0, 1, 1}, [&](int rank) {
        if (rank == 1 && came++ == 1) std::this_thread::sleep_for(2400ms);
        try {
            static_cast<void>(un::rendezvous(un::identity_of(rank, 3), point, test::patience(3s)));
        } catch (const un::error&) {
            if (rank == 0) last = un::steady_now() - began;
        }
    });
    // It has heard of the failure, and has not waited for another 3 s from then on.
    BOOST_CHECK_GT(last.load(), 2'400'000'000);
    BOOST_CHECK_LT(last.load(), 5'400'000'000);
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree_about_the_world_hear_it_all) {
    const auto point = test::local_point();
    const auto outcomes = test::run_ranks({0, 1, 2}, [&](int rank) {
        static_cast<void>(un::rendezvous(un::identity_of(rank, rank == 2 ? 4 : 3), point, test::patience(10s)));
    });
    for (const Outcome& outcome : outcomes)
        test::failed_with(outcome, un::ErrorCode::bad_input,
                          {"rank 2 expects a world of 4", "rendezvous point is for a world of 3"});
}

BOOST_AUTO_TEST_CASE(a_host_that_cannot_look_itself_up_finds_itself) {
    const std::string name = "this-host.invalid";
    bool permitted = false;
    std::string why;
    std::vector<un::detail::SocketAddress> found;
    std::thread([&] { // only this rank is on a host of that name
        permitted = ::unshare(CLONE_NEWUTS) == 0 && ::sethostname(name.data(), name.size()) == 0;
        if (permitted) found = un::detail::resolve(name, 80, why);
    })
        .join();
    if (!permitted) return test::skip("a host's name space of its own is not permitted here");
    BOOST_TEST_REQUIRE(found.size() == 1u, why);
    BOOST_TEST(un::detail::is_loopback(found[0]));
}

// Debian's /etc/hosts gives a host's own name the address 127.0.1.1. No rank finds a socket there
// that listens at 127.0.0.1.
BOOST_AUTO_TEST_CASE(a_hosts_own_name_is_no_loopback) {
    un::RendezvousPoint point = test::local_point();
    point.host = "127.0.1.1";
    test::all_well(with_planes(2, point, gather_some));

    const auto alone = [](const std::string& name, std::initializer_list<const char*> addresses) {
        std::vector<un::detail::SocketAddress> found;
        std::string why;
        for (const char* each : addresses)
            for (const auto& one : un::detail::resolve(each, 80, why)) found.push_back(one);
        return un::detail::listens_on_loopback(name, found);
    };
    BOOST_TEST(alone("localhost", {"127.0.0.1"}));
    BOOST_TEST(alone("127.0.0.1", {"127.0.0.1"}));
    BOOST_TEST(!alone("node-7", {"127.0.0.1"}));
    BOOST_TEST(!alone("node-7", {"127.0.1.1"}));
    BOOST_TEST(!alone("localhost", {"127.0.0.1", "127.0.1.1"}));
    BOOST_TEST(!alone("localhost", {}));
}

BOOST_AUTO_TEST_CASE(strangers_change_nothing) {
    const auto point = test::local_point();
    std::atomic<bool> done{false};
    std::thread strangers([&] {
        std::uint32_t seed = 1;
        std::vector<un::detail::FileDescriptor> held;
        while (!done.load()) {
            std::string why, bytes;
            const auto address = un::detail::resolve(point.host, point.port, why);
            auto socket = un::detail::connect_to(address.at(0), test::in(1s), why);
            if (!socket.valid()) {
                std::this_thread::sleep_for(1ms);
                continue;
            }
            seed = seed * 1664525u + 1013904223u;
            auto hello = un::detail::encode(
                un::detail::Hello{.nonce = un::JobToken::random().value(), .world = 3, .rank = seed % 3});
            switch (seed >> 28) {
            case 0: hello.clear(); break;
            case 1: hello.resize(seed % 56); break;
            case 2: hello.assign(5000, static_cast<std::byte>(seed >> 8)); break;
            case 3: hello = blob("GET / HTTP/1.1\r\n\r\n"); break;
            default: break;
            }
            static_cast<void>(::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL));
            // It sends nothing more, and stays.
            if (seed % 3 == 0 && held.size() < 300) held.push_back(std::move(socket));
        }
    });
    std::this_thread::sleep_for(20ms);
    test::all_well(with_planes(3, point, [](un::ControlPlane& plane) {
        gather_some(plane);
        std::this_thread::sleep_for(100ms);
        gather_some(plane);
    }));
    done = true;
    strangers.join();
}

BOOST_AUTO_TEST_CASE(what_listens_may_be_anything) {
    const auto listener = un::detail::listen_at(true, 0);
    std::atomic<bool> done{false};
    std::thread stranger([&] {
        std::uint32_t seed = 7;
        const auto draw = [&] { return seed = seed * 1664525u + 1013904223u, seed >> 8; };
        while (!done.load()) {
            if (!un::detail::wait_for(listener.socket.get(), POLLIN, test::in(5ms))) continue;
            un::detail::FileDescriptor guest(::accept(listener.socket.get(), nullptr, nullptr));
            un::Blob bytes;
            if (draw() % 2 == 0) bytes = un::detail::make_frame(un::detail::FrameKind::accepted);
            const auto kind = static_cast<un::detail::FrameKind>(1 + draw() % 12);
            un::Blob payload(draw() % 100);
            for (auto& byte : payload) byte = static_cast<std::byte>(draw() % 3 == 0 ? draw() : 0);
            const auto frame = un::detail::make_frame(kind, payload);
            bytes.insert(bytes.end(), frame.begin(), frame.end());
            if (draw() % 4 == 0) bytes[draw() % bytes.size()] = std::byte{0xff};
            static_cast<void>(::send(guest.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
        }
    });
    for (int i = 0; i < 200; ++i) { // soon an error of the library each time
        const auto outcomes = test::run_ranks({1}, [&](int rank) {
            static_cast<void>(
                un::rendezvous(un::identity_of(rank, 2), test::local_point(listener.port), test::patience(20ms)));
        });
        BOOST_CHECK_MESSAGE(test::contains(outcomes[0], "unisono: "), outcomes[0].text);
    }
    done = true;
    stranger.join();
}

// A stranger takes the port before rank 0 does, and records what the ranks send.
BOOST_AUTO_TEST_CASE(who_listens_first_learns_nothing_that_lets_it_in) {
    const auto listener = d::listen_at(true, 0);
    const auto point = test::local_point(listener.port);
    std::atomic<bool> done{false};
    std::vector<un::Blob> heard;
    std::thread thief([&] {
        while (!done) {
            if (!d::wait_for(listener.socket.get(), POLLIN, test::in(5ms))) continue;
            d::Entrance guest{.socket = d::FileDescriptor(::accept(listener.socket.get(), nullptr, nullptr))};
            while (guest.unread.size() < d::Hello::bytes && d::read_more(guest, test::in(1s))) {
            }
            // It can answer with a proof of its own making, or with what another hub has sent.
            const d::Challenge made{.nonce = un::JobToken::random().value(),
                                    .proof = d::proof_of_keeper(un::JobToken::random(), guest.unread, {})};
            static_cast<void>(d::send_all(guest.socket.get(), d::encode(made), test::in(1s)));
            while (d::read_more(guest, test::in(1s))) {
            }
            if (!guest.unread.empty()) heard.push_back(guest.unread); // its deadline may come first
        }
    });
    const auto outcomes = test::run_ranks({1}, [&](int rank) {
        static_cast<void>(un::rendezvous(un::identity_of(rank, 2), point, test::patience(500ms)));
    });
    done = true;
    thief.join();
    test::failed_with(outcomes[0], un::ErrorCode::timeout, {"does not belong to this job"});
    BOOST_REQUIRE(!heard.empty());
    d::Hub hub(d::listen_at(true, 0), {.world = 2, .token = point.token});
    std::string why;
    const auto address = d::resolve("127.0.0.1", hub.port(), why).at(0);
    for (const un::Blob& each : heard) {
        BOOST_CHECK_EQUAL(each.size(), d::Hello::bytes); // no proof followed
        const auto secret = std::as_bytes(std::span(point.token.value()));
        BOOST_CHECK(std::search(each.begin(), each.end(), secret.begin(), secret.end()) == each.end());
        d::Entrance replay{.socket = d::connect_to(address, test::in(5s), why)};
        BOOST_CHECK(d::send_all(replay.socket.get(), each, test::in(5s)));
        BOOST_CHECK(d::send_all(replay.socket.get(), un::Blob(sizeof(d::Digest)), test::in(5s)));
        while (d::read_more(replay, test::in(10s))) { // until the hub closes the connection
        }
        BOOST_CHECK_EQUAL(replay.unread.size(), d::Challenge::bytes);
    }
    BOOST_CHECK(!hub.first_fault());
}

BOOST_AUTO_TEST_CASE(two_jobs_at_one_address_do_not_mix) {
    auto mine = test::local_point();
    auto theirs = mine;
    theirs.token = un::JobToken::random();
    const auto outcomes = test::run_ranks({0, 1, 2, 3}, [&](int i) {
        if (i == 3) { // a rank 1 of the other job
            static_cast<void>(un::rendezvous(un::identity_of(1, 3), theirs, test::patience(1s)));
        } else {
            un::ControlPlane plane = un::rendezvous(un::identity_of(i, 3), mine, test::patience());
            gather_some(plane);
            std::this_thread::sleep_for(3s);
            gather_some(plane);
        }
    });
    for (std::size_t i = 0; i < 3; ++i) BOOST_CHECK_MESSAGE(outcomes[i].text.empty(), outcomes[i].text);
    test::failed_with(outcomes[3], un::ErrorCode::timeout, {"does not belong to this job"});
}

// Rank 0 has another secret. It listens at one of several ports; at the others nobody listens, or a
// program that knows nothing of jobs. With a program of that kind alone, rank 0 may still come.
BOOST_AUTO_TEST_CASE(another_secret_is_named_though_other_ports_refuse) {
    for (const bool is_there : {true, false}) {
        std::optional<d::Hub> hub;
        d::Listener other;
        un::RendezvousPoint point = test::local_point();
        for (int attempt = 0; attempt < 50; ++attempt) { // a free port, behind which others are free
            try {
                d::Listener first = d::listen_at(true, point.port = test::free_port());
                other = d::listen_at(true, static_cast<std::uint16_t>(point.port + 1));
                if (is_there) hub.emplace(std::move(first), d::HubOptions{.world = 2, .token = un::JobToken::random()});
                break;
            } catch (const un::error&) { // taken meanwhile
            }
        }
        BOOST_REQUIRE(other.socket.valid());
        point.further_ports = 3;
        std::atomic<bool> done = false;
        std::thread stranger([&] {
            while (!done) {
                if (!d::wait_for(other.socket.get(), POLLIN, test::in(5ms))) continue;
                const d::FileDescriptor guest(::accept(other.socket.get(), nullptr, nullptr));
                static_cast<void>(::send(guest.get(), "220 mail", 8, MSG_NOSIGNAL));
            }
        });
        const auto outcomes = test::run_ranks({1}, [&](int rank) {
            static_cast<void>(un::rendezvous(un::identity_of(rank, 2), point, test::patience(500ms)));
        });
        done = true;
        stranger.join();
        BOOST_CHECK(outcomes[0].code == un::ErrorCode::timeout);
        BOOST_CHECK_MESSAGE(test::contains(outcomes[0], "it has another secret") == is_there, outcomes[0].text);
    }
}

BOOST_AUTO_TEST_CASE(the_first_fault_is_the_same_on_all_ranks) {
    for (int repetition = 0; repetition < 10; ++repetition) {
        std::vector<std::string> seen(5);
        test::all_well(with_planes(5, test::local_point(), [&](un::ControlPlane& plane) {
            static_cast<void>(plane.all_gather({}, test::in(20s)));
            if (plane.rank() != 3) {
                plane.abort({.code = un::ErrorCode::not_finite,
                             .operation = "step",
                             .sequence = 9,
                             .message = "of rank " + std::to_string(plane.rank())});
            }
            const un::Fault& fault = awaited_fault(plane);
            seen[static_cast<std::size_t>(plane.rank())] = std::string(un::name_of(fault.code)) +
                                                           std::to_string(fault.rank) + fault.operation +
                                                           std::to_string(fault.sequence) + fault.message;
            if (plane.rank() == 3) {
                try {
                    static_cast<void>(plane.all_gather({}, test::in(20s)));
                    throw std::runtime_error("gathered");
                } catch (const un::error& failed) {
                    if (failed.code() != un::ErrorCode::not_finite) throw;
                }
            }
        }));
        for (const auto& text : seen) BOOST_CHECK_EQUAL(text, seen[0]);
        BOOST_CHECK(seen[0].find("not_finite") == 0 && seen[0].find("step9of rank") != std::string::npos);
    }
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_is_lost_only_for_those_who_wait) {
    std::atomic<int> gone{0};
    const auto outcomes = with_planes(4, test::local_point(), [&](un::ControlPlane& plane) {
        gather_some(plane);
        // Rank 0 keeps the star alive until the others have left.
        if (plane.rank() == 0 || plane.rank() == 2) {
            plane.leave();
            ++gone;
            return;
        }
        const auto until = test::in(10s);
        while ((!plane.has_left(0) || !plane.has_left(2)) && un::steady_now() < until) std::this_thread::sleep_for(1ms);
        if (plane.rank() == 1) {
            if (plane.first_fault() != nullptr) throw std::runtime_error("leaving is no fault");
            static_cast<void>(plane.all_gather({}, test::in(20s)));
            throw std::runtime_error("gathered");
        }
        throw un::error(awaited_fault(plane));
    });
    for (const std::size_t rank : {1u, 3u}) {
        test::failed_with(outcomes[rank], un::ErrorCode::peer_lost, {"has left; rank 1 waits for it"});
        BOOST_CHECK(outcomes[rank].peer == 2 || outcomes[rank].peer == 0);
    }
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_come_to_all_gather_is_named) {
    const auto outcomes = with_planes(4, test::local_point(), [&](un::ControlPlane& plane) {
        if (plane.rank() == 2) awaited_fault(plane);
        static_cast<void>(plane.all_gather({}, test::in(plane.rank() == 1 ? 2s : 20s)));
    });
    for (const Outcome& outcome : outcomes) {
        test::failed_with(outcome, un::ErrorCode::timeout, {"rank 2 is in no call of the library"}, 2);
        BOOST_CHECK_EQUAL(outcome.rank, 1);
    }
}

BOOST_AUTO_TEST_CASE(a_timeout_names_the_root_and_not_the_neighbour) {
    // Rank 0 waits for 3, 3 for 2, and 2 for 1. Rank 1 computes: it is slow, but alive.
    std::atomic<int> ready{0};
    const auto outcomes = with_planes(4, test::local_point(), [&](un::ControlPlane& plane) {
        static_cast<void>(plane.all_gather({}, test::in(20s)));
        if (plane.rank() != 1) {
            plane.waits({.operation = "receive", .context = 1, .sequence = 5, .peers = {(plane.rank() + 3) % 4}});
        }
        static_cast<void>(plane.all_gather({}, test::in(20s)));
        ++ready;
        while (ready.load() != 4) std::this_thread::yield();
        if (plane.rank() == 0) {
            plane.abort({.code = un::ErrorCode::timeout,
                         .rank = 0,
                         .peer = 3,
                         .operation = "receive",
                         .sequence = 5,
                         .message = "rank 0 waited for rank 3"});
        }
        throw un::error(awaited_fault(plane));
    });
    for (const Outcome& outcome : outcomes) {
        test::failed_with(outcome, un::ErrorCode::timeout, {"rank 3 waits in receive #5"}, 1);
        BOOST_CHECK_EQUAL(outcome.rank, 0);
    }
}

BOOST_AUTO_TEST_CASE(a_port_that_is_taken_is_refused) {
    const auto taken = un::detail::listen_at(true, 0);
    const auto outcomes = test::run_ranks({0}, [&](int rank) {
        static_cast<void>(un::rendezvous(un::identity_of(rank, 2), test::local_point(taken.port), test::patience(1s)));
    });
    test::failed_with(outcomes[0], un::ErrorCode::refused, {std::to_string(taken.port)});
}

BOOST_AUTO_TEST_CASE(bad_arguments) {
    const auto refused = [](const un::Identity& me, const un::RendezvousOptions& options, const std::string& word) {
        test::fails(un::ErrorCode::bad_input, {word},
                    [&] { static_cast<void>(un::rendezvous(me, test::local_point(), options)); });
    };
    refused({.rank = 0, .world = 0}, {}, "0");
    refused({.rank = 2, .world = 2}, {}, "rank 2");
    refused(un::identity_of(0, 2), {.timeout = 0s}, "timeout");
    refused(un::identity_of(0, 2), {.linger = -1s}, "linger");
}

// poll refuses more entries than the files that a process may open, even empty ones. A rank of
// another host, whose process cannot be watched, must not take two entries.
BOOST_AUTO_TEST_CASE(as_many_ranks_of_other_hosts_as_there_are_descriptors) {
    constexpr int world = 40;
    const auto token = un::JobToken::random();
    d::Hub hub(d::listen_at(true, 0), {.world = world, .token = token});
    std::string why;
    const auto address = d::resolve("127.0.0.1", hub.port(), why).at(0);
    std::vector<d::Entrance> ranks;
    for (int rank = 0; rank < world; ++rank) {
        const d::Hello hello{.world = world,
                             .rank = static_cast<std::uint32_t>(rank),
                             .claimant = static_cast<std::uint64_t>(rank) + 1,
                             .host = ~un::detail::host_number(),
                             .pid = 1};
        d::NoEntry refused;
        auto entrance = d::enter(address, hello, token, test::in(20s), refused);
        BOOST_REQUIRE_MESSAGE(entrance, refused.why());
        ranks.push_back(std::move(*entrance));
    }
    rlimit before{};
    BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit low = before;
    low.rlim_cur = world + 8; // open files stay open
    BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
    int gathered = 0;
    for (std::uint32_t round = 0; round < 3; ++round) { // the first round may have begun before
        d::WireWriter out;
        out.u32(round);
        out.bytes(blob("something"));
        const auto said = d::make_frame(d::FrameKind::contribution, out.take());
        for (auto& one : ranks) BOOST_CHECK(d::send_frame(one, said, test::in(20s)));
        for (auto& one : ranks) {
            std::size_t used = 0;
            auto frame = d::next_frame(one, std::size_t{1} << 20, test::in(20s), used);
            if (frame && frame->kind == d::FrameKind::complete) { // all ranks joined
                d::drop_front(one.unread, used);
                frame = d::next_frame(one, std::size_t{1} << 20, test::in(20s), used);
            }
            if (!frame || frame->kind != d::FrameKind::gathered) break;
            d::drop_front(one.unread, used);
            ++gathered;
        }
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
    BOOST_CHECK_EQUAL(gathered, 3 * world);
    for (auto& one : ranks) BOOST_CHECK(d::send_frame(one, d::make_frame(d::FrameKind::goodbye), test::in(20s)));
    hub.stop(10'000'000'000);
}

BOOST_AUTO_TEST_CASE(where_nobody_can_be_let_in_the_job_ends_with_the_reason) {
    d::Hub hub(d::listen_at(true, 0), {.world = 2, .token = un::JobToken::random()});
    std::string why;
    const auto address = d::resolve("127.0.0.1", hub.port(), why).at(0);
    const d::FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    rlimit before{};
    BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit none = before;
    none.rlim_cur = 3; // open files stay open
    BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const int reached = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length);
    const un::nanoseconds until = test::in(30s);
    while (!hub.first_fault() && un::steady_now() < until) std::this_thread::sleep_for(10ms);
    ::setrlimit(RLIMIT_NOFILE, &before);
    BOOST_REQUIRE(reached == 0 && hub.first_fault());
    BOOST_CHECK(hub.first_fault()->code == un::ErrorCode::refused);
    BOOST_CHECK(hub.first_fault()->message.find("ulimit -n") != std::string::npos);
}

// The gathered bytes include those of this rank. If they are not what the rank gave, it uses
// nothing of the answer.
BOOST_AUTO_TEST_CASE(a_hub_that_changes_what_it_gathers) {
    for (const std::string_view own : {"mine", "", "nine", "mine and more"}) {
        int ends[2];
        BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
        d::FileDescriptor hub(ends[1]);
        d::WireWriter out;
        out.u32(0); // the round
        for (const std::string_view each : {std::string_view("other"), own}) {
            out.u32(static_cast<std::uint32_t>(each.size()));
            out.bytes(blob(std::string(each)));
        }
        un::Blob said = d::make_frame(d::FrameKind::gathered, out.take());
        const un::JobToken secret = un::JobToken::random();
        d::ControlSession::begin(d::ControlSession::Side::keeper, secret, {}, {}).out.close(said);
        BOOST_REQUIRE(d::send_all(hub.get(), said, test::in(20s)));
        {
            d::Spoke spoke(1, std::vector<d::Peer>(2), d::FileDescriptor(ends[0]), {},
                           d::ControlSession::begin(d::ControlSession::Side::caller, secret, {}, {}), true);
            if (own == "mine") {
                BOOST_CHECK_EQUAL(spoke.all_gather(blob("mine"), test::in(20s)).size(), 2u);
            } else {
                test::fails(un::ErrorCode::refused, {},
                            [&] { static_cast<void>(spoke.all_gather(blob("mine"), test::in(20s))); });
            }
            hub.close();
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
