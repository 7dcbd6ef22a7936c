#pragma once

/// \file
/// The folder through which an elastic world and new processes find each other.

#include "unisono/extensions/launch/rendezvous/launcher_claims.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_file.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/launch/sockets/socket.hpp"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// The error of a process that waits to be added to an elastic world whose training has ended:
/// there is nothing left to do. Its code is `refused`.
class training_has_ended : public error {
public:
    using error::error;
};

namespace detail {

/// The file in which the world's first rank writes its address: beside the file of the rendezvous.
inline RendezvousPoint admission_point(RendezvousPoint rendezvous) {
    rendezvous.job += ".elastic";
    return rendezvous;
}

/// A file that says that the training has ended, so that processes do not wait for it.
inline std::string end_of_training_path(const RendezvousPoint& admission) {
    return rendezvous_path(admission) + ".ended";
}
inline void note_end_of_training(const RendezvousPoint& admission) {
    const FileDescriptor file(
        ::open(end_of_training_path(admission).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
}
/// Errors: training_has_ended.
inline void check_not_ended(const RendezvousPoint& admission) {
    const std::string path = end_of_training_path(admission);
    if (::access(path.c_str(), F_OK) == 0)
        throw training_has_ended(ErrorCode::refused,
                                 concat({"the training that this process was to be added to has ended (", path, ")"}));
}

/// A file that says that the process which unisono-run started as this number has become a rank of
/// the world.
inline std::string added_path(const RendezvousPoint& admission, int number) {
    return concat({rendezvous_path(admission), ".added.", number});
}
/// Call it when this process has become a rank of a world. Does nothing unless unisono-run has
/// started the process to be added.
inline void note_added(const Environment& environment) {
    const std::string* const joins = environment.find("UNISONO_JOINS");
    const std::string* const folder = environment.find("UNISONO_ELASTIC_FOLDER");
    const std::string* const number = environment.find("UNISONO_RANK");
    int rank = 0;
    if (joins == nullptr || *joins != "1" || folder == nullptr || number == nullptr ||
        environment.find("UNISONO_LAUNCHER_PROCESS") == nullptr || !parse_count(*number, most_ranks, rank))
        return;
    const FileDescriptor file(::open(added_path(admission_point({.folder = *folder}), rank).c_str(),
                                     O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
}

/// A launcher's folder: one of its own, or one that the user has named.
class ElasticFolder {
public:
    /// `named`: the user's folder, which is kept. Empty: a new folder below TMPDIR, which is
    /// removed with this object. Errors: refused if the folder cannot be made.
    explicit ElasticFolder(std::string named) : path_(std::move(named)) {
        if (path_.empty()) {
            const char* const temporary = std::getenv("TMPDIR"); // NOLINT(concurrency-mt-unsafe): before threads start
            std::string made =
                concat({temporary != nullptr && *temporary != '\0' ? temporary : "/tmp", "/unisono-elastic-XXXXXX"});
            if (::mkdtemp(made.data()) == nullptr)
                throw error(ErrorCode::refused, concat({"cannot make the folder ", made,
                                                        ", where an elastic world is found: ", errno_text(errno),
                                                        "; set UNISONO_ELASTIC_FOLDER to a folder"}));
            path_ = made;
            own_ = true;
        } else { // files of an earlier job
            ::unlink(rendezvous_path(point()).c_str());
            ::unlink(end_of_training_path(point()).c_str());
        }
    }
    ElasticFolder(const ElasticFolder&) = delete;
    ElasticFolder& operator=(const ElasticFolder&) = delete;
    ~ElasticFolder() {
        if (!own_) return;
        ::unlink(rendezvous_path(point()).c_str()); // the file of a first rank that was killed
        ::unlink(end_of_training_path(point()).c_str());
        ::rmdir(path_.c_str());
    }

    [[nodiscard]] const std::string& path() const { return path_; }
    /// True if a world's first rank has written its address, so that processes can be added, and a
    /// process listens there. (A rank that was killed leaves its file.)
    [[nodiscard]] bool has_world() const {
        try {
            RendezvousPoint desk = point();
            if (!read_rendezvous_file(desk)) return false;
            std::string why;
            const nanoseconds until = steady_now() + 200'000'000;
            for (const SocketAddress& address : resolve(desk.host, desk.port, why))
                if (connect_to(address, until, why).valid()) return true;
        } catch (const error&) { // the file can be written by others
        }
        return false;
    }
    /// True if the process that was started as this number is a rank of the world.
    [[nodiscard]] bool has_added(int number) const { return ::access(added_path(point(), number).c_str(), F_OK) == 0; }
    /// Call it before that process is started, and after its end.
    void forget(int number) const { ::unlink(added_path(point(), number).c_str()); }
    /// Tells processes that wait to be added that the training has ended.
    void end_training() const { note_end_of_training(point()); }

private:
    [[nodiscard]] RendezvousPoint point() const { return admission_point({.folder = path_}); }

    std::string path_;
    bool own_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
