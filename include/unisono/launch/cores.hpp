#pragma once

/// \file
/// Binds a rank to a core, so that it keeps its caches and the system does not move it about.

#include "unisono/core/config.hpp"

#include <algorithm>
#include <pthread.h>
#include <sched.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The calling thread to the rank-th of the cores that it may use, modulo their number. Without effect where the system
/// does not say which those are.
inline void bind_to_core(int rank) {
    cpu_set_t all;
    CPU_ZERO(&all);
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    int skip = rank % std::max(1, CPU_COUNT(&all));
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (!CPU_ISSET(core, &all) || skip-- != 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
