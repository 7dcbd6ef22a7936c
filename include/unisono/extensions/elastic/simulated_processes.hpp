#pragma once

/// \file
/// Processes in virtual time: their connections, the groups of ranks that they form one after
/// another, and what each process learns when another ends. Exactly one process runs at a time (see
/// extensions/simulated/simulated.hpp), so nothing is locked.

#include "unisono/core/text.hpp"
#include "unisono/extensions/elastic/membership_messages.hpp"
#include "unisono/extensions/simulated/simulated.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The ranks of one epoch's world.
struct SimulatedView {
    std::uint64_t epoch = 0;
    std::uint64_t salt = 0;     ///< salt of its messages' tags
    std::vector<int> processes; ///< process of each rank
    std::vector<char> here;     ///< ranks that have arrived
    std::size_t awaited = 0;    ///< number of ranks that have not arrived
    std::vector<char> left;
    std::vector<char> faulty; ///< ranks that know of the fault
    std::optional<Fault> fault;
    bool is_lost = false; ///< all ranks learn that a process has ended

    [[nodiscard]] int rank_of(int process) const {
        return static_cast<int>(std::find(processes.begin(), processes.end(), process) - processes.begin());
    }
    [[nodiscard]] bool hears_fault(int rank) const { return faulty[static_cast<std::size_t>(rank)] != 0; }
    [[nodiscard]] bool is_complete() const { return awaited == 0; }
};

/// All processes. A process of the first world has its member's number; the others come later.
class SimulatedProcesses {
public:
    /// An event that a process reads from a connection.
    struct Letter {
        enum class Kind : std::uint8_t { message, connection, end };
        Kind kind = Kind::message;
        int from = 0;         ///< the sending process
        int number = -1;      ///< of a connection: the sender's member number
        int your_number = -1; ///< of a connection: the receiver's member number
        Blob bytes = {};      ///< of a message: its content
        bool is_goodbye = false;
        friend bool operator==(const Letter&, const Letter&) = default;
    };

    SimulatedProcesses(int first, int later, const SimulationOptions& options)
        : world_(first + later, without_crashes(options)), all_(static_cast<std::size_t>(first + later)), first_(first),
          detection_ns_(std::min(options.detection_ns, SimulationOptions::longest)), chance_(options.seed, 4) {
        for (int process = 0; process < first; ++process) {
            at(process).number = process;
            at(process).knows_first.assign(static_cast<std::size_t>(first), true);
            at(process).knows_first[static_cast<std::size_t>(process)] = false;
            at(process).open = at(process).knows_first;
        }
        for (Process& one : all_) one.open.resize(all_.size());
        world_.on_crash([this](int process) { end(process); });
        for (const RankCrash& one : options.crashes)
            world_.later(one.at_ns, [this, one] { world_.crash_now(one.rank); });
    }

    [[nodiscard]] SimulatedWorld& world() { return world_; }
    [[nodiscard]] int first() const { return first_; }
    [[nodiscard]] int number(int process) const { return at(process).number; }
    /// True if two groups of ranks were complete at the same time.
    [[nodiscard]] bool has_seen_two_worlds() const { return two_worlds_; }

    // Connections.

    [[nodiscard]] bool knows(int process, int number) const { return process_of(process, number) >= 0; }
    void send(int from, int number, Blob bytes, bool is_goodbye) {
        const int to = process_of(from, number);
        if (to < 0 || !at(from).is_open(to)) return;
        post(to, {.from = from, .bytes = std::move(bytes), .is_goodbye = is_goodbye});
    }
    /// Connects to an added process. Returns false if it is known to have ended.
    bool reach(int from, int number, int to) {
        know(from, number, to);
        if (at(to).ended) return false;
        at(from).open[static_cast<std::size_t>(to)] = true;
        post(to, {.kind = Letter::Kind::connection, .from = from, .number = at(from).number, .your_number = number});
        return true;
    }
    /// The sender's member number; -1: the letter is to be dropped.
    int read(int process, const Letter& letter) {
        Process& me = at(process);
        if (letter.kind == Letter::Kind::connection) {
            if (at(letter.from).ended || (me.number >= 0 && me.number != letter.your_number))
                return refuse(process, letter);
            me.number = letter.your_number;
            connect(process, letter.from, letter.number);
            return letter.number;
        }
        if (!me.is_open(letter.from)) return -1;
        if (letter.kind == Letter::Kind::end) me.open[static_cast<std::size_t>(letter.from)] = false;
        if (letter.is_goodbye) me.goodbyes.insert(letter.from);
        if (letter.kind == Letter::Kind::end && me.goodbyes.contains(letter.from)) return -1;
        if (letter.from < first_) return me.has_known(letter.from) ? letter.from : -1;
        for (const auto& [number, other] : me.added)
            if (other == letter.from) return number;
        return -1;
    }
    [[nodiscard]] std::deque<std::shared_ptr<const Letter>>& letters(int process) { return at(process).letters; }
    /// Waits for a letter until the given time. \throws error if no process can ever be woken (a
    /// deadlock of the simulation).
    void wait(int process, nanoseconds until) {
        if (at(process).letters.empty()) world_.idle(process, until);
        if (const Fault* const fault = world_.first_fault()) throw error(*fault);
    }

    // Groups of ranks.

    /// The rendezvous of these members as ranks of a group. Errors: peer_lost and timeout, as over
    /// a network.
    std::shared_ptr<SimulatedView> meet(int process, std::uint64_t epoch, const std::vector<int>& numbers,
                                        nanoseconds deadline) {
        std::shared_ptr<SimulatedView> view = view_of(process, epoch, numbers);
        const auto me = static_cast<std::size_t>(view->rank_of(process));
        view->awaited -= view->here[me] == 0;
        view->here[me] = true;
        at(process).view = view;
        for (const int other : view->processes) {
            if (at(other).ended) fail_later(view, lost(other));
            else if (view->is_complete()) world_.wake(other);
        }
        if (view->is_complete()) look_for_two_worlds();
        while (!view->is_complete() && !view->faulty[me]) {
            if (world_.now(process) >= deadline)
                fail(view, static_cast<int>(me),
                     {.code = ErrorCode::timeout,
                      .operation = "elastic",
                      .sequence = epoch,
                      .message = "the next world's ranks have not connected in time"});
            else world_.idle(process, deadline);
            if (const Fault* const fault = world_.first_fault()) throw error(*fault);
        }
        if (view->faulty[me]) {
            at(process).view = nullptr;
            throw error(*view->fault);
        }
        world_.enter_view(process, epoch + 1);
        return view;
    }
    void leave_view(int process, const std::shared_ptr<SimulatedView>& view) {
        view->left[static_cast<std::size_t>(view->rank_of(process))] = true;
        if (at(process).view == view) at(process).view = nullptr;
        if (at(process).ended) return;
        world_.enter_view(process, view->epoch + 2);
        if (view->fault) return; // they learn of the fault, and need not learn that this rank left
        std::map<nanoseconds, std::vector<int>> hear;
        for (const int other : view->processes)
            if (other != process) hear[soon(process, other)].push_back(other);
        for (auto& [time, others] : hear)
            world_.later(time, [this, view, woken = std::move(others)] {
                for (const int other : woken)
                    if (at(other).view == view) world_.wake(other);
            });
    }
    [[nodiscard]] bool has_left(const SimulatedView& view, int rank) const {
        return view.left[static_cast<std::size_t>(rank)] != 0 &&
               !world_.has_messages_under_way(view.processes[static_cast<std::size_t>(rank)]);
    }
    /// A rank has found a fault: it knows at once, the others soon after.
    void fail(const std::shared_ptr<SimulatedView>& view, int rank, const Fault& fault) {
        if (std::exchange(view->faulty[static_cast<std::size_t>(rank)], char{1}) != 0) return;
        if (!view->fault) view->fault = fault;
        spread(view, view->processes[static_cast<std::size_t>(rank)]);
    }

    // Processes that wait to be added.

    void apply(int process) { applicants_.insert(process); }
    void forget(const std::vector<Applicant>& added) {
        for (const Applicant& one : added) applicants_.erase(process_of(one));
    }
    [[nodiscard]] std::vector<Applicant> applicants(int listener) const {
        std::vector<Applicant> found;
        for (const int one : applicants_)
            if (!at(one).ended && at(one).number < 0 && world_.reaches(listener, one))
                found.push_back({.identity = static_cast<std::uint64_t>(one) + 1});
        return found;
    }
    static int process_of(const Applicant& one) { return static_cast<int>(one.identity) - 1; }

    /// Called when a process has ended or was killed: the system closes its connections.
    void end(int process) {
        Process& gone = at(process);
        if (std::exchange(gone.ended, true)) return;
        for (int other = 0; other < static_cast<int>(all_.size()); ++other)
            if (gone.is_open(other)) post(other, {.kind = Letter::Kind::end, .from = process});
        gone.open.assign(all_.size(), false);
        if (gone.view != nullptr) fail_later(gone.view, lost(process));
        gone.view = nullptr;
    }

private:
    struct Process {
        int number = -1;
        bool ended = false;
        std::vector<bool> knows_first = {}; ///< known members of the first world, by process, which is their number
        std::map<int, int> added = {};      ///< processes of other known members, by their numbers
        std::vector<bool> open = {};        ///< open connections, by process
        std::set<int> goodbyes = {};
        std::deque<std::shared_ptr<const Letter>> letters = {};
        std::vector<nanoseconds> last = {}; ///< arrival of the last letter from each other process
        std::shared_ptr<SimulatedView> view = {};

        [[nodiscard]] bool is_open(int other) const { return open[static_cast<std::size_t>(other)]; }
        [[nodiscard]] bool has_known(int first) const {
            return !knows_first.empty() && knows_first[static_cast<std::size_t>(first)];
        }
    };
    /// A letter in flight, and its receivers at that time.
    struct Post {
        std::shared_ptr<const Letter> letter;
        std::vector<int> to;
    };

    static SimulationOptions without_crashes(SimulationOptions options) {
        options.crashes.clear();
        options.detection_ns = never; // this class decides what each process learns of a crash
        return options;
    }
    [[nodiscard]] Process& at(int process) { return all_[static_cast<std::size_t>(process)]; }
    [[nodiscard]] const Process& at(int process) const { return all_[static_cast<std::size_t>(process)]; }
    void know(int process, int number, int other) {
        Process& me = at(process);
        if (number >= first_) {
            me.added[number] = other;
            return;
        }
        me.knows_first.resize(static_cast<std::size_t>(first_));
        me.knows_first[static_cast<std::size_t>(number)] = true;
    }
    void connect(int process, int other, int number) {
        know(process, number, other);
        at(process).open[static_cast<std::size_t>(other)] = true;
    }
    /// The process of a member; -1: `process` does not know that member.
    [[nodiscard]] int process_of(int process, int number) const {
        if (number < first_) return number >= 0 && at(process).has_known(number) ? number : -1;
        const auto found = at(process).added.find(number);
        return found == at(process).added.end() ? -1 : found->second;
    }
    int refuse(int process, const Letter& letter) {
        post(letter.from, {.kind = Letter::Kind::end, .from = process});
        return -1;
    }
    [[nodiscard]] nanoseconds soon(int from, int to) { return world_.small_arrival(from, to); }

    /// A connection keeps the order. A message to many receivers is one letter.
    void post(int to, const Letter& letter) {
        std::vector<nanoseconds>& all = at(to).last;
        all.resize(all_.size());
        nanoseconds& last = all[static_cast<std::size_t>(letter.from)];
        const bool is_large = letter.kind == Letter::Kind::message && !letter.is_goodbye;
        last = std::max(last + 1,
                        is_large ? world_.arrival_of(letter.from, to, letter.bytes.size()) : soon(letter.from, to));
        std::vector<Post>& posted = posted_[last];
        if (posted.empty()) world_.later(last, [this, time = last] { deliver(time); });
        if (posted.empty() || !(*posted.back().letter == letter))
            posted.push_back({std::make_shared<const Letter>(letter), {}});
        posted.back().to.push_back(to);
    }
    void deliver(nanoseconds time) {
        const auto found = posted_.find(time);
        const std::vector<Post> all = std::move(found->second);
        posted_.erase(found);
        for (const Post& one : all)
            for (const int to : one.to) {
                if (at(to).ended) {
                    if (one.letter->kind == Letter::Kind::connection) refuse(to, *one.letter);
                    continue;
                }
                at(to).letters.push_back(one.letter);
                world_.wake(to);
            }
    }
    std::shared_ptr<SimulatedView> view_of(int process, std::uint64_t epoch, const std::vector<int>& numbers) {
        std::vector<int> processes;
        processes.reserve(numbers.size());
        for (const int number : numbers)
            processes.push_back(number == at(process).number ? process : process_of(process, number));
        std::shared_ptr<SimulatedView>& view = views_[{epoch, processes}];
        if (view == nullptr) {
            view = std::make_shared<SimulatedView>();
            view->epoch = epoch;
            view->salt = 0x9e3779b97f4a7c15u * views_.size();
            view->processes = processes;
            view->awaited = processes.size();
            for (std::vector<char>* const flags : {&view->here, &view->left, &view->faulty})
                flags->assign(processes.size(), 0);
        }
        return view;
    }
    [[nodiscard]] Fault lost(int process) const {
        return {.code = ErrorCode::peer_lost,
                .message = concat({"process ", process, " (member ", at(process).number, ") has ended"})};
    }
    void fail_later(const std::shared_ptr<SimulatedView>& view, Fault fault) {
        if (std::exchange(view->is_lost, true)) return;
        for (std::size_t rank = 0; fault.rank < 0 && rank < view->processes.size(); ++rank)
            if (!at(view->processes[rank]).ended) fault.rank = static_cast<int>(rank);
        if (!view->fault) view->fault = std::move(fault);
        spread(view, -1);
    }
    /// Each rank learns of the fault after a delay of its own.
    void spread(const std::shared_ptr<SimulatedView>& view, int teller) {
        for (std::size_t rank = 0; rank < view->processes.size(); ++rank) {
            if (view->faulty[rank] != 0) continue;
            const int process = view->processes[rank];
            const nanoseconds after =
                teller >= 0 ? soon(teller, process)
                            : world_.clock() +
                                  static_cast<nanoseconds>(chance_() % (static_cast<std::uint64_t>(detection_ns_) + 1));
            world_.later(after, [this, view, rank, process] {
                view->faulty[rank] = true;
                world_.wake(process);
            });
        }
    }
    void look_for_two_worlds() {
        int whole = 0;
        for (const auto& one : views_) {
            const std::shared_ptr<SimulatedView>& view = one.second;
            const auto works = [&](int process) { return !at(process).ended && at(process).view == view; };
            whole += view->is_complete() && std::all_of(view->processes.begin(), view->processes.end(), works);
        }
        two_worlds_ = two_worlds_ || whole > 1;
    }

    SimulatedWorld world_;
    std::vector<Process> all_;
    int first_;
    nanoseconds detection_ns_;
    CounterRandom chance_;
    std::map<std::pair<std::uint64_t, std::vector<int>>, std::shared_ptr<SimulatedView>> views_;
    std::map<nanoseconds, std::vector<Post>> posted_; ///< letters in flight, by the time of their arrival
    std::set<int> applicants_;
    bool two_worlds_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
