#pragma once

/// \file
/// A transport's own collectives on device memory that its library can access (a CUDA-aware MPI),
/// for transports that otherwise move device memory through the host
/// (extensions/device/bounced_lanes.hpp). Such a library knows no streams, so the host
/// synchronises: a collective starts when the work on `stream()` and on the streams that it waits
/// for has finished, and all ranks have started it. Work that follows on a stream is enqueued when
/// the collective is done.
///
/// It cannot be cancelled, so its memory lives until it is done: memory that the group allocated on
/// the device, which it shares, or buffers to and from which the device copies at the bandwidth of
/// its own memory. Host memory would be slower by a factor of fifty, because of the bus.

#include "unisono/core/error.hpp"
#include "unisono/extensions/device/stream_steps.hpp"
#include "unisono/group/own_collectives.hpp"
#include "unisono/group/transport_kinds.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The memory that the library reads and writes.
struct WholePlaces {
    std::shared_ptr<std::byte> input;  ///< keeps the input's memory alive
    std::shared_ptr<std::byte> output; ///< keeps the output's memory alive
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    struct Copy {
        std::byte* to = nullptr;
        const std::byte* from = nullptr;
        std::size_t bytes = 0;
    };
    Copy entering; ///< the copy before the collective,
    Copy leaving;  ///< and the one after it; 0 bytes: none
};

/// For other transports: does nothing.
template <class Transport>
class WholeRuns {
public:
    void begin(Transport&, OperationState&) {}
    template <class May>
    [[nodiscard]] bool done(Transport&, OperationState&, May) {
        return true;
    }
    [[nodiscard]] bool follow(Transport&, const OperationState&, void*) { return true; }
    void end(const OperationState&) {}
};

template <takes_device_itself Transport>
class WholeRuns<Transport> {
public:
    /// Missing memory becomes the world's fault before any rank's library starts, since a started
    /// collective could not be stopped.
    void begin(Transport& transport, OperationState& operation) {
        operation.own_ticket = transport.own_ticket();
        if (runs_.size() <= operation.number) runs_.resize(operation.number + 1);
        Run& run = runs_[operation.number];
        run = {};
        try {
            run.places = place_own(transport, own_collective_of(operation));
        } catch (const error& refused) {
            Fault fault = refused.why();
            fault.rank = transport.rank();
            transport.abort(fault);
            throw;
        }
        run.mark = transport.mark(true);
    }

    /// Called when all ranks have started it. `may_begin()`: no earlier operation uses its memory.
    template <class May>
    [[nodiscard]] bool done(Transport& transport, const OperationState& operation, May may_begin) {
        Run& run = runs_[operation.number];
        try {
            return advance(transport, operation, run, may_begin);
        } catch (const error& refused) { // the library's error
            transport.note(refused.why());
            return false;
        }
    }

    /// Makes work that is enqueued later on `stream` wait for the operation; false while the host
    /// has to wait for the library.
    [[nodiscard]] bool follow(Transport& transport, const OperationState& operation, void* stream) {
        if (operation.done) return true;
        if (runs_[operation.number].phase != Phase::leaves) return false;
        transport.follow_puts(stream);
        return true;
    }

    void end(const OperationState& operation) { runs_[operation.number] = {}; }

private:
    enum class Phase : std::uint8_t { follows, waits, comes, runs, leaves };
    struct Run {
        Phase phase = Phase::follows;
        std::uint32_t mark = 0;
        WholePlaces places;
    };

    template <class May>
    bool advance(Transport& transport, const OperationState& operation, Run& run, May may_begin) {
        const std::uint32_t ticket = operation.own_ticket;
        const auto device = transport.on_its_device(); // the library uses the thread's current device
        if (run.phase == Phase::follows) {
            if (!transport.passed(run.mark)) return false;
            run.phase = Phase::waits;
        }
        if (run.phase == Phase::waits) {
            if (!transport.is_turn_of(ticket) || !may_begin()) return false;
            move(transport, run, run.places.entering);
            run.phase = Phase::comes;
        }
        if (run.phase == Phase::comes) {
            if (run.places.entering.bytes != 0 && !transport.passed(run.mark)) return false;
            run.phase = Phase::runs;
            begin_own(transport, own_collective_of(operation), ticket, run.places);
        }
        if (run.phase == Phase::runs) {
            if (!transport.own_done(ticket)) return false;
            if (run.places.leaving.bytes == 0) return true;
            move(transport, run, run.places.leaving);
            run.phase = Phase::leaves;
        }
        return transport.passed(run.mark);
    }

    static void move(Transport& transport, Run& run, const WholePlaces::Copy& copy) {
        if (copy.bytes == 0) return;
        transport.move(copy.to, copy.from, copy.bytes);
        run.mark = transport.mark(false);
    }

    std::vector<Run> runs_; ///< by operation
};

} // namespace detail
UNISONO_NAMESPACE_END
