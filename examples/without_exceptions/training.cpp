// The only file that includes the library, and the only one that is compiled with exceptions. It
// turns exceptions into values.
#include "training.hpp"

#include <unisono/model/functional.hpp>
#include <unisono/unisono.hpp>

namespace un = unisono;

Trained train(const std::vector<float>& rows, int ranks, double learning_rate) {
    Trained found;
    const un::Fault fault = un::outcome_of([&] {
        un::run<un::InProcess>(ranks, [&](auto& world) {
            Line line;
            un::BufferModel model(line.weights, line.gradient, [&](const un::RowBatch<float>& batch, un::Pass&) {
                return line.add_gradient(batch.values);
            });
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = learning_rate}};
            trainer.fit(un::RowData(rows, 3), {.epochs = 200, .batch_size = 4, .progress = false});
            if (world.rank() == 0) found.weights = line.weights;
        });
    });
    found.status = static_cast<int>(fault.code);
    found.message = fault.message;
    return found;
}
