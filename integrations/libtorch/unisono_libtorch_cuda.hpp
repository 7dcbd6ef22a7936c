#pragma once

/// \file A LibTorch module on a CUDA device as a model of un::Trainer. The program links to
/// unisono::devices and LibTorch; nvcc is not needed. See README.md.
///
///     auto world = un::join<un::Nccl>(); // or Cuda<SharedMemory>, Cuda<Tcp>, ...
///     const torch::Device device = un::libtorch::use_device(world);
///     net->to(device);
///     un::libtorch::CudaModel model(world, net, [&](const un::libtorch::Batch& batch) {
///         return torch::mse_loss(net->forward(batch.x), batch.y);
///     });
///     un::Trainer trainer{world, model, un::AdamW{.learning_rate = 0.01}};
///     const un::libtorch::Rows data{x.to(device), y.to(device)};
///     trainer.fit(data, {.epochs = 10, .batch_size = 24});

#include <unisono/cuda.hpp>
#include <unisono_libtorch.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#if defined(UNISONO_LIBTORCH_STREAMS)
#include UNISONO_LIBTORCH_STREAMS
#else
#include <unisono_libtorch_streams.hpp>
#endif

namespace unisono::libtorch {

/// Tensors on a device. LibTorch's work on them runs on its current stream, which may change
/// between calls. The trainer's runs on the stream that was current when the model was made.
/// Whenever these are two, an event orders them, in both directions, and the host waits for
/// neither.
///
/// No tensor needs `record_stream`: LibTorch frees and reuses memory in the order of the stream on
/// which it was allocated. The trainer's stream touches parameters, gradients and buffers alone.
/// These live as long as the module, and a trainer's destructor waits for that stream.
class OnCuda {
public:
    template <class T>
    using Span = DeviceSpan<T>;

    explicit OnCuda(int ordinal) : state_(std::make_shared<State>(ordinal)) {}

    [[nodiscard]] torch::Device device() const { return CudaStreams::device(state_->ordinal); }
    [[nodiscard]] cudaStream_t stream() const { return state_->stream; }

    /// LibTorch's later work on its current stream follows the trainer's.
    void follow_trainer() const {
        const cudaStream_t now = current();
        order(state_->stream, now);
        CudaStreams::begin(now);
    }
    /// The trainer's later work follows LibTorch's on its current stream.
    void follow_torch() const { order(current(), state_->stream); }

    void begin_pass() const {
        check_current_device(state_->ordinal);
        follow_trainer();
    }
    void end_pass() const { follow_torch(); }
    /// Called on the thread that runs the backward pass, whose current stream is the one of the
    /// gradient.
    void gradient_done() const { follow_torch(); }

    /// Starts to copy the loss to the host. It is ready before the backward pass.
    void note_loss(const torch::Tensor& loss) const {
        State& all = *state_;
        const cudaStream_t now = current();
        all.loss = loss.detach().to(torch::kFloat64);
        const detail::CudaDeviceGuard here(all.ordinal, now);
        detail::check_cuda(
            cudaMemcpyAsync(all.pinned.get(), all.loss.data_ptr(), sizeof(double), cudaMemcpyDeviceToHost, now),
            "cudaMemcpyAsync");
        detail::check_cuda(cudaEventRecord(all.loss_copied.get(), now), "cudaEventRecord");
    }
    /// The host waits for the forward pass alone. Meanwhile buckets in flight go on.
    [[nodiscard]] double read_loss(Pass& pass) const {
        cudaError_t answer = cudaEventQuery(state_->loss_copied.get());
        for (; detail::goes_on(answer); answer = cudaEventQuery(state_->loss_copied.get())) {
            pass.progress();
            std::this_thread::yield();
        }
        detail::check_cuda(answer, "cudaEventQuery");
        return *reinterpret_cast<const double*>(state_->pinned.get());
    }
    static void backward(const torch::Tensor& loss) { CudaStreams::backward(loss); }

private:
    struct State {
        explicit State(int number)
            : ordinal((check_current_device(number), number)), stream(CudaStreams::current(number)),
              pinned(detail::allocate_pinned(number, nullptr, sizeof(double))) {}

        int ordinal;
        cudaStream_t stream;       ///< the trainer's
        detail::CudaEvent ordered; ///< between the two streams
        detail::CudaEvent loss_copied;
        std::shared_ptr<std::byte> pinned; ///< the loss, as a double
        torch::Tensor loss;                ///< from which it is copied
    };

    /// The trainer launches kernels on this device.
    static void check_current_device(int ordinal) {
        int found = -1;
        detail::check_cuda(cudaGetDevice(&found), "cudaGetDevice");
        if (found != ordinal)
            refuse_input({"libtorch::CudaModel: the thread's current device is ", found, ", expected ", ordinal,
                          ", this rank's device (un::libtorch::use_device(world) makes it the current one)"});
    }
    [[nodiscard]] cudaStream_t current() const { return CudaStreams::current(state_->ordinal); }
    void order(cudaStream_t first, cudaStream_t later) const {
        if (first == later) return;
        const detail::CudaDeviceGuard here(state_->ordinal);
        detail::check_cuda(cudaEventRecord(state_->ordered.get(), first), "cudaEventRecord");
        detail::check_cuda(cudaStreamWaitEvent(later, state_->ordered.get(), 0), "cudaStreamWaitEvent");
    }

    std::shared_ptr<State> state_; ///< hooks refer to it
};

/// Makes the rank's device the calling thread's current one, for LibTorch and for the trainer.
/// Every thread that calls the trainer needs that. Returns the device.
template <streaming_transport Transport>
torch::Device use_device(Group<Transport>& world) {
    const int ordinal = world.endpoint().device();
    CudaStreams::use(ordinal);
    return CudaStreams::device(ordinal);
}

/// A module on the rank's device and its loss: the counterpart of Model. Parameters, gradients and
/// buffers stay where LibTorch allocated them. The forward pass runs on LibTorch's current stream,
/// and the backward pass where autograd runs it. As soon as autograd has enqueued a gradient, a
/// hook tells the trainer, so that buckets are exchanged during the backward pass. Per call, the
/// host waits once, until the forward pass is done, after it has enqueued the backward pass.
///
/// `compute` as for Model. If it computes on several streams, the caller's current stream waits for
/// all of them before `compute` returns. All tensors of the module are on the rank's device. The
/// constructor and the trainer follow the work on them that the current stream follows.
///
/// Errors: bad_input, as for Model: a parameter, buffer or loss that is on another device than the
/// rank's, of another type, sparse or with gaps; another device is the thread's current one;
/// refused: CUDA's errors.
template <class Compute, floating_element T = float>
class CudaModel : public ModelOn<OnCuda, Compute, T> {
    using Base = ModelOn<OnCuda, Compute, T>;

public:
    template <streaming_transport Transport, class Module>
    CudaModel(Group<Transport>& world, Module& module, Compute compute)
        : Base(module, std::move(compute), OnCuda(world.endpoint().device())) {}

    /// The trainer's stream.
    [[nodiscard]] cudaStream_t stream() const { return this->place_.stream(); }
    /// LibTorch's later work on its current stream follows the trainer's. A call of a trainer does
    /// this before it returns, and each forward pass before it begins. So only a function that
    /// `evaluate` calls needs it, if it runs on another stream than the model's.
    void follow_trainer() const { this->place_.follow_trainer(); }

    // Trainers call these where each of their calls begins and ends: LibTorch's work on parameters
    // and buffers comes before the call, or after it.

    void age_copy() const noexcept {
        try {
            this->place_.follow_torch();
        } catch (const error&) { // the device has failed, and the call reports that
        }
    }
    void write_copy() const { this->place_.follow_trainer(); }
};

template <class World, class Module, class Compute>
CudaModel(World&, Module&, Compute) -> CudaModel<Compute>;

/// A CudaModel with other element types: cuda_model_of<un::bfloat16>(world, net, compute), for
/// un::MasterWeights(world, model).
template <floating_element T, streaming_transport Transport, class Module, class Compute>
CudaModel<Compute, T> cuda_model_of(Group<Transport>& world, Module& module, Compute compute) {
    return CudaModel<Compute, T>(world, module, std::move(compute));
}

} // namespace unisono::libtorch
