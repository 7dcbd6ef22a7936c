#pragma once

/// \file
/// Ranks on any hosts, over libfabric and any network that it has a provider for. Link the target
/// unisono::libfabric (libfabric 1.17 or newer).
///
/// A rank has one endpoint of reliable datagrams; the provider makes connections on first use. The
/// memory of a rank: 16 times `eager_bytes` for receives (4 times if it is above 64 KiB), up to 16
/// times for sends (the system provides pages of both when they are used), messages whose receive
/// is not posted yet, and the provider's own.
///
/// Tried: net (native tcp; named tcp from 1.18 on), tcp;ofi_rxm, and shm. Of verbs;ofi_rxm, efa and
/// others only the negotiation of their modes was tried, for lack of their hardware. Never chosen
/// unless named: sockets and udp (slow), shm (one host; SharedMemory is faster).
///
/// Environment, for options that the program does not set: UNISONO_PROVIDER, UNISONO_INTERFACE (a
/// name such as eth0, or an address), UNISONO_PORT_RANGE (40000-40100).

#include "unisono/extensions/libfabric/wire.hpp"
#include "unisono/extensions/network/framed_endpoint.hpp"
#include "unisono/extensions/network/world.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The transport of one rank over libfabric. It is made by `run<Libfabric>` (group/run.hpp) for
/// threads of this process, or by `join<Libfabric>` (unisono/join.hpp) for processes that a
/// launcher has started, on one or several hosts. On its own it is a world of one.
///
/// Errors: refused if provider, interface or ports are not available; timeout for a peer that is
/// silent, unreachable or gone, since libfabric does not distinguish these. A control plane does:
/// with one, a peer that is gone is peer_lost.
class Libfabric : public detail::FramedEndpoint<detail::LibfabricWire> {
public:
    static constexpr std::string_view name = "libfabric";
    using Options = LibfabricOptions;
    // See NativeSchedule. Over net on the loopback, one message of 64 KiB takes less than two
    // rounds of 32 KiB (34 and 40 us). Chunks of 1 MiB, whose halves are eager, take 0.95 x the
    // time of chunks of 512 KiB at 1 MiB, and 0.7 to 0.8 x at 16 MiB.
    static constexpr std::size_t exchange_bytes = 65536;
    static constexpr std::size_t chunk_bytes = 1048576;

    Libfabric() : Libfabric(std::make_shared<World>(1), 0) {}
    /// A rank of a world of threads. Errors: refused, bad_input.
    Libfabric(const std::shared_ptr<World>& shared, int rank, const LibfabricOptions& options = {})
        : Libfabric(shared, rank, announced(shared, rank, options.with(Environment::of_process()))) {}
    /// A rank that has an endpoint already.
    Libfabric(const std::shared_ptr<World>& shared, int rank, detail::LibfabricWire wire)
        : FramedEndpoint(shared, rank, std::move(wire), {.name = name, .allocates = true}) {}

    /// Memory that libfabric may use without a registration per message; not cleared.
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return wire().allocate(bytes); }
    /// As `allocate`, for memory that exists already, for example in a segment that ranks share: it
    /// is kept alive and registered as long as the returned object lives.
    [[nodiscard]] std::shared_ptr<std::byte> register_once(std::shared_ptr<std::byte> memory, std::size_t bytes) {
        return wire().register_once(std::move(memory), bytes);
    }
    /// The number of registrations with libfabric so far; 0 if the provider needs none.
    [[nodiscard]] std::uint64_t registrations() const { return wire().registrations(); }
    /// The address by which peers reach this rank: opaque bytes of the provider.
    [[nodiscard]] const std::vector<std::byte>& address() const { return wire().address(); }
    /// The number of peers with which this rank has exchanged messages. Each takes memory in the
    /// provider.
    [[nodiscard]] int peers_used() const { return wire().peers_used(); }

    /// The world of processes that share this control plane, which then belongs to the world.
    /// Collective. Errors, the same on all ranks: refused, also if the ranks' providers differ.
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

template <control_plane Control>
Libfabric Libfabric::join(Control control, nanoseconds deadline, const LibfabricOptions& options) {
    const int rank = control.rank();
    const bool alone = control.size() == 1;
    detail::FabricDevice device;
    detail::FabricCard card;
    const auto world = detail::join_network(std::move(control), deadline, [&](bool other_hosts) {
        if (alone) return std::string();
        const LibfabricOptions all = options.with(Environment::of_process());
        device = detail::FabricDevice(all, other_hosts, rank);
        card = detail::card_of(device, all);
        return card.text();
    });
    if (alone) return {world, rank, detail::LibfabricWire(world, rank)};
    const std::string first = detail::FabricCard::read(world->address(0)).provider;
    for (int other = 0; other < world->size(); ++other) { // the same error on all ranks
        const std::string theirs = detail::FabricCard::read(world->address(other)).provider;
        if (theirs == first) continue;
        throw error(
            Fault{.code = ErrorCode::refused,
                  .rank = other,
                  .peer = 0,
                  .operation = "join",
                  .message = concat({"libfabric: rank ", other, " has the provider ", detail::quoted(theirs),
                                     ", rank 0 has ", detail::quoted(first), " (name one by UNISONO_PROVIDER)"})});
    }
    return {world, rank, detail::LibfabricWire(world, rank, std::move(device), card.eager_bytes)};
}

UNISONO_NAMESPACE_END
