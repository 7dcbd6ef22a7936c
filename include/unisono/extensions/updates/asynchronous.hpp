#pragma once

/// \file
/// No rank waits for another: servers apply each worker's gradient as it arrives.

#include "unisono/extensions/updates/service.hpp"

UNISONO_NAMESPACE_BEGIN

/// Workers push gradients to servers. A server applies each gradient at once and answers with its
/// current parameters, with which the worker continues (extensions/updates/served.hpp). While a
/// worker computes, other workers' gradients change the parameters: with W equally fast workers the
/// staleness is about W - 1. Choose a learning rate and a momentum that tolerate it. Bytes per
/// push: one gradient to the servers, the parameters back. The order of updates, and so the bits,
/// depends on when messages arrive; over `Simulated`, on the seed alone. With one worker it is
/// sequential SGD. Source: Dean et al. 2012 (Downpour SGD), with one update between two pushes; Li
/// et al. 2014 (parameter server).
struct Asynchronous {
    int servers = 1; ///< the number of servers: the last ranks of the world

    static constexpr std::string_view name = "asynchronous";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = false;
    static constexpr bool asynchronous = true;
    using Sharding = detail::ServerSlices;
    friend bool operator==(const Asynchronous&, const Asynchronous&) = default;

    void check() const { detail::check_servers(name, servers); }
    [[nodiscard]] bool together() const { return false; }
    [[nodiscard]] bool goes_on(std::uint64_t, std::uint64_t) const { return true; }
    template <class Training>
    detail::Service<Training, Asynchronous> start(Training& training) const {
        return detail::Service<Training, Asynchronous>(training, *this);
    }
    /// \throws error bad_input: as many servers as ranks
    [[nodiscard]] Sharding sharding(int world) const { return detail::server_slices(*this, world); }
};
UNISONO_CERTIFY(served_update_policy<Asynchronous>);

UNISONO_NAMESPACE_END
