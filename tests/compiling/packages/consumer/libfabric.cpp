// The purpose of component libfabric.
#include <unisono/libfabric.hpp>

#include <unisono/collective/all_reduce.hpp>

#include <cstdio>
#include <vector>

int main() {
    std::vector<float> values(10, 3.0f);
    auto world = unisono::join<unisono::Libfabric>();
    unisono::all_reduce(world, values);
    std::printf("consumer with libfabric: %d rank, sum %.0f\n", world.size(), double(values.front()));
    return values.front() == 3.0f ? 0 : 1;
}
