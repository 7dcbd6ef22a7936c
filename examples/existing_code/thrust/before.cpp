// Least squares by gradient descent on Thrust vectors: on a GPU with nvcc, otherwise on the system
// for which Thrust is compiled.
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/transform.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
    using namespace thrust::placeholders;
    const int samples = 480, width = 4;
    const double truth[] = {1, -2, 3, -4};
    std::vector<thrust::host_vector<double>> rows(width + 1);
    for (int i = 0; i < samples; ++i) {
        double y = 0;
        for (std::size_t j = 0; j < width; ++j) {
            rows[j].push_back(std::sin(1 + i * (static_cast<double>(j) + 1.5)));
            y += truth[j] * rows[j].back();
        }
        rows[width].push_back(y);
    }
    const std::vector<thrust::device_vector<double>> x(rows.begin(), rows.end());

    thrust::host_vector<double> w(width), gradient(width);
    for (int step = 0; step < 12; ++step) {
        thrust::device_vector<double> error = x[width];
        for (std::size_t j = 0; j < width; ++j)
            thrust::transform(x[j].begin(), x[j].end(), error.begin(), error.begin(), _2 - w[j] * _1);
        for (std::size_t j = 0; j < width; ++j)
            gradient[j] = thrust::inner_product(x[j].begin(), x[j].end(), error.begin(), 0.0) / samples;
        for (std::size_t j = 0; j < width; ++j) w[j] += 0.8 * gradient[j];
    }
    std::printf("%.9f %.9f %.9f %.9f\n", w[0], w[1], w[2], w[3]);
}
