#pragma once

/// \file
/// The devices of ranks over NCCL: options from the program or the environment, and the assignment
/// of a device to each rank: pure functions of the ranks' descriptions of their machines. So all
/// ranks get the same result, or the same error.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/cuda/places.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/nccl/communicator.hpp"
#include "unisono/extensions/tcp/tcp.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The device of a rank, and the network over which ranks exchange messages.
struct NcclOptions {
    /// For host messages; NCCL chooses a network of its own (NCCL_SOCKET_IFNAME, NCCL_IB_HCA) for
    /// device data.
    TcpOptions network = {};
    /// As this process numbers them; -1: the one with the rank's number on its host, or, if other
    /// ranks of the host name theirs, the one that the fewest have.
    int device = -1;
    /// The size from which on native collectives on host memory pass through the device; smaller
    /// ones use messages. Equal on all ranks. 0: UNISONO_NCCL_STAGED_BYTES, else 65,536 (chosen,
    /// not measured).
    std::size_t staged_bytes = 0;

    /// The number of a group's NCCL collectives per check. In a check the ranks compare, by
    /// messages, what they have started since the last one. 0: UNISONO_NCCL_CHECK_EVERY, else 1.
    /// Equal on all ranks. More than 1 saves messages, a few microseconds per call, but a mismatch
    /// is found later, and only at the deadline if NCCL hangs because of it.
    int check_every = 0;
    /// Set by an elastic world: this is a membership after the first one. An error of this rank's
    /// device is no other rank's, and an error of NCCL ends this membership alone.
    bool is_later = false;

    friend bool operator==(const NcclOptions&, const NcclOptions&) = default;

    /// These options, completed from the environment. Errors: bad_input.
    [[nodiscard]] NcclOptions with(const Environment& environment) const {
        NcclOptions all = *this;
        all.network = network.with(environment);
        if (device < -1) refuse_input({"NcclOptions::device is ", device, "; expected -1 or a device's number"});
        if (check_every < 0) refuse_input({"NcclOptions::check_every is ", check_every, "; expected 0 or more"});
        if (all.staged_bytes == 0)
            all.staged_bytes = static_cast<std::size_t>(said_by(environment, "UNISONO_NCCL_STAGED_BYTES", 65536));
        if (all.check_every == 0) all.check_every = said_by(environment, "UNISONO_NCCL_CHECK_EVERY", 1);
        return all;
    }

private:
    static int said_by(const Environment& environment, const char* name, int otherwise) {
        const std::string* const said = environment.find(name);
        if (said == nullptr) return otherwise;
        int number = 0;
        if (!detail::parse_count(*said, 1 << 30, number) || number == 0)
            refuse_input({name, " must be a number from 1 to 2^30, found ", detail::quoted(*said)});
        return number;
    }
};

namespace detail {

/// A rank's message to its peers before there is a communicator.
struct NcclCard : CudaCard {
    int loaded = 0;      ///< NCCL's version
    bool shares = false; ///< NCCL_MULTI_RANK_GPU_ENABLE=1
    std::uint64_t staged_bytes = 0;
    std::uint32_t check_every = 0;
    ncclUniqueId id = {}; ///< rank 0's is used
};

/// The card of this process; `options` are completed from the environment. Problems are recorded,
/// not thrown, since the peers must learn of them.
inline NcclCard card_of_process(std::uint64_t host, const NcclOptions& options, bool shares) {
    NcclCard card{cuda_card(host, options.device)};
    card.shares = shares;
    card.staged_bytes = options.staged_bytes;
    card.check_every = static_cast<std::uint32_t>(options.check_every);
    if (!card.problem.empty()) return card;
    try {
        card.loaded = loaded_nccl();
        check_nccl(ncclGetUniqueId(&card.id), "ncclGetUniqueId");
    } catch (const error& failed) {
        card.problem = failed.why().message;
    }
    return card;
}

inline void write_card(WireWriter& out, const NcclCard& card) {
    write_card(out, static_cast<const CudaCard&>(card));
    out.u32(static_cast<std::uint32_t>(card.loaded));
    out.u32(card.shares ? 1 : 0);
    out.u64(card.staged_bytes);
    out.u32(card.check_every);
    out.text(std::string_view(card.id.internal, sizeof card.id.internal));
}
inline bool read_card(WireReader& in, NcclCard& card) {
    static_cast<void>(read_card(in, static_cast<CudaCard&>(card)));
    card.loaded = static_cast<std::int32_t>(in.u32());
    card.shares = in.u32() != 0;
    card.staged_bytes = in.u64();
    card.check_every = in.u32();
    const std::string id = in.text();
    if (!in.good() || id.size() != sizeof card.id.internal) return false;
    std::memcpy(card.id.internal, id.data(), id.size());
    return true;
}

/// The device of each rank, as its own process numbers them. Errors, the same on all ranks:
/// refused, if a rank has a problem, versions or options differ, a host has more ranks than
/// devices, or two ranks would use one device.
inline std::vector<int> place_ranks(const std::vector<NcclCard>& cards) {
    constexpr int sharing_since = 23000; // several ranks on one device
    std::vector<int> places, wanted;
    for (std::size_t rank = 0; rank < cards.size(); ++rank) { // first: below, a rank looks at all cards
        check_problem(cards[rank], rank);
        check_wanted(cards[rank], rank);
        wanted.push_back(cards[rank].wanted);
    }
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
        const NcclCard& card = cards[rank];
        if (card.loaded != cards[0].loaded)
            refuse_places(rank, concat({"rank ", rank, " has loaded NCCL ", nccl_version_text(card.loaded), ", rank 0 ",
                                        nccl_version_text(cards[0].loaded)}));
        if (card.staged_bytes != cards[0].staged_bytes)
            refuse_places(rank, concat({"rank ", rank, " has NcclOptions::staged_bytes ", card.staged_bytes,
                                        ", rank 0 ", cards[0].staged_bytes}));
        if (card.check_every != cards[0].check_every)
            refuse_places(rank, concat({"rank ", rank, " has NcclOptions::check_every ", card.check_every, ", rank 0 ",
                                        cards[0].check_every}));
        const std::size_t local = count_on_host(cards, card.host, rank);
        const bool shares = card.shares && card.loaded >= sharing_since;
        std::size_t place = card.wanted >= 0                      ? static_cast<std::size_t>(card.wanted)
                            : each_sees_its_own(cards, card.host) ? 0
                            : names_devices(cards, card.host)     ? least_used(cards, rank, wanted)
                                                                  : local;
        if (card.wanted < 0 && shares) place %= card.devices.size();
        if (place >= card.devices.size())
            refuse_places(
                rank,
                concat({"rank ", rank, " is number ", local, " of ", count_on_host(cards, card.host, cards.size()),
                        " ranks on its host, but sees ", card.devices.size(),
                        card.devices.size() == 1 ? " device" : " devices",
                        "; start at most one rank for each, or show it more of them by CUDA_VISIBLE_DEVICES; with "
                        "NCCL 2.30 or newer several ranks may share one: NCCL_MULTI_RANK_GPU_ENABLE=1 (found: NCCL ",
                        nccl_version_text(card.loaded), card.shares ? ", which ignores that variable" : "", ")"}));
        for (std::size_t other = 0; other < rank && !shares; ++other) {
            if (cards[other].host != card.host) continue;
            if (cards[other].devices[static_cast<std::size_t>(places[other])] == card.devices[place])
                refuse_places(rank, concat({"ranks ", other, " and ", rank, " would both have the device ",
                                            card.devices[place], "; each needs its own"}));
        }
        places.push_back(static_cast<int>(place));
        wanted[rank] = places.back();
    }
    return places;
}

} // namespace detail
UNISONO_NAMESPACE_END
