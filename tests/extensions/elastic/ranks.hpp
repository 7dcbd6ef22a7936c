// Trainings in which the test decides which ranks die, and when.
#pragma once

#include "striking.hpp"

namespace unisono_test {

/// Starts the ranks of the first world. `make_body(rank)` returns the body of each rank.
template <class Transport, class MakeBody>
void start_ranks(un::Processes& processes, int ranks, const Folder& folder, const un::ElasticOptions& options,
                 const Shared& told, MakeBody make_body) {
    for (int rank = 0; rank < ranks; ++rank)
        processes.start(
            [&] { return be_rank<Transport>(rank, ranks, folder.path(), options, told[rank], make_body(rank)); });
}

struct Unwatched {
    void operator()(const un::Processes&) const {}
};
/// Runs ranks to their end. Calls `watch(processes)` every few milliseconds.
template <class Transport, class MakeBody, class Watch = Unwatched>
void run_ranks(int ranks, const un::ElasticOptions& options, const Shared& told, MakeBody make_body, Watch watch = {}) {
    const Folder folder;
    un::Processes processes;
    start_ranks<Transport>(processes, ranks, folder, options, told, make_body);
    const un::nanoseconds until = un::steady_now() + 40'000'000'000;
    while (processes.running() > 0 && un::steady_now() < until) {
        static_cast<void>(processes.wait_any(un::steady_now() + 5'000'000));
        watch(processes);
    }
    BOOST_REQUIRE_MESSAGE(processes.running() == 0, "a rank hangs");
}
template <class Transport, class MakeBody>
void run_ranks(int ranks, const Shared& told, MakeBody make_body) {
    run_ranks<Transport>(ranks, patient(), told, make_body);
}

/// Rank 1 dies after update 4 and another process joins. Then rank 0 dies after update `last` or
/// later. With sanitizers no process joins. `train_in(world, on_update)` is the training.
template <class Transport, class Train>
void lose_and_add(int ranks, std::uint64_t last, const Shared& told, Train train_in) {
    const Folder folder;
    un::Processes processes;
    const auto body = [&](int who) {
        return [&, who](auto& world) {
            return train_in(world, [&, who](const un::UpdateReport& report) {
                if (who == 1 && report.number == 4) ::kill(::getpid(), SIGKILL);
                bool added = who == ranks || test::sanitized;
                for (const un::WorldChange& change : world.changes()) added = added || !change.joined.empty();
                if (who == 0 && added && report.number >= last) ::kill(::getpid(), SIGKILL);
                ::usleep(added ? 300 : 150'000);
            });
        };
    };
    start_ranks<Transport>(processes, ranks, folder, patient(), told, body);
    if (!test::sanitized)
        processes.start([&] { return be_rank<Transport>(-1, 0, folder.path(), patient(), told[ranks], body(ranks)); });
    await_end(processes);
}
/// Of three ranks and one that joins, the two remaining ones end with the undisturbed result.
template <class Transport, class Train>
void expect_lost_and_added(std::uint64_t last, Train train_in) {
    if (too_slow()) return;
    const Shared told;
    lose_and_add<Transport>(3, last, told, train_in);
    for (const int who : {2, 3}) {
        BOOST_TEST_CONTEXT(Transport::name << ", process " << who << ": " << told[who].text) { ends_well(told[who]); }
    }
    BOOST_TEST(told[2].added == 1u);
    BOOST_TEST(told[2].changes >= 2u);
    BOOST_TEST(!told[0].done);
    BOOST_TEST(!told[1].done);
}

} // namespace unisono_test
