#pragma once

/// \file
/// No rank waits or sends messages: workers update common parameters in shared memory.

#include "unisono/extensions/updates/common_parameters.hpp"

UNISONO_NAMESPACE_BEGIN

/// All ranks read and write one set of parameters in shared memory, without locks and in no fixed
/// order. A worker computes a gradient at the parameters that it has read, lets the optimizer make
/// its step from there, and adds the difference, element by element, to the common parameters. The
/// resulting sums are the parameters for its next gradient. So a reader may see half of another
/// worker's update. While each of W workers makes one update, the parameters get W updates, each as
/// large as that of a single worker: choose a learning rate and a momentum that tolerate a
/// staleness of about W - 1. Elements that the step did not change are only read, so sparse
/// gradients seldom collide.
///
/// Each worker has its own optimizer state, which sees the gradients of that worker alone. Terms
/// that depend on the parameters (weight decay) use the parameters that the worker has read. The
/// order of additions, and so the bits, depends on timing; over `Simulated`, on the seed alone.
/// With one rank the result has the bits of Synchronous.
///
/// Needs ranks that map each other's memory (InProcess, SharedMemory or Simulated). Bytes sent:
/// none between synchronisations. Memory: rank 0 holds the common parameters, and each rank a copy
/// of what it has read. No access is a data race in the sense of C++: each is a relaxed atomic
/// access to one element, which compilers do not vectorise.
/// Source: Niu et al. 2011 (Hogwild!), algorithm 1, whose addition to a component is atomic, as it
/// is here.
struct Hogwild {
    /// True: additions are atomic; false: faster, but one of two simultaneous additions may be
    /// lost.
    bool loses_none = true;

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
UNISONO_CERTIFY(update_policy<Hogwild>);

UNISONO_NAMESPACE_END
