#pragma once

/// \file
/// The description of a collective: what a rank calls, and which memory it passes. Untyped; the
/// functions of collective/ are its typed shell.

#include "unisono/arithmetic/reduction.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/schedule/schedule.hpp"
#include "unisono/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN

class GroupCore;

namespace detail {

struct OperationRequest; // operation_state.hpp

/// `count` elements at `data`, on the host or on a device. Does not own them. Only reads an input.
struct CallBuffer {
    static constexpr std::size_t fitting = ~std::size_t{0}; ///< as count: the caller's memory has the right size

    std::byte* data = nullptr;
    std::size_t count = 0;
    std::uint32_t element_bytes = 1;
    ElementType type = ElementType::opaque;
    MemorySpace space = MemorySpace::host;
};

/// True if both are not null and have no common byte.
[[gnu::always_inline]] inline bool are_apart(const CallBuffer& in, const CallBuffer& out) {
    const auto first = reinterpret_cast<std::uintptr_t>(in.data);
    const auto second = reinterpret_cast<std::uintptr_t>(out.data);
    if (first == 0 || second == 0) return false;
    return first < second ? second - first >= in.count * in.element_bytes
                          : first - second >= out.count * out.element_bytes;
}

/// True if `data` is at this offset of `from`, which may be null.
[[gnu::always_inline]] inline bool is_at(const std::byte* data, const std::byte* from, std::size_t offset) {
    return reinterpret_cast<std::uintptr_t>(data) == reinterpret_cast<std::uintptr_t>(from) + offset;
}

/// Elements of each rank's block; empty: all blocks are equal.
using Counts = std::span<const std::size_t>;

struct Call;

/// Completes the request of a call: finds its plan in the group's cache, or makes it, and may set
/// the size of a lane and what a device needs.
using PlanFunction = void (*)(GroupCore& group, const Call& call, OperationRequest& request);

/// The schedule of a call. The typed functions choose it (collective/native.hpp), so that a program
/// compiles the schedules of the collectives that it calls, for the transport that it names.
struct ScheduleChoice {
    PlanFunction plan = nullptr;
    const void* family = nullptr; ///< for `plan`; null: the native one with its defaults, whose plan a call determines
};

/// A collective as a rank calls it. The targets of its pointers must live until it has started.
struct Call {
    Collective what = Collective::barrier;
    Caller caller = Caller::none;
    int root = 0;
    Reduction op = {};
    ScheduleChoice by = {};
    Counts input_counts = {};
    Counts output_counts = {};
};

} // namespace detail
UNISONO_NAMESPACE_END
