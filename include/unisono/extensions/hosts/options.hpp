#pragma once

/// \file
/// The host names by which a program or its environment places ranks on different hosts.

#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// "a,a,b": a name per rank; empty: no names. Errors: bad_input for an empty name, or if the number
/// of names is not the number of ranks.
inline std::vector<std::string> parse_host_names(std::string_view text, int ranks) {
    std::vector<std::string> names;
    if (text.empty()) return names;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        names.emplace_back(text.substr(at, end - at));
        if (names.back().empty())
            refuse_input({"UNISONO_HOSTS must be a name per rank, as in a,a,b; found ", detail::quoted(text)});
        at = end + 1;
    }
    if (names.size() != static_cast<std::size_t>(ranks))
        refuse_input({"UNISONO_HOSTS has ", names.size(), " names for ", ranks, " ranks: ", detail::quoted(text),
                      ". A rank that is added to an elastic world says its own by UNISONO_HOST_NAME"});
    return names;
}

/// The name of a rank's host: from `given`, a name per rank; else `own`; else UNISONO_HOST_NAME;
/// else UNISONO_HOSTS, a name per rank. Empty if none of these is set. Errors: bad_input.
inline std::string host_name_of(int rank, int ranks, const std::vector<std::string>& given, const std::string& own,
                                const Environment& environment) {
    if (!given.empty() && given.size() != static_cast<std::size_t>(ranks))
        refuse_input({"HostsOptions::hosts has ", given.size(), " names for ", ranks, " ranks"});
    if (!given.empty()) return given[static_cast<std::size_t>(rank)];
    if (!own.empty()) return own;
    if (const std::string* const said = environment.find("UNISONO_HOST_NAME"); said != nullptr) return *said;
    const std::string* const all = environment.find("UNISONO_HOSTS");
    return all == nullptr || all->empty() ? std::string()
                                          : parse_host_names(*all, ranks)[static_cast<std::size_t>(rank)];
}

} // namespace detail

/// Options of `Hosts<Network>`: those of its network, and more.
template <class Network>
struct HostsOptions {
    typename Network::Options network = {};
    /// A name per rank, the same on all ranks. Ranks with different names exchange messages over
    /// the network even if they could share memory. Ranks with equal names share a host only if
    /// they can share memory. Empty: as UNISONO_HOSTS says (a,a,b,b), else ranks that can share
    /// memory share a host.
    std::vector<std::string> hosts = {};
    std::string host = {};       ///< the name of this rank alone, instead of `hosts`; empty: as UNISONO_HOST_NAME says
    std::size_t arena_bytes = 0; ///< the most memory that a rank may allocate; 0: as much as the machine has

    friend bool operator==(const HostsOptions&, const HostsOptions&) = default;

    /// The name of a rank's host in worlds of this size; empty: none. Errors: bad_input.
    [[nodiscard]] std::string name_of(int rank, int ranks, const Environment& environment) const {
        return detail::host_name_of(rank, ranks, hosts, host, environment);
    }
};

/// Options that place ranks on hosts by names, as HostsOptions do.
template <class Options>
concept places_by_name = requires(const Options& options, const Environment& environment) {
    { options.name_of(0, 1, environment) } -> std::same_as<std::string>;
    requires std::same_as<decltype(options.host), std::string>;
};

UNISONO_NAMESPACE_END
