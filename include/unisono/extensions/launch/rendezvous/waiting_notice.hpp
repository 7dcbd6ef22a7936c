#pragma once

/// \file
/// The notice of a process that waits for other ranks: a line on standard error, first after 3
/// seconds, and then at growing intervals (9 s later, 27 s later, ..., at most every 5 minutes).
///
///     unisono: rank 0 of 4 is waiting for ranks 1, 3 at 10.0.0.1:9500 (3 s so far)
///     unisono: rank 2 of 4 is waiting for rank 0 at 10.0.0.1:9500 (3 s so far; Connection refused)
///     unisono-run: ranks 0, 2 have come; waiting for ranks 1, 3 (3 s so far)
///
/// Only the process with the hub (rank 0, or the launcher) knows which ranks are missing, so only
/// that process names them. A rank that has reached the hub prints nothing more. The notice is the
/// same for every transport with a rendezvous: sockets, shared memory, and a file in a common
/// folder, whose path then replaces the address.
///
/// `RendezvousOptions::notice_after` sets the first interval; 0 disables the notice. The
/// environment's UNISONO_NOTICE_AFTER, in seconds, takes precedence: UNISONO_NOTICE_AFTER=0 keeps a
/// job silent.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/launch/sockets/quiet_thread.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Sleeps until the condition is notified, at most for the given time; spurious wake-ups are
/// possible. Uses the steady clock, so steps of the system's clock have no effect. ThreadSanitizer
/// of g++ 12 and clang 14 does not know such waits, and gets the system's clock.
inline void sleep_on(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, nanoseconds longest) {
    const auto time = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::nanoseconds(longest));
#if UNISONO_UNDER_THREAD_SANITIZER
    condition.wait_until(lock, std::chrono::system_clock::now() + time);
#else
    condition.wait_until(lock, std::chrono::steady_clock::now() + time);
#endif
}

/// The setting of the environment, or else that of the program. \throws error bad_input that names
/// the variable
inline std::chrono::nanoseconds notice_after(const Environment& environment, std::chrono::nanoseconds said) {
    const std::string* text = environment.find("UNISONO_NOTICE_AFTER");
    if (text == nullptr) return said;
    std::chrono::nanoseconds after{};
    if (!parse_seconds(*text, 0, after))
        refuse_input({"UNISONO_NOTICE_AFTER is ", detail::quoted(*text), ", expected seconds, or 0 for no notice"});
    return after;
}

/// Decides when a notice is due. Pure: the caller passes the time.
class NoticeTimes {
public:
    NoticeTimes() = default; ///< never
    NoticeTimes(nanoseconds began, std::chrono::nanoseconds after) : began_(began), pause_(after.count()) {
        if (pause_ > 0) next_ = deadline_after(began, after);
    }
    [[nodiscard]] nanoseconds next() const { return next_; }
    /// Returns true once for each notice.
    bool due(nanoseconds now) {
        if (now < next_) return false;
        pause_ = std::min<nanoseconds>(3 * pause_, std::max<nanoseconds>(pause_, 300'000'000'000));
        next_ = now + pause_;
        return true;
    }
    [[nodiscard]] std::string so_far(nanoseconds now) const {
        return concat({(now - began_) / 1'000'000'000, " s so far"});
    }

private:
    nanoseconds began_ = 0;
    nanoseconds pause_ = 0;
    nanoseconds next_ = never;
};

/// Prints one whole line on standard error.
inline void tell_people(const std::string& line) { static_cast<void>(std::fputs((line + "\n").c_str(), stderr)); }

/// Reports that this rank still looks for the rendezvous point. It uses a separate thread, since
/// connecting may block.
class SearchNotice {
public:
    SearchNotice(std::string waits, std::chrono::nanoseconds after) : waits_(std::move(waits)) {
        if (after.count() <= 0) return;
        try {
            thread_ = quiet_thread("the notice of a rank that waits", [this, after] { run(after); });
        } catch (const error&) { // the rank waits without a notice: what needs a thread will say so
        }
    }
    SearchNotice(const SearchNotice&) = delete;
    SearchNotice& operator=(const SearchNotice&) = delete;
    ~SearchNotice() {
        if (!thread_.joinable()) return;
        const NotCancelled whole;
        {
            const std::lock_guard lock(mutex_);
            done_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    /// Notes the reason why the last attempt failed.
    void note(const std::string& why) {
        const std::lock_guard lock(mutex_);
        why_ = why;
    }

private:
    void run(std::chrono::nanoseconds after) {
        std::unique_lock lock(mutex_);
        NoticeTimes times(steady_now(), after);
        while (!done_) {
            const nanoseconds now = steady_now();
            if (times.due(now))
                tell_people(
                    concat({"unisono: ", waits_, " (", times.so_far(now), why_.empty() ? "" : "; ", why_, ")"}));
            sleep_on(changed_, lock, std::min<nanoseconds>(times.next() - now, 500'000'000));
        }
    }

    std::string waits_;
    std::string why_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::thread thread_;
};

} // namespace detail
UNISONO_NAMESPACE_END
