// all_reduce of threads on the cores of one machine, from two sockets to sixty-four cores. Prints
// which cores share what, from /sys. Then it measures 2, 4, 8 and 16 ranks, and one per core, each
// bound to the rank-th core modulo their number. Beside the native schedule it measures a ring, and
// two levels, where ranks whose cores share their last cache sum first. If all cores share one
// cache, there are about as many groups as ranks per group.

#include "support/meeting.hpp"
#include "support/memory.hpp"
#include "support/report.hpp"

#include <unisono/collective/collective.hpp>
#include <unisono/group/run.hpp>
#include <unisono/schedule/hierarchical.hpp>
#include <unisono/transport/in_process.hpp>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

namespace un = unisono;

namespace {

std::string text_of(const std::filesystem::path& file) {
    std::string text;
    std::ifstream in(file);
    std::getline(in, text);
    return text;
}

/// Prints which cores share what. Returns how many neighbouring cores share the last cache, or 0 if
/// the system does not report it or groups differ.
int print_topology(bench::Report& report) {
    std::map<std::string, std::set<std::string>> shared; // "L3, 32768K" -> lists of cores
    // list of cores that share the last cache -> how many of this program's
    std::map<std::string, int> last;
    for (const int core : bench::cores()) {
        const std::filesystem::path cpu = "/sys/devices/system/cpu/cpu" + std::to_string(core);
        shared["hardware threads of a core"].insert(text_of(cpu / "topology/thread_siblings_list"));
        shared["cores of a package"].insert(text_of(cpu / "topology/core_siblings_list"));
        std::string outermost;
        for (int i = 0; std::filesystem::exists(cpu / "cache" / ("index" + std::to_string(i))); ++i) {
            const std::filesystem::path cache = cpu / "cache" / ("index" + std::to_string(i));
            if (text_of(cache / "type") == "Instruction") continue;
            outermost = text_of(cache / "shared_cpu_list");
            shared["cache L" + text_of(cache / "level") + ", " + text_of(cache / "size")].insert(outermost);
        }
        if (!outermost.empty()) ++last[outermost];
    }
    for (const auto& [what, lists] : shared) {
        std::string all;
        for (const std::string& list : lists) all += (all.empty() ? "" : " | ") + (list.empty() ? "unknown" : list);
        std::printf("%s: %s\n", what.c_str(), all.c_str());
        report.add({{"shared", what}, {"cores", lists}});
    }
    for (const auto& [list, cores] : last)
        if (cores != last.begin()->second) return 0;
    return last.empty() ? 0 : last.begin()->second;
}

void measure(bench::Report& report, const bench::Options& options, int ranks, int sharing) {
    // Ranks are bound in the order of cores, so groups of consecutive ranks share a cache.
    const int group =
        sharing > 0 && sharing < ranks ? sharing : static_cast<int>(std::sqrt(static_cast<double>(ranks)));
    report.header({std::to_string(ranks) + " ranks, us", "native", "spread", "ring", "by " + std::to_string(group),
                   "native/best", "paired", "best quarter", "more", "goal"});
    for (const std::size_t bytes : {8u, 512u, 8192u, 65536u, 1048576u}) {
        const std::uint32_t rounds = options.quick ? 6 : bytes > 65536 ? 60 : 300;
        bench::Series native{"native", {}}, ring{"ring", {}}, levels{"two levels", {}};
        bench::Meeting meeting(ranks);
        un::run<un::InProcess>(
            ranks,
            [&](auto& world) {
                const int me = world.rank();
                bench::Floats data(bytes / sizeof(float), 1 + me);
                const auto values = data.first(bytes / sizeof(float));
                std::uint32_t step = 0;
                const auto turn = [&](bench::Series& series, bool counts, const auto& family) {
                    bench::rewrite(values, me, ++step);
                    const double time = meeting.time(me, [&] { un::all_reduce(world, values, un::Sum{}, family); });
                    bench::check_sum(values, ranks, step, series.name.c_str());
                    if (me == 0 && counts) series.add(time);
                };
                for (std::uint32_t round = 0; round < rounds + 2; ++round) {
                    turn(native, round > 1, un::NativeSchedule{});
                    turn(ring, round > 1, un::RingSchedule{});
                    turn(levels, round > 1, un::HierarchicalSchedule{.ranks_per_host = std::max(1, group)});
                }
            },
            {.bind_to_cores = true});
        report.compare(bench::in_words(bytes), native, {ring, levels}, 0);
    }
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("cores", options);
    const int sharing = print_topology(report);
    std::set<int> worlds{2, 4, 8, 16, static_cast<int>(bench::cores().size())};
    for (const int ranks : worlds)
        if (ranks > 1 && (!options.quick || ranks <= 8)) measure(report, options, ranks, sharing);
}
