#pragma once

/// \file
/// Starts a program as the ranks of one job on this host, and leaves no process behind.

#include "options.hpp"

namespace unisono_run {

/// Returns the exit status of the job. Changes the signal handling of this process. Errors:
/// unisono::error.
int run_job(const LaunchOptions& options);

} // namespace unisono_run
