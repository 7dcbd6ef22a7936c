// One training in five ways: on one rank; on several ranks that hold everything; and on the same
// number of ranks that hold slices of it (the stages of ZeRO). Prints time, memory per rank and
// accuracy. Gradients are summed on a grid, so all ways give the same bits.
//     sharded_digits --ranks 4 --hidden 512

#include "../digits/data.hpp"
#include "../numbers.hpp"
#include "unit_network.hpp"

#include <CLI/CLI.hpp>
#include <unisono/reproducible.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <new>
#include <string>

// Counts allocated memory: now, and at most.
namespace {

std::atomic<std::size_t> live{0}, peak{0};

void* note(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    const std::size_t bytes = malloc_usable_size(memory);
    const std::size_t now = live.fetch_add(bytes) + bytes;
    std::size_t most = peak;
    while (most < now && !peak.compare_exchange_weak(most, now)) {
    }
    return memory;
}
void give_back(void* memory) noexcept {
    live -= malloc_usable_size(memory);
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

struct Options {
    int ranks = 4;
    std::int64_t epochs = 10;
    std::size_t hidden = 128;
    /// Hidden layers. With few layers, one unit is most of the model, and each stage needs all of
    /// it.
    std::size_t layers = 8;
};

constexpr int replicas = 8; ///< micro-batches per update, on any number of ranks
constexpr std::int64_t global_batch = 32;

/// Trains on the given number of ranks, and prints a line.
template <class Sharding>
void train(const char* way, int ranks, const Options& options, const digits::Split& images, Sharding sharding) {
    const std::size_t before = live;
    peak = before;
    un::run<un::InProcess>(ranks, [&](auto& world) {
        std::vector<std::size_t> widths(options.layers + 2, options.hidden);
        widths.front() = digits::pixels;
        widths.back() = digits::kinds;
        digits::UnitNetwork network(widths, 1);
        const auto fit = [&](auto& model) {
            un::Trainer trainer{world,
                                model,
                                sharding,
                                un::Replicas{.count = replicas},
                                un::Reproducible{},
                                un::DistributedSampler{.seed = 1},
                                un::Adam{.learning_rate = 0.003}};
            const auto data = images.train.data();
            const auto start = std::chrono::steady_clock::now();
            trainer.fit(data, {.epochs = options.epochs, .global_batch_size = global_batch, .progress = false});
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
            const std::size_t most = (peak - before) / static_cast<std::size_t>(ranks);
            const un::StateHash hash = un::state_hash(trainer);
            const auto test = images.test.data();
            const auto [accuracy] = trainer.evaluate(test, {.batch_size = 64}, un::AccuracyMetric{});
            if (world.rank() == 0)
                std::printf("%-32s %5d %8.2f %10.2f %9.4f   %016llx\n", way, ranks, time.count(),
                            static_cast<double>(most) / 1048576, accuracy.value(),
                            static_cast<unsigned long long>(hash.parameters));
        };
        if constexpr (un::detail::shards_gradients<Sharding>) {
            fit(network);
        } else {
            un::ResidentUnits whole(world, network);
            fit(whole);
        }
    });
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"One training on one rank, on several, and on as many that hold slices.", "sharded_digits"};
    Options options;
    app.add_option("--ranks", options.ranks, "Ranks that share the work, threads of this process (4)")
        ->check(numbers::from(1, replicas));
    app.add_option("--epochs", options.epochs, "Passes over the data (10)")->check(numbers::from(1, 1000));
    app.add_option("--hidden", options.hidden, "Width of the hidden layers (128)")->check(numbers::from(1, 4096));
    app.add_option("--layers", options.layers, "Hidden layers (8)")->check(numbers::from(1, 64));
    CLI11_PARSE(app, argc, argv);
    try {
        const auto images = digits::split(digits::read(DIGITS_DATA), 357);
        std::printf("%-32s %5s %8s %10s %9s   %s\n", "", "ranks", "seconds", "MiB a rank", "accuracy", "parameters");
        train("one rank, 8 micro-batches", 1, options, images, un::Replicated{});
        train("everything on each rank", options.ranks, options, images, un::Replicated{});
        train("state in slices (ZeRO-1)", options.ranks, options, images, un::StateSharding{});
        train("gradients, too (ZeRO-2)", options.ranks, options, images, un::GradientSharding{});
        train("parameters, too (ZeRO-3)", options.ranks, options, images, un::ParameterSharding{});
        return 0;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "sharded_digits: %s\n", failed.what());
        return 2;
    }
}
