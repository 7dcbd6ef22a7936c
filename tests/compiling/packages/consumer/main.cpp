// A third-party program: two ranks add their numbers. It prints the sum, and fails if the sum is
// wrong.
#include <unisono/unisono.hpp>

#include <cstdio>
#include <vector>

int main() {
    bool right = true;
    unisono::run<unisono::InProcess>(2, [&](auto& world) {
        std::vector<float> values(1000, static_cast<float>(world.rank() + 1));
        unisono::all_reduce(world, values);
        if (world.rank() != 0) return;
        for (const float value : values) right = right && value == 3.0f;
        std::printf("consumer of unisono %d.%d.%d: 1 + 2 = %.0f\n", UNISONO_VERSION_MAJOR, UNISONO_VERSION_MINOR,
                    UNISONO_VERSION_PATCH, double(values.front()));
    });
    return right ? 0 : 1;
}
