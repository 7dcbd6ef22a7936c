#pragma once

/// \file
/// How worlds follow one another: a formation makes the first one, and after each loss, and when
/// ranks are added, the next.

#include "unisono/elastic/admission.hpp"
#include "unisono/elastic/membership.hpp"
#include "unisono/elastic/mesh.hpp"
#include "unisono/join.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Options of an elastic world.
struct ElasticOptions {
    int least = 1;                 ///< ranks with which it goes on; with fewer, all end with an error
    int most = detail::most_ranks; ///< more are not taken in
    bool joins = false;            ///< this process is added to a world that is there; so says UNISONO_JOINS=1, too
    std::string folder =
        {}; ///< in which processes that come find the world; empty: where its ranks meet by a folder, that one
    /// After a loss: until a rank that is silent, and not known to be dead, is taken to be lost. It
    /// must be longer than a rank may compute without a call of the library.
    std::chrono::nanoseconds patience = std::chrono::seconds(30);
    std::chrono::nanoseconds give_up = std::chrono::minutes(10); ///< wait for a majority that does not answer
    JoinOptions join = {};                                       ///< of each world

    friend bool operator==(const ElasticOptions&, const ElasticOptions&) = default;
};

namespace detail {

inline void check_elastic(const ElasticOptions& options) {
    if (options.least < 1) refuse_input({"ElasticOptions::least is ", options.least, "; expected at least 1"});
    if (options.most < options.least || options.most > most_ranks)
        refuse_input({"ElasticOptions::most is ", options.most, "; expected ", options.least,
                      ", as ElasticOptions::least says, to ", most_ranks});
    if (options.patience.count() <= 0) refuse_input("ElasticOptions::patience must be positive");
    if (options.give_up < options.patience)
        refuse_input("ElasticOptions::give_up must not be less than ElasticOptions::patience");
    check_join(options.join);
}

/// One world of several. `members`: the numbers of its ranks.
template <class Transport>
struct FormedWorld {
    Group<Transport> group;
    std::uint64_t epoch = 0;
    std::vector<int> members = {};
    int source = 0;           ///< a rank of this world whose committed updates are the most
    nanoseconds agreed = 0;   ///< when its members had been agreed on
    bool is_new_here = false; ///< this process was added, and has no state of the training
};

/// The source of an elastic world's worlds. One thread uses it.
template <class Transport>
class Formation {
public:
    Formation() = default;
    Formation(const Formation&) = delete;
    Formation& operator=(const Formation&) = delete;
    virtual ~Formation() = default;

    [[nodiscard]] virtual FormedWorld<Transport> first() = 0;
    /// After the last world has failed and was destroyed; this rank has committed `updates`, or has
    /// `no_state_yet`. Errors: see ElasticWorld.
    [[nodiscard]] virtual FormedWorld<Transport> next(std::uint64_t updates) = 0;
    /// Whether processes wait that can be added. Cheap; nothing is waited for.
    [[nodiscard]] virtual bool look_for_applicants() { return false; }
    /// More than that many members have nothing to do: processes that come are not added beyond it.
    virtual void take_in_at_most(int) {}
};

inline std::string members_text(const std::vector<int>& members) { return list_of(members); }

/// The reason why a member is not in the next world.
inline error not_in_next_world(Membership<>::Phase phase, int me, const std::vector<int>& silent,
                               const Successor& decision, std::uint64_t epoch) {
    using Phase = Membership<>::Phase;
    Fault fault{.code = ErrorCode::timeout, .rank = me, .peer = -1, .operation = "elastic", .sequence = epoch + 1};
    if (phase == Phase::left_behind) {
        fault.code = ErrorCode::aborted;
        fault.message = concat({"rank ", me, " was silent for too long, and has been left behind: ",
                                decision.members.empty() ? "the others" : members_text(decision.members),
                                " (members' numbers) went on without it as membership ", epoch + 1,
                                ". A new process can be added in its place"});
    } else if (phase == Phase::no_state) {
        fault.code = ErrorCode::peer_lost;
        fault.message = concat({"rank ", me, " was added to membership ", epoch,
                                ", and all ranks that had the training's state were lost before it got it; start "
                                "again from a checkpoint"});
    } else {
        fault.message =
            concat({"rank ", me, " found neither a majority of membership ", epoch,
                    " nor a proof that all others are gone; ", silent.empty() ? "no rank" : members_text(silent),
                    " (members' numbers) did not answer. It ends, so that there are no two worlds"});
    }
    return error(fault);
}

/// Over sockets, for transports that join by a control plane. `Join(control, options)` makes a
/// world of processes that have met.
template <class Transport, class Join>
class NetworkFormation final : public Formation<Transport> {
public:
    NetworkFormation(ElasticOptions options, Join join) : options_(std::move(options)), join_(std::move(join)) {}
    ~NetworkFormation() override {
        if (!membership_) return;
        membership_->leave();
        send();
    }

    [[nodiscard]] FormedWorld<Transport> first() override {
        const Environment environment = Environment::of_process();
        const std::string* const joins = environment.find("UNISONO_JOINS");
        const std::string* const folder = environment.find("UNISONO_ELASTIC_FOLDER");
        if (!options_.folder.empty()) {
            point_ = admission_point({.folder = options_.folder});
        } else if (folder != nullptr) {
            point_ = admission_point({.folder = *folder});
        } else {
            const Identity me = identify(environment);
            if (me.world > 1 || environment.find("UNISONO_FOLDER") != nullptr) {
                const MeetingPoint meeting = meeting_point(environment, me);
                if (!meeting.folder.empty()) point_ = admission_point(meeting);
            }
        }
        if (options_.joins || (joins != nullptr && *joins == "1")) return added();
        return first(unisono::rendezvous(options_.join.rendezvous));
    }
    [[nodiscard]] FormedWorld<Transport> first(ControlPlane control) {
        if (!options_.folder.empty()) point_ = admission_point({.folder = options_.folder});
        const nanoseconds deadline = deadline_after(steady_now(), options_.join.rendezvous.timeout);
        std::vector<int> all;
        for (int member = 0; member < control.size(); ++member) all.push_back(member);
        check_least(all.size());
        mesh_ = std::make_unique<Mesh>(control, deadline);
        membership_ = std::make_unique<Membership<>>(control.rank(), all, times());
        // A member that fails from here on has all its connections: if others go on, they have
        // theirs, too.
        try {
            ControlPlane plane = std::move(control);
            Mesh::await_all(plane, deadline);
            FormedWorld<Transport> made{join_(std::move(plane), options_.join), 0, std::move(all), 0, steady_now()};
            open_desk();
            return made;
        } catch (const error& failed) {
            if (!is_loss(failed)) throw;
        }
        return next(0);
    }

    [[nodiscard]] FormedWorld<Transport> next(std::uint64_t updates) override {
        membership_->take_in_at_most(most_members());
        if (desk_ && desk_->look()) membership_->expect(desk_->applicants());
        membership_->begin(updates, steady_now());
        return form(updates);
    }
    [[nodiscard]] bool look_for_applicants() override {
        const nanoseconds now = steady_now();
        if (!desk_ || now < look_at_) return false;
        look_at_ = now + 10'000'000;
        return desk_->look() && membership_->members().size() < most_members();
    }
    void take_in_at_most(int ranks) override { busy_ = ranks; }

private:
    using Phase = Membership<>::Phase;
    static constexpr int most_attempts = 100;

    [[nodiscard]] std::size_t most_members() const { return static_cast<std::size_t>(std::min(options_.most, busy_)); }
    /// The membership that is being chosen, and its world.
    FormedWorld<Transport> form(std::uint64_t updates) {
        // Where a rank dies that has voted for the next world, the others wait for it so long;
        // where all are just slow they try again.
        nanoseconds allowed = 300'000'000 + 5'000'000 * static_cast<nanoseconds>(mesh_->members());
        for (int attempt = 0;; ++attempt) {
            settle();
            const nanoseconds agreed = steady_now();
            check_least(membership_->members().size());
            try {
                Group<Transport> group = meet(allowed);
                membership_->work();
                const Successor& decision = membership_->decision();
                const auto source = std::find(decision.members.begin(), decision.members.end(), decision.source);
                mesh_->stop_listening();
                open_desk();
                if (desk_) desk_->forget(decision.added);
                return {std::move(group), membership_->epoch(),
                        decision.members, static_cast<int>(source - decision.members.begin()),
                        agreed,           updates == no_state_yet};
            } catch (const error& failed) {
                if (!is_loss(failed) || attempt == most_attempts) throw;
            }
            allowed = std::min<nanoseconds>(2 * allowed, std::max<nanoseconds>(allowed, options_.patience.count()));
            membership_->begin(updates, steady_now());
        }
    }

    /// The first rank listens for those that come.
    void open_desk() {
        if (desk_ || point_.folder.empty() || membership_->members().front() != mesh_->me()) return;
        desk_.emplace(point_, mesh_->secret(), mesh_->host(), mesh_->is_on_loopback());
    }

    /// Waits until members of the world that is there have added this process.
    FormedWorld<Transport> added() {
        if (point_.folder.empty())
            refuse_input("this process is to be added to an elastic world, and knows no folder where it finds it; set "
                         "ElasticOptions::folder, UNISONO_ELASTIC_FOLDER or UNISONO_FOLDER");
        const nanoseconds deadline = deadline_after(steady_now(), options_.join.rendezvous.timeout);
        Application application{.program = program_digest()};
        application.applicant.identity = draw_claimant();
        std::string why = "nobody has left an address there";
        while (!membership_ && steady_now() < deadline) {
            if (::access(end_of_training_path(point_).c_str(), F_OK) == 0)
                throw error(ErrorCode::refused, concat({"the training that this process was to be added to has ended (",
                                                        end_of_training_path(point_), ")"}));
            MeetingPoint desk = point_;
            std::optional<Entrance> entrance;
            if (read_meeting_file(desk)) entrance = go_to(desk, application, deadline, why);
            if (!entrance) {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                continue;
            }
            why = "the first rank has heard this process, and the ranks have not taken it in: as many train as "
                  "ElasticOptions::most or Replicas::count says, or they make no update";
            while (!membership_ && steady_now() < deadline && hears_nothing_against(*entrance))
                wait(std::min(deadline, steady_now() + 20'000'000));
        }
        if (!membership_)
            throw error(
                Fault{.code = ErrorCode::timeout,
                      .rank = 0,
                      .peer = -1,
                      .operation = "join",
                      .sequence = 0,
                      .message = concat({"this process waited ", options_.join.rendezvous.timeout.count() / 1'000'000,
                                         " ms to be added to an elastic world (", meeting_path(point_), "): ", why})});
        return form(no_state_yet);
    }
    std::optional<Entrance> go_to(const MeetingPoint& desk, Application& application, nanoseconds deadline,
                                  std::string& why) {
        const std::vector<SocketAddress> addresses = resolve(desk.host, desk.port, why);
        const bool other_hosts = addresses.empty() || !is_loopback(addresses.front());
        if (!mesh_ || !(mesh_->secret() == desk.token)) mesh_ = std::make_unique<Mesh>(desk.token, other_hosts);
        application.applicant.host = mesh_->host();
        application.applicant.port = mesh_->port();
        const nanoseconds until = std::min(deadline, steady_now() + 10'000'000'000);
        const Hello hello{.claimant = application.applicant.identity,
                          .host = host_number(),
                          .pid = static_cast<std::uint32_t>(::getpid())};
        for (const SocketAddress& address : addresses) {
            std::optional<Entrance> entrance = enter(address, hello, desk.token, until, why);
            if (entrance && send_frame(*entrance, make_frame(FrameKind::contribution, encode(application)), until))
                return entrance;
        }
        return std::nullopt;
    }
    /// False where the connection has ended. Errors: why this process is refused.
    static bool hears_nothing_against(Entrance& entrance) {
        Frame frame;
        std::size_t used = 0;
        std::byte buffer[4096];
        const ssize_t got = ::recv(entrance.socket.get(), buffer, sizeof buffer, 0);
        if (got > 0) entrance.unread.insert(entrance.unread.end(), buffer, buffer + got);
        if (entrance.session.in.open(entrance.unread, 3 * most_text_bytes, frame, used) == Parsed::frame) {
            Fault fault;
            WireReader in(frame.payload);
            if (frame.kind == FrameKind::refused && read(in, most_ranks, fault)) throw error(fault);
        }
        return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
    }
    /// The first that one hears who has been added: who its members are.
    void become_member(int from, const MembershipMessage& message) {
        if (message.word != MembershipWord::ready ||
            !std::binary_search(message.successor.members.begin(), message.successor.members.end(), mesh_->me()))
            return;
        membership_ = std::make_unique<Membership<>>(mesh_->me(), message, times(), steady_now());
        for (const int member : message.successor.members)
            if (mesh_->knows(member)) membership_->introduce(member);
        membership_->receive(from, message, steady_now());
    }
    /// Members connect to those that were added; of these, each to those with lower numbers.
    void reach_added() {
        const Successor decision = membership_->decision();
        const auto is_added = decision.members.begin() + static_cast<std::ptrdiff_t>(decision.kept());
        const bool me_too = std::find(is_added, decision.members.end(), mesh_->me()) != decision.members.end();
        for (std::size_t i = 0; i < decision.added.size(); ++i) {
            const int number = decision.members[decision.kept() + i];
            if (mesh_->knows(number) || number == mesh_->me() || (me_too && number > mesh_->me())) continue;
            if (!mesh_->reach(number, decision.added[i])) membership_->lost(number, steady_now());
            else if (me_too) membership_->introduce(number);
        }
    }
    [[nodiscard]] Membership<>::Times times() const {
        return {.patience = options_.patience.count(), .give_up = options_.give_up.count()};
    }

    static bool is_loss(const error& failed) {
        return failed.code() == ErrorCode::peer_lost || failed.code() == ErrorCode::timeout ||
               failed.code() == ErrorCode::aborted;
    }
    void check_least(std::size_t ranks) const {
        if (ranks >= static_cast<std::size_t>(options_.least)) return;
        throw error(ErrorCode::refused,
                    concat({"an elastic world of ", ranks, ranks == 1 ? " rank" : " ranks", "; expected at least ",
                            options_.least, ", as ElasticOptions::least says"}));
    }

    void send() {
        if (!membership_) return;
        reach_added();
        for (const auto& [to, message] : membership_->take_messages()) mesh_->send(to, encode(message));
    }
    /// Reads what comes, and passes it on.
    void wait(nanoseconds until) {
        mesh_->wait(
            until,
            [&](int from, const Blob& bytes) {
                MembershipMessage message;
                NextMeeting meeting;
                if (decode(bytes, message)) {
                    if (!membership_) become_member(from, message);
                    else membership_->receive(from, message, steady_now());
                } else if (decode(bytes, meeting)) meeting_ = std::move(meeting);
            },
            [&](int peer) {
                lost_.push_back(peer);
                if (membership_) membership_->lost(peer, steady_now());
            },
            [&](int peer) {
                if (membership_) membership_->introduce(peer);
            });
        if (membership_) membership_->tick(steady_now());
        send();
    }

    void settle() {
        send();
        const auto busy = [&] {
            return membership_->phase() == Phase::voting || membership_->phase() == Phase::gathering;
        };
        while (busy()) wait(membership_->next_tick());
        if (membership_->phase() != Phase::formed)
            throw not_in_next_world(membership_->phase(), mesh_->me(), membership_->silent(), membership_->decision(),
                                    membership_->epoch());
    }

    /// The members of the next world meet as its ranks.
    Group<Transport> meet(nanoseconds allowed) {
        const std::vector<int>& members = membership_->members();
        const auto world = static_cast<int>(members.size());
        if (world == 1) return join_(ControlPlane(), options_.join);
        const int rank = static_cast<int>(std::find(members.begin(), members.end(), mesh_->me()) - members.begin());
        JoinOptions options = options_.join;
        options.rendezvous.timeout = std::chrono::nanoseconds(allowed);
        options.rendezvous.notice_after = {};
        MeetingPoint point;
        point.token = mesh_->secret_of(membership_->epoch());
        point.further_ports = 7; // somebody else may take the first
        if (rank == 0) {
            point.host = mesh_->host();
            point.port = listen_at(mesh_->is_on_loopback(), 0).port;
            if (point.port > 65535 - 7) point.port -= 7;
            const NextMeeting meeting{membership_->epoch(), point.host, point.port};
            for (const int member : members) mesh_->send(member, encode(meeting));
        } else {
            const NextMeeting meeting = await_meeting(deadline_after(steady_now(), options.rendezvous.timeout));
            point.host = meeting.host;
            point.port = meeting.port;
        }
        return join_(unisono::rendezvous(unisono::identity_of(rank, world), point, options.rendezvous), options);
    }
    NextMeeting await_meeting(nanoseconds deadline) {
        const std::vector<int>& members = membership_->members();
        while (!meeting_ || meeting_->epoch != membership_->epoch()) {
            lost_.clear();
            if (steady_now() >= deadline) throw error(ErrorCode::timeout, "the next world's first rank says nothing");
            wait(deadline);
            for (const int peer : lost_)
                if (std::binary_search(members.begin(), members.end(), peer))
                    throw error(ErrorCode::peer_lost, "a rank of the next world has died");
        }
        return *std::exchange(meeting_, std::nullopt);
    }

    ElasticOptions options_;
    Join join_;
    std::unique_ptr<Mesh> mesh_;
    std::unique_ptr<Membership<>> membership_;
    MeetingPoint point_; ///< where processes that come find this world; no folder: nowhere
    std::optional<AdmissionDesk> desk_;
    nanoseconds look_at_ = 0;
    int busy_ = 0; ///< ranks that have something to do in the training, as it says
    std::optional<NextMeeting> meeting_;
    std::vector<int> lost_;
};

} // namespace detail
UNISONO_NAMESPACE_END
