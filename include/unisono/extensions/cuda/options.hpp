#pragma once

/// \file
/// Options of ranks with a device over another transport, from the program or the environment.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/transport/transport.hpp"

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class Network>
concept has_options = requires { typename Network::Options; };

/// The options of a network without options.
struct NoOptions {
    /// The most memory that a rank may allocate for sharing with its peers; 0: as much as the
    /// machine has.
    std::size_t arena_bytes = 0;

    friend bool operator==(const NoOptions&, const NoOptions&) = default;
};
template <class Network>
struct OptionsOf {
    using type = NoOptions;
};
template <has_options Network>
struct OptionsOf<Network> {
    using type = typename Network::Options;
};

} // namespace detail

/// Options of `Cuda<Network>`: those of its network, and more.
template <class Network>
struct CudaOptions {
    typename detail::OptionsOf<Network>::type network = {};
    /// As this process numbers them; -1: the rank's number on its host, modulo the number of
    /// devices here.
    int device = -1;
    /// The size of the chunks in which device data pass through the host. Up to three chunks of an
    /// operation are in flight: one comes from the device, one is on the network, one goes back.
    /// Equal on all ranks. 0: UNISONO_PIECE_BYTES; else the chunks of the network's native schedule
    /// for host data, which gives the same bits; else 1 MiB. Chosen, not measured: at 16 to 25 GB/s
    /// a copy of 1 MiB takes 40 to 65 us, many times the few us that starting it costs, and three
    /// chunks fit a core's caches of a few MiB.
    std::size_t piece_bytes = 0;

    friend bool operator==(const CudaOptions&, const CudaOptions&) = default;

    /// These options, completed from the environment. Errors: bad_input.
    [[nodiscard]] CudaOptions with(const Environment& environment) const {
        CudaOptions all = *this;
        if (device < -1) refuse_input({"CudaOptions::device is ", device, "; expected -1 or a device's number"});
        if (all.piece_bytes != 0) return all;
        if constexpr (detail::chunk_bytes<Network> != 0) all.piece_bytes = detail::chunk_bytes<Network>;
        else all.piece_bytes = 1048576;
        const std::string* const said = environment.find("UNISONO_PIECE_BYTES");
        if (said == nullptr) return all;
        int number = 0;
        if (!detail::parse_count(*said, 1 << 30, number) || number == 0)
            refuse_input({"UNISONO_PIECE_BYTES must be a number from 1 to 2^30, found ", detail::quoted(*said)});
        all.piece_bytes = static_cast<std::size_t>(number);
        return all;
    }

    /// The network's transport of a thread.
    template <class World>
    [[nodiscard]] Network begin(const std::shared_ptr<World>& shared, int rank) const {
        if constexpr (std::constructible_from<Network, const std::shared_ptr<World>&, int, decltype((network))>)
            return Network(shared, rank, network);
        else return Network(shared, rank);
    }
};

UNISONO_NAMESPACE_END
