// The purpose of component compiled: the same program takes the library's templates.
#include <unisono/unisono.hpp>

#include <cstdio>
#include <vector>

#ifndef UNISONO_COMPILED
#error "found: the headers alone; expected: the compiled mode"
#endif

int main() {
    int sum = 0;
    unisono::run<unisono::InProcess>(1, [&](auto& world) {
        std::vector<float> values(10, 3.0f);
        unisono::all_reduce(world, values);
        sum = static_cast<int>(values.front());
        std::printf("consumer with compiled: %d rank, sum %d\n", world.size(), sum);
    });
    return sum == 3 ? 0 : 1;
}
