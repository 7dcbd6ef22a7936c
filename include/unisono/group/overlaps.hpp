#pragma once

/// \file
/// The overlaps of input and output that a collective allows, for every transport, size and
/// schedule.
///
/// | collective                           | allowed beside separate memory                     |
/// |--------------------------------------|----------------------------------------------------|
/// | all_reduce; reduce, at the root      | output = input                                     |
/// | all_gather; gather, at the root      | the input is this rank's own block of the output   |
/// | reduce_scatter; scatter, at the root | the output is this rank's own block of the input   |
/// | all_to_all                           | none                                               |
///
/// Any other overlap is refused on the rank that passed it, before anything is sent or changed.
/// Unused arguments (the output of reduce and gather, and the input of scatter, on ranks other than
/// the root) may be anything. A buffer without elements overlaps nothing.

#include "unisono/core/text.hpp"
#include "unisono/group/operation_state.hpp"

#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The memory of a collective's input and output, in bytes.
struct Buffers {
    const void* input = nullptr;
    std::size_t input_bytes = 0;
    const void* output = nullptr;
    std::size_t output_bytes = 0;
    std::size_t input_begin = 0;  ///< the allowed overlap: byte `input_begin` of the input
    std::size_t output_begin = 0; ///< is byte `output_begin` of the output
    bool in_place = true;         ///< false: no overlap is allowed
};

constexpr bool uses_both(BufferUse use, bool is_root) {
    return holds_any(use.input, is_root) && holds_any(use.output, is_root);
}

/// For equal blocks of `bytes` bytes each, or a vector of `bytes` bytes.
[[gnu::always_inline]] inline Buffers buffers_of(Collective what, BufferUse use, const void* input, const void* output,
                                                 std::size_t bytes, int rank, int ranks) {
    Buffers found{.input = input, .input_bytes = bytes, .output = output, .output_bytes = bytes};
    const std::size_t all = bytes * static_cast<std::size_t>(ranks);
    const std::size_t begin = bytes * static_cast<std::size_t>(rank);
    if (use.input == Holding::own_block) {
        found.output_bytes = all;
        found.output_begin = begin;
    } else if (use.output == Holding::own_block) {
        found.input_bytes = all;
        found.input_begin = begin;
    } else if (what == Collective::all_to_all) {
        found.input_bytes = found.output_bytes = all;
        found.in_place = false;
    }
    return found;
}

[[gnu::always_inline]] inline bool overlap_is_allowed(const Buffers& found) {
    const auto input = reinterpret_cast<std::uintptr_t>(found.input);
    const auto output = reinterpret_cast<std::uintptr_t>(found.output);
    if (found.in_place && input + found.input_begin == output + found.output_begin) return true;
    if (found.input_bytes == 0 || found.output_bytes == 0) return true;
    return input < output ? output - input >= found.input_bytes : input - output >= found.output_bytes;
}

inline Buffers buffers_of(Collective what, int of_rank, int ranks, const OperationRequest& request) {
    const std::size_t each = request.element_bytes;
    const BufferUse use = buffer_use(what);
    Buffers found =
        buffers_of(what, use, request.input, request.output, request.partition.count * each, of_rank, ranks);
    if (request.input_counts.empty()) return found;
    const auto bytes = [&](std::span<const std::size_t> counts, std::size_t blocks) {
        std::size_t sum = 0;
        for (std::size_t block = 0; block < blocks; ++block) sum += counts[block];
        return sum * each;
    };
    const auto rank = static_cast<std::size_t>(of_rank);
    const std::size_t begin = bytes(request.input_counts, rank);
    const bool gathers = use.input == Holding::own_block;
    const bool scatters = use.output == Holding::own_block;
    found.input_begin = scatters ? begin : 0;
    found.output_begin = gathers ? begin : 0;
    const std::size_t own = request.input_counts[rank] * each;
    found.input_bytes = gathers ? own : bytes(request.input_counts, request.input_counts.size());
    found.output_bytes = scatters ? own : bytes(request.output_counts, request.output_counts.size());
    return found;
}

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_overlap(Collective what, int rank, const Buffers& found) {
    const auto input = reinterpret_cast<std::uintptr_t>(found.input);
    const auto output = reinterpret_cast<std::uintptr_t>(found.output);
    const bool later = input >= output;
    refuse_input({name_of(what), " on rank ", rank, ": the input of ", found.input_bytes, " bytes begins ",
                  later ? input - output : output - input, later ? " bytes behind" : " bytes before",
                  " the beginning of the output of ", found.output_bytes, " bytes and overlaps it; expected no overlap",
                  !found.in_place ? ""
                  : found.input_begin == 0 && found.output_begin == 0 && found.input_bytes == found.output_bytes
                      ? ", or input and output at one address"
                      : ", or the one buffer as this rank's own block of the other",
                  ". Nothing was changed"});
}

/// Refuses an overlap that is not allowed.
inline void check_overlap(Collective what, int rank, const Buffers& found) {
    if (!overlap_is_allowed(found)) refuse_overlap(what, rank, found);
}

} // namespace detail
UNISONO_NAMESPACE_END
