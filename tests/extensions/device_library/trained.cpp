// Trains models of DeviceSpans and prints the hash of each training's state, and trains the same
// models on the host: the bits must be equal where they are promised. The test compiles this source
// for the library unisono::devices by g++ and by clang, and header-only, and compares the lines
// (check.py); tests/on_gpu.sh does so on a GPU, header-only by nvcc.
#if !defined(UNISONO_TEST_ON_GPU) && !defined(UNISONO_DEVICES)
#include "extensions/nccl/stand_in/thrust_arithmetic.hpp"
#endif
#include "extensions/device/chosen.hpp"

#include <unisono/compression.hpp>
#include <unisono/master_weights.hpp>
#include <unisono/nccl.hpp>
#include <unisono/reproducible.hpp>
#include <unisono/unisono.hpp>
#include <unisono/updates.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace un = unisono;

namespace {

// --- a model on the host and on a device
// -----------------------------------------------------------

const std::vector<std::size_t> sizes = {7, 1, 260, 33};

/// The gradient pulls each weight towards a number that depends on the batch.
template <class T>
std::vector<T> gradient_of(const std::vector<T>& values, std::size_t parameter, int batch) {
    std::vector<T> made;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto place = static_cast<float>(i % 13) - 6.0f + static_cast<float>(parameter);
        const float target = place / 3.0f + static_cast<float>(batch % 5) / 7.0f;
        made.push_back(static_cast<T>(0.3f * (static_cast<float>(values[i]) - target)));
    }
    return made;
}
template <class T>
std::vector<T> initial(std::size_t parameter) {
    std::vector<T> made;
    for (std::size_t i = 0; i < sizes[parameter]; ++i)
        made.push_back(static_cast<T>(static_cast<float>((i * 37 + parameter) % 11) / 4.0f - 1.0f));
    return made;
}

template <class T>
struct HostModel {
    std::vector<std::vector<T>> values, sums;

    template <class World>
    explicit HostModel(World&) {
        for (std::size_t p = 0; p < sizes.size(); ++p) values.push_back(initial<T>(p)), sums.emplace_back(sizes[p]);
    }
    std::vector<std::span<T>> parameters() { return {values.begin(), values.end()}; }
    std::vector<std::span<T>> gradients() { return {sums.begin(), sums.end()}; }
    double operator()(int batch, un::Pass&) {
        for (std::size_t p = 0; p < sizes.size(); ++p) {
            const std::vector<T> add = gradient_of(values[p], p, batch);
            un::accumulate(std::span<T>(sums[p]), std::span<const T>(add), 1.0);
        }
        return 1.0 / (1 + batch);
    }
};

void check(cudaError_t code, const char* call) { un::detail::check_cuda(code, call); }

/// Its arithmetic is the host's, on copies of the device's weights; the sum is the device's.
template <class T>
struct DeviceModel {
    un::detail::CudaStream on = un::detail::CudaStream::make();
    un::StreamArithmetic<cudaStream_t> arithmetic{on.get()};
    std::vector<un::DeviceMemory<T>> values, sums, staging;

    template <class World>
    explicit DeviceModel(World& world) {
        for (std::size_t p = 0; p < sizes.size(); ++p) {
            for (auto* const all : {&values, &sums, &staging})
                all->push_back(un::allocate_on_device<T>(world, sizes[p]));
            const std::vector<T> first = initial<T>(p);
            copy(values[p].data(), first.data(), first.size(), cudaMemcpyHostToDevice);
            arithmetic.zero(std::span<T>(sums[p].data(), sizes[p]));
            wait();
        }
    }
    ~DeviceModel() { static_cast<void>(cudaStreamSynchronize(on.get())); }
    DeviceModel(const DeviceModel&) = delete;
    DeviceModel& operator=(const DeviceModel&) = delete;

    std::vector<un::DeviceSpan<T>> parameters() { return spans(values); }
    std::vector<un::DeviceSpan<T>> gradients() { return spans(sums); }
    [[nodiscard]] cudaStream_t stream() const { return on.get(); }
    double operator()(int batch, un::Pass&) {
        for (std::size_t p = 0; p < sizes.size(); ++p) {
            std::vector<T> here(sizes[p]);
            copy(here.data(), values[p].data(), here.size(), cudaMemcpyDeviceToHost);
            wait();
            const std::vector<T> add = gradient_of(here, p, batch);
            copy(staging[p].data(), add.data(), add.size(), cudaMemcpyHostToDevice);
            arithmetic.accumulate(std::span<T>(sums[p].data(), sizes[p]),
                                  std::span<const T>(staging[p].data(), sizes[p]), 1.0);
            wait();
        }
        return 1.0 / (1 + batch);
    }

private:
    static std::vector<un::DeviceSpan<T>> spans(std::vector<un::DeviceMemory<T>>& all) {
        std::vector<un::DeviceSpan<T>> made;
        for (un::DeviceMemory<T>& one : all) made.push_back(one.span());
        return made;
    }
    void copy(T* to, const T* from, std::size_t count, cudaMemcpyKind kind) const {
        check(cudaMemcpyAsync(to, from, count * sizeof(T), kind, on.get()), "cudaMemcpyAsync");
    }
    void wait() const { check(cudaStreamSynchronize(on.get()), "cudaStreamSynchronize"); }
};

/// Their kernels are those of the optimizer that is chosen.
struct LibraryOptimizers {
    static constexpr un::Family kind = un::Family::optimizer;
    static constexpr std::tuple all = {un::Sgd{.weight_decay = 0.01},
                                       un::Sgd{.momentum = 0.8},
                                       un::Sgd{.momentum = 0.8, .nesterov = true, .weight_decay = 0.01},
                                       un::Adam{.weight_decay = 0.01},
                                       un::AdamW{},
                                       un::AdamW{.amsgrad = true},
                                       un::Adagrad{},
                                       un::RmsProp{},
                                       un::RmsProp{.momentum = 0.5},
                                       un::RmsProp{.centered = true},
                                       un::RmsProp{.momentum = 0.5, .centered = true}};
};
using Optimizer = device_matrix::ChosenOptimizer<LibraryOptimizers>;
using device_matrix::ChosenClipping;

// --- trainings
// -------------------------------------------------------------------------------------

template <class Transport, class Make, class... Policies>
std::string trained(int ranks, const Make& make, const Policies&... policies) {
    std::string hash;
    un::run<Transport>(ranks, [&](auto& world) {
        make(world, [&](auto& model) {
            un::Trainer trainer{world, model, un::Buckets{.first_bytes = 64, .bytes = 700}, policies...};
            for (int i = 0; i < 7; ++i) trainer.step(2 * i + world.rank());
            trainer.synchronise();
            const un::StateHash found = un::state_hash(trainer);
            if (world.rank() == 0) hash = un::hash_text(found.parameters) + " " + un::hash_text(found.optimizer);
        });
    });
    return hash;
}

int failures = 0;
int ranks_of_devices = 2;

/// `promised`: the device has the host's bits.
template <class T, bool Mixed, class... Policies>
void same(const std::string& name, bool promised, const Policies&... policies) {
    const auto make = [](auto on_device, auto& world, const auto& with) {
        std::conditional_t<decltype(on_device)::value, DeviceModel<T>, HostModel<T>> model(world);
        if constexpr (!Mixed) {
            with(model);
        } else if constexpr (!decltype(on_device)::value) {
            un::MasterWeights master(model);
            with(master);
        } else {
            un::MasterWeights master(world, model);
            with(master);
        }
    };
    const int ranks = ranks_of_devices;
    const std::string host = trained<un::InProcess>(
        ranks, [&](auto& world, const auto& with) { make(std::false_type(), world, with); }, policies...);
    const std::string device = trained<un::Nccl>(
        ranks, [&](auto& world, const auto& with) { make(std::true_type(), world, with); }, policies...);
    std::printf("%s: %s\n", name.c_str(), device.c_str());
    if (!promised || host == device) return;
    std::printf("  differs from the host's %s\n", host.c_str());
    ++failures;
}

template <class T, bool Mixed, class... Policies>
void all_optimizers(const std::string& name, bool exact_norm, const Policies&... policies) {
    for (std::size_t optimizer = 0; optimizer < Optimizer::choices; ++optimizer)
        for (std::size_t clipping = 0; clipping < ChosenClipping::choices; ++clipping)
            same<T, Mixed>(name + " " + std::to_string(optimizer) + " " + std::to_string(clipping),
                           exact_norm || clipping != 1, Optimizer{{optimizer}, 0.05}, ChosenClipping{clipping},
                           policies...);
}

} // namespace

int main() {
    try {
#ifdef UNISONO_TEST_ON_GPU
        const char* const shares = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
        const bool shared = shares != nullptr && std::string(shares) == "1" && un::detail::loaded_nccl() >= 23000;
        if (un::detail::visible_devices() < 2 && !shared) ranks_of_devices = 1;
#endif
        all_optimizers<float, false>("float, ring", false, un::RingReducer{});
        all_optimizers<float, false>("float, on a grid", true, un::Reproducible{}, un::StateSharding{});
        all_optimizers<un::bfloat16, true>("bfloat16, narrow grid", true, un::NarrowReproducible{});
        same<un::float16, true>("float16", true, un::AdamW{}, un::ClipByValue{.limit = 0.1});
        same<double, false>("double, 16 bits on the wire", true, un::Sgd{}, un::Fp16Wire{});
        same<double, false>("double, local steps", true, un::Sgd{}, un::LocalSteps{.steps = 2});
        same<float, false>("float, DiLoCo", true, un::Sgd{},
                           un::StreamingDiloco<>{.steps = 4, .fragments = 2, .mix = 0.5});
    } catch (const un::error& failed) {
        std::printf("%s\n", failed.what());
        return 1;
    }
    std::printf("%d differ\n", failures);
    return failures != 0;
}
