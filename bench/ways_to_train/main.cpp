// The same training in several ways, and the cost of each: one rank; one rank that accumulates
// micro-batches; PyTorch's DataParallel, with the loss in the replicas and on the master; and
// data-parallel on two and four ranks. The global batch is the same in all, so each makes the same
// updates, up to rounding. Ranks are processes that share memory.

#include "outcome.hpp"
#include "prediction.hpp"
#include "support/report.hpp"

#include "../../examples/digits/data.hpp"
#include "../../examples/digits/network.hpp"

#include <unisono/trainers.hpp>

#include <cmath>
#include <malloc.h>
#include <string>
#include <vector>

namespace {

using bench::Outcome;
using bench::Way;

constexpr std::int64_t global_batch = 64;
constexpr std::int64_t micro_batches = 4; // if one rank accumulates
constexpr un::Sgd sgd{.learning_rate = 0.05, .momentum = 0.9};

struct Candidate {
    const char* name;
    Way way;
    int ranks;
};

const std::vector<Candidate> candidates = {
    {"one rank", Way::one, 1},
    {"accumulation of 4", Way::accumulate, 1},
    {"DataParallel, 2", Way::replica_loss, 2},
    {"  loss on master, 2", Way::master_loss, 2},
    {"data-parallel, 2", Way::parallel, 2},
    {"DataParallel, 4", Way::replica_loss, 4},
    {"  loss on master, 4", Way::master_loss, 4},
    {"data-parallel, 4", Way::parallel, 4},
};

/// The master draws batches and makes steps with them. The others compute what they are sent, until
/// the master is done.
template <class World, class DataParallel>
void drive(const World& world, DataParallel& parallel, const un::RowData<float>& data, std::int64_t epochs,
           Outcome& outcome) {
    if (world.rank() == 0) {
        const un::ScatterSampler sampler{.shuffle = true, .seed = 0};
        const auto alone = un::shape_of_rank(sampler, static_cast<std::int64_t>(data.size()), global_batch, 1, 0);
        for (un::Epoch epoch{0}; epoch < un::Epoch{epochs}; epoch = epoch.next())
            for (auto stream = sampler.stream(alone, epoch); !stream.done();)
                parallel.step(data.batch(stream.next().samples));
        parallel.step(); // an empty batch: no more
        outcome.updates = parallel.report().updates;
        outcome.through = parallel.report().total_bytes();
    } else {
        while (parallel.step()) {
        }
    }
}

template <class World, class... Policies>
void fit(World& world, bench::TwoWayModel& model, const un::RowData<float>& data, std::int64_t epochs, Outcome& outcome,
         Policies... policies) {
    un::Trainer trainer{world,           model, un::DistributedSampler{.shuffle = true, .seed = 0},
                        un::BySamples{}, sgd,   policies...};
    trainer.fit(data, {.epochs = epochs, .global_batch_size = global_batch, .progress = false});
    if (world.rank() != 0) return;
    outcome.updates = trainer.updates();
    // All of a rank's gradients but its own part go out to be summed, and its part comes in from
    // all others. Then the sums go the other way. With any schedule this is 4 (p - 1) / p of the
    // gradients.
    const auto others = static_cast<std::uint64_t>(world.size() - 1);
    outcome.through = outcome.updates * trainer.layout().bytes() * 4 * others / (others + 1);
}

/// One way, from the first weights to the last, on all ranks.
template <class World>
void train(World& world, const Candidate& candidate, const std::vector<std::size_t>& widths,
           const digits::Split& images, std::int64_t epochs, Outcome& outcome) {
    const bench::Growth growth;
    digits::Network network(widths);
    bench::TwoWayModel model(network, {});
    const auto data = images.train.data();
    un::barrier(world);
    const auto traffic = world.traffic();
    const double begin = bench::now_s();
    Outcome own;
    switch (candidate.way) {
    case Way::one: [[fallthrough]];
    case Way::parallel: fit(world, model, data, epochs, own); break;
    case Way::accumulate: fit(world, model, data, epochs, own, un::Accumulate{.steps = micro_batches}); break;
    case Way::replica_loss: {
        un::DataParallel parallel{world, model, digits::Batch{}, sgd};
        drive(world, parallel, data, epochs, own);
        break;
    }
    case Way::master_loss: {
        un::MasterLossDataParallel parallel{world, network, digits::Batch{}, digits::CrossEntropyLoss{}, sgd};
        drive(world, parallel, data, epochs, own);
        break;
    }
    }
    un::barrier(world);
    own.seconds = bench::now_s() - begin;
    outcome.peak[world.rank()] = growth.peak();
    if (world.rank() != 0) return;
    outcome.seconds = own.seconds;
    outcome.updates = own.updates;
    outcome.through = own.through;
    outcome.own_moves =
        world.traffic().bytes_sent + world.traffic().bytes_received - traffic.bytes_sent - traffic.bytes_received;
    const auto test = images.test.data();
    un::AccuracyMetric accuracy;
    std::vector<std::size_t> indices(test.size());
    for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = i;
    un::MeanMetric loss;
    network.evaluate(test.batch(indices), loss, accuracy);
    outcome.accuracy = accuracy.value();
}

/// The results of one way, over all rounds.
struct Found {
    bench::Series times;
    Outcome last;
    bench::Prediction predicted; ///< of an update
};

std::string in_bytes(std::uint64_t bytes) { return bytes == 0 ? "-" : un::bytes_text(bytes); }

/// The reason why parallelism loses, from the model's parts.
std::string reason(const Candidate& candidate, const Found& found) {
    const double share = found.predicted.exchange / found.predicted.seconds;
    std::string text = bench::format("the exchange is %.0f %% of an update", share * 100);
    if (static_cast<std::size_t>(candidate.ranks) > bench::cores().size())
        text += ", and " + std::to_string(candidate.ranks) + " ranks share " + std::to_string(bench::cores().size()) +
                " cores";
    return text;
}

/// Returns false if a way failed, or trained to another result than the others.
bool compare(bench::Report& report, const std::vector<std::size_t>& widths, const digits::Split& images,
             std::int64_t epochs, int rounds) {
    const auto data = images.train.data();
    const bench::Shared<bench::Parts> parts;
    if (!bench::measure_parts(*parts, data, widths, global_batch, {2, 4})) return false;
    std::vector<Found> all(candidates.size());
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            const std::size_t at = (i + static_cast<std::size_t>(round)) % candidates.size();
            const Candidate& candidate = candidates[at];
            const bench::Shared<Outcome> outcome;
            const bool done = bench::in_child([&] {
                malloc_trim(0);
                un::run<un::SharedMemory>(
                    candidate.ranks, [&](auto& world) { train(world, candidate, widths, images, epochs, *outcome); },
                    {.bind_to_cores = candidate.ranks > 1});
            });
            if (!done) {
                std::fprintf(stderr, "ways_to_train: '%s' failed\n", candidate.name);
                return false;
            }
            all[at].times.add(outcome->seconds);
            all[at].last = *outcome;
        }
    }

    std::size_t parameters = 0;
    std::string shape = std::to_string(widths[0]);
    for (std::size_t l = 1; l < widths.size(); ++l) {
        parameters += (widths[l - 1] + 1) * widths[l];
        shape += "-" + std::to_string(widths[l]);
    }
    std::printf("\nnetwork %s, %s parameters; %lld epochs of %zu images, %lld images an update\n", shape.c_str(),
                un::count_text(parameters).c_str(), static_cast<long long>(epochs), data.size(),
                static_cast<long long>(global_batch));
    report.header(
        {"way, ranks", "time", "spread", "speed-up", "predicted", "accuracy", "peak memory", "through rank 0"});
    bool right = true;
    std::vector<std::string> warnings;
    const double one = all[0].times.median();
    const double one_predicted = bench::predict(*parts, Way::one, 1, 1).seconds;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        const Candidate& candidate = candidates[i];
        Found& found = all[i];
        found.predicted = bench::predict(*parts, candidate.way, static_cast<std::size_t>(candidate.ranks),
                                         static_cast<double>(micro_batches));
        const double speed_up = one / found.times.median();
        const double predicted = one_predicted / found.predicted.seconds;
        std::uint64_t peak = 0;
        for (const std::uint64_t rank : found.last.peak) peak = std::max(peak, rank);
        report.row({candidate.name, bench::format("%.1f ms", found.times.median() * 1e3),
                    bench::format("%.0f %%", found.times.spread() * 100), bench::format("%.2f x", speed_up),
                    bench::format("%.2f x", predicted), bench::format("%.2f %%", found.last.accuracy * 100),
                    in_bytes(peak), in_bytes(found.last.through)});
        report.add({{"case", std::string(candidate.name) + ", " + shape},
                    {"network", shape},
                    {"parameters", parameters},
                    {"ranks", candidate.ranks},
                    {"seconds", found.times.json()},
                    {"speed_up", speed_up},
                    {"predicted_speed_up", predicted},
                    {"predicted_exchange", found.predicted.exchange / found.predicted.seconds},
                    {"accuracy", found.last.accuracy},
                    {"updates", found.last.updates},
                    {"peak_bytes", peak},
                    {"bytes_through_rank_0", found.last.through}});
        if (speed_up < 1 && candidate.ranks > 1)
            warnings.push_back(std::string(candidate.name) +
                               bench::format(": parallelising loses, %.2f x the time of one rank; ", 1 / speed_up) +
                               reason(candidate, found));
        // The updates are the same, and their contents are equal up to the order of sums.
        if (found.last.updates != all[0].last.updates || std::abs(found.last.accuracy - all[0].last.accuracy) > 0.03) {
            std::fprintf(stderr, "ways_to_train: '%s' made %llu updates to %.4f, one rank %llu to %.4f\n",
                         candidate.name, static_cast<unsigned long long>(found.last.updates), found.last.accuracy,
                         static_cast<unsigned long long>(all[0].last.updates), all[0].last.accuracy);
            right = false;
        }
        // Over mapped memory a rank moves half of the bytes that pass through it. The others move
        // the rest.
        const auto moved = 2 * static_cast<double>(found.last.own_moves);
        if (candidate.way == Way::parallel && std::abs(moved / static_cast<double>(found.last.through) - 1) > 0.1) {
            std::fprintf(stderr, "ways_to_train: '%s' moved %.0f bytes through rank 0, expected %llu\n", candidate.name,
                         moved, static_cast<unsigned long long>(found.last.through));
            right = false;
        }
    }
    for (const std::string& warning : warnings) std::printf("warning: %s\n", warning.c_str());
    return right;
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("ways_to_train", options);
    try {
        const auto images = digits::split(digits::read(DIGITS_DATA), 357);
        const std::size_t in = digits::pixels;
        const std::size_t out = digits::kinds;
        const int rounds = options.quick ? 1 : 7;
        const bool small = compare(report, {in, 16, out}, images, options.quick ? 3 : 20, rounds);
        const bool large = options.quick || compare(report, {in, 512, 512, out}, images, 5, rounds);
        return small && large ? 0 : 1;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "ways_to_train: %s\n", failed.what());
        return 1;
    }
}
