#include "rank_starter.hpp"

#include "unisono/extensions/launch/sockets/socket.hpp"
#include "unisono/launch/cores.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <map>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace unisono_run {

RankStarter::RankStarter(const LaunchOptions& options, const std::string& folder, std::uint16_t hub,
                         const JobToken& token, const sigset_t& signal_mask)
    : options_(&options), signals_(signal_mask) {
    const Environment own = Environment::of_process();
    for (const auto& [name, value] : own.variables()) { // without what another launcher says of this process
        if (!says_who_a_process_is(name) && (folder.empty() || name != "UNISONO_JOINS")) environment_.set(name, value);
    }
    // For the program's own use; the library uses the hub's port.
    const std::uint16_t master = listen_at(true, 0).port;
    environment_.set("GROUP_RANK", "0");
    environment_.set("GROUP_WORLD_SIZE", "1");
    environment_.set("MASTER_ADDR", "127.0.0.1");
    environment_.set("MASTER_PORT", std::to_string(master));
    environment_.set("UNISONO_HUB", concat({"127.0.0.1:", hub}));
    environment_.set("UNISONO_TOKEN", token.text());
    environment_.set("UNISONO_LAUNCHER_PROCESS", std::to_string(::getpid()));
    if (!folder.empty()) environment_.set("UNISONO_ELASTIC_FOLDER", folder);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        throw error(ErrorCode::refused, concat({"no pipe: ", errno_text(errno)}));
    errors_ = FileDescriptor(ends[0]);
    errors_writing_ = FileDescriptor(ends[1]);
}

void RankStarter::start(int rank, Processes& processes, RankOutputs& outputs) {
    for (const char* name : {"RANK", "LOCAL_RANK", "UNISONO_RANK", "UNISONO_LOCAL_RANK"}) {
        environment_.set(name, std::to_string(rank));
    }
    // A process that is started later has a number beyond the first world, so it is told a
    // larger world.
    const std::string world = std::to_string(std::max(options_->ranks, rank + 1));
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "UNISONO_WORLD_SIZE", "UNISONO_LOCAL_WORLD_SIZE"}) {
        environment_.set(name, world);
    }
    std::vector<std::string> variables;
    for (const auto& [name, value] : environment_.variables()) variables.push_back(concat({name, "=", value}));
    std::vector<char*> environment;
    environment.reserve(variables.size() + 1);
    for (std::string& each : variables) environment.push_back(each.data());
    environment.push_back(nullptr);
    std::vector<std::string> words = options_->command;
    std::vector<char*> command;
    command.reserve(words.size() + 1);
    for (std::string& each : words) command.push_back(each.data());
    command.push_back(nullptr);

    FileDescriptor reading[2];
    FileDescriptor writing[2];
    FileDescriptor logs[2];
    std::string paths[2];
    for (const int stream : {0, 1}) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) throw error(ErrorCode::refused, concat({"no pipe: ", errno_text(errno)}));
        reading[stream] = FileDescriptor(ends[0]);
        writing[stream] = FileDescriptor(ends[1]);
        if (options_->log_dir.empty()) continue;
        paths[stream] = concat({options_->log_dir, "/rank_", rank, stream == 0 ? ".out" : ".err"});
        logs[stream] = open_log(paths[stream]);
    }
    processes.start(
        [&] {
            // The system stops a background process that reads from a terminal.
            if (rank != 0 || ::isatty(0) != 0) {
                const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
                if (null >= 0) ::dup2(null, 0);
            }
            ::dup2(writing[0].get(), 1);
            ::dup2(writing[1].get(), 2);
            if (options_->bind_to_cores) bind_to_core(rank);
            static_cast<void>(std::signal(SIGPIPE, SIG_DFL));
            pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
            ::execvpe(command[0], command.data(), environment.data());
            const Failure failed{rank, errno};
            [[maybe_unused]] const ssize_t told = ::write(errors_writing_.get(), &failed, sizeof failed);
            return failed.why == ENOENT ? 127 : 126;
        },
        true);
    for (const int stream : {0, 1})
        outputs.add(stream, std::move(reading[stream]), options_->label ? concat({"[", rank, "] "}) : std::string(),
                    std::move(logs[stream]), std::move(paths[stream]));
}

int RankStarter::error_of(int rank) {
    Failure one;
    while (::read(errors_.get(), &one, sizeof one) == static_cast<ssize_t>(sizeof one)) failures_[one.rank] = one.why;
    const auto found = failures_.find(rank);
    return found == failures_.end() ? 0 : found->second;
}

} // namespace unisono_run
