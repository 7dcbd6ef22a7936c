// Ranks that are killed while they save, at a moment that the seed decides. The last good
// checkpoint exists and is good. UNISONO_KILLS=200 tries that number of seeds instead of the few
// that always run.
#include "network.hpp"
#include "support/fails.hpp"

#include "support/ranks.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <random>
#include <sys/resource.h>
#include <sys/time.h>
#include <thread>

namespace un = unisono;
using namespace unisono_test;
using namespace std::chrono_literals;

namespace {

void strike_after(unsigned microseconds) {
    std::signal(SIGALRM, [](int) { ::kill(::getpid(), SIGKILL); });
    itimerval timer{};
    timer.it_value.tv_sec = microseconds / 1'000'000;
    timer.it_value.tv_usec = static_cast<suseconds_t>(microseconds % 1'000'000 + 1);
    ::setitimer(ITIMER_REAL, &timer, nullptr);
}

unsigned trials() {
    const char* const wanted = std::getenv("UNISONO_KILLS");
    const long number = wanted != nullptr ? std::strtol(wanted, nullptr, 10) : 0;
    return number > 0 ? static_cast<unsigned>(number) : 12;
}

/// The duration of a training on processes that saves after each update.
unsigned microseconds_of_a_training() {
    const Folder folder;
    const test::Shared<std::atomic<std::int64_t>> took;
    un::run<un::SharedMemory>(2, [&](auto& world) {
        auto begin = std::chrono::steady_clock::now();
        Case how{.ranks = 2, .folder = folder.path(), .save_every = 1};
        how.before_fit = [&] { begin = std::chrono::steady_clock::now(); };
        train_rank(world, how, {});
        *took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
    });
    return static_cast<unsigned>(std::clamp<std::int64_t>(*took, 1000, 5'000'000));
}

std::size_t names_ending_with(const std::string& folder, const std::string& end) {
    std::size_t count = 0;
    for (const auto& one : std::filesystem::directory_iterator(folder))
        count += one.path().filename().string().ends_with(end) ? 1u : 0u;
    return count;
}

void raise_to(std::atomic<std::uint64_t>& most, std::uint64_t value) {
    std::uint64_t seen = most.load();
    while (seen < value && !most.compare_exchange_weak(seen, value)) {
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_kills, *boost::unit_test::enable_if<!test::under_thread_sanitizer>())

BOOST_AUTO_TEST_CASE(the_last_good_one_is_left, *boost::unit_test::label("slow")) {
    std::unique_ptr<Folder> folder;
    std::uint64_t known = 0; // updates of a checkpoint that was seen or reported to a rank
    unsigned whole = microseconds_of_a_training();
    unsigned killed = 0, amid = 0, begun = 0, with_none = 0;
    for (unsigned seed = 0; killed < trials(); ++seed) {
        BOOST_TEST_REQUIRE(seed < 20 * trials() + 100, "killed only " << killed);
        if (!folder) {
            folder = std::make_unique<Folder>();
            known = 0;
            ++begun;
        }
        std::mt19937 random(seed);
        const int ranks = 2 + static_cast<int>(random() % 2);
        // Beyond the ranks: all at once.
        const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks + 2));
        const unsigned moment = static_cast<unsigned>(random()) % whole;
        Case how{.ranks = ranks, .sharded = random() % 2 == 0, .folder = folder->path()};
        how.checkpoints = {.keep = 1 + random() % 2, .background = random() % 2 == 0, .patience = 20s};
        how.resume = true;
        how.save_every = 1;
        const test::Shared<std::atomic<std::uint64_t>> durable;
        const test::Shared<std::atomic<int>> refused; // resuming itself failed
        bool struck = false;
        try {
            un::run<un::SharedMemory>(
                ranks,
                [&](auto& world) {
                    Case mine = how;
                    if (world.rank() == victim || victim >= ranks) mine.before_fit = [&] { strike_after(moment); };
                    const Outcome one = train_rank(world, mine, [&](int, const std::string& name) {
                        const std::uint64_t updates = std::stoull(name.substr(name.rfind('-') + 1));
                        raise_to(*durable, how.checkpoints.background ? updates - 1 : updates);
                    });
                    if (one.untouched) ++*refused;
                },
                {.timeout = 60s, .grace = 20s});
        } catch (const un::error&) {
            struck = true;
        }
        killed += struck ? 1 : 0;
        // The machine may be busier now, or less busy.
        whole = std::max(1000u, struck ? whole + whole / 16 : whole / 4 * 3);
        amid += struck && names_ending_with(folder->path(), ".writing") != 0 ? 1 : 0;
        BOOST_TEST(*refused == 0, "seed " << seed);
        // The state is one of the undisturbed training, and no older than what was durable.
        const auto look = train({.ranks = 1 + static_cast<int>(random() % 3),
                                 .sharded = random() % 2 == 0,
                                 .folder = folder->path(),
                                 .resume = true,
                                 .stop_after = 1});
        BOOST_TEST_REQUIRE(look[0].refused == "", "seed " << seed);
        if (!look[0].resumed) {
            ++with_none;
            BOOST_TEST((known == 0 && *durable == 0), "seed " << seed << ": nothing is left");
            continue;
        }
        known = std::max<std::uint64_t>(known, *durable);
        BOOST_TEST(look[0].updates >= known,
                   "seed " << seed << ": found update " << look[0].updates << " after " << known);
        known = look[0].updates;
        for (const Outcome& one : look)
            BOOST_TEST((one.hash == undisturbed(Which::adam)[known - 1]), "seed " << seed << ", update " << known);
        if (known == updates_in_all) folder.reset();
    }
    BOOST_TEST_MESSAGE(killed << " kills, " << amid << " while a checkpoint was being written, in " << begun
                              << " trainings; after " << with_none << " there was none yet; a training took about "
                              << whole << " us");
    BOOST_TEST(amid > 0u);
    if (!folder) return;
    // A resumed training removes the remains, and ends like an undisturbed one.
    for (const Outcome& one : train({.ranks = 2, .folder = folder->path(), .resume = true, .save_every = 1}))
        BOOST_TEST((one.hash == undisturbed(Which::adam).back()));
    BOOST_TEST(names_ending_with(folder->path(), ".writing") == 0u);
}

// After the first checkpoint rank 1 may write only a few bytes, as if its disk were full.
BOOST_AUTO_TEST_CASE(a_rank_whose_disk_is_full) {
    for (const bool background : {false, true}) {
        struct Told {
            std::size_t saved;
            char refused[600];
        };
        const Folder folder;
        const test::Shared<std::array<Told, 3>> told;
        Case how{.ranks = 3, .sharded = true, .folder = folder.path(), .checkpoints = {.background = background}};
        how.save_every = 2;
        un::run<un::SharedMemory>(
            3,
            [&](auto& world) {
                bool limited = false;
                const Outcome one = train_rank(world, how, [&](int rank, const std::string& name) {
                    if (rank != 1 || limited) return;
                    // It is renamed once all ranks have written it.
                    for (int i = 0; i < 20'000 && !std::filesystem::exists(folder.path() + "/" + name); ++i)
                        std::this_thread::sleep_for(1ms);
                    std::signal(SIGXFSZ, SIG_IGN);
                    const rlimit limit{background ? 10u : 100u, RLIM_INFINITY};
                    limited = ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
                });
                Told& mine = told->at(static_cast<std::size_t>(world.rank()));
                mine.saved = one.saved.size();
                one.refused.copy(mine.refused, sizeof mine.refused - 1);
            },
            {.timeout = 30s});
        for (const Told& one : *told) {
            const std::string text = one.refused;
            BOOST_TEST(one.saved == (background ? 2u : 1u));
            test::says(text, "rank 1: cannot write '");
            test::says(text, "checkpoint-000002-update-4.writing/");
            test::says(text, "File too large");
        }
        const auto all = train({.folder = folder.path(), .resume = true, .save_every = 5});
        BOOST_TEST(all[0].from.updates == 2u);
        BOOST_TEST((all[0].hash == undisturbed(Which::adam).back()));
        BOOST_TEST(names_ending_with(folder.path(), ".writing") == 0u);
    }
}

BOOST_AUTO_TEST_SUITE_END()
