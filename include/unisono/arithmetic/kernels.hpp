#pragma once

/// \file
/// The combine kernel: n sources into m targets, in one fixed order for every element, at the speed
/// of memory.

#include "unisono/arithmetic/arithmetic.hpp"
#include "unisono/arithmetic/reduction.hpp"
#include "unisono/arithmetic/values.hpp"
#include "unisono/arithmetic/vectorised.hpp"

#include <cstddef>
#include <cstring>

UNISONO_NAMESPACE_BEGIN

/// Copies bytes; the two ranges are the same or do not overlap.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (to != from && bytes != 0) std::memcpy(to, from, bytes);
}

namespace detail {

/// An operation in the form that the kernel needs. A built-in one computes in the wider accumulator
/// type and is rounded once at the end; a user's operation takes and returns T at each step.
template <class Op, class T>
struct Folding {
    static constexpr bool built_in = built_in_operation<Op>;
    using Accumulator = std::conditional_t<built_in, accumulator_t<T>, T>;

    template <class From>
    UNISONO_INLINE static Accumulator in(From value) {
        return static_cast<Accumulator>(value);
    }
    UNISONO_INLINE static T out(Accumulator value) {
        if constexpr (built_in) return canonical(static_cast<T>(value));
        else return value;
    }
};

UNISONO_NO_CONTRACTION_BEGIN

/// Two sources are folded directly into one target or two. All else goes block by block through an
/// accumulator that stays in the first cache, several sources or targets at a time, since that
/// cache is the bottleneck. A block is short, so that the processor prefetches each source and
/// target as a stream, however many there are.
template <class Op, class T>
struct Combine {
    using Fold = Folding<Op, T>;
    using Accumulator = typename Fold::Accumulator;
    static constexpr std::size_t block_bytes = sizeof(Accumulator) > 512 ? sizeof(Accumulator) : 512;
    static constexpr std::size_t block_elements = block_bytes / sizeof(Accumulator);

    const Op& op;
    const std::byte* const* sources;
    std::size_t source_count;
    std::byte* const* targets;
    std::size_t target_count;
    std::size_t count;

    UNISONO_INLINE void two_to_one() const {
        const Op& operation = op;
        const std::byte* a = sources[0];
        const std::byte* b = sources[1];
        std::byte* to = targets[0];
        const std::size_t elements = count;
        UNISONO_ELEMENTWISE
        for (std::size_t i = 0; i < elements; ++i)
            store<T>(to, i, Fold::out(operation(Fold::in(load<T>(a, i)), Fold::in(load<T>(b, i)))));
    }

    UNISONO_INLINE void two_to_two() const {
        const Op& operation = op;
        const std::byte* a = sources[0];
        const std::byte* b = sources[1];
        std::byte* first = targets[0];
        std::byte* second = targets[target_count - 1];
        const std::size_t elements = count;
        UNISONO_ELEMENTWISE
        for (std::size_t i = 0; i < elements; ++i) {
            const T r = Fold::out(operation(Fold::in(load<T>(a, i)), Fold::in(load<T>(b, i))));
            store<T>(first, i, r);
            store<T>(second, i, r);
        }
    }

    UNISONO_INLINE void by_blocks() const {
        const Op& operation = op;
        alignas(64) std::byte block[block_bytes];
        for (std::size_t begin = 0; begin < count; begin += block_elements) {
            const std::size_t elements = count - begin < block_elements ? count - begin : block_elements;
            const std::size_t at = begin * sizeof(T);
            const std::byte* first = sources[0] + at;
            const std::byte* second = sources[1] + at;
            UNISONO_ELEMENTWISE
            for (std::size_t i = 0; i < elements; ++i)
                store<Accumulator>(block, i, operation(Fold::in(load<T>(first, i)), Fold::in(load<T>(second, i))));
            std::size_t s = 2;
            for (; s + 2 <= source_count; s += 2) {
                const std::byte* a = sources[s] + at;
                const std::byte* b = sources[s + 1] + at;
                UNISONO_ELEMENTWISE
                for (std::size_t i = 0; i < elements; ++i)
                    store<Accumulator>(block, i,
                                       operation(operation(load<Accumulator>(block, i), Fold::in(load<T>(a, i))),
                                                 Fold::in(load<T>(b, i))));
            }
            if (s < source_count) {
                const std::byte* from = sources[s] + at;
                UNISONO_ELEMENTWISE
                for (std::size_t i = 0; i < elements; ++i)
                    store<Accumulator>(block, i, operation(load<Accumulator>(block, i), Fold::in(load<T>(from, i))));
            }
            if constexpr (std::is_same_v<T, Accumulator>) {
                std::size_t t = 0;
                for (; t + 4 <= target_count; t += 4) {
                    std::byte* const to[4] = {targets[t] + at, targets[t + 1] + at, targets[t + 2] + at,
                                              targets[t + 3] + at};
                    UNISONO_ELEMENTWISE
                    for (std::size_t i = 0; i < elements; ++i) {
                        const T r = Fold::out(load<Accumulator>(block, i));
                        store<T>(to[0], i, r);
                        store<T>(to[1], i, r);
                        store<T>(to[2], i, r);
                        store<T>(to[3], i, r);
                    }
                }
                for (; t < target_count; ++t) {
                    std::byte* to = targets[t] + at;
                    UNISONO_ELEMENTWISE
                    for (std::size_t i = 0; i < elements; ++i) store<T>(to, i, Fold::out(load<Accumulator>(block, i)));
                }
            } else {
                std::byte* to = targets[0] + at;
                UNISONO_ELEMENTWISE
                for (std::size_t i = 0; i < elements; ++i) store<T>(to, i, Fold::out(load<Accumulator>(block, i)));
                for (std::size_t t = 1; t < target_count; ++t) {
                    std::byte* other = targets[t] + at;
                    UNISONO_ELEMENTWISE
                    for (std::size_t i = 0; i < elements; ++i) store<T>(other, i, load<T>(to, i));
                }
            }
        }
    }

    UNISONO_INLINE void operator()() const {
        if (source_count == 2 && target_count <= 2) {
            if constexpr (std::is_same_v<T, Accumulator>) { // else conversions dominate: one loop is enough to compile
                if (target_count == 1) return two_to_one();
            }
            return two_to_two();
        }
        by_blocks();
    }
};

/// The same bits by one plain loop, for operations on a few numbers (`Few`).
template <class Op, class T>
void combine_few(const void*, const std::byte* const* sources, std::size_t source_count, std::byte* const* targets,
                 std::size_t target_count, std::size_t count) {
    using Fold = Folding<Op, T>;
    for (std::size_t i = 0; i < count; ++i) {
        auto folded = Fold::in(load<T>(sources[0], i));
        for (std::size_t s = 1; s < source_count; ++s) folded = Op{}(folded, Fold::in(load<T>(sources[s], i)));
        const T result = source_count == 1 ? load<T>(sources[0], i) : Fold::out(folded);
        for (std::size_t t = 0; t < target_count; ++t) store<T>(targets[t], i, result);
    }
}

UNISONO_NO_CONTRACTION_END

/// One source: copies it, chunk by chunk if there are several targets.
inline void copy_to_all(const std::byte* source, std::byte* const* targets, std::size_t target_count,
                        std::size_t bytes) {
    if (target_count == 1) return copy_bytes(targets[0], source, bytes);
    constexpr std::size_t chunk_bytes = 8192;
    for (std::size_t at = 0; at < bytes; at += chunk_bytes) {
        const std::size_t length = bytes - at < chunk_bytes ? bytes - at : chunk_bytes;
        for (std::size_t t = 0; t < target_count; ++t) copy_bytes(targets[t] + at, source + at, length);
    }
}

template <class Op, class T>
void combine_on(InstructionSet set, const Op& op, const std::byte* const* sources, std::size_t source_count,
                std::byte* const* targets, std::size_t target_count, std::size_t count) {
    if (source_count == 1) return copy_to_all(sources[0], targets, target_count, count * sizeof(T));
    vectorised(set, Combine<Op, T>{op, sources, source_count, targets, target_count, count});
}

template <class Op, class T>
void combine_kernel(const void* state, const std::byte* const* sources, std::size_t source_count,
                    std::byte* const* targets, std::size_t target_count, std::size_t count) {
    if constexpr (Folding<Op, T>::built_in)
        combine_on<Op, T>(best_instruction_set(), Op{}, sources, source_count, targets, target_count, count);
    else
        combine_on<Op, T>(best_instruction_set(), *static_cast<const Op*>(state), sources, source_count, targets,
                          target_count, count);
}

} // namespace detail
UNISONO_NAMESPACE_END
