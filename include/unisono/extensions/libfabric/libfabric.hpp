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

#include "unisono/core/list.hpp"
#include "unisono/extensions/libfabric/traffic.hpp"
#include "unisono/extensions/network/frame_wire.hpp"
#include "unisono/extensions/network/framed_endpoint.hpp"
#include "unisono/extensions/network/world.hpp"
#include "unisono/transport/patience.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Messages over an endpoint of libfabric, as a wire (network/frame_wire.hpp).
///
/// A small message is eager: frame and payload in one tagged message, into buffers that every rank
/// has posted. For a large message the frame is sent first. The receiver chooses memory, posts a
/// receive of exactly that length under a tag of its own, and answers. Then the bytes travel from
/// the sender's memory to the receiver's, so no message exceeds the receive posted for it. The
/// limit between small and large depends on the provider (`eager_bytes_of`).
///
/// libfabric reports nothing about peers that are gone, and answers "later" for ever: then the
/// caller's deadline and the control plane decide. An operation that it postpones is tried again at
/// the next poll. A peer that accepts nothing holds up no other peer.
class LibfabricWire : public FabricTraffic {
public:
    /// A rank of a world of one.
    LibfabricWire(std::shared_ptr<NetworkWorld> world, int rank) : FabricTraffic(std::move(world), rank, {}, 0) {}
    using FabricTraffic::FabricTraffic;
    /// A message by rendezvous lands in its target. Smaller ones are eager over most providers.
    static constexpr std::size_t lands_from = least_straight;

    // --- sending ---------------------------------------------------------------------------------

    bool send(int peer, const Envelope& envelope, const std::byte* data, Token token) {
        FabricFrame frame = frame_of(FabricFrame::message);
        frame.envelope = envelope;
        Peer& to = at(peer);
        if (to.queued == 0) {
            const Begun begun = begin(peer, frame, data, token);
            if (begun != Begun::later) return begun == Begun::done;
        }
        ++to.queued;
        queued_.push_back({peer, frame, data, token});
        return false;
    }

    template <class Handler>
    void poll(Handler& handler) {
        if (!device_.is_open()) return;
        if (!again_.empty()) retry();
        if (!queued_.empty()) send_queued(handler);
        for (int turns = 0; turns < 8; ++turns) {
            int count = 0;
            const ssize_t failed = device_.poll([&](FabricOperation& operation, int why, std::size_t bytes) {
                ++count;
                complete(operation, why, bytes, handler);
            });
            if (failed != 0) broken_ = FabricDevice::error_text(failed);
            if (count == 0) parted_ = false;
            if (count < FabricDevice::most_completions && !parted_) break; // another look costs a system call
        }
    }

    /// Sleeping pays if ranks outnumber cores; else a hop would cost 50 us more. A large message
    /// moves in calls of this rank alone and is not seen before it is complete, so a rank stays
    /// awake while it may move.
    void idle(std::uint32_t attempt, nanoseconds until) {
        if (!world_->more_ranks_than_cores()) {
            if (large_moves()) return attempt % 64 == 63 ? yield_core() : pause();
            return idle_on_host(patience_, attempt, until);
        }
        if (attempt < 256) return std::this_thread::yield();
        const nanoseconds wished = std::min<nanoseconds>(1'000'000, nanoseconds{20'000} << std::min(attempt / 256, 6u));
        const nanoseconds left = until == never ? wished : until - steady_now();
        if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left, wished)));
    }

    // --- the end ---------------------------------------------------------------------------------

    /// Closes the endpoint; without it libfabric accesses no memory. If a peer reads this rank's
    /// memory without its help, it reads a copy, which stays. Other threads' shm endpoints write
    /// into this endpoint's memory at any time, so there it stays until all are gone.
    void forget() {
        if (device_.is_open() && device_.peers_read()) world_->keep(std::make_shared<FabricDevice>(std::move(device_)));
        else device_.close();
        queued_.clear();
        again_.clear();
    }

    /// Waits for everything in flight, and for an answer of each peer that was used: data that
    /// libfabric reports as sent may still be on this host, and closing a socket drops them.
    void goodbye(nanoseconds until) {
        leaving_ = true;
        AnyFrameHandler deaf;
        for (std::uint32_t attempt = 0; device_.is_open() && steady_now() < until; ++attempt) {
            poll(deaf);
            bool over = true;
            for (int peer = 0; peer < world_->size(); ++peer) {
                Peer& other = at(peer);
                if (!other.used || is_gone(peer)) continue;
                if (!std::exchange(other.told, other.told || !sending(peer)) && other.told)
                    send_frame(peer, frame_of(FabricFrame::goodbye));
                over = over && other.told && other.answered && !sending(peer);
            }
            if (over || world_->first_fault() != nullptr) break;
            idle(attempt, until);
        }
        forget();
    }

    [[nodiscard]] bool said_goodbye(int peer) const { return at(peer).goodbye && at(peer).landings == 0; }
    /// True if a peer left without a goodbye: this rank has waited long enough for an answer, so
    /// the peer's messages would have arrived.
    [[nodiscard]] bool quiet(int peer) {
        Peer& other = at(peer);
        if (other.landings != 0) return false;
        const nanoseconds now = steady_now();
        if (other.asked == 0) other.asked = now;
        return now - other.asked > 100'000'000;
    }
    /// "127.0.0.1:40111 (provider net, interface lo), from which nothing has come".
    [[nodiscard]] std::string describe(int peer) const {
        const FabricCard card = FabricCard::read(world_->address(peer));
        const Peer& other = at(peer);
        const char* const state = other.goodbye                  ? ", which said goodbye"
                                  : !other.why.empty()           ? ", which failed: "
                                  : card.address.empty()         ? ", which has not started"
                                  : other.heard                  ? ""
                                  : other.to == FI_ADDR_NOTAVAIL ? ", which was not used"
                                                                 : ", from which nothing has come";
        return concat({device_.text_of(card.address), " (", device_.text(), ")", state, other.goodbye ? "" : other.why,
                       broken_.empty() ? "" : "; libfabric cannot continue: ", broken_});
    }

private:
    [[nodiscard]] bool is_gone(int peer) const { return lost(peer) || world_->has_left(peer); }

    /// Sends queued messages. A peer that accepts none delays only messages to itself.
    template <class Handler>
    void send_queued(Handler& handler) {
        ++pass_;
        std::size_t kept = 0;
        for (std::size_t i = 0; i < queued_.size(); ++i) {
            const Queued one = queued_[i];
            Peer& to = at(one.peer);
            Begun begun = Begun::later;
            if (to.blocked_in != pass_ && to.why.empty()) begun = begin(one.peer, one.frame, one.data, one.token);
            if (begun == Begun::later) {
                to.blocked_in = pass_;
                queued_[kept++] = one;
                continue;
            }
            --to.queued;
            if (begun == Begun::done && one.frame.kind == FabricFrame::message) handler.sent(one.token);
        }
        queued_.resize(kept);
    }

    // --- completions of libfabric ---

    template <class Handler>
    void complete(FabricOperation& operation, int why, std::size_t bytes, Handler& handler) {
        switch (operation.kind) {
        case FabricOperation::Kind::room: {
            auto& room = static_cast<FabricRoom&>(operation);
            if (why == 0 && bytes >= sizeof(FabricFrame)) arrive(room.memory.data.get(), bytes, handler);
            return post(room);
        }
        case FabricOperation::Kind::outgoing: {
            auto& room = static_cast<FabricRoom&>(operation);
            --at(room.peer).outgoing;
            if (why != 0) lose(room.peer, why);
            else if (room.straight) handler.sent(room.token);
            return idle_rooms_.push_back(&room);
        }
        case FabricOperation::Kind::sending: {
            auto& sending = static_cast<Sending&>(operation);
            if (why != 0) return lose(sending.peer, why); // its memory stays with libfabric until `forget`
            --at(sending.peer).sendings;
            handler.sent(sending.token);
            sending.region = {};
            sending.copy.reset();
            return sendings_.release(sending);
        }
        case FabricOperation::Kind::landing: {
            auto& landing = static_cast<Landing&>(operation);
            if (why == 0 && bytes != landing.bytes) why = FI_ETRUNC;
            if (why != 0) return lose(landing.peer, why);
            --at(landing.peer).landings;
            landing.region = {};
            const std::uint32_t arrival = landing.arrival;
            landings_.release(landing);
            return handler.complete(arrival);
        }
        }
    }

    template <class Handler>
    void arrive(const std::byte* data, std::size_t bytes, Handler& handler) {
        FabricFrame frame;
        if (bytes < sizeof frame) return;
        std::memcpy(&frame, data, sizeof frame);
        if (frame.key != key_ || frame.from < 0 || frame.from >= world_->size()) return; // no rank of this world
        const int peer = frame.from;
        Peer& other = at(peer);
        other.heard = other.used = true;
        switch (frame.kind) {
        case FabricFrame::message:
            if (bytes == sizeof frame + frame.envelope.bytes)
                handler.message(peer, frame.envelope, data + sizeof frame);
            return;
        case FabricFrame::request:
            if (!leaving_) land(frame, handler); // else no operation wants it, and the goodbye says so
            return;
        case FabricFrame::ready: {
            Sending* const sending = sendings_.find(frame.number);
            if (sending == nullptr || sending->peer != peer || sending->landing != 0) return;
            sending->landing = frame.landing;
            moves(sending->bytes);
            return post(*sending);
        }
        case FabricFrame::goodbye:
            other.goodbye = parted_ = true;
            return send_frame(peer, frame_of(FabricFrame::goodbye_seen));
        case FabricFrame::goodbye_seen: other.answered = true; return;
        }
    }

    template <class Handler>
    void land(const FabricFrame& frame, Handler& handler) {
        Landing& landing = landings_.take();
        landing.peer = frame.from;
        landing.sending = frame.number;
        landing.bytes = frame.envelope.bytes;
        landing.arrival = handler.begin(frame.from, frame.envelope, landing.bytes);
        landing.memory = handler.memory(landing.arrival);
        if (landing.memory == nullptr) return landings_.release(landing); // a fault, meanwhile
        ++at(frame.from).landings;
        post(landing);
    }
    std::uint32_t pass_ = 0;
    bool leaving_ = false;
    bool parted_ = false;      ///< a peer said goodbye, and what it did before may not be reported yet
    Patience patience_{false}; ///< used if there is a core for each rank
};

static_assert(frame_wire<LibfabricWire>);

} // namespace detail

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
    // rounds of 32 KiB (34 and 40 us). With eager halves, chunks of 1 MiB take 0.95 x the time of
    // chunks of 512 KiB at 1 MiB, and 0.7 to 0.8 x at 16 MiB. Halves by rendezvous are no slower
    // than eager halves.
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
