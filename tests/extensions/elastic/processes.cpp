// Processes that train are killed, stopped, added and attacked. The remaining ones end with the
// bits of an undisturbed training.
#include "ranks.hpp"

#include <unisono/hosts.hpp>
#include <unisono/launch/processes.hpp>

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <netinet/in.h>
#include <random>
#include <set>
#include <sstream>
#include <sys/socket.h>
#include <sys/time.h>

using namespace unisono_test;
using namespace std::chrono_literals;

namespace {

/// The ports of the loopback interface at which these processes listen.
std::vector<std::uint16_t> ports_of(const un::Processes& processes, int count) {
    std::set<std::string> sockets;
    for (int i = 0; i < count; ++i) {
        std::error_code gone;
        for (const auto& each :
             std::filesystem::directory_iterator("/proc/" + std::to_string(processes.pid(i)) + "/fd", gone)) {
            // socket:[123]
            const std::string link = std::filesystem::read_symlink(each.path(), gone).string();
            if (link.starts_with("socket:[")) sockets.insert(link.substr(8, link.size() - 9));
        }
    }
    std::vector<std::uint16_t> ports;
    std::ifstream table("/proc/net/tcp");
    std::string line;
    while (std::getline(table, line)) {
        std::istringstream words(line);
        std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
        if (word.size() > 9 && word[3] == "0A" && sockets.contains(word[9]))
            ports.push_back(static_cast<std::uint16_t>(std::stoul(word[1].substr(word[1].find(':') + 1), nullptr, 16)));
    }
    return ports;
}

/// A stranger that tries every port of the ranks: with random bytes, with no bytes, and with more
/// connections than a rank accepts.
class Stranger {
public:
    explicit Stranger(int ranks) : ranks_(ranks) {}
    void operator()(const un::Processes& processes) {
        for (const std::uint16_t port : ports_of(processes, ranks_)) {
            for (int i = 0; i < 8; ++i) {
                un::detail::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
                sockaddr_in to{};
                to.sin_family = AF_INET;
                to.sin_port = htons(port);
                to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                static_cast<void>(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to));
                std::array<std::uint8_t, 512> bytes;
                for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random_() % 4 == 0 ? 0u : random_());
                if (i % 2 == 0)
                    tried_ += ::send(socket.get(), bytes.data(), random_() % bytes.size(), MSG_NOSIGNAL) > 0 ? 1 : 0;
                held_.push_back(std::move(socket));
            }
        }
        while (held_.size() > 400) held_.pop_front();
    }
    [[nodiscard]] int tried() const { return tried_; }

private:
    int ranks_;
    int tried_ = 0;
    std::mt19937 random_{7};
    std::deque<un::detail::FileDescriptor> held_;
};

/// Resumes stopped processes when all others have ended.
auto wake_at_the_end(int stopped) {
    return [stopped](const un::Processes& processes) {
        if (processes.running() == stopped) processes.signal_all(SIGCONT);
    };
}

} // namespace

BOOST_AUTO_TEST_SUITE(elastic_processes)

BOOST_AUTO_TEST_CASE(killed_in_shared_memory) { kill_many<un::SharedMemory>(6); }
BOOST_AUTO_TEST_CASE(killed_over_sockets) { kill_many<un::Tcp>(6); }
BOOST_AUTO_TEST_CASE(killed_on_hosts) { kill_many<un::Hosts<un::Tcp>>(3); }

/// Then there are more names than ranks.
BOOST_AUTO_TEST_CASE(ranks_keep_the_names_of_their_hosts) {
    const std::vector<Strike> strikes = {{1, SIGKILL, 5, 0}};
    const Shared told;
    ::setenv("UNISONO_HOSTS", "a,a,b", 1);
    run_ranks<un::Hosts<un::Tcp>>(3, told, [&](int rank) { return struck(rank, strikes); });
    ::unsetenv("UNISONO_HOSTS");
    for (const int rank : {0, 2}) {
        ends_well(told[rank]);
        BOOST_TEST(told[rank].changes == 1u);
    }
}

/// As in the example: one rank dies, another joins, rank 0 dies.
constexpr auto train_replicated = [](auto& world, auto on_update) { return train(world, on_update); };
BOOST_AUTO_TEST_CASE(added_in_shared_memory) { expect_lost_and_added<un::SharedMemory>(6, train_replicated); }
BOOST_AUTO_TEST_CASE(added_over_sockets) { expect_lost_and_added<un::Tcp>(6, train_replicated); }
BOOST_AUTO_TEST_CASE(added_on_hosts) { expect_lost_and_added<un::Hosts<un::Tcp>>(6, train_replicated); }

/// A single rank, alone from the start or because the others died, takes in the processes that
/// wait.
BOOST_AUTO_TEST_CASE(added_to_a_rank_alone) {
    if (too_slow()) return;
    for (const int ranks : {1, 3}) {
        const Shared told;
        const Folder folder;
        un::Processes processes;
        const auto body = [ranks](int who) {
            return [ranks, who](auto& world) {
                return train(world, [&](const un::UpdateReport& report) {
                    if (who != ranks - 1 && who < ranks && report.number == 2) ::kill(::getpid(), SIGKILL);
                    ::usleep(world.size() == 1 ? 200'000 : 300);
                });
            };
        };
        start_ranks<un::SharedMemory>(processes, ranks, folder, patient(), told, body);
        processes.start([&] {
            if (ranks > 1) ::usleep(300'000); // the others are dead
            return be_rank<un::SharedMemory>(-1, 0, folder.path(), patient(), told[ranks], body(ranks));
        });
        await_end(processes);
        for (const int who : {ranks - 1, ranks}) {
            BOOST_TEST_CONTEXT(ranks << " ranks, process " << who << ": " << told[who].text) { ends_well(told[who]); }
        }
        BOOST_TEST(told[ranks - 1].added == 1u);
    }
}

/// A process with another training learns the difference and leaves. The others continue to train.
BOOST_AUTO_TEST_CASE(added_with_another_learning_rate) {
    if (too_slow()) return;
    constexpr int ranks = 2;
    const Shared told;
    const Folder folder;
    un::Processes processes;
    const auto body = [](int who) {
        return [who](auto& world) {
            const auto pause = [](const un::UpdateReport&) { ::usleep(150'000); };
            return train(world, pause, true, who == ranks ? 0.02 : 0.01);
        };
    };
    for (int who = 0; who <= ranks; ++who)
        processes.start([&, who] {
            return be_rank<un::SharedMemory>(who < ranks ? who : -1, ranks, folder.path(), patient(), told[who],
                                             body(who));
        });
    await_end(processes);
    for (int who = 0; who < ranks; ++who) {
        BOOST_TEST_CONTEXT("rank " << who << ": " << told[who].text) {
            ends_well(told[who]);
            BOOST_TEST(told[who].added == 1u);
        }
    }
    const std::string text = told[ranks].text;
    BOOST_TEST((told[ranks].was_in && !told[ranks].done), "it was not refused");
    BOOST_TEST((text.find("rank 2 has another optimizer than rank 0 (here: AdamW(learning_rate 0.0") != text.npos),
               text);
}

/// Slow training gives other processes time to join before the end.
constexpr auto train_slowly = [](auto& world) {
    return train(world, [](const un::UpdateReport&) { ::usleep(100'000); });
};

/// Trains until a process has been added, at most until the end.
constexpr auto train_until_one_is_added = [](auto& world) {
    bool waits = world.changes().empty();
    return train(world, [&, waits](const un::UpdateReport&) mutable {
        for (const un::WorldChange& change : world.changes()) waits = waits && change.joined.empty();
        ::usleep(waits ? 400'000 : 20'000);
    });
};

/// The members cannot form a world with a process that joins. It learns the reason, and they train
/// without it.
template <class Members, class Newcomer>
void expect_refused(const std::string& why, unsigned changes) {
    if (too_slow()) return;
    constexpr int ranks = 2;
    const Shared told;
    const Folder folder;
    un::Processes processes;
    start_ranks<Members>(processes, ranks, folder, patient(), told, [](int) { return train_slowly; });
    processes.start([&] { return be_rank<Newcomer>(-1, 0, folder.path(), patient(), told[ranks], train_slowly); });
    await_end(processes);
    for (int rank = 0; rank < ranks; ++rank) {
        BOOST_TEST_CONTEXT(Members::name << ", rank " << rank << ": " << told[rank].text) {
            ends_well(told[rank]);
            BOOST_TEST(told[rank].changes == changes);
            BOOST_TEST(told[rank].added == 0u);
        }
    }
    const std::string text = told[ranks].text;
    BOOST_TEST((!told[ranks].was_in && text.find(why) != text.npos), text);
}
BOOST_AUTO_TEST_CASE(added_with_too_few_names_of_hosts) {
    ::setenv("UNISONO_HOSTS", "a,b", 1);
    expect_refused<un::Hosts<un::Tcp>, un::Hosts<un::Tcp>>("UNISONO_HOSTS has 2 names for 3 ranks", 1);
    ::unsetenv("UNISONO_HOSTS");
}
BOOST_AUTO_TEST_CASE(added_over_another_transport) {
    expect_refused<un::SharedMemory, un::Tcp>(
        "the transport is 'tcp' of this process and 'shared_memory' of the elastic world's first rank", 0);
}

/// Processes that find no world report the reason in time.
BOOST_AUTO_TEST_CASE(added_to_no_world) {
    const Folder folder;
    un::ElasticOptions options{.joins = true, .folder = folder.path()};
    options.join.rendezvous.timeout = 300ms;
    const auto refusal = [&] {
        try {
            static_cast<void>(un::join<un::Elastic<un::SharedMemory>>(options));
        } catch (const un::error& failed) {
            return std::pair(failed.code(), std::string(failed.what()));
        }
        return std::pair(un::ErrorCode::none, std::string());
    };
    const auto expect = [&](un::ErrorCode code, const std::string& text) {
        const auto [found, what] = refusal();
        BOOST_TEST((found == code && what.find(text) != what.npos), what);
    };
    expect(un::ErrorCode::timeout, "no rank has left an address there");
    // A launcher reports that the training has ended. The process learns this before the timeout of
    // ten minutes.
    const std::string ended = folder / "job.elastic.meet.ended";
    std::fclose(std::fopen(ended.c_str(), "w"));
    options.join.rendezvous.timeout = 10min;
    expect(un::ErrorCode::refused, "has ended (" + ended);
    options.folder.clear();
    expect(un::ErrorCode::bad_input, "no folder is given where it could find one");
    // The process itself finds that there is no world, so it is the only rank of the first world.
    options.joins = false;
    ::setenv("UNISONO_JOINS", "auto", 1);
    expect(un::ErrorCode::bad_input, "UNISONO_JOINS is auto, and no folder is given");
    options.folder = folder.path();
    expect(un::ErrorCode::refused, "has ended (" + ended);
    std::filesystem::remove(ended);
    expect(un::ErrorCode::none, "");
    ::setenv("UNISONO_JOINS", "perhaps", 1);
    expect(un::ErrorCode::bad_input, "UNISONO_JOINS is 'perhaps'; expected 0, 1 or auto");
    ::unsetenv("UNISONO_JOINS");
}

/// A process that is restarted after the end of the training, or beside a file that a killed rank
/// has left.
BOOST_AUTO_TEST_CASE(started_again_too_late) {
    const Folder folder;
    ::setenv("UNISONO_JOINS", "auto", 1);
    un::ElasticOptions options = patient();
    options.patience = 500ms;
    options.folder = folder.path();
    const un::RendezvousPoint place = un::detail::admission_point({.folder = folder.path()});
    const auto train_alone = [&](bool stops) {
        auto world = un::join<un::Elastic<un::SharedMemory>>(options);
        BOOST_TEST(world.epoch() == 0u);
        un::StopOnSignal stop;
        Layer model;
        un::Trainer trainer{world, model, un::Replicas{4}, un::Sgd{.learning_rate = 0.01}};
        const std::vector<float> values(64 * Layer::width, 0.5f);
        const un::FitReport report =
            trainer.fit(un::RowData<float>(values, Layer::width),
                        {.batch_size = 4, .progress = false, .stop_on = &stop}, [&](const un::UpdateReport& update) {
                            if (stops && update.number == 2) ::raise(SIGTERM);
                        });
        BOOST_TEST(report.stopped == stops);
    };
    { // of a killed rank
        const un::detail::Listener gone = un::detail::listen_at(true, 0);
        un::RendezvousPoint left = place;
        left.host = "127.0.0.1";
        left.port = gone.port;
        left.token = un::JobToken::random();
        // Another program listens there now, which proves nothing.
        const un::detail::RendezvousFile file(left);
        train_alone(true);
    }
    train_alone(true); // a signal has stopped the rank, so training has not ended
    {                  // the last training failed, and the program caught the error
        auto world = un::join<un::Elastic<un::SharedMemory>>(options);
        Layer model;
        un::Trainer trainer{world, model, un::Replicas{4}, un::Sgd{.learning_rate = 0.01}};
        const std::vector<float> values(64 * Layer::width, 0.5f);
        const un::RowData<float> data(values, Layer::width);
        trainer.fit(data, {.batch_size = 4, .progress = false});
        BOOST_CHECK_THROW(trainer.fit(data, {.batch_size = -1, .progress = false}), un::error);
    }
    train_alone(false);
    BOOST_CHECK_EXCEPTION(train_alone(false), un::training_has_ended, [](const un::error& failed) {
        return failed.code() == un::ErrorCode::refused &&
               std::string(failed.what()).find("has ended (") != std::string::npos;
    });
    ::unsetenv("UNISONO_JOINS");
}

/// Two processes apply and one is admitted: there is one more replica than ranks, or `most` limits
/// the ranks.
BOOST_AUTO_TEST_CASE(added_while_there_is_room) {
    if (too_slow()) return;
    for (const int ranks : {unisono_test::replicas - 1, 2}) {
        un::ElasticOptions options = patient();
        if (ranks == 2) options.most = 3;
        const Shared told;
        const Folder folder;
        un::Processes processes;
        start_ranks<un::SharedMemory>(processes, ranks, folder, options, told,
                                      [](int) { return train_until_one_is_added; });
        for (const int who : {ranks, ranks + 1})
            processes.start([&, who] {
                un::ElasticOptions later = options;
                later.join.rendezvous.timeout = 10s; // the other one is refused after this
                return be_rank<un::SharedMemory>(-1, 0, folder.path(), later, told[who], train_slowly);
            });
        await_end(processes);
        int added = 0;
        for (int who = 0; who < ranks + 2; ++who)
            BOOST_TEST_CONTEXT(ranks << " ranks, process " << who << ": " << told[who].text) {
                added += who >= ranks && told[who].was_in ? 1 : 0;
                if (who < ranks || told[who].was_in)
                    BOOST_TEST((told[who].result == undisturbed()), "another result than undisturbed");
                else BOOST_TEST(told[who].code == static_cast<int>(un::ErrorCode::timeout));
            }
        BOOST_TEST(added == 1);
    }
}

/// No stranger gets in, and no member leaves. Only rank 1 is lost, which is killed meanwhile.
template <class Transport>
void be_attacked() {
    if (too_slow()) return;
    for (const bool kills : {false, true}) {
        const std::vector<Strike> strikes = kills ? std::vector<Strike>{{1, SIGKILL, 6, 0}} : std::vector<Strike>{};
        Stranger stranger(3);
        const Shared told;
        run_ranks<Transport>(
            3, patient(), told, [&](int rank) { return struck(rank, strikes, 30'000); }, std::ref(stranger));
        BOOST_TEST(stranger.tried() > 50);
        for (const int rank : {0, 1, 2}) {
            if (kills && rank == 1) continue;
            BOOST_TEST_CONTEXT(Transport::name << ", rank " << rank << ": " << told[rank].text) {
                BOOST_TEST((told[rank].result == undisturbed()), "another result than undisturbed");
                BOOST_TEST(told[rank].changes == (kills ? 1u : 0u));
            }
        }
    }
}
BOOST_AUTO_TEST_CASE(attacked_in_shared_memory) { be_attacked<un::SharedMemory>(); }
BOOST_AUTO_TEST_CASE(attacked_over_sockets) { be_attacked<un::Tcp>(); }

/// Nothing proves that a stopped rank is dead. A majority continues. When the rank wakes, it cannot
/// come back.
BOOST_AUTO_TEST_CASE(stopped_rank_is_left_behind) {
    for (const int victim : {0, 2}) {
        const std::vector<Strike> strikes = {{victim, SIGSTOP, 5, 0}};
        const Shared told;
        run_ranks<un::Tcp>(
            3, impatient(), told, [&](int rank) { return struck(rank, strikes); }, wake_at_the_end(1));
        for (int rank = 0; rank < 3; ++rank) {
            BOOST_TEST_CONTEXT("rank " << rank << ": " << told[rank].text) {
                BOOST_TEST(told[rank].done == (rank != victim));
                if (rank != victim) BOOST_TEST((told[rank].result == undisturbed()));
                else BOOST_TEST(told[rank].code == static_cast<int>(un::ErrorCode::aborted));
                if (rank == victim) says(told[rank], "left behind");
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(no_majority_ends) {
    const std::vector<Strike> strikes = {{0, SIGSTOP, 5, 0}};
    const Shared told;
    run_ranks<un::SharedMemory>(
        2, impatient(), told, [&](int rank) { return struck(rank, strikes); }, wake_at_the_end(1));
    BOOST_TEST(!told[1].done);
    // Rank 1 said goodbye, and there was no other world, so rank 0 continues alone.
    ends_well(told[0]);
    BOOST_TEST(told[1].code == static_cast<int>(un::ErrorCode::timeout));
    says(told[1], "not two worlds");
}

/// A half with the lowest rank counts as a majority.
BOOST_AUTO_TEST_CASE(half_with_the_lowest_rank_continues) {
    const std::vector<Strike> strikes = {{1, SIGSTOP, 5, 0}};
    const Shared told;
    run_ranks<un::Tcp>(
        2, impatient(), told, [&](int rank) { return struck(rank, strikes); }, wake_at_the_end(1));
    ends_well(told[0]);
    BOOST_TEST(told[1].code == static_cast<int>(un::ErrorCode::aborted), told[1].text);
}

BOOST_AUTO_TEST_CASE(fewer_than_least_end) {
    const std::vector<Strike> strikes = {{0, SIGKILL, 5, 0}};
    un::ElasticOptions options = patient();
    options.least = 3;
    const Shared told;
    run_ranks<un::Tcp>(3, options, told, [&](int rank) { return struck(rank, strikes); });
    for (const int rank : {1, 2}) {
        BOOST_TEST(told[rank].code == static_cast<int>(un::ErrorCode::refused));
        says(told[rank], "expected at least 3");
    }
}

BOOST_AUTO_TEST_CASE(options_of_all_ranks_are_alike) {
    const Shared told;
    const Folder folder;
    un::Processes processes;
    for (const int rank : {0, 1, 2})
        processes.start([&, rank] {
            un::ElasticOptions options = patient();
            if (rank == 2) options.most = 5;
            return be_rank<un::Tcp>(rank, 3, folder.path(), options, told[rank], struck(rank, {}));
        });
    await_end(processes);
    for (const int rank : {0, 1, 2}) says(told[rank], "ElasticOptions::most is 5 on rank 2 and 1048576 on rank 0");
}

/// Each rank that hosts the replica would throw again.
BOOST_AUTO_TEST_CASE(exceptions_are_no_losses) {
    const Shared told;
    run_ranks<un::SharedMemory>(3, patient(), told, [&](int rank) {
        return [rank](auto& world) {
            return train(world, [&](const un::UpdateReport& report) {
                if (rank == 1 && report.number == 4) un::refuse_input("no such sample");
            });
        };
    });
    for (const int rank : {0, 1, 2}) {
        BOOST_TEST(!told[rank].done);
        BOOST_TEST(told[rank].changes == 0u);
        says(told[rank], "no such sample");
    }
}

/// In a loop of the user's own, each rank passes the micro-batches that it hosts in the current
/// world: replica r is on rank r modulo the number of ranks.
BOOST_AUTO_TEST_CASE(steps_of_ones_own) {
    constexpr std::uint64_t updates = 12;
    const auto loop = [](auto& world, auto before) {
        static const std::vector<float> values = un::torch_rand(5, updates * 4 * Layer::width);
        Layer model;
        un::Trainer trainer{world, model, un::Replicas{4}, un::Reproducible{}, un::Sgd{.learning_rate = 0.01}};
        while (trainer.updates() < updates) {
            before(trainer.updates());
            const std::size_t first = trainer.updates() * 4;
            const auto batch = [&](std::size_t replica) {
                const auto at = values.begin() + static_cast<std::ptrdiff_t>((first + replica) * Layer::width);
                return un::RowBatch<float>{.values = {at, at + Layer::width}, .width = Layer::width};
            };
            if (world.size() == 2) {
                const auto rank = static_cast<std::size_t>(world.rank());
                static_cast<void>(trainer.step(batch(rank), batch(2 + rank)));
            } else static_cast<void>(trainer.step(batch(0), batch(1), batch(2), batch(3)));
        }
        return Result{.hash = trainer.collectively([](auto& now) { return un::state_hash(now); }),
                      .updates = trainer.updates()};
    };
    Result undisturbed_result;
    for (const bool disturbed : {false, true}) {
        const Shared told;
        run_ranks<un::SharedMemory>(2, patient(), told, [&](int rank) {
            return [&, rank](auto& world) {
                return loop(world, [&](std::uint64_t done) {
                    if (disturbed && rank == 0 && done == 5) strike_after({0, SIGKILL, 5, 100});
                    ::usleep(300);
                });
            };
        });
        BOOST_TEST(told[1].done, told[1].text);
        BOOST_TEST(told[1].changes == (disturbed ? 1u : 0u));
        BOOST_TEST(told[1].result.updates == updates);
        if (!disturbed) undisturbed_result = told[1].result;
        else BOOST_TEST((told[1].result == undisturbed_result));
    }
}

BOOST_AUTO_TEST_SUITE_END()
