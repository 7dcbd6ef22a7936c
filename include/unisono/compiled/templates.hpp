#pragma once

/// \file
/// The umbrella's templates that the library `unisono::compiled` has (core/config.hpp): the
/// executor, groups of ranks as threads and as processes with the schedules of their collectives
/// and what a training agrees on, and the kernels of the built-in operations and optimizers. In
/// header-only mode this is empty. UNISONO_IMPLEMENTATION also defines here what tells a program of
/// one mode from a mixture.

#include "unisono/arithmetic/operations.hpp"
#include "unisono/compiled/groups.hpp"
#include "unisono/core/random.hpp"
#include "unisono/data/data.hpp"
#include "unisono/data/loader.hpp"
#include "unisono/group/run.hpp"
#include "unisono/group/run_processes.hpp"
#include "unisono/observe/progress.hpp"
#include "unisono/optimizer/adagrad.hpp"
#include "unisono/optimizer/adam.hpp"
#include "unisono/optimizer/rmsprop.hpp"
#include "unisono/optimizer/sgd.hpp"
#include "unisono/sampler/samplers.hpp"
#include "unisono/schedule/families.hpp"
#include "unisono/trainer/fit.hpp"
#include "unisono/trainer/summation.hpp"
#include "unisono/trainer/training.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/transport/shared_memory.hpp"

#if defined(UNISONO_COMPILED_TEMPLATE)
UNISONO_NAMESPACE_BEGIN

// Kernels.
#define UNISONO_COMPILED_KERNEL(Op, T)                                                                              \
    UNISONO_COMPILED_TEMPLATE void detail::combine_kernel<Op, T>(const void*, const std::byte* const*, std::size_t, \
                                                                 std::byte* const*, std::size_t, std::size_t);
#define UNISONO_COMPILED_KERNELS(T)     \
    UNISONO_COMPILED_KERNEL(Sum, T)     \
    UNISONO_COMPILED_KERNEL(Product, T) \
    UNISONO_COMPILED_KERNEL(Min, T)     \
    UNISONO_COMPILED_KERNEL(Max, T)
UNISONO_COMPILED_KERNELS(float)
UNISONO_COMPILED_KERNELS(double)
UNISONO_COMPILED_KERNELS(bfloat16)
UNISONO_COMPILED_KERNELS(float16)
UNISONO_COMPILED_KERNELS(std::int32_t)
UNISONO_COMPILED_KERNELS(std::int64_t)
UNISONO_COMPILED_KERNELS(std::uint8_t)
UNISONO_COMPILED_KERNELS(std::uint32_t)
UNISONO_COMPILED_KERNELS(std::uint64_t)
#undef UNISONO_COMPILED_KERNELS
#undef UNISONO_COMPILED_KERNEL

UNISONO_COMPILED_TEMPLATE void detail::combine_few<detail::Few<Sum>, double>(const void*, const std::byte* const*,
                                                                             std::size_t, std::byte* const*,
                                                                             std::size_t, std::size_t);

#define UNISONO_COMPILED_UPDATE(Policy, T)                    \
    UNISONO_COMPILED_TEMPLATE void Policy::update<T, OnHost>( \
        const OptimizerSlice<T>&, std::span<T>, std::span<const T>, const OptimizerStep&, const OnHost&) const;
#define UNISONO_COMPILED_NUMBERS(T)                                                                  \
    UNISONO_COMPILED_UPDATE(Sgd, T)                                                                  \
    UNISONO_COMPILED_UPDATE(Adam, T)                                                                 \
    UNISONO_COMPILED_UPDATE(AdamW, T)                                                                \
    UNISONO_COMPILED_UPDATE(Adagrad, T)                                                              \
    UNISONO_COMPILED_UPDATE(RmsProp, T)                                                              \
    UNISONO_COMPILED_TEMPLATE class OptimizerState<T>;                                               \
    UNISONO_COMPILED_TEMPLATE class detail::HostKernels<T>;                                          \
    UNISONO_COMPILED_TEMPLATE class detail::CarrierToAll<T>;                                         \
    UNISONO_COMPILED_TEMPLATE class detail::CarrierToOwners<T>;                                      \
    UNISONO_COMPILED_TEMPLATE class detail::FlatModel<T>;                                            \
    UNISONO_COMPILED_TEMPLATE class detail::FusedCarrier<T>;                                         \
    UNISONO_COMPILED_TEMPLATE class detail::GradientSum<T>;                                          \
    UNISONO_COMPILED_TEMPLATE class detail::FloatGradient<T>;                                        \
    UNISONO_COMPILED_TEMPLATE class detail::PlainSquares<T>;                                         \
    UNISONO_COMPILED_TEMPLATE class detail::Update<T>;                                               \
    UNISONO_COMPILED_TEMPLATE class detail::WholeStore<T>;                                           \
    UNISONO_COMPILED_TEMPLATE std::size_t first_non_finite<const T>(std::span<const T>);             \
    UNISONO_COMPILED_TEMPLATE std::size_t first_at_least<const T>(std::span<const T>, int);          \
    UNISONO_COMPILED_TEMPLATE void scale<T>(std::span<T>, std::span<const T>, double);               \
    UNISONO_COMPILED_TEMPLATE void scale<T>(std::span<T>, double);                                   \
    UNISONO_COMPILED_TEMPLATE void accumulate<T, T>(std::span<T>, std::span<T>, double);             \
    UNISONO_COMPILED_TEMPLATE void accumulate<T, const T>(std::span<T>, std::span<const T>, double); \
    UNISONO_COMPILED_TEMPLATE void accumulate_first<T, T>(std::span<T>, std::span<T>, double);       \
    UNISONO_COMPILED_TEMPLATE void accumulate_first<T, const T>(std::span<T>, std::span<const T>, double);
UNISONO_COMPILED_NUMBERS(float)
UNISONO_COMPILED_NUMBERS(double)
#undef UNISONO_COMPILED_NUMBERS
#undef UNISONO_COMPILED_UPDATE

// Samples.
UNISONO_COMPILED_TEMPLATE void torch_randperm<std::uint32_t>(Mt19937&, std::span<std::uint32_t>);
UNISONO_COMPILED_TEMPLATE void torch_randperm<std::uint64_t>(Mt19937&, std::span<std::uint64_t>);
UNISONO_COMPILED_TEMPLATE class RowData<float, std::int32_t>;
UNISONO_COMPILED_TEMPLATE class Loader<const RowData<float, std::int32_t>, SampleStream>;

// Schedules that a program names.
UNISONO_COMPILED_TEMPLATE class detail::PlanOf<schedule::RingAllReduce>;
UNISONO_COMPILED_TEMPLATE class detail::PlanOf<schedule::RingReduceScatter>;
UNISONO_COMPILED_TEMPLATE class detail::PlanOf<schedule::RingAllGather>;
UNISONO_COMPILED_TEMPLATE class detail::PlanOf<schedule::HalvingDoublingAllReduce>;
UNISONO_COMPILED_TEMPLATE class detail::PlanOf<schedule::TreeAllReduce>;

// Groups.
UNISONO_COMPILED_TEMPLATE class detail::MemoryEndpoint<detail::InProcessWorld>;
UNISONO_COMPILED_GROUP(UNISONO_COMPILED_TEMPLATE, InProcess)
UNISONO_COMPILED_TEMPLATE void detail::run_new_world<InProcess>(int, detail::RankBody<InProcess>, const RunOptions&);
UNISONO_COMPILED_TEMPLATE class detail::MemoryEndpoint<detail::SharedMemoryWorld>;
UNISONO_COMPILED_TEMPLATE class detail::SharedMemoryEndpoint<detail::SharedMemoryWorld>;
UNISONO_COMPILED_GROUP(UNISONO_COMPILED_TEMPLATE, SharedMemory)

UNISONO_COMPILED_TEMPLATE class detail::FitLoop<AccumulationWindow>;
UNISONO_COMPILED_TEMPLATE void detail::plan_updates(TrainingPlan&, const AccumulationWindow&, const UpdateTerms&,
                                                    const EpochRounds&, const FitOptions&);
UNISONO_COMPILED_TEMPLATE std::int64_t detail::derive_batch_size(const AccumulationWindow&, const UpdateTerms&,
                                                                 std::int64_t, const EpochRounds&, const SamplerShape&,
                                                                 std::int64_t, std::int64_t);
UNISONO_COMPILED_TEMPLATE class ProgressReporter<StandardErrorOutput>;

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
extern "C" {
extern const char unisono_library_of_the_compiled_mode;
const char unisono_library_of_the_compiled_mode = 1;
[[gnu::weak]] extern const char unisono_compiled_without_the_library;
}

namespace {

[[gnu::constructor]] void refuse_both_modes() {
    if (&unisono_compiled_without_the_library == nullptr) return;
    std::fputs("unisono: found files of this program that include the library as headers alone, and files in compiled "
               "mode. Required: one mode for all. Why: both would have their own copies of the same functions. "
               "Compile every file with -D UNISONO_COMPILED (the target unisono::compiled does), or none.\n",
               stderr);
    std::_Exit(1);
}

} // namespace
#endif
#endif
