#pragma once

/// \file
/// Ranks on any hosts, over libfabric and any network that it has a provider for. Link the target
/// unisono::libfabric (libfabric 1.17 or newer).
///
/// A rank has one endpoint of reliable datagrams; the provider makes connections on first use. The
/// memory of a rank: 16 times `eager_bytes` to receive into, as much for what it sends (both are
/// touched as far as they are used), messages that have not been asked for, and what the provider
/// takes.
///
/// Tried: net (native tcp; named tcp from 1.18 on), tcp;ofi_rxm, and shm. Of verbs;ofi_rxm, efa and
/// others only the negotiation of their modes was tried, for lack of their hardware. Never chosen
/// unless named: sockets and udp (slow), shm (one host; SharedMemory is faster).
///
/// Environment, for options that the program does not set: UNISONO_PROVIDER, UNISONO_INTERFACE (a
/// name such as eth0, or an address), UNISONO_PORT_RANGE (40000-40100).

#include "unisono/transport/libfabric/wire.hpp"
#include "unisono/transport/network/framed_endpoint.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The transport of one rank over libfabric. It is made by `run<Libfabric>` (group/run.hpp) for
/// threads of this process, or by `join<Libfabric>` (join.hpp) for processes that a launcher has
/// started, on one or several hosts. On its own it is a world of one.
///
/// Errors: refused if provider, interface or ports are not to be had; timeout for a peer that is
/// silent, unreachable or gone, since libfabric does not tell these apart. A control plane does,
/// and then a peer that is gone is peer_lost.
class Libfabric : public detail::FramedEndpoint<detail::LibfabricWire> {
public:
    static constexpr std::string_view name = "libfabric";
    using Options = LibfabricOptions;
    // See NativeSchedule. Over net on the loopback, one message of 64 KiB takes less than two
    // rounds of 32 KiB (34 and 40 us). Parts of 1 MiB, whose halves are eager, take 0.95 x the time
    // of parts of 512 KiB at 1 MiB, and 0.7 to 0.8 x at 16 MiB.
    static constexpr std::size_t exchange_bytes = 65536;
    static constexpr std::size_t chunk_bytes = 1048576;

    Libfabric() : Libfabric(std::make_shared<World>(1), 0) {}
    /// A rank of a world of threads. Errors: refused, bad_input.
    Libfabric(const std::shared_ptr<World>& shared, int rank, const LibfabricOptions& options = {})
        : FramedEndpoint(shared, rank, announced(shared, rank, options.with(Environment::of_process()))) {}
    /// A rank that has an endpoint already.
    Libfabric(const std::shared_ptr<World>& shared, int rank, detail::LibfabricWire wire)
        : FramedEndpoint(shared, rank, std::move(wire)) {}

    /// Memory that libfabric may use without being told each time; not cleared.
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) { return wire().allocate(bytes); }
    /// The same for memory that exists already, for example in a segment that ranks share: it is
    /// kept and registered as long as the returned object lives.
    [[nodiscard]] std::shared_ptr<std::byte> register_once(std::shared_ptr<std::byte> memory, std::size_t bytes) {
        return wire().register_once(std::move(memory), bytes);
    }
    /// The number of registrations with libfabric so far; 0 if the provider needs none, but for a
    /// device's memory.
    [[nodiscard]] std::uint64_t registrations() const { return wire().registrations(); }
    /// Whether messages may leave from and arrive in memory of the rank's device: Cuda<Libfabric>
    /// has asked for it, the provider can do it, and so can all ranks, as far as they could agree
    /// (in `join`).
    [[nodiscard]] bool moves_device_memory() const { return wire().moves_device_memory(); }
    [[nodiscard]] const std::string& device_memory_problem() const { return wire().device_memory_problem(); }
    /// Messages may use this memory of the device as long as what is returned. Errors: refused.
    [[nodiscard]] std::shared_ptr<void> reach_device_memory(const std::byte* data, std::size_t bytes) {
        return wire().reach_device_memory(data, bytes);
    }
    /// How others reach this rank: opaque bytes of the provider's.
    [[nodiscard]] const std::vector<std::byte>& address() const { return wire().address(); }
    /// Peers that this rank has exchanged anything with: so many have room in the provider.
    [[nodiscard]] int peers_used() const { return wire().peers_used(); }

    /// The world of processes that share this control plane, which then belongs to the world.
    /// Collective. Errors, the same on all ranks: refused, also if the ranks' providers differ.
    /// Defined in libfabric/join.hpp.
    template <control_plane Control>
    [[nodiscard]] static Libfabric join(Control control, nanoseconds deadline, const LibfabricOptions& options);

private:
    static detail::LibfabricWire announced(const std::shared_ptr<World>& shared, int rank,
                                           const LibfabricOptions& options) {
        if (shared->size() == 1) return {shared, rank};
        detail::FabricDevice device(options, false, rank);
        const detail::FabricCard card = detail::card_of(device, options);
        detail::LibfabricWire wire(shared, rank, std::move(device), card.eager_bytes);
        shared->publish(rank, card.text());
        return wire;
    }
};

static_assert(transport<Libfabric>);

UNISONO_NAMESPACE_END
