#pragma once

/// \file
/// Processes in virtual time: their connections, the groups of ranks that they form one after
/// another, and what each hears when one of them ends. Exactly one runs at a time (see
/// transport/simulated.hpp), so nothing here is locked.

#include "unisono/core/text.hpp"
#include "unisono/elastic/membership_wire.hpp"
#include "unisono/transport/simulated/world.hpp"

#include <algorithm>
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
    std::uint64_t salt = 0;     ///< of its messages' tags
    std::vector<int> processes; ///< by rank
    std::vector<char> here;     ///< has come to meet
    std::vector<char> left;
    std::vector<char> faulty; ///< has heard of the fault
    std::optional<Fault> fault;

    [[nodiscard]] int rank_of(int process) const {
        return static_cast<int>(std::find(processes.begin(), processes.end(), process) - processes.begin());
    }
    [[nodiscard]] bool hears_fault(int rank) const { return faulty[static_cast<std::size_t>(rank)] != 0; }
    [[nodiscard]] bool is_complete() const {
        return std::all_of(here.begin(), here.end(), [](char one) { return one != 0; });
    }
};

/// All processes. Those of the first world have their members' numbers as theirs; the others come
/// later.
class SimulatedProcesses {
public:
    /// Something that a process reads from a connection.
    struct Letter {
        enum class Kind : std::uint8_t { message, connection, end };
        Kind kind = Kind::message;
        int from = 0;         ///< process
        int number = -1;      ///< of a connection: its maker's as a member
        int your_number = -1; ///< and its target's
        Blob bytes = {};      ///< of a message
        bool is_goodbye = false;
    };

    SimulatedProcesses(int first, int later, const SimulationOptions& options)
        : world_(first + later, without_crashes(options)), all_(static_cast<std::size_t>(first + later)), first_(first),
          detection_ns_(std::min(options.detection_ns, SimulationOptions::longest)), chance_(options.seed, 4) {
        for (int process = 0; process < first; ++process) {
            at(process).number = process;
            for (int other = 0; other < first; ++other)
                if (other != process) connect(process, other, other);
        }
        world_.on_crash([this](int process) { end(process); });
        for (const RankCrash& one : options.crashes)
            world_.later(one.at_ns, [this, one] { world_.crash_now(one.rank); });
    }

    [[nodiscard]] SimulatedWorld& world() { return world_; }
    [[nodiscard]] int first() const { return first_; }
    [[nodiscard]] int number(int process) const { return at(process).number; }
    /// Two groups of ranks have been whole at the same time.
    [[nodiscard]] bool has_seen_two_worlds() const { return two_worlds_; }

    // Connections.

    [[nodiscard]] bool knows(int process, int number) const { return at(process).process_of.contains(number); }
    void send(int from, int number, Blob bytes, bool is_goodbye) {
        const auto to = at(from).process_of.find(number);
        if (to == at(from).process_of.end() || !at(from).open.contains(to->second)) return;
        post(to->second, {.from = from, .bytes = std::move(bytes), .is_goodbye = is_goodbye});
    }
    /// Connects to one that was added; false where its process is known to have ended.
    bool reach(int from, int number, int to) {
        at(from).process_of[number] = to;
        if (at(to).ended) return false;
        at(from).open.insert(to);
        post(to, {.kind = Letter::Kind::connection, .from = from, .number = at(from).number, .your_number = number});
        return true;
    }
    /// The number of the member that a letter comes from, and -1 for a letter that is not to be
    /// read.
    int read(int process, const Letter& letter) {
        Process& me = at(process);
        if (letter.kind == Letter::Kind::connection) {
            if (at(letter.from).ended || (me.number >= 0 && me.number != letter.your_number))
                return refuse(process, letter);
            me.number = letter.your_number;
            connect(process, letter.from, letter.number);
            return letter.number;
        }
        if (!me.open.contains(letter.from)) return -1;
        if (letter.kind == Letter::Kind::end) me.open.erase(letter.from);
        if (letter.is_goodbye) me.goodbyes.insert(letter.from);
        if (letter.kind == Letter::Kind::end && me.goodbyes.contains(letter.from)) return -1;
        for (const auto& [number, other] : me.process_of)
            if (other == letter.from) return number;
        return -1;
    }
    [[nodiscard]] std::deque<Letter>& letters(int process) { return at(process).letters; }
    /// Waits for a letter, or until then. Errors: the simulation's own fault, where nothing can
    /// wake anybody.
    void wait(int process, nanoseconds until) {
        if (at(process).letters.empty()) world_.idle(process, until);
        if (const Fault* const fault = world_.first_fault()) throw error(*fault);
    }

    // Groups of ranks.

    /// The processes meet. Errors: peer_lost and timeout, as the network's.
    std::shared_ptr<SimulatedView> meet(int process, std::uint64_t epoch, const std::vector<int>& numbers,
                                        nanoseconds deadline) {
        const std::shared_ptr<SimulatedView> view = view_of(process, epoch, numbers);
        const auto me = static_cast<std::size_t>(view->rank_of(process));
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
                      .rank = -1,
                      .peer = -1,
                      .operation = "elastic",
                      .sequence = epoch,
                      .message = "the next world's ranks do not come"});
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
        for (const int other : view->processes)
            if (other != process) world_.later(soon(process, other), [this, other] { world_.wake(other); });
    }
    [[nodiscard]] bool has_left(const SimulatedView& view, int rank) const {
        return view.left[static_cast<std::size_t>(rank)] != 0 &&
               !world_.has_messages_under_way(view.processes[static_cast<std::size_t>(rank)]);
    }
    /// A rank has found a fault: it knows at once, the others soon.
    void fail(const std::shared_ptr<SimulatedView>& view, int rank, const Fault& fault) {
        if (!view->fault) view->fault = fault;
        view->faulty[static_cast<std::size_t>(rank)] = true;
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

    /// The process has ended, or was killed: the system closes its connections.
    void end(int process) {
        Process& gone = at(process);
        if (std::exchange(gone.ended, true)) return;
        for (const int other : std::exchange(gone.open, {})) post(other, {.kind = Letter::Kind::end, .from = process});
        if (gone.view != nullptr) fail_later(gone.view, lost(process));
        gone.view = nullptr;
    }

private:
    struct Process {
        int number = -1;
        bool ended = false;
        std::map<int, int> process_of = {}; ///< members that it knows
        std::set<int> open = {};            ///< connections
        std::set<int> goodbyes = {};
        std::deque<Letter> letters = {};
        std::map<int, nanoseconds> last = {}; ///< arrival of what each other one has sent
        std::shared_ptr<SimulatedView> view = {};
    };

    static SimulationOptions without_crashes(SimulationOptions options) {
        options.crashes.clear();
        options.detection_ns = never; // what a crash means to whom is said here
        return options;
    }
    [[nodiscard]] Process& at(int process) { return all_[static_cast<std::size_t>(process)]; }
    [[nodiscard]] const Process& at(int process) const { return all_[static_cast<std::size_t>(process)]; }
    void connect(int process, int other, int number) {
        at(process).process_of[number] = other;
        at(process).open.insert(other);
    }
    int refuse(int process, const Letter& letter) {
        post(letter.from, {.kind = Letter::Kind::end, .from = process});
        return -1;
    }
    [[nodiscard]] nanoseconds soon(int from, int to) { return world_.small_arrival(from, to); }

    /// A connection keeps the order.
    void post(int to, Letter letter) {
        nanoseconds& last = at(to).last[letter.from];
        last = std::max(last + 1, soon(letter.from, to));
        world_.later(last, [this, to, moved = std::make_shared<Letter>(std::move(letter))] {
            if (at(to).ended) {
                if (moved->kind == Letter::Kind::connection) refuse(to, *moved);
                return;
            }
            at(to).letters.push_back(std::move(*moved));
            world_.wake(to);
        });
    }
    std::shared_ptr<SimulatedView> view_of(int process, std::uint64_t epoch, const std::vector<int>& numbers) {
        std::vector<int> processes;
        for (const int number : numbers)
            processes.push_back(number == at(process).number ? process : at(process).process_of.at(number));
        std::shared_ptr<SimulatedView>& view = views_[{epoch, processes}];
        if (view == nullptr) {
            view = std::make_shared<SimulatedView>();
            view->epoch = epoch;
            view->salt = 0x9e3779b97f4a7c15u * views_.size();
            view->processes = processes;
            for (std::vector<char>* const flags : {&view->here, &view->left, &view->faulty})
                flags->assign(processes.size(), 0);
        }
        return view;
    }
    [[nodiscard]] Fault lost(int process) const {
        return {.code = ErrorCode::peer_lost,
                .rank = -1,
                .peer = -1,
                .operation = {},
                .sequence = 0,
                .message = concat({"process ", process, " (member ", at(process).number, ") has ended"})};
    }
    void fail_later(const std::shared_ptr<SimulatedView>& view, Fault fault) {
        for (std::size_t rank = 0; fault.rank < 0 && rank < view->processes.size(); ++rank)
            if (!at(view->processes[rank]).ended) fault.rank = static_cast<int>(rank);
        if (!view->fault) view->fault = std::move(fault);
        spread(view, -1);
    }
    /// Each rank hears of the fault after a while of its own.
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
    std::set<int> applicants_;
    bool two_worlds_ = false;
};

/// The transport of one process as a rank of one world of several.
class SimulatedMember {
public:
    static constexpr std::string_view name = "simulated";
    static constexpr bool maps_peers = false;
    static constexpr bool virtual_time = true;
    static constexpr std::size_t exchange_bytes = 16384;

    /// A rank alone, in a world of its own.
    SimulatedMember() : SimulatedMember(std::make_shared<SimulatedProcesses>(1, 0, SimulationOptions{})) {}
    SimulatedMember(std::shared_ptr<SimulatedProcesses> processes, int process, std::shared_ptr<SimulatedView> view)
        : processes_(std::move(processes)), view_(std::move(view)), process_(process), rank_(view_->rank_of(process)) {}
    SimulatedMember(SimulatedMember&&) noexcept = default;
    SimulatedMember& operator=(SimulatedMember&&) = delete;
    ~SimulatedMember() {
        if (processes_ == nullptr) return;
        processes_->leave_view(process_, view_);
    }

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return static_cast<int>(view_->processes.size()); }
    [[nodiscard]] nanoseconds now() const { return processes_->world().now(process_); }

    bool post_send(int peer, Envelope envelope, const std::byte* data, Token token) {
        if (first_fault() != nullptr) return true;
        envelope.tag.context ^= view_->salt;
        return processes_->world().send(process_, process_of(peer), envelope, data, token);
    }
    void post_receive(int peer, Tag tag, Token token) {
        tag.context ^= view_->salt;
        processes_->world().post_receive(process_, process_of(peer), tag, token);
    }
    template <class Sink>
    void progress(Sink& sink) {
        if (first_fault() == nullptr) processes_->world().progress(process_, sink);
    }
    void idle(std::uint32_t, nanoseconds until) {
        if (first_fault() == nullptr) processes_->world().idle(process_, until);
    }

    void abort(const Fault& fault) { processes_->fail(view_, rank_, fault); }
    [[nodiscard]] const Fault* first_fault() const {
        return view_->hears_fault(rank_) ? &*view_->fault : processes_->world().first_fault();
    }
    [[nodiscard]] bool has_left(int peer) const { return processes_->has_left(*view_, peer); }
    Announcements announcements(std::uint64_t context, int size) {
        return processes_->world().announcements(context ^ view_->salt, size);
    }
    /// This process computes for so long, in virtual time: what comes meanwhile waits.
    void compute(nanoseconds duration) { processes_->world().compute(process_, duration); }
    void reach_shared_memory() { processes_->world().reach(process_); }

private:
    /// A process that no other knows, driven by its caller.
    explicit SimulatedMember(const std::shared_ptr<SimulatedProcesses>& alone)
        : SimulatedMember(alone, 0, (alone->world().enter(0), alone->meet(0, 0, {0}, never))) {}
    [[nodiscard]] int process_of(int peer) const { return view_->processes[static_cast<std::size_t>(peer)]; }

    std::shared_ptr<SimulatedProcesses> processes_;
    std::shared_ptr<SimulatedView> view_;
    int process_;
    int rank_;
};
static_assert(transport<SimulatedMember>);

} // namespace detail
UNISONO_NAMESPACE_END
