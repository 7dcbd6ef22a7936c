#pragma once

/// \file
/// The board of one group whose ranks share memory (in_process, simulated, shared_memory). It holds
/// announcements, by which a waiting rank detects that a peer runs another operation, and mapped
/// lines, which are the flags of the direct schedules.
///
/// A board is a value: a view of one record per rank, in memory that the world provides (its own,
/// or a segment that processes map). Zeroed memory is a board without any operation. It holds no
/// pointers to boards or records.

#include "unisono/core/error.hpp"
#include "unisono/transport/transport.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Fetches a line that this rank is about to write and then to read. Otherwise a load that
/// overtakes the store fetches the line for reading, and the store has to fetch it again. A plain
/// prefetch, which compilers emit, fetches it for reading as well.
inline void prefetch_to_write([[maybe_unused]] const void* address) noexcept {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
    __builtin_prefetch(address, 1);
#endif
}

/// Copies a payload of one of a few usual sizes without a call. A line that another core polls
/// should be written in one burst, else that core takes the line away in between.
[[gnu::always_inline]] inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    if (bytes == 8) __builtin_memcpy(to, from, 8);
    else if (bytes == 4) __builtin_memcpy(to, from, 4);
    else if (bytes == 16) __builtin_memcpy(to, from, 16);
    else if (bytes != 0) __builtin_memcpy(to, from, bytes);
}

/// The last operations that each rank of a group started. The rank writes them at each start, in
/// lines of its own; peers read them only after they have waited for a while.
/// A rank that completes an operation at once announces it if others may not have started it yet.
/// They find it here as long as the rank is less than `depth` operations ahead of them. Over mapped
/// memory it is at most MappedBoard::depth, over messages as many as the channels hold.
class Announcements {
public:
    static constexpr std::size_t depth = 64;

    struct Entry {
        std::atomic<std::uint64_t> sequence{0};
        std::atomic<std::uint64_t> first{0};
        std::atomic<std::uint64_t> second{0};
    };
    struct alignas(128) Rank {
        Entry entries[depth];
        std::atomic<std::uint64_t> latest{0};
        std::atomic<std::uint64_t> finished{0};
    };

    Announcements() = default;
    explicit Announcements(Rank* ranks) : ranks_(ranks) {}
    explicit operator bool() const { return ranks_ != nullptr; }

    void announce(int rank, std::uint64_t sequence, const Signature& signature) const noexcept {
        Rank& log = ranks_[static_cast<std::size_t>(rank)];
        Entry& entry = log.entries[sequence % depth];
        const auto words = std::bit_cast<Words>(signature);
        entry.sequence.store(0, std::memory_order_relaxed); // a reader in between sees 0 and discards what it read
        entry.first.store(words.first, std::memory_order_release);
        entry.second.store(words.second, std::memory_order_release);
        entry.sequence.store(sequence, std::memory_order_release);
        log.latest.store(sequence, std::memory_order_relaxed);
    }

    /// The signature of a rank's operation, numbered from 1; false if the rank has not started it,
    /// or its entry was overwritten.
    [[nodiscard]] bool find(int rank, std::uint64_t sequence, Signature& signature) const noexcept {
        if (sequence == 0) return false; // of an entry that is being written, or never was
        const Entry& entry = ranks_[static_cast<std::size_t>(rank)].entries[sequence % depth];
        if (entry.sequence.load(std::memory_order_acquire) != sequence) return false;
        Words words{};
        words.first = entry.first.load(std::memory_order_acquire);
        words.second = entry.second.load(std::memory_order_acquire);
        if (entry.sequence.load(std::memory_order_relaxed) != sequence) return false;
        signature = std::bit_cast<Signature>(words);
        return true;
    }

    /// Announces that all operations up to this one are done on this rank. What it announced
    /// before can then be found.
    void finish(int rank, std::uint64_t sequence) const noexcept {
        ranks_[static_cast<std::size_t>(rank)].finished.store(sequence, std::memory_order_release);
    }
    [[nodiscard]] std::uint64_t finished(int rank) const noexcept {
        return ranks_[static_cast<std::size_t>(rank)].finished.load(std::memory_order_acquire);
    }
    /// The last operation that the rank has started. One that completed at once may be announced
    /// only as finished.
    [[nodiscard]] std::uint64_t latest(int rank) const noexcept {
        const std::uint64_t started = ranks_[static_cast<std::size_t>(rank)].latest.load(std::memory_order_relaxed);
        const std::uint64_t done = finished(rank);
        return done > started ? done : started;
    }

private:
    struct Words {
        std::uint64_t first = 0;
        std::uint64_t second = 0;
    };
    Rank* ranks_ = nullptr;
};

/// A rank's flag for one mapped operation, and what peers need to find the rank's memory.
struct alignas(128) MappedLine {
    std::atomic<std::uint64_t> turn{0}; ///< (operation + 1) * 4 + phase; only grows
    Signature signature;
    const std::byte* input = nullptr; ///< in its owner's address space: add the transport's `shift(rank)`
    std::byte* output = nullptr;
    std::uint64_t completed = 0; ///< the owner's completed operations when it first raised the flag
    std::uint32_t history = 0;   ///< the operation's
};
static_assert(sizeof(MappedLine) == 128);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "flags are shared by processes, which have no lock in common");

/// A line of a rank's message, followed by the word that names its operation. Both are in one cache
/// line, so a reader that sees the word has the bytes, and needs no second trip between the cores
/// (NCCL's protocols LL and LL128).
template <std::size_t Bytes>
struct alignas(Bytes + 8) FlaggedPiece {
    static constexpr std::size_t bytes = Bytes;
    std::byte payload[Bytes];
    std::atomic<std::uint64_t> word{0};
};

/// The memory of a rank's message: its lines, `stride` bytes apart.
struct FlaggedMessage {
    std::byte* first = nullptr;
    std::uint32_t stride = 0;
    std::uint32_t piece_bytes = 0;

    [[nodiscard]] std::byte* payload(std::size_t piece) const { return first + piece * stride; }
    [[nodiscard]] std::atomic<std::uint64_t>& word(std::size_t piece) const {
        return *reinterpret_cast<std::atomic<std::uint64_t>*>(payload(piece) + piece_bytes);
    }
};

/// The memory of the ranks' messages: each rank has several slots, which it uses in turn.
struct FlaggedMessages {
    static constexpr std::size_t places = 4;

    std::byte* first[places] = {}; ///< of rank 0
    std::uint32_t rank_stride = 0;
    std::uint32_t stride = 0;
    std::uint32_t piece_bytes = 0; ///< 0: there are none

    explicit operator bool() const { return piece_bytes != 0; }
    /// The number of a rank's slots.
    [[nodiscard]] std::uint64_t depth() const { return piece_bytes == FlaggedPiece<8>::bytes ? 2 : places; }
    [[nodiscard]] FlaggedMessage of(int rank, std::uint64_t number) const {
        return {first[number % places] + static_cast<std::size_t>(rank) * rank_stride, stride, piece_bytes};
    }
};

/// Small messages of a rank beside their flags, in one of two formats.
/// Format A: 8 bytes of each of up to four ranks share a line (two lines for more than two ranks).
/// The last rank to arrive finds the other words in the line that it fetches to write its own. It
/// continues at once, and often writes its next word before the line is taken away: one trip
/// between the cores per operation.
/// Format B: 56 bytes of one rank per line. Such a line moves twice: its writer takes it from the
/// reader that polls it, and the reader fetches it again. With more than 8 bytes a line has no room
/// for two ranks' words, so format A gains nothing.
/// A rank awaits only the ranks whose messages it reads, so ranks may be some operations apart. No
/// line is overwritten too early:
/// - A rank writes its next message after it has completed all older operations, and in a slot
///   whose last message is of an operation that every rank has completed (`FlaggedMessages::depth`,
///   `MappedBoard::completed`).
/// - If all ranks write messages and await all (all_reduce), no rank has to look for that: one
///   that has read the messages of operation n knows that every rank has completed n - 1, so two
///   slots suffice. Format A has two.
/// - If data go to one rank or come from one rank, the ranks that only write would wait for none.
///   Format B has four slots, so such a rank may be four operations ahead, and looks at the others'
///   progress at every fourth operation. Also, a rank that has written a message can fetch the
///   lines of its next one.
struct SmallMessages {
    static constexpr int most_together = 4;
    static constexpr std::size_t own_pieces = 37;
    static constexpr std::size_t most_bytes = own_pieces * 56;

    alignas(128) FlaggedPiece<8> together[2 * most_together]; ///< rank 0's hold the messages of the whole group
    alignas(128) FlaggedPiece<56> own[FlaggedMessages::places][own_pieces];

    /// The largest message for which all ranks read all messages, instead of one block of each.
    /// With many ranks reading whole messages makes a rank wait more often.
    static constexpr std::size_t best_bytes(int ranks) { return ranks <= most_together ? most_bytes : 592; }
};

/// The mapped lines of a group. A line is reused after `depth` operations, when every rank has
/// completed the older one; `completed` tells a rank's progress.
class MappedBoard {
public:
    static constexpr std::size_t depth = 4;

    struct Rank {
        MappedLine lines[depth];
        alignas(128) std::atomic<std::uint64_t> completed{0};
        SmallMessages small;
    };

    MappedBoard() = default;
    explicit MappedBoard(Rank* ranks) : ranks_(ranks) {}

    [[nodiscard]] MappedLine& line(int rank, std::uint64_t operation) const noexcept {
        return ranks_[static_cast<std::size_t>(rank)].lines[operation % depth];
    }
    [[nodiscard]] std::atomic<std::uint64_t>& completed(int rank) const noexcept {
        return ranks_[static_cast<std::size_t>(rank)].completed;
    }
    /// The memory of messages of `bytes` bytes in a group of `ranks` ranks. Those that go to one
    /// rank or come from one rank (`rooted`) gain nothing from a line that the ranks share.
    [[nodiscard]] FlaggedMessages messages(int ranks, std::size_t bytes, bool rooted) const noexcept {
        SmallMessages& group = ranks_->small;
        if (!rooted && bytes <= 8 && ranks <= SmallMessages::most_together)
            return {{group.together[0].payload, group.together[ranks].payload, group.together[0].payload,
                     group.together[ranks].payload},
                    sizeof group.together[0],
                    0,
                    8};
        return {{group.own[0][0].payload, group.own[1][0].payload, group.own[2][0].payload, group.own[3][0].payload},
                sizeof(Rank),
                sizeof group.own[0][0],
                56};
    }

private:
    Rank* ranks_ = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
