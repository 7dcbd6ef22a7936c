// PyTorch's DataParallel, and what its master costs. The same digits and the same network are
// trained in three ways, to the same weights: without a master; with a master that scatters the
// data and gathers the gradients; and with a master that also computes the loss.

#include "../digits/data.hpp"
#include "../digits/network.hpp"
#include "../numbers.hpp"

#include <unisono/trainers.hpp>

#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>

namespace {

constexpr std::int64_t batch_size = 32; // of all ranks together
constexpr un::Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
// Gives each rank the samples that a master would send to it.
constexpr un::ScatterSampler sampler{.shuffle = true, .seed = 0};

/// The weights after training, and the bytes that went through the master.
struct Found {
    std::vector<float> weights = {};
    un::MasterReport master = {};
};

/// Trains by `body(world, network, found)` on each rank.
template <class Body>
Found train(int ranks, Body body) {
    Found found;
    un::run<un::InProcess>(ranks, [&](auto& world) {
        digits::Network network({digits::pixels, 64, digits::kinds});
        const un::MasterReport master = body(world, network);
        if (world.rank() == 0) found = {{network.values().begin(), network.values().end()}, master};
    });
    return found;
}

std::string difference(const Found& found, const Found& from) {
    float largest = 0;
    for (std::size_t i = 0; i < found.weights.size(); ++i)
        largest = std::max(largest, std::abs(found.weights[i] - from.weights[i]));
    char text[32];
    std::snprintf(text, sizeof text, "%.1e", static_cast<double>(largest));
    return largest == 0 ? "none" : text;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Trains digits without a master, with one, and with the loss on it.", "data_parallel_master"};
    int ranks = 4;
    std::int64_t epochs = 5;
    app.add_option("--ranks", ranks, "Ranks, each a thread of this process (4)")
        ->check(numbers::from(1, 256))
        ->option_text("N");
    app.add_option("--epochs", epochs, "Passes over the data (5)")->check(numbers::from(1, 10'000))->option_text("N");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& wrong) {
        std::fprintf(stderr, "data_parallel_master: %s (--help shows the options)\n", wrong.what());
        return 2;
    }
    try {
        const auto images = digits::split(digits::read(DIGITS_DATA), 357);
        const auto data = images.train.data();

        const Found distributed = train(ranks, [&](auto& world, auto& network) {
            un::Trainer trainer{world, network, sampler, un::BySamples{}, sgd};
            trainer.fit(data, {.epochs = epochs, .batch_size = batch_size, .progress = false});
            return un::MasterReport{};
        });
        const Found replicas = train(ranks, [&](auto& world, auto& network) {
            un::DataParallel parallel{world, network, digits::Batch{}, sgd};
            parallel.fit(data, {.epochs = epochs, .batch_size = batch_size, .sampler = sampler});
            return parallel.report();
        });
        const Found master = train(ranks, [&](auto& world, auto& network) {
            un::MasterLossDataParallel parallel{world, network, digits::Batch{}, digits::CrossEntropyLoss{}, sgd};
            parallel.fit(data, {.epochs = epochs, .batch_size = batch_size, .sampler = sampler});
            return parallel.report();
        });

        un::Table table{"",        ">inputs",       ">outputs",   ">gradients", ">parameters",
                        ">in all", ">extra memory", ">difference"};
        const auto row = [&](const char* name, const Found& found) {
            const un::MasterReport& m = found.master;
            table.row({name, un::bytes_text(m.input_bytes), un::bytes_text(m.output_bytes),
                       un::bytes_text(m.gradient_bytes), un::bytes_text(m.parameter_bytes),
                       un::bytes_text(m.total_bytes()), un::bytes_text(m.peak_bytes), difference(found, distributed)});
        };
        row("no master", distributed);
        row("loss in the replicas", replicas);
        row("loss on the master", master);
        std::printf("%llu updates on %d ranks; through the master, its extra memory, and the largest difference of a "
                    "weight:\n%s",
                    static_cast<unsigned long long>(replicas.master.updates), ranks, table.text().c_str());
        return 0;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "data_parallel_master: %s\n", failed.what());
        return 2;
    }
}
