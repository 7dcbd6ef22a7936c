// The calls that the ranks of a world make, for any transport.
#pragma once

#include <unisono/collective/collective.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace un = unisono;

inline int wrong = 0;

inline void expect(bool holds, const char* what) {
    if (holds) return;
    ++wrong;
    std::printf("wrong: %s\n", what);
}

template <class Data>
bool all_are(const Data& data, float value) {
    for (const float one : data) {
        if (one != value) return false;
    }
    return true;
}

/// Makes every collective, small and large, in memory of the world and elsewhere, with several
/// schedules. Counts errors.
template <class Group>
void use(Group& world) {
    const int ranks = world.size();
    const auto count_of_ranks = static_cast<std::size_t>(ranks);
    const float mine = static_cast<float>(world.rank() + 1);
    const float sum = static_cast<float>(ranks * (ranks + 1) / 2);
    for (const std::size_t count : {1u, 500u, 100'000u}) {
        std::vector<float> own(count, mine);
        un::Memory<float> shared = world.template allocate<float>(count);
        std::fill(shared.begin(), shared.end(), mine);
        un::all_reduce(world, own);
        expect(all_are(own, sum), "all_reduce");
        un::all_reduce(world, shared, un::Max{}, un::RingSchedule{.chunk_bytes = 65536});
        expect(all_are(shared, static_cast<float>(ranks)), "all_reduce by a ring");
        std::vector<float> all(count * count_of_ranks), part(count), block(count, mine);
        un::all_gather(world, block, all);
        expect(all.back() == static_cast<float>(ranks), "all_gather");
        std::fill(all.begin(), all.end(), mine);
        un::reduce_scatter(world, all, part);
        expect(all_are(part, sum), "reduce_scatter");
        std::vector<float> exchanged(all.size());
        un::all_to_all(world, all, exchanged);
        expect(exchanged.front() == 1 && exchanged.back() == static_cast<float>(ranks), "all_to_all");
        std::fill(part.begin(), part.end(), world.rank() == ranks - 1 ? 7.0f : 0.0f);
        un::broadcast(world, part, ranks - 1);
        expect(all_are(part, 7), "broadcast");
        std::fill(part.begin(), part.end(), mine);
        std::vector<float> result(count);
        un::reduce(world, part, result, 0);
        if (world.rank() == 0) expect(all_are(result, sum), "reduce");
        un::gather(world, block, all, 0);
        un::scatter(world, all, part, 0);
        expect(all_are(part, mine), "gather and scatter");
        if (world.rank() == 0 && ranks > 1) un::send(world, block, 1, 3);
        if (world.rank() == 1) un::receive(world, part, 0, 3);
        if (world.rank() == 1) expect(all_are(part, 1), "send and receive");
    }
    un::barrier(world);
    auto half = world.split(world.rank() % 2, world.rank());
    std::vector<float> one(10, 1.0f);
    un::all_reduce(half, one);
    expect(all_are(one, static_cast<float>(half.size())), "all_reduce in a group of its own");
}
