#pragma once

// Programs that the tests run, each with an environment of its own, a deadline, and a mark that
// identifies the processes that it leaves behind.

#include <thread>
#include <unisono/launch/processes.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <string>
#include <vector>

namespace test {

namespace un = unisono;
using namespace std::chrono_literals;

/// The result of a program that ended, or was killed at the deadline (status -1).
struct Result {
    int status = -1;
    std::string out = {};
    std::string err = {};

    [[nodiscard]] bool has(const std::string& text) const { return out.find(text) != std::string::npos; }
    [[nodiscard]] bool complains(const std::string& text) const { return err.find(text) != std::string::npos; }
    [[nodiscard]] std::string all() const {
        return "status " + std::to_string(status) + "\n" + out + "-- stderr\n" + err;
    }
};

class Command {
public:
    /// `ignored`: signals that it ignores from its start, as under nohup.
    explicit Command(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {},
                     const std::vector<int>& ignored = {})
        : arguments_(std::move(arguments)) {
        static std::atomic<int> count{0};
        mark_ = "UNISONO_TEST_MARK=" + std::to_string(::getpid()) + "." + std::to_string(count++);
        for (char** entry = environ; *entry != nullptr; ++entry) variables_.emplace_back(*entry);
        for (const auto& [name, value] : environment) variables_.push_back(name + "=" + value);
        variables_.push_back(mark_);
        out_ = std::tmpfile();
        err_ = std::tmpfile();
        std::vector<char*> argument_list, variable_list;
        for (std::string& each : arguments_) argument_list.push_back(each.data());
        for (std::string& each : variables_) variable_list.push_back(each.data());
        argument_list.push_back(nullptr);
        variable_list.push_back(nullptr);
        process_.start([&] {
            ::dup2(::open("/dev/null", O_RDONLY), 0);
            ::dup2(::fileno(out_), 1);
            ::dup2(::fileno(err_), 2);
            for (const int each : {SIGINT, SIGHUP, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD})
                // A shell that runs the tests in the background ignores some signals.
                std::signal(each, SIG_DFL);
            for (const int each : ignored) std::signal(each, SIG_IGN);
            ::execvpe(argument_list[0], argument_list.data(), variable_list.data());
            return 127;
        });
    }
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;
    ~Command() {
        std::fclose(out_);
        std::fclose(err_);
    }

    [[nodiscard]] int pid() const { return process_.pid(0); }
    void signal(int number) const { ::kill(pid(), number); }

    /// Waits until the output has this text.
    bool says(const std::string& text, std::chrono::nanoseconds limit = 30s) { return await(out_, text, limit); }
    /// The same for what it writes to standard error.
    bool complains(const std::string& text, std::chrono::nanoseconds limit = 30s) { return await(err_, text, limit); }

    /// Its output so far.
    [[nodiscard]] std::string said() const { return read(out_); }

    Result end(std::chrono::nanoseconds limit = 50s) {
        Result result;
        if (const auto ended = process_.wait_any(un::deadline_after(un::steady_now(), limit)))
            result.status = ended->exit_code();
        process_.stop(0s);
        result.out = read(out_);
        result.err = read(err_);
        return result;
    }

    /// The number of processes left by it or by a process that it started. Waits briefly for
    /// processes that are about to end.
    [[nodiscard]] int left_behind() const {
        int found = 0;
        for (int attempt = 0; attempt < 1500; ++attempt) {
            found = 0;
            DIR* all = ::opendir("/proc");
            while (const dirent* entry = ::readdir(all)) {
                if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
                std::string text;
                if (std::FILE* file = std::fopen(("/proc/" + std::string(entry->d_name) + "/environ").c_str(), "r")) {
                    std::vector<char> buffer(1 << 17);
                    text.assign(buffer.data(), std::fread(buffer.data(), 1, buffer.size(), file));
                    std::fclose(file);
                }
                if (text.find(mark_) != std::string::npos) ++found;
            }
            ::closedir(all);
            if (found == 0) break;
            std::this_thread::sleep_for(5ms);
        }
        return found;
    }

private:
    static bool await(std::FILE* file, const std::string& text, std::chrono::nanoseconds limit) {
        const auto until = un::deadline_after(un::steady_now(), limit);
        while (read(file).find(text) == std::string::npos) {
            if (un::steady_now() > until) return false;
            std::this_thread::sleep_for(5ms);
        }
        return true;
    }
    static std::string read(std::FILE* file) {
        std::string text;
        char buffer[4096];
        // Not by the offset at which the process writes.
        for (off_t at = 0;;) {
            const ssize_t got = ::pread(::fileno(file), buffer, sizeof buffer, at);
            if (got <= 0) return text;
            text.append(buffer, static_cast<std::size_t>(got));
            at += got;
        }
    }

    std::vector<std::string> arguments_;
    std::vector<std::string> variables_;
    std::string mark_;
    std::FILE* out_ = nullptr;
    std::FILE* err_ = nullptr;
    un::Processes process_;
};

inline Result run_command(const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& environment = {},
                          const std::vector<int>& ignored = {}) {
    Command command(arguments, environment, ignored);
    Result result = command.end();
    BOOST_CHECK_EQUAL(command.left_behind(), 0);
    return result;
}

} // namespace test
