// The cost of a death without an elastic world: all ranks end. As many new processes start, load
// the last checkpoint and continue.
#pragma once

#include <unisono/checkpoint.hpp>
#include <unisono/join.hpp>
#include <unisono/launch/processes.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <csignal>
#include <cstdint>
#include <string>

namespace bench {

/// A kill half-way between two checkpoints: half of the updates between them are repeated.
inline constexpr std::uint64_t checkpoint_every = 10, killed_at = 15;

/// Trains until the update after the one at which rank 1 was killed. `board`: see main.cpp.
template <class Transport, class Model, class Board>
void train_from_checkpoint(const unisono::Identity& me, const std::string& folder, bool dies, Board& board) {
    namespace un = unisono;
    const un::RendezvousPoint meeting{.folder = folder, .job = dies ? "first" : "second"};
    auto world = un::join<Transport>(un::rendezvous(me, meeting));
    Model model(4'300'000);
    const std::vector<float> values(static_cast<std::size_t>(world.size()), 1.0f);
    const un::RowData<float> data(values, 1);
    un::Trainer trainer{world, model, un::Replicas{world.size()}, un::Reproducible{}, un::Sgd{.learning_rate = 1e-6}};
    un::Checkpoints checkpoints(folder + "/checkpoints", {.keep = 2});
    checkpoints.resume(trainer);
    const auto left = static_cast<std::int64_t>(killed_at) + 1 - trainer.position().epoch.number();
    trainer.fit(data, {.epochs = left, .batch_size = 1, .progress = false}, [&](const un::UpdateReport& report) {
        if (report.number % checkpoint_every == 0) checkpoints.save(trainer);
        if (dies && report.number == killed_at && me.rank == 1) {
            board.killed = un::steady_now();
            ::kill(::getpid(), SIGKILL);
        }
        if (report.number == killed_at + 1) board.next[me.rank] = un::steady_now();
    });
}

} // namespace bench
