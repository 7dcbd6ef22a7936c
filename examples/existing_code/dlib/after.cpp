// Logistic regression by dlib's L-BFGS, which asks for the objective and its gradient over all
// samples.
#include <dlib/optimization.h>
#include <dlib/rand.h>

#include <unisono/join.hpp>
#include <unisono/unisono.hpp>

#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

namespace un = unisono;
using Vector = dlib::matrix<double, 0, 1>;

struct Sample {
    Vector x;
    double label; // -1 or 1
};

std::vector<Sample> samples() {
    dlib::rand random(0);
    std::vector<Sample> made;
    for (int i = 0; i < 1000; ++i) {
        Vector x(4);
        for (long j = 0; j < 4; ++j) x(j) = random.get_double_in_range(-1, 1);
        made.push_back({x, x(0) - 2 * x(1) + 0.5 * random.get_random_gaussian() > 0 ? 1.0 : -1.0});
    }
    return made;
}

int main() {
    const std::vector<Sample> data = samples();
    auto world = un::join<un::SharedMemory>();
    const auto rank = static_cast<std::size_t>(world.rank()), ranks = static_cast<std::size_t>(world.size());
    const std::size_t first = data.size() * rank / ranks, last = data.size() * (rank + 1) / ranks;

    const auto objective = [&](const Vector& w) {
        double loss = 0;
        for (std::size_t i = first; i < last; ++i)
            loss += std::log1p(std::exp(-data[i].label * dlib::dot(data[i].x, w)));
        un::all_reduce(world, std::span(&loss, 1));
        return loss + 0.5 * dlib::dot(w, w);
    };
    const auto gradient = [&](const Vector& w) {
        Vector sum = dlib::zeros_matrix<double>(4, 1);
        for (std::size_t i = first; i < last; ++i)
            sum -= data[i].label / (1 + std::exp(data[i].label * dlib::dot(data[i].x, w))) * data[i].x;
        un::all_reduce(world, std::span(&sum(0), 4));
        return Vector(sum + w);
    };

    Vector w = dlib::zeros_matrix<double>(4, 1);
    const double loss = dlib::find_min(dlib::lbfgs_search_strategy(10), dlib::objective_delta_stop_strategy(1e-9),
                                       objective, gradient, w, 0.0);
    if (world.rank() != 0) return 0;
    std::printf("loss %.6f at (%.6f, %.6f, %.6f, %.6f)\n", loss, w(0), w(1), w(2), w(3));
}
