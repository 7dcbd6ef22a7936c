#pragma once

/// \file
/// Nobody waits, and nothing is sent: workers update parameters that they have in common.

#include "unisono/update/common_parameters.hpp"

UNISONO_NAMESPACE_BEGIN

/// All ranks read and write one set of parameters in memory that they share, without locks and in no order. A worker computes a gradient
/// at the parameters that it has read, lets the optimizer make its step from there, and adds the difference, element by element, to
/// what the parameters are by then; what it finds there is what it reads for its next gradient. So a reader may see half of another's
/// update, and W workers make W updates while each makes one, each as large as a lone worker's: take a learning rate, and a momentum,
/// that bear a staleness of about W - 1. Elements that the step did not change are only read: sparse gradients meet seldom.
///
/// The optimizer's state is each worker's own, and sees its own gradients only; what depends on the parameters themselves (weight decay) goes
/// by those that were read. The order of additions, and so the bits, depends on the moment; over `Simulated` on the seed alone. With one
/// rank it is Synchronous, to the bit.
///
/// Needs ranks that see each other's memory (InProcess, SharedMemory, or Simulated). Bytes sent: none between meetings. Memory: rank 0 has the
/// common parameters, and each rank a copy of what it has read. No access is a data race as C++ has it: each is a relaxed atomic one of
/// an element, which compilers do not vectorise.
/// Source: Niu et al. 2011 (Hogwild!), algorithm 1, whose addition to a component is atomic, as it is here.
struct Hogwild {
    bool loses_none =
        true; ///< additions are atomic; else two that meet in an element may leave the one only, for fewer cycles

    static constexpr std::string_view name = "Hogwild";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool asynchronous = true;
    static constexpr bool shares_memory = true;
    friend bool operator==(const Hogwild&, const Hogwild&) = default;

    template <class Training>
    detail::HogwildRun<Training, Hogwild> start(Training& training) const {
        return detail::HogwildRun<Training, Hogwild>(training, *this);
    }
};
static_assert(update_policy<Hogwild>);

UNISONO_NAMESPACE_END
