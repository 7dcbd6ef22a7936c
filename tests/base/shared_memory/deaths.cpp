// A rank is killed or stopped at a moment that a seed decides. All other ranks are told and name
// the same rank. No result is wrong, and nothing is left. UNISONO_DEATHS=500 tries that number of
// seeds instead of the few that always run.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "processes.hpp"

#include <boost/test/unit_test.hpp>

#include <ctime>
#include <random>
#include <sys/time.h>
#include <thread>

namespace un = unisono;
using test::Group;
using namespace std::chrono_literals;

namespace {

std::int64_t now_ns() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

struct Told {
    std::atomic<int> code{0};
    std::atomic<int> peer{-1};
    std::atomic<int> rank{-1};
    std::atomic<std::int64_t> when{0};
    std::atomic<std::size_t> hash{0};
    char text[600] = {};
};
struct Trial {
    std::atomic<std::int64_t> happened{0};
    std::atomic<int> wrong{0};
    std::array<Told, 8> told;
};

Trial* current = nullptr;
int fatal = SIGKILL;
std::int64_t slowest_notice = 0; ///< ns from a kill until a rank's call failed
unsigned slowest_seed = 0;

void strike(int) {
    current->happened.store(now_ns());
    ::kill(::getpid(), fatal);
}

void strike_after(unsigned microseconds) {
    struct sigaction action {};
    action.sa_handler = &strike;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGALRM, &action, nullptr);
    itimerval timer{};
    timer.it_value.tv_usec = static_cast<suseconds_t>(microseconds + 1);
    ::setitimer(ITIMER_REAL, &timer, nullptr);
}

template <class Buffer>
bool holds(const Buffer& data, float value) {
    for (const float one : data) {
        if (one != value) return false;
    }
    return true;
}

/// Operations of all kinds and sizes, in memory of the group and elsewhere, several in flight.
void work(Group& group, std::mt19937 random) {
    const int ranks = group.size();
    const float sum = static_cast<float>(ranks * (ranks + 1) / 2);
    const float mine = static_cast<float>(group.rank() + 1);
    Group half = group.split(group.rank() % 2, 0);
    un::Memory<float> shared = group.allocate<float>(60'000);
    for (;;) {
        const std::size_t count = std::size_t{1} << (random() % 16);
        std::vector<float> own(count, mine);
        std::fill(shared.begin(), shared.end(), mine);
        const auto part = std::span<float>(shared.data(), count);
        std::vector<float> ring(count / 2 + 1, mine);
        un::Operation a = un::start_all_reduce(group, ring, un::Sum{}, un::RingSchedule{.chunk_bytes = 16384});
        switch (random() % 4) {
        case 0: un::all_reduce(group, own); break;
        case 1: un::all_reduce(group, own, un::Sum{}, un::TreeSchedule{}); break;
        case 2: un::broadcast(group, own, static_cast<int>(count) % ranks); break;
        default: un::barrier(half); break;
        }
        un::all_reduce(group, part);
        a.wait();
        if (!holds(part, sum) || !holds(ring, sum)) ++current->wrong;
    }
}

enum class Ranks { forked, strangers, watched };

void check(unsigned seed, Ranks who) {
    const std::string where = "seed " + std::to_string(seed) +
                              (who == Ranks::forked      ? ", forked"
                               : who == Ranks::strangers ? ", strangers"
                                                         : ", watched");
    std::mt19937 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const auto moment = static_cast<unsigned>(random() % (seed % 2 == 0 ? 3000 : 30'000));
    fatal = random() % 4 == 0 ? SIGSTOP : SIGKILL;
    test::Leftovers leftovers;
    test::Shared<Trial> trial;
    current = &*trial;
    // Longer than ranks may wait for a core on a busy machine.
    const un::RunOptions options{.timeout = fatal == SIGSTOP ? 2s : 60s, .grace = fatal == SIGSTOP ? 2s : 20s};
    const auto body = [&](Group& group) {
        if (group.rank() == victim && who != Ranks::watched) strike_after(moment);
        try {
            if (who == Ranks::watched) { // the end of joining is itself one of rank 0's messages
                un::barrier(group);
                if (group.rank() == victim) strike_after(moment);
            }
            work(group, std::mt19937(seed + 1));
        } catch (const un::error& failed) {
            Told& told = trial->told[static_cast<std::size_t>(group.rank())];
            told.when = now_ns();
            told.code = static_cast<int>(failed.code());
            told.peer = failed.peer();
            told.rank = failed.rank();
            told.hash = std::hash<std::string>{}(failed.what());
            std::string(failed.what()).copy(told.text, sizeof told.text - 1);
            throw;
        }
    };
    if (who == Ranks::forked) BOOST_CHECK_THROW(un::run<un::SharedMemory>(ranks, body, options), un::error);
    else
        test::run_strangers(ranks, body, options,
                            who == Ranks::watched ? test::Meeting::control : test::Meeting::noticeboard);
    BOOST_TEST(trial->wrong == 0, where << ": wrong results");
    const auto expected = fatal == SIGSTOP ? un::ErrorCode::timeout : un::ErrorCode::peer_lost;
    const Told* first = nullptr;
    for (int rank = 0; rank < ranks; ++rank) {
        const Told& told = trial->told[static_cast<std::size_t>(rank)];
        if (rank == victim) continue;
        BOOST_TEST((told.code == static_cast<int>(expected) && told.peer == victim),
                   where << ": rank " << rank << " of " << ranks << " was told: " << told.text << " (peer " << told.peer
                         << "); expected " << un::name_of(expected) << " of rank " << victim);
        if (first == nullptr) first = &told;
        BOOST_TEST(told.hash == first->hash, where << ": '" << told.text << "' but '" << first->text << "'");
        const std::int64_t took = told.when - trial->happened;
        if (expected == un::ErrorCode::peer_lost)
            BOOST_TEST(took < options.timeout.count(), where << ": not before the deadline");
        if (fatal != SIGKILL || took <= slowest_notice) continue;
        slowest_notice = took;
        slowest_seed = seed;
    }
}

unsigned trials(unsigned few) {
    const char* const wanted = std::getenv("UNISONO_DEATHS");
    const long number = wanted != nullptr ? std::strtol(wanted, nullptr, 10) : 0;
    return number > 0 ? static_cast<unsigned>(number) : few;
}

} // namespace

BOOST_AUTO_TEST_SUITE(shared_memory_deaths,
                      *boost::unit_test::label("slow") * boost::unit_test::enable_if<!test::under_thread_sanitizer>())

BOOST_AUTO_TEST_CASE(forked_ranks) {
    for (unsigned seed = 0; seed < trials(20); ++seed) check(seed, Ranks::forked);
    BOOST_TEST_MESSAGE("killed ranks were noticed within " << slowest_notice / 1'000'000 << " ms (seed " << slowest_seed
                                                           << ")");
}

BOOST_AUTO_TEST_CASE(strangers_notice_by_themselves) {
    slowest_notice = 0;
    for (unsigned seed = 1000; seed < 1000 + trials(20); ++seed) check(seed, Ranks::strangers);
    BOOST_TEST_MESSAGE("killed ranks were noticed within " << slowest_notice / 1'000'000 << " ms (seed " << slowest_seed
                                                           << ")");
}

BOOST_AUTO_TEST_CASE(a_control_plane_watches) { // rank 0 keeps it, and may be the victim
    slowest_notice = 0;
    for (unsigned seed = 2000; seed < 2000 + trials(20); ++seed) check(seed, Ranks::watched);
    BOOST_TEST_MESSAGE("killed ranks were noticed within " << slowest_notice / 1'000'000 << " ms (seed " << slowest_seed
                                                           << ")");
}

BOOST_AUTO_TEST_CASE(a_rank_that_goes_on_writing_later_changes_nothing) {
    // Rank 1 is stopped while it writes to rank 0's output. It continues when rank 0 has been told
    // that the operation has failed.
    struct Facts {
        std::atomic<int> process{0};
        std::atomic<int> changed{-1};
    };
    const test::Leftovers leftovers;
    const test::Shared<Facts> facts;
    struct StopOnce {
        Facts* facts;
        bool stops;
        float operator()(float a, float b) const {
            if (stops && facts->process.exchange(::getpid()) == 0) ::raise(SIGSTOP);
            return a + b;
        }
    };
    BOOST_CHECK_THROW(
        un::run<un::SharedMemory>(2,
                                  [&](Group& group) {
                                      un::Memory<float> in = group.allocate<float>(100'000);
                                      un::Memory<float> out = group.allocate<float>(100'000);
                                      std::fill(in.begin(), in.end(), 1.0f);
                                      try {
                                          un::all_reduce(group, in, out, StopOnce{&*facts, group.rank() == 1});
                                      } catch (const un::error&) {
                                          if (group.rank() == 1) throw;
                                          // The program may write to it again.
                                          std::fill(out.begin(), out.end(), 7.0f);
                                          ::kill(facts->process, SIGCONT);
                                          while (!group.endpoint().has_left(1)) std::this_thread::sleep_for(1ms);
                                          facts->changed = holds(out, 7.0f) ? 0 : 1;
                                          throw;
                                      }
                                  },
                                  {.timeout = 1s, .grace = 20s}),
        un::error);
    BOOST_TEST(facts->changed == 0);
}

BOOST_AUTO_TEST_SUITE_END()
