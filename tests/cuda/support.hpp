// What the tests of devices over other transports than NCCL have in common: ranks over sockets, with a stand-in for CUDA.
#pragma once

#include <unisono/cuda.hpp>

#define UNISONO_TEST_TRANSPORT unisono::Cuda<unisono::Tcp>
#include "nccl/support.hpp"

namespace test {

/// Data of a device in many pieces, also where they are few.
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
