// A program that is compiled with -fno-exceptions -fno-rtti and trains on two ranks. Errors are
// numbers.
#include "training.hpp"

#include <cstdio>

int main() {
    std::vector<float> rows; // y = 2 x0 - x1
    for (int i = 0; i < 16; ++i) {
        const float a = static_cast<float>(i % 4) / 4, b = static_cast<float>(i / 4) / 4;
        rows.insert(rows.end(), {a, b, 2 * a - b});
    }
    const Trained good = train(rows, 2, 0.5);
    if (good.status != 0) return std::fprintf(stderr, "%s\n", good.message.c_str()), 1;
    std::printf("weights %.3f %.3f\n", static_cast<double>(good.weights[0]), static_cast<double>(good.weights[1]));
    const Trained bad = train(rows, 2, -1);
    std::printf("status %d: %s\n", bad.status, bad.message.c_str());
    return bad.status == 0;
}
