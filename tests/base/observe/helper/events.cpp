// Writes an event file for check_events.py: observe_events FOLDER
#include <unisono/extensions/observe/tensorboard.hpp>

#include <cstdio>

namespace un = unisono;

struct Rank {
    [[nodiscard]] static int rank() { return 0; }
};

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    un::TensorBoardFile log(Rank{}, argv[1]);
    for (std::uint64_t step = 0; step < 1000; ++step)
        log.write(step * 1'000'003, {{"loss", 1.0 / static_cast<double>(step + 1)}, {"accuracy of a model", -0.5}});
}
