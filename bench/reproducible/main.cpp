// The cost of sums that do not depend on order and grouping: all_reduce of two ranks on a grid
// compared with the plain one, a training step of the digits network on two ranks, and the
// accumulation of micro-batches compared with a float accumulator. The plain one is the floor here.
// Every sum is verified (small integers are exact both ways).

#include "../examples/digits/network.hpp"
#include "support/meeting.hpp"
#include "support/memory.hpp"
#include "support/report.hpp"

#include <unisono/reproducible.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

namespace {

using World = un::Group<un::InProcess>;
constexpr int ranks = 2;

struct Times {
    bench::Series ours;
    bench::Series plain{"plain", {}};
    explicit Times(const char* name) : ours{name, {}} {}
};

/// Integers below 8,192, on a grid for up to 2^20.
const un::Grid grid{20};

void reduce(World& world, bench::Meeting& meeting, std::size_t count, int in_a_row, int rounds, Times& straight,
            Times& images) {
    const int me = world.rank();
    bench::Floats data(count, 1 + me);
    const auto values = data.first(count);
    auto image = world.allocate<std::int64_t>(count);
    const std::span<std::int64_t> integers(image.data(), count);
    const un::detail::GridStretch stretch{count, grid.exponent};
    const un::detail::GridMap map{&stretch, 0, 1.0};
    const auto timed = [&](auto&& sum, const char* who, std::uint32_t repetition) {
        bench::rewrite(values, me, repetition);
        const double seconds = meeting.time(me, [&] {
            // Only the first sum is verified: later ones are sums of sums.
            for (int i = 0; i < in_a_row; ++i) sum();
        });
        if (in_a_row == 1) bench::check_sum(values, ranks, repetition, who);
        return seconds / in_a_row;
    };
    for (int round = -1; round < rounds; ++round) {
        const auto repetition = static_cast<std::uint32_t>(round + 1);
        const double plain = timed([&] { un::all_reduce(world, values); }, "all_reduce", repetition);
        const double ours =
            timed([&] { un::detail::start_sum_on_grid<un::Collective::all_reduce>(world, values, map).wait(); },
                  "straight", repetition);
        const double wide = timed(
            [&] {
                un::detail::image_on<float, false>(un::best_instruction_set(), integers.data(), values.data(), count,
                                                   1.0, grid.exponent);
                un::all_reduce(world, integers);
                un::detail::from_image_on<float>(un::best_instruction_set(), values.data(), integers.data(), count,
                                                 grid.exponent);
            },
            "images", repetition);
        if (me != 0 || round < 0) continue;
        straight.plain.add(plain);
        images.plain.add(plain);
        straight.ours.add(ours);
        images.ours.add(wide);
    }
}

struct Digits {
    std::vector<float> values;
    std::vector<std::int32_t> labels;
    explicit Digits(std::size_t rows) : values(un::torch_rand(1, rows * 64)), labels(rows) {
        for (std::size_t i = 0; i < rows; ++i) labels[i] = static_cast<std::int32_t>(i % 10);
    }
};

void step(World& world, bench::Meeting& meeting, std::size_t hidden, std::size_t hosted, int rounds, Times& times) {
    const int me = world.rank();
    const Digits digits(64);
    const un::RowData<float, std::int32_t> data(digits.values, 64, digits.labels);
    std::vector<std::size_t> rows(32);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::size_t>(me) * 32 + i;
    const auto batch = data.batch(rows);
    digits::Network plain_network({64, hidden, hidden, 10});
    digits::Network grid_network({64, hidden, hidden, 10});
    un::WithLoss plain_model(plain_network, digits::CrossEntropyLoss{});
    un::WithLoss grid_model(grid_network, digits::CrossEntropyLoss{});
    const un::Sgd sgd{.learning_rate = 1e-3, .momentum = 0.9};
    un::Trainer plain{world, plain_model, sgd};
    un::Trainer ours{world, grid_model, sgd, un::Reproducible{}};
    const auto once = [&](auto& trainer) {
        return meeting.time(me, [&] { hosted == 1 ? trainer.step(batch) : trainer.step(batch, batch, batch, batch); });
    };
    for (int round = -2; round < rounds; ++round) {
        const double a = once(plain);
        const double b = once(ours);
        if (me != 0 || round < 0) continue;
        times.plain.add(a);
        times.ours.add(b);
    }
}

template <class Image>
void accumulate(std::size_t count, int in_a_row, int rounds, Times& times) {
    bench::Floats gradient(count, 1);
    bench::Floats sum(count, 2);
    std::vector<Image> image(count);
    const std::int32_t exponent = sizeof(Image) == 8 ? grid.exponent : 45; // steps of 2^-31, 2^-6
    const auto add = [&] {
        un::detail::image_on<float, true>(un::best_instruction_set(), image.data(), gradient.data(), count, 1.0,
                                          exponent);
    };
    bench::rewrite(gradient.first(count), 0, 1);
    for (int round = -1; round < rounds; ++round) {
        const double begin = bench::now_s();
        for (int i = 0; i < in_a_row; ++i)
            un::accumulate(sum.first(count), std::span<const float>(gradient.first(count)));
        const double middle = bench::now_s();
        for (int i = 0; i < in_a_row; ++i) add(); // may wrap, which takes no longer
        const double end = bench::now_s();
        if (round < 0) continue;
        times.plain.add((middle - begin) / in_a_row);
        times.ours.add((end - middle) / in_a_row);
    }
    std::fill(image.begin(), image.end(), Image{0});
    add();
    add();
    for (std::size_t i = 0; i < count; ++i) {
        const double found = std::ldexp(static_cast<double>(image[i]), exponent - 51);
        if (found == 2 * static_cast<double>(gradient.data()[i])) continue;
        std::fprintf(stderr, "reproducible: a wrong sum of micro-batches\n");
        std::exit(1);
    }
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("reproducible", options);
    const auto run = [](auto body) { un::run<un::InProcess>(ranks, body, {.bind_to_cores = true}); };
    const std::vector<std::string> head = {"on a grid", "spread",       "plain", "ratio",
                                           "paired",    "best quarter", "more",  "goal"};
    const auto header = [&](const char* what) {
        std::vector<std::string> cells = head;
        cells.insert(cells.begin(), what);
        report.header(cells);
    };
    const auto part = [&](const char* name) { return options.only.empty() || options.only == name; };
    if (part("all_reduce")) {
        header("us, all_reduce, 2 ranks");
        for (const std::size_t kibibytes : {32u, 256u, 1024u, 4096u, 16384u, 65536u, 131072u}) {
            if (options.quick && kibibytes > 1024) continue;
            const int rounds = options.quick ? 5 : kibibytes > 16384 ? 25 : 60;
            bench::Meeting meeting(ranks);
            Times straight("straight");
            Times images("images");
            run([&](World& world) {
                reduce(world, meeting, kibibytes * 256, kibibytes <= 256 ? 50 : 1, rounds, straight, images);
            });
            const std::string size = bench::in_words(kibibytes * 1024);
            report.compare(size, straight.ours, {straight.plain},
                           kibibytes >= 65536   ? 1.1
                           : kibibytes >= 16384 ? 1.5
                                                : 2.6);
            report.compare(size + ", images", images.ours, {images.plain}, 0);
        }
    }
    if (part("step")) {
        header("us, step, batch 32");
        for (const std::size_t hidden : {64u, 500u, 2000u}) {
            if (options.quick && hidden > 64) continue;
            const std::size_t count = 64 * hidden + hidden + hidden * hidden + hidden + 10 * hidden + 10;
            for (const std::size_t hosted : {1u, 4u}) {
                bench::Meeting meeting(ranks);
                Times times("Reproducible");
                const int rounds = options.quick ? 5 : hidden > 1000 ? 30 : 150;
                run([&](World& world) { step(world, meeting, hidden, hosted, rounds, times); });
                report.compare(std::to_string(count) + (hosted == 1 ? "" : ", 4 hosted"), times.ours, {times.plain},
                               hidden == 500 && hosted == 1 ? 1.05 : 0);
            }
        }
    }
    if (part("accumulate")) {
        header("us, 1 micro-batch");
        for (const std::size_t count : {4096u, 65536u, 1048576u, 16777216u}) {
            if (options.quick && count > 65536) continue;
            const int in_a_row = count <= 65536 ? 100 : 1;
            const int rounds = options.quick ? 5 : 60;
            Times times("image");
            accumulate<std::int64_t>(count, in_a_row, rounds, times);
            report.compare(std::to_string(count), times.ours, {times.plain}, 2.0);
            Times narrow("image of 4 bytes");
            accumulate<std::int32_t>(count, in_a_row, rounds, narrow);
            report.compare(std::to_string(count) + ", 4 bytes", narrow.ours, {narrow.plain}, 2.0);
        }
    }
}
