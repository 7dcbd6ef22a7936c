#pragma once

/// \file
/// What the ranks of an in-process world share: the rings of descriptors between them, their boards, and the first fault.

#include "unisono/core/error.hpp"
#include "unisono/transport/board.hpp"
#include "unisono/transport/transport.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <sched.h>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <vector>
#if defined(__linux__)
#include <linux/membarrier.h>
#include <sys/syscall.h>
#endif

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

/// One direction between two ranks: a ring of descriptors, written by the sender and read by the receiver alone. What a
/// receiver needs of a tiny message lies in one cache line, since each line costs a trip between the cores. Slots are far
/// apart: a processor that reads ahead would take lines away from the sender that is about to write them (measured: with
/// slots or payloads side by side, messages up to 2 KiB take 1.2 to 1.7 x as long).
struct InProcessChannel {
    static constexpr std::size_t depth = 8;
    static constexpr std::uint32_t tiny_bytes = 24;
    static constexpr std::uint32_t eager_bytes = 2048;
    static constexpr std::uint32_t outside = 0x80000000u;

    /// Where the bytes of a large message lie.
    struct Outside {
        std::uint64_t bytes = 0;
        const std::byte* data = nullptr;
        std::atomic<std::uint32_t>* consumed = nullptr; ///< the sender's flag: gets the slot's `inside`
    };

    struct alignas(64) Slot {
        std::atomic<std::uint32_t> turn{0}; ///< n + 1 when it holds the n-th message, modulo 2^32
        std::uint32_t inside = 0; ///< bytes in the slot; from `outside` on, none: the number of the flag's use
        Tag tag;
        Signature signature;
        std::byte tiny[tiny_bytes]; ///< up to so many bytes, or an Outside
        std::byte eager[eager_bytes];
    };
    static_assert(sizeof(Outside) == tiny_bytes && offsetof(Slot, eager) == 64);

    Slot slots[depth];
    alignas(128) std::atomic<std::uint64_t> taken{0}; ///< messages that the receiver took out
    alignas(128) std::uint64_t sent = 0;              ///< the sender's
    std::uint64_t known_taken = 0;                    ///< the sender's: of these it knows that they were taken out
    alignas(128) std::uint64_t received = 0;          ///< the receiver's
};

/// A store that a rank makes often, before a load that may not come first, against a look at it that is made once. The
/// rare side pays for both: it makes every thread of the process pass a fence (membarrier), where the system can.
class AsymmetricFence {
public:
    AsymmetricFence() {
#if defined(__linux__)
        rare_side_pays_ = ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
#endif
    }
    void store_often(std::atomic<bool>& flag, bool value) const {
        if (!rare_side_pays_) return flag.store(value, std::memory_order_seq_cst);
        flag.store(value, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    void pay() const {
#if defined(__linux__)
        if (rare_side_pays_) ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
#endif
    }

private:
    bool rare_side_pays_ = false;
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
        fence_.pay();
        for (int other = 0; other < size_; ++other) {
            if (other == rank) continue;
            while (state(other).touching.load(std::memory_order_seq_cst)) std::this_thread::yield();
        }
    }

    /// Before a rank reads or writes another's memory; false if it must not any more.
    bool begin_touching(int rank) {
        fence_.store_often(state(rank).touching, true);
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
    AsymmetricFence fence_;
    std::unique_ptr<std::atomic<InProcessChannel*>[]> channels_;
    std::unique_ptr<RankState[]> ranks_;
    alignas(128) std::atomic<const Fault*> fault_seen_{nullptr};
    alignas(128) std::mutex mutex_;
    Fault fault_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Announcements>> announcements_;
    std::unordered_map<std::uint64_t, std::unique_ptr<MappedBoard>> boards_;
};

} // namespace detail
UNISONO_NAMESPACE_END
