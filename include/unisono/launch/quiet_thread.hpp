#pragma once

/// \file
/// Threads of the library, beside those of the program.

#include "unisono/core/config.hpp"

#include <csignal>
#include <pthread.h>
#include <thread>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Starts a thread that handles no signals, which are left to the program's own threads.
template <class Body>
std::thread quiet_thread(Body body) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread(std::move(body));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

} // namespace detail
UNISONO_NAMESPACE_END
