// A network with one hidden layer learns y = sin(3 a + b), written by hand in Eigen.
#include <Eigen/Dense>

#include <cstdio>

using Eigen::Index, Eigen::MatrixXd, Eigen::VectorXd;

int main() {
    const MatrixXd x = MatrixXd::Random(960, 2);
    const VectorXd y = (3 * x.col(0) + x.col(1)).array().sin();
    MatrixXd w1 = MatrixXd::Random(2, 16);
    VectorXd w2 = VectorXd::Random(16);

    const Index batch = 48;
    for (int epoch = 0; epoch < 60; ++epoch) {
        for (Index at = 0; at < x.rows(); at += batch) {
            const Index first = at, last = at + batch;
            const MatrixXd in = x.middleRows(first, last - first);
            const MatrixXd hidden = (in * w1).array().tanh();
            const VectorXd error = hidden * w2 - y.segment(first, last - first);
            const MatrixXd back = (error * w2.transpose()).array() * (1 - hidden.array().square());
            MatrixXd g1 = in.transpose() * back;
            VectorXd g2 = hidden.transpose() * error;
            w1 -= 0.2 / batch * g1;
            w2 -= 0.2 / batch * g2;
        }
    }
    const VectorXd found = (x * w1).array().tanh().matrix() * w2;
    std::printf("mean squared error %.9f, weights %.9f and %.9f\n", (found - y).squaredNorm() / double(x.rows()),
                w1.norm(), w2.norm());
}
