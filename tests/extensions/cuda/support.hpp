// Shared by the tests of devices over transports other than NCCL: ranks over sockets, with a
// stand-in for CUDA, or, with UNISONO_TEST_ON_GPU (on_gpu.sh), on GPUs, which ranks may share.
#pragma once

#include <unisono/cuda.hpp>

#define UNISONO_TEST_TRANSPORT unisono::Cuda<unisono::Tcp>
#include "extensions/nccl/small_kernels.hpp"

namespace test {

/// Small pieces, so that even a little data of a device has many.
struct SmallPieces {
    Variable said{"UNISONO_PIECE_BYTES", "1000"};
};

/// Numbers whose sums are rounded.
inline std::vector<float> rough(int rank, std::size_t count) {
    std::vector<float> values(count);
    un::Mt19937 generator(static_cast<std::uint32_t>(rank + 1));
    un::torch_rand(generator, std::span<float>(values));
    return values;
}

/// Collective; called before a test lets a stream stand still. On a GPU a kernel's first launch and
/// the allocation and release of memory may wait for all streams. So the kernel and a copy have
/// been used, two operations of `count` floats have left their pinned memory for later ones, and
/// no rank allocates or frees memory afterwards.
template <class World>
void before_a_stream_stands_still(World& world, std::size_t count) {
    {
        const un::detail::CudaDeviceGuard here(world.endpoint().device());
        const auto a = upload(world, std::vector<float>(count)), b = upload(world, std::vector<float>(count));
        launch(world.endpoint().stream(), a.span(), Affine{.summand = 1});
        un::Operation one = un::start_all_reduce(world, a.span());
        un::Operation two = un::start_all_reduce(world, b.span());
        two.wait();
        one.wait();
        static_cast<void>(download(a.span()));
    }
    un::barrier(world);
}

} // namespace test
