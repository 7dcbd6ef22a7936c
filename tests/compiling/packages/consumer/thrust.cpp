// The purpose of component thrust: on the host, because no CUDA is requested.
#include <unisono/thrust.hpp>

#include <cstdio>
#include <thrust/device_vector.h>

int main() {
    thrust::device_vector<float> sum(10, 1.0f), more(10, 4.0f);
    unisono::ThrustArithmetic on(thrust::device);
    on.accumulate(unisono::span_of(sum), unisono::span_of(more), 0.5);
    std::printf("consumer with thrust: 1 rank, sum %.0f\n", double(sum[9]));
    return sum[9] == 3.0f ? 0 : 1;
}
