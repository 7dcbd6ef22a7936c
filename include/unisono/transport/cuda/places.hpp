#pragma once

/// \file
/// Assigns a device to each rank: pure functions of the ranks' descriptions of their machines. So
/// all ranks get the same result, or the same error.

#include "unisono/launch/wire.hpp"
#include "unisono/transport/cuda/api.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A rank's description of its devices for its peers.
struct CudaCard {
    std::uint64_t host = 0;
    std::string problem = {};              ///< why this rank can't take part; empty: it can
    std::vector<std::string> devices = {}; ///< those that its process sees, by PCI bus id
    int wanted = -1;                       ///< the device that the program names; -1: by the rank's number on the host
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

inline Blob blob_of(const CudaCard& card) {
    WireWriter out;
    out.u64(card.host);
    out.text(card.problem);
    out.u32(static_cast<std::uint32_t>(card.devices.size()));
    for (const std::string& one : card.devices) out.text(one);
    out.u32(static_cast<std::uint32_t>(card.wanted));
    return out.take();
}

/// Reads a card; false if the bytes are none.
inline bool read(const Blob& blob, CudaCard& card) {
    WireReader in(blob);
    card.host = in.u64();
    card.problem = in.text();
    const std::uint32_t devices = in.u32();
    for (std::uint32_t i = 0; i < devices && in.good(); ++i) card.devices.push_back(in.text());
    card.wanted = static_cast<std::int32_t>(in.u32());
    return in.good();
}

[[noreturn, gnu::cold]] inline void refuse_places(std::size_t rank, const std::string& why) {
    throw error(Fault{.code = ErrorCode::refused,
                      .rank = static_cast<int>(rank),
                      .peer = -1,
                      .operation = "join",
                      .sequence = 0,
                      .message = why});
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

/// The device of a rank, as its own process numbers them: the one that it names, or else the one
/// with its number among the ranks of its host. If ranks outnumber devices, they share them in
/// turn. Errors, the same on all ranks: refused, if a rank has a problem, or names a device that it
/// does not see.
inline int place_of(const std::vector<CudaCard>& cards, std::size_t rank) {
    for (std::size_t one = 0; one < cards.size(); ++one) {
        const CudaCard& card = cards[one];
        if (!card.problem.empty()) refuse_places(one, concat({"rank ", one, ": ", card.problem}));
        if (card.wanted >= 0 && static_cast<std::size_t>(card.wanted) >= card.devices.size())
            refuse_places(one,
                          concat({"rank ", one, " asks for device ", card.wanted, ", but sees ", card.devices.size()}));
    }
    const CudaCard& mine = cards[rank];
    if (mine.wanted >= 0) return mine.wanted;
    std::size_t local = 0;
    for (std::size_t other = 0; other < rank; ++other)
        if (cards[other].host == mine.host) ++local;
    return static_cast<int>(local % mine.devices.size());
}

} // namespace detail
UNISONO_NAMESPACE_END
