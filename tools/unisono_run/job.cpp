#include "names.hpp"
#include "options.hpp"
#include "output.hpp"
#include "rank_starter.hpp"
#include "unisono/extensions/launch/control/hub.hpp"
#include "unisono/extensions/launch/rendezvous/elastic_folder.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_environment.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/launch/host.hpp"
#include "unisono/launch/processes.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <dirent.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace unisono_run {
namespace {

/// Reaps processes that ranks have left behind and that have ended: children of this process, which
/// is a subreaper, that are not `owned(pid)`. Never waits. An owned child that has ended hides
/// those that ended later, until its owner has reaped it: then call again.
template <class Owned>
void reap_orphans(Owned owned) {
    for (;;) {
        siginfo_t info = {};
        if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0 || owned(info.si_pid))
            return;
        ::waitpid(info.si_pid, nullptr, WNOHANG);
    }
}

/// Kills processes that ranks have started in separate sessions and left behind: all children of
/// this process, which must be a subreaper (PR_SET_CHILD_SUBREAPER).
void kill_orphans() {
    for (int attempt = 0; attempt < 100; ++attempt) {
        bool found = false;
        DIR* all = ::opendir("/proc");
        if (all == nullptr) return;
        while (const dirent* entry = ::readdir(all)) { // NOLINT(concurrency-mt-unsafe): of this stream alone
            int pid = 0;
            if (!parse_count(entry->d_name, 1 << 30, pid) || process_field(pid, 4) != std::to_string(::getpid()))
                continue;
            found = true;
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        ::closedir(all);
        if (!found) return; // a grandchild becomes a child only after its parent's end: look again
    }
}

/// One job. Single-threaded until the ranks have been forked; then the hub's thread is added.
class LocalLauncher {
public:
    explicit LocalLauncher(LaunchOptions options) : options_(std::move(options)) {}

    int run() {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1); // orphans of ranks become children of this process
        static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
        // The parent may have ignored it: then the system would not report how ranks end.
        static_cast<void>(std::signal(SIGCHLD, SIG_DFL));
        sigset_t handled;
        sigemptyset(&handled);
        for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT})
            // Nohup ignores some, and so do shells for background jobs.
            if (!is_ignored(each)) sigaddset(&handled, each);
        sigaddset(&handled, SIGCHLD);
        pthread_sigmask(SIG_BLOCK, &handled, &signals_before_);
        signals_ = FileDescriptor(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));

        Listener listener = listen_at(true, 0);
        const JobToken token = JobToken::random();
        if (replaces()) {
            const Environment own = Environment::of_process();
            const std::string* const named = own.find("UNISONO_ELASTIC_FOLDER");
            folder_.emplace(named != nullptr ? *named : std::string());
        }
        starter_.emplace(options_, folder_ ? folder_->path() : std::string(), listener.port, token, signals_before_);
        HubNotice notice{.after = notice_after(starter_->environment(), usual_notice_after),
                         .names_those_here = true,
                         .waits = "waiting for"};
        if (!options_.log_dir.empty()) make_folders(options_.log_dir);
        wanted_ = options_.ranks;
        for (int rank = 0; rank < options_.ranks; ++rank) start(rank);
        starter_->start_newcomers();
        hub_ = std::make_unique<Hub>(std::move(listener), HubOptions{.world = options_.ranks, .token = token},
                                     std::move(notice));
        const nanoseconds began = steady_now();
        timeout_at_ = deadline_after(began, options_.timeout);
        while (processes_.running() > 0) turn();
        const int status = final_status();
        hub_.reset();
        kill_orphans();
        outputs_.finish(steady_now() + 10'000'000'000);
        return status;
    }

private:
    /// Time in which other ranks may find the failure by themselves, and report it, before they are
    /// told to stop.
    static constexpr nanoseconds settle = 1'000'000'000;
    static constexpr std::chrono::seconds notice_of_late_ranks{60}; ///< from the first successful end of a rank

    static bool is_ignored(int signal) {
        struct sigaction now = {};
        return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
    }

    /// True if lost ranks are replaced by new processes, which are added to the world.
    [[nodiscard]] bool replaces() const { return options_.most != 0; }

    /// Starts a rank. Errors: refused; then no process has been started.
    void start(int rank) {
        starter_->start(rank, processes_, outputs_);
        ends_.emplace_back();
        dismissed_.push_back(false);
    }

    /// One turn of the loop: waits for output, signals and the end of ranks.
    void turn() {
        std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
        outputs_.wait_for(polled);
        bool all = true;
        for (int rank = 0; rank < processes_.size(); ++rank) {
            if (!processes_.is_running(rank)) continue;
            const int process = processes_.descriptor(rank);
            if (process >= 0) polled.push_back({process, POLLIN, 0});
            all = all && process >= 0;
        }
        nanoseconds until = std::min({timeout_at_, stop_at_, kill_at_});
        if (!stopping_) until = std::min({until, notice_at_, wait_until_, look_for_world_at_});
        if (!all) until = std::min(until, steady_now() + 5'000'000);
        // There may be no world yet.
        if (wants_more()) until = std::min(until, std::max(start_at_, steady_now() + 50'000'000));
        if (::poll(polled.data(), polled.size(), poll_timeout(until)) < 0 && errno != EINTR)
            throw error(ErrorCode::refused, concat({"cannot wait for the ranks: ", errno_text(errno)}));

        outputs_.move(polled);
        if (polled[0].revents != 0) pass_on_signals();
        while (const auto end = processes_.poll_any()) note(*end);
        reap_orphans([&](int pid) { return processes_.owns(pid); });
        if (outputs_.broken() && !stopping_) {
            fail(128 + SIGPIPE);
            stop(SIGTERM);
        }
        const nanoseconds now = steady_now();
        if (now >= timeout_at_) {
            timeout_at_ = never;
            say({"the job did not end within ", fixed_text(static_cast<double>(options_.timeout.count()) * 1e-9, 1),
                 " s; stopping it"});
            fail(124);
            stop(SIGTERM);
        }
        while (wants_more() && now >= start_at_ && folder_->has_world() && start_newcomer()) {
        }
        look_for_late_ranks(now);
        look_for_world(now);
        if (now >= stop_at_) stop(SIGTERM);
        if (now >= kill_at_) {
            kill_at_ = now + 1'000'000'000;
            processes_.signal_all(SIGCONT);
            processes_.signal_all(SIGKILL);
        }
    }

    void note(const ProcessEnd& end) {
        if (folder_) folder_->forget(end.index);
        if (end.good()) {
            ++ended_well_;
            if (first_good_ >= 0) return;
            if (folder_) folder_->end_training();
            first_good_ = end.index;
            first_good_at_ = steady_now();
            notice_at_ = deadline_after(first_good_at_, notice_of_late_ranks);
            wait_until_ = deadline_after(first_good_at_, options_.wait);
            return;
        }
        const int rank = end.index;
        const int failed = starter_->error_of(rank);
        const bool enough = !stopping_ && options_.least != 0 && staying() + ended_well_ >= options_.least;
        if (failed != 0 && !(enough && rank >= options_.ranks)) {
            if (!status_) say({"cannot start ", options_.command.front(), ": ", errno_text(failed)});
        } else if (failed != 0) {
            lose_start(rank, concat({options_.command.front(), ": ", errno_text(failed)}));
            return;
        } else if (enough) {
            if (!hub_->complete()) return lose_before_rendezvous(end);
            say({"rank ", rank, " (pid ", processes_.pid(rank), ") ", end.text(),
                 dismissed_[static_cast<std::size_t>(rank)] ? ", as SIGUSR2 asked; " : "; ", processes_.running(),
                 processes_.running() == 1 ? " rank continues" : " ranks continue"});
            forgo_replacement(rank);
            lost_ = end.exit_code();
            look_for_world_at_ = steady_now();
            return; // the others learn it from the end of the rank's connection
        } else if (!status_) {
            const std::optional<Fault> fault = hub_->first_fault();
            say({"rank ", rank, " (pid ", processes_.pid(rank), ") ", end.text(),
                 fault && blamed(*fault) != rank ? concat({", after this: ", fault->message}) : "",
                 processes_.running() > 0 && !stopping_ ? "; stopping the others" : ""});
        }
        if (!stopping_) ends_[static_cast<std::size_t>(rank)] = end;
        // Ranks that wait for a rank that never came also learn of its end. They do not learn of
        // one that has ended as a signal asked: it has said goodbye, and others may still save or
        // write their state.
        const bool as_asked = asked_to_stop_ != 0 && end.signal == 0 && end.status == 128 + asked_to_stop_;
        if (!as_asked) report(end);
        fail(lost_before_rendezvous_.value_or(end.exit_code()), true);
        if (!stopping_ && stop_at_ == never) stop_at_ = steady_now() + settle;
    }

    void report(const ProcessEnd& end) {
        if (end.index >= options_.ranks) return;
        hub_->report({.code = ErrorCode::peer_lost,
                      .rank = end.index,
                      .peer = end.index,
                      .message = concat({"rank ", end.index, " (pid ", processes_.pid(end.index), ") ", end.text()})});
    }
    /// For an elastic job: there is no world yet that could continue without the rank. Ranks that
    /// wait for it get an error, and end. A rank that never takes part in the rendezvous continues.
    void lose_before_rendezvous(const ProcessEnd& end) {
        report(end);
        if (!lost_before_rendezvous_) lost_before_rendezvous_ = end.exit_code();
        say({"rank ", end.index, " (pid ", processes_.pid(end.index), ") ", end.text(),
             " before all ranks had met; those that meet get an error"});
    }

    /// True if fewer ranks run than wanted. Counts those that wait to be added.
    [[nodiscard]] bool wants_more() const {
        return replaces() && !stopping_ && stop_at_ == never && first_good_ < 0 && staying() < wanted_;
    }
    /// The number of running ranks, without those that were told to end.
    [[nodiscard]] int staying() const {
        int found = 0;
        for (int rank = 0; rank < processes_.size(); ++rank)
            if (processes_.is_running(rank) && !dismissed_[static_cast<std::size_t>(rank)]) ++found;
        return found;
    }
    /// True if a rank runs to which others can be added. Ranks that wait to be added do not count.
    [[nodiscard]] bool has_member() const {
        for (int rank = 0; rank < processes_.size(); ++rank) {
            const bool stays = processes_.is_running(rank) && !dismissed_[static_cast<std::size_t>(rank)];
            if (stays && (rank < options_.ranks || folder_->has_added(rank))) return true;
        }
        return false;
    }
    /// Ends the job if all ranks of the world are lost and only processes that wait to be added are
    /// left.
    void look_for_world(nanoseconds now) {
        if (now < look_for_world_at_) return;
        look_for_world_at_ = never;
        const bool over = stopping_ || stop_at_ != never || first_good_ >= 0 || processes_.running() == 0;
        if (!replaces() || over || has_member()) {
            no_world_since_ = never;
            return;
        }
        look_for_world_at_ = now + 250'000'000;
        no_world_since_ = folder_->has_world() ? never : std::min(no_world_since_, now);
        if (no_world_since_ == never || now - no_world_since_ < settle) return;
        say({"no rank of the world is left; stopping those that wait to be added"});
        fail(lost_, true);
        stop(SIGTERM);
    }
    /// Starts a process that the world adds: in place of a lost one, or because of SIGUSR1. Returns
    /// false if it cannot be started.
    bool start_newcomer() {
        const int rank = processes_.size();
        try {
            folder_->forget(rank);
            start(rank);
        } catch (const error& failed) {
            lose_start(rank, failed.why().message);
            return false;
        }
        say({"starts rank ", rank, " (pid ", processes_.pid(rank), "), to be added to the world"});
        return true;
    }
    /// Counts a rank that could not be started as lost. The next attempt is a little later: the
    /// program's file may be in the course of being built.
    void lose_start(int rank, const std::string& why) {
        say({"cannot start rank ", rank, ", which was to be added to the world: ", why, "; ", staying(),
             staying() == 1 ? " rank continues" : " ranks continue"});
        start_at_ = steady_now() + 1'000'000'000;
        look_for_world_at_ = steady_now();
        forgo_replacement(rank);
    }
    /// Called when a rank was lost. If it may not be replaced, reduces the number of wanted ranks.
    void forgo_replacement(int lost) {
        const auto index = static_cast<std::size_t>(lost);
        if (!replaces() || (index < dismissed_.size() && dismissed_[index]) || first_good_ >= 0) return;
        if (restarted_ < options_.restarts) {
            ++restarted_;
            return;
        }
        --wanted_;
        say({"rank ", lost, " is not replaced, since --restarts is ", options_.restarts});
    }
    /// Handles SIGUSR1 and SIGUSR2. For SIGUSR2 the rank that was started last is killed, so that
    /// the others know at once that it is gone. An update in progress is repeated without it.
    void change_ranks(int signal) {
        if (stopping_ || first_good_ >= 0) return;
        if (signal == SIGUSR1) {
            if (wanted_ >= options_.most)
                say({"SIGUSR1: there are ", wanted_, " ranks, the most that --elastic allows"});
            else ++wanted_;
            return;
        }
        if (!hub_->complete()) {
            say({"SIGUSR2: the ranks have not met yet"});
            return;
        }
        if (wanted_ <= options_.least) {
            say({"SIGUSR2: there are ", wanted_, " ranks, the fewest that --elastic allows"});
            return;
        }
        if (staying() >= wanted_) { // else a rank that has not been started yet is not started
            int last = processes_.size() - 1;
            while (!processes_.is_running(last) || dismissed_[static_cast<std::size_t>(last)]) --last;
            dismissed_[static_cast<std::size_t>(last)] = true;
            processes_.signal(last, SIGKILL);
        }
        --wanted_;
    }

    /// Ranks work together, so they end together. A rank that still runs much later may be stopped,
    /// or hang in code of its own.
    void look_for_late_ranks(nanoseconds now) {
        if (first_good_ < 0 || stopping_ || now < std::min(notice_at_, wait_until_)) return;
        std::string late;
        for (int rank = 0; rank < processes_.size(); ++rank) {
            if (!processes_.is_running(rank)) continue;
            late +=
                concat({late.empty() ? "rank " : ", rank ", rank, " (pid ", processes_.pid(rank),
                        is_stopped(processes_.pid(rank)) ? "), which is stopped (by a signal or a debugger)" : ")"});
        }
        const auto seconds = [](nanoseconds time) { return fixed_text(static_cast<double>(time) * 1e-9, 1); };
        const bool over = now >= wait_until_;
        const std::string ended =
            concat({"rank ", first_good_, " ended well ", seconds(now - first_good_at_), " s ago; "});
        if (over)
            say({ended, "not ended within --wait ", seconds(options_.wait.count()), " s: ", late,
                 "; stopping the job"});
        else say({ended, "still running: ", late, "; --wait ends the job in ", seconds(wait_until_ - now), " s"});
        notice_at_ = never;
        if (!over) return;
        fail(124);
        stop(SIGTERM);
    }

    /// Sets the status of the job; the first failure counts.
    void fail(int status, bool of_rank = false) {
        if (status_) return;
        status_ = status;
        of_rank_ = of_rank;
    }

    /// The status of the job. Ranks that learn of a fault may end before the rank that caused it,
    /// whose status counts.
    int final_status() {
        const std::optional<Fault> fault = hub_->first_fault();
        if (!fault || !of_rank_ || options_.least != 0) return status_.value_or(0);
        const int rank = blamed(*fault);
        if (rank < 0 || !ends_[static_cast<std::size_t>(rank)]) return status_.value_or(0);
        return ends_[static_cast<std::size_t>(rank)]->exit_code();
    }
    static int blamed(const Fault& fault) { return fault.code == ErrorCode::peer_lost ? fault.peer : fault.rank; }

    void stop(int signal) {
        stop_at_ = never;
        stopping_ = true;
        processes_.signal_all(signal);
        processes_.signal_all(SIGCONT); // a stopped process handles no other signal
        kill_at_ = std::min(kill_at_, deadline_after(steady_now(), options_.grace));
    }

    void pass_on_signals() {
        signalfd_siginfo info;
        while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
            const int signal = static_cast<int>(info.ssi_signo);
            if (signal == SIGCHLD) continue; // it only wakes this loop
            if (replaces() && (signal == SIGUSR1 || signal == SIGUSR2)) {
                change_ranks(signal);
            } else if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGCONT) {
                processes_.signal_all(signal);
            } else if (asked_to_stop_ != 0) {
                // timeout(1) and job steps send SIGTERM to this process and to its process group:
                // one request, which arrives twice.
                const bool again = signal == SIGTERM && steady_now() - asked_to_stop_at_ < 1'000'000'000;
                if (!again) kill_at_ = 0;
            } else {
                asked_to_stop_ = signal;
                asked_to_stop_at_ = steady_now();
                stop(signal);
            }
        }
    }

    void say(std::initializer_list<TextPart> text) { outputs_.say(concat({"unisono-run: ", concat(text), "\n"})); }

    LaunchOptions options_;
    RankOutputs outputs_;
    FileDescriptor signals_;
    sigset_t signals_before_ = {};
    std::optional<RankStarter> starter_;
    nanoseconds start_at_ = 0;            ///< the earliest time to start the next process that is to be added
    std::optional<ElasticFolder> folder_; ///< where new processes find the world
    int wanted_ = 0;                      ///< number of ranks that are to run
    int restarted_ = 0;                   ///< number of ranks that were lost and replaced
    int lost_ = 0;                        ///< the status of the last lost rank
    nanoseconds look_for_world_at_ = never;
    nanoseconds no_world_since_ = never; ///< since when only processes that wait to be added run
    std::unique_ptr<Hub> hub_;
    Processes processes_;
    nanoseconds timeout_at_ = never;
    nanoseconds stop_at_ = never; ///< when SIGTERM is sent
    nanoseconds kill_at_ = never; ///< when SIGKILL is sent
    bool stopping_ = false;
    int ended_well_ = 0;
    int first_good_ = -1; ///< the first rank that ended successfully
    nanoseconds first_good_at_ = 0;
    nanoseconds notice_at_ = never;  ///< when the ranks that still run are named
    nanoseconds wait_until_ = never; ///< when the ranks that still run are stopped
    int asked_to_stop_ = 0;          ///< the signal that asked to stop; 0: none
    nanoseconds asked_to_stop_at_ = 0;
    std::optional<int> lost_before_rendezvous_; ///< the status of the first rank that was lost before the rendezvous
    std::optional<int> status_;
    bool of_rank_ = false;                        ///< `status_` is the status of a rank
    std::vector<std::optional<ProcessEnd>> ends_; ///< the ends of the ranks that failed
    std::vector<bool> dismissed_;                 ///< ranks that were killed because of SIGUSR2
};

} // namespace

int run_job(const LaunchOptions& options) { return LocalLauncher(options).run(); }

} // namespace unisono_run
