// For one source of the tests that run on a GPU. Without a GPU nothing can be tested: this is
// reported once, with the status 2.
#pragma once

#include <cuda_runtime_api.h>

#include <boost/test/unit_test.hpp>

#include <cstdio>
#include <cstdlib>

namespace test {

struct NeedsGpu {
    NeedsGpu() {
        // Streams that share a queue of the device would wait for one another.
        ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
        int count = 0;
        cudaError_t code = cudaGetDeviceCount(&count);
        if (code == cudaSuccess && count == 0) code = cudaErrorNoDevice;
        // Begins the use of the device, which takes seconds: more than some tests' deadlines.
        for (int device = count; code == cudaSuccess && device-- != 0;) {
            code = cudaSetDevice(device);
            if (code == cudaSuccess) code = cudaFree(nullptr);
        }
        if (code == cudaSuccess) {
            std::printf("GPUs: %d\n", count);
            return;
        }
        std::printf("nothing was tested: it needs a GPU, but CUDA says: %s, %s\n", cudaGetErrorName(code),
                    cudaGetErrorString(code));
        std::fflush(stdout);
        std::_Exit(2);
    }
};
BOOST_TEST_GLOBAL_FIXTURE(NeedsGpu);

} // namespace test
