#pragma once

/// \file
/// A rank's traffic over libfabric: messages and frames that wait to be sent, large messages in
/// both directions, and operations that libfabric has postponed. The wire (libfabric.hpp)
/// gives them their meaning.

#include "unisono/core/list.hpp"
#include "unisono/extensions/libfabric/frames.hpp"
#include "unisono/extensions/network/world.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class FabricTraffic {
public:
    FabricTraffic(std::shared_ptr<NetworkWorld> world, int rank, FabricDevice device, std::size_t eager_bytes)
        : world_(std::move(world)), rank_(rank), eager_bytes_(eager_bytes), key_(fabric_key(world_->key())),
          peers_(static_cast<std::size_t>(world_->size())), device_(std::move(device)) {
        queued_.reserve(64);
        again_.reserve(64);
        if (!device_.is_open()) return;
        for (std::size_t i = 0; i < (eager_bytes_ > 65536 ? large_rooms_posted : rooms_posted); ++i) {
            rooms_.push_back(std::make_unique<FabricRoom>(FabricOperation::Kind::room, device_, room_bytes()));
            post(*rooms_.back());
        }
    }

    FabricTraffic(FabricTraffic&&) noexcept = default;
    FabricTraffic& operator=(FabricTraffic&&) = delete;
    ~FabricTraffic() { // in a forked process: closing would shut down the parent's connections
        if (device_.is_open() && !world_->is_here()) // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new)
            static_cast<void>(new FabricDevice(std::move(device_)));
    }

    /// Memory that is registered once, if libfabric needs that, for as long as its owner lives.
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
        return remembered(std::make_shared<FabricMemory>(device_, bytes));
    }
    /// Memory of another owner; the returned object keeps it registered.
    [[nodiscard]] std::shared_ptr<std::byte> register_once(std::shared_ptr<std::byte> memory, std::size_t bytes) {
        if (!device_.wants_registration() || bytes == 0) return memory;
        return remembered(std::make_shared<FabricMemory>(device_, std::move(memory), bytes));
    }
    /// The number of registrations so far.
    [[nodiscard]] std::uint64_t registrations() const { return device_.registrations(); }

    [[nodiscard]] bool lost(int peer) const { return !at(peer).why.empty(); }
    [[nodiscard]] bool sending(int peer) const {
        const Peer& to = at(peer);
        return to.queued != 0 || to.sendings != 0 || to.outgoing != 0;
    }
    [[nodiscard]] const std::vector<std::byte>& address() const { return device_.address(); }
    [[nodiscard]] int peers_used() const {
        return static_cast<int>(std::count_if(peers_.begin(), peers_.end(), [](const Peer& one) { return one.used; }));
    }

protected:
    static constexpr std::size_t rooms_posted = 16; ///< eager messages that may arrive between two polls at full speed
    /// For large messages: memory that is reused soon is in cache. Measured over net: 0.9 x the
    /// time of 16 from 64 KiB on; bursts of 32 small ones are as fast.
    static constexpr std::size_t large_rooms_posted = 4;
    /// The sender copies smaller eager messages, and sends those from this size on in place.
    static constexpr std::size_t least_straight = 8192;
    static constexpr std::size_t rooms_outgoing = 16; ///< eager messages that libfabric has not sent yet

    enum class Begun : std::uint8_t { later, on_its_way, done };

    struct Peer {
        fi_addr_t to = FI_ADDR_NOTAVAIL; ///< not set until the peer is used
        std::size_t eager_bytes = 0;     ///< the largest eager message that it can receive
        std::uint32_t queued = 0, outgoing = 0, sendings = 0, landings = 0;
        bool used = false, heard = false;
        bool goodbye = false;         ///< it leaves
        bool told = false;            ///< this rank has told it that it leaves
        bool answered = false;        ///< it has answered that
        nanoseconds asked = 0;        ///< when `quiet` was first called
        std::uint32_t blocked_in = 0; ///< the last pass over the queue in which it was blocked
        std::string why = {};         ///< why it is lost
    };
    /// A message, or a frame alone, that libfabric does not accept yet.
    struct Queued {
        int peer = 0;
        FabricFrame frame;
        const std::byte* data = nullptr;
        Token token = 0;
    };
    /// A large message of this rank.
    struct Sending : FabricOperation {
        Sending() : FabricOperation(Kind::sending) {}
        std::uint64_t number = FabricRecords<Sending>::none;
        int peer = 0;
        const std::byte* data = nullptr;
        std::size_t bytes = 0;
        Token token = 0;
        std::uint64_t landing = 0;         ///< the receiver's tag for it
        std::unique_ptr<std::byte[]> copy; ///< a copy, if the peer reads memory without this rank's help
        FabricRegion region;
    };
    /// A large message for this rank.
    struct Landing : FabricOperation {
        Landing() : FabricOperation(Kind::landing) {}
        std::uint64_t number = FabricRecords<Landing>::none;
        int peer = 0;
        std::uint32_t arrival = 0;
        std::uint64_t sending = 0; ///< the sender's number of it
        std::byte* memory = nullptr;
        std::size_t bytes = 0;
        FabricRegion region;
    };

    /// True if a large message is in flight in either direction, and has not had the time yet that
    /// it takes at 1 GB/s. A slower network's buffers do not run empty while a rank sleeps.
    [[nodiscard]] bool large_moves() const {
        return (!sendings_.empty() || !landings_.empty()) && steady_now() < moves_until_;
    }
    /// Both ends are ready for a large message.
    void moves(std::size_t bytes) {
        moves_until_ = std::max(moves_until_, steady_now()) + static_cast<nanoseconds>(bytes);
    }
    Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] const Peer& at(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] std::size_t room_bytes() const { return sizeof(FabricFrame) + eager_bytes_; }

    [[nodiscard]] FabricFrame frame_of(FabricFrame::Kind kind) const {
        FabricFrame frame;
        frame.key = key_;
        frame.from = rank_;
        frame.kind = kind;
        return frame;
    }

    /// True if libfabric knows a peer's address. libfabric connects when something is first sent.
    bool reach(int peer) {
        Peer& other = at(peer);
        if (other.to != FI_ADDR_NOTAVAIL) [[likely]]
            return true;
        const FabricCard card = FabricCard::read(world_->address(peer));
        if (card.address.empty()) return false; // it has not begun
        other.eager_bytes = std::min<std::size_t>(eager_bytes_, card.eager_bytes);
        other.to = device_.insert(card.address);
        if (other.to == FI_ADDR_NOTAVAIL) other.why = "libfabric does not take this address";
        return other.to != FI_ADDR_NOTAVAIL;
    }

    Begun begin(int peer, FabricFrame frame, const std::byte* data, Token token) {
        if (!reach(peer)) return Begun::later;
        if (frame.kind != FabricFrame::message) return transmit(peer, frame, nullptr, 0) ? Begun::done : Begun::later;
        if (frame.envelope.bytes <= at(peer).eager_bytes) {
            if (frame.envelope.bytes >= least_straight && device_.sends_both())
                return transmit(peer, frame, data, frame.envelope.bytes, &token) ? Begun::on_its_way : Begun::later;
            return transmit(peer, frame, data, frame.envelope.bytes) ? Begun::done : Begun::later;
        }
        Sending& one = sendings_.take();
        one.peer = peer;
        one.data = data;
        one.bytes = frame.envelope.bytes;
        one.token = token;
        one.landing = 0;
        ++at(peer).sendings;
        if (device_.peers_read()) {
            one.copy = std::make_unique<std::byte[]>(one.bytes);
            std::memcpy(one.copy.get(), data, one.bytes);
            one.data = one.copy.get();
        }
        frame.kind = FabricFrame::request;
        frame.number = one.number;
        send_frame(peer, frame);
        return Begun::on_its_way;
    }

    /// Sends a frame without a message.
    void send_frame(int peer, const FabricFrame& frame) {
        Peer& to = at(peer);
        if (to.queued == 0 && begin(peer, frame, nullptr, 0) == Begun::done) return;
        ++to.queued;
        queued_.push_back({peer, frame, nullptr, 0});
    }

    /// False if the message cannot be sent now. With a token the payload is sent from its own
    /// memory, and the token is reported afterwards; without one the payload is copied.
    bool transmit(int peer, const FabricFrame& frame, const std::byte* data, std::size_t bytes,
                  const Token* token = nullptr) {
        Peer& to = at(peer);
        to.used = true;
        const std::size_t all = sizeof frame + bytes;
        if (token == nullptr && all <= std::min<std::size_t>(device_.inject_bytes(), 1024)) {
            alignas(FabricFrame) std::byte both[1024];
            std::memcpy(both, &frame, sizeof frame);
            if (bytes != 0) std::memcpy(both + sizeof frame, data, bytes);
            return begun(peer, device_.inject(to.to, fabric_frame_tag, both, all));
        }
        if (idle_rooms_.empty()) {
            if (outgoing_.size() == rooms_outgoing) return false;
            outgoing_.push_back(std::make_unique<FabricRoom>(FabricOperation::Kind::outgoing, device_, room_bytes()));
            idle_rooms_.push_back(outgoing_.back().get());
        }
        FabricRoom& room = *idle_rooms_.back();
        std::memcpy(room.memory.data.get(), &frame, sizeof frame);
        room.straight = token != nullptr;
        if (room.straight) room.token = *token;
        else if (bytes != 0) std::memcpy(room.memory.data.get() + sizeof frame, data, bytes);
        std::byte* const from = room.memory.data.get();
        if (!begun(peer, room.straight
                             ? device_.send_both(to.to, fabric_frame_tag, from, sizeof frame, data, bytes, room)
                             : device_.send(to.to, fabric_frame_tag, from, all, room.memory.region.handle.get(), room)))
            return false;
        room.peer = peer;
        ++to.outgoing;
        idle_rooms_.pop_back();
        return true;
    }
    bool begun(int peer, ssize_t result) {
        if (result != 0 && result != -FI_EAGAIN) lose(peer, result);
        return result == 0;
    }
    void lose(int peer, ssize_t failed) {
        Peer& other = at(peer);
        if (other.why.empty()) other.why = FabricDevice::error_text(failed);
    }

    // --- operations of libfabric ---

    void post(FabricRoom& room) {
        check(room, -1,
              device_.receive(FI_ADDR_UNSPEC, fabric_frame_tag, room.memory.data.get(), room_bytes(),
                              room.memory.region.handle.get(), room));
    }
    void post(Landing& landing) {
        const std::uint64_t tag = fabric_bulk_bit | landing.number;
        fid_mr* const region = registration(landing.memory, landing.bytes, landing.region);
        if (!check(landing, landing.peer,
                   device_.receive(FI_ADDR_UNSPEC, tag, landing.memory, landing.bytes, region, landing)))
            return;
        FabricFrame ready = frame_of(FabricFrame::ready);
        ready.number = landing.sending;
        ready.landing = tag;
        moves(landing.bytes);
        send_frame(landing.peer, ready);
    }
    void post(Sending& sending) {
        fid_mr* const region = registration(sending.data, sending.bytes, sending.region);
        check(sending, sending.peer,
              device_.send(at(sending.peer).to, sending.landing, sending.data, sending.bytes, region, sending));
    }
    [[nodiscard]] std::shared_ptr<std::byte> remembered(const std::shared_ptr<FabricMemory>& made) {
        if (made->region.handle != nullptr) {
            std::erase_if(registered_, [](const auto& one) { return one.expired(); });
            registered_.push_back(made);
        }
        return {made, made->data.get()};
    }
    /// The registration of a large message's memory, if libfabric needs one: that of memory that
    /// the program holds, else `own`, which ends with the message. Errors: refused.
    [[nodiscard]] fid_mr* registration(const std::byte* data, std::size_t bytes, FabricRegion& own) {
        if (!device_.wants_registration()) return nullptr;
        if (fid_mr* const known = region_of(data, bytes); known != nullptr) return known;
        if (own.handle == nullptr) own = device_.register_memory(data, bytes);
        return own.handle.get();
    }
    /// The registration of memory that was registered once; nullptr for other memory.
    [[nodiscard]] fid_mr* region_of(const std::byte* data, std::size_t bytes) const {
        for (const auto& one : registered_) {
            const auto known = one.lock();
            if (known != nullptr && known->holds(data, bytes)) return known->region.handle.get();
        }
        return nullptr;
    }
    /// Notes the result of an operation. One that libfabric postpones is tried again at the next
    /// poll.
    bool check(FabricOperation& operation, int peer, ssize_t result) {
        if (result == -FI_EAGAIN) again_.push_back(&operation);
        else if (result != 0 && peer >= 0) lose(peer, result);
        else if (result != 0) broken_ = FabricDevice::error_text(result);
        return result == 0;
    }
    void retry() {
        const std::size_t count = again_.size();
        for (std::size_t i = 0; i < count; ++i) {
            FabricOperation& operation = *again_[i];
            if (operation.kind == FabricOperation::Kind::room) post(static_cast<FabricRoom&>(operation));
            else if (operation.kind == FabricOperation::Kind::landing) post(static_cast<Landing&>(operation));
            else post(static_cast<Sending&>(operation));
        }
        std::size_t kept = 0;
        for (std::size_t i = count; i < again_.size(); ++i) again_[kept++] = again_[i];
        again_.resize(kept);
    }

    std::shared_ptr<NetworkWorld> world_;
    int rank_;
    std::size_t eager_bytes_;
    std::uint64_t key_;
    std::vector<Peer> peers_;
    std::vector<std::unique_ptr<FabricRoom>> rooms_;      ///< posted for frames
    std::vector<std::unique_ptr<FabricRoom>> outgoing_;   ///< for frames of this rank
    std::vector<FabricRoom*> idle_rooms_;                 ///< the free ones among them
    std::vector<std::weak_ptr<FabricMemory>> registered_; ///< memory that the program holds
    FabricRecords<Sending> sendings_;
    FabricRecords<Landing> landings_;
    List<Queued> queued_;
    List<FabricOperation*> again_;
    nanoseconds moves_until_ = 0; ///< large messages that both ends are ready for may move
    std::string broken_;          ///< libfabric's error after which it could not continue
    FabricDevice device_;         ///< closed before the memory that it accesses is gone
};

} // namespace detail
UNISONO_NAMESPACE_END
