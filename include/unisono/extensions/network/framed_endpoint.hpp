#pragma once

/// \file
/// The transport of one rank over a wire (frame_wire.hpp). It matches messages with receives, keeps
/// early messages, and knows the ranks that left or are lost, and the first fault. The common part
/// of tcp and libfabric.

#include "unisono/core/list.hpp"
#include "unisono/extensions/network/frame_wire.hpp"
#include "unisono/extensions/network/world.hpp"
#include "unisono/transport/endpoint.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Bounce buffers for messages until the group takes them. They are reused, so that a training step
/// does not allocate. Blocks in powers of two, aligned to cache lines. Keeps at most `most_kept`
/// unused bytes.
class BouncePool {
public:
    static constexpr std::size_t least = 2048;
    static constexpr std::size_t most_kept = std::size_t{256} << 20;

    struct Block {
        std::byte* data = nullptr;
        std::size_t capacity = 0;
    };

    BouncePool() = default;
    BouncePool(BouncePool&& other) noexcept : free_(std::move(other.free_)), kept_(std::exchange(other.kept_, 0)) {
        other.free_.clear();
    }
    BouncePool& operator=(BouncePool&&) = delete;
    ~BouncePool() {
        for (const Block& block : free_) destroy(block);
    }

    /// The fitting block that was returned last: it is in cache.
    [[nodiscard]] Block take(std::size_t bytes) {
        const std::size_t wanted = std::bit_ceil(std::max(bytes, least));
        for (std::size_t i = free_.size(); i-- > 0;) {
            if (free_[i].capacity != wanted) continue;
            const Block found = free_[i];
            free_.erase(i);
            kept_ -= found.capacity;
            return found;
        }
        return make(wanted);
    }

    void give(const Block& block) {
        if (block.capacity > most_kept - kept_) return destroy(block);
        kept_ += block.capacity;
        free_.push_back(block);
    }

    /// Allocates `count` small blocks before they are needed.
    void provide(std::size_t count) {
        free_.reserve(free_.size() + 2 * count);
        for (std::size_t i = 0; i < count; ++i) give(make(least));
    }

private:
    static constexpr std::align_val_t line{64};
    static Block make(std::size_t bytes) { return {static_cast<std::byte*>(::operator new(bytes, line)), bytes}; }
    static void destroy(const Block& block) { ::operator delete(block.data, line); }

    List<Block> free_;
    std::size_t kept_ = 0;
};

template <class Wire>
class FramedEndpoint : public Endpoint, private MessageView {
    static_assert(frame_wire<Wire>);

public:
    static constexpr bool maps_peers = false;
    using World = NetworkWorld;

    FramedEndpoint(std::shared_ptr<World> world, int rank, Wire wire, const EndpointFacts& facts)
        : Endpoint(rank, world->size(), with(facts)), world_(std::move(world)), wire_(std::move(wire)),
          boxes_(static_cast<std::size_t>(size())) {
        ready_.reserve(usual_early);
    }
    FramedEndpoint(FramedEndpoint&&) noexcept = default;
    FramedEndpoint& operator=(FramedEndpoint&&) = delete;
    ~FramedEndpoint() override {
        if (world_ == nullptr || !world_->is_here()) return; // in a fork the connections are the parent's
        world_->report_unwinding(rank());
        if (world_->first_fault() == nullptr) wire_.goodbye(steady_now() + goodbye_within);
        else forget();
        world_->leave(rank());
        for (const Arrival& arrival : arrivals_)
            if (arrival.block.data != nullptr) give_back(arrival.block);
    }

    [[nodiscard]] nanoseconds now() const override { return steady_now(); }
    [[nodiscard]] const std::shared_ptr<World>& shared_world() const { return world_; }

    /// True if the wire no longer needs the memory.
    bool send(int peer, const Envelope& envelope, const std::byte* data, Token token) override {
        if (forgotten_) return false;
        return wire_.send(peer, envelope, data, token);
    }

    /// The size from which on the wire receives a message directly into a given target.
    static constexpr std::size_t lands_from = [] {
        if constexpr (requires { Wire::lands_from; }) return Wire::lands_from;
        else return ~std::size_t{0};
    }();
    void receive(int peer, const Envelope& expected, Token token, std::byte* target) override {
        if (forgotten_) return;
        Box& from = box(peer);
        for (std::size_t i = 0; i < from.early.size(); ++i) {
            if (!(arrivals_[from.early[i]].envelope.tag == expected.tag)) continue;
            ready_.push_back({from.early[i], token});
            from.early.erase(i);
            return;
        }
        from.posted.push_back({expected, token, target});
    }

    void progress(EndpointSink& sink) override {
        if (world_->first_fault() != nullptr) return forget();
        Handler handler{*this, sink};
        for (std::size_t i = 0; i < ready_.size(); ++i) { // none is added meanwhile: sinks post nothing
            const Ready one = ready_[i];
            sink.received(one.token, arrivals_[one.arrival].envelope, arrivals_[one.arrival].block.data);
            release(one.arrival);
        }
        ready_.clear();
        wire_.poll(handler);
        if (no_memory_.code != ErrorCode::none) [[unlikely]]
            abort(no_memory_);
    }

    void idle(std::uint32_t attempt, nanoseconds until) override { wire_.idle(attempt, until); }

    /// Peers access this rank's memory only through the wire, which forgets it.
    void abort(const Fault& fault) override {
        world_->abort(rank(), fault);
        forget();
    }
    [[nodiscard]] const Fault* fault() const override { return world_->first_fault(); }

    void waits(const Wait* wait) override {
        if (wait != nullptr) world_->waits(rank(), *wait);
        else world_->waits_no_more(rank());
    }

    // --- diagnosis: called rarely ---

    [[nodiscard]] Presence presence(int peer) override {
        return has_died(peer) ? Presence::died : has_left(peer) ? Presence::left : Presence::here;
    }
    [[nodiscard]] MessageView* messages() override { return this; }
    /// Only then the peer's end matters.
    [[nodiscard]] bool awaits(int peer) const override {
        const auto& known = boxes_[static_cast<std::size_t>(peer)];
        return (known != nullptr && !known->posted.empty()) || wire_.sending(peer);
    }
    /// True if the peer has left, and none of its messages are in flight.
    [[nodiscard]] bool has_left(int peer) {
        return wire_.said_goodbye(peer) || (world_->has_left(peer) && wire_.quiet(peer));
    }
    /// True if the peer's connection failed, or ended without a goodbye.
    [[nodiscard]] bool has_died(int peer) const { return wire_.lost(peer) && !world_->has_left(peer); }
    [[nodiscard]] std::string describe(int peer) const override { return wire_.describe(peer); }
    [[nodiscard]] const Signature* early_signature(int peer, std::uint64_t context, std::uint32_t sequence) override {
        const auto& known = boxes_[static_cast<std::size_t>(peer)];
        if (known == nullptr) return nullptr;
        for (const std::uint32_t number : known->early) {
            const Envelope& envelope = arrivals_[number].envelope;
            if (envelope.tag.context == context && envelope.tag.position >> 32 == sequence) return &envelope.signature;
        }
        return nullptr;
    }

protected:
    [[nodiscard]] Wire& wire() { return wire_; }
    [[nodiscard]] const Wire& wire() const { return wire_; }

private:
    static constexpr std::size_t usual_early = 16; ///< per peer that sends to this rank: initial capacity
    static constexpr std::size_t at_first = std::size_t{1} << 20; ///< bytes of a message without a receive; it grows
    static constexpr bool wire_grows = requires { requires Wire::grows; };
    static constexpr nanoseconds goodbye_within = 2'000'000'000;

    struct Posted {
        Envelope expected; ///< a longer message gets no memory
        Token token = 0;
        std::byte* target = nullptr; ///< destination, if the expected message arrives
    };
    struct Ready {
        std::uint32_t arrival = 0;
        Token token = 0;
    };
    /// A message in a bounce buffer: in flight, or early.
    struct Arrival {
        int peer = 0;
        Envelope envelope;
        BouncePool::Block block;
    };
    struct Box {
        List<Posted> posted;
        List<std::uint32_t> early; ///< arrivals
    };

    struct Handler {
        FramedEndpoint& to;
        EndpointSink& sink;

        void sent(Token token) { sink.sent(token); }
        void message(int peer, const Envelope& envelope, const std::byte* data) {
            if (Token token = 0; to.take_posted(peer, envelope.tag, token)) return sink.received(token, envelope, data);
            const std::uint32_t number = begin(peer, envelope, envelope.bytes);
            if (memory(number) == nullptr) return; // a fault, meanwhile
            if (envelope.bytes != 0) std::memcpy(memory(number), data, envelope.bytes);
            to.box(peer).early.push_back(number);
        }
        /// A message longer than its posted receive gets no memory: the sink tells the group now. A
        /// message for which the host has no memory gets none either.
        std::uint32_t begin(int peer, const Envelope& envelope, std::size_t room) {
            if (to.is_too_long(peer, envelope)) {
                Token token = 0;
                to.take_posted(peer, envelope.tag, token);
                sink.too_long(token, envelope);
                return to.new_arrival({peer, envelope, {}});
            }
            if (std::byte* const target = to.take_target(peer, envelope, room); target != nullptr)
                return to.new_arrival({peer, envelope, {target, 0}});
            const bool grows = wire_grows && !to.is_agreed(peer, envelope); // only the sender tells its size
            return to.new_arrival(
                {peer, envelope, to.bounce_buffer(peer, envelope, grows ? std::min(room, at_first) : room)});
        }
        std::byte* memory(std::uint32_t arrival) { return to.arrivals_[arrival].block.data; }
        /// The memory that is there; a target is complete.
        [[nodiscard]] std::size_t capacity(std::uint32_t arrival) const {
            const std::size_t bounced = to.arrivals_[arrival].block.capacity;
            return bounced != 0 ? bounced : ~std::size_t{0};
        }
        /// Doubles the memory and copies its first `have` bytes.
        std::byte* grow(std::uint32_t arrival, std::size_t have, std::size_t room) {
            const Arrival before = to.arrivals_[arrival];
            const BouncePool::Block more =
                to.bounce_buffer(before.peer, before.envelope, std::min(room, 2 * before.block.capacity));
            if (more.data != nullptr) std::memcpy(more.data, before.block.data, have);
            to.give_back(before.block);
            to.arrivals_[arrival].block = more;
            return more.data;
        }
        void complete(std::uint32_t number) {
            const Arrival arrival = to.arrivals_[number];
            if (Token token = 0; to.take_posted(arrival.peer, arrival.envelope.tag, token)) {
                sink.received(token, arrival.envelope, arrival.block.data);
                to.release(number);
            } else {
                to.box(arrival.peer).early.push_back(number);
            }
        }
        [[nodiscard]] bool awaits(int peer) const {
            const auto& known = to.boxes_[static_cast<std::size_t>(peer)];
            return known != nullptr && !known->posted.empty();
        }
        [[nodiscard]] std::size_t awaited_bytes(int peer) const {
            return awaits(peer) ? to.boxes_[static_cast<std::size_t>(peer)]->posted[0].expected.bytes : 0;
        }
    };

    static EndpointFacts with(EndpointFacts facts) {
        facts.lands_from = lands_from;
        facts.wants_waits = true;
        return facts;
    }

    Box& box(int peer) {
        auto& known = boxes_[static_cast<std::size_t>(peer)];
        if (known == nullptr) [[unlikely]] {
            known = std::make_unique<Box>();
            known->posted.reserve(4 * usual_early);
            known->early.reserve(usual_early);
            arrivals_.reserve(arrivals_.size() + 2 * usual_early);
            unused_.reserve(arrivals_.size() + 2 * usual_early);
            pool_.provide(usual_early);
        }
        return *known;
    }

    bool take_posted(int peer, const Tag& tag, Token& token) {
        List<Posted>& posted = box(peer).posted;
        for (std::size_t i = 0; i < posted.size(); ++i) {
            if (!(posted[i].expected.tag == tag)) continue;
            token = posted[i].token;
            posted.erase(i);
            return true;
        }
        return false;
    }

    /// The target of a message that is exactly what a posted receive expects; nullptr: use a bounce
    /// buffer. Each target is given once: if a faulty peer sends two messages with one tag, the
    /// second does not arrive in memory that its receiver may have got back already.
    std::byte* take_target(int peer, const Envelope& envelope, std::size_t room) {
        if (room != envelope.bytes) return nullptr;
        List<Posted>& posted = box(peer).posted;
        for (std::size_t i = 0; i < posted.size(); ++i) {
            const Envelope& expected = posted[i].expected;
            if (!(expected.tag == envelope.tag)) continue;
            const bool same = expected.bytes == envelope.bytes && expected.signature == envelope.signature;
            return same ? std::exchange(posted[i].target, nullptr) : nullptr;
        }
        return nullptr;
    }
    /// True if a receive of at least this size is posted for the message.
    [[nodiscard]] bool is_agreed(int peer, const Envelope& envelope) {
        const List<Posted>& posted = box(peer).posted;
        for (std::size_t i = 0; i < posted.size(); ++i)
            if (posted[i].expected.tag == envelope.tag) return envelope.bytes <= posted[i].expected.bytes;
        return false;
    }
    [[nodiscard]] bool is_too_long(int peer, const Envelope& envelope) {
        const List<Posted>& posted = box(peer).posted;
        for (std::size_t i = 0; i < posted.size(); ++i)
            if (posted[i].expected.tag == envelope.tag) return envelope.bytes > posted[i].expected.bytes;
        return false;
    }

    /// A bounce buffer for a message; none, and a fault, if the message claims more bytes than the
    /// host has.
    BouncePool::Block bounce_buffer(int peer, const Envelope& envelope, std::size_t room) {
        static const std::size_t host_has = static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_PHYS_PAGES))) *
                                            static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        try {
            if (envelope.bytes <= host_has) return pool_.take(room);
        } catch (const std::bad_alloc&) {
        }
        if (no_memory_.code == ErrorCode::none)
            no_memory_ = {.code = ErrorCode::refused,
                          .rank = rank(),
                          .peer = peer,
                          .operation = "receive",
                          .message =
                              concat({"rank ", rank(), " has no memory for a message of ", envelope.bytes,
                                      " bytes that rank ", peer, " has begun to send; the host has ", host_has})};
        return {};
    }

    /// Returns a bounce buffer to the pool; a target belongs to the group.
    void give_back(const BouncePool::Block& block) { // an empty one has no capacity
        if (block.capacity != 0) pool_.give(block);
    }

    std::uint32_t new_arrival(const Arrival& arrival) {
        if (unused_.empty()) {
            unused_.push_back(static_cast<std::uint32_t>(arrivals_.size()));
            arrivals_.push_back({});
        }
        const std::uint32_t number = unused_.back();
        unused_.pop_back();
        arrivals_[number] = arrival;
        return number;
    }
    void release(std::uint32_t number) {
        give_back(arrivals_[number].block);
        arrivals_[number] = {};
        unused_.push_back(number);
    }

    void forget() {
        if (std::exchange(forgotten_, true)) return;
        wire_.forget();
        ready_.clear();
        for (const auto& known : boxes_)
            if (known != nullptr) known->posted.clear();
    }

    std::shared_ptr<World> world_;
    Wire wire_;
    std::vector<std::unique_ptr<Box>> boxes_; ///< by peer; null until used
    BouncePool pool_;
    List<Arrival> arrivals_;
    List<std::uint32_t> unused_; ///< free arrivals
    List<Ready> ready_;          ///< messages that came before their receive
    Fault no_memory_;
    bool forgotten_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
