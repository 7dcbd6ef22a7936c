// The model, and policies that each stand for several.
#pragma once

#include "training.hpp"

#include "support/owners_or_all.hpp"
#include "unisono/extensions/checkpoint/checkpoints.hpp"
#include "unisono/trainer/hashes.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/unisono.hpp"

#include <array>
#include <cmath>
#include <span>

namespace unisono_test {

/// All optimizers of the library in one type.
struct AnyOptimizer {
    Which which = Which::adam;
    double learning_rate = 0.02;

    static constexpr std::string_view name = "any of them";
    static constexpr un::Family family = un::Family::optimizer;
    friend bool operator==(const AnyOptimizer&, const AnyOptimizer&) = default;

    template <class Visit>
    auto visit(Visit call) const {
        switch (which) {
        case Which::sgd: return call(un::Sgd{.learning_rate = learning_rate});
        case Which::momentum: return call(un::Sgd{.learning_rate = learning_rate, .momentum = 0.9, .dampening = 0.1});
        case Which::amsgrad: return call(un::Adam{.learning_rate = learning_rate, .amsgrad = true});
        case Which::adamw: return call(un::AdamW{.learning_rate = learning_rate});
        case Which::adagrad: return call(un::Adagrad{.learning_rate = learning_rate, .learning_rate_decay = 0.1});
        case Which::rmsprop:
            return call(un::RmsProp{.learning_rate = learning_rate, .momentum = 0.5, .centered = true});
        case Which::adam: break;
        }
        return call(un::Adam{.learning_rate = learning_rate});
    }
    void check() const {
        visit([](const auto& one) { one.check(); });
    }
    [[nodiscard]] un::StateArrays state() const {
        return visit([](const auto& one) { return one.state(); });
    }
    template <un::optimizer_element T>
    void update(const un::OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                const un::OptimizerStep& step) const {
        visit([&](const auto& one) { one.update(state, parameters, gradients, step); });
    }
};

/// Inputs, 5 hidden neurons with dropout, one output, a parameter without elements, and a running
/// mean of the outputs.
class Network {
public:
    static constexpr std::size_t hidden = 5;

    Network(std::size_t inputs, bool names) : inputs_(inputs), names_(names) {
        memory_[0].resize(hidden * inputs);
        memory_[1].resize(hidden);
        memory_[3].resize(hidden);
        memory_[4].resize(1);
        for (std::size_t p = 0; p < 5; ++p) slopes_[p].resize(memory_[p].size());
        un::CounterRandom random(1);
        for (float& w : memory_[0]) w = random.uniform() - 0.5f;
        for (float& w : memory_[3]) w = random.uniform() - 0.5f;
    }
    std::array<std::span<float>, 5> parameters() { return spans(memory_); }
    std::array<std::span<float>, 5> gradients() { return spans(slopes_); }
    [[nodiscard]] std::vector<std::string> parameter_names() const {
        return {names_ ? "hidden.weight" : "hidden.weights", "hidden.bias", "nothing", "out.\"weight\"", "out.bias"};
    }
    [[nodiscard]] std::vector<std::vector<std::size_t>> parameter_shapes() const {
        return {{hidden, inputs_}, {hidden}, {0, hidden}, {1, hidden}, {1}};
    }
    std::array<std::span<double>, 1> buffers() { return {running_}; }
    [[nodiscard]] std::array<std::string, 1> buffer_names() const { return {"running_mean"}; }

    double operator()(const un::RowBatch<float, float>& batch, un::Pass& pass) {
        double loss = 0;
        const float share = 1.0f / static_cast<float>(batch.rows());
        const auto scale = static_cast<float>(pass.loss_scale());
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            un::CounterRandom random = pass.random(row);
            std::array<float, hidden> activity{};
            float y = memory_[4][0];
            for (std::size_t h = 0; h < hidden; ++h) {
                if (random.uniform() < 0.2f) continue;
                float sum = memory_[1][h];
                for (std::size_t i = 0; i < inputs_; ++i) sum += memory_[0][h * inputs_ + i] * x[i];
                activity[h] = std::tanh(sum);
                y += memory_[3][h] * activity[h];
            }
            running_[0] += 0.1 * (static_cast<double>(y) - running_[0]);
            running_[1] += 1;
            const float error = y - batch.labels[row];
            loss += static_cast<double>(error * error * share);
            const float slope = 2 * error * share * scale;
            slopes_[4][0] += slope;
            for (std::size_t h = 0; h < hidden; ++h) {
                slopes_[3][h] += slope * activity[h];
                if (activity[h] == 0) continue;
                const float inner = slope * memory_[3][h] * (1 - activity[h] * activity[h]);
                slopes_[1][h] += inner;
                for (std::size_t i = 0; i < inputs_; ++i) slopes_[0][h * inputs_ + i] += inner * x[i];
            }
        }
        return loss;
    }
    [[nodiscard]] double buffer() const { return running_[0] + running_[1]; }

private:
    static std::array<std::span<float>, 5> spans(std::array<std::vector<float>, 5>& of) {
        return {of[0], of[1], of[2], of[3], of[4]};
    }
    std::size_t inputs_;
    bool names_;
    std::array<std::vector<float>, 5> memory_, slopes_;
    std::vector<double> running_ = {0, 0};
};

/// Trains on one rank of the world.
template <class World>
Outcome train_rank(World& world, const Case& how, const std::function<void(int, const std::string&)>& after_save) {
    const std::vector<float> values = un::torch_rand(7, how.samples * how.inputs);
    const std::vector<float> labels = un::torch_rand(8, how.samples);
    const un::RowData data(values, how.inputs, labels);
    Outcome out;
    Network model(how.inputs, how.names_parameters);
    un::Trainer trainer{world,
                        model,
                        un::Replicas{4}, // on any number of ranks
                        un::Reproducible{},
                        un::DistributedSampler{.seed = how.sampler_seed},
                        un::LossScaling{.initial = 1024, .growth_interval = 3},
                        AnyOptimizer{how.optimizer},
                        test::OwnersOrAll{.sharded = how.sharded},
                        un::Buckets{.first_bytes = 40, .bytes = 100}};
    un::Checkpoints checkpoints(how.folder.empty() ? "/nowhere" : how.folder, how.checkpoints);
    const auto refuse = [&](const un::error& failed) {
        out.refused = failed.what();
        out.code = failed.code();
    };
    if (how.resume) {
        const un::StateHash before = un::state_hash(trainer);
        const double buffer = model.buffer();
        try {
            if (const auto from = checkpoints.resume(trainer, how.name)) {
                out.resumed = true;
                out.from = *from;
            }
        } catch (const un::error& failed) {
            refuse(failed);
            out.untouched = un::state_hash(trainer) == before && model.buffer() == buffer &&
                            trainer.progress() == un::TrainingProgress{};
            const auto report = trainer.fit(data, {.epochs = 1, .batch_size = 3, .seed = 5, .progress = false});
            out.untouched = out.untouched && report.epochs[0].updates == 4;
            out.hash = un::state_hash(trainer);
            return out;
        }
    }
    const std::int64_t left = 3 - trainer.position().epoch.number();
    const auto go_on = [&] { return how.stop_after == 0 || trainer.updates() < how.stop_after; };
    if (how.before_fit) how.before_fit();
    try {
        if (left > 0 && go_on())
            trainer.fit(data, {.epochs = left, .batch_size = 3, .seed = how.seed, .progress = false},
                        [&](const un::UpdateReport& report) {
                            out.history.push_back(un::state_hash(trainer));
                            if (how.save_every != 0 && report.number % how.save_every == 0) {
                                out.saved.push_back(checkpoints.save(trainer, {.note = how.note}));
                                if (after_save) after_save(world.rank(), out.saved.back());
                            }
                            return go_on();
                        });
        checkpoints.wait(trainer);
    } catch (const un::error& failed) {
        refuse(failed);
        return out;
    }
    out.hash = un::state_hash(trainer);
    out.buffer = model.buffer();
    out.updates = trainer.updates();
    return out;
}

} // namespace unisono_test
