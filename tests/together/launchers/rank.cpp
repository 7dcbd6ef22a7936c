// A rank of a training that any launcher starts: launchers_rank [RANK UPDATE]. Prints the hash of
// the training, which is the same on any number of ranks. With arguments, that rank kills itself
// after that update, and the others print what they are told. check.py reads it.

#include <unisono/reproducible.hpp>
#include <unisono/tcp.hpp>
#include <unisono/unisono.hpp>

#include "../../support/linear.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

void train(int killed, std::uint64_t update) {
    auto world = un::join<un::Tcp>({.timeout = 30s, .rendezvous = {.timeout = 60s}});
    const std::vector<float> values = un::torch_rand(0, 96 * 64);
    const un::RowData data(values, 64);
    test::Linear model(64);
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
