// Training a pipeline, on any ranks.
#pragma once

#include "any_schedule.hpp"
#include "network.hpp"

#include <array>

namespace unisono_test {

inline constexpr std::size_t parameter_count =
    (width + 1) * hidden + 6 * (hidden + 1) * hidden + (hidden + 1) * results;

struct Training {
    int data = 1;
    int stages = 1;
    AnySchedule schedule = {};
    std::uint32_t micro_batches = 4;
    bool recompute = false;
    std::int64_t batch = 12; ///< samples
};

/// The result. Each rank writes its part, which all can see, also if ranks are processes.
template <class T>
struct Trained {
    std::array<T, parameter_count> weights = {};
    double loss = 0;
    std::array<T, 40 * results> outputs = {};
    friend bool operator==(const Trained&, const Trained&) = default;
};

template <class T, class World, class... Policies>
void train(World& world, const Training& how, Trained<T>& out, const Policies&... policies) {
    const Samples<T> samples(40);
    un::Mesh mesh{world, {{"data", how.data}, {"pipeline", how.stages}}};
    un::PipelineModel model{
        mesh.axis("pipeline"), layers<T>(), Distance<T>{results}, how.schedule,
        un::PipelineOptions{.micro_batches = how.micro_batches,
                            .recompute = how.recompute,
                            .placement = even_placement(static_cast<std::size_t>(how.stages) * how.schedule.chunks)}};
    un::Trainer trainer{mesh.axis("data"), model, un::DistributedSampler{.shuffle = true, .seed = 2}, policies...};
    double loss = 0;
    trainer.fit(samples.data(), {.epochs = 2, .batch_size = how.batch, .progress = false},
                [&](const un::UpdateReport& report) { loss += report.loss; });
    trainer.verify_replicas();
    const auto outputs = trainer.predict(samples.data(), {.batch_size = 7});
    if (mesh.coordinate("data") == 0) {
        std::size_t p = 0;
        for (const std::string& name : model.parameter_names()) {
            const auto layer = static_cast<std::size_t>(std::stoi(name.substr(6))) / 2;
            const std::size_t at = layer == 0 ? 0 : (width + 1) * hidden + (layer - 1) * (hidden + 1) * hidden;
            const auto from = model.parameters()[p++];
            std::copy(from.begin(), from.end(), out.weights.begin() + static_cast<std::ptrdiff_t>(at));
        }
    }
    if (world.rank() == world.size() - 1) {
        out.loss = loss;
        std::copy(outputs.begin(), outputs.end(), out.outputs.begin());
    }
}

} // namespace unisono_test
