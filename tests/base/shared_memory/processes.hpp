#pragma once

// Processes for tests: some join without a launcher's world. Also what they leave behind, and what
// they report.

#include "../collective/findings.hpp"

#include <unisono/extensions/launch/sockets/socket.hpp>
#include <unisono/join.hpp>
#include <unisono/unisono.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <functional>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace test {

using namespace std::chrono_literals;

inline std::set<std::string> names_in(const char* folder) {
    std::set<std::string> names;
    DIR* const opened = ::opendir(folder);
    if (opened == nullptr) return names;
    while (const dirent* entry = ::readdir(opened)) names.insert(entry->d_name);
    ::closedir(opened);
    return names;
}

/// Compares open files, children and files of shared memory with those at its construction. Files
/// of shared memory would have the library's name. (Other programs may run on the machine.)
class Leftovers {
public:
    ~Leftovers() {
        BOOST_TEST(names_in("/proc/self/fd").size() == files_);
        for (const std::string& name : names_in("/dev/shm")) {
            if (name.find("unisono") != std::string::npos)
                BOOST_TEST(shared_.count(name) == 1u, "/dev/shm/" << name << " was left");
        }
        int status = 0;
        BOOST_TEST((::waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD));
    }

private:
    std::size_t files_ = names_in("/proc/self/fd").size();
    std::set<std::string> shared_ = names_in("/dev/shm");
};

/// Texts that all ranks can read, in memory that their parent made.
class Noticeboard {
public:
    static constexpr std::size_t most = 8, room = 1024;

    std::vector<std::string> gather(int rank, int size, const std::string& mine, int round) {
        Sheet& sheet = sheets_->at(static_cast<std::size_t>(round));
        Slot& slot = sheet.at(static_cast<std::size_t>(rank));
        if (mine.size() > room) throw std::runtime_error("a text is too long for the noticeboard");
        mine.copy(slot.text, room);
        slot.length.store(mine.size() + 1);
        std::vector<std::string> all;
        for (int peer = 0; peer < size; ++peer) {
            const Slot& other = sheet.at(static_cast<std::size_t>(peer));
            for (int i = 0; other.length.load() == 0; ++i) {
                if (i > 10'000) throw std::runtime_error("no rank came");
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            all.emplace_back(other.text, other.length.load() - 1);
        }
        return all;
    }

private:
    struct Slot {
        std::atomic<std::size_t> length{0};
        char text[room] = {};
    };
    using Sheet = std::array<Slot, most>;
    Shared<std::array<Sheet, 2>> sheets_;
};

/// How processes without a common parent world find each other.
enum class Meeting {
    noticeboard, ///< then they watch each other without a control plane
    control      ///< by a control plane, whose star rank 0 keeps
};

/// Runs body(world) in processes that join a world by themselves, each with the segment at another
/// address. Returns when all have ended, or when all others have ended and the rest are stopped.
/// `status[rank]` is as from waitpid.
template <class Body>
std::vector<int> run_strangers(int ranks, Body body, const unisono::RunOptions& options,
                               Meeting meeting = Meeting::noticeboard) {
    Noticeboard board;
    unisono::RendezvousPoint point;
    point.host = "127.0.0.1";
    point.token = unisono::JobToken::random();
    // This port was free just now.
    if (meeting == Meeting::control) point.port = unisono::detail::listen_at(true, 0).port;
    std::fflush(nullptr);
    std::vector<pid_t> processes;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t made = ::fork();
        if (made == 0) {
            // Later mappings lie below, at another distance on each rank. The size exceeds any gap.
            ::mmap(nullptr, (static_cast<std::size_t>(rank) * 3 + 1) << 40, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            int status = 3;
            try {
                struct Control { // as much of a launcher's control as joining needs
                    Noticeboard& board;
                    int rank_, size_, round = 0;
                    [[nodiscard]] int rank() const { return rank_; }
                    [[nodiscard]] int size() const { return size_; }
                    std::vector<std::string> all_gather(std::span<const std::byte> mine, unisono::nanoseconds) {
                        return board.gather(rank_, size_, {reinterpret_cast<const char*>(mine.data()), mine.size()},
                                            round++);
                    }
                } control{board, rank, ranks};
                const auto join = [&] {
                    if (meeting == Meeting::noticeboard)
                        return unisono::Group<unisono::SharedMemory>(
                            unisono::SharedMemory(unisono::join_shared_memory(control, unisono::never), rank));
                    return unisono::join<unisono::SharedMemory>(
                        unisono::rendezvous(unisono::identity_of(rank, ranks), point, {.timeout = 30s, .linger = 10s}));
                };
                status = unisono::detail::run_rank<unisono::SharedMemory>(join(), options, body) ? 1 : 0;
            } catch (const std::exception& failed) {
                std::fprintf(stderr, "rank %d: %s\n", rank, failed.what());
            }
            std::fflush(nullptr);
            ::_exit(status);
        }
        processes.push_back(made);
    }
    std::vector<int> ends(processes.size(), -1);
    std::size_t ended = 0, stopped = 0;
    while (ended + stopped < processes.size()) {
        stopped = 0;
        for (std::size_t rank = 0; rank < processes.size(); ++rank) {
            if (ends[rank] != -1 && !WIFSTOPPED(ends[rank])) continue;
            int status = 0;
            if (::waitpid(processes[rank], &status, WNOHANG | WUNTRACED) == processes[rank]) ends[rank] = status;
            if (ends[rank] == -1) continue;
            if (WIFSTOPPED(ends[rank])) ++stopped;
            else ++ended;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    for (std::size_t rank = 0; rank < processes.size(); ++rank) {
        if (!WIFSTOPPED(ends[rank])) continue;
        ::kill(processes[rank], SIGKILL);
        ::waitpid(processes[rank], nullptr, 0);
    }
    return ends;
}

} // namespace test
