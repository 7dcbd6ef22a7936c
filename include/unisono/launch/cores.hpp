#pragma once

/// \file
/// The cores that a rank may use, the number of cores that the ranks of one host have together, and
/// the binding of a rank to one core, so that it keeps its caches and the system does not move it.

#include "unisono/core/config.hpp"
#include "unisono/core/standard.hpp"

#include <cstddef>
#include <pthread.h>
#include <sched.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The cores that the calling thread may use; empty if the system does not tell.
inline cpu_set_t own_cores() {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_ZERO(&cores);
    return cores;
}

/// The number of cores that the calling thread may use; at least one.
inline int available_cores() {
    const cpu_set_t cores = own_cores();
    return std::max(1, CPU_COUNT(&cores));
}

/// The cores of one host that some of its ranks may use. Each rank may be bound to one of its own.
class SharedCores {
public:
    SharedCores() { CPU_ZERO(&cores_); }
    void add(const cpu_set_t& of_a_rank) {
        ++ranks_;
        CPU_OR(&cores_, &cores_, &of_a_rank);
    }
    [[nodiscard]] int count() const { return std::max(1, CPU_COUNT(&cores_)); }
    [[nodiscard]] bool fewer_than_ranks() const { return count() < ranks_; }

private:
    cpu_set_t cores_;
    int ranks_ = 0;
};

/// Binds the calling thread to the rank-th of the cores that it may use, modulo their number. Has
/// no effect if the system does not tell which cores these are.
[[gnu::cold]] inline void bind_to_core(int rank) {
    const cpu_set_t all = own_cores();
    int skip = rank % std::max(1, CPU_COUNT(&all));
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
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
