#pragma once

/// \file
/// Whether MPI's own collectives accept device memory: what each rank's MPI reports, and the
/// conclusion of all ranks.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/cuda/options.hpp"
#include "unisono/extensions/mpi/device_memory.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A rank's message to its peers, sent as bytes.
struct MpiDeviceCard {
    using Text = std::array<char, 200>;

    DeviceTransfers wish = DeviceTransfers::automatic;
    bool able = false; ///< its MPI reports that its nonblocking collectives accept device memory
    Text library = {}; ///< name and version of its MPI
    Text why = {};     ///< why it is not able
    Text problem = {}; ///< why this rank cannot take part at all; empty: it can

    static void write(Text& text, std::string_view words) {
        text = {};
        std::copy_n(words.data(), std::min(words.size(), text.size() - 1), text.data());
    }
};

/// This rank's card. Asks about nonblocking collectives: with blocking ones, peers could not be
/// told of a rank that does not arrive. MPICH from 4.0 on has them for devices, and reports it.
/// Open MPI has none, even if it is CUDA-aware: its reductions read device memory on the host
/// (open-mpi/ompi, issues 9845 and 12045; as of 5.0). Other MPIs offer no known way to ask.
inline MpiDeviceCard mpi_device_card(DeviceTransfers wish) {
    MpiDeviceCard card{.wish = wish};
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(library, &length);
    const std::string_view all(library, static_cast<std::size_t>(std::max(length, 0)));
    MpiDeviceCard::write(card.library, all.substr(0, std::min(all.find_first_of("\n,"), all.size())));
#if defined(MPIX_GPU_SUPPORT_CUDA)
    card.able = mpi_is_cuda_aware();
    if (!card.able) MpiDeviceCard::write(card.why, "MPIX_GPU_query_support says that it does not support CUDA");
#elif defined(OPEN_MPI)
    MpiDeviceCard::write(card.why,
                         mpi_is_cuda_aware()
                             ? "its nonblocking collectives take no memory of devices, although it is CUDA-aware"
                             : "it is not CUDA-aware");
#else
    MpiDeviceCard::write(card.why, "it does not say that it takes memory of devices");
#endif
    return card;
}

/// True if MPI gets device memory. Pure: all ranks get the same result, or the same error.
///
/// It does if the MPI of every rank reports support and no rank requests staging, or if all ranks
/// request it, since they then know better than their MPIs. Errors: refused, if a rank cannot take
/// part, or if one rank requests it and another requests staging or has no support.
inline bool takes_device_memory(std::span<const MpiDeviceCard> cards) {
    const auto refuse = [](std::size_t rank, const std::string& why) {
        throw error(Fault{.code = ErrorCode::refused,
                          .rank = static_cast<int>(rank),
                          .peer = -1,
                          .operation = "join",
                          .sequence = 0,
                          .message = why});
    };
    std::size_t asks = cards.size();
    bool able = true;
    for (std::size_t rank = cards.size(); rank-- > 0;) {
        if (cards[rank].wish == DeviceTransfers::direct) asks = rank;
        else able = able && cards[rank].able && cards[rank].wish != DeviceTransfers::staged;
    }
    for (std::size_t rank = 0; rank < cards.size(); ++rank)
        if (cards[rank].problem[0] != '\0') refuse(rank, concat({"rank ", rank, ": ", cards[rank].problem.data()}));
    if (asks == cards.size()) return able;
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
        const MpiDeviceCard& one = cards[rank];
        if (one.wish == DeviceTransfers::staged)
            refuse(rank, concat({"rank ", asks, " asks for direct transfers of memory of devices, rank ", rank,
                                 " for staged ones; expected the same on all ranks"}));
        if (one.wish == DeviceTransfers::automatic && !one.able)
            refuse(rank, concat({"rank ", asks, " (", cards[asks].library.data(),
                                 ") asks for direct transfers of memory of devices, but rank ", rank, " has ",
                                 one.library.data(), ": ", one.why.data(),
                                 "; expected an MPI that does, or that all ranks ask for it"}));
    }
    return true;
}

} // namespace detail
UNISONO_NAMESPACE_END
