#pragma once

/// \file
/// The two sides of a rendezvous: rank 0 listens, and the other ranks search for it.

#include "unisono/extensions/launch/control/control_plane.hpp"
#include "unisono/extensions/launch/control/entrance.hpp"
#include "unisono/extensions/launch/control/spoke.hpp"
#include "unisono/extensions/launch/rendezvous/identity.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_environment.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_file.hpp"
#include "unisono/extensions/launch/rendezvous/waiting_notice.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A text for messages: the address, or the file that contains it.
inline std::string place_of(const RendezvousPoint& point) {
    return point.folder.empty() ? concat({point.host, ":", point.port}) : rendezvous_path(point);
}

/// Tries the possible addresses of the hub repeatedly until the deadline.
class Search {
public:
    Search(const Identity& me, RendezvousPoint point, std::uint64_t claimant)
        : point_(std::move(point)), hello_{.world = static_cast<std::uint32_t>(me.world),
                                           .rank = static_cast<std::uint32_t>(me.rank),
                                           .claimant = claimant,
                                           .host = host_number(),
                                           .pid = static_cast<std::uint32_t>(::getpid())} {}

    std::optional<Entrance> until(nanoseconds deadline, SearchNotice* notice = nullptr) {
        nanoseconds pause = 5'000'000;
        for (;;) {
            if (auto entrance = once(deadline)) return entrance;
            if (notice != nullptr) notice->note(why_);
            const nanoseconds left = deadline - steady_now();
            if (left <= 0) return std::nullopt;
            std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(pause, left)));
            pause = std::min<nanoseconds>(pause * 2, 200'000'000);
        }
    }

    /// Tries each address once. With several ports, an address that does not answer must not use up
    /// all the time.
    std::optional<Entrance> once(nanoseconds deadline) {
        if (!point_.folder.empty()) {
            if (!read_rendezvous_file(point_)) {
                why_ = concat({"no file ", rendezvous_path(point_),
                               point_.own_folder ? " (ranks that do not all see it need a secret: UNISONO_TOKEN)" : "",
                               point_.by_parent
                                   ? concat({"; its name is that of ranks started by ", name_of_parent_process(),
                                             ": if a script starts each rank, let it exec the program, or "
                                             "set UNISONO_JOB to the same word for all ranks"})
                                   : std::string()});
                return std::nullopt;
            }
        }
        NoEntry refused;
        const bool several = point_.further_ports > 0;
        for (int port = point_.port; port <= point_.port + point_.further_ports && port <= 65535; ++port) {
            const auto number = static_cast<std::uint16_t>(port);
            const std::vector<SocketAddress> addresses = resolve(point_.host, number, why_);
            for (const SocketAddress& address : addresses) {
                const nanoseconds each = several || addresses.size() > 1 || !point_.folder.empty()
                                             ? std::min(deadline, steady_now() + 3'000'000'000)
                                             : deadline;
                NoEntry one;
                if (auto entrance = enter_or_wait(address, each, one)) return entrance;
                if (several) one.say_where(concat({point_.host, ":", port}));
                refused.note(one.why(), one.has_met_keeper());
            }
        }
        // The deadline may have cut this attempt short.
        if (steady_now() < deadline || !last_.has_met_keeper()) last_ = refused;
        if (!last_.why().empty()) why_ = last_.why();
        return std::nullopt;
    }

    [[nodiscard]] std::string where() const { return place_of(point_); }
    [[nodiscard]] const std::string& why() const { return why_; }
    /// True if `why` is of a process that listens as rank 0 of another job does.
    [[nodiscard]] bool has_met_keeper() const { return last_.has_met_keeper(); }

private:
    /// As `enter`. Where rank 0 still listens for a world that this rank has left, it will soon
    /// listen for the next one; a launcher will not.
    std::optional<Entrance> enter_or_wait(const SocketAddress& address, nanoseconds until, NoEntry& refused) {
        try {
            return enter(address, hello_, point_.token, until, refused);
        } catch (const error& failed) {
            if (point_.launcher_listens || failed.why().message != has_left_already(hello_.rank)) throw;
            refused.note(failed.why().message, true);
            return std::nullopt;
        }
    }

    RendezvousPoint point_;
    Hello hello_;
    NoEntry last_; ///< of the last attempt
    std::string why_;
};

/// Rank 0's part before it joins like the others: it listens, and writes its address to the file.
struct Reception {
    std::unique_ptr<Hub> hub = {};
    RendezvousFile file = {};
    RendezvousPoint reached = {}; ///< the address at which this process itself reaches the hub
};

/// Another process listens as rank 0 of this job. When its own greeting arrives, both processes
/// learn of the conflict.
[[noreturn]] inline void refuse_second_rank_0(Entrance& entrance) {
    const nanoseconds deadline = steady_now() + 2'000'000'000;
    std::size_t used = 0;
    if (const auto frame = next_frame(entrance, 3 * most_text_bytes, deadline, used)) {
        Fault fault;
        WireReader in(frame->payload);
        if (frame->kind == FrameKind::verdict && read(in, most_ranks, fault)) throw error(fault);
    }
    refuse_input("two processes claim to be rank 0");
}

/// True if rank 0 listens on 127.0.0.1 only: the name must say so, and must resolve to that address
/// everywhere. A host's own name does not qualify, although Debian's /etc/hosts maps it to
/// 127.0.1.1.
inline bool listens_on_loopback(const std::string& host, const std::vector<SocketAddress>& addresses) {
    return is_loopback_name(host) && std::all_of(addresses.begin(), addresses.end(), is_localhost) &&
           std::any_of(addresses.begin(), addresses.end(),
                       [](const SocketAddress& each) { return each.storage.ss_family == AF_INET; });
}

inline Reception receive_ranks(const Identity& me, const RendezvousPoint& point, std::uint64_t claimant,
                               std::chrono::nanoseconds notice) {
    Reception made{.hub = nullptr, .file = {}, .reached = point};
    RendezvousPoint& reached = made.reached;
    Search others(me, point, claimant);
    bool loopback = false;
    if (point.folder.empty()) {
        std::string why;
        const auto addresses = resolve(point.host, point.port, why);
        loopback = listens_on_loopback(point.host, addresses);
    } else {
        // An existing file is from an earlier job, unless a process answers at its address: then
        // two processes are rank 0.
        if (auto entrance = others.once(steady_now() + 2'000'000'000)) refuse_second_rank_0(*entrance);
        loopback = point.listen_host.empty();
        reached.host = loopback ? "127.0.0.1" : point.listen_host == "*" ? host_name() : point.listen_host;
        reached.token = JobToken::random();
    }
    Listener listener;
    try {
        listener = point.folder.empty() ? listen_at(loopback, point.port, point.further_ports)
                                        : listen_in(point.ports, loopback);
    } catch (const error&) {
        // If another process of this job listens there, its answer is more informative than the
        // error that the port is taken.
        if (auto entrance = others.once(steady_now() + 2'000'000'000)) refuse_second_rank_0(*entrance);
        throw;
    }
    reached.port = listener.port;
    RendezvousPoint said = point; // the port may be one of several
    said.port = reached.port;
    if (!point.folder.empty()) made.file = RendezvousFile(reached);
    made.hub = std::make_unique<Hub>(std::move(listener), HubOptions{.world = me.world, .token = reached.token},
                                     HubNotice{.after = notice,
                                               .waits = concat({"rank 0 of ", me.world, " is waiting for"}),
                                               .where = concat({" at ", place_of(said)})});
    reached.folder.clear();
    reached.further_ports = 0;
    return made;
}

/// Waits until all ranks have come. Returns the others' hosts and pids. Errors: the fault with
/// which the rendezvous ends.
inline std::vector<Peer> await_all(Entrance& entrance, const Identity& me, const RendezvousOptions& options,
                                   nanoseconds deadline, const RendezvousPoint& point) {
    const auto world = static_cast<std::size_t>(me.world);
    const std::size_t most = 12 * world + 3 * most_text_bytes;
    constexpr nanoseconds suspicious_after = 250'000'000; // a launcher that is silent for this long may be stopped
    constexpr nanoseconds verdict_within = 750'000'000;   // the hub knows at once which ranks are missing
    const auto stopped = [&] { return point.launcher > 0 && is_stopped(point.launcher); };
    bool complained = false;
    nanoseconds verdict_until = 0;
    for (;;) {
        std::size_t used = 0;
        const std::optional<Frame> frame = next_frame(entrance, most, deadline, used);
        if (frame) {
            WireReader in(frame->payload);
            Fault fault;
            if (frame->kind == FrameKind::complete && frame->payload.size() == 12 * world) {
                std::vector<Peer> peers(world);
                for (Peer& peer : peers) in.take(peer.host, peer.pid);
                drop_front(entrance.unread, used);
                return peers;
            }
            if (frame->kind == FrameKind::verdict && read(in, me.world, fault)) throw error(fault);
            drop_front(entrance.unread, used);
            continue;
        }
        Fault late{.code = ErrorCode::timeout,
                   .rank = me.rank,
                   .operation = "rendezvous",
                   .message = concat({"rank ", me.rank, " waited ", options.timeout.count() / 1'000'000, " ms"})};
        if (steady_now() < deadline) { // the connection ended
            late.code = ErrorCode::peer_lost;
            late.peer = 0;
            late.message = "rank 0, or the launcher, where the ranks meet, ended before all had come";
            throw error(late);
        }
        if (complained && steady_now() < verdict_until && !stopped()) {
            deadline = std::min(verdict_until, steady_now() + suspicious_after);
            continue;
        }
        if (complained) {
            late.peer = point.launcher_listens ? -1 : 0;
            late.message +=
                concat({"; ", point.launcher_listens ? "the launcher" : "rank 0", ", where the ranks meet, ",
                        stopped() ? "is stopped (by a signal or a debugger)" : "does not answer"});
            throw error(late);
        }
        complained = true;
        verdict_until = steady_now() + verdict_within;
        deadline = steady_now() + suspicious_after;
        // The hub knows the missing ranks, and tells all.
        static_cast<void>(send_frame(entrance, complaint_frame(late, {}), deadline));
    }
}

/// Errors: bad_input for an invalid identity or options.
inline void check_rendezvous(const Identity& me, const RendezvousOptions& options) {
    if (me.world < 1 || me.world > most_ranks || me.rank < 0 || me.rank >= me.world) {
        static_cast<void>(unisono::identity_of(me.rank, me.world)); // throws, and names the invalid number
    }
    if (options.timeout.count() <= 0) refuse_input("RendezvousOptions::timeout must be positive");
    if (options.linger.count() < 0) refuse_input("RendezvousOptions::linger must not be negative");
    if (options.notice_after.count() < 0) refuse_input("RendezvousOptions::notice_after must not be negative");
}

/// Joins by `enter(why)` and waits for the others. `hub` is this process's own, or null; `point`
/// says whether a launcher has it.
template <class Enter>
ControlPlane join_plane(const Identity& me, const RendezvousOptions& options, nanoseconds deadline,
                        std::unique_ptr<Hub> hub, const RendezvousPoint& point, Enter enter) {
    try {
        std::string why;
        std::optional<Entrance> entrance = enter(why);
        if (!entrance)
            throw error(
                Fault{.code = ErrorCode::timeout,
                      .rank = me.rank,
                      .peer = point.launcher_listens ? -1 : 0,
                      .operation = "rendezvous",
                      .message =
                          concat({"rank ", me.rank, " waited ", options.timeout.count() / 1'000'000, " ms for ",
                                  point.launcher_listens ? "the launcher" : "rank 0, which never came", " at ", why})});
        std::vector<Peer> peers = await_all(*entrance, me, options, deadline, point);
        return {std::make_unique<Spoke>(me.rank, std::move(peers), std::move(entrance->socket),
                                        std::move(entrance->unread), entrance->session, point.launcher_listens,
                                        point.launcher),
                std::move(hub), options.linger};
    } catch (const error&) {
        // The others learn the reason, even those that come a little later: their deadline is about
        // the same as this rank's.
        const auto least = std::min<nanoseconds>(options.timeout.count(), 500'000'000);
        if (hub) hub->stop(std::clamp<nanoseconds>(deadline - steady_now(), least, 2'000'000'000));
        throw;
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
