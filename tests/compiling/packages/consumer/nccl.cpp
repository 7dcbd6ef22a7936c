// The purpose of component nccl. Without a GPU, the program says so.
#include <unisono/nccl.hpp>

#include <cstdio>
#include <vector>

int main() {
    try {
        std::vector<float> values(100000, 3.0f);
        auto world = unisono::join<unisono::Nccl>();
        unisono::all_reduce(world, values);
        std::printf("consumer with nccl: %d rank, sum %.0f\n", world.size(), double(values.front()));
        return values.front() == 3.0f ? 0 : 1;
    } catch (const unisono::error& failed) {
        std::printf("consumer with nccl: %s\n", failed.what());
        return failed.code() == unisono::ErrorCode::refused ? 0 : 1;
    }
}
