// A network with one hidden layer learns y = sin(3 a + b), written by hand in Eigen.
#include <Eigen/Dense>

#include <unisono/join.hpp>
#include <unisono/unisono.hpp>

#include <cstdio>
#include <span>

namespace un = unisono;
using Eigen::Index, Eigen::MatrixXd, Eigen::VectorXd;

int main() {
    auto world = un::join<un::SharedMemory>();
    const auto add_up = [&](auto& g) {
        un::all_reduce(world, std::span(g.data(), static_cast<std::size_t>(g.size())));
    };
    const MatrixXd x = MatrixXd::Random(960, 2);
    const VectorXd y = (3 * x.col(0) + x.col(1)).array().sin();
    MatrixXd w1 = MatrixXd::Random(2, 16);
    VectorXd w2 = VectorXd::Random(16);

    const Index batch = 48;
    for (int epoch = 0; epoch < 60; ++epoch) {
        for (Index at = 0; at < x.rows(); at += batch) {
            const Index first = at + batch * world.rank() / world.size();
            const Index last = at + batch * (world.rank() + 1) / world.size();
            const MatrixXd in = x.middleRows(first, last - first);
            const MatrixXd hidden = (in * w1).array().tanh();
            const VectorXd error = hidden * w2 - y.segment(first, last - first);
            const MatrixXd back = (error * w2.transpose()).array() * (1 - hidden.array().square());
            MatrixXd g1 = in.transpose() * back;
            VectorXd g2 = hidden.transpose() * error;
            add_up(g1);
            add_up(g2);
            w1 -= 0.2 / batch * g1;
            w2 -= 0.2 / batch * g2;
        }
    }
    if (world.rank() != 0) return 0;
    const VectorXd found = (x * w1).array().tanh().matrix() * w2;
    std::printf("mean squared error %.9f, weights %.9f and %.9f\n", (found - y).squaredNorm() / double(x.rows()),
                w1.norm(), w2.norm());
}
