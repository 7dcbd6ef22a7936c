#pragma once

/// \file
/// The description of a collective: what a rank calls, and which memory it passes. Untyped; the
/// functions of collective/ are its typed shell.

#include "unisono/arithmetic/reduction.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/floating_point.hpp"
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
class Plan;              // plan.hpp

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

/// The description of a call by which its group finds a state that is prepared for it: all but the
/// addresses.
struct CallKey {
    std::uint64_t call = 0;  ///< all small facts (see `words_of`)
    std::uint64_t count = 0; ///< elements of the vector or of a block
    std::uint64_t sizes = 0; ///< bytes of an element, and the hash of the user's operation
    CombineKernel combine = nullptr;
    const Plan* plan = nullptr; ///< of the schedule that the caller named; null: the native one
    std::size_t chunk_bytes = 0;

    friend bool operator==(const CallKey&, const CallKey&) = default;
};

constexpr std::uint64_t sizes_of(const Call& call, const CallBuffer& out) {
    return std::uint64_t{out.element_bytes} << 32 | call.op.user_operation;
}

/// True if a reduction is more than its kernel.
constexpr bool has_context(const Reduction& op) { return op.state != nullptr || op.combine_at != nullptr; }

/// The small facts of a call.
constexpr std::uint64_t words_of(const Call& call, const CallBuffer& out, FloatingPointMode mode) {
    return std::uint64_t{1} << 63 | std::uint64_t{out.space == MemorySpace::device} << 62 |
           std::uint64_t{static_cast<std::uint8_t>(mode)} << 58 |
           std::uint64_t{static_cast<std::uint8_t>(call.caller)} << 52 |
           std::uint64_t{static_cast<std::uint8_t>(call.what)} << 47 |
           std::uint64_t{static_cast<std::uint8_t>(out.type)} << 42 |
           std::uint64_t{static_cast<std::uint8_t>(call.op.kind)} << 37 | std::uint64_t{has_context(call.op)} << 34 |
           static_cast<std::uint32_t>(call.root);
}

} // namespace detail
UNISONO_NAMESPACE_END
