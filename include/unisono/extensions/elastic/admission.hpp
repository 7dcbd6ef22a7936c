#pragma once

/// \file
/// How a process asks to be added to an elastic world. The world's first rank listens for
/// applicants; a file in a folder has its address. Ranks look for applicants between two updates,
/// and never wait for them:
///
///     applicant -> member   hello, and the proof that it has the job's secret
///                           (launch/secrets/proof.hpp)
///     member -> applicant   accepted, or refused with the reason
/// Then the applicant waits until members that have decided to add it connect to it
/// (membership.hpp).

#include "unisono/core/floating_point.hpp"
#include "unisono/extensions/elastic/membership_messages.hpp"
#include "unisono/extensions/launch/control/entrance.hpp"
#include "unisono/extensions/launch/control/strangers.hpp"
#include "unisono/extensions/launch/rendezvous/elastic_folder.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_file.hpp"
#include "unisono/extensions/launch/rendezvous/waiting_notice.hpp"
#include "unisono/extensions/launch/secrets/sha256.hpp"

#include <algorithm>
#include <cstdint>
#include <fcntl.h>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The options that must be equal on all members that decide together.
struct ElasticTerms {
    std::int64_t least = 1, most = 0;       ///< numbers of ranks
    std::int64_t patience = 0, give_up = 0; ///< in nanoseconds
    std::string transport = {};             ///< name of the transport
    std::int64_t trust_resets = 0;

    /// The first difference, as "ElasticOptions::most is 8 here and 4 there"; empty if there is
    /// none.
    [[nodiscard]] std::string difference(const ElasticTerms& others, std::string_view here,
                                         std::string_view there) const {
        const std::pair<std::string_view, std::int64_t ElasticTerms::*> all[] = {
            {"least", &ElasticTerms::least},
            {"most", &ElasticTerms::most},
            {"patience", &ElasticTerms::patience},
            {"give_up", &ElasticTerms::give_up},
            {"trust_resets", &ElasticTerms::trust_resets}};
        for (const auto& [name, term] : all) {
            if (this->*term == others.*term) continue;
            const std::string_view unit =
                term == &ElasticTerms::patience || term == &ElasticTerms::give_up ? " ns" : "";
            return concat({"ElasticOptions::", name, " is ", this->*term, unit, " ", here, " and ", others.*term, unit,
                           " ", there, "; expected the same on all ranks"});
        }
        if (transport != others.transport)
            return concat({"the transport is ", detail::quoted(transport), " ", here, " and ",
                           detail::quoted(others.transport), " ", there, "; expected the same on all ranks"});
        return {};
    }
};
inline void write(WireWriter& out, const ElasticTerms& terms) {
    out.put(terms.least, terms.most, terms.patience, terms.give_up, terms.trust_resets, terms.transport);
}
inline void read(WireReader& in, ElasticTerms& terms) {
    in.take(terms.least, terms.most, terms.patience, terms.give_up, terms.trust_resets, terms.transport);
}

/// The facts that an applicant sends about itself.
struct Application {
    static constexpr std::uint32_t expected_version =
        UNISONO_VERSION_MAJOR << 20 | UNISONO_VERSION_MINOR << 10 | UNISONO_VERSION_PATCH;

    std::uint32_t version = expected_version;
    Digest program = {};
    ElasticTerms terms = {};
    Applicant applicant = {};
    FloatingPointMode mode = floating_point_mode(); ///< of the thread that trains
};

inline Blob encode(const Application& application) {
    WireWriter out;
    const Applicant& applicant = application.applicant;
    out.put(application.version, application.program);
    write(out, application.terms);
    out.put(applicant.identity, applicant.port, applicant.host, application.mode);
    return out.take();
}
inline bool decode(std::span<const std::byte> bytes, Application& application) {
    WireReader in(bytes);
    Applicant& applicant = application.applicant;
    std::uint8_t mode = 0;
    in.take(application.version, application.program);
    read(in, application.terms);
    in.take(applicant.identity, applicant.port, applicant.host, mode);
    application.mode = static_cast<FloatingPointMode>(mode & 15u);
    return in.finished() && applicant.host.size() <= 256;
}

/// The digest of the file that this process runs; equal for all ranks of one training. Zeros if the
/// file cannot be read.
inline Digest program_digest() {
    const FileDescriptor file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    if (!file.valid()) return {};
    Sha256 hash;
    std::vector<std::byte> buffer(std::size_t{1} << 18);
    for (ssize_t got = 0; (got = ::read(file.get(), buffer.data(), buffer.size())) > 0;)
        hash.add(std::span<const std::byte>(buffer).first(static_cast<std::size_t>(got)));
    return hash.finish();
}

/// Warns once.
inline void tell_that_none_is_added(bool& has_warned, const error& why) {
    if (std::exchange(has_warned, true)) return;
    tell_people(
        concat({"unisono: warning: no process can be added to the elastic world for now: ", why.why().message}));
}

/// The greeting of a process that wants to be added, or asks whether there is a world.
inline Hello hello_at_desk(std::uint64_t claimant) {
    return {
        .claimant = claimant, .host = host_number(), .pid = static_cast<std::uint32_t>(::getpid()), .door = Door::desk};
}

/// The member's side of an admission. One thread uses it. Time limits: connecting to a proven
/// applicant takes at most 0.5 s. A call of `look` waits for an applicant's answer for at most 1/50
/// of the interval between calls, and at most 100 ms.
class AdmissionDesk {
public:
    /// `secret`: goes into the file. `host`: the address at which others reach `listener`.
    AdmissionDesk(RendezvousPoint point, const JobToken& secret, std::string host, Listener listener,
                  const ElasticTerms& terms)
        : point_(std::move(point)), terms_(terms), listener_(std::move(listener)) {
        point_.token = secret;
        point_.host = std::move(host);
        point_.port = listener_.port;
        file_ = RendezvousFile(point_);
    }

    /// Reads from applicants. True if a complete application waits.
    bool look() {
        const nanoseconds now = steady_now();
        keep_file(now);
        // Those who have answered are not dropped for new ones.
        guests_.hear(point_.token, [&](auto&&... guest) { let_in(std::move(guest)...); });
        guests_.accept(listener_.socket.get(), point_.token, [&](auto&&... guest) { let_in(std::move(guest)...); });
        // If updates take long, one call of `look` must suffice to admit an applicant.
        const nanoseconds until = now + std::min<nanoseconds>((now - std::exchange(looked_, now)) / 50, 100'000'000);
        while (hear_all(now) && until - now >= 20'000'000 && await_visitors(until)) {
        }
        std::erase_if(visitors_, [](const Visitor& one) { return !one.entrance.socket.valid(); });
        return std::any_of(visitors_.begin(), visitors_.end(),
                           [](const Visitor& one) { return one.waits.has_value(); });
    }
    [[nodiscard]] std::vector<Applicant> applicants() const {
        std::vector<Applicant> found;
        for (const Visitor& one : visitors_)
            if (one.waits) found.push_back(*one.waits);
        return found;
    }
    /// Refuses applicants that were added, because the world cannot be formed with them.
    void refuse(const std::vector<Applicant>& added, const std::string& why) {
        for (Visitor& one : visitors_)
            if (one.waits && std::find(added.begin(), added.end(), *one.waits) != added.end()) refuse(one, why);
        forget(added);
    }
    /// Forgets applicants that were added, or did not answer when they were added.
    void forget(const std::vector<Applicant>& added) {
        std::erase_if(visitors_, [&](const Visitor& one) {
            return one.waits && std::find(added.begin(), added.end(), *one.waits) != added.end();
        });
    }

private:
    struct Visitor {
        Entrance entrance = {};
        nanoseconds until = 0; ///< deadline for its application, once it has had `least_looks` looks
        int in_vain = 0;       ///< looks since its last message
        std::optional<Applicant> waits = {};
    };

    /// Writes the file again if it was removed. If that fails, for instance on a full disk, no
    /// process is added until it succeeds; the training continues.
    void keep_file(nanoseconds now) {
        if (now < write_at_ || ::access(rendezvous_path(point_).c_str(), F_OK) == 0) return;
        try {
            file_ = RendezvousFile(point_);
        } catch (const error& failed) {
            write_at_ = now + 1'000'000'000;
            tell_that_none_is_added(has_warned_, failed);
        }
    }
    /// Reads from all. True if one of them has just come, or has sent something and is not done.
    bool hear_all(nanoseconds now) {
        bool goes_on = false;
        const std::size_t proven = visitors_.size();
        guests_.hear(point_.token, [&](auto&&... guest) { let_in(std::move(guest)...); });
        for (Visitor& visitor : visitors_) goes_on = hear(visitor, now) || goes_on;
        return goes_on || visitors_.size() != proven || guests_.has_new(now);
    }
    /// Waits for messages from those that are not done. False: none came in time.
    [[nodiscard]] bool await_visitors(nanoseconds until) const {
        std::vector<pollfd> polled;
        for (std::size_t i = 0; i < guests_.size(); ++i) polled.push_back({guests_.fd(i), POLLIN, 0});
        for (const Visitor& one : visitors_)
            if (!one.waits) polled.push_back({one.entrance.socket.get(), POLLIN, 0});
        if (steady_now() >= until) return false;
        return ::poll(polled.data(), polled.size(), poll_timeout(until)) > 0;
    }
    void let_in(const Hello&, const ControlSession& session, FileDescriptor socket) {
        const nanoseconds now = steady_now();
        visitors_.push_back({.entrance = {.socket = std::move(socket), .unread = {}, .session = session},
                             .until = now + Guests::may_wait});
        Entrance& entrance = visitors_.back().entrance;
        if (!send_frame(entrance, make_frame(FrameKind::accepted), now)) entrance.socket.close();
    }
    bool hear(Visitor& visitor, nanoseconds now) {
        Entrance& entrance = visitor.entrance;
        if (!entrance.socket.valid()) return false;
        const std::size_t before = entrance.unread.size();
        ssize_t got = 0;
        do got = receive_some(entrance.socket.get(), entrance.unread, 4096);
        while (got > 0 && entrance.unread.size() < 65536);
        bool open = got == 0;
        const bool says_more = entrance.unread.size() > before;
        if (open) open = read_application(visitor);
        visitor.in_vain = says_more ? 0 : visitor.in_vain + 1;
        if (says_more) visitor.until = now + Guests::may_wait;
        const bool is_late = !visitor.waits && now >= visitor.until && visitor.in_vain >= Guests::least_looks;
        if (!open || is_late) entrance.socket.close();
        return open && says_more && !visitor.waits;
    }
    bool read_application(Visitor& visitor) {
        Frame frame;
        std::size_t used = 0;
        const Parsed parsed = visitor.entrance.session.in.open(visitor.entrance.unread, 4096, frame, used);
        if (parsed == Parsed::incomplete) return true;
        Application application;
        if (parsed != Parsed::frame || frame.kind != FrameKind::contribution || visitor.waits ||
            !decode(frame.payload, application))
            return false;
        drop_front(visitor.entrance.unread, used);
        const std::string why = reason_against(application);
        if (why.empty()) {
            visitor.waits = application.applicant;
            return true;
        }
        refuse(visitor, why);
        return false;
    }
    static void refuse(Visitor& visitor, const std::string& why) {
        const Fault fault{.code = ErrorCode::refused, .rank = 0, .operation = "join", .message = why};
        static_cast<void>(send_frame(visitor.entrance, fault_frame(FrameKind::refused, fault), steady_now()));
    }
    std::string reason_against(const Application& application) {
        if (application.version != Application::expected_version)
            return concat({"the elastic world runs version ", Application::expected_version >> 20, ".",
                           Application::expected_version >> 10 & 1023, ".", Application::expected_version & 1023,
                           " of the library, and this process version ", application.version >> 20, ".",
                           application.version >> 10 & 1023, ".", application.version & 1023, "; expected the same"});
        if (!program_) program_ = program_digest();
        if (application.program != *program_)
            return "this process runs another program (or another build of it) than the elastic world that it wants to "
                   "join; expected the same file";
        if (application.mode != floating_point_mode())
            return different_modes("this process", application.mode, "the elastic world's first rank",
                                   floating_point_mode());
        std::string other =
            application.terms.difference(terms_, "of this process", "of the elastic world's first rank");
        if (!other.empty()) return other;
        // Members will connect to the applicant, so a member checks now that it can be reached.
        std::string why = "no address";
        const Applicant& applicant = application.applicant;
        for (const SocketAddress& address : resolve(applicant.host, applicant.port, why))
            if (connect_to(address, steady_now() + 500'000'000, why).valid()) return {};
        return concat({"the elastic world's first rank cannot reach this process at ", applicant.host, ":",
                       applicant.port, ": ", why});
    }

    RendezvousPoint point_;
    ElasticTerms terms_;
    Listener listener_;
    RendezvousFile file_;
    Guests guests_{Door::desk};
    std::vector<Visitor> visitors_; ///< those that have the secret
    std::optional<Digest> program_;
    nanoseconds looked_ = steady_now();
    nanoseconds write_at_ = 0; ///< the time of the next attempt to write the file
    bool has_warned_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
