#pragma once

/// \file
/// A rank's connection to the hub, which outlives the rendezvous.

#include "unisono/core/time.hpp"
#include "unisono/extensions/launch/secrets/token.hpp"
#include "unisono/launch/launch.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <unistd.h>
#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace detail {
class Spoke; // extensions/launch/control/spoke.hpp
class Hub;   // extensions/launch/control/hub.hpp
} // namespace detail

/// The ranks that share a host, as found in the rendezvous.
struct Placement {
    std::vector<int> host_of = {}; ///< host of each rank; hosts are numbered in the order of their first ranks
    int hosts = 1;
    int local_rank = 0; ///< index of this rank among those of its host
    int local_world = 1;
};

/// One rank's end of a job's control plane. `rendezvous` makes it; a world of one needs no other
/// process. Movable; its destruction is a goodbye. In a forked child of the process it does
/// nothing: there it may only be destroyed or left unused.
///
/// Cost: a sleeping thread and one connection; the rank with the hub has one more thread, and a
/// connection for each rank. Errors: see the laws in launch.hpp.
class ControlPlane {
public:
    ControlPlane();
    ControlPlane(std::unique_ptr<detail::Spoke> spoke, std::unique_ptr<detail::Hub> hub,
                 std::chrono::nanoseconds linger);
    ControlPlane(ControlPlane&& other) noexcept;
    ControlPlane& operator=(ControlPlane&&) = delete;
    ~ControlPlane();

    [[nodiscard]] int rank() const;
    [[nodiscard]] int size() const;

    /// Returns every rank's blob, in rank order. At most 1 MiB per rank and 1 GiB in all. Errors:
    /// the job's first fault. If the deadline passes, that is a `timeout` whose message names the
    /// ranks that did not come. bad_input for a larger blob, on this rank alone. `deadline` is on
    /// the clock of `steady_now()`.
    std::vector<Blob> all_gather(std::span<const std::byte> blob, nanoseconds deadline);

    [[nodiscard]] const Fault* first_fault() const noexcept;
    [[nodiscard]] bool has_left(int peer) const noexcept;

    /// Returns when there is a first fault, within 2 s. The cause of a `timeout` is searched among
    /// all ranks.
    void abort(const Fault& fault);

    void waits(const Wait& wait);
    void waits_no_more();

    /// Limits the wait of `leave`, if `rendezvous` got a longer time.
    void linger_at_most(std::chrono::nanoseconds most) { linger_ = std::min(linger_, most); }

    /// If the hub is a thread of this process, waits for the others' goodbyes, at most for `linger`
    /// (an option of `rendezvous`), so that the hub does not end before them. After a fault it
    /// waits at most 2 s, and 1 s for ranks of this host that a signal has stopped. A line on
    /// standard error names the ranks that have not said goodbye by then.
    void leave();

    /// Derives a key for `purpose` that all ranks of the job can derive and strangers cannot, from
    /// the job's secret and from `random`. `random` must be the same on all ranks: random bytes
    /// that the ranks have drawn for it and gathered. In a world of one the key is random.
    [[nodiscard]] JobToken derive_key(std::string_view purpose, std::span<const std::byte> random) const;

    [[nodiscard]] Placement placement() const;

    /// The process id of a rank on this host.
    [[nodiscard]] int pid_of(int peer) const;

private:
    std::unique_ptr<detail::Spoke> spoke_;
    std::unique_ptr<detail::Hub> hub_;
    std::chrono::nanoseconds linger_{0};
    Fault alone_fault_;
    std::atomic<const Fault*> alone_{nullptr};
    int owner_ = ::getpid();
};

UNISONO_CERTIFY(control_plane<ControlPlane>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#include "unisono/extensions/launch/control/spoke.hpp"

#include <array>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION ControlPlane::ControlPlane() = default;
UNISONO_DEFINITION ControlPlane::ControlPlane(std::unique_ptr<detail::Spoke> spoke, std::unique_ptr<detail::Hub> hub,
                                              std::chrono::nanoseconds linger)
    : spoke_(std::move(spoke)), hub_(std::move(hub)), linger_(linger) {}
UNISONO_DEFINITION ControlPlane::ControlPlane(ControlPlane&& other) noexcept
    : spoke_(std::move(other.spoke_)), hub_(std::move(other.hub_)), linger_(other.linger_), alone_(other.alone_.load()),
      owner_(other.owner_) {
    alone_fault_ = std::move(other.alone_fault_);
    if (alone_.load() != nullptr) alone_.store(&alone_fault_);
}
UNISONO_DEFINITION ControlPlane::~ControlPlane() {
    if (owner_ == ::getpid()) {
        leave();
    } else { // the threads exist in the parent only
        static_cast<void>(spoke_.release());
        static_cast<void>(hub_.release());
    }
}

UNISONO_DEFINITION int ControlPlane::rank() const { return spoke_ ? spoke_->rank() : 0; }
UNISONO_DEFINITION int ControlPlane::size() const { return spoke_ ? spoke_->size() : 1; }

UNISONO_DEFINITION std::vector<Blob> ControlPlane::all_gather(std::span<const std::byte> blob, nanoseconds deadline) {
    if (blob.size() > detail::most_blob_bytes)
        refuse_input(
            {"all_gather of ", blob.size(), " bytes; the control plane takes at most ", detail::most_blob_bytes});
    if (spoke_) return spoke_->all_gather(blob, deadline);
    if (const Fault* fault = first_fault()) throw error(*fault);
    return {Blob(blob.begin(), blob.end())};
}

UNISONO_DEFINITION const Fault* ControlPlane::first_fault() const noexcept {
    return spoke_ ? spoke_->first_fault() : alone_.load();
}
UNISONO_DEFINITION bool ControlPlane::has_left(int peer) const noexcept { return spoke_ && spoke_->has_left(peer); }

UNISONO_DEFINITION void ControlPlane::abort(const Fault& fault) {
    if (spoke_) return spoke_->abort(fault);
    if (alone_.load() != nullptr) return;
    alone_fault_ = fault;
    alone_.store(&alone_fault_);
}

UNISONO_DEFINITION void ControlPlane::waits(const Wait& wait) {
    if (spoke_) spoke_->waits(wait);
}
UNISONO_DEFINITION void ControlPlane::waits_no_more() {
    if (spoke_) spoke_->waits_no_more();
}

UNISONO_DEFINITION void ControlPlane::leave() {
    if (spoke_) spoke_->leave();
    if (!hub_) return;
    const bool failed = first_fault() != nullptr;
    const nanoseconds began = steady_now();
    const std::string late =
        hub_->stop(failed ? std::min<nanoseconds>(linger_.count(), 2'000'000'000) : linger_.count());
    hub_.reset();
    if (failed || late.empty()) return;
    detail::tell_people(concat(
        {"unisono: rank 0 leaves; within ", (steady_now() - began) / 1'000'000, " ms no goodbye came from ", late}));
}

UNISONO_DEFINITION JobToken ControlPlane::derive_key(std::string_view purpose,
                                                     std::span<const std::byte> random) const {
    if (!spoke_) return JobToken::random();
    const detail::Digest digest = detail::authenticate(spoke_->secret(), purpose, random);
    std::array<std::uint8_t, JobToken::bytes> key;
    std::copy_n(digest.begin(), key.size(), key.begin());
    return JobToken(key);
}

UNISONO_DEFINITION Placement ControlPlane::placement() const {
    Placement found{.host_of = std::vector<int>(static_cast<std::size_t>(size()))};
    if (!spoke_) return found;
    const auto& peers = spoke_->peers();
    std::vector<std::uint64_t> hosts;
    for (std::size_t peer = 0; peer < peers.size(); ++peer) {
        const auto known = std::find(hosts.begin(), hosts.end(), peers[peer].host);
        found.host_of[peer] = static_cast<int>(known - hosts.begin());
        if (known == hosts.end()) hosts.push_back(peers[peer].host);
    }
    found.hosts = static_cast<int>(hosts.size());
    found.local_world = 0;
    for (int other = 0; other < size(); ++other) {
        if (found.host_of[static_cast<std::size_t>(other)] != found.host_of[static_cast<std::size_t>(rank())]) continue;
        if (other == rank()) found.local_rank = found.local_world;
        ++found.local_world;
    }
    return found;
}

UNISONO_DEFINITION int ControlPlane::pid_of(int peer) const {
    return spoke_ ? spoke_->peers()[static_cast<std::size_t>(peer)].pid : ::getpid();
}

UNISONO_NAMESPACE_END
#endif
