#pragma once

/// \file
/// Joins a world over the transport that a word names, for programs without its type: bindings to
/// other languages and frameworks. Not part of the umbrella.

#include "unisono/any_group.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_store.hpp"
#include "unisono/hosts.hpp"
#include "unisono/join.hpp"
#include "unisono/tcp.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Options of `join_any`, the same on all ranks.
struct AnyJoinOptions {
    /// "auto": shared memory if all ranks can share it, otherwise "hosts". Or "shared_memory";
    /// "hosts": shared memory within each host, sockets between hosts; or "tcp".
    std::string transport = "auto";
    /// Names that separate ranks further than their hosts do, see `HostsOptions`.
    std::vector<std::string> hosts = {};
    JoinOptions join = {};
};

namespace detail {

inline void check_any_join(const AnyJoinOptions& options) {
    const std::string_view word = options.transport;
    if (word != "auto" && word != "shared_memory" && word != "hosts" && word != "tcp")
        refuse_input({"no transport is called '", word, "'; expected auto, shared_memory, hosts or tcp"});
    check_join(options.join);
}

} // namespace detail

/// The world of the processes of this control plane, after their rendezvous. Otherwise as `join` of
/// the transport. Collective. Errors: those of `join`; bad_input for another word.
[[nodiscard]] inline AnyGroup join_any(ControlPlane plane, const AnyJoinOptions& options = {}) {
    detail::check_any_join(options);
    const std::string_view word = options.transport;
    if (word == "tcp") return AnyGroup(join<Tcp>(std::move(plane), options.join));
    const nanoseconds deadline = deadline_after(steady_now(), options.join.rendezvous.timeout);
    if (word == "shared_memory" ||
        (word == "auto" && (plane.size() == 1 || share_one_host(plane, deadline, options.hosts))))
        return AnyGroup(join<SharedMemory>(std::move(plane), options.join));
    HostsOptions<Tcp> separated;
    separated.hosts = options.hosts;
    return AnyGroup(join<Hosts<Tcp>>(std::move(plane), options.join, separated));
}

/// As above, for a program that gives its rank and a key-value store that all ranks see
/// (`key_value_store`), which may be asked for a key again until the deadline. Two jobs use two
/// keys. Errors: also those of `rendezvous` by a store.
template <key_value_store Store>
[[nodiscard]] AnyGroup join_any(const Identity& me, Store& store, const std::string& key,
                                const AnyJoinOptions& options = {}) {
    detail::check_any_join(options);
    return join_any(rendezvous(me, store, key, options.join.rendezvous), options);
}

/// As above, at an address, "host:port", where rank 0 listens. The job's secret is UNISONO_TOKEN;
/// ranks of one host need none if the host is a name of the loopback. Errors: also those of
/// `rendezvous` at a point; bad_input for what is no address; refused without a secret.
[[nodiscard]] inline AnyGroup join_any(const Identity& me, std::string_view address,
                                       const AnyJoinOptions& options = {}) {
    detail::check_any_join(options);
    Environment environment = Environment::of_process();
    if (options.join.rendezvous.trusted_network) environment.set("UNISONO_TRUSTED_NETWORK", "1");
    RendezvousPoint point;
    if (me.world != 1) {
        detail::parse_address("the address", address, point);
        detail::guard_address(environment, me, point);
    }
    return join_any(rendezvous(me, point, options.join.rendezvous), options);
}

/// As above, as the environment describes the job; without a launcher, a world of one.
[[nodiscard]] inline AnyGroup join_any(const AnyJoinOptions& options = {}) {
    detail::check_any_join(options);
    return join_any(detail::rendezvous_of_job(options.join), options);
}

UNISONO_NAMESPACE_END
