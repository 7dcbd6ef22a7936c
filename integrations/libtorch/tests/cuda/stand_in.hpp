// LibTorch on a device, over the stand-in for CUDA (tests/extensions/nccl/stand_in): the tensors
// are those of the CPU, and their memory counts as the device's. LibTorch computes on them at once.
// So its work begins when the current stream has done all before it, and `Late` gives a gradient to
// the stream's order: it arrives there later than on the host. Compile with
// -DUNISONO_LIBTORCH_STREAMS='"cuda/stand_in.hpp"'.
//
// The environment plants a fault. With UNISONO_TEST_FAULT=early_bucket, hooks believe that the
// current stream is the trainer's, so buckets start before their gradients. With early_forward, all
// other functions do, so forward passes begin before updates end.
#pragma once

#include "extensions/nccl/stand_in/arithmetic.hpp"
#include "extensions/nccl/stand_in/kernels.hpp"

#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace test {

/// LibTorch's current stream of this thread, and the first one that it had.
inline thread_local cudaStream_t torch_stream = nullptr;
inline thread_local cudaStream_t first_stream = nullptr;
inline thread_local bool in_backward = false;

inline bool planted(const char* fault) {
    const char* const found = std::getenv("UNISONO_TEST_FAULT");
    return found != nullptr && std::string(found) == fault;
}

/// A stream for LibTorch.
class TorchStream {
public:
    void make_current() const {
        torch_stream = stream_.get();
        if (first_stream == nullptr) first_stream = torch_stream;
    }
    ~TorchStream() {
        static_cast<void>(cudaStreamSynchronize(stream_.get()));
        if (torch_stream == stream_.get()) torch_stream = nullptr;
        if (first_stream == stream_.get()) first_stream = nullptr;
    }

private:
    unisono::detail::CudaStream stream_ = unisono::detail::CudaStream::make();
};

/// As on a device, gradients of these tensors arrive in the order of the stream on which autograd
/// computes them, and the host runs ahead. Made before the model, whose hooks come later.
class Late {
public:
    explicit Late(const std::vector<torch::Tensor>& tensors) {
        for (const torch::Tensor& one : tensors) {
            if (!one.requires_grad()) continue;
            const auto before = std::make_shared<std::vector<char>>();
            const auto memory = [one] {
                const torch::Tensor& gradient = one.grad();
                return std::pair(static_cast<char*>(gradient.data_ptr()), gradient.nbytes());
            };
            const auto node = torch::autograd::impl::grad_accumulator(one);
            one.register_hook([=](const torch::Tensor& gradient) {
                const auto [at, bytes] = memory();
                before->assign(at, at + bytes);
                return gradient;
            });
            node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
                [=](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
                    const auto [at, bytes] = memory();
                    const std::vector<char> after(at, at + bytes);
                    std::memcpy(at, before->data(), bytes);
                    stand_in::launch(torch_stream, [at = at, after] {
                        std::this_thread::sleep_for(std::chrono::microseconds(500));
                        std::memcpy(at, after.data(), after.size());
                    });
                    return outputs;
                }));
            nodes_.push_back(node);
        }
    }

private:
    // A tensor does not keep its node.
    std::vector<decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::autograd::Variable&>()))>
        nodes_;
};

/// Delays what is enqueued on the stream from now on.
inline void delay(cudaStream_t stream) {
    stand_in::launch(stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
}

} // namespace test

namespace unisono::libtorch {

struct CudaStreams {
    static torch::Device device(int) { return torch::kCPU; }
    static void use(int ordinal) { detail::check_cuda(cudaSetDevice(ordinal), "cudaSetDevice"); }
    static cudaStream_t current(int) {
        const bool wrong = test::planted(test::in_backward ? "early_bucket" : "early_forward");
        return wrong ? test::first_stream : test::torch_stream;
    }
    static void begin(cudaStream_t) {
        detail::check_cuda(cudaStreamSynchronize(test::torch_stream), "cudaStreamSynchronize");
    }
    /// On another thread, as for a device.
    static void backward(const torch::Tensor& loss) {
        std::exception_ptr failed;
        std::thread([&, mine = test::torch_stream, first = test::first_stream] {
            test::torch_stream = mine;
            test::first_stream = first;
            test::in_backward = true;
            try {
                loss.backward();
            } catch (...) {
                failed = std::current_exception();
            }
        }).join();
        if (failed) std::rethrow_exception(failed);
    }
};

} // namespace unisono::libtorch
