#pragma once

/// \file
/// Processes that share a control plane find out which of them share a host, and become the ranks
/// of a world of hosts.
///
/// No name tells whether two processes share memory: containers of one machine may not, those of
/// one pod may, and machines started from one image may have equal names. So each rank offers its
/// peers a page that holds a random number; a rank that reads that number can share memory with it.

#include "unisono/extensions/hosts/hosts.hpp"
#include "unisono/extensions/network/join.hpp"
#include "unisono/launch/host.hpp"
#include "unisono/transport/shared_memory/join.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Each process's message to the others: the address of its page, followed by its given host name,
/// or the reason why it cannot join.
struct HostCard {
    static constexpr std::uint64_t expected = 0x3174736f68696e75;

    std::uint64_t version = expected;
    /// Equal for processes whose process numbers are comparable; else the number is not even tried.
    std::uint64_t processes = 0;
    std::array<std::uint8_t, JobToken::bytes> token = {};
    std::int32_t process = 0;
    std::int32_t file = -1;
    std::uint64_t failed = 0;
};

template <control_plane Control>
std::vector<std::string> gather_texts(Control& control, const std::string& mine, nanoseconds deadline) {
    std::vector<std::string> texts;
    for (const Blob& blob : control.all_gather(std::as_bytes(std::span<const char>(mine)), deadline))
        texts.emplace_back(reinterpret_cast<const char*>(blob.data()), blob.size());
    return texts;
}

[[noreturn, gnu::cold]] inline void refuse_join(std::size_t rank, const std::string& why) {
    throw error(Fault{.code = ErrorCode::refused,
                      .rank = static_cast<int>(rank),
                      .peer = -1,
                      .operation = "join",
                      .sequence = 0,
                      .message = concat({"rank ", rank, ": ", why})});
}

/// True if the page that the card names can be mapped, and has the card's random number.
inline bool shares_memory(const HostCard& card) {
    try {
        const SharedSegment page = SharedSegment::open(concat({"/proc/", card.process, "/fd/", card.file}));
        return page.bytes() == SharedLayout::page &&
               std::memcmp(page.base(), card.token.data(), card.token.size()) == 0;
    } catch (const error&) {
        return false;
    }
}

/// Finds the ranks' hosts, by random numbers that they read in each other's memory. Collective.
/// Errors, the same on all ranks: refused, with the wrong option of a rank.
template <control_plane Control>
HostPlaces find_hosts(Control& control, nanoseconds deadline, const std::string& name, const std::string& failed) {
    HostCard mine;
    mine.processes = process_space();
    mine.process = ::getpid();
    mine.failed = failed.empty() ? 0 : 1;
    mine.token = JobToken::random().value();
    std::optional<SharedSegment> page;
    try {
        page = SharedSegment::create(SharedLayout::page);
        std::memcpy(page->base(), mine.token.data(), mine.token.size());
        mine.file = page->file();
    } catch (const error&) { // then this rank is alone on its host
    }
    const std::string text =
        std::string(reinterpret_cast<const char*>(&mine), sizeof mine) + (failed.empty() ? name : failed);
    const std::vector<std::string> texts = gather_texts(control, text, deadline);
    const auto me = static_cast<std::size_t>(control.rank());
    std::vector<HostCard> cards(texts.size());
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (texts[rank].size() < sizeof(HostCard))
            refuse_join(rank, "runs another version of the library, or on another kind of host");
        std::memcpy(static_cast<void*>(&cards[rank]), texts[rank].data(), sizeof(HostCard));
        if (cards[rank].version != HostCard::expected)
            refuse_join(rank, "runs another version of the library, or on another kind of host");
        if (cards[rank].failed != 0) refuse_join(rank, texts[rank].substr(sizeof(HostCard)));
    }
    std::int32_t first = control.rank(); // the first rank whose page this one can read
    for (std::size_t rank = 0; rank < me; ++rank) {
        const bool may = cards[rank].processes == mine.processes && cards[rank].file >= 0 && mine.file >= 0 &&
                         texts[rank].substr(sizeof(HostCard)) == name;
        if (!may || !shares_memory(cards[rank])) continue;
        first = static_cast<std::int32_t>(rank);
        break;
    }
    const std::string found(reinterpret_cast<const char*>(&first), sizeof first);
    const std::vector<std::string> all = gather_texts(control, found, deadline);
    std::vector<int> hosts;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        std::int32_t leader = static_cast<std::int32_t>(rank);
        if (all[rank].size() == sizeof leader) std::memcpy(&leader, all[rank].data(), sizeof leader);
        const bool leads = leader >= 0 && static_cast<std::size_t>(leader) < rank &&
                           hosts[static_cast<std::size_t>(leader)] == leader; // else it reads a page that others do not
        hosts.push_back(leads ? leader : static_cast<int>(rank));
    }
    return HostPlaces(hosts);
}

/// The shared memory of this rank's host. Collective over the job. Errors, the same on all ranks:
/// those of the first rank that has one.
template <control_plane Control>
std::shared_ptr<SharedMemoryWorld> join_host(Control& control, nanoseconds deadline, const HostPlaces& places,
                                             std::size_t arena_bytes) {
    const std::vector<int>& ranks = places.ranks_of(places.host_of(control.rank()));
    int gathered = 0;
    const auto gather = [&](const std::string& mine) {
        ++gathered;
        const std::vector<std::string> all = gather_texts(control, mine, deadline);
        std::vector<std::string> ours;
        ours.reserve(ranks.size());
        for (const int rank : ranks) ours.push_back(all[static_cast<std::size_t>(rank)]);
        return ours;
    };
    std::shared_ptr<SharedMemoryWorld> made;
    std::string failed;
    try {
        made =
            join_shared_memory(places.local_rank(control.rank()), static_cast<int>(ranks.size()), gather, arena_bytes);
    } catch (const error& refused) { // ranks of other hosts gather as often as usual
        if (control.first_fault() != nullptr) throw;
        failed = refused.why().message;
        const int who = refused.rank(); // a rank of this host; the error must name it by its number in the world
        const std::string before = concat({"rank ", who, ": "});
        if (who >= 0 && failed.starts_with(before)) failed.erase(0, before.size());
        if (who >= 0 && who != places.local_rank(control.rank())) failed.clear();
        for (int missed = 2 - gathered; missed > 0; --missed) static_cast<void>(gather({}));
    }
    const std::vector<std::string> failures = gather_texts(control, failed, deadline);
    for (std::size_t rank = 0; rank < failures.size(); ++rank)
        if (!failures[rank].empty()) refuse_join(rank, failures[rank]);
    if (made == nullptr)
        refuse_join(static_cast<std::size_t>(control.rank()), "has no memory in common with its host's ranks");
    return made;
}

} // namespace detail

namespace detail {

/// The hosts of ranks with given host names (see `host_name_of`). Collective. Errors: as
/// `find_hosts`.
template <control_plane Control>
HostPlaces find_named_hosts(Control& control, nanoseconds deadline, const std::vector<std::string>& given,
                            const std::string& own = {}) {
    std::string own_name;
    std::string failed;
    try {
        own_name = host_name_of(control.rank(), control.size(), given, own, Environment::of_process());
    } catch (const error& refused) { // all ranks must learn of it
        failed = refused.why().message;
    }
    return find_hosts(control, deadline, own_name, failed);
}

} // namespace detail

/// True if all ranks can share memory, so that `SharedMemory` can join them: for programs that
/// choose their transport at run time. `names` or UNISONO_HOSTS separate ranks, as for `Hosts`.
/// Collective over the job. Cost: two all_gathers of the control plane. Errors, the same on all
/// ranks: refused, with the rank; the job's first fault.
template <control_plane Control>
[[nodiscard]] bool share_one_host(Control& control, nanoseconds deadline, const std::vector<std::string>& names = {}) {
    return detail::find_named_hosts(control, deadline, names).hosts() == 1;
}

template <network_between_hosts Network>
template <control_plane Control>
Hosts<Network> Hosts<Network>::join(Control control, nanoseconds deadline, const Options& options) {
    detail::HostPlaces places = detail::find_named_hosts(control, deadline, options.hosts, options.host);
    const auto world = detail::join_host(control, deadline, places, options.arena_bytes);
    const int local_rank = places.local_rank(control.rank());
    Network network = Network::join(std::move(control), deadline, options.network);
    world->set_overseer(new detail::NetworkOverseer(network.shared_world()));
    return {std::move(places), SharedMemory(world, local_rank), std::move(network)};
}

UNISONO_NAMESPACE_END
