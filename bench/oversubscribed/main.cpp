// More ranks than cores: 8 ranks compared with one rank per core (two, on the machine of the goal),
// which move the same bytes in total. Both worlds exist at once and take turns. The other one
// sleeps.

#include "support/meeting.hpp"
#include "support/memory.hpp"
#include "support/report.hpp"

#include <unisono/collective/collective.hpp>
#include <unisono/group/run.hpp>
#include <unisono/transport/in_process.hpp>

#include <atomic>
#include <thread>
#include <vector>

namespace un = unisono;
using World = un::Group<un::InProcess>;

namespace {

/// A world whose ranks sleep until a repetition is requested.
class Crew {
public:
    Crew(int ranks, std::size_t count, std::string name)
        : series{std::move(name), {}}, ranks_(ranks), meeting_(ranks), thread_([this, count] {
              un::run<un::InProcess>(ranks_, [&](World& world) { work(world, count); }, {.bind_to_cores = true});
          }) {}
    ~Crew() {
        ask(stop);
        thread_.join();
    }
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    void repeat(std::uint32_t repetition) {
        ask(repetition + 1);
        for (std::uint32_t seen = done_.load(); seen != repetition + 1; seen = done_.load()) done_.wait(seen);
    }

    bench::Series series;

private:
    static constexpr std::uint32_t stop = 0xffffffffu;

    void ask(std::uint32_t what) {
        asked_.store(what);
        asked_.notify_all();
    }

    void work(World& world, std::size_t count) {
        const int me = world.rank();
        bench::Floats data(count, 1 + me);
        const auto values = data.first(count);
        std::uint32_t last = 0;
        for (;;) {
            asked_.wait(last);
            last = asked_.load();
            if (last == stop) return;
            bench::rewrite(values, me, last);
            const double time = meeting_.time(me, [&] { un::all_reduce(world, values); });
            bench::check_sum(values, ranks_, last, series.name.c_str());
            meeting_.wait(me);
            if (me != 0) continue;
            if (last > 1) series.add(time);
            done_.store(last);
            done_.notify_all();
        }
    }

    int ranks_;
    bench::Meeting meeting_;
    std::atomic<std::uint32_t> asked_{0};
    std::atomic<std::uint32_t> done_{0};
    std::thread thread_;
};

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("oversubscribed", options);
    constexpr int many = 8;
    const int few = static_cast<int>(bench::cores().size());
    report.header({"us, bytes a rank of " + std::to_string(many), std::to_string(many) + " ranks", "spread",
                   std::to_string(few) + " ranks", "ratio", "paired", "best quarter", "more", "goal"});
    for (const std::size_t bytes : {8u, 65536u, 1048576u, 4194304u, 16777216u}) {
        if (options.quick && bytes > 1048576) continue;
        const std::size_t count = bytes / sizeof(float);
        Crew crowd(many, count, std::to_string(many) + " ranks");
        Crew pair(few, count * many / static_cast<std::size_t>(few), std::to_string(few) + " ranks");
        const std::uint32_t rounds = options.quick ? 10 : bytes > 4194304 ? 20 : 60;
        for (std::uint32_t round = 0; round < rounds; ++round) {
            crowd.repeat(round);
            pair.repeat(round);
        }
        report.compare(bench::in_words(bytes), crowd.series, {pair.series}, bytes >= 1048576 ? 1.5 : 0);
    }
}
