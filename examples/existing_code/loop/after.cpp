// Least squares by mini-batches: a loop over std::vector, and nothing else.
#include <unisono/join.hpp>
#include <unisono/unisono.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
    auto world = unisono::join<unisono::SharedMemory>();
    const int samples = 480, batch = 24, width = 4;
    std::vector<double> x, y;
    for (int i = 0; i < samples; ++i) {
        for (int j = 0; j < width; ++j) x.push_back(std::sin(1 + i * (j + 1.5)));
        const double* row = &x[x.size() - width];
        y.push_back(row[0] - 2 * row[1] + 3 * row[2] - 4 * row[3]);
    }

    std::vector<double> w(width);
    for (int epoch = 0; epoch < 5; ++epoch) {
        for (int at = 0; at < samples; at += batch) {
            std::vector<double> gradient(width);
            const int first = at + batch * world.rank() / world.size();
            const int last = at + batch * (world.rank() + 1) / world.size();
            for (int i = first; i < last; ++i) {
                const double* row = &x[static_cast<std::size_t>(i * width)];
                double error = -y[static_cast<std::size_t>(i)];
                for (std::size_t j = 0; j < w.size(); ++j) error += w[j] * row[j];
                for (std::size_t j = 0; j < w.size(); ++j) gradient[j] += error * row[j] / batch;
            }
            unisono::all_reduce(world, gradient);
            for (std::size_t j = 0; j < w.size(); ++j) w[j] -= 0.4 * gradient[j];
        }
    }
    if (world.rank() != 0) return 0;
    std::printf("%.9f %.9f %.9f %.9f\n", w[0], w[1], w[2], w[3]);
}
