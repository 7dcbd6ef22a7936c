#pragma once

/// \file
/// Connects the members of an elastic world over sockets, and makes groups of the ranks of each
/// world, with a transport that joins by a control plane.

#include "unisono/extensions/elastic/admission.hpp"
#include "unisono/extensions/elastic/forming.hpp"
#include "unisono/extensions/elastic/mesh.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A medium for MembershipFormation. `Join(control, options)` makes a world of processes after
/// their rendezvous. One thread uses it.
template <class Transport, class Join>
class NetworkMedium {
public:
    /// For a process that its environment describes.
    NetworkMedium(ElasticOptions options, Join join)
        : options_(std::move(options)), join_(std::move(join)), joins_(options_.joins) {
        const Environment environment = Environment::of_process();
        find_folder(environment);
        const std::string joins = word_of(environment);
        if (joins == "auto" && point_.folder.empty())
            refuse_input("UNISONO_JOINS is auto, and no folder is given in which this process could find an elastic "
                         "world; set UNISONO_ELASTIC_FOLDER or UNISONO_FOLDER");
        notes_end_ = joins == "auto";
        joins_ = joins_ || joins == "1" || (joins == "auto" && there_is_a_world());
    }
    /// For processes after their rendezvous.
    NetworkMedium(ControlPlane control, ElasticOptions options, Join join)
        : options_(std::move(options)), join_(std::move(join)), control_(std::move(control)) {
        if (!options_.folder.empty()) point_ = admission_point({.folder = options_.folder});
        notes_end_ = !point_.folder.empty() && word_of(Environment::of_process()) == "auto";
    }

    [[nodiscard]] static nanoseconds now() { return steady_now(); }
    [[nodiscard]] int me() const { return mesh_->me(); }
    [[nodiscard]] std::uint64_t job() const { return mesh_->job(); }
    [[nodiscard]] bool is_to_be_added() const { return joins_; }

    std::vector<int> connect() {
        if (!control_) control_.emplace(unisono::rendezvous(options_.join.rendezvous));
        std::vector<int> all;
        all.reserve(static_cast<std::size_t>(control_->size()));
        for (int member = 0; member < control_->size(); ++member) all.push_back(member);
        begin_by_ = deadline_after(now(), options_.join.rendezvous.timeout);
        compare_terms();
        mesh_ = std::make_unique<Mesh>(*control_, begin_by_);
        mesh_->set_rules(options_.trust_resets, options_.patience.count());
        return all;
    }
    /// After this a member that fails has all its connections, and so have the others if they
    /// continue.
    Group<Transport> first_group() {
        ControlPlane plane = *std::exchange(control_, std::nullopt);
        Mesh::await_all(plane, begin_by_);
        return join_(std::move(plane), options_.join);
    }

    void send(int to, const MembershipMessage& message) { mesh_->send(to, encode(message)); }
    [[nodiscard]] bool knows(int member) const { return mesh_->knows(member); }
    Conclusion reach(int member, const Applicant& added) { return mesh_->reach(member, added); }
    [[nodiscard]] std::uint64_t host_of(int member) const { return mesh_->host_of(member); }
    [[nodiscard]] bool is_connected(int member) const { return mesh_->is_connected(member); }
    void all_are_here() { mesh_->stop_listening(); }

    template <class Heard, class Lost, class Refused, class Came>
    void wait(nanoseconds until, Heard heard, Lost lost, Refused refused, Came came) {
        if (!mesh_)
            return std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<nanoseconds>(0, until - now())));
        mesh_->wait(
            until,
            [&](int from, const Blob& bytes) {
                MembershipMessage message;
                NextRendezvous rendezvous;
                if (decode(bytes, message)) heard(from, message);
                else if (decode(bytes, rendezvous)) rendezvous_ = std::move(rendezvous);
            },
            [&](int peer, bool all_heard) {
                lost_.push_back(peer);
                lost(peer, all_heard);
            },
            refused, came);
    }

    /// The rendezvous of the next world's members, as its ranks.
    template <class Wait>
    Group<Transport> meet(const std::vector<int>& members, std::uint64_t epoch, nanoseconds allowed, Wait wait_once) {
        const auto world = static_cast<int>(members.size());
        if (world == 1) return join_(ControlPlane(), options_.join);
        const int rank = static_cast<int>(std::find(members.begin(), members.end(), me()) - members.begin());
        // Deadline of all following steps.
        const nanoseconds until = deadline_after(now(), std::chrono::nanoseconds(allowed));
        JoinOptions options = options_.join;
        options.rendezvous.notice_after = {};
        RendezvousPoint point;
        point.token = mesh_->secret_of(epoch);
        if (rank == 0) {
            point.host = mesh_->host();
            point.port = mesh_->listen().port;
            if (mesh_->ports() == PortRange{} && point.port > 65535 - 7) point.port -= 7;
            const NextRendezvous rendezvous{epoch, point.host, point.port};
            for (const int member : members) mesh_->send(member, encode(rendezvous));
        } else {
            const NextRendezvous rendezvous = await_rendezvous(members, rank, epoch, until, wait_once);
            point.host = rendezvous.host;
            point.port = rendezvous.port;
        }
        point.further_ports = further_ports_of(mesh_->ports(), point.port, 7); // another process may take the port
        options.rendezvous.timeout = left_until(until);
        ControlPlane plane = unisono::rendezvous(unisono::identity_of(rank, world), point, options.rendezvous);
        options.rendezvous.timeout = left_until(until);
        return join_(std::move(plane), options);
    }

    /// Starts to listen for applicants on the first rank. Errors: refused, in the first world.
    /// Later worlds continue without, and try again after a while.
    void listen(bool first, bool in_first_world) {
        if (desk_ || point_.folder.empty() || !first) return;
        try {
            desk_.emplace(point_, mesh_->secret(), mesh_->host(), mesh_->listen(), terms());
        } catch (const error& failed) {
            if (in_first_world) throw;
            listen_at_ = now() + 1'000'000'000;
            tell_that_none_is_added(has_warned_, failed);
        }
    }
    bool look() {
        if (!desk_ && now() >= listen_at_) listen(true, false);
        return desk_ && desk_->look();
    }
    [[nodiscard]] std::vector<Applicant> applicants() const { return desk_->applicants(); }
    void forget(const std::vector<Applicant>& added) {
        if (desk_) desk_->forget(added);
    }
    void refuse(const std::vector<Applicant>& added, const std::string& why) {
        if (desk_) desk_->refuse(added, why);
    }
    /// Notes that the training has ended, for processes that look whether there is a world. Each
    /// member that finishes does so, since others may die before they do.
    void end_training() const {
        if (notes_end_) note_end_of_training(point_);
    }
    void hear_refusal() {
        if (entrance_) static_cast<void>(hears_nothing_against(*entrance_));
    }

    /// Finds the first rank by the file that it has written, and asks it.
    void apply(nanoseconds deadline) {
        if (point_.folder.empty())
            refuse_input(
                "this process is to be added to an elastic world, and no folder is given where it could find one; set "
                "ElasticOptions::folder, UNISONO_ELASTIC_FOLDER or UNISONO_FOLDER");
        if (entrance_ && hears_nothing_against(*entrance_)) return;
        entrance_.reset();
        check_not_ended(point_);
        RendezvousPoint desk = point_;
        if (read_rendezvous_file(desk)) entrance_ = go_to(desk, deadline);
        if (entrance_)
            why_ =
                "the first rank has received the application of this process, and the ranks have not added it: there "
                "are already ElasticOptions::most or Replicas::count ranks, or the ranks make no updates";
    }
    [[nodiscard]] error not_added() const {
        return error(
            Fault{.code = ErrorCode::timeout,
                  .rank = 0,
                  .operation = "join",
                  .message = concat({"this process waited ", options_.join.rendezvous.timeout.count() / 1'000'000,
                                     " ms to be added to an elastic world (", rendezvous_path(point_), "): ", why_})});
    }

private:
    [[nodiscard]] ElasticTerms terms() const {
        return {options_.least,
                options_.most,
                options_.patience.count(),
                options_.give_up.count(),
                std::string(Transport::name),
                options_.trust_resets};
    }
    /// Compares the options of all ranks. Errors, the same on all ranks: mismatch.
    void compare_terms() {
        WireWriter out;
        write(out, terms());
        const Blob mine = out.take();
        std::optional<ElasticTerms> first;
        int rank = 0;
        for (const Blob& blob : control_->all_gather(mine, begin_by_)) {
            ElasticTerms of_rank;
            WireReader in(blob);
            read(in, of_rank);
            if (!first) first = of_rank;
            const std::string text = of_rank.difference(*first, concat({"on rank ", rank}), "on rank 0");
            if (!text.empty())
                throw error(Fault{.code = ErrorCode::mismatch, .rank = rank, .operation = "join", .message = text});
            ++rank;
        }
    }
    /// The value of UNISONO_JOINS; "0" if it is not set. Errors: bad_input.
    static std::string word_of(const Environment& environment) {
        const std::string* const joins = environment.find("UNISONO_JOINS");
        if (joins == nullptr || joins->empty()) return "0";
        if (*joins != "0" && *joins != "1" && *joins != "auto")
            refuse_input({"UNISONO_JOINS is ", detail::quoted(*joins), "; expected 0, 1 or auto"});
        return *joins;
    }
    void find_folder(const Environment& environment) {
        const std::string* const folder = environment.find("UNISONO_ELASTIC_FOLDER");
        if (!options_.folder.empty()) {
            point_ = admission_point({.folder = options_.folder});
        } else if (folder != nullptr) {
            point_ = admission_point({.folder = *folder});
        } else {
            const Identity me = identify(environment);
            if (me.world <= 1 && environment.find("UNISONO_FOLDER") == nullptr) return;
            const RendezvousPoint rendezvous = rendezvous_point(environment, me);
            if (!rendezvous.folder.empty()) point_ = admission_point(rendezvous);
        }
    }
    /// Looks for a world: its first rank has written a file, and proves at the address in the file
    /// that it has the secret. If the file's writer was lost, the members elect another first rank,
    /// which writes a new file. This function waits for as long as that may take. Errors:
    /// training_has_ended.
    [[nodiscard]] bool there_is_a_world() const {
        const Hello hello = hello_at_desk(draw_claimant());
        for (const nanoseconds until = now() + 2 * options_.patience.count() + 1'000'000'000;;) {
            check_not_ended(point_);
            RendezvousPoint desk = point_;
            if (!read_rendezvous_file(desk)) return false;
            std::string why;
            NoEntry refused;
            for (const SocketAddress& address : resolve(desk.host, desk.port, why))
                if (enter(address, hello, desk.token, until, refused)) return true;
            if (now() >= until) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
    }
    std::optional<Entrance> go_to(const RendezvousPoint& desk, nanoseconds deadline) {
        const std::vector<SocketAddress> addresses = resolve(desk.host, desk.port, why_);
        const bool other_hosts = addresses.empty() || !is_loopback(addresses.front());
        if (!mesh_ || !(mesh_->secret() == desk.token)) {
            mesh_ = std::make_unique<Mesh>(desk.token, other_hosts);
            mesh_->set_rules(options_.trust_resets, options_.patience.count());
        }
        if (application_.program == Digest{}) {
            application_.program = program_digest();
            application_.terms = terms();
            application_.applicant.identity = draw_claimant();
        }
        application_.applicant.host = mesh_->host();
        application_.applicant.port = mesh_->port();
        const nanoseconds until = std::min(deadline, now() + 10'000'000'000);
        const Hello hello = hello_at_desk(application_.applicant.identity);
        NoEntry refused;
        for (const SocketAddress& address : addresses) {
            std::optional<Entrance> entrance = enter(address, hello, desk.token, until, refused);
            if (now() < until || refused.has_met_keeper()) why_ = refused.why();
            if (entrance && send_frame(*entrance, make_frame(FrameKind::contribution, encode(application_)), until))
                return entrance;
        }
        return std::nullopt;
    }
    /// Returns false if the connection has ended. Errors: the reason why this process is refused.
    static bool hears_nothing_against(Entrance& entrance) {
        Frame frame;
        std::size_t used = 0;
        const bool is_open = receive_some(entrance.socket.get(), entrance.unread, 4096) >= 0;
        if (entrance.session.in.open(entrance.unread, 3 * most_text_bytes, frame, used) == Parsed::frame) {
            Fault fault;
            WireReader in(frame.payload);
            if (frame.kind == FrameKind::refused && read(in, most_ranks, fault)) throw error(fault);
        }
        return is_open;
    }
    [[nodiscard]] std::chrono::nanoseconds left_until(nanoseconds until) const {
        if (now() >= until) throw_late("the next world's ranks have not connected in time", -1);
        return std::chrono::nanoseconds(until - now());
    }
    [[noreturn]] static void throw_late(const std::string& why, int rank, int peer = -1) {
        throw error(
            Fault{.code = ErrorCode::timeout, .rank = rank, .peer = peer, .operation = "elastic", .message = why});
    }
    template <class Wait>
    NextRendezvous await_rendezvous(const std::vector<int>& members, int rank, std::uint64_t epoch,
                                    nanoseconds deadline, Wait wait_once) {
        while (!rendezvous_ || rendezvous_->epoch != epoch) {
            lost_.clear();
            if (now() >= deadline) throw_late("the next world's first rank does not answer", rank, 0);
            wait_once(deadline);
            for (const int peer : lost_)
                if (std::binary_search(members.begin(), members.end(), peer))
                    throw error(ErrorCode::peer_lost, "a rank of the next world has died");
        }
        return *std::exchange(rendezvous_, std::nullopt);
    }

    ElasticOptions options_;
    Join join_;
    bool joins_ = false;
    bool notes_end_ = false;
    std::optional<ControlPlane> control_; ///< until the first world has been formed
    nanoseconds begin_by_ = never;
    std::unique_ptr<Mesh> mesh_;
    RendezvousPoint point_; ///< where new processes find this world; no folder: nowhere
    std::optional<AdmissionDesk> desk_;
    nanoseconds listen_at_ = never; ///< the time of the next attempt to listen, if this rank could not
    bool has_warned_ = false;
    std::optional<NextRendezvous> rendezvous_;
    std::vector<int> lost_;
    Application application_ = {}; ///< of a process that waits to be added, as are the two members below
    std::optional<Entrance> entrance_;
    std::string why_ = "no rank has left an address there";
};

} // namespace detail
UNISONO_NAMESPACE_END
