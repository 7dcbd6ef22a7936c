#pragma once

/// \file
/// The command line of unisono-run, and the job that it starts.

#include <chrono>
#include <string>
#include <vector>

namespace unisono_run {

/// The command line of unisono-run, parsed.
struct LaunchOptions {
    int ranks = 1;
    bool bind_to_cores = false; ///< binds rank r to the r-th available core, modulo their number
    bool label = true;          ///< each line of output begins with its rank
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max(); ///< time limit of the whole job
    std::chrono::nanoseconds grace = std::chrono::seconds(5);           ///< time from SIGTERM to SIGKILL
    /// Time from the first rank's successful end to the last rank's.
    std::chrono::nanoseconds wait = std::chrono::hours(1);
    /// For an elastic job: the other ranks continue when a rank dies, if at least this number is
    /// left; 0: not elastic.
    int least = 0;
    int most = 0;      ///< for an elastic job: lost ranks are replaced, up to this number of ranks; 0: they are not
    int restarts = 10; ///< greatest number of processes that replace lost ranks
    std::string log_dir = {};              ///< folder for files of each rank's output; empty: none
    std::vector<std::string> command = {}; ///< program and arguments

    friend bool operator==(const LaunchOptions&, const LaunchOptions&) = default;
};

/// The result of a command line: the options of a launch, or the status with which to end at once
/// and the text to print before.
struct LaunchRequest {
    LaunchOptions options = {};
    int status = -1; ///< -1: launch
    std::string text = {};
};

/// Options end at the program's name, or at "--".
LaunchRequest parse_launch(const std::vector<std::string>& arguments);

/// Starts the program as the ranks of one job on this host, and leaves no process behind. Returns
/// the exit status of the job. Changes the signal handling of this process. Errors: unisono::error.
int run_job(const LaunchOptions& options);

} // namespace unisono_run
