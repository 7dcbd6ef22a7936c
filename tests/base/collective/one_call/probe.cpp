// Compiled at each level of optimisation: a program whose only call passes the executor a state on
// the caller's stack. Exit status 1 if a sum is wrong.
#include <unisono/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <atomic>
#include <chrono>
#include <vector>

namespace un = unisono;

int main() {
    std::atomic<bool> right = true;
    for (int i = 0; i < 20; ++i) {
        un::run<un::InProcess>(2, [&](auto& world) {
            world.set_timeout(std::chrono::seconds(30));
            std::vector<float> v(3, 1.0f);
            un::reproducible_sum(world, v);
            if (v != std::vector<float>(3, 2.0f)) right = false;
        });
    }
    return right ? 0 : 1;
}
