#pragma once

/// \file
/// The host of each rank: names by which a program or its environment places ranks on different
/// hosts; and the common state of the two halves of `Hosts`, with one first fault for both.

#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/network/world.hpp"
#include "unisono/transport/shared_memory/world.hpp"

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
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

namespace detail {

/// The network, which asks the control plane, decides the first fault of a host's memory. Only the
/// network learns which ranks leave and wait.
class NetworkOverseer final : public Overseer {
public:
    explicit NetworkOverseer(std::shared_ptr<NetworkWorld> network) : network_(std::move(network)) {}

    [[nodiscard]] const Fault* first_fault() const noexcept override { return network_->first_fault(); }
    [[nodiscard]] Fault settle(const Fault& mine) override {
        if (first_fault() == nullptr) network_->abort(mine.rank >= 0 ? mine.rank : network_->size(), mine);
        const Fault* const first = first_fault();
        return first != nullptr ? *first : mine;
    }
    void waits(const Wait&) override {}
    void waits_no_more() override {}
    void leave() noexcept override {}
    [[nodiscard]] bool has_left(int rank) const noexcept override { return network_->has_left(rank); }
    [[nodiscard]] bool is_unwinding() const noexcept override { return false; }

private:
    std::shared_ptr<NetworkWorld> network_;
};

/// The host of each rank.
class HostPlaces {
public:
    HostPlaces() = default;
    /// The host of each rank, by arbitrary numbers; hosts are renumbered in the order of their
    /// first ranks.
    explicit HostPlaces(const std::vector<int>& host_of_rank) {
        std::vector<int> seen;
        for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
            std::size_t host = 0;
            while (host < seen.size() && seen[host] != host_of_rank[rank]) ++host;
            if (host == seen.size()) {
                seen.push_back(host_of_rank[rank]);
                ranks_.emplace_back();
            }
            hosts_.push_back(static_cast<int>(host));
            local_.push_back(static_cast<int>(ranks_[host].size()));
            ranks_[host].push_back(static_cast<int>(rank));
        }
    }
    [[nodiscard]] int hosts() const { return static_cast<int>(ranks_.size()); }
    [[nodiscard]] int host_of(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
    /// A rank's number among those of its host.
    [[nodiscard]] int local_rank(int rank) const { return local_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] const std::vector<int>& ranks_of(int host) const { return ranks_[static_cast<std::size_t>(host)]; }

private:
    std::vector<int> hosts_;              ///< by rank
    std::vector<int> local_;              ///< by rank
    std::vector<std::vector<int>> ranks_; ///< by host
};

/// The first rank with each name. Without names all ranks are on one host.
inline std::vector<int> hosts_of_names(const std::vector<std::string>& names, int ranks) {
    std::vector<int> hosts(static_cast<std::size_t>(ranks));
    for (std::size_t rank = 0; rank < names.size(); ++rank) {
        std::size_t first = 0;
        while (names[first] != names[rank]) ++first;
        hosts[rank] = static_cast<int>(first);
    }
    return hosts;
}

/// A world of threads of this process, which act as several hosts if UNISONO_HOSTS says so.
class HostsWorld {
public:
    /// Errors: bad_input, refused.
    explicit HostsWorld(int size) : HostsWorld(size, parse_host_names(said_by(Environment::of_process()), size)) {}
    HostsWorld(int size, const std::vector<std::string>& names)
        : network_(std::make_shared<NetworkWorld>(size)), places_(hosts_of_names(names, size)) {
        for (int host = 0; host < places_.hosts(); ++host) {
            memory_.push_back(std::make_shared<SharedMemoryWorld>(static_cast<int>(places_.ranks_of(host).size())));
            memory_.back()->set_overseer(new NetworkOverseer(network_));
        }
    }

    [[nodiscard]] int size() const { return network_->size(); }
    void abort(int rank, const Fault& fault) { network_->abort(rank, fault); }
    [[nodiscard]] const Fault* first_fault() const { return network_->first_fault(); }

    [[nodiscard]] const HostPlaces& places() const { return places_; }
    [[nodiscard]] const std::shared_ptr<NetworkWorld>& network() const { return network_; }
    /// The shared memory of a rank's host.
    [[nodiscard]] const std::shared_ptr<SharedMemoryWorld>& memory_of(int rank) const {
        return memory_[static_cast<std::size_t>(places_.host_of(rank))];
    }

private:
    static std::string said_by(const Environment& environment) {
        const std::string* const said = environment.find("UNISONO_HOSTS");
        return said != nullptr ? *said : std::string();
    }

    std::shared_ptr<NetworkWorld> network_;
    HostPlaces places_;
    std::vector<std::shared_ptr<SharedMemoryWorld>> memory_; ///< by host
};

} // namespace detail
UNISONO_NAMESPACE_END
