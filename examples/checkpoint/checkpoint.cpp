// A killed training continues from its last checkpoint, on the same number of ranks or another, and
// ends with the same bits.
//     checkpoint --folder run --ranks 3 --die 47     is killed after update 47; saves every 10
//     checkpoint --folder run --ranks 2              continues from update 40, on two ranks
//     unisono-run -n 4 checkpoint --folder run       or on processes
//     checkpoint --ranks 1                           is never killed: prints the same hash

#include "../digits/data.hpp"
#include "../digits/network.hpp"
#include "../launched.hpp"
#include "../numbers.hpp"

#include <unisono/checkpoint.hpp>
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>

#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <unistd.h>

namespace {

struct Options {
    int ranks = 2;
    std::string folder = {}; ///< empty: no checkpoints
    std::uint64_t die = 0;   ///< after this update; 0: never
    bool background = false;
};

template <class World>
void train(World& world, const Options& options, const digits::Split& images) {
    constexpr std::int64_t epochs = 2;
    digits::Network network({digits::pixels, 16, digits::kinds});
    un::Trainer trainer{world,
                        network,
                        un::Replicas{.count = 6}, // a global batch of 6 x 5 images, on 1 to 6 ranks
                        un::Reproducible{},       // the same bits on any number of ranks
                        un::StateSharding{},      // each rank has and saves its own slices of it
                        un::AdamW{.learning_rate = 0.003}};
    std::optional<un::Checkpoints> checkpoints;
    if (!options.folder.empty()) {
        checkpoints.emplace(options.folder, un::CheckpointOptions{.keep = 2, .background = options.background});
        const auto from = checkpoints->resume(trainer);
        if (from && world.rank() == 0)
            std::printf("goes on from %s, which %d rank%s wrote\n", from->name.c_str(), from->world,
                        from->world == 1 ? "" : "s");
    }
    const std::int64_t left = epochs - trainer.position().epoch.number();
    if (left > 0)
        trainer.fit(images.train.data(), {.epochs = left, .batch_size = 5, .seed = 1, .progress = false},
                    [&](const un::UpdateReport& report) {
                        if (checkpoints && report.number % 10 == 0) checkpoints->save(trainer);
                        if (report.number == options.die && world.rank() == world.size() - 1)
                            ::kill(::getpid(), SIGKILL);
                    });
    if (checkpoints) checkpoints->wait(trainer);
    const un::StateHash hash = un::state_hash(trainer);
    if (world.rank() == 0)
        std::printf("%llu updates, parameters %s, optimizer %s\n", static_cast<unsigned long long>(trainer.updates()),
                    un::hash_text(hash.parameters).c_str(), un::hash_text(hash.optimizer).c_str());
}

} // namespace

int main(int argc, char** argv) {
    std::optional<Place> place;
    try {
        place.emplace();
        Options options;
        CLI::App app{"Trains on handwritten digits, is killed, and goes on.", "checkpoint"};
        const auto* ranks = app.add_option("--ranks", options.ranks, "Ranks (2); a launcher decides itself")
                                ->check(numbers::from(1, 6));
        app.add_option("--folder", options.folder, "Where checkpoints are; by default there are none");
        app.add_option("--die", options.die, "The last rank kills its process after this update")
            ->check(numbers::at_least(std::uint64_t{0}));
        app.add_flag("--background", options.background, "Write checkpoints while training goes on");
        try {
            app.parse(argc, argv);
        } catch (const CLI::Success& help) {
            return place->prints() ? app.exit(help) : 0;
        } catch (const CLI::ParseError& wrong) {
            if (place->prints()) std::fprintf(stderr, "checkpoint: %s (--help shows the options)\n", wrong.what());
            return 2;
        }
        place->check(ranks->count() == 0 ? 0 : options.ranks);
        const auto images = digits::split(digits::read(DIGITS_DATA), 357);
        place->run("in_process", options.ranks, [&](auto& world) { train(world, options, images); });
        return 0;
    } catch (const std::exception& failed) {
        tell(place, "checkpoint", failed);
        return 2;
    }
}
