// Policies of your own: a reducer and an optimizer that the library does not have, in one trainer
// with the library's policies. A policy is a plain value with a name and a family. The header that
// opens the family's room (reducer/reducer.hpp, optimizer/optimizer.hpp) says what else the family
// requires. The compiler says what is missing.

#include "../digits/data.hpp"
#include "../digits/network.hpp"

#include <cmath>
#include <cstdio>
#include <exception>

/// A tree for small gradients, because it has few rounds. A ring for large ones, because it sends
/// few bytes.
struct BySizeReducer {
    std::size_t ring_from_bytes = 64 << 10;

    static constexpr std::string_view name = "by size";
    static constexpr un::Family family = un::Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = false; // for replicas that all update all parameters
    friend bool operator==(const BySizeReducer&, const BySizeReducer&) = default;

    struct Run {
        std::size_t ring_from_bytes;

        template <class World, class T>
        un::Operation sum(World& world, std::span<T> values) {
            if (values.size_bytes() < ring_from_bytes)
                return un::start_all_reduce(world, values, un::Sum{}, un::TreeSchedule{});
            return un::start_all_reduce(world, values, un::Sum{}, un::RingSchedule{});
        }
    };
    template <class World>
    [[nodiscard]] Run start(World&) const {
        return {ring_from_bytes};
    }
};

/// Lion (Chen et al. 2023): p -= rate * sign(beta1 * m + (1 - beta1) * g), then m = beta2 * m + (1
/// - beta2) * g.
struct LionOptimizer {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.99;

    static constexpr std::string_view name = "Lion";
    static constexpr un::Family family = un::Family::optimizer;
    friend bool operator==(const LionOptimizer&, const LionOptimizer&) = default;

    void check() const {
        if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1))
            un::refuse_input("LionOptimizer: found beta1 " + std::to_string(beta1) + " and beta2 " +
                             std::to_string(beta2) + "; expected at least 0 and less than 1");
    }
    [[nodiscard]] un::StateArrays state() const { // by name, so that a checkpoint can keep it
        un::StateArrays arrays;
        arrays.add({"momentum"});
        return arrays;
    }
    template <class T>
    void update(const un::OptimizerSlice<T>& state, std::span<T> parameters, std::span<const T> gradients,
                const un::OptimizerStep& step) const {
        const T scale = T(step.gradient_scale), rate = T(step.learning_rate), b1 = T(beta1), b2 = T(beta2);
        un::apply(
            [=](T& p, const T& gradient, T& m) {
                const T g = gradient * scale;
                const T direction = b1 * m + (1 - b1) * g;
                p -= rate * (T(direction > 0) - T(direction < 0));
                m = b2 * m + (1 - b2) * g;
            },
            parameters, gradients, std::span<T>(state.arrays[0], state.count));
    }
};

static_assert(un::reducer_policy<BySizeReducer, un::Group<un::InProcess>> && un::optimizer_policy<LionOptimizer>);

int main() try {
    const auto images = digits::split(digits::read(DIGITS_DATA), 357);
    un::run<un::InProcess>(2, [&](auto& world) {
        digits::Network network({digits::pixels, 64, digits::kinds});
        un::Trainer trainer{world, network, BySizeReducer{}, LionOptimizer{}};
        trainer.fit(images.train.data(), {.epochs = 30, .batch_size = 16, .progress = false});
        const auto [loss, accuracy] = trainer.evaluate(images.test.data(), {}, un::MeanMetric{}, un::AccuracyMetric{});
        if (world.rank() == 0) std::printf("%stest accuracy %.4f\n", trainer.describe().c_str(), accuracy.value());
    });
} catch (const std::exception& failed) {
    std::fprintf(stderr, "own_policy: %s\n", failed.what());
    return 1;
}
