#pragma once

/// \file
/// A world in shared memory for processes without a common ancestor that can already exchange a few
/// bytes: by a launcher's control plane, MPI, or anything else that gathers texts.

#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/value.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/launch/host.hpp"
#include "unisono/transport/shared_memory.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Gathers every rank's text on every rank, in rank order; throws if it cannot, or after its own
/// deadline.
template <class F>
concept text_gathering = requires(F& gather, const std::string& mine) {
    { gather(mine) } -> detail::converts_to<std::vector<std::string>>;
};

namespace detail {

/// Each process's message to the others; plain bytes, as all run on one host.
struct SharedMemoryCard {
    char host[40]; ///< identifies one boot of one machine
    char failed[480];
    std::uint64_t token[2];
    std::int32_t process;
    std::int32_t file;
    cpu_set_t cores;
};

class JoinedWorld final : public SharedMemoryWorld {
public:
    template <class Gather>
    JoinedWorld(int rank, int size, std::size_t arena_bytes, Gather& gather) {
        if (size < 1 || size > SharedLayout::most_ranks || rank < 0 || rank >= size)
            refuse_input({"a world in shared memory has 1 to ", SharedLayout::most_ranks, " ranks, found rank ", rank,
                          " of ", size});
        set_size(size);
        SharedMemoryCard mine = own_card();
        if (rank == 0) {
            try {
                create(arena_bytes);
                mine.file = segment().file();
                std::memcpy(mine.token, header().token, sizeof mine.token);
            } catch (const error& refused) { // the others must learn of it: they wait for the card
                fail(mine, refused);
            }
        }
        const List<SharedMemoryCard> cards = exchange(rank, gather, mine);
        try {
            if (rank != 0) open(cards[0]);
            attach(rank);
        } catch (const error& refused) {
            fail(mine, refused);
        }
        exchange(rank, gather, mine); // no rank continues, and possibly ends, before all have mapped rank 0's segment
        SharedCores cores;
        for (const SharedMemoryCard& card : cards) cores.add(card.cores);
        set_cores(cores.count());
    }

private:
    static SharedMemoryCard own_card();

    static void fail(SharedMemoryCard& card, const error& refused);

    /// Gathers the cards. Throws the same error on every rank if one of them failed.
    template <class Gather>
    List<SharedMemoryCard> exchange(int me, Gather& gather, const SharedMemoryCard& mine) const {
        const std::vector<std::string> texts = gather(std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
        if (texts.size() != static_cast<std::size_t>(size()))
            refuse_input({"joining shared memory: ", texts.size(), " texts were gathered from ", size(), " ranks"});
        if (texts[static_cast<std::size_t>(me)] != std::string_view(reinterpret_cast<const char*>(&mine), sizeof mine))
            refuse_input({"joining shared memory: the text gathered from rank ", me, " is not the one that it gave"});
        List<SharedMemoryCard> cards(texts.size());
        for (std::size_t rank = 0; rank < texts.size(); ++rank) {
            if (texts[rank].size() != sizeof(SharedMemoryCard))
                refuse_input({"joining shared memory: rank ", rank, " gave ", texts[rank].size(), " bytes, expected ",
                              sizeof(SharedMemoryCard), " (does it run the same version of the library?)"});
            std::memcpy(&cards[rank], texts[rank].data(), sizeof(SharedMemoryCard));
            cards[rank].failed[sizeof cards[rank].failed - 1] = '\0';
        }
        for (std::size_t rank = 0; rank < cards.size(); ++rank) {
            if (std::memcmp(cards[rank].host, cards[0].host, sizeof cards[0].host) != 0)
                throw_refused(static_cast<int>(rank),
                              "runs on another host than rank 0; shared memory is for processes of one host");
            if (cards[rank].failed[0] != '\0') throw_refused(static_cast<int>(rank), cards[rank].failed);
        }
        return cards;
    }

    [[noreturn, gnu::cold]] static void throw_refused(int rank, const char* why);

    /// Opens the segment through /proc, which allows that to processes of the same user only. The
    /// token tells whether it was the right process: another container may use its number for
    /// another process.
    void open(const SharedMemoryCard& first);
};

} // namespace detail

/// The world of ranks that are processes of one host and one user, for `SharedMemory(world, rank)`.
/// `gather(text)` gives all ranks' texts, in rank order; it is called twice, with about 700 bytes.
/// `arena_bytes`: the most that one rank may allocate, as rank 0 says; 0: as much as the machine
/// has. The segment is opened through /proc of rank 0's process, which must not end before this
/// returns. The segment has no name, so no other process can reach it.
///
/// Errors, the same on all ranks: refused (another host, user or container; no memory); bad_input;
/// those of `gather`.
template <text_gathering Gather>
[[nodiscard]] std::shared_ptr<detail::SharedMemoryWorld> join_shared_memory(int rank, int size, Gather&& gather,
                                                                            std::size_t arena_bytes = 0) {
    return std::make_shared<detail::JoinedWorld>(rank, size, arena_bytes, gather);
}

/// By a control plane as in launch/: `all_gather(bytes, deadline)` gives all ranks' bytes.
template <class Control>
    requires requires(Control& control, std::span<const std::byte> mine, nanoseconds deadline) {
        { control.rank() } -> detail::converts_to<int>;
        { control.size() } -> detail::converts_to<int>;
        control.all_gather(mine, deadline);
    }
[[nodiscard]] std::shared_ptr<detail::SharedMemoryWorld> join_shared_memory(Control& control, nanoseconds deadline,
                                                                            std::size_t arena_bytes = 0) {
    const auto gather = [&](const std::string& mine) {
        std::vector<std::string> texts;
        for (const auto& blob :
             control.all_gather({reinterpret_cast<const std::byte*>(mine.data()), mine.size()}, deadline))
            texts.emplace_back(reinterpret_cast<const char*>(blob.data()), blob.size());
        return texts;
    };
    return join_shared_memory(control.rank(), control.size(), gather, arena_bytes);
}

template <control_plane Control>
SharedMemory SharedMemory::join(Control control, nanoseconds deadline, std::size_t arena_bytes) {
    const int rank = control.rank();
    const auto world = join_shared_memory(control, deadline, arena_bytes);
    world->set_overseer(new detail::ControlOverseer<Control>(std::move(control)));
    return {world, rank};
}

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION SharedMemoryCard JoinedWorld::own_card() {
    SharedMemoryCard card{};
    read_small_file("/proc/sys/kernel/random/boot_id").copy(card.host, sizeof card.host - 1);
    card.process = ::getpid();
    card.file = -1;
    card.cores = own_cores();
    return card;
}

UNISONO_DEFINITION void JoinedWorld::fail(SharedMemoryCard& card, const error& refused) {
    const std::string& why = refused.why().message;
    const std::size_t length = std::min(why.size(), sizeof card.failed - 1);
    std::memcpy(card.failed, why.data(), length);
    card.failed[length] = '\0';
}

UNISONO_DEFINITION void JoinedWorld::throw_refused(int rank, const char* why) {
    throw error(Fault{.code = ErrorCode::refused,
                      .rank = rank,
                      .operation = "join_shared_memory",
                      .message = concat({"rank ", rank, ": ", why})});
}

UNISONO_DEFINITION void JoinedWorld::open(const SharedMemoryCard& first) {
    adopt(SharedSegment::open(concat({"/proc/", first.process, "/fd/", first.file})));
    if (std::memcmp(header().token, first.token, sizeof first.token) != 0)
        refuse_shared_memory("rank 0's process number is that of another process here (do the ranks run in different "
                             "containers?)",
                             0);
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
