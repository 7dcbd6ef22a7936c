#pragma once

/// \file
/// Turns processes that share a control plane into the ranks of a world with devices over another
/// transport.

#include "unisono/extensions/cuda/cuda.hpp"
#include "unisono/launch/host.hpp"

#include <cstddef>
#include <utility>

UNISONO_NAMESPACE_BEGIN

template <transport Network>
template <control_plane Control>
Cuda<Network> Cuda<Network>::join(Control control, nanoseconds deadline, const Options& options) {
    const auto rank = static_cast<std::size_t>(control.rank());
    static_cast<void>(options.with(Environment::of_process())); // reports errors in the options before anything else
    const detail::CudaCard mine = detail::cuda_card(detail::host_number(), options.device);
    const int place = detail::place_of(detail::gather_cards(control, mine, deadline), rank);
    auto network = [&] {
        if constexpr (detail::has_options<Network>) return Network::join(std::move(control), deadline, options.network);
        else return Network::join(std::move(control), deadline, options.network.arena_bytes);
    }();
    return {begin(place), std::move(network), options};
}

UNISONO_NAMESPACE_END
