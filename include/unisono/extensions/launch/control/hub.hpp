#pragma once

/// \file
/// The centre of the star: one thread that moves bytes between the ranks' sockets and a HubState.

#include "unisono/core/threads.hpp"
#include "unisono/extensions/launch/control/hub_state.hpp"
#include "unisono/extensions/launch/control/strangers.hpp"
#include "unisono/extensions/launch/rendezvous/waiting_notice.hpp"
#include "unisono/extensions/launch/sockets/quiet_thread.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"
#include "unisono/launch/host.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The notice that a hub prints while ranks are missing: "<waits> <ranks><where>". If `after` is 0,
/// it prints none.
struct HubNotice {
    std::chrono::nanoseconds after{0};
    bool names_those_here = false; ///< a launcher's notice also names the ranks that have come
    std::string waits = {};        ///< "rank 0 of 4 is waiting for"
    std::string where = {};        ///< " at 10.0.0.1:29500", or empty
};

class Hub {
public:
    /// Errors: refused if there is no thread for it. All ranks that come within 2 s hear of it.
    Hub(Listener listener, const HubOptions& options, HubNotice notice = {})
        : listener_(std::move(listener)), state_(options), notice_(std::move(notice)) {
        try {
            thread_ = quiet_thread("the hub, by which ranks meet and hear of failures", [this] { run(); });
        } catch (const error& failed) { // this thread tells it to the ranks that come
            report(failed.why());
            until_.store(steady_now() + 2'000'000'000);
            run();
            throw;
        }
    }
    Hub(const Hub&) = delete;
    Hub& operator=(const Hub&) = delete;
    ~Hub() { stop(0); }

    [[nodiscard]] std::uint16_t port() const { return listener_.port; }

    /// Ends once all ranks have said goodbye or died, after `linger`, or when only stopped ranks
    /// are left. The remaining ranks learn that the hub ends. Returns their numbers and processes,
    /// with the reason; empty if there are none.
    std::string stop(nanoseconds linger) {
        if (!thread_.joinable()) return {};
        const NotCancelled whole;
        until_.store(linger <= 0 ? 0 : deadline_after(steady_now(), std::chrono::nanoseconds(linger)));
        wakeup_.ring();
        thread_.join();
        return without_goodbye_;
    }

    /// Makes this the first fault, unless there is one. From any thread.
    void report(const Fault& fault) {
        const std::lock_guard lock(mutex_);
        reports_.push_back(fault);
        wakeup_.ring();
    }

    /// The first fault that the ranks see, if there is one. From any thread.
    [[nodiscard]] std::optional<Fault> first_fault() {
        const std::lock_guard lock(mutex_);
        return fault_;
    }

    /// True if all ranks have come. From any thread.
    [[nodiscard]] bool complete() const { return complete_.load(); }

private:
    struct Peer {
        FileDescriptor socket = {};
        /// Becomes readable when the process ends, even if a child keeps its socket open.
        FileDescriptor process = {};
        Blob out = {};
        std::size_t written = 0;
        bool closing = false;
    };

    void run() {
        std::vector<pollfd> polled;
        struct Source {
            std::uint32_t connection;
            bool process; ///< the source is the process, else the socket
        };
        std::vector<Source> sources;
        nanoseconds deaf_until = 0;
        int deaf_turns = 0;
        for (;;) {
            const nanoseconds until = until_.load();
            const nanoseconds now = steady_now();
            if (until != never && (now >= until || state_.finished() || only_stopped_are_left(now))) break;
            polled.assign({{wakeup_.fd(), POLLIN, 0}, {now < deaf_until ? -1 : listener_.socket.get(), POLLIN, 0}});
            sources.clear();
            for (const auto& [id, peer] : peers_) {
                polled.push_back(
                    {peer.socket.get(), static_cast<short>(peer.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
                sources.push_back({id, false});
                if (!peer.process.valid())
                    // Poll also counts empty entries, and takes at most the number of descriptors
                    // of a process.
                    continue;
                polled.push_back({peer.process.get(), POLLIN, 0});
                sources.push_back({id, true});
            }
            nanoseconds next = std::min(until, state_.next_tick());
            next = std::min(next, notice_times_.next());
            if (now < deaf_until) next = std::min(next, deaf_until);
            if (!state_.unanswered().empty() || until != never)
                next = std::min(next, now + 100'000'000); // look for stopped processes
            static_cast<void>(::poll(polled.data(), polled.size(), poll_timeout(next)));

            wakeup_.clear();
            take_reports();
            for (std::size_t i = 0; i < sources.size(); ++i) {
                const short events = polled[i + 2].revents;
                const auto [connection, process] = sources[i];
                if (!process && (events & POLLOUT) != 0) flush(connection);
                if (events != 0) receive(connection, process);
            }
            if (polled[1].revents != 0) {
                const Accepted accepted = accept_all();
                deaf_turns = accepted == Accepted::no_descriptor ? deaf_turns + 1 : 0;
                if (accepted != Accepted::all)
                    deaf_until = steady_now() + (accepted == Accepted::crowded ? 20'000'000 : 100'000'000);
                if (deaf_turns == 20 && !state_.complete()) state_.report(no_descriptor_left());
            }
            for (const int rank : std::vector<int>(state_.unanswered()))
                if (stopped(rank)) state_.found_stopped(rank);
            state_.tick(steady_now());
            act();
            tell_who_is_missing();
        }
        for (const int rank : state_.ranks_that_are(HubState::Presence::present))
            without_goodbye_ +=
                concat({without_goodbye_.empty() ? "rank " : ", rank ", rank, " (pid ", state_.member(rank).hello.pid,
                        stopped(rank) ? "), which is stopped (by a signal or a debugger)" : ")"});
        say_closing();
    }

    [[nodiscard]] bool stopped(int rank) const {
        const Hello& hello = state_.member(rank).hello;
        return hello.host == own_host_ && is_stopped(static_cast<int>(hello.pid));
    }

    /// A rank that a signal has stopped says no goodbye. Unless the job has failed, the hub first
    /// waits for one second: the rank may be stopped only for a moment.
    bool only_stopped_are_left(nanoseconds now) {
        if (!state_.ranks_that_are(HubState::Presence::absent).empty())
            return false; // these ranks may still come, and learn why the job failed
        for (const int rank : state_.ranks_that_are(HubState::Presence::present)) {
            if (stopped(rank)) continue;
            stopped_since_ = never;
            return false;
        }
        stopped_since_ = std::min(stopped_since_, now);
        return state_.first_fault() || now - stopped_since_ >= 1'000'000'000;
    }

    /// Prints notices, from the arrival of the first rank to that of the last.
    void tell_who_is_missing() {
        if (notice_.after.count() <= 0) return;
        if (state_.complete() || state_.first_fault()) {
            notice_.after = {};
            notice_times_ = {};
            return;
        }
        const nanoseconds now = steady_now();
        std::vector<int> here = state_.ranks_that_are(HubState::Presence::present);
        if (notice_times_.next() == never && !here.empty()) notice_times_ = NoticeTimes(now, notice_.after);
        if (!notice_times_.due(now)) return;
        tell_people(concat({notice_.names_those_here ? concat({"unisono-run: ", list_of(here),
                                                               here.size() == 1 ? " has" : " have", " come; "})
                                                     : "unisono: ",
                            notice_.waits, " ", list_of(state_.ranks_that_are(HubState::Presence::absent)),
                            notice_.where, " (", notice_times_.so_far(now), ")"}));
    }

    /// Does not accept connections for a while where this is not `all`.
    Accepted accept_all() {
        return accept_strangers(
            listener_.socket.get(), strangers_,
            [&](std::uint32_t number) {
                state_.closed(number);
                act();
            },
            [&](std::uint32_t number, FileDescriptor socket) {
                set_up_connection(socket.get());
                peers_[number].socket = std::move(socket);
                state_.opened(number, steady_now());
                act();
            });
    }

    static Fault no_descriptor_left() {
        return {.code = ErrorCode::refused,
                .operation = "rendezvous",
                .message = "the process where the ranks meet had no descriptor left for 2 s for ranks that came: "
                           "is its limit of open files too low (see `ulimit -n`)?"};
    }

    void receive(std::uint32_t id, bool ended) {
        const auto found = peers_.find(id);
        if (found == peers_.end()) return;
        std::byte buffer[65536];
        // A process that has ended may have said goodbye before, so everything that it sent is read
        // first. Strangers are read once per turn, so that one that sends without end does not
        // delay the others.
        for (int reads = 0; reads < 64 || ended; ++reads) {
            const ssize_t got = ::recv(found->second.socket.get(), buffer, sizeof buffer, 0);
            if (got > 0) {
                const bool known = state_.rank_of(id) >= 0;
                state_.received(id, std::span(buffer, static_cast<std::size_t>(got)), steady_now());
                if (state_.rank_of(id) < 0) break;
                if (!known) {
                    strangers_.remove(id);
                    watch(id, found->second);
                }
                continue;
            }
            if (got < 0 && errno == EINTR) continue;
            const bool waits = got < 0 && errno == EAGAIN;
            if (!waits || ended) state_.closed(id);
            break;
        }
        act();
    }

    void watch(std::uint32_t id, Peer& peer) {
        const Hello& hello = state_.member(state_.rank_of(id)).hello;
        if (hello.host == own_host_) peer.process = open_process(static_cast<int>(hello.pid));
    }

    void act() {
        if (!known_ && state_.first_fault()) {
            known_ = true;
            const std::lock_guard lock(mutex_);
            fault_ = state_.first_fault();
        }
        complete_.store(state_.complete()); // set before a rank learns it
        for (HubAction& action : state_.take_actions()) {
            const auto found = peers_.find(action.connection);
            if (found == peers_.end()) continue;
            Peer& peer = found->second;
            append(peer.out, action.bytes);
            peer.closing = peer.closing || action.close;
            flush(action.connection);
        }
    }

    void flush(std::uint32_t id) {
        const auto found = peers_.find(id);
        if (found == peers_.end()) return;
        Peer& peer = found->second;
        while (peer.written < peer.out.size()) {
            const ssize_t sent =
                ::send(peer.socket.get(), peer.out.data() + peer.written, peer.out.size() - peer.written, MSG_NOSIGNAL);
            if (sent < 0 && errno == EINTR) continue;
            if (sent < 0 && errno == EAGAIN && !peer.closing) return;
            if (sent <= 0) break; // the end of the connection is noticed when it is read
            peer.written += static_cast<std::size_t>(sent);
        }
        peer.out.clear();
        peer.written = 0;
        if (!peer.closing) return;
        // Closing with unread bytes would reset the connection, and the last message might be lost.
        ::shutdown(peer.socket.get(), SHUT_WR);
        std::byte rest[4096];
        for (int reads = 0; reads < 16 && ::recv(peer.socket.get(), rest, sizeof rest, 0) > 0; ++reads) {
        }
        strangers_.remove(id);
        peers_.erase(found);
    }

    void take_reports() {
        std::vector<Fault> reports;
        {
            const std::lock_guard lock(mutex_);
            reports.swap(reports_);
        }
        for (const Fault& fault : reports) state_.report(fault);
        act();
    }

    void say_closing() {
        state_.say_closing();
        act();
        for (auto& [id, peer] : peers_)
            if (state_.rank_of(id) >= 0) ::shutdown(peer.socket.get(), SHUT_WR);
        peers_.clear();
    }

    Listener listener_;
    HubState state_;
    Strangers strangers_;
    HubNotice notice_;
    NoticeTimes notice_times_;
    Wakeup wakeup_;
    std::map<std::uint32_t, Peer> peers_;
    std::uint64_t own_host_ = host_number();
    std::atomic<nanoseconds> until_{never};
    std::atomic<bool> complete_{false};
    nanoseconds stopped_since_ = never; ///< since when all remaining ranks are stopped
    std::string without_goodbye_ = {};  ///< read only after the thread has ended
    std::mutex mutex_;
    std::vector<Fault> reports_;
    std::optional<Fault> fault_;
    bool known_ = false;
    std::thread thread_;
};

} // namespace detail
UNISONO_NAMESPACE_END
