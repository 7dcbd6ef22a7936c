// Policies that stand for several and are chosen at run time, so that few Trainers are compiled and
// many combinations run. Policies that change a Trainer's code are compiled instead: owners of
// slices, sums on a grid, and what a guard examines.
#pragma once

#include "together/matrix/own_policies.hpp"

#include <unisono/unisono.hpp>

#include <unisono/extensions/automatic/reducer.hpp>
#include <unisono/extensions/compression/adasum.hpp>
#include <unisono/extensions/compression/cast.hpp>
#include <unisono/extensions/compression/fp8.hpp>
#include <unisono/extensions/compression/int8.hpp>
#include <unisono/extensions/compression/one_bit.hpp>
#include <unisono/extensions/compression/top_k.hpp>
#include <unisono/extensions/reducers/hierarchical.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

namespace device_matrix {

namespace un = unisono;

/// Calls visit() with the element of the tuple at `choice`.
template <std::size_t I = 0, class Tuple, class Visit>
auto with_choice(std::size_t choice, const Tuple& all, const Visit& visit) {
    if constexpr (I + 1 < std::tuple_size_v<Tuple>) {
        if (choice != I) return with_choice<I + 1>(choice, all, visit);
    }
    return visit(std::get<I>(all));
}

/// One of the policies in `Choices::all`.
template <class Choices>
struct Chosen {
    std::size_t choice = 0;
    static constexpr std::string_view name = "chosen";
    static constexpr un::Family family = Choices::kind;
    static constexpr std::size_t choices = std::tuple_size_v<std::remove_cvref_t<decltype(Choices::all)>>;
    friend bool operator==(const Chosen&, const Chosen&) = default;

    template <class Visit>
    auto with(const Visit& visit) const {
        return with_choice(choice, Choices::all, visit);
    }
    void check() const {
        with([](const auto& one) {
            if constexpr (requires { one.check(); }) one.check();
        });
    }

    // samplers
    [[nodiscard]] std::int64_t replicas_per_rank() const {
        return with([](const auto& one) { return one.replicas_per_rank(); });
    }
    [[nodiscard]] un::SampleStream stream(const un::SamplerShape& shape, un::Epoch epoch,
                                          std::int64_t consumed = 0) const {
        return with([&](const auto& one) { return one.stream(shape, epoch, consumed); });
    }
    // accumulations
    static constexpr bool counts_tokens = true;
    [[nodiscard]] un::AccumulationWindow window(std::int64_t hosted) const {
        return with([&](const auto& one) { return one.window(hosted); });
    }
    // weighings
    static constexpr bool needs_samples = true;
    static constexpr bool needs_tokens = true;
    [[nodiscard]] un::Share share(const un::MicroBatchFacts& facts) const {
        return with([&](const auto& one) { return one.share(facts); });
    }
    // learning rates
    [[nodiscard]] double rate(double base, const un::RatePoint& point) const {
        return with([&](const auto& one) { return one.rate(base, point); });
    }
};

struct Samplers {
    static constexpr un::Family kind = un::Family::sampler;
    static constexpr std::tuple all = {un::DistributedSampler{.seed = 6},
                                       un::InterleavedSampler{.replicas = 2, .seed = 7}, un::SequentialSampler{},
                                       un::ScatterSampler{.seed = 8}};
};
struct Accumulations {
    static constexpr un::Family kind = un::Family::accumulation;
    static constexpr std::tuple all = {un::NoAccumulation{}, un::Accumulate{.steps = 4},
                                       un::Accumulate{.steps = 2, .short_window = un::ShortWindow::drop},
                                       un::AccumulateSamples{.samples = 7}, un::AccumulateTokens{.tokens = 20}};
};
struct Weighings {
    static constexpr un::Family kind = un::Family::weighing;
    static constexpr std::tuple all = {un::ReplicasAlike{}, un::BySamples{}, un::ByTokens{}};
};
struct Rates {
    static constexpr un::Family kind = un::Family::learning_rate;
    static constexpr std::tuple all = {un::ConstantRate{}, un::WarmupRate{.updates = 3, .start_factor = 0.1},
                                       un::CosineRate{.final_factor = 0.1, .updates = 20},
                                       un::StepDecayRate{.every = 4, .factor = 0.5}};
};
struct Optimizers {
    static constexpr un::Family kind = un::Family::optimizer;
    static constexpr std::tuple all = {
        un::Sgd{.learning_rate = 1, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01},
        un::Adam{.learning_rate = 1}, un::AdamW{.learning_rate = 1}, un::Adagrad{.learning_rate = 1},
        un::RmsProp{.learning_rate = 1, .momentum = 0.5}};
};
/// The compile time of optimizers is that of their kernels for every instruction set. So all
/// optimizers are compiled for sums of numbers, and two for sums on grids.
struct FewOptimizers {
    static constexpr un::Family kind = un::Family::optimizer;
    static constexpr std::tuple all = {un::Sgd{.learning_rate = 1, .momentum = 0.8}, un::AdamW{.learning_rate = 1}};
};
struct Reducers {
    static constexpr un::Family kind = un::Family::reducer;
    static constexpr std::tuple all = {un::NativeReducer{},
                                       un::RingReducer{.chunk_bytes = 16},
                                       un::TreeReducer{},
                                       un::HalvingDoublingReducer{},
                                       un::HierarchicalReducer{.ranks_per_host = 2, .ring_bytes = 16},
                                       un::AutomaticReducer{}};
};

template <class Choices>
struct ChosenOptimizer : Chosen<Choices> {
    double learning_rate = 0.05;
    friend bool operator==(const ChosenOptimizer&, const ChosenOptimizer&) = default;
    [[nodiscard]] un::StateArrays state() const {
        return this->with([](const auto& one) { return one.state(); });
    }
    template <class T, class Where = un::OnHost>
    void update(const un::OptimizerSlice<T>& slice, std::span<T> parameters,
                std::type_identity_t<std::span<const T>> gradients, const un::OptimizerStep& step,
                const Where& where = {}) const {
        this->with([&](const auto& one) { one.update(slice, parameters, gradients, step, where); });
    }
};

struct Shardings {
    static constexpr un::Family kind = un::Family::sharding;
    static constexpr std::tuple all = {un::StateSharding{}, unisono_matrix::EqualShards{},
                                       un::ParameterServerReducer{.servers = 1}, un::Replicated{}};
};
struct ChosenSharding : Chosen<Shardings> {
    static constexpr bool gives_owners = true;
    friend bool operator==(const ChosenSharding&, const ChosenSharding&) = default;
    [[nodiscard]] un::Owners owners(const un::BucketFacts& facts) const {
        return with([&](const auto& one) { return one.owners(facts); });
    }
};

/// No choice sums all slices at once. NativeReducer does, and is compiled as itself.
struct ChosenReducer : Chosen<Reducers> {
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const ChosenReducer&, const ChosenReducer&) = default;

    template <class All>
    struct Run {
        std::size_t choice;
        All all;
        template <class World, class Values>
        un::Operation sum(World& group, Values values) const {
            return with_choice(choice, all, [&](const auto& one) { return one.sum(group, values); });
        }
        template <class World, class Values>
        un::Operation sum_to(World& group, Values values, int owner) const {
            return with_choice(choice, all, [&](const auto& one) { return one.sum_to(group, values, owner); });
        }
        template <class World, class Values>
        un::Operation publish(World& group, Values values, int owner) const {
            return with_choice(choice, all, [&](const auto& one) { return one.publish(group, values, owner); });
        }
    };
    template <class World>
    [[nodiscard]] auto start(World& world) const {
        return std::apply(
            [&](const auto&... one) {
                std::tuple all{one.start(world)...};
                return Run<decltype(all)>{choice, all};
            },
            Reducers::all);
    }
};

/// The run of the chosen compression.
template <class... Runs>
class ChosenRun {
public:
    template <std::size_t I, class World, class... Arguments>
    ChosenRun(std::in_place_index_t<I> which, World& world, const Arguments&... arguments)
        : run_(which, world, arguments...) {}

    template <class T, class Reduction>
    void begin(std::size_t b, T* values, Reduction& reduction) {
        std::visit([&](auto& one) { one.begin(b, values, reduction); }, run_);
    }
    void finish() {
        std::visit([](auto& one) { one.finish(); }, run_);
    }
    void forget() {
        std::visit([](auto& one) { one.forget(); }, run_);
    }
    [[nodiscard]] std::size_t bytes() const {
        return std::visit([](const auto& one) { return one.bytes(); }, run_);
    }

private:
    std::variant<Runs...> run_;
};

struct ChosenCast {
    std::size_t choice = 0;
    static constexpr std::size_t choices = 2;
    static constexpr std::string_view name = "chosen cast";
    static constexpr un::Family family = un::Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = false;
    static constexpr bool sums_to_owners = true;
    friend bool operator==(const ChosenCast&, const ChosenCast&) = default;
    void check() const {}

    template <class T, class World, class Where>
    auto start_on(const Where& where, World& world, std::span<const un::Slice> buckets) const {
        using Run = ChosenRun<un::Bf16Wire::Run<World, T, Where>, un::Fp16Wire::Run<World, T, Where>>;
        return choice == 0 ? Run(std::in_place_index<0>, world, where, buckets, true)
                           : Run(std::in_place_index<1>, world, where, buckets, false);
    }
    template <class T, class World>
    auto start(World& world, std::span<const un::Slice> buckets) const {
        return start_on<T>(un::detail::WiresOnHost<World>(world), world, buckets);
    }
};

struct ChosenExchange {
    std::size_t choice = 0;
    static constexpr std::size_t choices = 5;
    static constexpr std::string_view name = "chosen exchange";
    static constexpr un::Family family = un::Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = true;
    friend bool operator==(const ChosenExchange&, const ChosenExchange&) = default;
    void check() const {}

    template <class T, class World>
    auto start(World& world, std::span<const un::Slice> buckets,
               std::span<const un::ParameterMatrix> parameters) const {
        using Run = ChosenRun<un::Int8Wire::Run<World, T>, un::Fp8Wire::Run<World, T>, un::OneBit::Run<World, T>,
                              un::TopK::Run<World, T>, un::Adasum::Run<World, T>>;
        switch (choice) {
        case 0: return Run(std::in_place_index<0>, world, buckets, un::Int8Wire{.block = 4});
        case 1: return Run(std::in_place_index<1>, world, buckets, un::Fp8Wire{.block = 4});
        case 2: return Run(std::in_place_index<2>, world, buckets, un::OneBit{.warm_up = 2, .block = 4});
        case 3: return Run(std::in_place_index<3>, world, buckets, un::TopK{.fraction = 0.4});
        default: return Run(std::in_place_index<4>, world, buckets, parameters);
        }
    }
};

/// No clipping, or clipping by norm or by value.
struct ChosenClipping {
    std::size_t choice = 0;
    static constexpr std::size_t choices = 3;
    static constexpr std::string_view name = "chosen clipping";
    static constexpr un::Family family = un::Family::clipping;
    static constexpr bool measures_norm = true;
    static constexpr bool changes_elements = true;
    static constexpr bool needs_agreement = true;
    friend bool operator==(const ChosenClipping&, const ChosenClipping&) = default;
    void check() const {}
    [[nodiscard]] double factor(double norm) const {
        return choice == 1 ? un::ClipByNorm{.max_norm = 0.3}.factor(norm) : 1;
    }
    template <class T>
    [[nodiscard]] auto element(double scale) const {
        return un::ClipByValue{.limit = choice == 2 ? 0.1 : 1e30}.element<T>(scale);
    }
    template <class T>
    void clip(std::span<T> gradients, double scale) const {
        un::ClipByValue{.limit = choice == 2 ? 0.1 : 1e30}.clip(gradients, scale);
    }
};

} // namespace device_matrix
