#pragma once

/// \file
/// Stops a training between two updates when the system asks for it, so that it can be saved and
/// continue elsewhere.
///
///     un::StopOnSignal stop;               // SIGTERM, from here on; once, before the ranks
///     un::run<un::SharedMemory>(2, [&](auto& world) {
///         un::Trainer trainer{world, model};
///         un::Checkpoints checkpoints("run/checkpoints");
///         checkpoints.resume(trainer);     // continues where it was stopped
///         const auto report = trainer.fit(data, {.epochs = 20, .stop_on = &stop});
///         if (report.stopped) checkpoints.save(trainer); // on all ranks after the same update
///     });
///     return stop.exit_status();           // 143: a scheduler starts the job again; or 0
///
/// Slurm, Kubernetes and preemptible machines send SIGTERM, and SIGKILL after a grace time (30 s is
/// usual; unisono-run: --grace, 5 s). Some send SIGTERM to one rank only, or to the launcher, which
/// passes it on. One rank that gets the signal is enough.
///
/// Laws
/// - All ranks stop after the same update: they agree on it by an all_reduce of 16 bytes. They do
///   so after the first update and then about twice per second, counted in updates, so that the
///   cost does not grow with the number of updates. `fit` also agrees once before its first update,
///   so a training that got a signal earlier makes no update.
/// - `fit` ends at most one update and about half a second after the signal. The grace time must
///   also cover the save.
/// - A second signal within a second is the same request: a process often gets it both from its
///   launcher and as a member of its process group or job step. A later one ends the process at
///   once, as without StopOnSignal.
/// - A process that is forked after StopOnSignal was made shares it: a signal to one of them counts
///   for all.
///
/// Exit status: a scheduler takes 0 for a finished job and does not start it again. If a signal
/// came, `exit_status` is 128 + the signal, which is how a shell reports a process that the signal
/// ended. Use it if `FitReport::stopped` is set.

#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/of_core.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/trainer/parts.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <sys/mman.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Where the handler notes a signal: in the one StopOnSignal object.
inline std::atomic<std::atomic<int>*> signal_note{nullptr};
/// The time at which this process first got each signal; 0: not yet.
inline std::array<std::atomic<nanoseconds>, 65> signal_came{};
inline constexpr nanoseconds same_request_ns = 1'000'000'000;

extern "C" inline void unisono_note_signal(int number) {
    const int before = errno;
    const nanoseconds now = steady_now();
    nanoseconds first = 0;
    if (!signal_came[static_cast<std::size_t>(number)].compare_exchange_strong(first, now) &&
        now - first > same_request_ns) {
        static_cast<void>(std::signal(number, SIG_DFL));
        static_cast<void>(std::raise(number)); // delivered when this handler returns
    }
    if (std::atomic<int>* note = signal_note.load()) {
        int none = 0;
        note->compare_exchange_strong(none, number);
    }
    errno = before;
}

} // namespace detail

/// Notes signals from its construction to its destruction, which restores the previous handlers. At
/// most one per process.
class StopOnSignal {
public:
    /// \throws error refused: there is another one, no memory, or a number that is not a signal
    explicit StopOnSignal(std::initializer_list<int> numbers = {SIGTERM});
    StopOnSignal(const StopOnSignal&) = delete;
    StopOnSignal& operator=(const StopOnSignal&) = delete;
    ~StopOnSignal() { end(); }

    /// The first signal that reached this process, or a process that shares this object; 0: none.
    /// Local: other ranks may not know yet.
    [[nodiscard]] int signal() const noexcept { return note_->load(); }
    /// 128 + the signal; 0 if none came.
    [[nodiscard]] int exit_status() const noexcept { return signal() == 0 ? 0 : 128 + signal(); }

private:
    void end() noexcept;

    std::atomic<int>* note_ = nullptr;
    struct Before {
        int number;
        struct sigaction action;
    };
    detail::List<Before> before_;
};

namespace detail {

/// Decides when the ranks of one `fit` ask each other whether a signal came. It counts updates,
/// whose number is the same on all ranks.
class StopAgreement {
public:
    /// `parts`: those of the model, whose ranks are in other groups and must stop after the same
    /// update, too.
    explicit StopAgreement(const StopOnSignal* asked, const Parts* parts = nullptr) : asked_(asked), parts_(parts) {}

    /// Called between two updates; collective. Returns the same on all ranks.
    bool stop(GroupCore& world);

private:
    const StopOnSignal* asked_;
    const Parts* parts_;
    std::int64_t interval_ = 1;
    std::int64_t updates_left_ = 1;
    nanoseconds last_ = steady_now();
    bool began_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION bool StopAgreement::stop(GroupCore& world) {
    if (asked_ == nullptr || --updates_left_ > 0) return false;
    const nanoseconds now = steady_now();
    std::array<double, 2> all = {asked_->signal() != 0 ? 1.0 : 0.0, static_cast<double>(now - last_) * 1e-9};
    if (world.size() > 1) { // the greatest of all ranks
        const auto mine = std::bit_cast<std::array<std::uint64_t, 2>>(all);
        List<std::uint64_t> words(2 * static_cast<std::size_t>(world.size()));
        gather_words(world, mine, words);
        for (std::size_t i = 0; i < words.size(); ++i)
            all[i % 2] = std::max(all[i % 2], std::bit_cast<double>(words[i]));
    }
    if (parts_ != nullptr && parts_->order() != nullptr) {
        std::array<double, 3> sums = {all[0], all[1], 1.0};
        parts_->sum(sums);
        const auto [found, seconds, count] = sums;
        all = {found, seconds / count};
    }
    const double seconds_of_one = all[1] / static_cast<double>(interval_);
    const double wanted = began_ ? 0.5 / std::max(seconds_of_one, 1e-9) : 1.0;
    interval_ = static_cast<std::int64_t>(clamped(wanted, 1.0, 2.0 * static_cast<double>(interval_)));
    updates_left_ = interval_;
    last_ = now;
    began_ = true;
    return all[0] != 0;
}

} // namespace detail

UNISONO_DEFINITION StopOnSignal::StopOnSignal(std::initializer_list<int> numbers) {
    void* const page =
        ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw error(ErrorCode::refused, "StopOnSignal: no memory that processes share");
    note_ = new (page) std::atomic<int>(0);
    std::atomic<int>* none = nullptr;
    if (!detail::signal_note.compare_exchange_strong(none, note_)) {
        ::munmap(page, sizeof(std::atomic<int>));
        throw error(ErrorCode::refused, "StopOnSignal: found a second one in this process; expected one at a time");
    }
    for (const int number : numbers) {
        struct sigaction wanted = {};
        struct sigaction before = {};
        wanted.sa_handler = &detail::unisono_note_signal;
        wanted.sa_flags = SA_RESTART;
        sigemptyset(&wanted.sa_mask);
        if (number > 0 && number < static_cast<int>(detail::signal_came.size()))
            detail::signal_came[static_cast<std::size_t>(number)].store(0);
        if (::sigaction(number, &wanted, &before) != 0) {
            end();
            throw error(ErrorCode::refused, concat({"StopOnSignal: ", number, " is no signal that can be handled"}));
        }
        before_.push_back({number, before});
    }
}

UNISONO_DEFINITION void StopOnSignal::end() noexcept {
    for (std::size_t i = before_.size(); i-- != 0;) // backwards: a signal may have been named twice
        static_cast<void>(::sigaction(before_[i].number, &before_[i].action, nullptr));
    detail::signal_note.store(nullptr);
    ::munmap(static_cast<void*>(note_), sizeof(std::atomic<int>));
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
