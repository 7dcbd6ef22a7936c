// The purpose of component devices: a Trainer on a GPU, in a source that nvcc does not compile.
// Without a GPU, the program says so.
#include <unisono/cuda.hpp>
#include <unisono/unisono.hpp>

#include <cstdio>
#include <vector>

/// One gradient, which does not depend on the batch.
struct Model {
    unisono::DeviceMemory<float> weights, gradient, one;
    cudaStream_t on = nullptr;

    std::vector<unisono::DeviceSpan<float>> parameters() { return {weights.span()}; }
    std::vector<unisono::DeviceSpan<float>> gradients() { return {gradient.span()}; }
    [[nodiscard]] cudaStream_t stream() const { return on; }
    double operator()(int, unisono::Pass&) {
        unisono::StreamArithmetic<cudaStream_t>(on).accumulate(std::span(gradient.data(), gradient.size()),
                                                               std::span<const float>(one.data(), one.size()), 1.0);
        return 0;
    }
};

int main() {
    try {
        auto world = unisono::join<unisono::Cuda<unisono::Tcp>>();
        const auto make = [&](float value) {
            auto made = unisono::allocate_on_device<float>(world, 100);
            unisono::StreamArithmetic<cudaStream_t>(nullptr).fill(std::span(made.data(), made.size()), value);
            return made;
        };
        Model model{make(4), make(0), make(1)};
        unisono::Trainer trainer{world, model, unisono::Sgd{.learning_rate = 1}};
        trainer.step(0);
        float first = 0;
        trainer.visit_parameters({0, 1}, [&](std::size_t, std::span<const float> values) { first = values[0]; });
        std::printf("consumer with devices: %d rank, sum %.0f\n", world.size(), double(first));
        return first == 3.0f ? 0 : 1;
    } catch (const unisono::error& failed) {
        std::printf("consumer with devices: %s\n", failed.what());
        return failed.code() == unisono::ErrorCode::refused ? 0 : 1;
    }
}
