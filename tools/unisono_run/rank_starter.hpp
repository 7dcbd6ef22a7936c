#pragma once

/// \file
/// How a launcher starts its ranks: their variables, their outputs, and the reason why a program
/// did not start.

#include "names.hpp"
#include "options.hpp"
#include "output.hpp"

#include "unisono/core/descriptor.hpp"
#include "unisono/extensions/launch/secrets/token.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/launch/processes.hpp"

#include <csignal>
#include <cstdint>
#include <map>
#include <string>

namespace unisono_run {

class RankStarter {
public:
    /// `folder`: through which an elastic world is found, or empty. `hub`: the launcher's port.
    /// `signals`: the signal mask of the ranks. Errors: refused.
    RankStarter(const LaunchOptions& options, const std::string& folder, std::uint16_t hub, const JobToken& token,
                const sigset_t& signal_mask);

    [[nodiscard]] const Environment& environment() const { return environment_; }
    /// Processes that are started after this call are to be added to the existing world.
    void start_newcomers() { environment_.set("UNISONO_JOINS", "1"); }

    /// Starts the next of `processes` as this rank. Errors: refused; then no process has been
    /// started.
    void start(int rank, Processes& processes, RankOutputs& outputs);

    /// The reason why the program of a rank that has ended could not be started: errno, or 0.
    int error_of(int rank);

private:
    struct Failure {
        int rank = 0;
        int why = 0;
    };

    const LaunchOptions* options_;
    sigset_t signals_;
    Environment environment_;
    FileDescriptor errors_;
    FileDescriptor errors_writing_;
    std::map<int, int> failures_; ///< errors that were read so far
};

} // namespace unisono_run
