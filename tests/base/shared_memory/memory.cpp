// The segment, its arenas, and the cost of buffers from elsewhere.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "processes.hpp"
#include "support/refusal.hpp"
#include "support/skip.hpp"

#include <unisono/testing/transport_laws.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
#define UNISONO_TEST_UNDER_UBSAN
#endif
#endif

namespace un = unisono;
using test::Group;

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20;

/// The bytes of the segment's existing pages.
std::size_t pages_of(const un::detail::SharedMemoryWorld& world) {
    struct stat facts {};
    BOOST_REQUIRE(::fstat(world.segment().file(), &facts) == 0);
    return static_cast<std::size_t>(facts.st_blocks) * 512;
}

/// Runs `work` on threads of this process, each with its own endpoint of one world.
template <class Body>
void on_threads(int ranks, Body body) {
    un::detail::run_world<un::SharedMemory>(std::make_shared<un::SharedMemory::World>(ranks), body, test::limit);
}

/// The error in a process that root, whom no limit binds, has made another user's; empty if there
/// is none.
template <class Body>
std::string said_by_another_user(Body body) {
    int ends[2];
    BOOST_REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(2);
        const std::string said = test::error_text(body);
        ::_exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 3);
    }
    int status = 0;
    ::close(ends[1]);
    std::string said(4096, '\0');
    const ssize_t got = ::read(ends[0], said.data(), said.size());
    ::close(ends[0]);
    ::waitpid(child, &status, 0);
    BOOST_TEST(status == 0);
    said.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return said;
}

/// Lets this system call fail by EPERM from now on, as a container's seccomp profile does. False if
/// the system has no such filters.
bool forbid(unsigned call) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog all{4, program};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
}

} // namespace

BOOST_AUTO_TEST_SUITE(shared_memory)

BOOST_AUTO_TEST_CASE(the_laws_of_transports) {
    const auto found = un::testing::transport_laws<un::SharedMemory>();
    BOOST_TEST(found.lawful(), found.text());
}

BOOST_AUTO_TEST_CASE(an_arena_gives_what_nobody_has) {
    un::detail::SharedMemoryWorld world(1, 64 * mebi);
    world.attach(0);
    std::mt19937 random(1);
    std::map<std::byte*, std::size_t> taken;
    for (int i = 0; i < 3000; ++i) {
        if (taken.size() > 40 || (!taken.empty() && random() % 2 == 0)) {
            auto one = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
            for (std::size_t at = 0; at < one->second; at += 997)
                BOOST_REQUIRE(one->first[at] == static_cast<std::byte>(one->second % 251));
            world.release(0, one->first);
            taken.erase(one);
            continue;
        }
        const std::size_t bytes = random() % (std::size_t{1} << (random() % 21)) + 1;
        std::byte* const block = world.allocate(0, bytes);
        BOOST_REQUIRE(reinterpret_cast<std::uintptr_t>(block) % 128 == 0);
        BOOST_REQUIRE(world.reaches(block, bytes));
        const auto after = taken.lower_bound(block);
        BOOST_REQUIRE((after == taken.end() || block + bytes <= after->first));
        if (after != taken.begin()) {
            const auto before = std::prev(after);
            BOOST_REQUIRE(before->first + before->second <= block);
        }
        std::memset(block, static_cast<int>(bytes % 251), bytes);
        taken.emplace(block, bytes);
    }
    for (const auto& one : taken) world.release(0, one.first);
    BOOST_TEST(world.arena(0).taken() == 0u);
    // All free blocks are one block again.
    std::byte* const most = world.allocate(0, world.arena(0).used() / 8192 * 4096);
    world.release(0, most);
}

BOOST_AUTO_TEST_CASE(an_arena_that_is_full_says_so) {
    un::detail::SharedMemoryWorld world(1, 8 * mebi);
    world.attach(0);
    const auto is_refused = [](const un::error& failed) {
        return failed.code() == un::ErrorCode::refused && std::string(failed.what()).find("arena") != std::string::npos;
    };
    BOOST_CHECK_EXCEPTION(world.allocate(0, 9 * mebi), un::error, is_refused);
    std::byte* const block = world.allocate(0, 5 * mebi);
    BOOST_CHECK_EXCEPTION(world.allocate(0, 5 * mebi), un::error, is_refused);
    world.release(0, block);
    world.release(0, world.allocate(0, 5 * mebi));
}

BOOST_AUTO_TEST_CASE(a_world_is_sparse_and_large_blocks_give_their_pages_back) {
    un::detail::SharedMemoryWorld world(16);
    BOOST_TEST(pages_of(world) < 4 * mebi);
    world.attach(3);
    constexpr std::size_t bytes = 400 * mebi; // more than an arena keeps
    std::byte* const block = world.allocate(3, bytes);
    BOOST_TEST(pages_of(world) >= bytes);
    block[0] = block[bytes - 1] = std::byte{1};
    world.release(3, block);
    BOOST_TEST(pages_of(world) < 8 * mebi);
    std::byte* const again = world.allocate(3, bytes);
    BOOST_TEST((again[0] == std::byte{0} && again[bytes - 1] == std::byte{0}));
    world.release(3, again);
}

/// A variable of the environment during this object's life.
class Variable {
public:
    Variable(const char* name, const char* value) : name_(name) {
        if (const char* const was = std::getenv(name)) before_ = was, had_ = true;
        ::setenv(name, value, 1);
    }
    Variable(const Variable&) = delete;
    ~Variable() {
        if (had_) ::setenv(name_, before_.c_str(), 1);
        else ::unsetenv(name_);
    }

private:
    const char* name_;
    std::string before_;
    bool had_ = false;
};

// Valgrind's leak check reads the whole segment, which makes its holes real.
BOOST_AUTO_TEST_CASE(a_world_is_small_if_that_is_asked_and_under_valgrind) {
    const auto bytes = [](int ranks) { return un::detail::SharedMemoryWorld(ranks).segment().bytes(); };
    {
        const Variable valgrind("LD_PRELOAD", "/usr/libexec/valgrind/vgpreload_core-amd64-linux.so:/x.so");
        BOOST_TEST(bytes(2) >= 256 * mebi);
        BOOST_TEST(bytes(2) < 1024 * mebi);
        const Variable said("UNISONO_SHARED_MEMORY_MIB", "300");
        BOOST_TEST(bytes(1) >= 300 * mebi);
    }
    const Variable said("UNISONO_SHARED_MEMORY_MIB", "16");
    BOOST_TEST(bytes(2) >= 32 * mebi);
    BOOST_TEST(bytes(2) < 640 * mebi);
    for (const char* const wrong : {"", "0", "16M", "-1", "99999999999"}) {
        const Variable bad("UNISONO_SHARED_MEMORY_MIB", wrong);
        BOOST_CHECK_EXCEPTION(bytes(1), un::error, [&](const un::error& refused) {
            return std::string(refused.what()).find("UNISONO_SHARED_MEMORY_MIB must be a number from 1 to 33554432") !=
                   std::string::npos;
        });
    }
}

BOOST_AUTO_TEST_CASE(a_thousand_ranks_fit) {
    un::detail::SharedMemoryWorld world(1024);
    for (const int rank : {0, 1023}) {
        world.attach(rank);
        std::byte* const block = world.allocate(rank, 3 * mebi);
        block[3 * mebi - 1] = std::byte{1};
    }
    BOOST_TEST(world.channel(1023, 1022).taken.load() == 0u);
    BOOST_TEST(world.mapped_board(77, 1024).line(1023, 3).turn.load() == 0u);
    BOOST_TEST(pages_of(world) < 64 * mebi);
    BOOST_CHECK_THROW(un::detail::SharedMemoryWorld(1025), un::error);
    BOOST_CHECK_THROW(un::detail::SharedMemoryWorld(0), un::error);
}

BOOST_AUTO_TEST_CASE(buffers_from_elsewhere_leave_nothing_in_the_arena) {
    test::Findings findings(3);
    on_threads(3, [&](Group& group) {
        const std::size_t before = group.endpoint().arena_taken();
        const float mine = static_cast<float>(group.rank() + 1);
        for (const std::size_t count : {1000u, 300'000u}) {
            for (int repeat = 0; repeat < 20; ++repeat) {
                std::vector<float> data(count, mine), out(count);
                un::all_reduce(group, data, out);
                findings.expect(out[count - 1] == 6.0f && data[0] == mine, "all_reduce is wrong");
                un::broadcast(group, data, 2);
                findings.expect(data[count / 2] == 3.0f, "broadcast is wrong");
                un::all_reduce(group, data, un::Sum{}, un::RingSchedule{});
                findings.expect(data[count / 3] == 9.0f, "the ring is wrong");
            }
        }
        un::barrier(group);
        group.progress();
        // Flags of large messages stay: as many as were in flight at once.
        findings.expect(group.endpoint().arena_taken() <= before + 64 * 128, "something stays in the arena");
    });
}

/// One call is repeated, with memory that peers see and memory that they do not see. Ranks differ
/// in this.
BOOST_AUTO_TEST_CASE(a_repeated_call_may_change_its_memory) {
    test::Findings findings(3);
    on_threads(3, [&](Group& group) {
        constexpr std::size_t count = 3000;
        un::Memory<float> seen = group.allocate<float>(count), seen_too = group.allocate<float>(count);
        std::vector<float> own(count), own_too(count);
        unsigned draw = static_cast<unsigned>(group.rank()) + 1;
        for (int call = 0; call < 400; ++call) {
            draw = draw * 1664525u + 1013904223u;
            const std::span<float> in = (draw >> 20) % 2 == 0 ? std::span<float>(seen) : std::span<float>(own);
            const std::span<float> out = (draw >> 22) % 2 == 0 ? std::span<float>(seen_too) : std::span<float>(own_too);
            std::fill(in.begin(), in.end(), static_cast<float>(group.rank() + call));
            if (call % 5 == 0) un::start_all_reduce(group, in, out).wait();
            else un::all_reduce(group, in, out);
            un::broadcast(group, in, call % 3);
            const auto all_are = [](std::span<const float> values, int expected) {
                return std::all_of(values.begin(), values.end(),
                                   [=](float value) { return value == static_cast<float>(expected); });
            };
            findings.expect(all_are(out, 3 * call + 3), "all_reduce is wrong");
            findings.expect(all_are(in, call % 3 + call), "broadcast is wrong");
        }
    });
}

BOOST_AUTO_TEST_CASE(memory_of_the_group_is_shared_and_outlives_it) {
    un::Memory<double> kept;
    {
        Group alone;
        kept = alone.allocate<double>(1000);
        BOOST_TEST(alone.is_shared(std::span<const double>(kept)));
        const std::vector<double> elsewhere(1000);
        BOOST_TEST(!alone.is_shared(std::span<const double>(elsewhere)));
        BOOST_TEST(alone.allocate<int>(0).size() == 0u);
        BOOST_CHECK_THROW(static_cast<void>(alone.allocate<double>(std::size_t{1} << 62)), un::error);
    }
    for (double& one : kept) {
        BOOST_REQUIRE(one == 0.0);
        one = 2;
    }
    un::Memory<double> moved = std::move(kept);
    BOOST_TEST((kept.empty() && moved.size() == 1000u && moved[999] == 2.0));
}

// Sanitizers take most addresses.
BOOST_AUTO_TEST_CASE(addresses_that_are_short_give_smaller_arenas, *boost::unit_test::enable_if<!test::sanitized>()) {
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit limit{std::size_t{8} << 30, std::size_t{8} << 30};
        ::setrlimit(RLIMIT_AS, &limit);
        try {
            un::detail::SharedMemoryWorld world(2);
            world.attach(1);
            world.release(1, world.allocate(1, mebi));
        } catch (...) {
            ::_exit(1);
        }
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    BOOST_TEST(status == 0);
}

BOOST_AUTO_TEST_CASE(nobody_else_can_open_it) {
    if (::geteuid() != 0) return test::skip("only root can become another user");
    const un::detail::SharedMemoryWorld world(2);
    struct stat facts {};
    BOOST_REQUIRE(::fstat(world.segment().file(), &facts) == 0);
    BOOST_TEST((facts.st_mode & 0777) == 0600u);
    const std::string path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(world.segment().file());
    const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    BOOST_TEST(own >= 0);
    ::close(own);
    const pid_t child = ::fork();
    if (child == 0) {
        const int inherited = world.segment().file();
        if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
        // The path, and the file itself through a descriptor that such a process might have
        // inherited.
        if (::open(path.c_str(), O_RDONLY) >= 0) ::_exit(3);
        if (::open(("/proc/self/fd/" + std::to_string(inherited)).c_str(), O_RDWR) >= 0) ::_exit(4);
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    BOOST_TEST(status == 0);
}

BOOST_AUTO_TEST_CASE(a_process_that_is_not_dumpable_is_named_as_the_cause) {
    const std::string said = said_by_another_user([] {
        const auto segment = un::detail::SharedSegment::create(4096);
        ::prctl(PR_SET_DUMPABLE, 0);
        const std::string path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(segment.file());
        int status = 0;
        std::string told(4096, '\0');
        int ends[2];
        if (::pipe(ends) != 0) return;
        const pid_t other = ::fork();
        if (other == 0) {
            ::prctl(PR_SET_DUMPABLE, 1);
            try {
                static_cast<void>(un::detail::SharedSegment::open(path));
            } catch (const un::error& failed) {
                const std::string what = failed.why().message;
                ::_exit(::write(ends[1], what.data(), what.size()) > 0 ? 0 : 1);
            }
            ::_exit(1);
        }
        ::close(ends[1]);
        told.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends[0], told.data(), told.size()))));
        ::waitpid(other, &status, 0);
        throw un::error(un::ErrorCode::refused, told);
    });
    for (const char* word : {"Permission denied", "not dumpable", "PR_SET_DUMPABLE, 1", "use Tcp"})
        BOOST_TEST(said.find(word) != std::string::npos, said);
    BOOST_TEST(said.size() < sizeof(un::detail::SharedMemoryCard::failed));
}

BOOST_AUTO_TEST_CASE(memory_that_is_locked, *boost::unit_test::enable_if<!test::sanitized>()) {
    // As root: nothing is backed before it is used.
    if (::geteuid() == 0 && ::mlockall(MCL_FUTURE) == 0) {
        const auto segment = un::detail::SharedSegment::create(std::size_t{256} << 20);
        ::munlockall();
        struct stat facts {};
        BOOST_REQUIRE(::fstat(segment.file(), &facts) == 0);
        BOOST_TEST(facts.st_blocks == 0);
        std::memset(segment.base(), 1, 4096);
    }
    const std::string said = said_by_another_user([] {
        const rlimit low{1 << 20, 1 << 20};
        if (::setrlimit(RLIMIT_MEMLOCK, &low) != 0 || ::mlockall(MCL_FUTURE) != 0) return;
        static_cast<void>(un::detail::SharedSegment::create(std::size_t{256} << 20));
    });
    for (const char* word : {"mlockall(MCL_FUTURE)", "`ulimit -l`", "JoinOptions::arena_bytes"})
        BOOST_TEST(said.find(word) != std::string::npos, said);
}

BOOST_AUTO_TEST_CASE(a_filter_of_system_calls_is_named_as_the_cause) {
    const std::string said = said_by_another_user([] {
        if (!forbid(SYS_memfd_create)) throw un::error(un::ErrorCode::refused, "memfd_create seccomp Tcp");
        static_cast<void>(un::detail::SharedSegment::create(4096));
    });
    for (const char* word : {"memfd_create", "seccomp", "Tcp"}) BOOST_TEST(said.find(word) != std::string::npos, said);
}

BOOST_AUTO_TEST_CASE(groups_come_and_go_without_end) {
    test::on_ranks(3, [&](Group& group, test::Findings& findings) {
        const int me = group.rank();
        // Each rank takes all but 461 of its 5,461 boards, alone and so at once. Two are needed
        // for each of the 461.
        Group self = group.split(me, 0);
        std::vector<Group> taken;
        for (int i = 0; i < 5'000; ++i) taken.push_back(self.split(0, 0));
        std::vector<Group> kept; // some live longer, so that boards are returned in no order
        for (int i = 0; i < 2'000; ++i) {
            const bool alone = me == i % 3;
            Group part = group.split(alone ? (i % 2 == 0 ? un::no_colour : 1) : 0, -me);
            if (part.size() == 0) continue;
            std::vector<int> sum(i % 50 == 0 ? 3000 : 1, me + 1);
            un::all_reduce(part, sum); // on a board that is as new
            findings.expect(part.size() == (alone ? 1 : 2) && sum.back() == (alone ? me + 1 : 6 - (i % 3 + 1)),
                            "group " + std::to_string(i));
            if (i % 7 == 0) kept.push_back(std::move(part));
            if (kept.size() == 100) kept.erase(kept.begin(), kept.begin() + 60);
        }
    });
}

BOOST_AUTO_TEST_CASE(too_many_groups_at_a_time_are_refused) {
    Group world(un::SharedMemory(std::make_shared<un::detail::SharedMemoryWorld>(1, mebi), 0));
    std::vector<Group> groups;
    BOOST_CHECK_EXCEPTION(for (int i = 0; i < 20'000; ++i) groups.push_back(world.split(0, 0)), un::error,
                          [](const un::error& failed) { return failed.code() == un::ErrorCode::refused; });
    BOOST_TEST(groups.size() == 16'383u);
    groups.erase(groups.begin() + 77);
    std::vector<int> data(10, 1);
    groups.push_back(world.split(0, 0)); // there is room again
    un::all_reduce(groups.back(), data);
    BOOST_CHECK_THROW(static_cast<void>(world.split(0, 0)), un::error);
    BOOST_TEST(world.endpoint().first_fault() == nullptr);
}

// Otherwise a signal would end the process.
BOOST_AUTO_TEST_CASE(a_limit_on_files_is_an_error) {
    rlimit before{};
    BOOST_REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit low = before;
    low.rlim_cur = 1 << 20;
    BOOST_REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
    const std::string what =
        test::error_text([] { static_cast<void>(un::detail::SharedSegment::create(std::size_t{1} << 24)); });
    ::setrlimit(RLIMIT_FSIZE, &before);
    BOOST_TEST(what.find("refused") != std::string::npos, what);
    BOOST_TEST(what.find("`ulimit -f`") != std::string::npos, what);
}

// Otherwise the ranks' output would overwrite their shared memory.
BOOST_AUTO_TEST_CASE(without_standard_streams_the_segment_is_none_of_them) {
    const int pid = ::fork();
    if (pid == 0) {
        for (const int stream : {0, 1, 2}) ::close(stream);
        int found = -1;
        try {
            found = un::detail::SharedSegment::create(4096).file();
        } catch (const un::error&) {
        }
        ::_exit(found > 2 ? 0 : 1);
    }
    int status = -1;
    BOOST_TEST_REQUIRE(::waitpid(pid, &status, 0) == pid);
    BOOST_TEST((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

// A process may change the ranks' messages during rendezvous. None of these values is used as an
// address.
BOOST_AUTO_TEST_CASE(facts_that_were_changed_on_their_way) {
#if defined(UNISONO_TEST_UNDER_UBSAN)
    return test::skip("the sanitizer looks at memory by a pipe, and this case leaves no descriptor for one");
#endif
    struct Limit { // no descriptor is left, so rank 0 has no segment, and reports it
        rlimit before{};
        Limit() {
            ::getrlimit(RLIMIT_NOFILE, &before);
            const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
            ::setrlimit(RLIMIT_NOFILE, &none);
        }
        ~Limit() { ::setrlimit(RLIMIT_NOFILE, &before); }
    };
    const auto all_is_well = [](const std::string& mine) {
        un::detail::SharedMemoryCard card{};
        std::memcpy(&card, mine.data(), std::min(mine.size(), sizeof card));
        std::memset(card.failed, 0, sizeof card.failed);
        const std::string changed(reinterpret_cast<const char*>(&card), sizeof card);
        return std::vector<std::string>{changed, changed};
    };
    const Limit limit;
    BOOST_CHECK_EXCEPTION(static_cast<void>(un::join_shared_memory(0, 2, all_is_well)), un::error,
                          [](const un::error& refused) {
                              return refused.why().message.find("is not the one that it gave") != std::string::npos;
                          });
}

// A message that waits for its turn needs a copy, for which there is no room. Every rank gets the
// reason. Each of the first eight, which fill the ring, has room. The ninth never has, whichever of
// them were read before.
BOOST_AUTO_TEST_CASE(no_room_for_a_copy_while_others_are_awaited) {
    constexpr std::size_t arena = 9 << 20;
    const auto world = std::make_shared<un::SharedMemory::World>(2, arena);
    auto body = [&](un::Group<un::SharedMemory>& group) {
        std::vector<std::vector<char>> data(8, std::vector<char>(4096, 7));
        data.emplace_back(arena + 4096, 7);
        std::vector<un::Operation> sends;
        try {
            for (std::size_t i = 0; i < data.size() && group.rank() == 0; ++i)
                sends.push_back(un::start_send(group, data[i], 1, static_cast<int>(i)));
            for (un::Operation& one : sends) one.wait();
            if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
            for (std::size_t i = 0; i < data.size() && group.rank() == 1; ++i)
                un::receive(group, data[i], 0, static_cast<int>(i));
        } catch (const un::error& found) {
            if (found.code() == un::ErrorCode::refused &&
                std::string(found.what()).find("arena of") != std::string::npos)
                throw;
            throw un::error(un::ErrorCode::mismatch, std::string("expected 'refused', found ") + found.what());
        }
    };
    BOOST_CHECK_EXCEPTION(un::detail::run_in_processes<un::SharedMemory>(world,
                                                                         un::detail::RankBody<un::SharedMemory>(body),
                                                                         {.timeout = std::chrono::seconds(30)}),
                          un::error, [](const un::error& found) { return found.code() == un::ErrorCode::refused; });
}

BOOST_AUTO_TEST_CASE(an_arena_that_no_segment_has) {
    class Adopted : public un::detail::SharedMemoryWorld {
    public:
        Adopted(const un::detail::SharedMemoryWorld& from, std::size_t arena_bytes) {
            set_size(2);
            auto segment = un::detail::SharedSegment::open(concat_path(from.segment().file()));
            reinterpret_cast<un::detail::SharedHeader*>(segment.base())->arena_bytes = arena_bytes;
            adopt(std::move(segment));
        }
        static std::string concat_path(int file) { return "/proc/self/fd/" + std::to_string(file); }
    };
    for (const std::size_t wrong : {~std::size_t{0}, ~std::size_t{0} - 100'000, std::size_t{1} << 63, std::size_t{0}}) {
        const un::detail::SharedMemoryWorld made(2, 64 * mebi);
        BOOST_CHECK_EXCEPTION(Adopted(made, wrong), un::error,
                              [](const un::error& refused) { return refused.code() == un::ErrorCode::refused; });
    }
    un::detail::SharedMemoryWorld world(2, 64 * mebi);
    for (const int rank : {-1, 2, 1'000'000}) BOOST_CHECK_THROW(world.attach(rank), un::error);
}

BOOST_AUTO_TEST_SUITE_END()
