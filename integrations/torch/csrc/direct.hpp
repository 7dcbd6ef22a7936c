#pragma once

/// \file How collectives go from device to device, without the host: by NCCL. direct_nccl.cpp has
/// it, direct_none.cpp is for a build without NCCL.
///
/// A group decides at its first such call on a device: all ranks tell each other their cards, and
/// each comes to the same end. A communicator is made if all ranks want one, have one version of
/// NCCL, and a device each.

#include "device.hpp"

#include "unisono/core/time.hpp"
#include "unisono/transport/stream_call.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace unisono_torch {

namespace un = unisono;

/// A rank's description of its device for the others. Its bytes travel.
struct DirectCard {
    std::uint64_t host = 0;
    std::array<char, 32> device = {}; ///< its place on the host's bus
    std::int32_t version = 0;         ///< of NCCL; 0: this rank has none
    std::int32_t wanted = 0;          ///< whether the program wants it
    std::array<char, 128> id = {};    ///< of a communicator; rank 0's is used

    friend bool operator==(const DirectCard&, const DirectCard&) = default;
};

/// Communicators of one rank. One thread at a time calls `enqueue`; others may call the rest
/// meanwhile.
class Direct {
public:
    Direct() = default;
    Direct(const Direct&) = delete;
    Direct& operator=(const Direct&) = delete;
    virtual ~Direct() = default;

    /// Enqueues a call on the stream, and waits until NCCL has taken it: its first calls connect to
    /// the other ranks. False if `stop` said so before. Errors: refused, with NCCL's words.
    virtual bool enqueue(const un::detail::StreamCall& call, device::Stream& stream,
                         const std::function<bool()>& stop) = 0;
    /// NCCL's words for an error that it has found by itself. Empty: none.
    virtual std::string fault() = 0;
    /// What is in flight ends, without a result. Returns after 2 s at the latest.
    virtual void abort() = 0;
    /// Ends the communicator, whose calls have ended.
    virtual void end() = 0;
};

namespace direct {

/// The card of this rank, which is the first one or not. Problems are no errors: there is no
/// version.
[[nodiscard]] DirectCard card(int device, bool wanted, bool is_first);
/// A communicator on this device of the ranks with these cards. It is ready. Empty if `stop` said
/// so before. Errors: refused, with NCCL's words.
[[nodiscard]] std::shared_ptr<Direct> begin(const std::vector<DirectCard>& cards, int rank, int device,
                                            const std::function<bool()>& stop);

/// Why these ranks make no communicator. Empty: they do.
[[nodiscard]] std::string why_not(const std::vector<DirectCard>& cards);

} // namespace direct

} // namespace unisono_torch
