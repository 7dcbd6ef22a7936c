// Handwritten digits by a network whose layers are on several ranks (--pipeline), with replicas of
// it on others (--data). Ranks are threads, or processes that a launcher has started on one or
// several machines (--transport tcp).
//
//     unisono-run -n 4 parallel_digits --pipeline 2 --data 2
#include "layers.hpp"

#include "../launched.hpp"
#include "../numbers.hpp"

#include <unisono/tcp.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>

namespace {

struct Options {
    int data = 1, pipeline = 2;
    std::uint32_t micro_batches = 4;
    bool recompute = false;
    std::int64_t epochs = 6;
    std::size_t hidden = 48, depth = 7;
    std::string transport = "memory";
};

template <class World>
void train(World& world, const Options& options, const digits::Split& images) {
    un::Mesh mesh{world, {{"data", options.data}, {"pipeline", options.pipeline}}};
    un::PipelineModel model{
        mesh.axis("pipeline"), parallel_digits::layers(options.hidden, options.depth), parallel_digits::CrossEntropy{},
        un::OneForwardOneBackward{},
        un::PipelineOptions{.micro_batches = options.micro_batches, .recompute = options.recompute}};
    const bool speaks = world.rank() == 0;
    if (speaks) std::printf("%s\n%s", mesh.describe().c_str(), model.describe().c_str());
    const auto data = images.train.data(), test = images.test.data();
    un::Trainer trainer{mesh.axis("data"), model, un::StateSharding{},
                        un::DistributedSampler{.shuffle = true, .seed = 1}, un::Adam{.learning_rate = 0.003}};
    trainer.fit(data, {.epochs = options.epochs, .global_batch_size = 32, .progress = false});
    const auto [accuracy] = trainer.evaluate(
        test, {.batch_size = 60},
        [](auto& trained, const auto& batch, un::AccuracyMetric& found) {
            const auto outputs = trained.predict(batch);
            for (std::size_t row = 0; row < batch.rows(); ++row) {
                const auto of_row = outputs.subspan(row * digits::kinds, digits::kinds);
                const auto most = std::max_element(of_row.begin(), of_row.end()) - of_row.begin();
                found.add(most == batch.labels[row]);
            }
        },
        un::AccuracyMetric{});
    // The sum of all ranks' parameters, each layer counted once.
    std::array<double, 1> sum = {0};
    if (mesh.coordinate("data") == 0)
        for (const auto one : model.parameters())
            for (const float value : one) sum[0] += std::abs(static_cast<double>(value));
    un::all_reduce(world, sum);
    const un::PipelineMemory memory = model.memory();
    if (speaks)
        std::printf("accuracy %.4f, sum of all weights %.9f; rank 0 holds %s of parameters, %s of activations\n",
                    accuracy.value(), sum[0], un::bytes_text(memory.parameters).c_str(),
                    un::bytes_text(memory.activations).c_str());
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Trains a network whose layers are on several ranks.", "parallel_digits"};
    Options options;
    app.add_option("--data", options.data, "Replicas (1)")->check(numbers::from(1, 64));
    app.add_option("--pipeline", options.pipeline, "Ranks over which the layers of a replica are spread (2)")
        ->check(numbers::from(1, 8));
    app.add_option("--micro-batches", options.micro_batches, "Into which a replica's batch is cut (4)")
        ->check(numbers::from(1, 32));
    app.add_flag("--recompute", options.recompute, "Keep no activations but a stage's inputs");
    app.add_option("--epochs", options.epochs, "Passes over the data (6)")->check(numbers::from(1, 1000));
    app.add_option("--transport", options.transport, "memory (threads; processes under a launcher), or tcp (memory)")
        ->check(CLI::IsMember({"memory", "tcp"}));
    CLI11_PARSE(app, argc, argv);
    std::optional<Place> place;
    try {
        place.emplace();
        const auto images = digits::split(digits::read(DIGITS_DATA), 357);
        const auto body = [&](auto& world) { train(world, options, images); };
        if (options.transport == "tcp") un::run_joined<un::Tcp>(body);
        else place->run("in_process", options.data * options.pipeline, body);
        return 0;
    } catch (const std::exception& failed) {
        tell(place, "parallel_digits", failed);
        return 2;
    }
}
