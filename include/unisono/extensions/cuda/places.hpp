#pragma once

/// \file
/// Assigns a device to each rank: pure functions of the ranks' descriptions of their machines. So
/// all ranks get the same result, or the same error.

#include "unisono/extensions/cuda/api.hpp"
#include "unisono/extensions/launch/control/wire.hpp"
#include "unisono/launch/launch.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A rank's description of its devices for its peers.
struct CudaCard {
    std::uint64_t host = 0;
    std::string problem = {};              ///< why this rank can't take part; empty: it can
    std::vector<std::string> devices = {}; ///< those that its process sees, by PCI bus id
    int wanted = -1;                       ///< the device that the program names; -1: none
};

/// The PCI bus ids of the devices that this process sees. Errors: refused.
inline std::vector<std::string> devices_of_process() {
    std::vector<std::string> places;
    const int count = visible_devices();
    for (int device = 0; device < count; ++device) {
        char place[32] = {};
        check_cuda(cudaDeviceGetPCIBusId(place, sizeof place, device), "cudaDeviceGetPCIBusId");
        places.emplace_back(place);
    }
    return places;
}

/// The card of this process. Problems are recorded, not thrown, since the peers must learn of them.
inline CudaCard cuda_card(std::uint64_t host, int wanted) {
    CudaCard card{.host = host, .wanted = wanted};
    try {
        card.devices = devices_of_process();
    } catch (const error& failed) {
        card.problem = failed.why().message;
    }
    return card;
}

inline void write_card(WireWriter& out, const CudaCard& card) {
    out.u64(card.host);
    out.text(card.problem);
    out.u32(static_cast<std::uint32_t>(card.devices.size()));
    for (const std::string& one : card.devices) out.text(one);
    out.u32(static_cast<std::uint32_t>(card.wanted));
}
/// False if the bytes are none.
inline bool read_card(WireReader& in, CudaCard& card) {
    card.host = in.u64();
    card.problem = in.text();
    const std::uint32_t devices = in.u32();
    for (std::uint32_t i = 0; i < devices && in.good(); ++i) card.devices.push_back(in.text());
    card.wanted = static_cast<std::int32_t>(in.u32());
    return in.good();
}
template <std::derived_from<CudaCard> Card>
Blob blob_of(const Card& card) {
    WireWriter out;
    write_card(out, card);
    return out.take();
}
template <std::derived_from<CudaCard> Card>
bool read(const Blob& blob, Card& card) {
    WireReader in(blob);
    return read_card(in, card);
}

[[noreturn, gnu::cold]] inline void refuse_places(std::size_t rank, const std::string& why) {
    throw error(Fault{.code = ErrorCode::refused, .rank = static_cast<int>(rank), .operation = "join", .message = why});
}

/// Gathers every rank's card on all ranks.
template <std::derived_from<CudaCard> Card, control_plane Control>
std::vector<Card> gather_cards(Control& control, const Card& mine, nanoseconds deadline) {
    const Blob blob = blob_of(mine);
    const std::vector<Blob> blobs = control.all_gather(std::span<const std::byte>(blob), deadline);
    std::vector<Card> cards(blobs.size());
    for (std::size_t rank = 0; rank < blobs.size(); ++rank)
        if (!read(blobs[rank], cards[rank]))
            refuse_places(rank, concat({"rank ", rank, " runs another version of the library"}));
    return cards;
}

inline void check_problem(const CudaCard& card, std::size_t rank) {
    if (!card.problem.empty()) refuse_places(rank, concat({"rank ", rank, ": ", card.problem}));
}
inline void check_wanted(const CudaCard& card, std::size_t rank) {
    if (card.wanted >= 0 && static_cast<std::size_t>(card.wanted) >= card.devices.size())
        refuse_places(rank,
                      concat({"rank ", rank, " asks for device ", card.wanted, ", but sees ", card.devices.size()}));
}

/// Calls `begin`, which uses only this rank's device, and names the rank in its errors. `is_later`:
/// in a membership of an elastic world after the first one, where the device's failure ends this
/// rank alone. Then the errors are of the type device_error.
template <class Begin>
auto on_own_device(bool is_later, std::size_t rank, Begin begin) {
    try {
        return begin();
    } catch (const error& failed) {
        Fault fault = failed.why();
        if (fault.rank < 0) fault.message = concat({"rank ", rank, ": ", fault.message});
        fault.rank = static_cast<int>(rank);
        fault.operation = "join";
        if (is_later) throw device_error(fault);
        throw error(fault);
    }
}
/// Checks this rank's card in such a membership. The other ranks never see that of one that fails.
inline void check_own(const CudaCard& mine, std::size_t rank) {
    on_own_device(true, rank, [&] {
        check_problem(mine, rank);
        check_wanted(mine, rank);
    });
}

/// The number of ranks on this host among the first `ranks` ranks.
template <class Card>
std::size_t count_on_host(const std::vector<Card>& cards, std::uint64_t host, std::size_t ranks) {
    std::size_t count = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) count += cards[rank].host == host ? 1 : 0;
    return count;
}

/// True if each rank of a host sees one device, and each a different one: some launchers arrange
/// that.
template <class Card>
bool each_sees_its_own(const std::vector<Card>& cards, std::uint64_t host) {
    std::vector<std::string> seen;
    for (const Card& card : cards) {
        if (card.host != host) continue;
        if (card.devices.size() != 1) return false;
        for (const std::string& other : seen)
            if (other == card.devices[0]) return false;
        seen.push_back(card.devices[0]);
    }
    return true;
}

/// True if a rank of this host names its device.
template <class Card>
bool names_devices(const std::vector<Card>& cards, std::uint64_t host) {
    return std::any_of(cards.begin(), cards.end(),
                       [&](const Card& card) { return card.host == host && card.wanted >= 0; });
}
/// The device of a rank that names none: the first of those that the fewest ranks of its host have.
/// `places`: the device of each rank, as its own process numbers them; -1: not known yet.
template <class Card>
std::size_t least_used(const std::vector<Card>& cards, std::size_t rank, const std::vector<int>& places) {
    const Card& mine = cards[rank];
    std::vector<std::size_t> users(mine.devices.size());
    for (std::size_t one = 0; one < cards.size(); ++one) {
        if (cards[one].host != mine.host || places[one] < 0) continue;
        const std::string& theirs = cards[one].devices[static_cast<std::size_t>(places[one])];
        for (std::size_t device = 0; device < users.size(); ++device) users[device] += mine.devices[device] == theirs;
    }
    return static_cast<std::size_t>(std::min_element(users.begin(), users.end()) - users.begin());
}

/// The device of a rank, as its own process numbers them: the one that it names, or else the one
/// with its number among the ranks of its host. If ranks outnumber devices, they share them in
/// turn. If other ranks of the host name theirs, as members of an elastic world do in later worlds,
/// it gets the one that the fewest have. Errors, the same on all ranks: refused, if a rank has a
/// problem, or names a device that it does not see.
inline int place_of(const std::vector<CudaCard>& cards, std::size_t rank) {
    std::vector<int> places;
    for (std::size_t one = 0; one < cards.size(); ++one) {
        check_problem(cards[one], one);
        check_wanted(cards[one], one);
        places.push_back(cards[one].wanted);
    }
    for (std::size_t one = 0; one <= rank; ++one) {
        const CudaCard& card = cards[one];
        if (places[one] >= 0) continue;
        places[one] = static_cast<int>(names_devices(cards, card.host)
                                           ? least_used(cards, one, places)
                                           : count_on_host(cards, card.host, one) % card.devices.size());
    }
    return places[rank];
}

} // namespace detail
UNISONO_NAMESPACE_END
