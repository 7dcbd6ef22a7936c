// For one source of the tests that run on a GPU. Without a GPU nothing can be tested: this is
// reported once, with the status 2.
#pragma once

#include <cuda_runtime_api.h>

#include <boost/test/unit_test.hpp>

#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

namespace test {

/// A process of its own asks CUDA, because ranks that share memory are forked, and a process that
/// has used CUDA may not fork.
struct NeedsGpu {
    NeedsGpu() {
        // Streams that share a queue of the device would wait for one another.
        ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
        std::fflush(stdout);
        const pid_t asks = ::fork();
        if (asks == 0) {
            int count = 0;
            cudaError_t code = cudaGetDeviceCount(&count);
            if (code == cudaSuccess && count == 0) code = cudaErrorNoDevice;
            if (code == cudaSuccess) std::printf("GPUs: %d\n", count);
            else
                std::printf("nothing was tested: it needs a GPU, but CUDA says: %s, %s\n", cudaGetErrorName(code),
                            cudaGetErrorString(code));
            std::fflush(stdout);
            std::_Exit(code == cudaSuccess ? 0 : 2);
        }
        int status = 0;
        if (asks < 0 || ::waitpid(asks, &status, 0) != asks || status != 0) std::_Exit(2);
    }
};
BOOST_TEST_GLOBAL_FIXTURE(NeedsGpu);

} // namespace test
