// Ranks that own slices are killed. Nothing is lost unless a slice's owner and the next rank are
// lost together. In that case all ranks report it.
#include "lost_state.hpp"
#include "ranks.hpp"
#include "support/fails.hpp"
#include "support/owners_or_all.hpp"

#include <unisono/unisono.hpp>

#include <array>
#include <cstdlib>
#include <random>
#include <string>

using namespace unisono_test;

namespace {

/// A rank is killed in its call of on_update after this update. If a copy follows, the rank dies
/// before it, and the others wait for the rank.
struct Death {
    int rank = 0;
    std::uint64_t update = 0;
};
using Deaths = std::vector<Death>;

template <class... Policies>
auto dying(int rank, const Deaths& deaths, Told& told, Policies... policies) {
    return [rank, &deaths, &told, policies...](auto& world) {
        return train(
            world,
            [&](const un::UpdateReport& report) {
                for (const Death& one : deaths) {
                    if (one.rank != rank || one.update != report.number) continue;
                    // By then, other ranks that die after this update have made it, too.
                    ::usleep(50'000);
                    ::kill(::getpid(), SIGKILL);
                }
                ++told.made;
            },
            true, 0.01, policies...);
    };
}
bool dies(int rank, const Deaths& deaths) {
    for (const Death& one : deaths)
        if (one.rank == rank) return true;
    return false;
}

template <class Transport, class Owners>
void survive(int ranks, const Deaths& deaths, un::Snapshots snapshots, Owners owners) {
    const Shared told;
    run_ranks<Transport>(ranks, told, [&](int rank) { return dying(rank, deaths, told[rank], snapshots, owners); });
    const auto once = static_cast<int>(undisturbed().updates);
    const auto again = static_cast<int>(deaths.size()) * static_cast<int>(snapshots.every);
    for (int rank = 0; rank < ranks; ++rank) {
        BOOST_TEST_CONTEXT(Transport::name << ", every " << snapshots.every << ", rank " << rank << " of " << ranks
                                           << ": " << told[rank].text) {
            BOOST_TEST(told[rank].done != dies(rank, deaths));
            if (dies(rank, deaths)) continue;
            BOOST_TEST((told[rank].result == undisturbed()), "another result than undisturbed");
            BOOST_TEST(told[rank].changes >= (deaths.empty() ? 0u : 1u));
            BOOST_TEST(told[rank].made >= once);
            BOOST_TEST(told[rank].made <= once + again);
        }
    }
}
constexpr std::array<std::int64_t, 3> intervals = {1, 4, 100};

std::vector<un::detail::KeptWords> kept(std::initializer_list<un::detail::KeptWords> all) { return all; }

} // namespace

BOOST_AUTO_TEST_SUITE(elastic_sharded)

BOOST_AUTO_TEST_CASE(undisturbed_in_shared_memory) {
    for (const int ranks : {1, 4}) survive<un::SharedMemory>(ranks, {}, {.every = 4}, un::StateSharding{});
}
BOOST_AUTO_TEST_CASE(one_is_lost) {
    for (const std::int64_t every : intervals)
        for (const int rank : {0, 2, 3}) {
            survive<un::SharedMemory>(4, {{rank, 8}}, {every}, un::StateSharding{});
            survive<un::Tcp>(4, {{rank, 7}}, {every}, un::StateSharding{});
        }
}
/// The state moves with each cut, down to the last rank.
BOOST_AUTO_TEST_CASE(one_after_another) {
    for (const std::int64_t every : {1, 3}) {
        survive<un::SharedMemory>(4, {{1, 3}, {2, 7}, {0, 11}}, {every}, un::StateSharding{});
        survive<un::Tcp>(5, {{0, 2}, {4, 6}, {3, 9}, {1, 13}}, {every}, un::StateSharding{});
    }
}
/// Neither of the two has the other's copy.
BOOST_AUTO_TEST_CASE(two_at_once) {
    for (const std::int64_t every : intervals) {
        survive<un::SharedMemory>(4, {{1, 8}, {3, 8}}, {every}, un::StateSharding{});
        survive<un::Tcp>(5, {{0, 4}, {2, 4}}, {every}, un::StateSharding{});
    }
}
BOOST_AUTO_TEST_CASE(at_the_ends_of_fit) {
    for (const std::int64_t every : intervals)
        for (const std::uint64_t update : {std::uint64_t{1}, undisturbed().updates})
            survive<un::SharedMemory>(3, {{1, update}}, {every}, un::StateSharding{});
}
/// Parameter servers own all or nothing. A policy of the program's own chooses owners, or none.
BOOST_AUTO_TEST_CASE(other_owners) {
    survive<un::SharedMemory>(4, {{0, 6}, {2, 11}}, {.every = 3}, un::ParameterServerReducer{});
    survive<un::SharedMemory>(4, {{1, 6}, {3, 11}}, {.every = 3}, test::OwnersOrAll{.sharded = true});
}
/// Fewer ranks remain than there were servers.
BOOST_AUTO_TEST_CASE(as_many_servers_as_ranks) {
    survive<un::SharedMemory>(3, {{0, 4}, {2, 9}}, {.every = 2}, un::ParameterServerReducer{.servers = 3});
}
/// Ranks that own nothing have nothing to lose, so any of them may be lost together.
BOOST_AUTO_TEST_CASE(neighbours_that_own_nothing) {
    survive<un::SharedMemory>(5, {{1, 6}, {2, 6}, {3, 6}}, {.every = 4}, un::ParameterServerReducer{});
    survive<un::Tcp>(4, {{1, 6}, {2, 6}}, {.every = 1}, un::ParameterServerReducer{});
}

/// Loses the slice of rank 1 and its copy, which rank 2 has.
template <class Transport>
void lose_both() {
    for (const std::int64_t every : intervals) {
        const Deaths deaths = {{1, 8}, {2, 8}};
        const Shared told;
        run_ranks<Transport>(4, told, [&](int rank) {
            return dying(rank, deaths, told[rank], un::Snapshots{every}, un::StateSharding{});
        });
        for (const int rank : {0, 3}) {
            BOOST_TEST_CONTEXT(Transport::name << ", every " << every << ", rank " << rank) {
                BOOST_TEST(!told[rank].done);
                BOOST_TEST(told[rank].code == static_cast<int>(un::ErrorCode::peer_lost));
                const std::string text = told[rank].text;
                BOOST_TEST((text.find("no rank has the state of the slices of rank 1 (copied to rank 2) any more") !=
                            text.npos),
                           text);
            }
        }
    }
}
BOOST_AUTO_TEST_CASE(both_lost_in_shared_memory) { lose_both<un::SharedMemory>(); }
BOOST_AUTO_TEST_CASE(both_lost_over_sockets) { lose_both<un::Tcp>(); }

/// Whether the error names an owner and the rank that had its copy, and all these ranks died
/// without a report.
bool has_named_dead_ranks(const std::string& text, const Shared& told) {
    const std::vector<int> named = ranks_without_state(text);
    for (const int rank : named)
        if (told[rank].done || told[rank].code >= 0) return false;
    return !named.empty() && text.find("no rank has the state of ") != text.npos;
}

/// Ranks die at moments that a seed decides. All remaining ranks end well, or all with the error.
/// Ranks are rarely lost together. UNISONO_ELASTIC_KILLS=500 tries that number of seeds.
template <class Transport>
void kill_sharded(unsigned usual) {
    const char* const wanted = std::getenv("UNISONO_ELASTIC_KILLS");
    const unsigned seeds = wanted != nullptr ? static_cast<unsigned>(std::strtoul(wanted, nullptr, 10)) : usual;
    unsigned well = 0, lost = 0, killed = 0;
    for (unsigned seed = 0; seed < seeds; ++seed) {
        std::mt19937 random(seed);
        const auto draw = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
        const int ranks = 2 + static_cast<int>(draw(4));
        const un::Snapshots snapshots{1 + draw(5)};
        std::vector<Strike> strikes;
        std::uint64_t update = draw(4);
        const int first = static_cast<int>(draw(static_cast<unsigned>(ranks)));
        for (int i = 0, kills = 1 + static_cast<int>(draw(static_cast<unsigned>(ranks) - 1)); i < kills; ++i) {
            strikes.push_back({(first + 2 * i) % ranks, SIGKILL, update, draw(1'000)});
            update += draw(5);
        }
        const Shared told;
        run_ranks<Transport>(ranks, told,
                             [&](int rank) { return struck(rank, strikes, 300, snapshots, un::StateSharding{}); });
        int done = 0, failed = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            const Told& one = told[rank];
            if (!one.done && one.code < 0) {
                ++killed;
                continue;
            }
            BOOST_TEST_CONTEXT(Transport::name << ", seed " << seed << ", rank " << rank << " of " << ranks << ": "
                                               << one.text) {
                const std::string text = one.text;
                if (one.done) BOOST_TEST((one.result == undisturbed()), "another result than undisturbed");
                else BOOST_TEST(has_named_dead_ranks(text, told), "the ranks that it names are not dead");
                ++(one.done ? done : failed);
            }
        }
        BOOST_TEST((done == 0 || failed == 0),
                   Transport::name << ", seed " << seed << ": some end well, others do not");
        BOOST_TEST(done + failed > 0);
        ++(done > 0 ? well : lost);
    }
    BOOST_TEST_MESSAGE(Transport::name << ": " << seeds << " trainings, " << killed << " ranks killed; " << well
                                       << " end well, " << lost << " have lost state");
    BOOST_TEST(killed >= seeds / 2);
    BOOST_TEST(well > lost);
}
BOOST_AUTO_TEST_CASE(killed_in_shared_memory) { kill_sharded<un::SharedMemory>(6); }
BOOST_AUTO_TEST_CASE(killed_over_sockets) { kill_sharded<un::Tcp>(6); }

/// One rank dies, another joins, rank 0 dies.
constexpr auto train_sharded = [](auto& world, auto on_update) {
    return train(world, on_update, true, 0.01, un::StateSharding{}, un::Snapshots{.every = 2});
};
BOOST_AUTO_TEST_CASE(added_in_shared_memory) { expect_lost_and_added<un::SharedMemory>(8, train_sharded); }
BOOST_AUTO_TEST_CASE(added_over_sockets) { expect_lost_and_added<un::Tcp>(8, train_sharded); }

/// Calls of the user's own, two trainings in succession, and updates in a loop of the user's own.
BOOST_AUTO_TEST_CASE(a_program_of_many_calls) {
    constexpr std::uint64_t steps = 12;
    const auto program = [](auto& world, auto at) {
        static const std::vector<float> values = un::torch_rand(5, 96 * Layer::width);
        const un::RowData<float> data(values, Layer::width);
        Layer model;
        un::Trainer trainer{world,
                            model,
                            un::Replicas{4},
                            un::Reproducible{},
                            un::AdamW{},
                            un::StateSharding{},
                            un::Snapshots{.every = 5}};
        Result result;
        const auto note = [&](const un::StateHash& hash) {
            result.mean = result.mean * 3 + static_cast<double>(hash.parameters % 1000 + hash.optimizer % 1000);
        };
        const auto count = [&](const un::FitReport& report) {
            for (const un::EpochReport& epoch : report.epochs)
                result.counted += epoch.updates * 1'000'000 + epoch.samples;
        };
        const un::FitOptions options{.epochs = 2, .batch_size = 2, .progress = false};
        count(trainer.fit(data, options, [&](const un::UpdateReport& report) { at(report.number); }));
        at(100);
        note(trainer.collectively([&](auto& now) {
            at(101);
            const un::StateHash hash = un::state_hash(now);
            at(102);
            return hash;
        }));
        at(103);
        const std::uint64_t first = trainer.updates();
        while (trainer.updates() < first + steps) {
            at(200 + trainer.updates() - first);
            const std::size_t begin = (trainer.updates() - first) * 4;
            const auto batch = [&](std::size_t replica) {
                const auto from = values.begin() + static_cast<std::ptrdiff_t>((begin + replica) * Layer::width);
                return un::RowBatch<float>{.values = {from, from + Layer::width}, .width = Layer::width};
            };
            const std::uint64_t before = trainer.updates();
            const auto rank = static_cast<std::size_t>(world.rank());
            if (world.size() == 4) static_cast<void>(trainer.step(batch(rank)));
            else if (world.size() == 2) static_cast<void>(trainer.step(batch(rank), batch(2 + rank)));
            else if (world.size() == 1) static_cast<void>(trainer.step(batch(0), batch(1), batch(2), batch(3)));
            else if (rank == 0) static_cast<void>(trainer.step(batch(0), batch(3)));
            else static_cast<void>(trainer.step(batch(rank)));
            if (trainer.updates() < before) un::refuse_input("this rank went back behind an update of step");
        }
        note(trainer.collectively([](auto& now) { return un::state_hash(now); }));
        count(trainer.fit(data, options, [&](const un::UpdateReport& report) { at(300 + report.number); }));
        result.hash = trainer.collectively([](auto& now) { return un::state_hash(now); });
        result.updates = trainer.updates();
        at(500);
        return result;
    };
    Result expected;
    for (const std::uint64_t when : {0u, 24u, 100u, 101u, 102u, 103u, 200u, 206u, 211u, 337u, 340u, 360u}) {
        const Shared told;
        run_ranks<un::SharedMemory>(4, told, [&](int rank) {
            return [&, rank](auto& world) {
                return program(world, [&](std::uint64_t now) {
                    if (rank == 2 && now == when) ::kill(::getpid(), SIGKILL);
                });
            };
        });
        if (when == 0) expected = told[0].result;
        for (const int rank : {0, 1, 3}) {
            BOOST_TEST_CONTEXT("killed at " << when << ", rank " << rank << ": " << told[rank].text) {
                BOOST_TEST(told[rank].done);
                BOOST_TEST(told[rank].changes == (when == 0 ? 0u : 1u));
                BOOST_TEST(told[rank].result.counted == expected.counted);
                BOOST_TEST(told[rank].result.updates == expected.updates);
                BOOST_TEST((told[rank].result == expected), "another result than undisturbed");
            }
        }
    }
    BOOST_TEST(expected.updates == 24 + steps + 24);
}

BOOST_AUTO_TEST_CASE(describes_itself) {
    const Shared told;
    run_ranks<un::SharedMemory>(2, told, [&](int rank) {
        return [&told, rank](auto& world) {
            Layer model;
            un::Trainer trainer{
                world, model, un::Replicas{2}, un::AdamW{}, un::StateSharding{}, un::Snapshots{.every = 7}};
            const std::string text = trainer.describe();
            const std::size_t at = text.find("elastic: ");
            std::snprintf(told[rank].text, sizeof told[rank].text, "%s",
                          at == text.npos ? "" : text.substr(at).c_str());
            return Result{};
        };
    });
    // 64 and 33 elements, with two arrays, and 24 bytes that identify the copy.
    const std::string end = "; when ranks are lost, all go back to the last copy\n";
    BOOST_TEST(told[0].text == "elastic: every 7 updates each rank copies its slices to the next rank: 792 B sent, "
                               "2.4 KiB kept on this rank" +
                                   end);
    BOOST_TEST(told[1].text == "elastic: every 7 updates each rank copies its slices to the next rank: 420 B sent, "
                               "2.4 KiB kept on this rank" +
                                   end);
}

BOOST_AUTO_TEST_CASE(refuses_an_interval_of_none) {
    test::fails({"Snapshots.every is 0; expected at least 1"}, [] { un::Snapshots{.every = 0}.check(); });
}

/// The newest snapshot whose slices all exist; otherwise the one that lacks the fewest.
BOOST_AUTO_TEST_CASE(newest_whole_snapshot) {
    using un::detail::newest_whole;
    using Key = un::detail::SnapshotKey;
    // Three ranks. Rank 1 is lost during the exchange of snapshot 5, so rank 2 lacks its slice.
    auto found = newest_whole({kept({{{1, 4}, 0, 3, 10, 12, 7, 3}, {{1, 5}, 0, 3, 10, 12, 7, 3}}),
                               kept({{{1, 4}, 2, 3, 12, 11, 7, 3}, {{1, 5}, 2, 3, 12, 0, 7, 3}})});
    BOOST_TEST(found.whole());
    BOOST_TEST((found.key == Key{1, 4}));
    BOOST_TEST(found.holders == (std::vector<int>{0, 1, 0}), boost::test_tools::per_element());
    BOOST_TEST(found.bytes == (std::vector<std::uint64_t>{10, 11, 12}), boost::test_tools::per_element());
    // Rank 2 has the slice.
    found = newest_whole({kept({{{1, 4}, 0, 3, 10, 12, 7, 3}, {{1, 5}, 0, 3, 10, 0, 7, 3}}),
                          kept({{{1, 4}, 2, 3, 12, 11, 7, 3}, {{1, 5}, 2, 3, 12, 11, 7, 3}})});
    BOOST_TEST((found.whole() && found.key == Key{1, 5}));
    // A snapshot of a later world counts more. A rank that was added has none.
    found = newest_whole({kept({}), kept({{{1, 9}, 0, 1, 10, 0, 7, 1}, {{3, 0}, 0, 1, 10, 0, 7, 1}})});
    BOOST_TEST((found.whole() && found.key == Key{3, 0}));
    BOOST_TEST(found.source == 1);
    // Ranks 1 and 2 of four are lost.
    found = newest_whole({kept({{{1, 4}, 0, 4, 10, 13, 7, 4}}), kept({{{1, 4}, 3, 4, 13, 12, 7, 4}})});
    BOOST_TEST(!found.whole());
    BOOST_TEST(found.gone() == 1u);
    BOOST_TEST(found.holders == (std::vector<int>{0, -1, 1, 0}), boost::test_tools::per_element());
    // Both own nothing.
    found = newest_whole({kept({{{1, 4}, 0, 4, 10, 13, 7, 2}}), kept({{{1, 4}, 3, 4, 13, 0, 7, 2}})});
    BOOST_TEST(found.whole());
    BOOST_TEST(!newest_whole({kept({}), kept({})}).whole());
}

BOOST_AUTO_TEST_SUITE_END()
