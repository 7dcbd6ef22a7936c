// Trains a small network on handwritten digits, data-parallel on any number of ranks, and tests it
// on images that it has not seen. With the same global batch, the number of ranks changes the time
// and almost nothing else.
//     digits --ranks 2                              threads of this process
//     digits --ranks 2 --transport shared_memory    processes that it forks
//     unisono-run -n 2 digits                       processes of a launcher

#include "../launched.hpp"
#include "../numbers.hpp"
#include "data.hpp"
#include "network.hpp"

#include <CLI/CLI.hpp>
#include <unisono/observe.hpp>
#include <unisono/trainers.hpp>

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <variant>

namespace {

using Optimizer = std::variant<un::Sgd, un::Adam, un::AdamW>;

const std::map<std::string, Optimizer> optimizers = {
    {"sgd", un::Sgd{.learning_rate = 0.1, .momentum = 0.9}},
    {"adam", un::Adam{.learning_rate = 0.003}},
    {"adamw", un::AdamW{.learning_rate = 0.003}},
};

struct Options {
    int ranks = 1;
    std::string transport = "in_process";
    std::int64_t epochs = 20;
    std::int64_t batch_size = 32; ///< samples, over all ranks
    std::size_t hidden = 64;
    std::string optimizer = "sgd";
    std::uint64_t seed = 0;
    std::string data = DIGITS_DATA;
    std::string metrics, trace; ///< files to write; empty: none
    bool quiet = false;
    bool bits = false;
};

/// Returns what the command line asks for, or the exit status.
std::variant<Options, int> parse(int argc, char** argv, const Place& place) {
    CLI::App app{"Trains a small network on handwritten digits, on one rank or several.", "digits"};
    Options options;
    const auto number = [&](const char* name, auto& value, long long least, long long most, const char* text) {
        return app.add_option(name, value, text)->check(numbers::from(least, most))->option_text("N");
    };
    const auto* ranks = number("--ranks", options.ranks, 1, 256, "Ranks (1); a launcher decides itself");
    app.add_option("--transport", options.transport,
                   "in_process: ranks are threads (the default); shared_memory: processes, as a launcher's always are")
        ->check(CLI::IsMember({"in_process", "shared_memory"}))
        ->option_text("NAME");
    number("--epochs", options.epochs, 1, 100'000, "Passes over the data (20)");
    number("--batch-size", options.batch_size, 1, 100'000, "Samples of an update: a multiple of the ranks (32)");
    number("--hidden", options.hidden, 1, 65'536, "Width of the hidden layer (64)");
    number("--seed", options.seed, 0, 0xffff'ffff, "Of the first weights and of the order of the samples (0)");
    app.add_option("--optimizer", options.optimizer, "sgd (the default), adam or adamw")
        ->check(CLI::IsMember(optimizers))
        ->option_text("NAME");
    app.add_option("--data", options.data, "The file of digits, by default that of this repository")
        ->option_text("FILE");
    app.add_option("--metrics", options.metrics, "Append each update's loss and speed to this file, as JSON lines")
        ->option_text("FILE");
    app.add_option("--trace", options.trace, "Write what each rank did when to this file, for Perfetto, and say so")
        ->option_text("FILE");
    app.add_flag("--quiet", options.quiet, "Neither plan nor progress");
    app.add_flag("--bits", options.bits, "Print a hash of the trained weights, too: equal if all of their bits are");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& help) {
        return place.prints() ? app.exit(help) : 0;
    } catch (const CLI::ParseError& wrong) {
        if (place.prints()) std::fprintf(stderr, "digits: %s (--help shows the options)\n", wrong.what());
        return 2;
    }
    if (place.launched()) {
        place.check(ranks->count() == 0 ? 0 : options.ranks);
        options.ranks = place.ranks();
    }
    return options;
}

/// The result of each rank. All but the time is the same on all ranks.
struct Found {
    double loss = 0;
    double accuracy = 0;
    double seconds = 0;                         ///< of training
    std::uint64_t hash = 14695981039346656037u; ///< of the weights' bits, FNV-1a
    std::vector<std::int32_t> predictions = {}; ///< of the test images, in their order
};

template <class World, class OptimizerPolicy>
Found train(World& world, const Options& options, const digits::Split& images, const OptimizerPolicy& optimizer) {
    digits::Network network({digits::pixels, options.hidden, digits::kinds}, options.seed);
    network.place_gradients_in(world);
    un::Trainer trainer{world,
                        network,
                        un::DistributedSampler{.shuffle = true, .seed = options.seed},
                        un::BySamples{}, // the last batch of an epoch is short
                        un::Trace{.events = options.trace.empty() ? 0 : 65'536},
                        optimizer};
    const un::FitOptions fit{
        .epochs = options.epochs, .global_batch_size = options.batch_size, .progress = !options.quiet};
    const auto train_data = images.train.data();
    const auto test_data = images.test.data();
    if (!options.quiet && world.rank() == 0) std::fputs(trainer.describe(train_data.size(), fit).c_str(), stderr);

    const auto start = std::chrono::steady_clock::now();
    std::optional<un::JsonLinesFile> metrics;
    if (!options.metrics.empty()) metrics.emplace(world, options.metrics);
    trainer.fit(train_data, fit, [&](const un::UpdateReport& report) {
        if (metrics) (*metrics)(report);
    });
    Found found;
    found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!options.trace.empty()) {
        const un::TraceReport report = un::report_trace(trainer);
        if (world.rank() == 0) std::fputs(report.text().c_str(), stderr);
        un::write_trace(trainer, options.trace);
    }
    for (const auto& part : network.parameters()) {
        for (const float weight : part)
            found.hash = (found.hash ^ std::bit_cast<std::uint32_t>(weight)) * 1099511628211u;
    }
    const auto [loss, accuracy] =
        trainer.evaluate(test_data, {.batch_size = 64}, un::MeanMetric{}, un::AccuracyMetric{});
    found.loss = loss.value();
    found.accuracy = accuracy.value();
    found.predictions = trainer.predict(test_data);
    return found;
}

void print(const Options& options, const digits::Images& test, double samples, const Found& found) {
    std::printf("test accuracy %.4f, loss %.4f, on %zu images\n", found.accuracy, found.loss, test.size());
    std::printf("trained on %s samples in %.2f s, %s samples/s, on %d rank%s\n",
                un::count_text(static_cast<std::size_t>(samples)).c_str(), found.seconds,
                un::count_text(static_cast<std::size_t>(samples / found.seconds)).c_str(), options.ranks,
                options.ranks == 1 ? "" : "s");
    if (options.bits) std::printf("bits %016llx\n", static_cast<unsigned long long>(found.hash));
    std::size_t wrong = 0;
    while (wrong < test.size() && found.predictions[wrong] == test.labels[wrong]) ++wrong;
    if (wrong == test.size()) return;
    std::printf("the first image not recognised, a %d taken for a %d:\n%s", test.labels[wrong],
                found.predictions[wrong],
                digits::drawing(std::span(test.values).subspan(wrong * digits::pixels, digits::pixels)).c_str());
}

} // namespace

int main(int argc, char** argv) {
    std::optional<Place> place;
    try {
        place.emplace();
        const auto parsed = parse(argc, argv, *place);
        if (const int* status = std::get_if<int>(&parsed)) return *status;
        const auto& options = std::get<Options>(parsed);
        const auto images = digits::split(digits::read(options.data), 357);
        const double samples = static_cast<double>(options.epochs) * static_cast<double>(images.train.size());
        place->run(options.transport, options.ranks, [&](auto& world) {
            std::visit(
                [&](const auto& optimizer) {
                    const Found found = train(world, options, images, optimizer);
                    if (world.rank() == 0) print(options, images.test, samples, found);
                },
                optimizers.at(options.optimizer));
        });
        return 0;
    } catch (const std::exception& failed) {
        tell(place, "digits", failed);
        return 2;
    }
}
