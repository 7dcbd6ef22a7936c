#pragma once

/// \file
/// The connections that outlive the rendezvous. Each process has one connection to the hub, and a
/// thread for it, which sleeps until something happens. The thread answers while the process
/// computes, and falls silent when the process is stopped or killed: that distinguishes a slow rank
/// from a dead one.

#include "unisono/core/threads.hpp"
#include "unisono/extensions/launch/control/entrance.hpp"
#include "unisono/extensions/launch/control/hub.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One rank as the others see it.
struct Peer {
    std::uint64_t host = 0; ///< equal for ranks on one host
    int pid = 0;
};

/// The rank's end of the star.
class Spoke {
public:
    /// Errors: refused if there is no thread for it; then it is the job's fault.
    Spoke(int rank, std::vector<Peer> peers, FileDescriptor socket, Blob unread, const ControlSession& session,
          bool launcher_listens, int launcher = 0)
        : rank_(rank), peers_(std::move(peers)), launcher_listens_(launcher_listens), launcher_(launcher),
          secret_(session.secret), socket_(std::move(socket)), in_(std::move(unread)), seal_in_(session.in),
          seal_out_(session.out), left_(std::make_unique<std::atomic<bool>[]>(peers_.size())) {
        try {
            thread_ = quiet_thread("the connection by which a rank hears of failures", [this] { run(); });
        } catch (const error& failed) { // this thread tells it to the others
            Fault fault = failed.why();
            fault.rank = rank;
            fault.message = concat({"rank ", rank, ": ", fault.message});
            post(complaint_frame(fault, {}));
            static_cast<void>(send_all(socket_.get(), out_, steady_now() + verdict_within));
            throw error(fault);
        }
    }
    Spoke(const Spoke&) = delete;
    Spoke& operator=(const Spoke&) = delete;
    ~Spoke() { leave(); }

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return static_cast<int>(peers_.size()); }
    [[nodiscard]] const std::vector<Peer>& peers() const { return peers_; }
    [[nodiscard]] const JobToken& secret() const { return secret_; }
    [[nodiscard]] const Fault* first_fault() const noexcept { return seen_.load(std::memory_order_acquire); }
    [[nodiscard]] bool has_left(int rank) const noexcept {
        return left_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
    }

    std::vector<Blob> all_gather(std::span<const std::byte> blob, nanoseconds deadline) {
        const nanoseconds started = steady_now();
        std::unique_lock lock(mutex_);
        if (left()) throw error(ErrorCode::refused, "all_gather on a control plane that has been left");
        if (!seen_.load() && hub_gone_) fail_locally(hub_is_gone());
        if (!seen_.load()) {
            WireWriter out;
            out.u32(round_);
            out.bytes(blob);
            post(make_frame(FrameKind::contribution, out.take()));
            const Wait before =
                std::exchange(wait_, Wait{.operation = "all_gather", .sequence = round_ + 1, .peers = others()});
            wait_until(lock, deadline, [&] { return gathered_ || seen_.load() != nullptr || hub_gone_; });
            wait_ = before;
        }
        if (gathered_) { // also if a fault came after it: all ranks have these blobs
            ++round_;
            std::vector<Blob> blobs = *std::exchange(gathered_, std::nullopt);
            const Blob& own = blobs[static_cast<std::size_t>(rank_)];
            if (std::equal(own.begin(), own.end(), blob.begin(), blob.end())) return blobs;
            // Then the hub's statements about others cannot be trusted either.
            fail_locally({.code = ErrorCode::refused,
                          .rank = rank_,
                          .operation = "all_gather",
                          .sequence = round_,
                          .message = concat({"rank ", rank_, " gave ", blob.size(),
                                             " bytes, and the process where the ranks meet returned ", own.size(),
                                             " other bytes as this rank's"})});
            throw error(*first_fault());
        }
        if (!seen_.load() && hub_gone_) fail_locally(hub_is_gone());
        lock.unlock();
        abort({.code = ErrorCode::timeout,
               .rank = rank_,
               .operation = "all_gather",
               .sequence = round_ + std::uint64_t{1},
               .message =
                   concat({"rank ", rank_, " waited ", (steady_now() - started) / 1'000'000, " ms for all_gather"})},
              true);
        throw error(*first_fault());
    }

    /// Returns when there is a first fault. `awaits_hub`: the complaint is about the hub.
    void abort(const Fault& fault, bool awaits_hub = false) {
        std::unique_lock lock(mutex_);
        if (seen_.load() != nullptr) return;
        if (!left() && !hub_gone_) {
            post(complaint_frame(fault, wait_));
            await_hub(lock, [&] { return seen_.load() != nullptr || hub_gone_; });
            if (seen_.load() != nullptr) return;
        }
        Fault own = fault;
        if (!hub_gone_ && !left()) {
            hub_silent_ = true;
            own = seen_on_this_host(std::move(own), awaits_hub);
        }
        fail_locally(own);
    }

    void waits(const Wait& wait) {
        const std::lock_guard lock(mutex_);
        wait_ = wait;
    }
    void waits_no_more() {
        const std::lock_guard lock(mutex_);
        wait_.operation.clear();
    }

    /// Says goodbye and ends the thread.
    void leave() {
        const NotCancelled whole;
        {
            std::unique_lock lock(mutex_);
            if (!thread_.joinable()) return;
            leaving_ = true;
            post(make_frame(FrameKind::goodbye));
            // The hub closes the connection when it has read the goodbye.
            if (!hub_silent_) await_hub(lock, [&] { return hub_gone_; });
            stopping_ = true;
            wakeup_.ring();
        }
        thread_.join();
        socket_.close();
    }

private:
    static constexpr nanoseconds verdict_within = 2'000'000'000; ///< longer than the hub needs to ask all ranks
    /// A hub that is silent for this long may be stopped.
    static constexpr nanoseconds suspicious_after = 250'000'000;

    [[nodiscard]] bool left() const { return leaving_; }
    [[nodiscard]] List<int> others() const {
        List<int> ranks;
        for (int rank = 0; rank < size(); ++rank)
            if (rank != rank_) ranks.push_back(rank);
        return ranks;
    }

    void post(Blob frame) {
        seal_out_.close(frame);
        append(out_, frame);
        wakeup_.ring();
    }

    template <class Condition>
    void wait_until(std::unique_lock<std::mutex>& lock, nanoseconds deadline, Condition done) {
        while (!done()) {
            const nanoseconds left = deadline - steady_now();
            if (left <= 0) return;
            sleep_on(changed_, lock, std::min<nanoseconds>(left, 100'000'000));
        }
    }

    /// Waits for the hub's answer, unless the hub's process is stopped.
    template <class Condition>
    void await_hub(std::unique_lock<std::mutex>& lock, Condition done) {
        const nanoseconds until = steady_now() + verdict_within;
        do {
            wait_until(lock, std::min(until, steady_now() + suspicious_after), done);
        } while (!done() && steady_now() < until && !hub_is_stopped());
    }
    [[nodiscard]] bool hub_is_stopped() const {
        const Peer& first = peers_[0];
        const int keeper = launcher_listens_ ? launcher_ : is_here(first) ? first.pid : 0;
        return keeper > 0 && is_stopped(keeper);
    }
    [[nodiscard]] bool is_here(const Peer& peer) const {
        return peer.host == peers_[static_cast<std::size_t>(rank_)].host;
    }

    /// This rank's own findings, if the hub is silent. Ranks that learn of a fault end soon after,
    /// by a status or by abort(). So the cause is a rank that another signal has killed, or else
    /// one that is stopped. After a timeout without such a rank, it is a rank that has ended
    /// (unless this rank waits for a hub that is stopped), or else the hub. If the hub is stopped,
    /// the message names it as well.
    [[nodiscard]] Fault seen_on_this_host(Fault own, bool awaits_hub) const {
        if (own.code != ErrorCode::timeout && own.code != ErrorCode::peer_lost) return own;
        int killed = -1, stopped = -1, ended = -1;
        for (const int rank : others()) {
            const Peer& peer = peers_[static_cast<std::size_t>(rank)];
            if (!is_here(peer) || has_left(rank)) continue;
            const ProcessFate fate = fate_of(peer.pid);
            int& first = fate == ProcessFate::killed ? killed : fate == ProcessFate::stopped ? stopped : ended;
            if (fate != ProcessFate::runs && fate != ProcessFate::ended_well && first < 0) first = rank;
        }
        const bool late = own.code == ErrorCode::timeout;
        const bool hub_stopped = hub_is_stopped();
        const std::string hub = concat({"; ", launcher_listens_ ? "the launcher" : "rank 0", ", where the ranks meet, ",
                                        hub_stopped ? "is stopped (by a signal or a debugger)" : "does not answer"});
        const int lost = killed >= 0 ? killed : late && stopped < 0 && !(awaits_hub && hub_stopped) ? ended : -1;
        if (lost >= 0) {
            own.code = ErrorCode::peer_lost;
            own.rank = own.peer = lost;
            own.message = concat({"rank ", lost, " (pid ", peers_[static_cast<std::size_t>(lost)].pid,
                                  ") ended without a goodbye: it was killed, crashed or exited early",
                                  hub_stopped ? std::string_view(hub) : ""});
        } else if (stopped >= 0) {
            own.code = ErrorCode::timeout;
            own.peer = stopped;
            own.message += concat({"; ", describe(stopped, {.standing = Standing::stopped})});
        } else if (late) {
            own.peer = launcher_listens_ ? -1 : 0;
            own.message += hub;
        }
        return own;
    }

    void fail_locally(const Fault& fault) {
        if (seen_.load() != nullptr) return;
        fault_ = fault;
        seen_.store(&fault_, std::memory_order_release);
        changed_.notify_all();
    }

    [[nodiscard]] Fault hub_is_gone() const {
        Fault fault{.code = ErrorCode::peer_lost,
                    .rank = launcher_listens_ ? -1 : 0,
                    .peer = launcher_listens_ ? -1 : 0,
                    .message = "the launcher ended before its ranks"};
        if (closed_) {
            fault.message = "rank 0, where the ranks meet, has left";
        } else if (!launcher_listens_) {
            fault.message = concat(
                {"rank 0 (pid ", peers_[0].pid, ") ended without a goodbye: it was killed, crashed or exited early"});
        }
        return fault;
    }

    void run() {
        Blob sending;
        std::size_t sent = 0;
        read_frames();
        for (;;) {
            {
                const std::lock_guard lock(mutex_);
                if (stopping_) return;
                if (sent == sending.size()) {
                    sending.clear();
                    sent = 0;
                    sending.swap(out_);
                }
            }
            const bool gone = !socket_.valid();
            pollfd polled[2] = {
                {wakeup_.fd(), POLLIN, 0},
                {gone ? -1 : socket_.get(), static_cast<short>(sent < sending.size() ? POLLIN | POLLOUT : POLLIN), 0}};
            if (::poll(polled, 2, -1) < 0) continue;
            if (polled[0].revents != 0) wakeup_.clear();
            if (gone) {
                sent = sending.size();
                continue;
            }
            if ((polled[1].revents & POLLOUT) != 0) {
                const ssize_t wrote = ::send(socket_.get(), sending.data() + sent, sending.size() - sent, MSG_NOSIGNAL);
                if (wrote > 0) sent += static_cast<std::size_t>(wrote);
            }
            if ((polled[1].revents & ~POLLOUT) != 0 && !receive()) {
                socket_.close();
                const std::lock_guard lock(mutex_);
                hub_gone_ = true;
                if (!leaving_ && !closed_) fail_locally(hub_is_gone());
                changed_.notify_all();
            }
        }
    }

    /// Returns false at the end of the connection.
    bool receive() {
        for (;;) {
            const ssize_t got = receive_some(socket_.get(), in_);
            if (got <= 0) return got == 0;
            if (!read_frames()) return false;
        }
    }

    bool read_frames() {
        std::size_t at = 0;
        for (;;) {
            Frame frame;
            std::size_t used = 0;
            const Parsed parsed =
                seal_in_.open(std::span(in_).subspan(at), most_frame_bytes + 16 * peers_.size(), frame, used);
            if (parsed == Parsed::incomplete) break;
            if (parsed != Parsed::frame || !handle(frame)) return false;
            at += used;
        }
        drop_front(in_, at);
        return true;
    }

    bool handle(const Frame& frame) {
        WireReader in(frame.payload);
        const std::lock_guard lock(mutex_);
        switch (frame.kind) {
        case FrameKind::gathered: {
            if (in.u32() != round_) return false;
            std::vector<Blob> blobs(peers_.size());
            for (Blob& blob : blobs) {
                const auto bytes = in.bytes(in.u32());
                blob.assign(bytes.begin(), bytes.end());
            }
            if (!in.finished()) return false;
            gathered_ = std::move(blobs);
            break;
        }
        case FrameKind::verdict: {
            Fault fault;
            if (!read(in, size(), fault)) return false;
            fail_locally(fault);
            break;
        }
        case FrameKind::inquiry: {
            WireWriter out;
            out.u32(in.u32());
            write(out, wait_);
            post(make_frame(FrameKind::answer, out.take()));
            return in.finished();
        }
        case FrameKind::left: {
            const std::uint32_t rank = in.u32();
            if (!in.finished() || rank >= peers_.size()) return false;
            left_[rank].store(true, std::memory_order_release);
            break;
        }
        case FrameKind::closing:
            closed_ = true;
            if (!launcher_listens_) left_[0].store(true, std::memory_order_release);
            break;
        default: return false;
        }
        changed_.notify_all();
        return true;
    }

    int rank_;
    std::vector<Peer> peers_;
    bool launcher_listens_;
    int launcher_; ///< process id of the launcher; 0: unknown
    JobToken secret_;
    FileDescriptor socket_; ///< used by the thread only
    Blob in_;               ///< used by the thread only
    Seal seal_in_;          ///< used by the thread only
    Seal seal_out_;
    Wakeup wakeup_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Blob out_;
    std::uint32_t round_ = 0;
    std::optional<std::vector<Blob>> gathered_;
    Wait wait_;
    Fault fault_;
    std::atomic<const Fault*> seen_{nullptr};
    std::unique_ptr<std::atomic<bool>[]> left_;
    bool hub_gone_ = false;   ///< the connection has ended
    bool hub_silent_ = false; ///< the hub did not answer in time
    bool closed_ = false;     ///< the hub has said that it ends
    bool leaving_ = false;
    bool stopping_ = false;
    std::thread thread_;
};

} // namespace detail
UNISONO_NAMESPACE_END
