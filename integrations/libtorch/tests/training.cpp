// Trains a LibTorch module on the ranks of a launcher: training FOLDER [resume]. Prints what must
// not depend on the number of ranks.
#include <unisono_libtorch.hpp>

#include <unisono/checkpoint.hpp>
#include <unisono/join.hpp>
#include <unisono/master_weights.hpp>
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace un = unisono;

namespace {

template <class... Parts>
void expect(bool good, const Parts&... what) {
    if (good) return;
    ((std::fputs(std::string(what).c_str(), stderr)), ...);
    std::fputs("\n", stderr);
    std::exit(1);
}

un::libtorch::Rows samples() {
    torch::manual_seed(7);
    const torch::Tensor x = torch::rand({96, 8});
    return {x, torch::sin(x.sum(1, true))};
}

torch::nn::Sequential network(std::int64_t seed) {
    torch::manual_seed(seed);
    return torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})),
                                 torch::nn::Tanh(), torch::nn::Linear(32, 1));
}

auto loss_of(torch::nn::Sequential net) {
    return [net](const un::libtorch::Batch& batch) mutable { return torch::mse_loss(net->forward(batch.x), batch.y); };
}

/// The result of LibTorch alone with whole batches.
std::vector<float> alone(const un::libtorch::Rows& data) {
    torch::nn::Sequential net = network(1);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    for (std::int64_t at = 0; at < 96; at += 24) {
        sgd.zero_grad();
        torch::mse_loss(net->forward(data.x.slice(0, at, at + 24)), data.y.slice(0, at, at + 24)).backward();
        sgd.step();
    }
    std::vector<float> all;
    for (const torch::Tensor& each : net->parameters()) {
        const auto flat = un::libtorch::memory_of<float>(each, "parameter");
        all.insert(all.end(), flat.begin(), flat.end());
    }
    return all;
}

template <class World, class... Policies>
void like_alone(World& world, const char* what, const Policies&... policies) {
    const un::libtorch::Rows data = samples();
    const std::vector<float> expected = alone(data);
    torch::nn::Sequential net = network(1 + world.rank()); // every rank gets rank 0's parameters
    un::libtorch::Model model(net, loss_of(net));
    un::Trainer trainer{world, model, policies..., un::Sgd{.learning_rate = 0.05, .momentum = 0.9}};
    for (std::size_t at = 0; at < 96; at += 24) {
        std::vector<std::size_t> mine;
        for (std::size_t i = 24 * std::size_t(world.rank()) / std::size_t(world.size());
             i < 24 * std::size_t(world.rank() + 1) / std::size_t(world.size()); ++i)
            mine.push_back(at + i);
        trainer.step(data.batch(mine));
    }
    std::size_t at = 0;
    for (const auto& span : model.parameters())
        for (const float value : span) {
            expect(std::abs(value - expected[at]) <= 1e-5F * (1 + std::abs(expected[at])), what, ": a parameter is ",
                   std::to_string(value), ", LibTorch alone has ", std::to_string(expected[at]));
            ++at;
        }
}

/// One hash for any number of ranks, whether training was stopped half-way or not.
template <class World>
std::string reproducible(World& world, const std::string& folder, std::int64_t epochs) {
    const un::libtorch::Rows data = samples();
    torch::nn::Sequential net = network(1 + world.rank());
    un::libtorch::Model model(net, loss_of(net));
    un::Trainer trainer{world,
                        model,
                        un::Replicas{.count = 4},
                        un::Reproducible{},
                        un::StateSharding{},
                        un::AdamW{.learning_rate = 0.01}};
    un::Checkpoints checkpoints(folder, {.keep = 1});
    checkpoints.resume(trainer);
    const auto left = epochs - trainer.position().epoch.number();
    trainer.fit(data, {.epochs = left, .batch_size = 6, .seed = 3, .progress = false});
    checkpoints.save(trainer);
    return un::hash_text(un::state_hash(trainer).parameters);
}

template <class World>
double in_bfloat16(World& world) {
    const un::libtorch::Rows data = samples();
    const un::libtorch::Rows low{data.x.to(torch::kBFloat16), data.y.to(torch::kBFloat16)};
    torch::nn::Sequential net = network(1);
    net->to(torch::kBFloat16);
    auto model = un::libtorch::model_of<un::bfloat16>(net, loss_of(net));
    un::MasterWeights master(model);
    un::Trainer trainer{world, master, un::Replicas{.count = 4}, un::AdamW{.learning_rate = 0.01}};
    const un::FitReport report = trainer.fit(low, {.epochs = 6, .batch_size = 6, .seed = 3, .progress = false});
    expect(report.epochs.back().loss < 0.5 * report.epochs.front().loss, "bfloat16: the loss went from ",
           std::to_string(report.epochs.front().loss), " to ", std::to_string(report.epochs.back().loss));
    return report.epochs.back().loss;
}

/// Gradients are reported complete during the backward pass, the last layer's first.
void hooks() {
    const un::libtorch::Rows data = samples();
    torch::nn::Sequential net = network(1);
    net->parameters()[2].set_requires_grad(false); // not trained
    un::libtorch::Model model(net, loss_of(net));
    std::vector<std::size_t> order;
    un::Pass pass(
        {}, [](void* to, std::size_t i) { static_cast<std::vector<std::size_t>*>(to)->push_back(i); }, &order);
    model(data.batch(std::vector<std::size_t>{0, 1}), pass);
    expect(order.size() == 5 && model.parameters().size() == 5, "hooks: ", std::to_string(order.size()),
           " of 5 gradients were said to be complete");
    expect(order.front() >= 3 && order.back() <= 1, "hooks: the first complete gradient was of parameter ",
           std::to_string(order.front()), ", the last of ", std::to_string(order.back()));
}

/// A module that shares another module's weight trains as with LibTorch alone, where the optimizer
/// gets the weight once.
struct Tied : torch::nn::Module {
    Tied()
        : first(register_module("first", torch::nn::Linear(8, 8))),
          second(register_parameter("second", first->weight)) {}
    torch::Tensor forward(const torch::Tensor& x) {
        return torch::matmul(torch::tanh(first->forward(x)), second).sum(1, true);
    }

    torch::nn::Linear first;
    torch::Tensor second;
};

template <class World>
void tied(World& world) {
    const un::libtorch::Rows data = samples();
    torch::manual_seed(3);
    Tied reference;
    torch::manual_seed(3);
    Tied net;
    torch::optim::SGD sgd({reference.first->weight, reference.first->bias}, torch::optim::SGDOptions(0.05));
    un::libtorch::Model model(
        net, [&](const un::libtorch::Batch& batch) { return torch::mse_loss(net.forward(batch.x), batch.y); });
    expect(model.parameters().size() == 2, "tied: found ", std::to_string(model.parameters().size()),
           " parameters, expected 2");
    un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.05}};
    const auto rank = std::size_t(world.rank());
    const auto ranks = std::size_t(world.size());
    for (std::int64_t at = 0; at < 96; at += 24) {
        sgd.zero_grad();
        torch::mse_loss(reference.forward(data.x.slice(0, at, at + 24)), data.y.slice(0, at, at + 24)).backward();
        sgd.step();
        std::vector<std::size_t> mine;
        for (std::size_t i = 24 * rank / ranks; i < 24 * (rank + 1) / ranks; ++i) mine.push_back(std::size_t(at) + i);
        trainer.step(data.batch(mine));
    }
    expect(torch::allclose(net.first->weight, reference.first->weight, 1e-5, 1e-6),
           "tied: the shared weight is not that of LibTorch alone");
}

template <class Body>
void refused(const char* words, Body body) {
    try {
        body();
    } catch (const un::error& found) {
        expect(found.code() == un::ErrorCode::bad_input &&
                   std::string_view(found.what()).find(words) != std::string_view::npos,
               "found the error ", found.what(), ", expected ", words);
        return;
    }
    expect(false, "found no error, expected ", words);
}

void refusals() {
    const un::libtorch::Rows data = samples();
    refused("expected Float, as the model's element type says", [] {
        torch::nn::Sequential net = network(1);
        net->to(torch::kFloat64);
        un::libtorch::Model model(net, loss_of(net));
    });
    refused("is not where it was", [&] {
        torch::nn::Sequential net = network(1);
        un::libtorch::Model model(net, loss_of(net));
        net->zero_grad(true);
        un::Pass pass;
        model(data.batch(std::vector<std::size_t>{0}), pass);
    });
    refused("the loss has 2 elements", [&] {
        torch::nn::Sequential net = network(1);
        un::libtorch::Model model(net, [&](const un::libtorch::Batch& batch) { return net->forward(batch.x); });
        un::Pass pass;
        model(data.batch(std::vector<std::size_t>{0, 1}), pass);
    });
}

} // namespace

int main(int argc, char** argv) {
    expect(argc == 3 || argc == 4, "usage: training FOLDER EPOCHS [all]");
    torch::set_num_threads(1);
    un::run_joined<un::SharedMemory>([&](auto& world) {
        if (argc == 4) {
            like_alone(world, "whole models");
            like_alone(world, "StateSharding, buckets of 1 KiB", un::StateSharding{}, un::Buckets{.bytes = 1024});
            tied(world);
            hooks();
            refusals();
            const double low = in_bfloat16(world);
            if (world.rank() == 0) std::printf("bfloat16: loss %.4f\n", low);
        }
        const std::string hash = reproducible(world, argv[1], std::atoi(argv[2]));
        if (world.rank() == 0) std::printf("hash %s\n", hash.c_str());
    });
}
