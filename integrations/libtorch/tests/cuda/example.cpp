// A program of examples/existing_code/libtorch_cuda over the stand-in for CUDA, whose ranks over
// NCCL are threads alone. So ranks that are processes share memory in NCCL's place. EXAMPLE is the
// program.
#include "cuda/device.hpp"

namespace {

const struct Ready {
    Ready() { stream.make_current(); }
    test::TorchStream stream;
} before_main;

} // namespace

#define Nccl Cuda<unisono::SharedMemory> // NOLINT: the program names it
#define kCUDA kCPU                       // NOLINT
#include EXAMPLE
