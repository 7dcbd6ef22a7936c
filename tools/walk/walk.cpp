// The calls of walk.py, compiled with -finstrument-functions. Prints the depth and the address of
// each function that rank 0 enters during twenty calls, after three calls that make plans and
// memory.
#include "unisono/unisono.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#define NOT_TRACED __attribute__((no_instrument_function))

namespace un = unisono;

namespace {

struct Entered {
    void* function;
    int depth;
};
bool recording = false;
int depth = 0;
std::vector<Entered>* entered = nullptr;

NOT_TRACED void print() {
    std::FILE* const maps = std::fopen("/proc/self/maps", "r");
    unsigned long base = 0;
    if (maps == nullptr || std::fscanf(maps, "%lx", &base) != 1) return;
    std::fclose(maps);
    for (const Entered& one : *entered)
        std::printf("%d %lx\n", one.depth,
                    static_cast<unsigned long>(reinterpret_cast<std::uintptr_t>(one.function)) - base);
}

struct Ones {
    std::vector<float> values = std::vector<float>(3000);
    std::vector<float> gradient = std::vector<float>(3000);
    auto parameters() { return std::array{std::span<float>(values)}; }
    auto gradients() { return std::array{std::span<float>(gradient)}; }
    template <class Batch>
    double operator()(const Batch&, un::Pass&) {
        for (float& one : gradient) one += 1;
        return 1.0;
    }
};

template <class Call>
void record(int rank, Call&& call) {
    for (int i = 0; i < 23; ++i) {
        recording = rank == 0 && i >= 3;
        call();
        recording = false;
    }
    if (rank == 0) print();
}

} // namespace

extern "C" {
NOT_TRACED void __cyg_profile_func_enter(void* function, void*) {
    if (!recording) return;
    recording = false;
    if (entered == nullptr) entered = new std::vector<Entered>;
    entered->push_back({function, depth++});
    recording = true;
}
NOT_TRACED void __cyg_profile_func_exit(void*, void*) {
    if (recording) --depth;
}
}

int main(int count, char** arguments) {
    const std::string_view what = count == 2 ? arguments[1] : "";
    if (what == "sampler") { // From Replicas to the indices of a micro-batch
        const un::DistributedSampler sampler{.shuffle = true};
        const un::Replicas replicas{4};
        record(0, [&] {
            auto stream = sampler.stream(replicas.shape(sampler, 100, 4, 2, 0), un::Epoch{1});
            while (!stream.done()) static_cast<void>(stream.next());
        });
        return 0;
    }
    un::run<un::SharedMemory>(2, [&](auto& world) {
        if (what == "all_reduce") {
            auto memory = world.template allocate<float>(3000);
            const std::span<float> data(memory.data(), memory.size());
            record(world.rank(), [&] { un::all_reduce(world, data); });
        } else {
            Ones model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}};
            const std::vector<int> batch(4);
            record(world.rank(), [&] { trainer.step(batch); });
        }
    });
}
