// A rank of a training that any launcher starts: launchers_rank [RANK UPDATE]. Prints the hash of
// the training, which is the same on any number of ranks. With arguments, that rank kills itself
// after that update, and the others print what they are told. check.py reads it.

#include <unisono/reproducible.hpp>
#include <unisono/tcp.hpp>
#include <unisono/unisono.hpp>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

/// y = w . x, with the loss (y - x0)^2 / 2.
struct Linear {
    std::vector<float> weights = std::vector<float>(64), gradient = std::vector<float>(64);

    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }

    template <class Batch>
    double operator()(const Batch& batch, un::Pass&) {
        double loss = 0;
        const auto rows = static_cast<float>(batch.rows());
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            float difference = -x[0];
            for (std::size_t i = 0; i < weights.size(); ++i) difference += weights[i] * x[i];
            loss += 0.5 * static_cast<double>(difference * difference / rows);
            for (std::size_t i = 0; i < weights.size(); ++i) gradient[i] += difference * x[i] / rows;
        }
        return loss;
    }
};

void train(int killed, std::uint64_t update) {
    auto world = un::join<un::Tcp>({.timeout = 30s, .rendezvous = {.timeout = 60s}});
    const std::vector<float> values = un::torch_rand(0, 96 * 64);
    const un::RowData data(values, 64);
    Linear model;
    un::Trainer trainer{world, model, un::Replicas{.count = 4}, un::Reproducible{}, un::Sgd{.learning_rate = 0.01}};
    trainer.fit(data, {.epochs = 5, .batch_size = 2, .progress = false}, [&](const un::UpdateReport& report) {
        if (report.number != update || world.rank() != killed) return;
        std::printf("rank %d kills itself\n", killed);
        std::fflush(stdout);
        ::kill(::getpid(), SIGKILL);
    });
    std::printf("rank %d of %d: %s\n", world.rank(), world.size(),
                un::hash_text(un::state_hash(trainer).parameters).c_str());
}

} // namespace

int main(int argc, char** argv) {
    try {
        train(argc > 2 ? std::atoi(argv[1]) : -1, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0);
    } catch (const un::error& error) {
        std::printf("told: %s\n", error.what());
        return 3;
    }
    return 0;
}
