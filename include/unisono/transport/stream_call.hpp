#pragma once

/// \file
/// The calls of a transport with a stream. An operation is a program: a list of calls that the
/// transport enqueues in order on its device's stream. Code that makes programs
/// (extensions/device/stream_steps.hpp) knows schedules; code that runs them
/// (extensions/nccl/device.hpp) knows a library.
///
/// A transport that `enqueues` has a `stream_device()` with
/// - `begin_program(group)` returns a number and `program(number)` the empty list to fill;
///   `submit(number)` hands it over. Programs of all groups run one after the other, in the order
///   of submission.
/// - `program_done(number)`: the transport's latest `progress` has seen that the program's last
///   call has finished. `release_program(number)` returns the number, after the program is done or
///   aborted.
/// - A call with `open` set belongs to one communication with the next one: their sends and
///   receives proceed at the same time.
/// - `follow_program(number, stream)`: work that is enqueued afterwards on another stream of the
///   device waits for the program; false while the program is not enqueued. `follow_all(stream)`:
///   it waits for all that was enqueued so far.
/// - Between `begin_capture` and `end_capture`, which returns a graph, programs are done once they
///   are enqueued: the device is not queried. `drop_capture` discards the captured work, if there
///   is any. The owner of the graph may launch it in programs.
/// - `take_block(bytes, true, with_pinned)`, `give_block(block)`: memory at `block.device`, and, if
///   `with_pinned`, pinned memory of the host at `block.pinned`; kept and reused. Errors: refused.
///   `pinned()->holds(data, bytes)`: the device copies directly from and to this memory.
/// - Before a group of other ranks than the world's does anything, its ranks call `open_group`, as
///   do all ranks of its parent.
///
/// The transport itself has
/// - `wait_for(stream)`: programs that begin afterwards wait for all that was enqueued so far on
///   that stream. It throws `refused` if the device's library refuses the stream.
/// - `check_every()`: the interval, in programs of a group, at which ranks compare a program, and
///   with it those before.
/// - `abort(fault)`, after which none of the calls accesses memory any more.

#include "unisono/core/element.hpp"
#include "unisono/core/list.hpp"

#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

enum class StreamVerb : std::uint8_t {
    all_reduce,     ///< out = the reduction of all ranks' in
    reduce,         ///< as all_reduce, at rank `peer` only
    broadcast,      ///< out = in of rank `peer`
    all_gather,     ///< out = all ranks' in, in rank order
    reduce_scatter, ///< out = this rank's block, of `count` elements, of the reduction of all ranks' in
    send,           ///< in to rank `peer`
    receive,        ///< out from rank `peer`
    copy,           ///< out = in, both on the device
    to_device,      ///< out = in on the host, pinned
    to_host,        ///< out on the host, pinned = in
    combine,        ///< by a kernel of this library
    clear,          ///< out = zeros
    launch,         ///< the graph at `in`
};

/// The library's own reductions.
enum class StreamReduction : std::uint8_t { sum, product, min, max, weighted_sum };

/// Enqueues on `stream`, for each element i of `count`: targets[t][i] = sources[0][i] op
/// sources[1][i] op ... (left fold), as a CombineKernel does on the host.
using StreamKernelCall = void (*)(const void* state, const std::byte* const* sources, std::size_t source_count,
                                  std::byte* const* targets, std::size_t target_count, std::size_t count, void* stream);

struct StreamCall {
    StreamVerb verb = StreamVerb::copy;
    ElementType element = ElementType::uint8;
    StreamReduction reduction = StreamReduction::sum;
    bool open = false; ///< belongs together with the next call
    int peer = 0;      ///< rank in its group
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t count = 0;          ///< elements; bytes for copies and zeros
    std::uint32_t sources = 0;      ///< combine: the number of sources,
    std::uint32_t first_source = 0; ///< and their first index in the program's addresses
};

/// One operation's calls. Kept and reused.
struct StreamProgram {
    std::uint64_t group = 0;
    List<StreamCall> calls;
    List<const std::byte*> addresses; ///< sources of combinations
    StreamKernelCall kernel = nullptr;
    const void* kernel_state = nullptr; ///< of the operation; alive until the program is done
    double weight = 1.0;                ///< of this rank, for weighted_sum

    StreamCall& add(StreamVerb verb, const std::byte* in, std::byte* out, std::size_t count) {
        calls.push_back({});
        StreamCall& call = calls.back();
        call.verb = verb;
        call.in = in;
        call.out = out;
        call.count = count;
        return call;
    }
    void clear() {
        calls.clear();
        addresses.clear();
        kernel = nullptr;
        kernel_state = nullptr;
        weight = 1.0;
    }
};

} // namespace detail
UNISONO_NAMESPACE_END
