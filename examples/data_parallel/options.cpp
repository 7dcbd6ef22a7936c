#include "options.hpp"

#include "../numbers.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>

std::variant<Options, int> parse(int argc, char** argv, const Place& place) {
    CLI::App app{
        "Trains a linear layer data-parallel on 2 ranks, then with gradient accumulation on 1, and compares the "
        "weights.\nGiven --ranks or --acc-steps, or started by unisono-run, torchrun or mpirun, it runs just that "
        "configuration.",
        "data_parallel"};
    app.footer("Exit status: 0, or 1 if the compared weights differ, or 2 after an error.");
    Configuration run;
    Options options;
    bool distributed = false;
    const auto number = [&](const char* names, auto& value, long long most, const char* text) {
        return app.add_option(names, value, std::string(text) + ", 1 to " + std::to_string(most))
            ->check(numbers::from(1LL, most))
            ->option_text("N");
    };
    const auto* ranks =
        number("--ranks", run.ranks, 1024, "Ranks, each a thread of this process; a launcher decides itself");
    const auto* steps =
        number("--acc-steps,--acc_steps", run.acc_steps, 65536, "Micro-batches of a rank in each update");
    number("--epochs", run.epochs, 1'000'000, "Passes over the data (2)");
    number("--batch-size,--batch_size", run.batch_size, 16384, "Samples of a micro-batch (4)");
    number("--data-size,--data_size", run.data_size, 16384, "Samples, and numbers in each sample (8)");
    app.add_option("--seed", run.seed, "Of the data, and of --shuffle (0)")
        ->check(numbers::at_least(std::uint64_t{0}))
        ->option_text("N");
    auto* sampler =
        app.add_option("--sampler", run.sampler,
                       "Who gets which samples: distributed, or interleaved (a rank stands for as many as it "
                       "has accumulation steps); the default for --ranks 1 with --acc-steps above 1 is "
                       "interleaved, else distributed")
            ->check(CLI::IsMember({"distributed", "interleaved"}))
            ->option_text("NAME");
    app.add_flag("--distributed", distributed, "The same as --sampler distributed, on 2 ranks unless --ranks is given")
        ->excludes(sampler)
        ->option_text(" ");
    app.add_option(
           "--reducer", run.reducer,
           "How gradients are summed: automatic, halving-doubling, native (the default), parameter-server, ring "
           "or tree")
        ->check(CLI::IsMember({"automatic", "halving-doubling", "native", "parameter-server", "ring", "tree"}))
        ->option_text("NAME");
    app.add_flag("--shuffle", run.shuffle, "Draw a new order of the samples each epoch");
    app.add_flag("--verbose", options.verbose, "Show each rank's micro-batches, and the weights after each update");
    app.add_flag("--json", options.json, "Print one JSON object and nothing else; weights as C hexadecimal floats");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& help) {
        return place.prints() ? app.exit(help) : 0;
    } catch (const CLI::ParseError& wrong) {
        if (place.prints()) std::fprintf(stderr, "data_parallel: %s (--help shows the options)\n", wrong.what());
        return 2;
    }
    if (distributed) run.sampler = "distributed";
    if (place.launched()) {
        place.check(ranks->count() == 0 ? 0 : run.ranks);
        run.ranks = place.ranks();
        options.runs = {run};
    } else if (ranks->count() + steps->count() != 0 || distributed) {
        if (ranks->count() == 0 && !distributed) run.ranks = 1;
        options.runs = {run};
    } else {
        Configuration alone = run;
        alone.ranks = 1;
        alone.acc_steps = run.ranks;
        options.runs = {run, alone};
    }
    return options;
}
