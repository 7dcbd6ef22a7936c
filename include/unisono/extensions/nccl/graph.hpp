#pragma once

/// \file
/// Captures of a stream, and the CUDA graphs made from them.

#include "unisono/extensions/nccl/api.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The captured work of a stream, ready to be launched repeatedly.
class CudaGraph {
public:
    CudaGraph(cudaGraphExec_t made, std::size_t programs) : made_(made), programs_(programs) {}
    CudaGraph(const CudaGraph&) = delete;
    CudaGraph& operator=(const CudaGraph&) = delete;
    ~CudaGraph() { drop(); }

    [[nodiscard]] cudaGraphExec_t get() const { return made_; }
    /// The number of the library's operations in it.
    [[nodiscard]] std::size_t programs() const { return programs_; }
    void drop() {
        if (made_ != nullptr) static_cast<void>(cudaGraphExecDestroy(std::exchange(made_, nullptr)));
    }

private:
    cudaGraphExec_t made_;
    std::size_t programs_;
};

/// The graphs of one device. A communicator of NCCL waits, even in an abort, for the graphs that
/// contain its calls. So code that ends communicators calls `drop_all` first, even if users still
/// hold graphs.
class CudaGraphs {
public:
    [[nodiscard]] bool capturing() const { return stream_ != nullptr; }
    /// True if a user holds a graph, and so communicators.
    [[nodiscard]] bool any() const {
        return capturing() || std::any_of(all_.begin(), all_.end(), [](const auto& one) { return !one.expired(); });
    }
    /// Counts an enqueued program.
    void count() { ++programs_; }

    /// Begins a capture. Errors: refused, with CUDA's text.
    void begin(cudaStream_t stream) {
        // Other threads may have captures of their own, and NCCL's threads make any calls.
        check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        stream_ = stream;
        programs_ = 0;
    }
    /// Ends the capture. Errors: refused, with CUDA's text: a call cannot be captured.
    std::shared_ptr<CudaGraph> end() {
        cudaGraph_t graph = nullptr;
        check_cuda(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph), "cudaStreamEndCapture");
        cudaGraphExec_t made = nullptr;
        const cudaError_t answer = cudaGraphInstantiateWithFlags(&made, graph, 0);
        static_cast<void>(cudaGraphDestroy(graph));
        check_cuda(answer, "cudaGraphInstantiateWithFlags");
        auto kept = std::make_shared<CudaGraph>(made, programs_);
        std::erase_if(all_, [](const auto& one) { return one.expired(); });
        all_.push_back(kept);
        return kept;
    }
    /// Discards the captured work.
    void stop() {
        if (!capturing()) return;
        cudaGraph_t graph = nullptr;
        if (cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph) != cudaSuccess)
            static_cast<void>(cudaGetLastError());
        if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    }
    void drop_all() {
        stop();
        for (const std::weak_ptr<CudaGraph>& one : all_)
            if (const std::shared_ptr<CudaGraph> there = one.lock()) there->drop();
        all_.clear();
    }

private:
    cudaStream_t stream_ = nullptr; ///< the stream that is being captured
    std::size_t programs_ = 0;
    std::vector<std::weak_ptr<CudaGraph>> all_;
};

} // namespace detail
UNISONO_NAMESPACE_END
