#pragma once

// A small model of the time of an update: its parts, each measured alone, and added.

#include "outcome.hpp"
#include "support/series.hpp"

#include "../../examples/digits/data.hpp"
#include "../../examples/digits/network.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace bench {

/// All ways but one run the network through this type, so that all run the same machine code:
/// forward, loss, backward.
using TwoWayModel = un::WithLoss<digits::Network, digits::CrossEntropyLoss>;

/// Seconds of the parts, by number of ranks.
struct Parts {
    /// Of a batch of 1/1, 1/2, ... 1/8 of the global one, on one rank alone; [0] is not used.
    double compute[9] = {};
    double apply = 0; ///< the optimizer over all parameters
    double add = 0;   ///< a gradient added to another
    /// Of all parameters, by number of ranks.
    double all_reduce[9] = {}, reduce[9] = {}, broadcast[9] = {};
    double small[9] = {}; ///< of 48 bytes, by number of ranks: the agreement of all ranks
    /// Scattering the other ranks' parts of a batch.
    double batch_sent[9] = {};
};

enum class Way { one, accumulate, replica_loss, master_loss, parallel };

struct Prediction {
    double seconds = 0;  ///< of an update
    double exchange = 0; ///< of these, between ranks
};

/// Compute time is divided by the ranks, if there is a core for each. The exchange, and what each
/// rank does for itself, is added. The model does not cover ranks that wait for a core.
inline Prediction predict(const Parts& parts, Way way, std::size_t ranks, double rounds) {
    const double crowd = std::max(1.0, static_cast<double>(ranks) / static_cast<double>(cores().size()));
    Prediction made;
    switch (way) {
    case Way::one: made.seconds = parts.compute[1] + parts.apply; break;
    case Way::accumulate:
        made.seconds = rounds * (parts.compute[static_cast<std::size_t>(rounds)] + parts.add) + parts.apply;
        break;
    case Way::parallel:
        made.exchange = parts.all_reduce[ranks] + parts.small[ranks];
        made.seconds = (parts.compute[ranks] + parts.add + parts.apply) * crowd + made.exchange;
        break;
    case Way::master_loss:
        made.exchange = 3 * parts.small[ranks]; // widths and outputs, and the gradients in return
        [[fallthrough]];
    case Way::replica_loss:
        made.exchange +=
            parts.batch_sent[ranks] + parts.reduce[ranks] + parts.broadcast[ranks] + 2 * parts.small[ranks];
        made.seconds = (parts.compute[ranks] + parts.add) * crowd + parts.apply + made.exchange;
        break;
    }
    return made;
}

/// The median of several tries.
template <class Work>
double seconds_of(Work work, int tries = 15) {
    work();
    std::vector<double> all;
    for (int i = 0; i < tries; ++i) {
        const double begin = now_s();
        work();
        all.push_back(now_s() - begin);
    }
    return quantile(std::move(all), 0.5);
}

/// Measures the parts. Returns false if a process failed.
template <class Data>
bool measure_parts(Parts& parts, const Data& data, const std::vector<std::size_t>& widths, std::size_t global_batch,
                   const std::vector<int>& worlds) {
    return in_child([&] {
        bind_to(cores(), 0);
        digits::Network network(widths);
        TwoWayModel model(network, {});
        un::Pass pass;
        for (std::size_t share = 1; share <= 8; ++share) {
            const std::size_t rows = std::max<std::size_t>(1, global_batch / share);
            std::size_t first = 0;
            parts.compute[share] = seconds_of([&] { // different images have different zeros
                                       for (int i = 0; i < 4; ++i) {
                                           std::vector<std::size_t> indices(rows);
                                           for (std::size_t row = 0; row < rows; ++row)
                                               indices[row] = first++ % data.size();
                                           model(data.batch(indices), pass);
                                       }
                                   }) /
                                   4;
        }
        const std::size_t count = network.values().size();
        std::vector<float> parameters(count), gradients(count);
        const un::Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
        auto state = un::start<float>(sgd, count);
        parts.apply = seconds_of([&] {
            sgd.update(state.all(), std::span<float>(parameters), std::span<const float>(gradients), {0.1, 1, 1});
        });
        parts.add =
            seconds_of([&] { un::accumulate(std::span<float>(parameters), std::span<const float>(gradients), 1.0); });
        for (const int ranks : worlds) {
            if (ranks == 1) continue;
            const auto p = static_cast<std::size_t>(ranks);
            un::run<un::SharedMemory>(ranks,
                                      [&](auto& world) {
                                          auto values = world.template allocate<float>(count);
                                          std::vector<double> words(6);
                                          const std::size_t rows = (global_batch + p - 1) / p;
                                          std::vector<float> whole(world.rank() == 0 ? p * rows * digits::pixels : 0);
                                          std::vector<float> part(rows * digits::pixels);
                                          const auto time = [&](double& to, auto work) {
                                              un::barrier(world);
                                              const double once = seconds_of(work);
                                              if (world.rank() == 0) to = once;
                                          };
                                          time(parts.all_reduce[p], [&] { un::all_reduce(world, values); });
                                          time(parts.reduce[p], [&] {
                                              un::reduce(world, std::span<const float>(values), std::span(values), 0);
                                          });
                                          time(parts.broadcast[p], [&] { un::broadcast(world, values, 0); });
                                          time(parts.small[p], [&] { un::all_reduce(world, words); });
                                          time(parts.batch_sent[p], [&] { un::scatter(world, whole, part, 0); });
                                      },
                                      {.bind_to_cores = true});
        }
    });
}

} // namespace bench
