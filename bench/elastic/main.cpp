// The cost of elastic worlds: an update over an elastic world compared with one over a plain world,
// in turns in the same processes; and the time from a kill until the others commit the next update,
// compared with the time of an update, and with a restart of all ranks from a checkpoint.
//     bench_elastic [--ranks 4] [--rounds 15] [--kills 20] [--tcp] [--sharded]
// With --sharded: an update of sharded state with Adam over an elastic world, whose slices are
// sometimes copied to a second rank, compared with one over a plain world; and the cost of a kill
// after which all ranks go back to the last copy.
#include "restart.hpp"

#include <unisono/elastic.hpp>
#include <unisono/launch/processes.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/sharding/sharding.hpp>
#include <unisono/tcp.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace un = unisono;

namespace {

struct Options {
    int ranks = 4, rounds = 15, kills = 20;
    bool tcp = false, sharded = false;
};
/// A gradient that costs almost nothing, so that the update takes the time.
struct Model {
    std::vector<float> weights, slopes;
    explicit Model(std::size_t count) : weights(count, 0.5f), slopes(count) {}
    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return slopes; }
    template <class Batch>
    double operator()(const Batch&, un::Pass&) {
        for (std::size_t i = 0; i < weights.size(); ++i) slopes[i] += 0.25f * weights[i];
        return 1;
    }
};
struct Board {
    std::atomic<un::nanoseconds> killed{0};
    std::atomic<un::nanoseconds> next[16] = {}; ///< each survivor's next update after the kill
    std::atomic<un::nanoseconds> step{0};       ///< median before the kill
    std::atomic<un::nanoseconds> formed[16] = {};
};
double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all.empty() ? 0 : all[all.size() / 2];
}

/// One trainer and its next updates, each timed in microseconds.
template <class World, class... More>
class Timed {
public:
    Timed(World& world, std::size_t count, More... more)
        : model_(count), values_(static_cast<std::size_t>(world.size()), 1.0f), data_(values_, 1),
          trainer_(world, model_, un::Replicas{world.size()}, un::Reproducible{}, more...) {}
    template <class OnUpdate>
    std::vector<double> run(std::int64_t updates, OnUpdate on_update) {
        std::vector<double> all;
        un::nanoseconds last = 0;
        trainer_.fit(data_, {.epochs = updates, .batch_size = 1, .progress = false},
                     [&](const un::UpdateReport& report) {
                         const un::nanoseconds now = un::steady_now();
                         if (last != 0) all.push_back(static_cast<double>(now - last) * 1e-3);
                         last = now;
                         on_update(report, all);
                     });
        return all;
    }
    [[nodiscard]] std::string describe() const { return trainer_.describe(); }

private:
    Model model_;
    std::vector<float> values_;
    un::RowData<float> data_;
    un::Trainer<World, Model, un::Replicas, un::Reproducible, More...> trainer_;
};
constexpr un::Sgd sgd{.learning_rate = 1e-6};
constexpr un::Adam adam{.learning_rate = 1e-6};
constexpr auto nothing = [](const un::UpdateReport&, const std::vector<double>&) {};

template <class Transport>
void compare(const un::Identity& me, const std::string& folder, const Options& options) {
    auto plain = un::join<Transport>(un::rendezvous(me, un::RendezvousPoint{.folder = folder, .job = "plain"}));
    for (const std::size_t count : {std::size_t{9'000}, std::size_t{300'000}, std::size_t{4'300'000}}) {
        auto elastic = un::join<un::Elastic<Transport>>(
            un::rendezvous(me, un::RendezvousPoint{.folder = folder, .job = "elastic" + std::to_string(count)}));
        Timed a(plain, count, sgd);
        Timed b(elastic, count, sgd);
        const std::int64_t updates = count < 100'000 ? 400 : count < 1'000'000 ? 60 : 8;
        std::vector<double> of_plain, of_elastic, ratios;
        for (int round = -1; round < options.rounds; ++round) {
            const double first = median(a.run(updates, nothing)), second = median(b.run(updates, nothing));
            if (round < 0) continue;
            of_plain.push_back(first);
            of_elastic.push_back(second);
            ratios.push_back(second / first);
        }
        if (me.rank == 0)
            std::printf(
                "%zu parameters, %d ranks: plain %.1f us, elastic %.1f us an update; ratio %.3f (median of %d turns)\n",
                count, me.world, median(of_plain), median(of_elastic), median(ratios), options.rounds);
    }
}

/// Sharded state: updates without copies, and with a copy after each, each 4th and each 16th, in
/// turns. 16 updates are timed together.
template <class Transport>
void compare_sharded(const un::Identity& me, const std::string& folder, const Options& options) {
    auto plain = un::join<Transport>(un::rendezvous(me, un::RendezvousPoint{.folder = folder, .job = "plain"}));
    constexpr std::size_t count = 4'300'000;
    constexpr std::int64_t updates = 16;
    const auto time_of = [](auto& timed) {
        double sum = 0;
        for (const double one : timed.run(updates + 1, nothing)) sum += one;
        return sum / static_cast<double>(updates);
    };
    Timed replicated(plain, count, adam);
    Timed sharded(plain, count, adam, un::StateSharding{});
    for (const std::int64_t every : {std::int64_t{1}, std::int64_t{4}, std::int64_t{16}}) {
        auto elastic = un::join<un::Elastic<Transport>>(
            un::rendezvous(me, un::RendezvousPoint{.folder = folder, .job = "elastic" + std::to_string(every)}));
        Timed copied(elastic, count, adam, un::StateSharding{}, un::Snapshots{.every = every});
        std::vector<double> of_replicated, of_sharded, of_copied, ratios;
        for (int round = -1; round < options.rounds; ++round) {
            const double first = time_of(replicated), second = time_of(sharded), third = time_of(copied);
            if (round < 0) continue;
            of_replicated.push_back(first);
            of_sharded.push_back(second);
            of_copied.push_back(third);
            ratios.push_back(third / second);
        }
        if (me.rank != 0) continue;
        const std::string text = copied.describe();
        std::printf("%zu parameters, %d ranks, Adam: replicated %.1f us, sharded %.1f us, with snapshots every %d %.1f "
                    "us an update; ratio %.3f (median of %d turns)\n%s",
                    count, me.world, median(of_replicated), median(of_sharded), int(every), median(of_copied),
                    median(ratios), options.rounds, text.substr(text.find("elastic:")).c_str());
    }
}

template <class Transport, class... More>
void be_killed(const un::Identity& me, const std::string& folder, Board& board, More... more) {
    auto world = un::join<un::Elastic<Transport>>(un::rendezvous(me, un::RendezvousPoint{.folder = folder}));
    Timed timed(world, 4'300'000, more...);
    constexpr std::uint64_t when = 10;
    timed.run(when + 4, [&](const un::UpdateReport& report, const std::vector<double>& all) {
        if (report.number == when && world.number() == 1) {
            board.step = static_cast<un::nanoseconds>(median(all) * 1e3);
            board.killed = un::steady_now();
            ::kill(::getpid(), SIGKILL);
        }
        if (report.number == when + 1) board.next[world.number()] = un::steady_now();
    });
    if (!world.changes().empty()) board.formed[world.number()] = world.changes()[0].took.count();
}

class Folder {
public:
    Folder() {
        if (::mkdtemp(path_) == nullptr) throw std::runtime_error("no folder in /tmp");
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { static_cast<void>(std::system(("rm -rf " + path()).c_str()) + 0); }
    [[nodiscard]] std::string path() const { return path_; }

private:
    char path_[32] = "/tmp/unisono-bench-XXXXXX";
};

/// Returns when all ranks have ended. `fails`: errors are expected.
template <class Body>
void run_ranks(int ranks, const std::string& folder, bool fails, Body body) {
    un::Processes processes;
    for (int rank = 0; rank < ranks; ++rank)
        processes.start([&] {
            try {
                body(un::identity_of(rank, ranks), folder);
                return 0;
            } catch (const std::exception& failed) {
                if (!fails) std::fprintf(stderr, "rank %d: %s\n", rank, failed.what());
                return 1;
            }
        });
    while (processes.wait_any(un::never)) {
    }
}
template <class Body>
void run_ranks(int ranks, Body body) {
    const Folder folder;
    run_ranks(ranks, folder.path(), false, body);
}

/// Milliseconds from a kill to the next update of all ranks, if all end and restart.
template <class Transport>
double restart(const Options& options, void* memory) {
    auto& board = *::new (memory) Board;
    const Folder folder;
    for (const bool dies : {true, false})
        run_ranks(options.ranks, folder.path(), dies, [&](const un::Identity& me, const std::string& where) {
            bench::train_from_checkpoint<Transport, Model>(me, where, dies, board);
        });
    un::nanoseconds last = 0;
    for (int rank = 0; rank < options.ranks; ++rank) last = std::max(last, board.next[rank].load());
    return static_cast<double>(last - board.killed.load()) * 1e-6;
}

template <class Transport>
void measure(const Options& options) {
    run_ranks(options.ranks, [&](const un::Identity& me, const std::string& folder) {
        if (options.sharded) compare_sharded<Transport>(me, folder, options);
        else compare<Transport>(me, folder, options);
    });
    void* const memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    std::vector<double> recovery, beyond, steps, formed, restarts;
    for (int trial = 0; trial < options.kills; ++trial) {
        auto& board = *::new (memory) Board;
        run_ranks(options.ranks, [&](const un::Identity& me, const std::string& folder) {
            if (options.sharded)
                be_killed<Transport>(me, folder, board, adam, un::StateSharding{}, un::Snapshots{.every = 4});
            else be_killed<Transport>(me, folder, board, sgd);
        });
        un::nanoseconds last = 0, forming = 0;
        for (int rank = 0; rank < options.ranks; ++rank) {
            last = std::max(last, board.next[rank].load());
            forming = std::max(forming, board.formed[rank].load());
        }
        if (last == 0) continue;
        steps.push_back(static_cast<double>(board.step.load()) * 1e-6);
        recovery.push_back(static_cast<double>(last - board.killed.load()) * 1e-6);
        beyond.push_back(recovery.back() - 2 * steps.back());
        formed.push_back(static_cast<double>(forming) * 1e-6);
        restarts.push_back(restart<Transport>(options, memory));
    }
    if (recovery.empty()) return;
    std::printf(
        "4300000 parameters, %d ranks, one killed: an update takes %.1f ms; from the kill to the next update of all "
        "others %.1f "
        "ms, beyond two updates %.1f ms (worst %.1f), of which the new world took %.1f ms; medians of %zu kills\n",
        options.ranks, median(steps), median(recovery), median(beyond), *std::max_element(beyond.begin(), beyond.end()),
        median(formed), recovery.size());
    std::printf("without an elastic world, all ranks end and are forked anew, and resume from a checkpoint of %d "
                "updates before: %.1f "
                "ms (worst %.1f), %.2f times as long (median of turns)\n",
                int(bench::killed_at - bench::checkpoint_every), median(restarts),
                *std::max_element(restarts.begin(), restarts.end()), median(restarts) / median(recovery));
}

} // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"What elastic worlds cost.", "bench_elastic"};
    app.add_option("--ranks", options.ranks, "Ranks (4)")->check(CLI::Range(2, 16));
    app.add_option("--rounds", options.rounds, "Turns of the comparison (15)")->check(CLI::Range(1, 1000));
    app.add_option("--kills", options.kills, "Kills (20)")->check(CLI::Range(0, 1000));
    app.add_flag("--tcp", options.tcp, "Over sockets, instead of shared memory");
    app.add_flag("--sharded", options.sharded, "The optimizer's state is sharded");
    CLI11_PARSE(app, argc, argv);
    if (options.tcp) measure<un::Tcp>(options);
    else measure<un::SharedMemory>(options);
    return 0;
}
