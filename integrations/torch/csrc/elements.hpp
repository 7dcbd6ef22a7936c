#pragma once

/// \file
/// PyTorch's types and operations as the library's.

#include "unisono/collective/untyped.hpp"

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <string>

namespace unisono_torch {

namespace un = unisono;

/// Types that the library cannot add travel as opaque elements of their size.
[[nodiscard]] un::Elements elements_of(at::ScalarType type);

/// How tensors of one type are reduced. Movable only before use.
struct Combination {
    un::Elements elements = {};
    un::ReductionKind kind = un::ReductionKind::none; ///< none: `bytes`
    un::untyped::ByteOperation bytes = {};
    bool mean = false; ///< the sum is divided by the number of ranks

    [[nodiscard]] un::Reduction reduction() const {
        return kind == un::ReductionKind::none ? un::untyped::reduction(bytes)
                                               : un::untyped::reduction(kind, elements.type);
    }
};

/// Errors: RuntimeError, with the operation and the type.
[[nodiscard]] Combination combination_of(const c10d::ReduceOp& operation, at::ScalarType type);

} // namespace unisono_torch
