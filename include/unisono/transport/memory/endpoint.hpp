#pragma once

/// \file
/// The transport of one rank that can access its peers' memory: the common part of in_process and
/// shared_memory, which differ in the kind of ranks (threads or processes) and the location of
/// memory.
///
/// A message is a descriptor in a bounded ring between two ranks. Up to `eager_bytes` travel beside
/// the descriptor. A receiver reads a larger message from the sender's memory and acknowledges it.
/// So a large send completes when its receiver has consumed it, without a copy or a bounce buffer,
/// unless the world says that peers cannot see that memory.

#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/transport/board.hpp"
#include "unisono/transport/endpoint.hpp"
#include "unisono/transport/memory/bell.hpp"
#include "unisono/transport/memory/channel.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// `World` is the state that the ranks share: channels, boards, the first fault, and the conversion
/// of peers' addresses.
template <class World>
class MemoryEndpoint : public Endpoint {
public:
    static constexpr bool maps_peers = true;

    [[gnu::cold]] MemoryEndpoint(std::shared_ptr<World> world, int rank, const EndpointFacts& facts)
        : Endpoint(rank, world->size(), facts), world_(std::move(world)), peers_(static_cast<std::size_t>(size())),
          sleeper_(world_->more_ranks_than_cores()) {
        posted_.reserve(usual_in_flight);
        sent_.reserve(usual_in_flight);
        waiting_.reserve(usual_in_flight);
        free_.reserve(usual_in_flight);
        backlog_.reserve(usual_in_flight);
    }
    MemoryEndpoint(MemoryEndpoint&&) noexcept = default;
    MemoryEndpoint& operator=(MemoryEndpoint&&) = delete;
    [[gnu::cold]] ~MemoryEndpoint() override {
        if (world_ != nullptr) world_->leave(rank());
    }

    [[nodiscard]] nanoseconds now() const override { return steady_now(); }

    /// True if the message was copied.
    bool send(int peer, const Envelope& envelope, const std::byte* data, Token token) override {
        if (backlog_.empty() || !is_backlogged(peer, backlog_.size())) {
            if (try_send(peer, envelope, data, token)) return envelope.bytes <= MemoryChannel::eager_bytes;
        }
        backlog_.push_back({peer, envelope, data, token});
        return false;
    }

    /// A large message is read in place.
    void receive(int peer, const Envelope& expected, Token token, std::byte*) override {
        posted_.push_back({peer, expected.tag, token});
    }

    void progress(EndpointSink& sink) override {
        if (!backlog_.empty()) retry_backlog();
        if (!sent_.empty()) {
            for (const Token token : sent_) sink.sent(token);
            sent_.clear();
        }
        for (std::size_t i = 0; i < posted_.size();) {
            if (take(posted_[i], sink)) {
                if (i + 1 == posted_.size()) posted_.pop_back();
                else posted_.erase(i);
            } else {
                ++i;
            }
        }
        if (posted_.size() == 1) { // the usual wait: a look here is sooner than the caller's next call
            std::uint32_t looks = mapped_->looks / 2;
            while (looks != 0 && !take(posted_[0], sink)) --looks;
            if (looks != 0) posted_.pop_back();
        }
        if (!posted_.empty() && ++polls_ <= look_at_receipts) return;
        polls_ = 0;
        for (std::size_t i = 0; i < waiting_.size();) {
            const Waiting done = waiting_[i];
            if (done.flag.consumed->load(std::memory_order_acquire) != done.flag.use) {
                ++i;
                continue;
            }
            done.channel->known_taken = std::max(done.channel->known_taken, done.number); // so were all before it
            const Token token = done.token;
            free_.push_back(done.flag);
            if constexpr (World::bounces) {
                if (done.bounced != nullptr) world_->release(rank(), done.bounced);
            }
            waiting_[i] = waiting_.back();
            waiting_.pop_back();
            sink.sent(token);
        }
    }

    /// Stays awake for a while, then sleeps until a peer has written something that may concern
    /// this rank.
    void idle(std::uint32_t attempt, nanoseconds until) override { sleeper_.idle(*world_, rank(), attempt, until); }
    /// Wakes a peer if it sleeps.
    [[gnu::noinline]] void wake(int peer) override { world_->set_bells().ring(world_->bell(peer)); }

    [[gnu::cold]] void abort(const Fault& fault) override { world_->abort(rank(), fault); }
    [[nodiscard]] const Fault* fault() const override { return world_->first_fault(); }
    [[nodiscard]] Presence presence(int peer) override { return has_left(peer) ? Presence::left : Presence::here; }
    /// Messages that a peer consumed before it left are reported by the next `progress`.
    [[nodiscard]] bool has_left(int peer) const {
        if (!world_->has_left(peer)) return false;
        polls_ = look_at_receipts;
        return true;
    }

    /// The offset from an address in `peer`'s address space to the same memory here.
    [[nodiscard]] std::ptrdiff_t shift(int peer) const { return world_->shift(peer); }

    [[nodiscard, gnu::cold]] GroupBoard open(std::uint64_t context, std::span<const int> members) override {
        const int ranks = static_cast<int>(members.size());
        GroupBoard board{world_->announcements(context, ranks), world_->mapped_board(context, ranks), {}};
        for (const int member : members) board.shifts.push_back(shift(member));
        return board;
    }
    [[gnu::cold]] void close(std::uint64_t context) noexcept override { world_->drop_board(context); }

    // --- for transports that use this one within a host; its boards then tell less ---

    /// True if this rank has a message from or to the peer in flight.
    [[nodiscard]] bool has_under_way(int peer) const {
        const MemoryChannel* const out = peers_[static_cast<std::size_t>(peer)].out;
        for (const Posted& one : posted_)
            if (one.peer == peer) return true;
        for (const Waiting& one : waiting_)
            if (one.channel == out) return true;
        return is_backlogged(peer, backlog_.size());
    }
    /// The signature of a message of a peer's operation for which no receive is posted, or nullptr.
    [[nodiscard]] const Signature* unasked_signature(int peer, std::uint64_t context, std::uint32_t sequence) {
        Peer& from = incoming(peer);
        while (const Slot* const slot = arrived(*from.in)) {
            keep(from, *slot);
            from.in->taken.store(++from.in->received, std::memory_order_release);
            if (one_sleeps()) wake(peer);
        }
        for (const Early& early : from.early) {
            if (early.envelope.tag.context == context && early.envelope.tag.position >> 32 == sequence)
                return &early.envelope.signature;
        }
        return nullptr;
    }

protected:
    /// Offers this rank's words, when the world has them.
    void map() {
        const bool has_core_of_its_own = !world_->more_ranks_than_cores(); // else polls take another rank's
        mapped_ = world_->mapped(rank());
        mapped_->looks = has_core_of_its_own ? looks_at_once : 0;
        mapped_->pauses = has_core_of_its_own ? pauses_at_first : 0;
        fault_word_ = mapped_->fault;
    }
    [[nodiscard]] World& world() const { return *world_; }
    [[nodiscard]] const std::shared_ptr<World>& shared_world() const { return world_; }

private:
    using Channel = MemoryChannel;
    using Slot = MemoryChannel::Slot;

    /// Initial capacities, so that a training step does not allocate when messages first arrive out
    /// of order.
    static constexpr std::size_t usual_in_flight = 64;
    static constexpr std::size_t usual_early = 16; ///< per peer that sends to this rank
    static constexpr std::uint32_t looks_at_once = 16;
    /// Attempt 0 idles; with it these are the attempts of Patience that do not read the clock.
    static constexpr std::uint32_t pauses_at_first = 63;

    struct Outgoing {
        int peer = 0;
        Envelope envelope;
        const std::byte* data = nullptr;
        Token token = 0;
    };
    struct Posted {
        int peer = 0;
        Tag tag;
        Token token = 0;
    };
    /// The flag by which a receiver acknowledges a large message. It writes the number of the
    /// flag's use, since clearing the flag for the next use would cost a trip between the cores.
    struct Flag {
        std::atomic<std::uint32_t>* consumed = nullptr;
        std::uint32_t use = MemoryChannel::outside;
    };
    /// A large message in flight.
    struct Waiting {
        Flag flag;
        Token token = 0;
        MemoryChannel* channel = nullptr;
        std::uint64_t number = 0;     ///< in the channel
        std::byte* bounced = nullptr; ///< the copy that the peer reads, if it cannot see the sender's memory
    };
    /// A message that came before its receive: only the descriptor is kept, and a small payload.
    struct Early {
        Envelope envelope;
        const std::byte* data = nullptr;
        std::atomic<std::uint32_t>* consumed = nullptr;
        std::uint32_t use = 0;
        std::byte eager[MemoryChannel::eager_bytes];
    };
    struct Peer {
        MemoryChannel* out = nullptr; ///< set when first needed
        MemoryChannel* in = nullptr;
        List<Early> early; ///< messages from it without a posted receive
    };

    /// True if one of the first `count` messages of the backlog is for the peer.
    [[nodiscard]] bool is_backlogged(int peer, std::size_t count) const {
        for (std::size_t i = 0; i < count; ++i)
            if (backlog_[i].peer == peer) return true;
        return false;
    }

    /// Retries in order for each peer. A peer whose ring is full does not hold up the others.
    void retry_backlog() {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < backlog_.size(); ++i) {
            const Outgoing out = backlog_[i];
            if (is_backlogged(out.peer, kept) || !try_send(out.peer, out.envelope, out.data, out.token))
                backlog_[kept++] = out;
            else if (out.envelope.bytes <= MemoryChannel::eager_bytes) sent_.push_back(out.token);
        }
        backlog_.resize(kept);
    }

    [[gnu::always_inline]] inline bool try_send(int peer, const Envelope& envelope, const std::byte* data,
                                                Token token) {
        MemoryChannel*& known = peers_[static_cast<std::size_t>(peer)].out;
        if (known == nullptr) known = &world_->channel(rank(), peer);
        MemoryChannel& channel = *known;
        const std::uint64_t in_flight = channel.sent - channel.known_taken;
        if (in_flight >= Channel::depth - 2) { // before the ring is full, so that no send waits for the line
            channel.known_taken = channel.taken.load(std::memory_order_acquire);
            if (in_flight == Channel::depth && channel.sent - channel.known_taken == Channel::depth) return false;
        }
        auto& slot = channel.message_slots[channel.sent % Channel::depth];
        if (envelope.bytes <= Channel::eager_bytes) {
            if (envelope.bytes <= Channel::tiny_bytes) copy_small(slot.tiny, data, envelope.bytes);
            else std::memcpy(slot.eager, data, envelope.bytes);
            slot.inside = static_cast<std::uint32_t>(envelope.bytes);
        } else {
            std::byte* bounced = nullptr;
            if constexpr (World::bounces) {
                if (!world_->reaches(data, envelope.bytes)) data = bounced = copied(data, envelope.bytes);
            }
            const Flag flag = take_flag();
            waiting_.push_back({flag, token, &channel, channel.sent, bounced});
            const Channel::Outside outside{envelope.bytes, data, flag.consumed};
            std::memcpy(slot.tiny, &outside, sizeof outside);
            slot.inside = flag.use;
        }
        slot.tag = envelope.tag;
        slot.signature = envelope.signature;
        slot.turn.store(static_cast<std::uint32_t>(++channel.sent), std::memory_order_release);
        if (one_sleeps()) [[unlikely]]
            wake(peer);
        return true;
    }

    Flag take_flag() {
        if (free_.empty()) free_.push_back({.consumed = &world_->new_flag(rank())});
        Flag flag = free_.back();
        free_.pop_back();
        flag.use = (flag.use + 1) | MemoryChannel::outside;
        return flag;
    }

    std::byte* copied(const std::byte* data, std::size_t bytes) {
        std::byte* copy = nullptr;
        if constexpr (World::bounces) {
            copy = world_->allocate(rank(), bytes);
            std::memcpy(copy, data, bytes);
        }
        return copy;
    }

    bool take(const Posted& posted, EndpointSink& sink) {
        Peer& from = peers_[static_cast<std::size_t>(posted.peer)];
        for (std::size_t i = 0; i < from.early.size(); ++i) {
            const Early& early = from.early[i];
            if (early.envelope.tag == posted.tag) {
                deliver(posted, early.envelope, early.data, early.eager, early.consumed, early.use, sink);
                from.early.erase(i);
                return true;
            }
        }
        incoming(posted.peer);
        auto& channel = *from.in;
        while (const Slot* const slot = arrived(channel)) {
            const bool match = slot->tag == posted.tag;
            if (match) {
                Channel::Outside outside;
                const Envelope envelope = read(*slot, outside);
                deliver(posted, envelope, outside.data, inside_of(*slot), outside.consumed, slot->inside, sink);
            } else {
                keep(from, *slot);
            }
            channel.taken.store(++channel.received, std::memory_order_release);
            if (one_sleeps()) [[unlikely]]
                wake(posted.peer); // its ring may have been full
            if (match) return true;
        }
        return false;
    }

    /// The ring of a peer's messages.
    Peer& incoming(int peer) {
        Peer& from = peers_[static_cast<std::size_t>(peer)];
        if (from.in == nullptr) {
            from.in = &world_->channel(peer, rank());
            from.early.reserve(usual_early);
        }
        return from;
    }
    /// The next message; nullptr if there is none.
    static const Slot* arrived(const Channel& channel) {
        const Slot& slot = channel.message_slots[channel.received % Channel::depth];
        __builtin_prefetch(slot.eager); // fetched together with the line of the turn
        const bool came = slot.turn.load(std::memory_order_acquire) == static_cast<std::uint32_t>(channel.received + 1);
        return came ? &slot : nullptr;
    }
    static const std::byte* inside_of(const Slot& slot) {
        return slot.inside <= Channel::tiny_bytes ? slot.tiny : slot.eager;
    }
    static Envelope read(const Slot& slot, Channel::Outside& outside) {
        if (slot.inside >= Channel::outside) std::memcpy(&outside, slot.tiny, sizeof outside);
        else outside.bytes = slot.inside;
        return {slot.tag, slot.signature, outside.bytes};
    }
    /// Keeps a message for a receive that is posted later.
    static void keep(Peer& from, const Slot& slot) {
        Channel::Outside outside;
        from.early.push_back({});
        Early& early = from.early.back();
        early.envelope = read(slot, outside);
        early.data = outside.data;
        early.consumed = outside.consumed;
        early.use = slot.inside;
        if (outside.consumed == nullptr) std::memcpy(early.eager, inside_of(slot), early.envelope.bytes);
    }

    void deliver(const Posted& posted, const Envelope& envelope, const std::byte* data, const std::byte* eager,
                 std::atomic<std::uint32_t>* consumed, std::uint32_t use, EndpointSink& sink) {
        if (consumed == nullptr) return sink.received(posted.token, envelope, eager);
        const Touching touching(*this);
        if (!touching) return; // a fault: the sender may have withdrawn its memory
        const std::ptrdiff_t here = world_->shift(posted.peer);
        sink.received(posted.token, envelope, data + here);
        shifted(consumed, here)
            ->store(use, std::memory_order_release); // still touching: the flag is in the sender's memory
        if (one_sleeps()) [[unlikely]]
            wake(posted.peer);
    }

    static std::atomic<std::uint32_t>* shifted(std::atomic<std::uint32_t>* flag, std::ptrdiff_t bytes) {
        return reinterpret_cast<std::atomic<std::uint32_t>*>(reinterpret_cast<std::byte*>(flag) + bytes);
    }

    std::shared_ptr<World> world_;
    FixedArray<Peer> peers_;
    List<Posted> posted_;
    List<Token> sent_;
    List<Waiting> waiting_;
    List<Flag> free_;
    List<Outgoing> backlog_;
    static constexpr std::uint32_t look_at_receipts = 7; ///< polls for messages between two looks at receipts
    mutable std::uint32_t polls_ = 0;
    BellSleeper sleeper_;
};

} // namespace detail
UNISONO_NAMESPACE_END
