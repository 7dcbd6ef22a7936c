#pragma once

/// \file
/// Ranks are threads of one process; peers' memory is read directly.
///
/// A message is a descriptor in a bounded ring between two ranks. Up to `eager_bytes` travel in the descriptor; of larger
/// ones the receiver reads the sender's memory and acknowledges. So a large send completes when its receiver has
/// consumed it: no copy, no staging memory.

#include "unisono/core/error.hpp"
#include "unisono/transport/board.hpp"
#include "unisono/transport/transport.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <sched.h>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

inline int available_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return std::max(1, CPU_COUNT(&set));
}

/// One direction between two ranks: a ring of descriptors, written by the sender and read by the receiver alone.
struct InProcessChannel {
    static constexpr std::size_t depth = 16;
    static constexpr std::size_t eager_bytes = 128;

    struct alignas(64) Slot {
        std::atomic<std::uint64_t> turn{0}; ///< n + 1 when it holds the n-th message
        Envelope envelope;
        const std::byte* data = nullptr;                ///< nullptr: in `eager`
        std::atomic<std::uint32_t>* consumed = nullptr; ///< the sender's flag for a large message
        std::byte eager[eager_bytes];
    };

    Slot slots[depth];
    alignas(128) std::atomic<std::uint64_t> taken{0}; ///< messages that the receiver took out
    alignas(128) std::uint64_t sent = 0;              ///< the sender's
    std::uint64_t known_taken = 0;                    ///< the sender's copy of `taken`
    alignas(128) std::uint64_t received = 0;          ///< the receiver's
};

/// What the ranks of an in-process world share.
class InProcessWorld {
public:
    explicit InProcessWorld(int size)
        : size_(size), more_ranks_than_cores_(size > available_cores()),
          channels_(std::make_unique<std::atomic<InProcessChannel*>[]>(static_cast<std::size_t>(size) *
                                                                       static_cast<std::size_t>(size))),
          ranks_(std::make_unique<RankState[]>(static_cast<std::size_t>(size))) {}
    InProcessWorld(const InProcessWorld&) = delete;
    InProcessWorld& operator=(const InProcessWorld&) = delete;
    ~InProcessWorld() {
        const auto pairs = static_cast<std::size_t>(size_) * static_cast<std::size_t>(size_);
        for (std::size_t i = 0; i < pairs; ++i) delete channels_[i].load(std::memory_order_relaxed);
    }

    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] bool more_ranks_than_cores() const { return more_ranks_than_cores_; }

    InProcessChannel& channel(int from, int to) {
        auto& place =
            channels_[static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(to)];
        InProcessChannel* known = place.load(std::memory_order_acquire);
        if (known != nullptr) return *known;
        auto made = std::make_unique<InProcessChannel>();
        if (place.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return *made.release();
        return *known;
    }

    Announcements& announcements(std::uint64_t context, int size) { return find(announcements_, context, size); }
    MappedBoard& mapped_board(std::uint64_t context, int size) { return find(boards_, context, size); }

    [[nodiscard]] const Fault* first_fault() const { return fault_seen_.load(std::memory_order_acquire); }

    /// Records the first fault and waits until no other rank touches foreign memory: none begins after it.
    void abort(int rank, const Fault& fault) {
        {
            const std::lock_guard lock(mutex_);
            if (fault_seen_.load(std::memory_order_relaxed) == nullptr) {
                fault_ = fault;
                fault_seen_.store(&fault_, std::memory_order_seq_cst);
            }
        }
        for (int other = 0; other < size_; ++other) {
            if (other == rank) continue;
            while (state(other).touching.load(std::memory_order_seq_cst)) std::this_thread::yield();
        }
    }

    /// Before a rank reads or writes another's memory; false if it must not any more.
    bool begin_touching(int rank) {
        state(rank).touching.store(true, std::memory_order_seq_cst);
        if (fault_seen_.load(std::memory_order_seq_cst) == nullptr) return true;
        state(rank).touching.store(false, std::memory_order_release);
        return false;
    }
    void end_touching(int rank) { state(rank).touching.store(false, std::memory_order_release); }

    void leave(int rank) { state(rank).left.store(true, std::memory_order_release); }
    [[nodiscard]] bool has_left(int rank) const {
        return ranks_[static_cast<std::size_t>(rank)].left.load(std::memory_order_acquire);
    }

private:
    struct alignas(128) RankState {
        std::atomic<bool> touching{false};
        std::atomic<bool> left{false};
    };
    RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

    template <class Shared>
    Shared& find(std::unordered_map<std::uint64_t, std::unique_ptr<Shared>>& known, std::uint64_t context, int size) {
        const std::lock_guard lock(mutex_);
        auto& place = known[context];
        if (place == nullptr) place = std::make_unique<Shared>(size);
        return *place;
    }

    int size_;
    bool more_ranks_than_cores_;
    std::unique_ptr<std::atomic<InProcessChannel*>[]> channels_;
    std::unique_ptr<RankState[]> ranks_;
    alignas(128) std::atomic<const Fault*> fault_seen_{nullptr};
    alignas(128) std::mutex mutex_;
    Fault fault_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Announcements>> announcements_;
    std::unordered_map<std::uint64_t, std::unique_ptr<MappedBoard>> boards_;
};

} // namespace detail

/// The transport of one rank of an in-process world: made by `run<InProcess>` (group/run.hpp); alone, a world of one.
class InProcess {
public:
    static constexpr std::string_view name = "in_process";
    static constexpr bool maps_peers = true;
    using World = detail::InProcessWorld;

    InProcess() : InProcess(std::make_shared<detail::InProcessWorld>(1), 0) {}
    InProcess(std::shared_ptr<detail::InProcessWorld> world, int rank)
        : world_(std::move(world)), rank_(rank), into_(static_cast<std::size_t>(world_->size())),
          out_(static_cast<std::size_t>(world_->size())) {}
    InProcess(InProcess&&) noexcept = default;
    InProcess& operator=(InProcess&&) = delete;
    ~InProcess() {
        if (world_ != nullptr) world_->leave(rank_);
    }

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return world_->size(); }
    [[nodiscard]] nanoseconds now() const { return steady_now(); }

    void post_send(int peer, const Envelope& envelope, const std::byte* data, Token token) {
        const Outgoing out{peer, envelope, data, token};
        if (is_backlogged(peer) || !try_send(out)) backlog_.push_back(out);
    }

    void post_receive(int peer, const Tag& tag, Token token) { posted_.push_back({peer, tag, token}); }

    template <class Sink>
    void progress(Sink& sink) {
        if (!backlog_.empty()) retry_backlog();
        if (!sent_.empty()) {
            for (const Token token : sent_) sink.sent(token);
            sent_.clear();
        }
        for (std::size_t i = 0; i < waiting_.size();) {
            Record& record = *waiting_[i];
            if (record.consumed.load(std::memory_order_acquire) == 0) {
                ++i;
                continue;
            }
            const Token token = record.token;
            free_.push_back(&record);
            waiting_[i] = waiting_.back();
            waiting_.pop_back();
            sink.sent(token);
        }
        for (std::size_t i = 0; i < posted_.size();) {
            if (receive(posted_[i], sink)) {
                posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(i));
            } else {
                ++i;
            }
        }
    }

    /// Spins while there is a core for each rank, then yields, then sleeps for short moments.
    void idle(std::uint32_t attempt, nanoseconds until) {
        if (!world_->more_ranks_than_cores() && attempt < 4096) return detail::pause();
        if (attempt < 65536) return std::this_thread::yield();
        const nanoseconds left = until == never ? 1'000'000 : until - now();
        if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<nanoseconds>(left, 50'000)));
    }

    void abort(const Fault& fault) { world_->abort(rank_, fault); }
    [[nodiscard]] const Fault* first_fault() const { return world_->first_fault(); }
    [[nodiscard]] bool has_left(int peer) const { return world_->has_left(peer); }

    detail::Announcements& announcements(std::uint64_t context, int size) {
        return world_->announcements(context, size);
    }
    detail::MappedBoard& mapped_board(std::uint64_t context, int size) { return world_->mapped_board(context, size); }
    bool begin_touching() { return world_->begin_touching(rank_); }
    void end_touching() { world_->end_touching(rank_); }

private:
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
    /// A large message on its way: the receiver sets `consumed`.
    struct alignas(64) Record {
        std::atomic<std::uint32_t> consumed{0};
        Token token = 0;
    };
    /// A message that came before its receive: only the descriptor is kept, and small payloads.
    struct Early {
        Envelope envelope;
        const std::byte* data = nullptr;
        std::atomic<std::uint32_t>* consumed = nullptr;
        std::byte eager[detail::InProcessChannel::eager_bytes];
    };
    struct Incoming {
        detail::InProcessChannel* channel = nullptr;
        std::vector<Early> early;
    };

    [[nodiscard]] bool is_backlogged(int peer) const {
        return std::any_of(backlog_.begin(), backlog_.end(), [&](const Outgoing& out) { return out.peer == peer; });
    }

    /// In order for each peer; a peer whose ring is full does not hold up the others.
    void retry_backlog() {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < backlog_.size(); ++i) {
            const Outgoing out = backlog_[i];
            const auto end = backlog_.begin() + static_cast<std::ptrdiff_t>(kept);
            const bool behind =
                std::any_of(backlog_.begin(), end, [&](const Outgoing& before) { return before.peer == out.peer; });
            if (behind || !try_send(out)) backlog_[kept++] = out;
        }
        backlog_.resize(kept);
    }

    bool try_send(const Outgoing& out) {
        detail::InProcessChannel*& channel = out_[static_cast<std::size_t>(out.peer)];
        if (channel == nullptr) channel = &world_->channel(rank_, out.peer);
        if (channel->sent - channel->known_taken == detail::InProcessChannel::depth) {
            channel->known_taken = channel->taken.load(std::memory_order_acquire);
            if (channel->sent - channel->known_taken == detail::InProcessChannel::depth) return false;
        }
        auto& slot = channel->slots[channel->sent % detail::InProcessChannel::depth];
        slot.envelope = out.envelope;
        if (out.envelope.bytes <= detail::InProcessChannel::eager_bytes) {
            slot.data = nullptr;
            slot.consumed = nullptr;
            if (out.envelope.bytes != 0) std::memcpy(slot.eager, out.data, out.envelope.bytes);
            sent_.push_back(out.token);
        } else {
            Record& record = take_record();
            record.token = out.token;
            waiting_.push_back(&record);
            slot.data = out.data;
            slot.consumed = &record.consumed;
        }
        slot.turn.store(++channel->sent, std::memory_order_release);
        return true;
    }

    Record& take_record() {
        if (free_.empty()) free_.push_back(records_.emplace_back(std::make_unique<Record>()).get());
        Record& record = *free_.back();
        free_.pop_back();
        record.consumed.store(0, std::memory_order_relaxed);
        return record;
    }

    template <class Sink>
    bool receive(const Posted& posted, Sink& sink) {
        Incoming& from = into_[static_cast<std::size_t>(posted.peer)];
        for (auto early = from.early.begin(); early != from.early.end(); ++early) {
            if (early->envelope.tag == posted.tag) {
                deliver(posted.token, early->envelope, early->data, early->eager, early->consumed, sink);
                from.early.erase(early);
                return true;
            }
        }
        if (from.channel == nullptr) from.channel = &world_->channel(posted.peer, rank_);
        auto& channel = *from.channel;
        for (;;) {
            auto& slot = channel.slots[channel.received % detail::InProcessChannel::depth];
            if (slot.turn.load(std::memory_order_acquire) != channel.received + 1) return false;
            const bool match = slot.envelope.tag == posted.tag;
            if (match) {
                deliver(posted.token, slot.envelope, slot.data, slot.eager, slot.consumed, sink);
            } else {
                Early& early = from.early.emplace_back();
                early.envelope = slot.envelope;
                early.data = slot.data;
                early.consumed = slot.consumed;
                if (slot.data == nullptr) std::memcpy(early.eager, slot.eager, slot.envelope.bytes);
            }
            channel.taken.store(++channel.received, std::memory_order_release);
            if (match) return true;
        }
    }

    template <class Sink>
    void deliver(Token token, const Envelope& envelope, const std::byte* data, const std::byte* eager,
                 std::atomic<std::uint32_t>* consumed, Sink& sink) {
        if (data == nullptr) return sink.received(token, envelope, eager);
        if (!begin_touching()) return; // a fault: the sender may have withdrawn its memory
        sink.received(token, envelope, data);
        consumed->store(1, std::memory_order_release); // still touching: the flag is the sender's memory
        end_touching();
    }

    std::shared_ptr<detail::InProcessWorld> world_;
    int rank_;
    std::vector<Incoming> into_;
    std::vector<detail::InProcessChannel*> out_;
    std::vector<Posted> posted_;
    std::vector<Token> sent_;
    std::vector<Record*> waiting_;
    std::vector<Record*> free_;
    std::vector<std::unique_ptr<Record>> records_;
    std::vector<Outgoing> backlog_;
};

static_assert(transport<InProcess>);

UNISONO_NAMESPACE_END
