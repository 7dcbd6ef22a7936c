// Shared by the tests of devices over transports other than NCCL: ranks over sockets, with a
// stand-in for CUDA.
#pragma once

#include <unisono/cuda.hpp>

#define UNISONO_TEST_TRANSPORT unisono::Cuda<unisono::Tcp>
#include "nccl/support.hpp"

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

} // namespace test
