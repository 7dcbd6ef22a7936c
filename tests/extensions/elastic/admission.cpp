// A process applies to join an elastic world, and is refused for a reason.
#include "support/folder.hpp"
#include "support/skip.hpp"

#include <unisono/elastic.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <poll.h>
#include <random>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace un = unisono;
using namespace un::detail;

namespace {

/// The desk of the first rank, which looks at it all the time.
class Desk {
public:
    Desk()
        : desk_({.folder = folder_.path(), .job = "job.elastic"}, un::JobToken::random(), "127.0.0.1",
                listen_at(true, 0), {2, 8, 100, 200, "tcp"}) {
        place_ = {.folder = folder_.path(), .job = "job.elastic"};
        BOOST_REQUIRE(read_rendezvous_file(place_));
        looks_ = std::thread([this] {
            while (!ends_) {
                waits_ = desk_.look() ? static_cast<int>(desk_.applicants().size()) : 0;
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        });
    }
    Desk(const Desk&) = delete;
    Desk& operator=(const Desk&) = delete;
    ~Desk() {
        ends_ = true;
        looks_.join();
    }

    [[nodiscard]] const un::RendezvousPoint& place() const { return place_; }
    [[nodiscard]] bool has(int waiting) const {
        for (const un::nanoseconds until = un::steady_now() + 30'000'000'000; un::steady_now() < until;)
            if (waits_ == waiting) return true;
        return false;
    }

private:
    unisono_test::Folder folder_;
    AdmissionDesk desk_;
    un::RendezvousPoint place_;
    std::thread looks_;
    std::atomic<bool> ends_ = false;
    std::atomic<int> waits_ = 0;
};

std::optional<Entrance> knock(const Desk& desk, const un::JobToken& secret) {
    std::string why;
    NoEntry refused;
    const un::nanoseconds until = un::steady_now() + 5'000'000'000;
    for (const SocketAddress& address : resolve(desk.place().host, desk.place().port, why))
        return enter(address, {.claimant = draw_claimant(), .host = host_number(), .pid = 1, .door = Door::desk},
                     secret, until, refused);
    return std::nullopt;
}
/// Returns the reason for which an application is refused. Empty: it is not refused within the
/// limit.
std::string refusal(Entrance& entrance, const un::Blob& application, un::nanoseconds limit = 30'000'000'000) {
    const un::nanoseconds until = un::steady_now() + limit;
    BOOST_REQUIRE(send_frame(entrance, make_frame(FrameKind::contribution, application), until));
    std::size_t used = 0;
    const std::optional<Frame> answer = next_frame(entrance, 3 * most_text_bytes, until, used);
    un::Fault fault;
    WireReader in(answer ? answer->payload : std::span<const std::byte>{});
    return answer && answer->kind == FrameKind::refused && read(in, most_ranks, fault) ? fault.message : std::string();
}
/// A valid application, of this program, which listens at `listener`.
Application in_order(const Listener& listener) {
    // Reads the whole program: seconds with a sanitizer.
    static const auto program = program_digest();
    Application made{.program = program, .terms = {2, 8, 100, 200, "tcp"}};
    made.applicant = {.identity = draw_claimant(), .host = "127.0.0.1", .port = listener.port};
    return made;
}

} // namespace

BOOST_AUTO_TEST_SUITE(elastic_admission)

BOOST_AUTO_TEST_CASE(a_process_that_fits_waits) {
    const Desk desk;
    const Listener listener = listen_at(true, 0);
    {
        // First, because it reads the whole program: the desk waits 5 s for an application.
        const un::Blob first = encode(in_order(listener)), second = encode(in_order(listener));
        std::optional<Entrance> one = knock(desk, desk.place().token), other = knock(desk, desk.place().token);
        BOOST_REQUIRE((one && other));
        BOOST_TEST(refusal(*one, first, 50'000'000) == "");
        BOOST_TEST(refusal(*other, second, 50'000'000) == "");
        BOOST_TEST(desk.has(2));
    }
    BOOST_TEST(desk.has(0)); // the others have gone
}

BOOST_AUTO_TEST_CASE(a_process_that_does_not_fit_is_told_why) {
    const Desk desk;
    const Listener listener = listen_at(true, 0);
    const auto told = [&](const std::function<void(Application&)>& change) {
        Application application = in_order(listener);
        change(application);
        std::optional<Entrance> entrance = knock(desk, desk.place().token);
        BOOST_REQUIRE(entrance.has_value());
        return refusal(*entrance, encode(application));
    };
    const auto expect = [](const std::string& text, const std::string& part) {
        BOOST_TEST((text.find(part) != text.npos), "'" << text << "' does not say '" << part << "'");
    };
    expect(told([](Application& one) { one.version += 1; }), "of the library, and this process version");
    expect(told([](Application& one) { one.program[3] ^= 1; }), "another program (or another build of it)");
    expect(
        told([](Application& one) { one.mode = un::detail::FloatingPointMode::flushes_results; }),
        "this process flushes subnormal results to zero and rounds to nearest, the elastic world's first rank keeps");
    expect(told([](Application& one) { one.terms.most = 9; }),
           "ElasticOptions::most is 9 of this process and 8 of the elastic world's first rank");
    expect(told([](Application& one) { one.terms.patience = 7; }), "ElasticOptions::patience is 7 ns of this process");
    expect(told([](Application& one) { one.terms.transport = "hosts"; }), "the transport is 'hosts' of this process");
    expect(told([](Application& one) { one.applicant.port = 1; }), "cannot reach this process at 127.0.0.1:1");
    expect(told([](Application& one) { one.applicant.host = "no.such.host.invalid"; }), "cannot reach this process");
    BOOST_TEST(desk.has(0));
}

/// A process without the secret cannot apply. A process with the secret is not admitted without a
/// valid application.
BOOST_AUTO_TEST_CASE(strangers_wait_for_nothing) {
    const Desk desk;
    BOOST_TEST(!knock(desk, un::JobToken::random()).has_value());
    std::mt19937 random(3);
    for (std::size_t i = 0; i < 200; ++i) {
        std::optional<Entrance> entrance = knock(desk, desk.place().token);
        BOOST_REQUIRE(entrance.has_value());
        un::Blob bytes(random() % 300);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
        BOOST_TEST(refusal(*entrance, bytes, 2'000'000) == "");
    }
    BOOST_TEST(desk.has(0));
    const Listener listener = listen_at(true, 0);
    const un::Blob application = encode(in_order(listener));
    std::optional<Entrance> entrance = knock(desk, desk.place().token);
    BOOST_REQUIRE(entrance.has_value());
    BOOST_TEST(refusal(*entrance, application, 50'000'000) == "");
    BOOST_TEST(desk.has(1));
}

/// Whether a file is there in the end, and stays.
bool comes_back(const std::string& path) {
    const un::nanoseconds until = un::steady_now() + 20'000'000'000;
    while (::access(path.c_str(), F_OK) != 0 && un::steady_now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return ::access(path.c_str(), F_OK) == 0;
}

BOOST_AUTO_TEST_CASE(a_lost_file_comes_back) {
    const Desk desk;
    const std::string path = rendezvous_path(desk.place()), folder = desk.place().folder;
    for (int i = 0; i < 3; ++i) {
        std::filesystem::remove(path);
        BOOST_TEST(comes_back(path));
    }
    std::error_code meanwhile; // the desk writes its file meanwhile
    for (int i = 0; i < 1000 && !std::ofstream(folder); ++i) std::filesystem::remove_all(folder, meanwhile);
    BOOST_REQUIRE(std::filesystem::is_regular_file(folder)); // in place of the folder
    // Several looks fail. One of them warns.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::filesystem::remove(folder);
    BOOST_TEST(comes_back(path));
    BOOST_TEST(knock(desk, desk.place().token).has_value());
}

/// A rank that was left behind, and a child that a rank forked, do not remove the file of the first
/// rank.
BOOST_AUTO_TEST_CASE(a_file_is_removed_by_its_writer_alone) {
    const unisono_test::Folder folder;
    un::RendezvousPoint point{.folder = folder.path(), .job = "job"};
    point.host = "127.0.0.1";
    point.port = 1;
    const std::string path = rendezvous_path(point);
    const auto is_there = [&] { return ::access(path.c_str(), F_OK) == 0; };
    {
        RendezvousFile mine(point);
        const pid_t child = ::fork();
        if (child == 0) {
            {
                const RendezvousFile copy(std::move(mine));
            }
            ::_exit(0);
        }
        ::waitpid(child, nullptr, 0);
        BOOST_TEST(is_there());
        point.port = 2;
        RendezvousFile other(point);
        { const RendezvousFile ends(std::move(mine)); }
        BOOST_TEST(is_there());
        std::filesystem::remove(path);
        other = RendezvousFile(point);
        BOOST_TEST(is_there());
        point.job = "another";
        other = RendezvousFile(point);
        BOOST_TEST(!is_there());
    }
    BOOST_TEST(folder.is_empty());
}

/// The first rank looks between two updates. These may take longer than a process waits for an
/// answer.
BOOST_AUTO_TEST_CASE(rare_looks_take_in_who_waits) {
    const unisono_test::Folder folder;
    const un::RendezvousPoint point{.folder = folder.path(), .job = "job.elastic"};
    AdmissionDesk desk(point, un::JobToken::random(), "127.0.0.1", listen_at(true, 0), {2, 8, 100, 200, "tcp"});
    un::RendezvousPoint place = point;
    BOOST_REQUIRE(read_rendezvous_file(place));
    const Listener listener = listen_at(true, 0);
    const un::Blob application = encode(in_order(listener));
    std::atomic<bool> looks = true;
    std::thread applicant([&] {
        std::string why;
        NoEntry refused;
        const un::nanoseconds until = un::steady_now() + 30'000'000'000;
        for (const SocketAddress& address : resolve(place.host, place.port, why)) {
            std::optional<Entrance> entrance =
                enter(address, {.claimant = draw_claimant(), .host = host_number(), .pid = 1, .door = Door::desk},
                      place.token, until, refused);
            if (entrance)
                static_cast<void>(send_frame(*entrance, make_frame(FrameKind::contribution, application), until));
            while (looks && un::steady_now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    int looked = 0;
    for (bool waits = false; !waits && looked < 4; ++looked) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5'200));
        waits = desk.look();
    }
    looks = false;
    applicant.join();
    BOOST_TEST(desk.applicants().size() == 1u);
    BOOST_TEST(looked < 4);
}

/// Forwards a connection to a port, and keeps what the side that connects says.
un::Blob relay(const Listener& from, std::uint16_t to, un::nanoseconds limit, const std::function<bool()>& done) {
    const un::nanoseconds until = un::steady_now() + limit;
    const FileDescriptor caller(::accept(from.socket.get(), nullptr, nullptr));
    std::string why;
    const FileDescriptor called = connect_to(resolve("127.0.0.1", to, why).at(0), until, why);
    un::Blob recorded;
    while (!done() && un::steady_now() < until) {
        for (const bool forth : {true, false}) {
            const int in = forth ? caller.get() : called.get(), out = forth ? called.get() : caller.get();
            std::byte buffer[4096];
            const ssize_t got = ::recv(in, buffer, sizeof buffer, MSG_DONTWAIT);
            if (got <= 0) continue;
            if (forth) recorded.insert(recorded.end(), buffer, buffer + got);
            BOOST_REQUIRE(send_all(out, std::span(buffer).first(static_cast<std::size_t>(got)), until));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return recorded;
}
void look(Mesh& mesh) {
    mesh.wait(
        un::steady_now() + 1'000'000, [](int, const un::Blob&) {}, [](int, bool) {}, [](int) {}, [](int) {});
}

/// A reader of the network records what a member says to a process that was added, and plays it to
/// another process that waits.
BOOST_AUTO_TEST_CASE(recorded_members_add_nobody) {
    un::ControlPlane alone;
    Mesh member(alone, un::never);
    Mesh first(member.secret(), false), second(member.secret(), false);
    const Listener between = listen_at(true, 0);
    BOOST_REQUIRE(static_cast<int>(member.reach(1, {.identity = 1, .host = "127.0.0.1", .port = between.port})) == 0);
    un::Blob frame(10, std::byte{7});
    member.send(1, frame);
    bool is_heard = false;
    const un::Blob recorded = relay(between, first.port(), 20'000'000'000, [&] {
        look(member);
        first.wait(
            un::steady_now() + 1'000'000,
            [&](int from, const un::Blob& said) { is_heard = from == 0 && said == frame; }, [](int, bool) {},
            [](int) {}, [](int) {});
        return is_heard;
    });
    BOOST_TEST((is_heard && first.knows(0) && first.me() == 1));
    std::string why;
    for (const Mesh* const at : {&second, &first}) { // at another process, and at the same one
        const FileDescriptor replay =
            connect_to(resolve("127.0.0.1", at->port(), why).at(0), un::steady_now() + 5'000'000'000, why);
        BOOST_REQUIRE(send_all(replay.get(), recorded, un::steady_now() + 5'000'000'000));
        for (int i = 0; i < 50; ++i) look(second), look(first);
    }
    BOOST_TEST((!second.knows(0) && second.me() == -1));
    // Whoever has the secret, but at another door: the desk's.
    Entrance desk{
        .socket = connect_to(resolve("127.0.0.1", second.port(), why).at(0), un::steady_now() + 5'000'000'000, why)};
    BOOST_REQUIRE(send_all(desk.socket.get(), encode(Hello{.nonce = {1}, .rank = 0, .to = 1, .door = Door::desk}),
                           un::steady_now() + 5'000'000'000));
    for (int i = 0; i < 50; ++i) look(second);
    BOOST_TEST(!read_more(desk, un::steady_now() + 5'000'000'000)); // closed without a word
    BOOST_TEST(desk.unread.empty());
}

/// A process that has connected, and has not spoken yet, is not pushed out by a crowd: not at the
/// desk, and not where it awaits members.
BOOST_AUTO_TEST_CASE(a_crowd_pushes_out_nobody_who_has_just_come) {
    const auto stays = [](std::uint16_t port, const std::function<void()>& looks) {
        std::string why;
        const SocketAddress address = resolve("127.0.0.1", port, why).at(0);
        for (int attempt = 0; attempt < 20; ++attempt) { // must take less time than a stranger may stay
            const un::nanoseconds until = un::steady_now() + 20'000'000'000;
            const FileDescriptor newcomer = connect_to(address, until, why);
            looks();
            const un::nanoseconds began = un::steady_now();
            std::vector<FileDescriptor> crowd;
            for (int i = 0; i < 400; ++i) {
                crowd.push_back(connect_to(address, until, why));
                if (i % 40 == 39) looks();
            }
            char one = 0;
            const bool is_open = ::recv(newcomer.get(), &one, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
            if (un::steady_now() - began < Strangers::grace) return is_open;
        }
        test::skip_part("this machine is too busy to open 400 connections in time");
        return true;
    };
    const unisono_test::Folder folder;
    un::RendezvousPoint place{.folder = folder.path(), .job = "job.elastic"};
    AdmissionDesk desk(place, un::JobToken::random(), "127.0.0.1", listen_at(true, 0), {2, 8, 100, 200, "tcp"});
    BOOST_REQUIRE(read_rendezvous_file(place));
    BOOST_TEST(stays(place.port, [&] { desk.look(); }));
    Mesh applicant(un::JobToken::random(), false);
    BOOST_TEST(stays(applicant.port(), [&] { look(applicant); }));
}

/// A stranger that has connected and says nothing costs no look at the desk, after its first
/// moment: a look waits for at most 1/50 of the time since the last one.
BOOST_AUTO_TEST_CASE(a_silent_stranger_slows_no_look) {
    const unisono_test::Folder folder;
    un::RendezvousPoint place{.folder = folder.path(), .job = "job.elastic"};
    AdmissionDesk desk(place, un::JobToken::random(), "127.0.0.1", listen_at(true, 0), {2, 8, 100, 200, "tcp"});
    BOOST_REQUIRE(read_rendezvous_file(place));
    std::string why;
    const FileDescriptor silent =
        connect_to(resolve("127.0.0.1", place.port, why).at(0), un::steady_now() + 5'000'000'000, why);
    desk.look();
    bool has_waited = true;
    for (int attempt = 0; has_waited && attempt < 3; ++attempt) { // it is dropped after 5 s
        const un::nanoseconds before = un::steady_now();
        std::this_thread::sleep_for(std::chrono::milliseconds(1'200));
        const un::nanoseconds began = un::steady_now();
        desk.look();
        has_waited = un::steady_now() - began >= (began - before) / 100;
    }
    BOOST_TEST(!has_waited);
}

/// Without a descriptor for a connection that waits, a poll returns at once.
BOOST_AUTO_TEST_CASE(without_descriptors_a_mesh_does_not_spin) {
    const pid_t child = ::fork();
    if (child == 0) {
        try {
            Mesh mesh(un::JobToken::random(), false);
            std::string why;
            const FileDescriptor waits =
                connect_to(resolve("127.0.0.1", mesh.port(), why).at(0), un::steady_now() + 5'000'000'000, why);
            const auto next = static_cast<rlim_t>(::dup(0));
            ::close(static_cast<int>(next));
            const rlimit limit{next, next};
            ::setrlimit(RLIMIT_NOFILE, &limit);
            int turns = 0;
            for (const un::nanoseconds until = un::steady_now() + 400'000'000; un::steady_now() < until; ++turns)
                mesh.wait(
                    until, [](int, const un::Blob&) {}, [](int, bool) {}, [](int) {}, [](int) {});
            ::_exit(waits.valid() && turns < 50 ? 0 : 1);
        } catch (...) { // it must not go on with the parent's tests
            ::_exit(2);
        }
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    BOOST_TEST(status == 0);
}

/// A process in a container has pids of its own, and shares the host's network. This kernel refuses
/// its port when it has ended, so this host tells the others.
BOOST_AUTO_TEST_CASE(an_end_that_this_kernel_reports_by_a_refusal) {
    std::uint16_t port = 0;
    {
        const Listener gone = listen_at(true, 0);
        port = gone.port;
    }
    for (const char* const address : {"127.0.0.1", "localhost"}) {
        ProcessWatch watch;
        watch.know({.space = 7, .pid = 1, .born = 1, .address = address, .port = port});
        watch.suspect();
        Conclusion found = Conclusion::none;
        const ProofRules rules;
        for (const un::nanoseconds until = un::steady_now() + 20'000'000'000;
             found != Conclusion::ended && un::steady_now() < until;) {
            found = watch.look(POLLIN, rules, un::steady_now());
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        BOOST_TEST((found == Conclusion::ended));
        BOOST_TEST(watch.host() == 7u);
        watch.end(false);
        BOOST_TEST(watch.host() == host_number());
    }
}

/// The bytes of each kind of message. Another program, of the same version of the library, reads
/// them.
BOOST_AUTO_TEST_CASE(messages_have_these_bytes) {
    const auto expect = [](const un::Blob& message, const std::string& bytes) {
        std::string found;
        for (const std::byte one : message) {
            constexpr std::string_view digits = "0123456789abcdef";
            found += digits[std::to_integer<unsigned>(one) >> 4];
            found += digits[std::to_integer<unsigned>(one) & 15u];
        }
        BOOST_TEST(found == bytes);
    };
    expect(encode(Hello{.nonce = {0xaa},
                        .world = 9,
                        .rank = 1,
                        .claimant = 2,
                        .host = 3,
                        .pid = 4,
                        .to = 5,
                        .connection = 6,
                        .door = Door::mesh}),
           "756e69736f6e6f35aa0000000000000000000000000000000900000001000000020000000000000003000000"
           "0000000004000000050000000600000003000000");
    const un::Fault late{.code = un::ErrorCode::timeout,
                         .rank = 0,
                         .peer = -1,
                         .operation = "all_reduce",
                         .sequence = 4,
                         .message = "late"};
    expect(complaint_frame(late, {.operation = "barrier", .context = 1, .sequence = 5, .peers = {2, 3}}),
           "4e000000020000000100000000ffffffff04000000000000000a000000616c6c5f726564756365040000006c"
           "617465010000000000000005000000000000000700000062617272696572020000000200000003000000");
    MembershipMessage gone{.word = MembershipWord::gone,
                           .epoch = 1,
                           .ballot = 2,
                           .updates = 3,
                           .accepted_ballot = 4,
                           .member = -1,
                           .heard = true,
                           .applicants = {{.identity = 10, .host = "i", .port = 11}},
                           .missed = {2}};
    gone.successor = {.members = {0, 1, 3},
                      .added = {{.identity = 8, .host = "h", .port = 9}},
                      .next_number = 7,
                      .doubtful = {1},
                      .elders = {0},
                      .source = 6,
                      .updates = 5};
    expect(encode(gone), "0901000000000000000200000000000000030000000000000004000000000000000500000000000000ffffff"
                         "ff06000000070000000102000000000000000200000003000000010000000100000001000000010000000100"
                         "0000000000000100000001000000020000000100000001000000080000000000000009000000010000006801"
                         "0000000a000000000000000b0000000100000069");
    expect(encode(NextRendezvous{.epoch = 12, .host = "j", .port = 13}), "640c000000000000000d000000010000006a");
    Application application{
        .version = 14, .applicant = {.identity = 15, .host = "k", .port = 16}, .mode = FloatingPointMode::rounds_up};
    application.terms = {.least = 1, .most = 2, .patience = 3, .give_up = 4, .transport = "tcp", .trust_resets = 1};
    expect(encode(application),
           "0e00000000000000000000000000000000000000000000000000000000000000000000000100000000000000"
           "0200000000000000030000000000000004000000000000000100000000000000030000007463700f00000000"
           "00000010000000010000006b08");
}

BOOST_AUTO_TEST_SUITE_END()
