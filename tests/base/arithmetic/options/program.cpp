// Prints a hash of what the library computes, which must not depend on the options with which this
// file is compiled. Gradients are made from integers; the program itself computes nothing.
#include <unisono/extensions/compression/cast.hpp>
#include <unisono/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <bit>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

std::uint64_t hash = 14695981039346656037u;
void mix(std::span<const float> values) {
    for (const float value : values) hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211u;
}

/// Of many magnitudes, with zeros of both signs, and subnormal ones if `low` is 0.
std::vector<float> numbers(int seed, std::size_t count, std::uint32_t low) {
    std::vector<float> all(count);
    std::uint32_t state = 12345u + static_cast<std::uint32_t>(seed) * 7919u;
    for (float& one : all) {
        state = state * 1664525u + 1013904223u;
        const std::uint32_t exponent = low + (state >> 8) % 30u;
        one = std::bit_cast<float>((state >> 3) % 17u == 0 ? state & 0x80000000u
                                                           : (state & 0x807fffffu) | exponent << 23);
    }
    return all;
}

const float nan = std::bit_cast<float>(0x7fc00000u);
const float infinity = std::bit_cast<float>(0x7f800000u);
const double wide_nan = std::bit_cast<double>(std::uint64_t{0x7ff8000000000000});

struct Model {
    std::vector<float> weights = numbers(9, 64, 110), gradient = std::vector<float>(64);
    int bad_gradient = -1, bad_loss = -1;
    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }
    double operator()(int sample, un::Pass&) {
        const auto given = numbers(sample, 64, 110);
        std::memcpy(gradient.data(), given.data(), 256);
        if (sample == bad_gradient) gradient[7] = sample % 2 == 0 ? nan : infinity;
        return sample == bad_loss ? wide_nan : 0.5;
    }
};

void collectives() {
    un::run<un::InProcess>(3, [](auto& world) {
        for (const std::uint32_t low : {0u, 110u}) {
            const auto given = numbers(world.rank(), 1001, low);
            const auto reduce = [&](const auto& op, const auto& family) {
                auto values = given;
                un::all_reduce(world, values, op, family);
                if (world.rank() == 0) mix(values);
            };
            reduce(un::Sum{}, un::NativeSchedule{});
            reduce(un::Sum{}, un::RingSchedule{});
            reduce(un::Product{}, un::NativeSchedule{});
            reduce(un::WeightedMean{.weight = world.rank() + 1.1}, un::NativeSchedule{});
            reduce(un::Min{}, un::NativeSchedule{});
            reduce(un::Max{}, un::TreeSchedule{});
        }
        std::vector<float> special = {world.rank() == 1 ? nan : infinity, infinity, world.rank() == 2 ? -0.0f : 0.0f,
                                      nan};
        for (int i = 0; i < 2; ++i) {
            auto values = special;
            if (i == 0) un::all_reduce(world, values, un::Max{});
            else un::all_reduce(world, values, un::Min{});
            if (world.rank() == 0) mix(values);
        }
    });
}

template <class... Policies>
void train(int ranks, Policies... policies) {
    un::run<un::InProcess>(ranks, [&](auto& world) {
        Model model;
        un::Trainer trainer{world, model, policies...};
        for (int i = 0; i < 30; ++i) trainer.step(i * 2 + world.rank());
        if (world.rank() == 0) mix(model.weights);
    });
}

/// Neither may be committed, and the rest must be.
void guards() {
    un::run<un::InProcess>(2, [](auto& world) {
        Model model;
        model.bad_gradient = 5;
        model.bad_loss = 9;
        un::Trainer trainer{world, model, un::FiniteGuard{.action = un::OnOffence::skip},
                            un::Sgd{.learning_rate = 0.01}};
        for (int i = 0; i < 8; ++i) {
            const auto report = trainer.step(i * 2 + world.rank());
            if (world.rank() == 0) hash = hash * 3 + (report.committed ? 1 : 0);
            if (report.committed == (i == 2 || i == 4)) std::printf("update %d: the guard is wrong\n", i);
        }
        if (world.rank() == 0) mix(model.weights);
    });
    bool refused = false;
    try {
        train(1, un::Sgd{.learning_rate = wide_nan});
    } catch (const un::error&) {
        refused = true;
    }
    un::MaxMetric most;
    most.add(1);
    most.add(wide_nan);
    const auto bits = std::bit_cast<std::uint64_t>(most.value());
    if (!refused || (bits & 0x7ff8000000000000u) != 0x7ff8000000000000u) std::printf("NaN passes\n");
}

} // namespace

int main() {
    try {
        collectives();
        train(2, un::Sgd{.learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0.01});
        train(2, un::AdamW{.learning_rate = 0.01});
        train(2, un::ClipByNorm{.max_norm = 0.37}, un::Adagrad{});
        train(2, un::Bf16Wire{}, un::RmsProp{.learning_rate = 0.01, .centered = true});
        train(2, un::Replicas{.count = 2}, un::Reproducible{}, un::ClipByNorm{.max_norm = 0.37});
        guards();
    } catch (const std::exception& failed) {
        std::printf("%s\n", failed.what());
        return 1;
    }
    std::printf("%016" PRIx64 "\n", hash);
}
