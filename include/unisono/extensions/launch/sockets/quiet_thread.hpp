#pragma once

/// \file
/// Threads of the library, beside those of the program.

#include "unisono/core/error.hpp"
#include "unisono/core/thread_limits.hpp"

#include <csignal>
#include <pthread.h>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// While it lives, this thread handles no signals, and neither do threads that it makes.
class [[nodiscard]] SignalsBlocked {
public:
    SignalsBlocked() noexcept {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_ = {};
};

/// As std::thread's constructor. `part` names the part of the library that needs the thread.
/// Errors: refused, with the system's limits.
template <class Body>
std::thread thread_for(std::string_view part, Body body) {
    try {
        return std::thread(std::move(body));
    } catch (const std::system_error& failed) {
        throw error(ErrorCode::refused, no_thread_for(part, failed.code().value()));
    }
}

/// As above. The thread handles no signals, which are left to the program's own threads.
template <class Body>
std::thread quiet_thread(std::string_view part, Body body) {
    const SignalsBlocked meanwhile;
    return thread_for(part, std::move(body));
}

} // namespace detail
UNISONO_NAMESPACE_END
