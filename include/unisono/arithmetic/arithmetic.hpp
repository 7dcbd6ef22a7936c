#pragma once

/// \file
/// Element-wise kernels with guaranteed bits.
///
/// Laws that no compiler checks, kept by every kernel here:
/// - An element's bits depend only on the values of the operands and their order: not on alignment,
///   position, count, neighbours, instruction set, optimisation level or compiler. No FMA, no
///   reassociation; a NaN that a computation yields is the one quiet NaN. (Processors must round to
///   nearest and keep subnormals, as they do by default.)
/// - A target may be the same memory as a source, element on element; otherwise arrays do not
///   overlap.
/// - No kernel allocates, throws, or keeps a pointer. All run on any thread.
///
/// Menu
/// - operations.hpp: `Sum`, `Product`, `Min`, `Max`, `WeightedMean`, your own; `make_reduction`.
///   For collectives.
/// - kernels.hpp: the combine kernel, n sources to m targets; `copy_bytes`. For executors.
/// - accumulate.hpp: `scale`, `divide`, for weights of replicas and their mean; y = w x and
///   y += w x, for micro-batches.
/// - apply.hpp: `apply(functor, spans...)`. For optimizers, and any element-wise formula.
/// - scan.hpp: `first_non_finite`, `first_at_least`, `sum_of_squares`. For guards and clipping.
/// - grid.hpp, grid_sum.hpp: sums whose bits do not depend on order and grouping. For reproducible
///   training.
/// - narrow_grid.hpp, square_sum.hpp: the same with 4 bytes per element; sums of squares.
/// - unisono/thrust.hpp: the same on memory of a GPU, or of any other system of Thrust. Not in the
///   umbrella.
/// - vectorised.hpp: one loop for several instruction sets. For a kernel of your own.
///
/// Deliberately absent: streaming stores (slower than plain ones if a peer reads the result next),
/// intrinsics (compile time, and one instruction set only), a running sum in parallel lanes for
/// `Sum` (its order would depend on the machine).

#include "unisono/arithmetic/reduction.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/error.hpp"

#include <concepts>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

struct WeightedMean;

namespace detail {

template <class Op>
concept built_in_operation = requires {
    requires std::same_as<typename Op::built_in, Op>;
    Op::kind;
};

} // namespace detail

/// An operation that reduces elements of type T: a built-in operation on an arithmetic type, or a
/// user's callable, `T operator()(T, T) const`, trivially copyable and of at most 64 bytes. Laws:
/// associative and commutative (schedules choose the association), free of side effects, does not
/// throw. It is called with elements of all ranks on any thread.
template <class Op, class T>
concept reduction_operation =
    element<T> &&
    ((detail::built_in_operation<Op> && arithmetic_element<T>) ||
     (std::same_as<Op, WeightedMean> && floating_element<T>) ||
     (!detail::built_in_operation<Op> && !std::same_as<Op, WeightedMean> && std::is_trivially_copyable_v<Op> &&
      sizeof(Op) <= Reduction::state_capacity && requires(const Op& op, T a, T b) {
          { op(a, b) } -> std::same_as<T>;
      }));

UNISONO_NAMESPACE_END
