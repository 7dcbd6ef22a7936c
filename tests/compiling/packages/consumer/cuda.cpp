// The purpose of component cuda. Without a GPU, the program says so.
#include <unisono/cuda.hpp>

#include <unisono/collective/all_reduce.hpp>

#include <cstdio>
#include <vector>

int main() {
    try {
        std::vector<float> values(100000, 3.0f);
        auto world = unisono::join<unisono::Cuda<unisono::Tcp>>();
        unisono::all_reduce(world, values);
        std::printf("consumer with cuda: %d rank, sum %.0f\n", world.size(), double(values.front()));
        return values.front() == 3.0f ? 0 : 1;
    } catch (const unisono::error& failed) {
        std::printf("consumer with cuda: %s\n", failed.what());
        return failed.code() == unisono::ErrorCode::refused ? 0 : 1;
    }
}
