// Trains modules on a device: training TRANSPORT RANKS FOLDER. The ranks are threads. TRANSPORT is
// shared_memory, tcp or nccl. Prints hashes that depend neither on the transport nor on the number
// of ranks, and the largest difference to losses of LibTorch alone.
#include "cuda/device.hpp"

#include <unisono/checkpoint.hpp>
#include <unisono/master_weights.hpp>
#include <unisono/nccl.hpp>
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace un = unisono;

namespace test {

/// An optimizer whose kernels are late.
struct LateSgd {
    un::Sgd sgd;
    static constexpr std::string_view name = "late_sgd";
    static constexpr un::Family family = un::Family::optimizer;
    double learning_rate = 0.05;
    friend bool operator==(const LateSgd&, const LateSgd&) = default;
    void check() const { sgd.check(); }
    [[nodiscard]] un::StateArrays state() const { return sgd.state(); }
    template <class T, class Where = un::OnHost>
    void update(const un::OptimizerSlice<T>& slice, std::span<T> parameters,
                std::type_identity_t<std::span<const T>> gradients, const un::OptimizerStep& step,
                const Where& where = {}) const {
        if constexpr (requires { where.on.cuda_stream(); }) delay(where.on.cuda_stream());
        else if constexpr (requires { where.on.stream; }) delay(where.on.stream);
        sgd.update(slice, parameters, gradients, step, where);
    }
};

} // namespace test

namespace {

template <class... Parts>
void expect(bool good, const Parts&... what) {
    if (good) return;
    std::string all;
    ((all += what), ...);
    throw un::error(un::ErrorCode::aborted, all);
}

constexpr std::int64_t count = 48, batch = 16;
std::mutex one_at_a_time; // LibTorch's generator of random numbers is the process's

struct Task {
    torch::nn::AnyModule net;
    un::libtorch::Rows data;
    [[nodiscard]] std::vector<torch::Tensor> parameters() const { return net.ptr()->parameters(); }
    [[nodiscard]] torch::Tensor loss(const un::libtorch::Batch& rows) {
        return torch::nn::functional::cross_entropy(net.forward(rows.x).to(torch::kFloat32), rows.y);
    }
};

struct Transformer : torch::nn::Module {
    Transformer()
        : embedding(register_module("embedding", torch::nn::Embedding(11, 16))),
          layer(register_module("layer",
                                torch::nn::TransformerEncoderLayer(
                                    torch::nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0)))),
          last(register_module("last", torch::nn::Linear(16, 3))) {}
    torch::Tensor forward(const torch::Tensor& tokens) { // (batch, length)
        const torch::Tensor in = embedding->forward(tokens).transpose(0, 1);
        return last->forward(layer->forward(in).mean(0));
    }
    torch::nn::Embedding embedding;
    torch::nn::TransformerEncoderLayer layer;
    torch::nn::Linear last;
};

Task transformer(torch::Device device) {
    const std::lock_guard lock(one_at_a_time);
    torch::manual_seed(3);
    const torch::Tensor tokens = torch::randint(0, 11, {count, 6}, torch::kInt64);
    const auto net = std::make_shared<Transformer>();
    net->to(device);
    return {torch::nn::AnyModule(net), {tokens.to(device), tokens.sum(1).remainder(3).to(device)}};
}

/// `buffers`: batch norm, which depends on the micro-batch; else group norm.
struct Convolutions : torch::nn::Module {
    explicit Convolutions(bool buffers) : all(register_module("all", torch::nn::Sequential())) {
        all->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
        if (buffers) all->push_back(torch::nn::BatchNorm2d(8));
        else all->push_back(torch::nn::GroupNorm(2, 8));
        all->push_back(torch::nn::ReLU());
        all->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 4, 3)));
        all->push_back(torch::nn::Flatten());
        all->push_back(torch::nn::Linear(4 * 6 * 6, 3));
    }
    torch::Tensor forward(const torch::Tensor& images) { return all->forward(images); }
    torch::nn::Sequential all;
};

/// The weights of the convolutions have the strides of channels_last.
Task convolutions(torch::Device device, bool buffers) {
    const std::lock_guard lock(one_at_a_time);
    torch::manual_seed(4);
    const torch::Tensor images = torch::rand({count, 3, 8, 8});
    const auto net = std::make_shared<Convolutions>(buffers);
    net->to(device);
    for (torch::Tensor one : net->parameters())
        if (one.dim() == 4) one.set_data(one.contiguous(torch::MemoryFormat::ChannelsLast));
    const torch::Tensor labels = (images.sum({1, 2, 3}) * 5).to(torch::kInt64).remainder(3);
    return {torch::nn::AnyModule(net),
            {images.contiguous(torch::MemoryFormat::ChannelsLast).to(device), labels.to(device)}};
}

using Compute = std::function<torch::Tensor(const un::libtorch::Batch&)>;

Compute loss_of(Task& task, bool autocast = false) {
    return [&task, autocast](const un::libtorch::Batch& rows) {
        std::optional<un::libtorch::Autocast> low;
        if (autocast) low.emplace(rows.x.device());
        return task.loss(rows);
    };
}

/// Each rank's share of the rows of one update.
template <class World>
un::libtorch::Batch share(World& world, const un::libtorch::Rows& data, std::int64_t at) {
    std::vector<std::size_t> mine;
    for (std::int64_t i = batch * world.rank() / world.size(); i < batch * (world.rank() + 1) / world.size(); ++i)
        mine.push_back(std::size_t((at + i) % count));
    return data.batch(mine);
}

constexpr std::int64_t steps = 9;

/// The losses of LibTorch alone at the same global batch, and its gradients clipped if `clip` > 0.
std::vector<double> alone(Task task, double clip) {
    torch::optim::SGD sgd(task.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    std::vector<double> losses;
    for (std::int64_t step = 0; step < steps; ++step) {
        const std::int64_t at = step * batch % count;
        sgd.zero_grad();
        const torch::Tensor loss =
            task.loss({task.data.x.slice(0, at, at + batch), task.data.y.slice(0, at, at + batch)});
        loss.backward();
        if (clip > 0) torch::nn::utils::clip_grad_norm_(task.parameters(), clip);
        sgd.step();
        losses.push_back(loss.item<double>());
    }
    return losses;
}

/// The largest difference to them. `streams`: LibTorch's current stream is another one in each
/// step, and never the trainer's.
template <class World, class... Policies>
double like_alone(World& world, Task task, const std::vector<double>& expected, bool streams,
                  const Policies&... policies) {
    const test::TorchStream first, second, third;
    first.make_current();
    const test::Late late(task.parameters());
    un::libtorch::CudaModel model(world, *task.net.ptr(), loss_of(task));
    un::Trainer trainer{world, model, policies..., test::LateSgd{.sgd = {.learning_rate = 0.05, .momentum = 0.9}}};
    double most = 0;
    for (std::int64_t step = 0; step < steps; ++step) {
        if (streams) (step % 2 == 0 ? second : third).make_current();
        const double loss = trainer.step(share(world, task.data, step * batch % count)).loss;
        most = std::max(most, std::abs(loss - expected[std::size_t(step)]));
    }
    expect(most <= 1e-5, "a loss differs by ", std::to_string(most), " from LibTorch's alone");
    expect(expected.back() < expected.front(), "LibTorch alone does not learn");
    return most;
}

/// One hash for any number of ranks and any transport. Half-way the training stops, and continues
/// from its checkpoint. Then the loss on all data is that of the module.
template <class World>
std::string reproducible(World& world, Task task, const std::string& folder, bool other_stream) {
    const test::TorchStream first, second;
    first.make_current();
    const test::Late late(task.parameters());
    std::string hash;
    for (const std::int64_t epochs : {1, 2}) {
        if (epochs == 2) // the checkpoint has other values
            for (const torch::Tensor& one : task.parameters()) one.detach().zero_();
        first.make_current();
        un::libtorch::CudaModel model(world, *task.net.ptr(), loss_of(task));
        un::Trainer trainer{world,
                            model,
                            un::Replicas{.count = 4},
                            un::Reproducible{},
                            un::StateSharding{},
                            un::ClipByNorm{.max_norm = 1},
                            un::AdamW{.learning_rate = 0.01}};
        un::Checkpoints checkpoints(folder, {.keep = 1});
        checkpoints.resume(trainer);
        expect(trainer.position().epoch.number() == epochs - 1, "resumed in another epoch");
        if (other_stream) second.make_current();
        trainer.fit(task.data, {.epochs = 1, .batch_size = 4, .seed = 3, .progress = false});
        checkpoints.save(trainer);
        trainer.verify_replicas();
        const auto [found] = trainer.evaluate(
            task.data, {.batch_size = 7},
            [&](auto& of, const un::libtorch::Batch& rows, un::MeanMetric& mean) {
                const torch::NoGradGuard no_gradients;
                of.follow_trainer();
                task.net.ptr()->eval();
                mean.add(task.loss(rows).template item<double>(), double(rows.x.size(0)));
                task.net.ptr()->train();
            },
            un::MeanMetric{});
        const torch::NoGradGuard no_gradients;
        task.net.ptr()->eval();
        const double expected = task.loss({task.data.x, task.data.y}).template item<double>();
        task.net.ptr()->train();
        expect(std::abs(found.value() - expected) < 1e-5, "evaluate found ", std::to_string(found.value()),
               ", expected ", std::to_string(expected));
        hash = un::hash_text(un::state_hash(trainer).parameters);
    }
    return hash;
}

/// In 16 bits, with float weights, a loss that is scaled and gradients that are clipped.
template <class World>
std::string in_bfloat16(World& world, Task task) {
    const test::TorchStream first, second;
    first.make_current();
    task.net.ptr()->to(torch::kBFloat16);
    if (task.data.x.is_floating_point()) task.data.x = task.data.x.to(torch::kBFloat16);
    const test::Late late(task.parameters());
    auto model = un::libtorch::cuda_model_of<un::bfloat16>(world, *task.net.ptr(), loss_of(task));
    un::MasterWeights master(world, model);
    un::Trainer trainer{world,
                        master,
                        un::Replicas{.count = 4},
                        un::Reproducible{},
                        un::LossScaling{.initial = 256},
                        un::ClipByNorm{.max_norm = 1},
                        un::AdamW{.learning_rate = 0.01}};
    second.make_current();
    const un::FitReport report = trainer.fit(task.data, {.epochs = 6, .batch_size = 4, .seed = 3, .progress = false});
    expect(report.epochs.back().loss < 0.9 * report.epochs.front().loss, "bfloat16: the loss went from ",
           std::to_string(report.epochs.front().loss), " to ", std::to_string(report.epochs.back().loss));
    return un::hash_text(un::state_hash(trainer).parameters);
}

/// Parameters in float, forward passes in 16 bits. The losses stay near those in float.
template <class World>
void autocast(World& world, Task task, const std::vector<double>& expected) {
    const test::TorchStream first;
    first.make_current();
    const test::Late late(task.parameters());
    bool low = false;
    const Compute compute = [&](const un::libtorch::Batch& rows) {
        const un::libtorch::Autocast on(rows.x.device());
        const torch::Tensor out = task.net.forward(rows.x);
        low = low || out.scalar_type() == torch::kBFloat16;
        return torch::nn::functional::cross_entropy(out.to(torch::kFloat32), rows.y);
    };
    un::libtorch::CudaModel model(world, *task.net.ptr(), compute);
    un::Trainer trainer{world, model, test::LateSgd{.sgd = {.learning_rate = 0.05, .momentum = 0.9}}};
    for (std::int64_t step = 0; step < steps; ++step) {
        const double loss = trainer.step(share(world, task.data, step * batch % count)).loss;
        expect(std::abs(loss - expected[std::size_t(step)]) < 0.05, "autocast: the loss is ", std::to_string(loss),
               ", in float ", std::to_string(expected[std::size_t(step)]));
    }
    expect(low, "autocast: the module computed in float");
    expect(!at::autocast::is_autocast_enabled(task.data.x.device().type()), "autocast stays on");
}

/// Gradients are reported complete during the backward pass, and buckets start there.
template <class World>
void overlap(World& world, Task task) {
    const test::TorchStream first;
    first.make_current();
    un::libtorch::CudaModel model(world, *task.net.ptr(), loss_of(task));
    std::vector<std::size_t> order;
    un::Pass pass(
        {}, [](void* to, std::size_t i) { static_cast<std::vector<std::size_t>*>(to)->push_back(i); }, &order);
    model(share(world, task.data, 0), pass);
    std::erase(order, un::Pass::no_parameter); // asked for progress
    const std::size_t all = model.parameters().size();
    expect(order.size() == all, "hooks: ", std::to_string(order.size()), " of ", std::to_string(all),
           " gradients were said to be complete");
    expect(order.front() > all / 2 && order.back() < all / 2, "hooks: not from the last layer to the first");
}

template <class Body>
void refused(const char* words, Body body) {
    try {
        body();
    } catch (const un::error& found) {
        expect(std::string_view(found.what()).find(words) != std::string_view::npos, "found the error ", found.what(),
               ", expected ", words);
        return;
    }
    expect(false, "found no error, expected ", words);
}

struct Odd : torch::nn::Module {
    explicit Odd(const torch::Tensor& tensor) { register_parameter("odd", tensor); }
};

template <class World>
void refusals(World& world) {
    const test::TorchStream first;
    first.make_current();
    const torch::Device device = un::libtorch::use_device(world);
    const Compute none = [](const un::libtorch::Batch& rows) { return rows.x; };
    const auto odd = [&](const torch::Tensor& tensor) {
        Odd net(tensor);
        un::libtorch::CudaModel model(world, net, none);
    };
    const torch::TensorOptions there = torch::TensorOptions(device);
    const std::string expected = "'odd' is on meta, expected ";
    refused((expected + (device.is_cpu() ? "the CPU" : device.str())).c_str(),
            [&] { odd(torch::empty({2}, torch::kMeta)); });
    refused("'odd' has elements of type Double, expected Float",
            [&] { odd(torch::zeros({2}, there.dtype(torch::kFloat64))); });
    refused("'odd' is sparse or has gaps", [&] { odd(torch::zeros({2, 2}, there).to_sparse()); });
    refused("'odd' is sparse or has gaps", [&] { odd(torch::zeros({4, 4}, there).slice(1, 0, 2)); });
    refused("the loss is on meta, expected ", [&] {
        Odd net(torch::zeros({2}, there));
        un::libtorch::CudaModel model(world, net,
                                      [](const un::libtorch::Batch&) { return torch::empty({1}, torch::kMeta); });
        un::Pass pass;
        model(un::libtorch::Batch{}, pass);
    });
    const int mine = world.endpoint().device(), devices = un::detail::visible_devices();
    if (devices == 1) return;
    un::libtorch::CudaStreams::use((mine + 1) % devices);
    refused("the thread's current device is ", [&] { odd(torch::zeros({2}, there)); });
    un::libtorch::use_device(world);
}

template <class Transport>
void run_all(int ranks, const std::string& folder) {
    torch::set_num_threads(1);
    const auto home = [] { return un::libtorch::CudaStreams::device(0); };
    const std::vector<double> plain = alone(transformer(home()), 0), clipped = alone(convolutions(home(), false), 0.5);
    un::run<Transport>(ranks, [&](auto& world) {
        torch::set_num_threads(1);
        const torch::Device device = un::libtorch::use_device(world);
        double most = 0;
        for (const bool streams : {false, true}) {
            most = std::max(most, like_alone(world, transformer(device), plain, streams,
                                             un::Buckets{.first_bytes = 512, .bytes = 2048}));
            most = std::max(most,
                            like_alone(world, convolutions(device, false), clipped, streams, un::StateSharding{},
                                       un::ClipByNorm{.max_norm = 0.5}, un::Buckets{.first_bytes = 64, .bytes = 700}));
        }
        autocast(world, transformer(device), plain);
        overlap(world, transformer(device));
        refusals(world);
        const std::string one = reproducible(world, transformer(device), folder + "/transformer", false);
        const std::string two = reproducible(world, convolutions(device, true), folder + "/convolutions", true);
        const std::string low = in_bfloat16(world, transformer(device));
        if (world.rank() != 0) return;
        std::printf("losses within %.1e of LibTorch's alone\nhash %s %s %s\n", most, one.c_str(), two.c_str(),
                    low.c_str());
    });
}

} // namespace

int main(int argc, char** argv) {
    const std::string_view transport = argc == 4 ? argv[1] : "";
    try {
        test::set_up();
        const int ranks = argc == 4 ? un::read_number<int>(argv[2], "RANKS", 1, 8) : 0;
        if (transport == "shared_memory") run_all<un::Cuda<un::SharedMemory>>(ranks, argv[3]);
        else if (transport == "tcp") run_all<un::Cuda<un::Tcp>>(ranks, argv[3]);
        else if (transport == "nccl") run_all<un::Nccl>(ranks, argv[3]);
        else return std::fputs("usage: training shared_memory|tcp|nccl RANKS FOLDER\n", stderr), 2;
        const std::string misuse = test::misuse();
        expect(misuse.empty(), misuse);
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "%s\n", failed.what());
        return 1;
    }
    return 0;
}
