// Memory per rank and bytes per update of each stage of sharding, compared with the arithmetic of
// the ZeRO paper: 4 ranks, Adam.
//
// Each stage is measured in a process of its own. Memory: the most that was allocated (by the sizes
// requested from operator new), and the most that was resident, beyond what was before. Ranks are
// threads, so a rank has a fourth of the total. Bytes: all messages of an update of simulated
// ranks.

#include "support/report.hpp"

#include <unisono/sharded.hpp>
#include <unisono/simulate.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

std::atomic<std::size_t> live{0}, peak{0}, calls{0};

void* note(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    calls.fetch_add(1, std::memory_order_relaxed);
    const std::size_t bytes = malloc_usable_size(memory);
    const std::size_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::size_t most = peak.load(std::memory_order_relaxed);
    while (most < now && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
    return memory;
}
void give_back(void* memory) noexcept {
    live.fetch_sub(malloc_usable_size(memory), std::memory_order_relaxed);
    std::free(memory);
}

} // namespace

void* operator new(std::size_t n) { return note(std::malloc(n == 0 ? 1 : n)); }
void* operator new(std::size_t n, std::align_val_t a) {
    const auto line = static_cast<std::size_t>(a);
    return note(std::aligned_alloc(line, (n + line - 1) / line * line));
}
void operator delete(void* p) noexcept { give_back(p); }
void operator delete(void* p, std::size_t) noexcept { give_back(p); }
void operator delete(void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give_back(p); }

namespace {

namespace un = unisono;

constexpr int ranks = 4;

/// Units of equal sizes, whose gradients are their parameters.
struct Wide {
    using Element = float;
    std::vector<std::size_t> sizes;
    [[nodiscard]] const std::vector<std::size_t>& units() const { return sizes; }
    static void initialise(std::size_t, std::span<float> values) { std::fill(values.begin(), values.end(), 1.0f); }
    double operator()(int, un::UnitPass<float>& pass) const {
        double loss = 0;
        for (std::size_t u = 0; u < sizes.size(); ++u) loss += static_cast<double>(pass.parameters(u)[0]);
        for (std::size_t u = sizes.size(); u-- > 0;) {
            const auto weights = pass.parameters(u);
            const auto gradient = pass.gradient(u);
            for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += weights[i];
            pass.ready(u);
        }
        return loss;
    }
};

template <class Sharding, class World>
void train(World& world, const Wide& like, int updates, bool accumulates) {
    Wide wide = like;
    const auto with = [&](auto& model) {
        un::Trainer trainer{world, model, Sharding{}, un::Adam{}};
        for (int i = 0; i < updates; ++i) {
            if (accumulates) trainer.step(i, i, i);
            else trainer.step(i);
        }
    };
    if constexpr (un::detail::shards_gradients<Sharding>) {
        with(wide);
    } else {
        un::ResidentUnits all(world, wide);
        with(all);
    }
}

/// A value of /proc/self/status, in bytes.
double of_status(const char* field) {
    std::FILE* const file = std::fopen("/proc/self/status", "r");
    double found = 0;
    char line[256];
    while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr)
        if (std::string(line).rfind(field, 0) == 0) found = 1024 * std::atof(line + std::string(field).size() + 1);
    if (file != nullptr) std::fclose(file);
    return found;
}

struct Found {
    double allocated, resident; ///< bytes per rank
    double calls, seconds;      ///< allocations of all ranks, and time, of 10 updates
};

/// In a process of its own, in which nothing was allocated and freed before.
template <class Body>
auto in_a_child(Body body) {
    using Result = decltype(body());
    void* const shared = mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) std::exit(1);
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        *static_cast<Result*>(shared) = body();
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) std::exit(1);
    const Result result = *static_cast<Result*>(shared);
    munmap(shared, sizeof(Result));
    return result;
}

template <class Sharding>
Found measure(const Wide& wide, bool accumulates) {
    const std::size_t before = live;
    const double resident = of_status("VmRSS:");
    peak = before;
    using Clock = std::chrono::steady_clock;
    const auto run = [&](int updates) {
        const std::size_t start = calls;
        const auto began = Clock::now();
        un::run<un::InProcess>(ranks, [&](auto& world) { train<Sharding>(world, wide, updates, accumulates); });
        return std::pair(static_cast<double>(calls - start),
                         std::chrono::duration<double>(Clock::now() - began).count());
    };
    const auto few = run(3);
    const double allocated = static_cast<double>(peak - before) / ranks;
    const double most_resident = (of_status("VmHWM:") - resident) / ranks;
    const auto more = run(13);
    return {allocated, most_resident, more.first - few.first, more.second - few.second};
}

template <class Sharding>
double traffic(bool accumulates) {
    Wide wide;
    wide.sizes.assign(100, 10000);
    const auto bytes = [&](int updates) {
        return un::simulate(ranks, {}, [&](auto& world) { train<Sharding>(world, wide, updates, accumulates); }).bytes;
    };
    return static_cast<double>(bytes(3) - bytes(1)) / 2;
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    // Compared with PyTorch, with the same number of layers.
    const bool steps = options.only == "steps";
    const std::size_t units = steps ? 8 : 128, of_each = (options.quick ? 2'097'152 : 20'000'000) / units;
    Wide wide;
    wide.sizes.assign(units, of_each);
    const double count = static_cast<double>(units * of_each);
    std::printf("%d ranks as threads, Adam, %.1f million parameters in %zu units; 1 x is the paper's arithmetic\n",
                ranks, count / 1e6, units);
    std::printf("%-11s %-5s | %9s | %17s | %17s | %6s | %7s | %s\n", "stage", "steps", "paper", "allocated", "resident",
                "calls", "bytes", "ms an update");
    nlohmann::json results = nlohmann::json::array();
    double replicated = 0;
    const auto row = [&]<class Sharding>(const char* name, Sharding, bool accumulates, double bytes_each) {
        const double paper = bytes_each * count;
        const Found found = in_a_child([&] { return measure<Sharding>(wide, accumulates); });
        const double bytes = in_a_child([&] { return traffic<Sharding>(accumulates); });
        if (replicated == 0) replicated = bytes;
        std::printf("%-11s %5d | %5.1f MiB | %5.1f MiB %.3f x | %5.1f MiB %.3f x | %6.0f | %5.3f x | %.1f\n", name,
                    accumulates ? 3 : 1, paper / 1048576, found.allocated / 1048576, found.allocated / paper,
                    found.resident / 1048576, found.resident / paper, found.calls, bytes / replicated,
                    found.seconds * 100);
        results.push_back({{"stage", name},
                           {"steps", accumulates ? 3 : 1},
                           {"paper_bytes", paper},
                           {"allocated_bytes", found.allocated},
                           {"resident_bytes", found.resident},
                           {"allocations_in_10_updates", found.calls},
                           {"bytes_of_replicated", bytes / replicated},
                           {"update_ms", found.seconds * 100}});
    };
    for (const bool accumulates : {false, true}) {
        if (accumulates && steps) break;
        row("replicated", un::Replicated{}, accumulates, 16);
        row("state", un::StateSharding{}, accumulates, 8 + 8.0 / ranks);
        row("gradients", un::GradientSharding{}, accumulates, 4 + 12.0 / ranks);
        row("parameters", un::ParameterSharding{}, accumulates, 16.0 / ranks);
    }
    if (!options.json.empty()) std::ofstream(options.json) << results.dump(1) << '\n';
}
