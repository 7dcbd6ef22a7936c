#pragma once

/// \file
/// Ranks anywhere, over libfabric: whatever network it has a provider for. Link the target unisono::libfabric (libfabric 1.17 or newer).
///
/// A rank has one endpoint of reliable datagrams; connections are made by the provider on first use. Memory of a rank: 16 times
/// `eager_bytes` to receive into, as much for what it sends (both touched as far as they are used), what messages need until they are
/// asked for, and what the provider takes.
///
/// Tried: net (native tcp; its name is tcp from 1.18 on), tcp;ofi_rxm, and shm. By negotiation of their modes alone, for lack of
/// their hardware: verbs;ofi_rxm, efa and others. Never chosen unless named: sockets and udp (slow), shm (one host; SharedMemory is faster).
///
/// Environment, where the program says nothing: UNISONO_PROVIDER, UNISONO_INTERFACE (a name as eth0, or an address), UNISONO_PORT_RANGE
/// (40000-40100).

#include "unisono/transport/libfabric/wire.hpp"
#include "unisono/transport/network/framed_endpoint.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The transport of one rank over libfabric: made by `run<Libfabric>` (group/run.hpp) for threads of this process, or by
/// `join<Libfabric>` (join.hpp) where a launcher has started processes, on one host or several; alone, a world of one.
///
/// Errors: refused where provider, interface or ports are not to be had; timeout for a peer that is silent, unreachable or
/// gone, as libfabric tells none of these apart: a control plane does, and then it is peer_lost.
class Libfabric : public detail::FramedEndpoint<detail::LibfabricWire> {
public:
    static constexpr std::string_view name = "libfabric";
    using Options = LibfabricOptions;
    // See NativeSchedule. Over net on the loopback one message of 64 KiB takes less than two rounds of 32 KiB (34 and 40 us); parts of
    // 1 MiB, whose halves are eager, take 0.95 x the time of parts of 512 KiB at 1 MiB and 0.7 to 0.8 x at 16 MiB.
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
    /// The same of memory that is there already (of a segment that ranks share, say): kept, and registered, as long as what is returned.
    [[nodiscard]] std::shared_ptr<std::byte> register_once(std::shared_ptr<std::byte> memory, std::size_t bytes) {
        return wire().register_once(std::move(memory), bytes);
    }
    /// How often memory was registered with libfabric so far: 0 where the provider does not want that, but for a device's.
    [[nodiscard]] std::uint64_t registrations() const { return wire().registrations(); }
    /// Whether messages may leave from memory of the rank's device, and come to it: where Cuda<Libfabric> has asked for that, the
    /// provider can do it, and as far as ranks could agree (in `join`) all can.
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

    /// The world of processes that have this control plane in common, which then belongs to it. Collective. Errors, the same on
    /// all ranks: refused, also where the ranks' providers differ. Defined in libfabric/join.hpp.
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
