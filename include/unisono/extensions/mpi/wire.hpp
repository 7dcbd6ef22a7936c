#pragma once

/// \file
/// Frames over MPI's point-to-point messages, on a communicator of their own.
///
/// A frame up to `eager_bytes` is one message. Of a larger frame the header is sent first and names
/// a tag. The payload follows under that tag, directly from and to memory that stays in place.
/// Headers arrive in buffers that are posted in advance, from any rank.

#include "unisono/extensions/launch/control/wire.hpp"
#include "unisono/extensions/mpi/frames.hpp"
#include "unisono/extensions/network/frame_wire.hpp"
#include "unisono/launch/root_cause.hpp"
#include "unisono/transport/overseer.hpp"
#include "unisono/transport/patience.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The first fault of a world without a control plane: a rank that has a fault sends it to all
/// ranks.
class MpiOverseer final : public Overseer {
public:
    [[nodiscard]] const Fault* first_fault() const noexcept override { return known_ ? &fault_ : nullptr; }
    [[nodiscard]] Fault settle(const Fault& mine) override {
        if (!std::exchange(known_, true)) {
            fault_ = mine;
            untold_ = true;
        }
        return fault_;
    }
    void waits(const Wait& wait) override { wait_ = wait; }
    void waits_no_more() override { wait_ = {}; }
    void leave() noexcept override {}
    [[nodiscard]] bool has_left(int) const noexcept override { return false; }
    [[nodiscard]] bool is_unwinding() const noexcept override { return std::uncaught_exceptions() > exceptions_; }

    /// Notes another rank's fault.
    void hear(const Fault& fault) {
        if (!std::exchange(known_, true)) fault_ = fault;
    }
    /// The operation that this rank has waited for for a while; empty: it does not wait.
    [[nodiscard]] const Wait& wait() const { return wait_; }
    /// True once if this rank has a fault that its peers have not been told.
    [[nodiscard]] bool take_untold() { return std::exchange(untold_, false); }

private:
    int exceptions_ = std::uncaught_exceptions();
    bool known_ = false;
    bool untold_ = false;
    Fault fault_;
    Wait wait_;
};

class MpiWire {
public:
    static constexpr std::size_t eager_bytes = MpiFrame::eager_bytes;

    /// The ranks of `communicator` are those of the world. It must have no other user, and is freed
    /// when all ranks have left and nothing is in flight. Payloads are sent in chunks of
    /// `most_bytes`, the same on all ranks.
    MpiWire(MPI_Comm communicator, MpiOverseer& overseer, bool more_ranks_than_cores,
            std::size_t most_bytes = most_mpi_bytes)
        : communicator_(communicator), most_bytes_(most_bytes), overseer_(&overseer), patience_(more_ranks_than_cores) {
        int size = 0;
        MPI_Comm_rank(communicator_, &rank_);
        MPI_Comm_size(communicator_, &size);
        peers_.resize(static_cast<std::size_t>(size));
        if (size == 1) return;
        inbox_ = MpiInbox(communicator_);
        check(inbox_.post_all(), "MPI_Irecv", -1);
    }
    MpiWire(MpiWire&& other) noexcept
        : communicator_(std::exchange(other.communicator_, MPI_COMM_NULL)), most_bytes_(other.most_bytes_),
          rank_(other.rank_), overseer_(other.overseer_), patience_(other.patience_), peers_(std::move(other.peers_)),
          inbox_(std::move(other.inbox_)), outgoing_(std::move(other.outgoing_)), incoming_(std::move(other.incoming_)),
          frames_(std::move(other.frames_)) {}
    MpiWire& operator=(MpiWire&&) = delete;
    ~MpiWire() {
        if (communicator_ == MPI_COMM_NULL || process_ != ::getpid() || mpi_is_finalized()) return;
        std::vector<std::uint64_t> sent;
        std::uint64_t received = 0;
        for (const Peer& peer : peers_) {
            sent.push_back(peer.sent);
            received += peer.received;
        }
        bool whole = overseer_->first_fault() == nullptr && incoming_.empty();
        std::vector<MPI_Request> requests;
        for (const Transfer& one : outgoing_) {
            if (one.frame != nullptr) requests.push_back(one.requests[0]);
            else whole = false;
        }
        auto remains = std::make_unique<MpiRemains>(communicator_, std::move(sent), received, whole);
        remains->hold(std::move(inbox_));
        remains->hold(std::move(frames_), std::move(requests));
        MpiKeeper::keep(std::move(remains));
    }

    bool send(int peer, const Envelope& envelope, const std::byte* data, Token token) {
        Peer& to = peers_[static_cast<std::size_t>(peer)];
        to.used = true;
        if (envelope.bytes <= eager_bytes) {
            post_frame(peer, Kind::whole, envelope, data, envelope.bytes, 0);
            return true;
        }
        const int tag = first_payload_tag + to.next_tag;
        to.next_tag = (to.next_tag + 1) % payload_tags;
        post_frame(peer, Kind::announced, envelope, nullptr, 0, tag);
        Transfer transfer{.peer = peer, .token = token, .arrival = 0, .requests = {}};
        for_each_mpi_piece(envelope.bytes, most_bytes_, [&](std::size_t at, int bytes) {
            MPI_Request request = MPI_REQUEST_NULL;
            const int code = MPI_Isend(data + at, bytes, MPI_BYTE, peer, tag, communicator_, &request);
            if (!check(code, "MPI_Isend", peer)) transfer.failed = true;
            transfer.requests.push_back(request);
        });
        ++to.sending;
        outgoing_.push_back(std::move(transfer));
        return false;
    }

    template <class Handler>
    void poll(Handler& handler) {
        if (peers_.size() == 1) return;
        for_each_frame([&](const Frame& frame) { take(frame, handler); });
        settle(incoming_, [&](const Transfer& done) { handler.complete(done.arrival); });
        settle(outgoing_, [&](const Transfer& done) {
            --peers_[static_cast<std::size_t>(done.peer)].sending;
            if (done.frame != nullptr) frames_.give_back(done.frame);
            else handler.sent(done.token);
        });
    }

    /// MPI has no wait with a deadline: it is polled, more rarely the longer the wait lasts.
    void idle(std::uint32_t attempt, nanoseconds until) { idle_on_host(patience_, attempt, until); }

    /// A timeout of this rank, with the rank that caused it. Asks all ranks what they wait for; a
    /// rank that does not process messages does not answer. Takes until all have answered, at most
    /// `answers_within`. Other messages are dropped meanwhile, since the world is about to end.
    /// Another rank's fault ends it as well, and is then the result.
    Fault looked_into(const Fault& fault) {
        std::vector<Answer> answers(peers_.size());
        Answer& own = answers[static_cast<std::size_t>(rank_)];
        own = {.standing = Standing::waits, .wait = overseer_->wait()};
        if (own.wait.operation.empty()) own.wait.operation = fault.operation, own.wait.sequence = fault.sequence;
        for (int peer = 0; own.wait.peers.empty() && peer < static_cast<int>(peers_.size()); ++peer)
            if (fault.peer == peer || (fault.peer < 0 && peer != rank_)) own.wait.peers.push_back(peer);
        std::vector<std::uint8_t> asked(peers_.size());
        std::size_t missing = 0;
        const auto note = [&](int peer, Answer answer) {
            if (std::exchange(asked[static_cast<std::size_t>(peer)], std::uint8_t{0}) == 0) return;
            answers[static_cast<std::size_t>(peer)] = std::move(answer);
            --missing;
        };
        for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
            if (peer == rank_) continue;
            asked[static_cast<std::size_t>(peer)] = 1;
            ++missing;
            if (said_goodbye(peer)) note(peer, {.standing = Standing::left});
            else post_frame(peer, Kind::inquiry, {}, nullptr, 0, 0);
        }
        const nanoseconds until = steady_now() + answers_within;
        while (missing != 0 && overseer_->first_fault() == nullptr && steady_now() < until) {
            const bool came = for_each_frame([&](const Frame& frame) {
                take_notice(frame);
                if (frame.kind == Kind::goodbye) note(frame.from, {.standing = Standing::left});
                if (frame.kind == Kind::answer) note(frame.from, answer_in(frame));
            });
            if (!came) std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
        return with_culprit(fault, find_root_cause(rank_, {answers.data(), answers.size()}));
    }

    /// Cancels receives. MPI cannot cancel sends: this function waits for them for at most a
    /// second. MPI may read unfinished ones until the memory's owner frees it.
    void forget() {
        if (peers_.size() == 1 || std::exchange(forgotten_, true)) return;
        if (overseer_->take_untold() && overseer_->first_fault() != nullptr) tell(*overseer_->first_fault());
        for (Transfer& one : incoming_)
            for (MPI_Request& request : one.requests) cancel_receive(request);
        incoming_.clear();
        finish_sending(steady_now() + 1'000'000'000);
    }

    void goodbye(nanoseconds until) {
        if (peers_.size() == 1) return;
        for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
            if (!peers_[peer].used) continue;
            Envelope all;
            all.bytes = peers_[peer].sent + 1;
            post_frame(static_cast<int>(peer), Kind::goodbye, all, nullptr, 0, 0);
        }
        finish_sending(until);
    }

    [[nodiscard]] bool lost(int) const { return false; } // MPI ends the job when a rank dies
    /// True if all of the peer's messages have arrived: MPI may complete a goodbye before a message
    /// that was sent earlier.
    [[nodiscard]] bool said_goodbye(int peer) const {
        const Peer& other = peers_[static_cast<std::size_t>(peer)];
        return other.left && other.received >= other.promised &&
               std::none_of(incoming_.begin(), incoming_.end(), [=](const Transfer& one) { return one.peer == peer; });
    }
    [[nodiscard]] bool quiet(int peer) { return said_goodbye(peer); }
    [[nodiscard]] bool sending(int peer) const { return peers_[static_cast<std::size_t>(peer)].sending != 0; }
    [[nodiscard]] std::string describe(int peer) const { return concat({"MPI rank ", peer}); }

private:
    using Frame = MpiFrame;
    using Kind = Frame::Kind;
    static constexpr int first_payload_tag = MpiInbox::frame_tag + 1;
    static constexpr int payload_tags = 32765; ///< MPI guarantees 32,767 tags

    static constexpr nanoseconds answers_within = 2'000'000'000;

    struct Peer {
        bool used = false;
        bool left = false;
        int next_tag = 0;
        int sending = 0;            ///< frames and payloads that are not sent yet
        std::uint64_t sent = 0;     ///< frames to it
        std::uint64_t received = 0; ///< frames from it
        std::uint64_t promised = 0; ///< the number in its goodbye: the frames that this rank will have received
    };
    struct Transfer {
        int peer = 0;
        Token token = 0;
        std::uint32_t arrival = 0;
        std::vector<MPI_Request> requests = {};
        Frame* frame = nullptr; ///< set if this transfer is a frame's
        bool failed = false;    ///< a chunk of it will never move
    };

    /// Makes a failed call a fault of this rank: it moved nothing, and no rank would notice.
    bool check(int code, const char* call, int peer) {
        if (code == MPI_SUCCESS) [[likely]]
            return true;
        const std::string why = concat({"rank ", rank_, ": ", mpi_error_text(code, call)});
        static_cast<void>(overseer_->settle(
            {.code = ErrorCode::refused, .rank = rank_, .peer = peer, .operation = "a message", .message = why}));
        return false;
    }

    void post_frame(int peer, Kind kind, const Envelope& envelope, const std::byte* data, std::size_t bytes, int tag) {
        Frame* const frame = frames_.take();
        ++peers_[static_cast<std::size_t>(peer)].sent;
        frame->envelope = envelope;
        frame->kind = kind;
        frame->from = rank_;
        frame->tag = tag;
        frame->bytes = static_cast<std::uint32_t>(bytes);
        if (bytes != 0) std::memcpy(frame->payload, data, bytes);
        MPI_Request request = MPI_REQUEST_NULL;
        check(MPI_Isend(frame, static_cast<int>(offsetof(Frame, payload) + bytes), MPI_BYTE, peer, MpiInbox::frame_tag,
                        communicator_, &request),
              "MPI_Isend", peer);
        int done = 0;
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done != 0) return frames_.give_back(frame);
        ++peers_[static_cast<std::size_t>(peer)].sending;
        outgoing_.push_back({.peer = peer, .requests = {request}, .frame = frame});
    }

    /// Calls `take` for each arrived frame. True if there was one.
    template <class Take>
    bool for_each_frame(Take take) {
        bool any = false;
        const int code = inbox_.for_each([&](const Frame& frame) {
            any = true;
            ++peers_[static_cast<std::size_t>(frame.from)].received;
            take(frame);
        });
        check(code, "MPI_Testsome", -1);
        return any;
    }

    template <class Handler>
    void take(const Frame& frame, Handler& handler) {
        if (frame.kind == Kind::whole) {
            handler.message(frame.from, frame.envelope, frame.payload);
        } else if (frame.kind == Kind::announced) {
            land(frame, handler);
        } else {
            take_notice(frame);
        }
    }
    template <class Handler>
    void land(const Frame& one, Handler& handler) {
        Transfer transfer{.peer = one.from, .arrival = handler.begin(one.from, one.envelope, one.envelope.bytes)};
        std::byte* memory = handler.memory(transfer.arrival);
        if (memory == nullptr) return; // a fault, meanwhile
        for_each_mpi_piece(one.envelope.bytes, most_bytes_, [&](std::size_t at, int bytes) {
            MPI_Request request = MPI_REQUEST_NULL;
            const int code = MPI_Irecv(memory + at, bytes, MPI_BYTE, one.from, one.tag, communicator_, &request);
            if (!check(code, "MPI_Irecv", one.from)) transfer.failed = true;
            transfer.requests.push_back(request);
        });
        incoming_.push_back(std::move(transfer));
    }

    /// Processes a frame that is not a message. Drops answers that no rank waits for any more.
    void take_notice(const Frame& frame) {
        if (frame.kind == Kind::goodbye) {
            Peer& peer = peers_[static_cast<std::size_t>(frame.from)];
            peer.left = true;
            peer.promised = frame.envelope.bytes;
        } else if (frame.kind == Kind::fault) {
            WireReader in({frame.payload, frame.bytes});
            if (Fault fault; read(in, static_cast<int>(peers_.size()), fault)) overseer_->hear(fault);
        } else if (frame.kind == Kind::inquiry) {
            WireWriter out;
            write(out, overseer_->wait());
            const Blob text = out.take();
            const bool fits =
                text.size() <= eager_bytes; // not with thousands of ranks: then the answer is empty, a sign of life
            post_frame(frame.from, Kind::answer, {}, text.data(), fits ? text.size() : 0, 0);
        }
    }
    [[nodiscard]] Answer answer_in(const Frame& frame) const {
        Answer answer{.standing = Standing::works};
        WireReader in({frame.payload, frame.bytes});
        if (!read(in, static_cast<int>(peers_.size()), answer.wait) || !answer.wait.operation.empty())
            answer.standing = Standing::waits;
        return answer;
    }

    /// Reports transfers that are done, and removes them.
    template <class Report>
    void settle(std::vector<Transfer>& transfers, Report report) {
        for (std::size_t i = 0; i < transfers.size();) {
            int done = 0;
            if (transfers[i].failed) {
                ++i;
                continue;
            }
            const int code = MPI_Testall(static_cast<int>(transfers[i].requests.size()), transfers[i].requests.data(),
                                         &done, MPI_STATUSES_IGNORE);
            if (!check(code, "MPI_Testall", transfers[i].peer) || done == 0) {
                ++i;
                continue;
            }
            const Transfer one = std::move(transfers[i]);
            transfers.erase(transfers.begin() + static_cast<std::ptrdiff_t>(i));
            report(one);
        }
    }

    void finish_sending(nanoseconds until) {
        while (!outgoing_.empty() && steady_now() < until) {
            settle(outgoing_, [&](const Transfer& done) {
                if (done.frame != nullptr) frames_.give_back(done.frame);
            });
            std::this_thread::yield();
        }
    }

    void tell(const Fault& fault) {
        WireWriter out;
        Fault shorter = fault;
        if (shorter.message.size() > eager_bytes / 2) shorter.message.resize(eager_bytes / 2);
        write(out, shorter);
        const Blob text = out.take();
        for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer)
            if (peer != rank_) post_frame(peer, Kind::fault, {}, text.data(), std::min(text.size(), eager_bytes), 0);
    }

    MPI_Comm communicator_;
    std::size_t most_bytes_; ///< of a chunk
    int rank_ = 0;
    pid_t process_ = ::getpid();
    MpiOverseer* overseer_; ///< owned by the world
    Patience patience_;
    std::vector<Peer> peers_;
    MpiInbox inbox_;
    std::vector<Transfer> outgoing_;
    std::vector<Transfer> incoming_;
    MpiFrames frames_;
    bool forgotten_ = false;
};
static_assert(frame_wire<MpiWire>);

} // namespace detail
UNISONO_NAMESPACE_END
