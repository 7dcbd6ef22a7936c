#pragma once

/// \file
/// What the library `unisono::compiled` has of the umbrella's templates (core/config.hpp): the executor and the groups of ranks as threads
/// and as processes, and the kernels of the built-in operations. In header-only mode this is empty.

#include "unisono/arithmetic/operations.hpp"
#include "unisono/group/run.hpp"
#include "unisono/group/run_processes.hpp"
#include "unisono/observe/progress.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/transport/shared_memory.hpp"

#if defined(UNISONO_COMPILED_TEMPLATE)
UNISONO_NAMESPACE_BEGIN

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
#undef UNISONO_COMPILED_KERNELS
#undef UNISONO_COMPILED_KERNEL

UNISONO_COMPILED_TEMPLATE class detail::MemoryEndpoint<detail::InProcessWorld>;
UNISONO_COMPILED_TEMPLATE class detail::Engine<InProcess>;
UNISONO_COMPILED_TEMPLATE class Group<InProcess>;
UNISONO_COMPILED_TEMPLATE void detail::run_world<InProcess>(const std::shared_ptr<InProcess::World>&,
                                                            detail::RankBody<InProcess>, const RunOptions&);

UNISONO_COMPILED_TEMPLATE class detail::MemoryEndpoint<detail::SharedMemoryWorld>;
UNISONO_COMPILED_TEMPLATE class detail::Engine<SharedMemory>;
UNISONO_COMPILED_TEMPLATE class Group<SharedMemory>;

UNISONO_COMPILED_TEMPLATE class ProgressReporter<StandardErrorOutput>;

UNISONO_NAMESPACE_END
#endif
