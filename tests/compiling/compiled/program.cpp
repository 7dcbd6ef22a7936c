// A program that is compiled in both modes: its output has the bits of collectives and trainings,
// and an error's message.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#ifdef UNISONO_TEST_MODULE
import unisono;
#else
#ifdef UNISONO_TEST_PARTS
#include <unisono/extensions/checkpoint/checkpoints.hpp>
#include <unisono/hosts.hpp>
#endif
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>
#endif

#include "../../support/linear.hpp"

namespace un = unisono;

namespace {

template <class T, class Op>
void reduce(auto& world, const char* name, Op op, bool prints) {
    std::vector<T> data(1037);
    for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<T>(1.0f + 0.37f * static_cast<float>(i % 11) + static_cast<float>(world.rank()));
    un::all_reduce(world, data, op);
    std::uint64_t hash = 14695981039346656037u;
    for (const std::byte each : std::as_bytes(std::span(data)))
        hash = (hash ^ std::to_integer<std::uint64_t>(each)) * 1099511628211u;
    if (prints) std::printf("%s %s\n", name, un::hash_text(hash).c_str());
}

template <class... Policies>
void train(auto& world, const un::RowData<float>& data, const char* name, const Policies&... policies) {
    test::Linear model;
    un::Trainer trainer{world, model, un::DistributedSampler{.shuffle = true, .seed = 3}, policies...};
    static_cast<void>(trainer.fit(data, {.epochs = 2, .batch_size = 4}));
    const un::StateHash hash = un::state_hash(trainer);
    if (world.rank() == 0)
        std::printf("%s %s %s\n", name, un::hash_text(hash.parameters).c_str(), un::hash_text(hash.optimizer).c_str());
}

template <class Transport>
void all(int ranks) {
    const std::vector<float> values = un::torch_rand(0, 64 * 8);
    const un::RowData data(values, 8);
    un::run<Transport>(ranks, [&](auto& world) {
        const bool first = world.rank() == 0;
        reduce<float>(world, "sum of floats", un::Sum{}, first);
        reduce<double>(world, "product of doubles", un::Product{}, first);
        reduce<un::bfloat16>(world, "sum of bfloat16", un::Sum{}, first);
        reduce<std::int32_t>(world, "max of int32", un::Max{}, first);
        reduce<float>(
            world, "an operation of the program", [](float a, float b) { return a + 2 * b - a * b / 64; }, first);
        auto half = world.split(world.rank() % 2, 0);
        reduce<float>(half, "in a subgroup", un::Min{}, first);
        train(world, data, "ring", un::RingReducer{}, un::Sgd{.learning_rate = 0.1});
        train(world, data, "tree, accumulated", un::TreeReducer{}, un::Accumulate{.steps = 2},
              un::AdamW{.learning_rate = 0.01});
        train(world, data, "on a grid", un::Reproducible{}, un::Sgd{.learning_rate = 0.1, .momentum = 0.9});
        std::fflush(stdout);
    });
    try {
        un::run<Transport>(ranks, [&](auto& world) {
            std::vector<float> data_of_rank(world.rank() == 0 ? 3u : 5u);
            un::all_reduce(world, data_of_rank);
        });
    } catch (const un::error& error) {
        const std::string text = error.what();
        std::printf("error %d %s\n", static_cast<int>(error.why().code), text.substr(0, text.find(": rank")).c_str());
    }
}

#ifdef UNISONO_TEST_PARTS
/// What the library has in parts of its own: groups over sockets, and checkpoints.
void parts() {
    un::run<un::Tcp>(2, [](auto& world) { reduce<float>(world, "over Tcp", un::Sum{}, world.rank() == 0); });
    un::run<un::Hosts<un::Tcp>>(2, [](auto& world) { reduce<float>(world, "Hosts", un::Sum{}, world.rank() == 0); });
    std::string folder = std::filesystem::temp_directory_path() / "unisono-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) std::exit(1);
    const std::vector<float> values = un::torch_rand(0, 64 * 8);
    const un::RowData data(values, 8);
    un::run<un::InProcess>(2, [&](auto& world) {
        un::Checkpoints checkpoints(folder);
        for (const bool resumes : {false, true}) {
            test::Linear model;
            un::Trainer trainer{world, model, un::AdamW{.learning_rate = 0.01}};
            if (resumes) static_cast<void>(checkpoints.resume(trainer));
            static_cast<void>(trainer.fit(data, {.epochs = 1, .batch_size = 4}));
            if (!resumes) checkpoints.save(trainer);
            const std::string hash = un::hash_text(un::state_hash(trainer).parameters);
            if (world.rank() == 0) std::printf("%s %s\n", resumes ? "resumed" : "saved", hash.c_str());
        }
    });
    std::filesystem::remove_all(folder);
}
#endif

} // namespace

int main() {
    std::printf("mode: %s\n",
#ifdef UNISONO_COMPILED
                "compiled"
#else
                "headers"
#endif
    );
    std::fflush(stdout);
    all<un::InProcess>(3);
    std::fflush(stdout);
    all<un::SharedMemory>(2);
#ifdef UNISONO_TEST_PARTS
    parts();
#endif
    std::puts("end");
}
