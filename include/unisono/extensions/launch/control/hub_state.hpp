#pragma once

/// \file
/// The centre of the star as a state machine without sockets, clocks or threads. Its input is bytes
/// and events; its output is bytes to send and connections to close. So tests can check its
/// protocol exactly, and fuzz it.
///
/// Strangers: a connection has no effect until it has proven that it has the job's secret
/// (secrets/proof.hpp). If it sends anything else, or its proof does not come in time, the
/// connection is closed and nothing changes.

#include "unisono/core/time.hpp"
#include "unisono/extensions/launch/control/inquiry.hpp"
#include "unisono/extensions/launch/secrets/proof.hpp"
#include "unisono/extensions/launch/secrets/token.hpp"
#include "unisono/launch/launch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct HubOptions {
    int world = 1;
    JobToken token = {};
    nanoseconds hello_within = 5'000'000'000;  ///< time after which a connection that has not proven itself is closed
    nanoseconds answer_within = 1'000'000'000; ///< time after which a rank that was asked counts as silent
};

/// An instruction: bytes to send on a connection, and whether to close it then.
struct HubAction {
    std::uint32_t connection = 0;
    Blob bytes = {};
    bool close = false;
};

class HubState {
public:
    enum class Presence : std::uint8_t { absent, present, left, lost };
    struct Member {
        Presence presence = Presence::absent;
        std::uint32_t connection = 0;
        Hello hello = {};
        std::optional<Blob> blob = {}; ///< the rank's contribution to the round in progress
    };

    explicit HubState(HubOptions options) : options_(options), members_(static_cast<std::size_t>(options_.world)) {}

    /// The caller limits the connections that are not ranks yet (Strangers).
    void opened(std::uint32_t connection, nanoseconds now) { connections_[connection].opened = now; }

    void received(std::uint32_t connection, std::span<const std::byte> bytes, nanoseconds now) {
        const auto found = connections_.find(connection);
        if (found == connections_.end()) return;
        Blob& input = found->second.input;
        append(input, bytes);
        if (found->second.rank < 0 && !greet(connection, input)) return;
        std::size_t at = 0;
        const int rank = found->second.rank;
        for (;;) {
            Frame frame;
            std::size_t used = 0;
            const Parsed parsed =
                found->second.session.in.open(std::span(input).subspan(at), most_payload(), frame, used);
            if (parsed == Parsed::incomplete) break;
            if (parsed == Parsed::forged) return forgery(connection, rank);
            if (parsed == Parsed::garbage || !handle(rank, frame, now)) return violation(connection, rank);
            if (connections_.find(connection) == connections_.end()) return; // closed: it said goodbye
            at += used;
        }
        drop_front(input, at);
    }

    /// Called when a connection, or the process at its other end, has ended.
    void closed(std::uint32_t connection) {
        const auto found = connections_.find(connection);
        if (found == connections_.end()) return;
        const int rank = found->second.rank;
        connections_.erase(found);
        actions_.push_back({connection, {}, true});
        if (rank >= 0) lose(rank);
    }

    /// Called when time has passed: closes strangers that sent nothing, and ends an inquiry.
    void tick(nanoseconds now) {
        for (auto each = connections_.begin(); each != connections_.end();) {
            const auto next = std::next(each);
            if (each->second.rank < 0 && now - each->second.opened >= options_.hello_within) drop(each->first);
            each = next;
        }
        if (inquiry_.running() && now - inquiry_.began() >= options_.answer_within) conclude();
    }

    /// The time at which `tick` must be called; `never` if there is none.
    [[nodiscard]] nanoseconds next_tick() const {
        nanoseconds next = inquiry_.running() ? inquiry_.began() + options_.answer_within : never;
        for (const auto& [id, connection] : connections_)
            if (connection.rank < 0) next = std::min(next, connection.opened + options_.hello_within);
        return next;
    }

    /// The ranks that an inquiry waits for. The caller may find that their process is stopped, and
    /// report it.
    [[nodiscard]] const std::vector<int>& unanswered() const { return inquiry_.unanswered(); }
    void found_stopped(int rank) { note(rank, {Standing::stopped, {}}); }

    /// Tells all present ranks that the hub ends without a fault.
    void say_closing() { broadcast(make_frame(FrameKind::closing)); }

    /// Reports a fault that the hub's owner knows of: a launcher sees processes end.
    void report(const Fault& fault) { declare(fault); }

    [[nodiscard]] std::vector<HubAction> take_actions() { return std::exchange(actions_, {}); }
    [[nodiscard]] const std::optional<Fault>& first_fault() const { return fault_; }
    [[nodiscard]] bool complete() const { return complete_; }
    [[nodiscard]] const Member& member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] int rank_of(std::uint32_t connection) const {
        const auto found = connections_.find(connection);
        return found == connections_.end() ? -1 : found->second.rank;
    }
    /// The ranks with this presence: that have come (present), or have not come yet (absent).
    [[nodiscard]] std::vector<int> ranks_that_are(Presence presence) const {
        std::vector<int> ranks;
        for (int rank = 0; rank < options_.world; ++rank)
            if (member(rank).presence == presence) ranks.push_back(rank);
        return ranks;
    }
    /// True if all ranks have come and left.
    [[nodiscard]] bool finished() const {
        return std::all_of(members_.begin(), members_.end(), [](const Member& each) {
            return each.presence == Presence::left || each.presence == Presence::lost;
        });
    }

private:
    struct Connection {
        int rank = -1;
        nanoseconds opened = 0;
        Blob input = {};
        Doorkeeper door{Door::rendezvous};
        ControlSession session = {}; ///< set once the connection has proven itself
    };

    [[nodiscard]] Member& place(int rank) { return members_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] std::size_t most_payload() const {
        return most_blob_bytes + 4 * members_.size() + 3 * most_text_bytes + 64;
    }

    void drop(std::uint32_t connection) {
        connections_.erase(connection);
        actions_.push_back({connection, {}, true});
    }
    void send(int rank, Blob frame, const Digest& digest) {
        if (member(rank).presence != Presence::present) return;
        const std::uint32_t connection = member(rank).connection;
        connections_.at(connection).session.out.close(frame, digest);
        actions_.push_back({connection, std::move(frame), false});
    }
    void send(int rank, const Blob& frame) { send(rank, frame, digest_of(frame)); }
    void broadcast(const Blob& frame) {
        const Digest digest = digest_of(frame);
        for (int rank = 0; rank < options_.world; ++rank) send(rank, frame, digest);
    }
    void refuse(std::uint32_t connection, const Fault& fault) {
        Blob frame = fault_frame(FrameKind::refused, fault);
        connections_.at(connection).session.out.close(frame);
        connections_.erase(connection);
        actions_.push_back({connection, std::move(frame), true});
    }

    /// Returns true if the connection belongs to a member. Otherwise it waits for more bytes, or is
    /// closed.
    bool greet(std::uint32_t connection, Blob& input) {
        Connection& stranger = connections_[connection];
        Blob answer;
        const Greeted known = stranger.door.look(options_.token, input, answer);
        if (!answer.empty()) actions_.push_back({connection, std::move(answer), false});
        if (known == Greeted::stranger) drop(connection);
        if (known != Greeted::proven) return false;
        stranger.session = stranger.door.session(options_.token);
        return admit(connection, Hello(stranger.door.hello()));
    }

    bool admit(std::uint32_t connection, const Hello& hello) {
        const auto turn_away = [&](const Fault& fault) {
            if (hello.rank < members_.size() && member(static_cast<int>(hello.rank)).presence == Presence::absent) {
                place(static_cast<int>(hello.rank)).presence = Presence::lost; // no rank waits for this one any more
            }
            return refuse(connection, fault), false;
        };
        const auto contradict = [&](const std::string& message) {
            const Fault fault{.code = ErrorCode::bad_input, .operation = "rendezvous", .message = message};
            if (!complete_) declare(fault); // either process may be wrong: this world cannot begin
            return turn_away(fault);
        };
        const std::string who = concat({"rank ", hello.rank});
        if (fault_) return turn_away(*fault_);
        if (hello.world != static_cast<std::uint32_t>(options_.world))
            return contradict(concat({who, " expects a world of ", hello.world,
                                      ", but the rendezvous point is for a world of ", options_.world}));
        if (hello.rank >= hello.world) return contradict(concat({who, " is not one of a world of ", hello.world}));
        Member& own = place(static_cast<int>(hello.rank));
        if (own.presence == Presence::present) {
            // After completion all ranks know that they have been accepted.
            if (own.hello.claimant != hello.claimant || complete_)
                return contradict(concat({"two processes claim to be ", who, ": pid ", own.hello.pid, " and pid ",
                                          hello.pid, own.hello.host == hello.host ? " of one host" : " of another host",
                                          " (is a variable such as RANK that of a node?)"}));
            drop(own.connection); // the process came again before it learned that it was accepted
        } else if (own.presence != Presence::absent) {
            return contradict(has_left_already(hello.rank));
        }
        own = {.presence = Presence::present, .connection = connection, .hello = hello};
        connections_[connection].rank = static_cast<int>(hello.rank);
        send(static_cast<int>(hello.rank), make_frame(FrameKind::accepted));
        begin_if_complete();
        return true;
    }

    void begin_if_complete() {
        if (complete_ || std::any_of(members_.begin(), members_.end(),
                                     [](const Member& each) { return each.presence == Presence::absent; })) {
            return;
        }
        complete_ = true;
        WireWriter out;
        for (const Member& each : members_) out.put(each.hello.host, each.hello.pid);
        broadcast(make_frame(FrameKind::complete, out.take()));
    }

    /// Returns false for a frame that no member sends.
    bool handle(int rank, const Frame& frame, nanoseconds now) {
        WireReader in(frame.payload);
        switch (frame.kind) {
        case FrameKind::contribution: return contribute(rank, in);
        case FrameKind::complaint: {
            Fault fault;
            Wait wait;
            if (!read(in, options_.world, fault) || !read(in, options_.world, wait) || !in.finished()) return false;
            complain(rank, std::move(fault), std::move(wait), now);
            return true;
        }
        case FrameKind::answer: {
            const std::uint32_t number = in.u32();
            Wait wait;
            if (!read(in, options_.world, wait) || !in.finished()) return false;
            const Standing standing = wait.operation.empty() ? Standing::works : Standing::waits;
            if (number == inquiry_.number()) note(rank, {standing, std::move(wait)}); // else the answer is late
            return true;
        }
        case FrameKind::goodbye:
            if (!frame.payload.empty()) return false;
            say_goodbye(rank);
            return true;
        default: return false;
        }
    }

    bool contribute(int rank, WireReader& in) {
        const std::uint32_t round = in.u32();
        if (!in.good() || in.left() > most_blob_bytes) return false;
        if (fault_) return true; // the rank has not learned of the fault yet
        Member& own = place(rank);
        if (!complete_ || own.blob || round != round_) return false;
        const auto blob = in.bytes(in.left());
        own.blob.emplace(blob.begin(), blob.end());
        finish_round();
        return true;
    }

    void finish_round() {
        std::size_t bytes = 8;
        int waiting = -1;
        int missing = -1;
        int gone = -1;
        for (int rank = 0; rank < options_.world; ++rank) {
            const Member& each = member(rank);
            if (each.blob) bytes += 4 + each.blob->size();
            (each.blob ? waiting : each.presence == Presence::left ? gone : missing) = rank;
        }
        if (waiting >= 0 && gone >= 0)
            return declare({.code = ErrorCode::peer_lost,
                            .rank = waiting,
                            .peer = gone,
                            .operation = "all_gather",
                            .sequence = round_ + 1,
                            .message = concat({"rank ", gone, " has left; rank ", waiting, " waits for it"})});
        if (waiting < 0 || missing >= 0) return;
        if (bytes > most_frame_bytes)
            return declare({.code = ErrorCode::refused,
                            .operation = "all_gather",
                            .sequence = round_ + 1,
                            .message = concat({"the ranks' blobs have ", bytes, " bytes together, at most ",
                                               most_frame_bytes, " are allowed"})});
        WireWriter out;
        out.u32(round_++);
        for (Member& each : members_) {
            out.u32(static_cast<std::uint32_t>(each.blob->size()));
            out.bytes(*each.blob);
            each.blob.reset();
        }
        broadcast(make_frame(FrameKind::gathered, out.take()));
    }

    void say_goodbye(int rank) {
        Member& own = place(rank);
        drop(own.connection);
        if (!complete_) { // the rank gave up, or tries another address: it counts as not having come
            own = {};
            return;
        }
        own.presence = Presence::left;
        broadcast(number_frame(FrameKind::left, static_cast<std::uint32_t>(rank)));
        if (!fault_) finish_round();
        note(rank, {Standing::left, {}});
    }

    void lose(int rank) {
        if (member(rank).presence != Presence::present) return;
        place(rank).presence = Presence::lost;
        blame(rank, ErrorCode::peer_lost,
              concat({" (pid ", member(rank).hello.pid,
                      ") ended without a goodbye: it was killed, crashed or exited early"}));
    }

    void violation(std::uint32_t connection, int rank) {
        drop(connection);
        place(rank).presence = Presence::lost;
        blame(rank, ErrorCode::mismatch,
              " does not speak this version's protocol (do all ranks run the same program?)");
    }

    void forgery(std::uint32_t connection, int rank) {
        drop(connection);
        place(rank).presence = Presence::lost;
        blame(rank, ErrorCode::mismatch, ": one of its control frames was changed, repeated or lost on the way");
    }

    void blame(int rank, ErrorCode code, const std::string& what) {
        declare({.code = code, .rank = rank, .peer = rank, .message = concat({"rank ", rank, what})});
    }

    /// Handles a rank's report of a fault. A timeout is investigated, since the rank that noticed
    /// it is seldom its cause.
    void complain(int rank, Fault fault, Wait wait, nanoseconds now) {
        if (fault_ || inquiry_.running()) return; // the first fault is already being handled
        if (fault.rank < 0) fault.rank = rank;
        if (fault.code != ErrorCode::timeout) return declare(fault);
        if (!complete_) return declare(never_came(std::move(fault)));
        if (wait.operation.empty()) { // any rank may be the cause, except those that contributed to the same round
            wait = {.operation = fault.operation, .context = 0, .sequence = fault.sequence, .peers = {}};
            if (fault.peer >= 0 && fault.peer != rank) wait.peers.push_back(fault.peer);
            for (int peer = 0; peer < options_.world; ++peer) {
                const bool in_all_gather = member(rank).blob && member(peer).blob;
                if (peer != rank && peer != fault.peer && !in_all_gather) wait.peers.push_back(peer);
            }
        }
        std::vector<bool> here(members_.size());
        for (std::size_t each = 0; each < here.size(); ++each)
            here[each] = members_[each].presence == Presence::present;
        inquiry_.begin(rank, std::move(fault), std::move(wait), here, now);
        const Blob question = number_frame(FrameKind::inquiry, inquiry_.number());
        for (const int each : unanswered()) send(each, question);
        if (unanswered().empty()) conclude();
    }

    void note(int rank, Answer answer) {
        if (inquiry_.note(rank, std::move(answer)) && unanswered().empty()) conclude();
    }
    void conclude() { declare(inquiry_.conclude()); }

    Fault never_came(Fault fault) const {
        const std::vector<int> missing = ranks_that_are(Presence::absent);
        fault.peer = missing.empty() ? -1 : missing.front();
        fault.message +=
            concat({": of ", options_.world, " ranks ", missing.size(), " never came: ", list_of(missing)});
        return fault;
    }

    void declare(const Fault& fault) {
        if (fault_) return;
        fault_ = fault;
        inquiry_.stop();
        broadcast(fault_frame(FrameKind::verdict, fault));
    }

    HubOptions options_;
    std::vector<Member> members_;
    std::map<std::uint32_t, Connection> connections_;
    std::vector<HubAction> actions_;
    std::optional<Fault> fault_;
    bool complete_ = false;
    std::uint32_t round_ = 0;
    Inquiry inquiry_;
};

} // namespace detail
UNISONO_NAMESPACE_END
