// One training in many ways: the model, the data, and what may vary.
#pragma once

#include <unisono/automatic.hpp>
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <sys/mman.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

namespace example {

namespace un = unisono;

enum class Reducer { native, ring, tree, halving_doubling, parameter_server, automatic };
inline constexpr std::array reducers = {
    Reducer::native,           Reducer::ring,     Reducer::tree, Reducer::halving_doubling,
    Reducer::parameter_server, Reducer::automatic};

/// Settings: the first four should change the result, and the others should not.
struct Case {
    int replicas = 8;
    bool shuffle = true;
    bool adam = false;
    bool reproducible = true;

    int ranks = 1;
    bool processes = false;
    Reducer reducer = Reducer::native;
    un::Buckets buckets = {};
};

/// 12 inputs, 17 hidden neurons with dropout, one output. The loss is the mean squared error. Each
/// of the four parameters has memory of its own. Dropout asks the pass for the random numbers of
/// each sample.
class Network {
public:
    static constexpr std::size_t inputs = 12, hidden = 17;

    Network() {
        un::CounterRandom random(1);
        for (float& w : memory_[0]) w = 0.5f * (random.uniform() - 0.5f);
        for (float& w : memory_[2]) w = 0.5f * (random.uniform() - 0.5f);
    }
    std::array<std::span<float>, 4> parameters() { return {memory_[0], memory_[1], memory_[2], memory_[3]}; }
    std::array<std::span<float>, 4> gradients() { return {slopes_[0], slopes_[1], slopes_[2], slopes_[3]}; }

    double operator()(const un::RowBatch<float, float>& batch, un::Pass& pass) {
        double loss = 0;
        const float share = 1.0f / static_cast<float>(batch.rows());
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            un::CounterRandom random = pass.random(row);
            std::array<float, hidden> activity{};
            std::array<bool, hidden> kept{};
            float y = memory_[3][0];
            for (std::size_t h = 0; h < hidden; ++h) {
                kept[h] = random.uniform() < 0.8f;
                float sum = memory_[1][h];
                for (std::size_t i = 0; i < inputs; ++i) sum += memory_[0][h * inputs + i] * x[i];
                activity[h] = kept[h] ? std::tanh(sum) : 0;
                y += memory_[2][h] * activity[h];
            }
            const float error = y - batch.labels[row];
            loss += static_cast<double>(error * error * share);
            const float slope = 2 * error * share;
            slopes_[3][0] += slope;
            for (std::size_t h = 0; h < hidden; ++h) {
                slopes_[2][h] += slope * activity[h];
                if (!kept[h]) continue;
                const float inner = slope * memory_[2][h] * (1 - activity[h] * activity[h]);
                slopes_[1][h] += inner;
                for (std::size_t i = 0; i < inputs; ++i) slopes_[0][h * inputs + i] += inner * x[i];
            }
        }
        return loss;
    }

private:
    static std::array<std::vector<float>, 4> blank() {
        return {std::vector<float>(hidden * inputs), std::vector<float>(hidden), std::vector<float>(hidden),
                std::vector<float>(1)};
    }
    std::array<std::vector<float>, 4> memory_ = blank(), slopes_ = blank();
};

struct Outcome {
    un::StateHash hash;
    double loss = 0;
};

/// Memory that forked processes write and their parent reads.
class Shared {
public:
    Shared() : at_(::mmap(nullptr, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
        if (at_ == MAP_FAILED) throw std::bad_alloc();
        ::new (at_) Outcome;
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() { ::munmap(at_, sizeof(Outcome)); }
    Outcome& operator*() const { return *static_cast<Outcome*>(at_); }

private:
    void* at_;
};

template <class Transport, class Summation, class Clipping, class Optimizer, class Reducing>
Outcome train(const Case& how, const Summation& summation, const Clipping& clipping, const Optimizer& optimizer,
              const Reducing& reducer) {
    static const std::vector<float> values = un::torch_rand(7, 131 * Network::inputs);
    static const std::vector<float> labels = un::torch_rand(8, 131);
    const Shared outcome;
    un::run<Transport>(how.ranks,
                       [&](auto& world) {
                           Network model;
                           un::Trainer trainer{world,
                                               model,
                                               un::Replicas{how.replicas},
                                               un::DistributedSampler{.shuffle = how.shuffle},
                                               reducer,
                                               summation,
                                               clipping,
                                               optimizer,
                                               how.buckets};
                           const un::RowData data(values, Network::inputs, labels);
                           const auto report =
                               trainer.fit(data, {.epochs = 2, .batch_size = 3, .seed = 3, .progress = false});
                           const un::StateHash hash = un::state_hash(trainer);
                           if (world.rank() == 0) *outcome = {hash, report.epochs.back().loss};
                       },
                       {.timeout = std::chrono::seconds(60)});
    return *outcome;
}

template <class Transport, class Summation, class Clipping, class Optimizer>
Outcome train(const Case& how, const Summation& summation, const Clipping& clipping, const Optimizer& optimizer) {
    if (how.reducer == Reducer::ring)
        return train<Transport>(how, summation, clipping, optimizer, un::RingReducer{.chunk_bytes = 256});
    if constexpr (Summation::reproducible) {
        switch (how.reducer) {
        case Reducer::tree: return train<Transport>(how, summation, clipping, optimizer, un::TreeReducer{});
        case Reducer::halving_doubling:
            return train<Transport>(how, summation, clipping, optimizer, un::HalvingDoublingReducer{});
        case Reducer::parameter_server:
            return train<Transport>(how, summation, clipping, optimizer,
                                    un::ParameterServerReducer{(how.ranks + 1) / 2});
        case Reducer::automatic: return train<Transport>(how, summation, clipping, optimizer, un::AutomaticReducer{});
        default: break;
        }
    }
    return train<Transport>(how, summation, clipping, optimizer, un::NativeReducer{});
}

template <class Transport, class Summation>
Outcome train(const Case& how, const Summation& summation) {
    if (how.adam) return train<Transport>(how, summation, un::NoClipping{}, un::AdamW{.learning_rate = 0.01});
    return train<Transport>(how, summation, un::ClipByNorm{.max_norm = 0.5},
                            un::Sgd{.learning_rate = 0.05, .momentum = 0.9});
}

Outcome train_on_threads(const Case& how);
Outcome train_on_processes(const Case& how);

} // namespace example
