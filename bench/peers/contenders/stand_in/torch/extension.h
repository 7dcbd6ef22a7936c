#pragma once

// The names of PyTorch that DeepSpeed's shm.cpp uses, so that it compiles without PyTorch. They
// take no part in its all_reduce of floats.

#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace c10 {
enum class ScalarType { Float, BFloat16, Half };
}
namespace at {
struct Narrow { // neither of these types is summed here
    std::uint16_t bits;
    operator float() const { return 0; }
    Narrow& operator=(float) { return *this; }
};
using BFloat16 = Narrow;
using Half = Narrow;
} // namespace at
namespace torch {
/// Floats that another object owns.
class Tensor {
public:
    explicit Tensor(float* values) : values_(values) {}
    void* data_ptr() const { return values_; }
    c10::ScalarType scalar_type() const { return c10::ScalarType::Float; }

private:
    float* values_;
};
} // namespace torch
