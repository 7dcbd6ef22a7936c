#pragma once

/// \file
/// The parts of transports over shared memory, for ranks that are threads or processes: rings of
/// descriptors, and a fence whose cost falls on the side that rarely needs it.

#include "unisono/transport/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unistd.h>
#if defined(__linux__)
#include <linux/membarrier.h>
#include <sys/syscall.h>
#endif

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One direction between two ranks: a ring of descriptors, which only the sender writes and only
/// the receiver reads. A tiny message shares the cache line of its descriptor, since each line
/// costs a trip between the cores. Slots are far apart, since a processor that prefetches would
/// take lines away from the sender that is about to write them (measured: with adjacent slots or
/// payloads, messages up to 2 KiB take 1.2 to 1.7 x as long).
struct MemoryChannel {
    static constexpr std::size_t depth = 8;
    static constexpr std::uint32_t tiny_bytes = 24;
    static constexpr std::uint32_t eager_bytes = 2048;
    static constexpr std::uint32_t outside = 0x80000000u;

    /// The bytes of a large message, in the sender's address space.
    struct Outside {
        std::uint64_t bytes = 0;
        const std::byte* data = nullptr;
        std::atomic<std::uint32_t>* consumed = nullptr; ///< the sender's flag: gets the slot's `inside`
    };

    struct alignas(64) Slot {
        std::atomic<std::uint32_t> turn{0}; ///< n + 1 if the slot holds the n-th message, modulo 2^32
        std::uint32_t inside = 0;           ///< bytes in the slot; from `outside` on: the number of the flag's use
        Tag tag;
        Signature signature;
        std::byte tiny[tiny_bytes]; ///< the payload if it fits, or an Outside
        std::byte eager[eager_bytes];
    };
    static_assert(sizeof(Outside) == tiny_bytes && offsetof(Slot, eager) == 64);

    Slot message_slots[depth];
    alignas(128) std::atomic<std::uint64_t> taken{0}; ///< messages that the receiver has taken
    alignas(128) std::uint64_t sent = 0;              ///< the sender's count of messages
    std::uint64_t known_taken = 0;                    ///< the sender's: the messages that it knows to be taken
    alignas(128) std::uint64_t received = 0;          ///< the receiver's count of messages
};

/// Keeps each store before it ahead of each load after it, for all threads. ThreadSanitizer knows
/// no fences: under it all threads of a process modify one number instead.
[[gnu::always_inline]] inline void full_fence() noexcept {
#if UNISONO_UNDER_THREAD_SANITIZER
    static std::atomic<std::uint32_t> number{0};
    number.fetch_add(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Keeps a rank's frequent store ahead of its next load, for a peer that rarely checks that store.
/// The rare side pays for both: it makes every thread concerned pass a fence (membarrier), if the
/// system can do that.
class AsymmetricFence {
public:
    enum class Reach : std::uint8_t { process, host };

    /// `host`: all processes that made such a fence. Each process makes its own; a process that is
    /// forked from one does not count.
    explicit AsymmetricFence([[maybe_unused]] Reach reach = Reach::process) {
#if defined(__linux__)
        const bool all = reach == Reach::host;
        command_ = all ? MEMBARRIER_CMD_GLOBAL_EXPEDITED : MEMBARRIER_CMD_PRIVATE_EXPEDITED;
        const int enter = all ? MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED : MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
        rare_side_pays_ = ::syscall(SYS_membarrier, enter, 0, 0) == 0;
#endif
    }
    template <class Flag>
    void store_often(std::atomic<Flag>& flag, Flag value) const {
        if (!rare_side_pays_) return flag.store(value, std::memory_order_seq_cst);
        flag.store(value, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    /// Stands between a frequent store and a load that must not precede it.
    [[gnu::always_inline]] inline void pass_often() const {
        if (rare_side_pays_) std::atomic_signal_fence(std::memory_order_seq_cst);
        else full_fence();
    }
    void pay() const {
#if defined(__linux__)
        if (rare_side_pays_) ::syscall(SYS_membarrier, command_, 0, 0);
#endif
    }

private:
    bool rare_side_pays_ = false;
    int command_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
