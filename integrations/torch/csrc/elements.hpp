#pragma once

/// \file
/// PyTorch's types and operations as the library's.

#include "unisono/any_group.hpp"
#include "unisono/transport/stream_call.hpp"

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <optional>

namespace unisono_torch {

namespace un = unisono;

/// Types that the library cannot add travel as opaque elements of their size.
[[nodiscard]] un::Elements elements_of(at::ScalarType type);

/// How tensors of one type are reduced.
struct Combination : un::untyped::Combination {
    bool mean = false; ///< the sum is divided by the number of ranks
};

/// Errors: RuntimeError, with the operation and the type.
[[nodiscard]] Combination combination_of(const c10d::ReduceOp& operation, at::ScalarType type);

/// NCCL's reduction. None: it has none for this type. AVG is a sum, of complex numbers that of
/// their parts.
[[nodiscard]] std::optional<un::detail::StreamReduction> stream_reduction_of(const c10d::ReduceOp& operation,
                                                                             at::ScalarType type);

} // namespace unisono_torch
