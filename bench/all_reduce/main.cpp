// all_reduce of float over memory on two ranks, compared with the least that any all_reduce must
// do. From 16 MiB on, this is the time in which each rank copies as many bytes, both ranks at once,
// by the faster of memcpy and a copy that bypasses the caches. At 8 bytes, it is a barrier. In
// place, in buffers touched before.

#include "support/meeting.hpp"
#include "support/memory.hpp"
#include "support/report.hpp"

#include <unisono/collective/collective.hpp>
#include <unisono/group/run.hpp>
#include <unisono/transport/in_process.hpp>

#include <memory>
#include <vector>

namespace un = unisono;
using World = un::Group<un::InProcess>;

namespace {

constexpr int ranks = 2;

struct Shared {
    bench::Meeting meeting{ranks};
    bench::CentralBarrier central;
    bench::PairBarrier pair;
};

struct Times {
    bench::Series ours{"unisono", {}};
    bench::Series copy{"memcpy", {}};
    bench::Series streaming{"streaming copy", {}};
    bench::Series central{"bare barrier, one line", {}};
    bench::Series pair{"bare barrier, two lines", {}};
};

/// Many calls in a row, with a new value each time, because the clock cannot resolve a single call.
void small(World& world, Shared& shared, std::size_t count, int rounds, Times& times) {
    constexpr std::uint32_t in_a_row = 2000;
    const int me = world.rank();
    bench::Floats data(count, 1 + me);
    const auto values = data.first(count);
    std::uint32_t wrong = 0;
    for (int round = 0; round < rounds; ++round) {
        const double ours = shared.meeting.time(me, [&] {
            for (std::uint32_t i = 0; i < in_a_row; ++i) {
                values[0] = static_cast<float>(i + static_cast<std::uint32_t>(me));
                un::all_reduce(world, values);
                wrong += values[0] != static_cast<float>(2 * i + 1);
            }
        });
        const double central = shared.meeting.time(me, [&] {
            for (std::uint32_t i = 0; i < in_a_row; ++i) shared.central.wait();
        });
        const double pair = shared.meeting.time(me, [&] {
            for (std::uint32_t i = 0; i < in_a_row; ++i) shared.pair.wait(me);
        });
        if (me != 0) continue;
        times.ours.add(ours / in_a_row);
        times.central.add(central / in_a_row);
        times.pair.add(pair / in_a_row);
    }
    bench::rewrite(values, me, 7);
    un::all_reduce(world, values);
    bench::check_sum(values, ranks, 7, "all_reduce");
    if (wrong != 0) {
        std::fprintf(stderr, "all_reduce: %u wrong sums\n", wrong);
        std::exit(1);
    }
}

void large(World& world, Shared& shared, std::size_t count, int rounds, Times& times) {
    const int me = world.rank();
    bench::Floats data(count, 1 + me);
    bench::Floats copy(count, 3 + me);
    const auto values = data.first(count);
    for (int round = -1; round < rounds; ++round) { // the first one is not counted
        const auto repetition = static_cast<std::uint32_t>(round + 1);
        bench::rewrite(values, me, repetition);
        const double ours = shared.meeting.time(me, [&] { un::all_reduce(world, values); });
        bench::check_sum(values, ranks, repetition, "all_reduce");
        bench::rewrite(values, me, repetition);
        const double plain =
            shared.meeting.time(me, [&] { std::memcpy(copy.data(), data.data(), count * sizeof(float)); });
        if (copy.data()[count / 2] != values[count / 2]) std::exit(1);
        bench::rewrite(values, me, repetition + 1);
        const double streaming =
            shared.meeting.time(me, [&] { bench::streaming_copy(copy.data(), data.data(), count * sizeof(float)); });
        if (copy.data()[count / 2] != values[count / 2]) std::exit(1);
        if (me != 0 || round < 0) continue;
        times.ours.add(ours);
        times.copy.add(plain);
        times.streaming.add(streaming);
    }
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("all_reduce", options);
    const auto run = [](auto body) { un::run<un::InProcess>(ranks, body, {.bind_to_cores = true}); };
    if (options.only.empty() || options.only == "small") {
        report.header({"us, 2 ranks", "unisono", "spread", "barrier 1 line", "2 lines", "ratio", "paired",
                       "best quarter", "more", "goal"});
        for (const std::size_t bytes : {8u, 64u, 512u, 2048u, 32768u}) {
            if (options.quick && bytes > 512) continue;
            Shared shared;
            Times times;
            run([&](World& world) { small(world, shared, bytes / sizeof(float), options.quick ? 10 : 60, times); });
            report.compare(bench::in_words(bytes), times.ours, {times.central, times.pair}, bytes == 8 ? 2.0 : 0.0);
        }
    }
    if (options.only.empty() || options.only == "large") {
        report.header({"us, 2 ranks", "unisono", "spread", "memcpy", "streaming", "ratio", "paired", "best quarter",
                       "more", "goal"});
        for (const std::size_t mebibytes : {1u, 4u, 16u, 32u, 64u, 128u}) {
            if (options.quick && mebibytes > 16) continue;
            Shared shared;
            Times times;
            const int rounds = options.quick ? 5 : mebibytes <= 16 ? 60 : mebibytes <= 32 ? 40 : 20;
            run([&](World& world) { large(world, shared, mebibytes * 1048576 / sizeof(float), rounds, times); });
            report.compare(bench::in_words(mebibytes * 1048576), times.ours, {times.copy, times.streaming},
                           mebibytes < 16    ? 0.0
                           : mebibytes <= 32 ? 0.85
                                             : 1.1);
        }
    }
}
