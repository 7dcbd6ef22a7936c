#pragma once

/// \file A LibTorch module as a model of un::Trainer: the counterpart of Python's
/// DistributedDataParallel. Not part of include/; see README.md.
///
///     torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(),
///                               torch::nn::Linear(32, 1));
///     un::libtorch::Model model(net, [&](const un::libtorch::Batch& batch) {
///         return torch::mse_loss(net->forward(batch.x), batch.y);
///     });
///     un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}};
///     trainer.fit(un::libtorch::Rows{x, y}, {.epochs = 10, .batch_size = 24});

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <unisono/unisono.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace unisono::libtorch {

/// The tensor type whose memory is read as T.
template <floating_element T>
constexpr torch::ScalarType scalar_type() {
    if constexpr (std::is_same_v<T, float>) return torch::kFloat32;
    else if constexpr (std::is_same_v<T, double>) return torch::kFloat64;
    else if constexpr (std::is_same_v<T, bfloat16>) return torch::kBFloat16;
    else return torch::kFloat16;
}

/// A tensor's memory, which must be on `device`, of type T and without gaps. The addresses are the
/// device's. \throws error bad_input
template <floating_element T>
std::span<T> memory_of(const torch::Tensor& tensor, const std::string& name, torch::Device device = torch::kCPU) {
    if (tensor.device() != device)
        refuse_input({"libtorch::Model: '", name, "' is on ", tensor.device().str(), ", expected ",
                      device.is_cpu() ? "the CPU" : device.str(), device.is_cpu() ? "" : ", this rank's device"});
    if (tensor.scalar_type() != scalar_type<T>())
        refuse_input({"libtorch::Model: '", name, "' has elements of type ", torch::toString(tensor.scalar_type()),
                      ", expected ", torch::toString(scalar_type<T>()), ", as the model's element type says"});
    if (tensor.layout() != torch::kStrided || !tensor.is_non_overlapping_and_dense())
        refuse_input({"libtorch::Model: '", name, "' is sparse or has gaps in its memory; expected a dense tensor"});
    return {static_cast<T*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

/// Samples as rows of two tensors.
struct Batch {
    torch::Tensor x, y;
};

/// A data set of such rows: `x[i]` and `y[i]` are a sample. Refers to the tensors' memory.
struct Rows {
    torch::Tensor x, y;

    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(x.size(0)); }
    [[nodiscard]] Batch batch(std::span<const std::size_t> indices) const {
        const torch::Tensor chosen =
            torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), torch::kInt64);
        return {select(x, chosen), select(y, chosen)};
    }

private:
    static torch::Tensor select(const torch::Tensor& all, const torch::Tensor& chosen) {
        return all.index_select(0, chosen.to(all.device(), /*non_blocking=*/true));
    }
};

/// While it lives, LibTorch computes this thread's forward passes on devices of this kind in 16
/// bits where that is accurate enough, as Python's torch.autocast does. Parameters, gradients and
/// updates stay float. The loss is computed inside, and the backward pass follows outside.
class Autocast {
public:
    explicit Autocast(torch::Device device, torch::ScalarType type = torch::kBFloat16)
        : device_(device.type()), was_on_(at::autocast::is_autocast_enabled(device_)),
          had_(at::autocast::get_autocast_dtype(device_)) {
        at::autocast::set_autocast_dtype(device_, type);
        at::autocast::set_autocast_enabled(device_, true);
        at::autocast::increment_nesting();
    }
    Autocast(const Autocast&) = delete;
    Autocast& operator=(const Autocast&) = delete;
    ~Autocast() {
        // The next update makes the copies of the parameters out of date.
        if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
        at::autocast::set_autocast_enabled(device_, was_on_);
        at::autocast::set_autocast_dtype(device_, had_);
    }

private:
    torch::DeviceType device_;
    bool was_on_;
    torch::ScalarType had_;
};

/// Tensors in memory of the host, on which LibTorch and the trainer work one after the other.
/// unisono_libtorch_cuda.hpp has the counterpart for memory of a GPU.
class OnHost {
public:
    template <class T>
    using Span = std::span<T>;

    static torch::Device device() { return torch::kCPU; }
    static void begin_pass() {}
    static void end_pass() {}
    static void gradient_done() {}
    void note_loss(const torch::Tensor& loss) { loss_ = loss.detach(); }
    [[nodiscard]] double read_loss(Pass&) const { return loss_.item<double>(); }
    static void backward(const torch::Tensor& loss) { loss.backward(); }

private:
    torch::Tensor loss_;
};

/// What Model and CudaModel have in common. `Place`: where the tensors are.
template <class Place, class Compute, floating_element T>
class ModelOn {
public:
    using Element = T;
    using Spans = std::vector<typename Place::template Span<T>>;

    ModelOn(const ModelOn&) = delete;
    ModelOn& operator=(const ModelOn&) = delete;

    [[nodiscard]] Spans& parameters() { return parameters_; }
    [[nodiscard]] Spans& gradients() { return gradients_; }
    [[nodiscard]] Spans& buffers() { return buffers_; }
    [[nodiscard]] const std::vector<std::string>& parameter_names() const { return names_; }
    [[nodiscard]] const std::vector<std::vector<std::size_t>>& parameter_shapes() const { return shapes_; }
    [[nodiscard]] const std::vector<std::string>& buffer_names() const { return buffer_names_; }

    template <class Samples>
    double operator()(const Samples& batch, Pass& pass) {
        check_gradients();
        place_.begin_pass();
        const torch::Tensor loss = [&] {
            if constexpr (requires { compute_(batch, pass); }) return compute_(batch, pass);
            else return compute_(batch);
        }();
        if (loss.numel() != 1)
            refuse_input({"libtorch::Model: the loss has ", loss.numel(), " elements, expected one: its mean"});
        if (loss.device() != place_.device())
            refuse_input({"libtorch::Model: the loss is on ", loss.device().str(), ", expected ", place_.device().str(),
                          ", where the parameters are"});
        place_.note_loss(loss);
        const double scale = pass.loss_scale();
        pass_ = &pass;
        struct Reset {
            Pass*& pass;
            ~Reset() { pass = nullptr; }
        } reset{pass_};
        place_.backward(scale == 1 ? loss : loss * scale);
        place_.end_pass();
        return place_.read_loss(pass);
    }

protected:
    template <class Module>
    ModelOn(Module& module, Compute compute, const Place& place = {}) : place_(place), compute_(std::move(compute)) {
        const auto& inner = [&]() -> torch::nn::Module& {
            if constexpr (std::is_base_of_v<torch::nn::Module, Module>) return module;
            else return *module; // a holder
        }();
        for (const auto& each : inner.named_parameters()) {
            if (each.value().requires_grad() && !has(each.value())) add(each.value(), each.key());
        }
        for (const auto& each : inner.named_buffers()) {
            if (each.value().scalar_type() != scalar_type<T>()) continue; // counters
            buffers_.push_back(span_of(each.value(), each.key()));
            buffer_names_.push_back(each.key());
            kept_.push_back(each.value());
        }
    }
    ~ModelOn() {
        for (const Hook& hook : hooks_) hook.node->del_post_hook(hook.key);
    }

    Place place_;

private:
    struct Hook {
        // A tensor does not keep its node.
        decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::autograd::Variable&>())) node;
        std::uintptr_t key;
    };

    /// A tensor that several modules share is one parameter.
    [[nodiscard]] bool has(const torch::Tensor& tensor) const {
        return std::any_of(tensors_.begin(), tensors_.end(),
                           [&](const torch::Tensor& one) { return one.is_same(tensor); });
    }
    [[nodiscard]] auto span_of(const torch::Tensor& tensor, const std::string& name) const {
        const std::span<T> memory = memory_of<T>(tensor, name, place_.device());
        return typename Place::template Span<T>(memory.data(), memory.size());
    }

    void add(torch::Tensor tensor, const std::string& name) {
        const std::size_t index = tensors_.size();
        parameters_.push_back(span_of(tensor, name));
        tensor.mutable_grad() = torch::zeros_like(tensor.detach()); // with the same strides
        gradients_.push_back(span_of(tensor.grad(), name));
        names_.push_back(name);
        const auto sizes = tensor.sizes();
        shapes_.emplace_back(sizes.begin(), sizes.end());
        const auto node = torch::autograd::impl::grad_accumulator(tensor);
        const auto key = node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, index](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
                if (pass_ != nullptr) {
                    place_.gradient_done();
                    pass_->ready(index);
                }
                return outputs;
            }));
        hooks_.push_back(Hook{node, key});
        tensors_.push_back(std::move(tensor));
    }

    void check_gradients() const {
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            const torch::Tensor& gradient = tensors_[i].grad();
            if (!gradient.defined() || gradient.data_ptr() != gradients_[i].data())
                refuse_input({"libtorch::Model: the gradient of '", names_[i],
                              "' is not where it was; expected it to stay there (the trainer zeroes gradients, and "
                              "zero_grad is not needed)"});
        }
    }

    Compute compute_;
    Pass* pass_ = nullptr; // during a backward pass
    std::vector<torch::Tensor> tensors_, kept_;
    Spans parameters_, gradients_, buffers_;
    std::vector<std::string> names_, buffer_names_;
    std::vector<std::vector<std::size_t>> shapes_;
    std::vector<Hook> hooks_;
};

/// A module and its loss. The module's parameters stay where they are. Each gets a gradient of its
/// own, to which autograd adds in place. A hook on it tells the trainer when it is complete, so
/// that buckets are exchanged during the backward pass.
///
/// `compute(batch)` or `compute(batch, pass)` is the forward pass. It returns the loss, the mean
/// over the micro-batch, as a tensor of one element. Parameters that do not require a gradient stay
/// unchanged. A parameter that several modules share counts once, by its first name. Buffers of
/// type T (running statistics) are the model's buffers.
///
/// T is the type of all parameters: float, double, or un::bfloat16 and un::float16 for
/// un::MasterWeights. Memory: one gradient per parameter, as in a LibTorch loop. The backward pass
/// runs on the calling thread. Errors: bad_input if a parameter has another type, is not on the CPU
/// or has gaps; if the loss is not one number; and if a gradient has been moved, as by
/// zero_grad(set_to_none = true).
template <class Compute, floating_element T = float>
class Model : public ModelOn<OnHost, Compute, T> {
public:
    template <class Module>
    Model(Module& module, Compute compute) : ModelOn<OnHost, Compute, T>(module, std::move(compute)) {}
};

template <class Module, class Compute>
Model(Module&, Compute) -> Model<Compute>;

/// A Model with other element types: un::libtorch::model_of<un::bfloat16>(net, compute).
template <floating_element T, class Module, class Compute>
Model<Compute, T> model_of(Module& module, Compute compute) {
    return Model<Compute, T>(module, std::move(compute));
}

} // namespace unisono::libtorch
