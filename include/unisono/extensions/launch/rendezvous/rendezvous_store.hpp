#pragma once

/// \file
/// A rendezvous by a key-value store that the processes share: rank 0 writes its addresses under a
/// key, and the other ranks read them. For programs whose framework has such a store, for instance
/// PyTorch.

#include "unisono/extensions/launch/rendezvous/rendezvous.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_sides.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A store that all ranks of a job can access. `set` replaces the value of a key. `get` waits until
/// the key has a value, and throws at the deadline, which is on the clock of `steady_now()`.
template <class Store>
concept key_value_store =
    requires(Store& store, const std::string& key, const std::string& value, nanoseconds deadline) {
        store.set(key, value);
        { store.get(key, deadline) } -> std::convertible_to<std::string>;
    };

namespace detail {

/// Rank 0's entry in the store: `unisono-2 <secret> <port> <network space> <host>,<host>,...`, or
/// `failed <why>`.
struct StoreCard {
    static constexpr std::string_view mark = "unisono-2 ";
    static constexpr std::string_view failed = "failed ";
    static constexpr std::string_view given = "given";

    /// `given`: each rank has the secret; `public-<32 digits>`: the network is trusted; else the
    /// name of a file in this user's rendezvous folder.
    std::string secret = std::string(given);
    std::uint16_t port = 0;
    std::uint64_t network = 0; ///< see `network_space`
    std::vector<std::string> hosts = {};

    [[nodiscard]] std::string text() const {
        std::string made = concat({mark, secret, " ", port, " ", network, " "});
        for (std::size_t i = 0; i < hosts.size(); ++i) made += (i == 0 ? "" : ",") + hosts[i];
        return made;
    }

    /// Errors: refused, with the reason that rank 0 wrote.
    static StoreCard parse(const std::string& key, std::string_view text) {
        if (text.starts_with(failed)) throw error(ErrorCode::refused, std::string(text.substr(failed.size())));
        const auto refuse = [&]() {
            throw error(
                ErrorCode::refused,
                concat(
                    {"the store's key ", detail::quoted(key), " has ", text.size(),
                     " bytes that are not an address of rank 0 (do all ranks use the same version of the library?)"}));
        };
        if (!text.starts_with(mark)) refuse();
        std::array<std::string_view, 4> words;
        std::string_view rest = text.substr(mark.size());
        for (std::string_view& word : words) word = take_until(rest, ' ');
        int port = 0;
        if (!is_file_name(words[0]) || !parse_count(words[1], 65535, port) || words[3].empty()) refuse();
        StoreCard card{.secret = std::string(words[0]),
                       .port = static_cast<std::uint16_t>(port),
                       .network = read_number<std::uint64_t>(words[2], "the network of rank 0"),
                       .hosts = {}};
        while (!words[3].empty()) card.hosts.emplace_back(take_until(words[3], ','));
        return card;
    }
};

/// The addresses at which other hosts may reach this one: those of its interfaces that are up, IPv4
/// before IPv6. Excludes the loopback, and link-local addresses, which need the name of an
/// interface.
inline std::vector<std::string> own_addresses() {
    std::vector<std::string> found;
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return found;
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
            if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
            if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
            if (family == AF_INET6 &&
                IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr))
                continue;
            found.push_back(host_text(address_of(each->ifa_addr)));
        }
    }
    ::freeifaddrs(all);
    return found;
}

/// Binds a given secret to the job and the key.
inline std::optional<JobToken> secret_for_key(const Environment& environment, const std::string& key) {
    const auto secret = given_secret(environment);
    if (!secret) return std::nullopt;
    return secret->of_job(concat({job_of(environment), "key=", key}));
}
inline RendezvousPoint secret_file(const Environment& environment, const std::string& name) {
    RendezvousPoint point;
    point.folder = own_rendezvous_folder(environment);
    point.own_folder = true;
    point.job = name;
    return point;
}
inline constexpr std::string_view public_secret = "public-";

/// Rank 0's part: listens, and writes its addresses to the store. Errors: refused; the other ranks
/// read the error in the store.
template <key_value_store Store>
Reception receive_by_store(const Identity& me, Store& store, const std::string& key, const RendezvousOptions& options,
                           std::chrono::nanoseconds notice) {
    Reception made{.hub = nullptr, .file = {}, .reached = {}};
    try {
        const Environment environment = Environment::of_process();
        const auto secret = secret_for_key(environment, key);
        const bool trusted = options.trusted_network || trusts_network(environment);
        const bool by_file = !secret && !trusted; // then all ranks are this user's and on this host
        RendezvousPoint& reached = made.reached;
        if (by_file) reached = secret_file(environment, JobToken::random().text());
        reached.token = secret ? *secret : JobToken::random();
        StoreCard card{.port = 0, .network = network_space(), .hosts = own_addresses()};
        if (!secret) card.secret = by_file ? reached.job : concat({public_secret, reached.token.text()});
        if (const std::string* const name = given_host(environment)) card.hosts = {*name};
        if (card.hosts.empty() || by_file) card.hosts = {"127.0.0.1"};
        Listener listener = listen_at(by_file, 0);
        card.port = listener.port;
        reached.host = "127.0.0.1";
        reached.port = card.port;
        made.hub =
            std::make_unique<Hub>(std::move(listener), HubOptions{.world = me.world, .token = reached.token},
                                  HubNotice{.after = notice,
                                            .waits = concat({"rank 0 of ", me.world, " is waiting for"}),
                                            .where = concat({" at port ", card.port, ", by the store's key ", key})});
        if (by_file) {
            made.file = RendezvousFile(reached);
            reached.folder.clear();
        }
        store.set(key, card.text());
    } catch (const error& refused) {
        store.set(key, concat({StoreCard::failed, "rank 0: ", refused.why().message}));
        throw;
    }
    return made;
}

/// Returns false, with the reason, if this rank does not have rank 0's secret. Errors: refused if
/// it cannot get it.
inline bool find_secret(const StoreCard& card, const std::string& key, JobToken& secret, std::string& why) {
    const Environment environment = Environment::of_process();
    const auto own = secret_for_key(environment, key);
    if (own.has_value() != (card.secret == StoreCard::given)) {
        why = own ? "this rank has a secret (UNISONO_TOKEN), and rank 0 has none"
                  : "rank 0 has a secret (UNISONO_TOKEN), and this rank has none";
        return false;
    }
    if (own) {
        secret = *own;
    } else if (card.secret.starts_with(public_secret)) {
        secret = JobToken::parse(std::string_view(card.secret).substr(public_secret.size()), "rank 0's token");
    } else if (card.network != network_space()) {
        throw error(ErrorCode::refused, concat({"rank 0 is on another host, and the ranks have no secret, so that "
                                                "any process that reaches their ports could take a rank's place: ",
                                                how_to_give_a_secret}));
    } else {
        RendezvousPoint file = secret_file(environment, card.secret);
        if (!read_rendezvous_file(file)) {
            why = concat(
                {"no file ", rendezvous_path(file), " (ranks that do not all see it need a secret: UNISONO_TOKEN)"});
            return false;
        }
        secret = file.token;
    }
    return true;
}

/// The part of the other ranks. The key may still have the value of an earlier job, so it is read
/// again if there is no answer at the address, and for some seconds if it says why rank 0 failed,
/// or cannot be read.
template <key_value_store Store>
std::optional<Entrance> enter_by_store(const Identity& me, Store& store, const std::string& key, std::uint64_t claimant,
                                       nanoseconds deadline, std::chrono::nanoseconds notice_after, std::string& why) {
    SearchNotice notice(
        concat({"rank ", me.rank, " of ", me.world, " is waiting for rank 0, by the store's key ", key}), notice_after);
    constexpr nanoseconds most_refused = 2'000'000'000;
    nanoseconds pause = 5'000'000;
    nanoseconds refused_since = 0;
    std::string last;
    do {
        std::string text = store.get(key, deadline);
        if (text != last) refused_since = 0;
        last = std::move(text);
        StoreCard card;
        JobToken secret;
        std::vector<std::string> hosts;
        try {
            card = StoreCard::parse(key, last);
            if (find_secret(card, key, secret, why)) hosts = card.hosts;
            else notice.note(why);
        } catch (const error& refused) {
            if (refused_since == 0) refused_since = steady_now();
            if (steady_now() - refused_since >= most_refused || steady_now() + pause >= deadline) throw;
            why = refused.why().message;
        }
        if (!hosts.empty() && card.network == network_space()) hosts.insert(hosts.begin(), "127.0.0.1");
        NoEntry none;
        for (const std::string& host : hosts) {
            RendezvousPoint point;
            point.host = host;
            point.port = card.port;
            point.token = secret;
            Search search(me, point, claimant);
            if (auto entrance = search.once(std::min(deadline, steady_now() + 3'000'000'000))) return entrance;
            none.note(concat({search.where(), ": ", search.why()}), search.has_met_keeper());
            notice.note(why = none.why());
        }
        const nanoseconds left = deadline - steady_now();
        if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(pause, left)));
        pause = std::min<nanoseconds>(pause * 2, 200'000'000);
    } while (steady_now() < deadline);
    return std::nullopt;
}

} // namespace detail

/// A rendezvous with the other ranks of the job by a key-value store. Returns the control plane
/// that connects them. Rank 0 listens on all interfaces, at a port that the system chooses.
/// UNISONO_HOST in the environment gives the name or address at which the other ranks reach it;
/// otherwise they try its interfaces in turn. Collective over the job; two jobs use two keys.
///
/// The store does not get the job's secret, which is UNISONO_TOKEN or the text of
/// UNISONO_TOKEN_FILE. Without a secret, rank 0 listens on the loopback, and writes a secret to a
/// file that only this user's processes on this host can read; ranks on other hosts are refused.
/// With `options.trusted_network` or UNISONO_TRUSTED_NETWORK=1, the store contains a token, which
/// every reader of the store then has.
///
/// Errors: those of `rendezvous` at a rendezvous point, and those of the store. If rank 0 cannot
/// listen, every rank gets `refused`.
template <key_value_store Store>
ControlPlane rendezvous(const Identity& me, Store& store, const std::string& key,
                        const RendezvousOptions& options = {}) {
    detail::check_rendezvous(me, options);
    if (me.world == 1) return {};
    const nanoseconds deadline = deadline_after(steady_now(), options.timeout);
    const std::uint64_t claimant = detail::draw_claimant();
    const std::chrono::nanoseconds notice_after = detail::notice_after(Environment::of_process(), options.notice_after);
    detail::Reception own{.hub = nullptr, .file = {}, .reached = {}};
    if (me.rank == 0) own = detail::receive_by_store(me, store, key, options, notice_after);
    return detail::join_plane(me, options, deadline, std::move(own.hub), RendezvousPoint{}, [&](std::string& why) {
        if (me.rank != 0) return detail::enter_by_store(me, store, key, claimant, deadline, notice_after, why);
        detail::Search search(me, own.reached, claimant);
        std::optional<detail::Entrance> entrance = search.until(deadline);
        why = concat({search.where(), ": ", search.why()});
        return entrance;
    });
}

UNISONO_NAMESPACE_END
