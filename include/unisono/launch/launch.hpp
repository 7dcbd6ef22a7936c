#pragma once

/// \file
/// Processes that become one job: their identities, their rendezvous, and which of them failed
/// first.
///
/// A transport of processes is based on a control plane. The control plane is slow and rarely used;
/// gradients never pass through it.
///
/// Laws
/// - `all_gather` gives every rank all ranks' blobs in rank order. It is collective: each rank's
///   n-th call matches the others' n-th. At the deadline it throws an error that names the ranks
///   that did not come.
/// - The first fault of a job becomes that of every rank. `first_fault()` returns it, or nullptr if
///   there is none; it is one atomic load. If a rank dies (its connection ends without a goodbye),
///   the fault is `peer_lost` with that rank as `peer`.
/// - `abort(fault)` returns when there is a first fault: this one, or an earlier one. A fault with
///   the code `timeout` is investigated first: all ranks are asked what they wait for, and `peer`
///   becomes the rank that caused it.
/// - A slow rank is never declared dead: only the end of its connection or of its process is a
///   death.
/// - `waits(wait)` and `waits_no_more()` mark a wait that has lasted for a while; other threads
///   read the marks. A rank that waits for nothing is assumed to compute.
/// - `leave()` is a goodbye: the rank's end is then no fault. Ranks that still wait for the rank
///   get `peer_lost`.
/// - One thread of the program uses a control plane at a time; any thread may call `first_fault`
///   and `has_left`.
///
/// Menu
/// - processes.hpp: starts processes, waits for them, kills and reaps them.
/// - host.hpp, cores.hpp: what the system says of this host, of its processes and of its cores.
/// - root_cause.hpp: of all ranks' answers, the rank that caused a timeout.
///
/// Beyond the base (unisono/launch.hpp has all)
/// - extensions/launch/rendezvous/: rank, world, local rank, ... and the rendezvous point, by the
///   variables of launchers or from the program; the rendezvous, which returns a ControlPlane.
/// - extensions/launch/control/: the star that outlives the rendezvous. Its centre, the hub, is a
///   thread of rank 0, or of a launcher, which then survives any rank. It is a thread so that it
///   also answers while its rank computes for minutes.
/// - extensions/launch/secrets/: how both ends of a connection prove that they have the job's
///   secret, which is never sent, and how the frames between them are protected.
/// - extensions/launch/sockets/: sockets, and ranks as forked processes of this host.
/// The program unisono-run is in tools/unisono_run.
///
/// Deliberately absent: restarting ranks in place (a world whose rank is lost ends; elastic/ forms
/// another one), and encryption (a reader of the network sees the messages between ranks, but not
/// the job's secret; see docs/security.md).

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/time.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The operation that a rank waits for; without one, the rank computes.
struct Wait {
    std::string operation = {};   ///< "all_reduce of 1000 float32 elements"
    std::uint64_t context = 0;    ///< context of the group
    std::uint64_t sequence = 0;   ///< number of the operation in its group
    detail::List<int> peers = {}; ///< ranks of the world that may be the cause
    friend bool operator==(const Wait&, const Wait&) = default;
};

/// Bytes that ranks exchange in a rendezvous.
using Blob = std::vector<std::byte>;

/// Connections of a world beside its data: small gathers, faults, departures.
template <class T>
concept control_plane = requires(T& t, const T& c, std::span<const std::byte> blob, nanoseconds deadline,
                                 const Fault& fault, const Wait& wait, int peer) {
    { c.rank() } -> std::same_as<int>;
    { c.size() } -> std::same_as<int>;
    { t.all_gather(blob, deadline) } -> std::same_as<std::vector<Blob>>; ///< deadline: on the clock of steady_now()
    { c.first_fault() } -> std::same_as<const Fault*>;
    { c.has_left(peer) } -> std::same_as<bool>;
    t.abort(fault);
    t.waits(wait);
    t.waits_no_more();
    t.leave();
};

UNISONO_NAMESPACE_END
