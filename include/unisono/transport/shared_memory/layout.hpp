#pragma once

/// \file
/// The layout of the segment of a shared-memory world. The number of ranks and the size of an arena
/// determine all offsets. Zeroed memory is a world before its first operation.
///
///     header | records of ranks and launcher | board releases | boards | channels | arenas

#include "unisono/core/error.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/launch/launch.hpp"
#include "unisono/transport/board.hpp"
#include "unisono/transport/memory/bell.hpp"
#include "unisono/transport/memory/channel.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A fault as plain memory. Texts that are too long are cut.
struct FaultRecord {
    std::int32_t code = 0;
    std::int32_t rank = -1;
    std::int32_t peer = -1;
    std::int32_t spare = 0;
    std::uint64_t sequence = 0;
    char operation[104];
    char message[3968];

    void write(const Fault& fault) noexcept {
        code = static_cast<std::int32_t>(fault.code);
        rank = fault.rank;
        peer = fault.peer;
        sequence = fault.sequence;
        write(operation, sizeof operation, fault.operation);
        write(message, sizeof message, fault.message);
    }
    [[nodiscard]] Fault read() const;

private:
    static void write(char* to, std::size_t room, const std::string& text) noexcept {
        const std::size_t length = std::min(text.size(), room - 1);
        if (length != 0) std::memcpy(to, text.data(), length);
        to[length] = '\0';
    }
};

/// The operation that a rank waits for, which all ranks can read at any time. It consists of atomic
/// words: a reader discards what it read during a write.
struct WaitRecord {
    static constexpr std::size_t text_words = 16;
    static constexpr std::size_t peer_words = 16; ///< a bit per rank: SharedLayout::most_ranks

    void write(const Wait& wait) noexcept {
        const std::uint32_t before = version.load(std::memory_order_relaxed);
        version.store(before | 1, std::memory_order_release);
        std::uint64_t words[text_words] = {};
        std::memcpy(words, wait.operation.data(), std::min(wait.operation.size(), sizeof words - 1));
        std::uint64_t bits[peer_words] = {};
        for (const int peer : wait.peers)
            bits[static_cast<std::size_t>(peer) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(peer) % 64);
        for (std::size_t i = 0; i < text_words; ++i) text[i].store(words[i], std::memory_order_release);
        for (std::size_t i = 0; i < peer_words; ++i) peers[i].store(bits[i], std::memory_order_release);
        context.store(wait.context, std::memory_order_release);
        sequence.store(wait.sequence, std::memory_order_release);
        version.store((before | 1) + 1, std::memory_order_release);
    }
    void clear() noexcept { write({}); }

    /// The operation; empty: the rank does not wait, or its wait is not known.
    [[nodiscard]] Wait read() const;

private:
    std::atomic<std::uint32_t> version{0}; ///< odd while it is being written
    std::atomic<std::uint64_t> text[text_words]{};
    std::atomic<std::uint64_t> peers[peer_words]{};
    std::atomic<std::uint64_t> context{0};
    std::atomic<std::uint64_t> sequence{0};
};

/// The public state of one rank.
struct alignas(128) SharedRank {
    enum State : std::uint32_t { absent, attached, left };

    std::atomic<std::uint32_t> touching{0}; ///< it is accessing memory of its peers
    alignas(128) std::atomic<std::uint32_t> state{absent};
    std::atomic<std::int32_t> process{0};
    std::atomic<std::uint64_t> base{0}; ///< the address at which it mapped the segment
    std::atomic<std::uint32_t> fault_written{0};
    MemoryBell bell;
    FaultRecord fault; ///< the first fault that it found: the world's if it was the first of all
    WaitRecord wait;
};

struct SharedHeader {
    static constexpr std::uint64_t expected_magic = 0x756e69736f6e6f32; // "unisono2"

    std::uint64_t magic = expected_magic;
    std::uint64_t token[2] = {0, 0};
    std::uint32_t ranks = 0;
    std::uint32_t cores = 0; ///< the number of cores on which all ranks together may run
    std::uint64_t arena_bytes = 0;
    alignas(128) std::atomic<std::uint32_t> first_fault{0}; ///< 1 + index of the record with the world's fault
    SetBells set_bells;
};

/// Offsets in the segment.
struct SharedLayout {
    static constexpr std::size_t page = 4096;
    static constexpr std::size_t most_groups = 16384; ///< at the same time; a power of two
    static constexpr int most_ranks = 1024;

    std::size_t ranks = 0;
    std::size_t records = 0;
    std::size_t groups = 0; ///< per board: the number of ranks that have dropped it
    std::size_t boards = 0;
    std::size_t board_stride = 0;
    std::size_t lines = 0; ///< offset in a board of the mapped lines, after the announcements
    std::size_t channels = 0;
    std::size_t channel_stride = 0;
    std::size_t arenas = 0;
    std::size_t arena_stride = 0;
    std::size_t arena_bytes = 0;
    std::size_t bytes = 0;

    SharedLayout() = default;
    SharedLayout(int rank_count, std::size_t bytes_of_arena) : ranks(static_cast<std::size_t>(rank_count)) {
        std::size_t at = 0;
        const auto take = [&](std::size_t size) {
            const std::size_t here = at;
            at += (size + unit - 1) / unit * unit;
            return here;
        };
        take(sizeof(SharedHeader));
        records = take((ranks + 1) * sizeof(SharedRank));
        groups = take(most_groups * sizeof(std::atomic<std::uint32_t>));
        lines = (ranks * sizeof(Announcements::Rank) + 127) / 128 * 128;
        board_stride = (lines + ranks * sizeof(MappedBoard::Rank) + page - 1) / page * page;
        boards = take(most_groups * board_stride);
        channel_stride = (sizeof(MemoryChannel) + page - 1) / page * page;
        channels = take(ranks * ranks * channel_stride);
        arena_bytes = (bytes_of_arena + unit - 1) / unit * unit;
        arena_stride = arena_bytes + 37 * page; // distances of equal offsets: no large powers of two
        arenas = take(ranks * arena_stride);
        bytes = at;
    }

private:
    static constexpr std::size_t unit = 65536; ///< a multiple of any machine's page size
};

static_assert(WaitRecord::peer_words * 64 >= SharedLayout::most_ranks);
static_assert(std::atomic<std::int32_t>::is_always_lock_free);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION Fault FaultRecord::read() const {
    return {.code = static_cast<ErrorCode>(code),
            .rank = rank,
            .peer = peer,
            .operation = std::string(operation, ::strnlen(operation, sizeof operation)),
            .sequence = sequence,
            .message = std::string(message, ::strnlen(message, sizeof message))};
}

UNISONO_DEFINITION Wait WaitRecord::read() const {
    for (int attempt = 0; attempt < 100; ++attempt) {
        const std::uint32_t before = version.load(std::memory_order_acquire);
        Wait wait;
        std::uint64_t words[text_words];
        for (std::size_t i = 0; i < text_words; ++i) words[i] = text[i].load(std::memory_order_acquire);
        for (std::size_t i = 0; i < 64 * peer_words; ++i) {
            if ((peers[i / 64].load(std::memory_order_acquire) >> (i % 64) & 1) != 0)
                wait.peers.push_back(static_cast<int>(i));
        }
        wait.context = context.load(std::memory_order_acquire);
        wait.sequence = sequence.load(std::memory_order_acquire);
        if (before % 2 != 0 || version.load(std::memory_order_relaxed) != before) continue;
        char letters[sizeof words];
        std::memcpy(letters, words, sizeof words);
        wait.operation.assign(letters, ::strnlen(letters, sizeof letters));
        return wait;
    }
    return {};
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
