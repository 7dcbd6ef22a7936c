// Owners read the peers' gradients and write their parameters directly. The bits are those of ranks
// that each update all parameters: for any ranks, micro-batches, buckets and memory, also after a
// skipped update.
#include "support/ranks.hpp"

#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

constexpr std::size_t count = 9001; // no multiple of a cache line, larger than a chunk

struct Batch {
    float value = 0;
    std::size_t samples() const { return 1; }
};

/// A model in one range. `of_group`: in memory that all ranks of any transport see.
struct Model {
    template <class World>
    Model(World& world, bool of_group) : own(of_group ? 0 : 2 * count) {
        if (of_group) shared = world.template allocate<float>(2 * count);
        for (std::size_t i = 0; i < count; ++i) all()[i] = std::sin(static_cast<float>(i));
    }
    std::span<float> all() { return own.empty() ? std::span<float>(shared) : std::span<float>(own); }
    /// Three adjacent parameters.
    static std::array<std::span<float>, 3> in_parts(std::span<float> whole) {
        return {whole.first(3000), whole.subspan(3000, 17), whole.subspan(3017)};
    }
    auto parameters() { return in_parts(all().first(count)); }
    auto gradients() { return in_parts(all().last(count)); }
    double operator()(const Batch& batch, un::Pass& pass) {
        const std::span<float> gradient = all().last(count);
        for (std::size_t i = 0; i < count; ++i)
            gradient[i] += batch.value * std::cos(static_cast<float>(i)) + 0.01f * all()[i];
        for (const std::size_t parameter : {2u, 1u, 0u}) pass.ready(parameter);
        return batch.value;
    }
    std::vector<float> own;
    un::Memory<float> shared;
};

struct Result {
    std::array<float, count> weights;
    std::uint64_t bytes_sent; ///< of rank 0
};

enum class Memory { of_group, own, mixed };

template <class Transport, class... Policies>
void train(int ranks, Memory memory, Result& result, const Policies&... policies) {
    un::run<Transport>(ranks, [&](auto& world) {
        Model model(world, memory == Memory::of_group || (memory == Memory::mixed && world.rank() == 0));
        un::Trainer trainer{world, model, un::NativeReducer{}, un::FiniteGuard{.action = un::OnOffence::skip},
                            policies...};
        const auto mine = static_cast<float>(world.rank() + 1);
        for (int step = 0; step < 6; ++step) {
            const Batch one{mine + static_cast<float>(step)}, other{-0.3f * mine};
            const Batch none{std::numeric_limits<float>::quiet_NaN()};
            if (step == 2) {
                if (trainer.step(world.rank() == ranks - 1 ? none : one).committed)
                    throw std::runtime_error("a gradient that is no number was committed");
            } else if (step == 3 && world.rank() == 0) trainer.step(); // nothing to add
            else if (step % 2 == 0) trainer.step(one);
            else trainer.step(one, other);
        }
        trainer.verify_replicas();
        if (world.rank() != 0) return;
        std::memcpy(result.weights.data(), model.all().data(), sizeof result.weights);
        result.bytes_sent = world.traffic().bytes_sent;
    });
}

template <class Transport, class... Policies>
void compare(const std::string& what, const Policies&... policies) {
    for (const int ranks : {1, 2, 3}) {
        const test::Shared<Result> replicated;
        train<Transport>(ranks, Memory::of_group, *replicated, policies...);
        for (const Memory memory : {Memory::of_group, Memory::own, Memory::mixed}) {
            const test::Shared<Result> sharded;
            train<Transport>(ranks, memory, *sharded, un::StateSharding{}, policies...);
            const std::string where =
                what + ", " + std::to_string(ranks) + " ranks, memory " + std::to_string(static_cast<int>(memory));
            BOOST_TEST(replicated->weights[count - 1] != std::sin(static_cast<float>(count - 1)), where);
            BOOST_TEST(std::memcmp(&sharded->weights, &replicated->weights, sizeof sharded->weights) == 0, where);
            // Five updates write a slice to each peer. If one rank's memory is not visible, all
            // ranks take the other path.
            const bool seen = std::is_same_v<Transport, un::InProcess> || memory == Memory::of_group;
            const std::uint64_t slices = 5 * sizeof(float) * count / static_cast<std::uint64_t>(ranks);
            if (ranks > 1) BOOST_TEST((sharded->bytes_sent >= slices / 2) == seen, where);
        }
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(sharding_owners)

BOOST_AUTO_TEST_CASE(on_threads) { compare<un::InProcess>("Sgd", un::Sgd{.learning_rate = 0.1, .momentum = 0.9}); }

BOOST_AUTO_TEST_CASE(on_processes, *boost::unit_test::enable_if<!test::under_thread_sanitizer>()) {
    compare<un::SharedMemory>("Adam in buckets", un::Adam{}, un::Buckets{.first_bytes = 512, .bytes = 4096});
    compare<un::SharedMemory>("clipped", un::Sgd{.learning_rate = 0.1}, un::ClipByValue{.limit = 0.5});
}

BOOST_AUTO_TEST_SUITE_END()
