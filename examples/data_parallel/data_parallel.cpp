// A published comparison in PyTorch: DistributedDataParallel on two GPUs and gradient accumulation
// on one GPU train to equal weights. Here the weights are equal to the bit. Ranks are threads, or
// processes that a launcher started:
//     data_parallel
//     unisono-run -n 4 data_parallel --reducer ring

#include "output.hpp"

/// torch.nn.Linear(width, 1, bias=False) with all weights 1. The loss is the sum of its outputs.
struct LinearModel {
    static constexpr un::GradientKind gradient_kind = un::GradientKind::sum;
    std::vector<float> weights, gradient;

    explicit LinearModel(std::size_t width) : weights(width, 1.0f), gradient(width) {}

    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }

    double operator()(const un::RowBatch<float>& batch, un::Pass&) {
        double loss = 0;
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            const auto x = batch.row(i);
            for (std::size_t j = 0; j < weights.size(); ++j) {
                loss += static_cast<double>(weights[j]) * static_cast<double>(x[j]);
                gradient[j] += x[j];
            }
        }
        return loss;
    }
};

/// Returns the weights after the last epoch, in the process of rank 0.
std::vector<float> train(const Place& place, const Options& options, const Configuration& run) {
    const auto width = static_cast<std::size_t>(run.data_size);
    const std::vector<float> values = un::torch_rand(run.seed, width * width);
    const un::RowData data(values, width);
    std::vector<float> weights;

    const auto on_each_rank = [&](auto& world, const auto& reducer) {
        LinearModel model(width);
        un::Trainer trainer{world,
                            model,
                            run.sampler_policy(),
                            un::Accumulate{.steps = run.acc_steps},
                            reducer,
                            un::Sgd{.learning_rate = 0.01, .momentum = 0.9}};
        Narrator narrator(options, run);
        trainer.fit(data, {.epochs = run.epochs, .batch_size = run.batch_size, .progress = false},
                    [&](const un::UpdateReport& update) {
                        if (options.verbose && world.rank() == 0) narrator(update, model.weights);
                    });
        trainer.verify_replicas();
        if (world.rank() == 0) weights = model.weights;
    };
    place.run("in_process", run.ranks, [&](auto& world) {
        std::visit([&](const auto& reducer) { on_each_rank(world, reducer); }, run.reducer_policy());
    });
    return weights;
}

int main(int argc, char** argv) {
    std::optional<Place> place;
    try {
        place.emplace();
        const auto parsed = parse(argc, argv, *place);
        if (const int* status = std::get_if<int>(&parsed)) return *status;
        const auto& options = std::get<Options>(parsed);
        std::vector<std::vector<float>> weights;
        for (const Configuration& run : options.runs) weights.push_back(train(*place, options, run));
        return !place->prints() || report(options, weights) ? 0 : 1;
    } catch (const std::exception& failed) {
        tell(place, "data_parallel", failed);
        return 2;
    }
}
