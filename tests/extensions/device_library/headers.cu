// A source with kernels of the headers: nvcc compiles it without UNISONO_DEVICES, and check.py
// looks for its mark.
#include <unisono/extensions/thrust/stream.hpp>

namespace un = unisono;

void halve(std::span<float> x, cudaStream_t stream) { un::StreamArithmetic<cudaStream_t>(stream).scale(x, 0.5); }
