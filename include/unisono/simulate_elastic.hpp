#pragma once

/// \file
/// Elastic worlds in virtual time: processes that crash, stop, are cut off or come later, as a seed
/// determines. The formation, the membership and the trainer are those that run over sockets. Not
/// part of the umbrella.

#include "unisono/core/hash.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/thread_limits.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/elastic.hpp"
#include "unisono/extensions/elastic/simulated_processes.hpp"
#include "unisono/extensions/launch/secrets/token.hpp"
#include "unisono/transport/endpoint.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The transport of one process as a rank of one of several worlds.
class SimulatedMember : public Endpoint {
public:
    static constexpr std::string_view name = "simulated";
    static constexpr bool maps_peers = false;
    static constexpr bool virtual_time = true;
    static constexpr std::size_t exchange_bytes = 16384;

    /// A rank alone in its own world.
    SimulatedMember() : SimulatedMember(std::make_shared<SimulatedProcesses>(1, 0, SimulationOptions{})) {}
    SimulatedMember(std::shared_ptr<SimulatedProcesses> processes, int process, std::shared_ptr<SimulatedView> view)
        : Endpoint(view->rank_of(process), static_cast<int>(view->processes.size()),
                   {.name = name, .virtual_time = true}),
          processes_(std::move(processes)), view_(std::move(view)), process_(process) {}
    SimulatedMember(SimulatedMember&&) noexcept = default;
    SimulatedMember& operator=(SimulatedMember&&) = delete;
    ~SimulatedMember() override {
        if (processes_ == nullptr) return;
        processes_->leave_view(process_, view_);
    }

    [[nodiscard]] nanoseconds now() const override { return processes_->world().now(process_); }

    bool send(int peer, const Envelope& envelope, const std::byte* data, Token token) override {
        if (fault() != nullptr) return true;
        return processes_->world().send(process_, process_of(peer), salted(envelope), data, token);
    }
    void receive(int peer, const Envelope& expected, Token token, std::byte*) override {
        processes_->world().post_receive(process_, process_of(peer), salted(expected).tag, token);
    }
    void progress(EndpointSink& sink) override {
        if (fault() == nullptr) processes_->world().progress(process_, sink);
    }
    void idle(std::uint32_t, nanoseconds until) override {
        if (fault() == nullptr) processes_->world().idle(process_, until);
    }

    void abort(const Fault& fault) override { processes_->fail(view_, rank(), fault); }
    [[nodiscard]] const Fault* fault() const override {
        return view_->hears_fault(rank()) ? &*view_->fault : processes_->world().first_fault();
    }
    [[nodiscard]] Presence presence(int peer) override {
        return processes_->has_left(*view_, peer) ? Presence::left : Presence::here;
    }
    [[nodiscard]] GroupBoard open(std::uint64_t context, std::span<const int> members) override {
        return {processes_->world().announcements(context ^ view_->salt, static_cast<int>(members.size())), {}, {}};
    }
    /// Simulates that this process computes for this long in virtual time. Events in the meantime
    /// wait.
    void compute(nanoseconds duration) { processes_->world().compute(process_, duration); }
    void reach_shared_memory() { processes_->world().reach(process_); }

private:
    /// A process that no other process knows; its caller drives it.
    explicit SimulatedMember(const std::shared_ptr<SimulatedProcesses>& alone)
        : SimulatedMember(alone, 0, (alone->world().enter(0), alone->meet(0, 0, {0}, never))) {}
    [[nodiscard]] int process_of(int peer) const { return view_->processes[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] Envelope salted(Envelope envelope) const {
        envelope.tag.context ^= view_->salt;
        return envelope;
    }

    std::shared_ptr<SimulatedProcesses> processes_;
    std::shared_ptr<SimulatedView> view_;
    int process_;
};
static_assert(transport<SimulatedMember>);

} // namespace detail

/// Processes in virtual time.
struct ElasticSimulation {
    /// The network and the seed. Its ranks are the processes: first those of the first world, then
    /// those that come later. `detection_ns`: the time within which a world's ranks learn of an
    /// ended process.
    SimulationOptions network = {};
    ElasticOptions elastic = {};
    std::vector<nanoseconds> joins = {};     ///< times at which further processes come, to be added
    nanoseconds longest = 3'600'000'000'000; ///< time after which a process that still waits ends with an error
};

/// The end of one process.
struct SimulatedProcess {
    bool crashed = false;
    std::exception_ptr threw = {}; ///< null: its body returned
    int number = -1;               ///< its member number; -1: it was never added
};

/// The end of a simulated elastic training.
struct ElasticSimulationReport {
    std::vector<SimulatedProcess> processes = {};
    nanoseconds time = 0;     ///< when the last process ended
    bool two_worlds = false;  ///< two worlds were complete at the same time, which must not happen
    std::uint64_t digest = 0; ///< hash of all events: equal for equal options
};

namespace detail {

/// A medium for MembershipFormation, in virtual time.
class SimulatedMedium {
public:
    SimulatedMedium(std::shared_ptr<SimulatedProcesses> processes, int process, const ElasticSimulation& options,
                    std::uint64_t job)
        : processes_(std::move(processes)), process_(process), longest_(options.longest), job_(job) {}

    [[nodiscard]] nanoseconds now() const { return processes_->world().now(process_); }
    [[nodiscard]] int me() const { return processes_->number(process_); }
    [[nodiscard]] std::uint64_t job() const { return job_; }
    [[nodiscard]] bool is_to_be_added() const { return process_ >= processes_->first(); }
    [[nodiscard]] std::vector<int> connect() const {
        std::vector<int> all;
        all.reserve(static_cast<std::size_t>(processes_->first()));
        for (int member = 0; member < processes_->first(); ++member) all.push_back(member);
        return all;
    }
    Group<SimulatedMember> first_group() { return meet_until(connect(), 0, never); }

    void send(int to, const MembershipMessage& message) {
        processes_->send(process_, to, encode(message), message.word == MembershipWord::goodbye);
    }
    [[nodiscard]] bool knows(int member) const { return processes_->knows(process_, member); }
    [[nodiscard]] bool is_connected(int member) const { return knows(member); }
    [[nodiscard]] std::uint64_t host_of(int) const { return 0; }
    Conclusion reach(int member, const Applicant& added) {
        return processes_->reach(process_, member, SimulatedProcesses::process_of(added)) ? Conclusion::none
                                                                                          : Conclusion::ended;
    }
    void all_are_here() const {}

    template <class Heard, class Lost, class Refused, class Came>
    void wait(nanoseconds until, Heard heard, Lost lost, Refused, Came came) {
        if (now() > longest_) throw error(ErrorCode::timeout, "the simulation has reached ElasticSimulation::longest");
        processes_->wait(process_, std::min(until, longest_ + 1));
        auto& letters = processes_->letters(process_);
        while (!letters.empty()) {
            const std::shared_ptr<const SimulatedProcesses::Letter> letter = std::move(letters.front());
            letters.pop_front();
            const int from = processes_->read(process_, *letter);
            if (from < 0) continue;
            MembershipMessage message;
            if (letter->kind == SimulatedProcesses::Letter::Kind::connection) came(from);
            else if (letter->kind == SimulatedProcesses::Letter::Kind::end) lost(from, true);
            else if (decode(letter->bytes, message)) heard(from, message);
        }
    }
    template <class Wait>
    Group<SimulatedMember> meet(const std::vector<int>& members, std::uint64_t epoch, nanoseconds allowed, Wait) {
        return meet_until(members, epoch, now() + allowed);
    }

    void listen(bool first, bool) { listens_ = listens_ || first; }
    [[nodiscard]] bool look() const { return listens_ && !applicants().empty(); }
    [[nodiscard]] std::vector<Applicant> applicants() const { return processes_->applicants(process_); }
    void forget(const std::vector<Applicant>& added) { processes_->forget(added); }
    void refuse(const std::vector<Applicant>&, const std::string&) const {}
    void end_training() const {}
    void hear_refusal() const {}

    void apply(nanoseconds) { processes_->apply(process_); }
    [[nodiscard]] error not_added() const {
        return {ErrorCode::timeout, concat({"process ", process_, " waited to be added, and no member has added it"})};
    }

private:
    Group<SimulatedMember> meet_until(const std::vector<int>& members, std::uint64_t epoch, nanoseconds deadline) {
        return Group<SimulatedMember>(
            SimulatedMember(processes_, process_, processes_->meet(process_, epoch, members, deadline)));
    }

    std::shared_ptr<SimulatedProcesses> processes_;
    int process_;
    nanoseconds longest_;
    std::uint64_t job_;
    bool listens_ = false;
};

/// `Rules`: the rules of the protocol. Tests leave out one of them.
template <class Rules, class Body>
ElasticSimulationReport simulate_elastic_by(int ranks, const ElasticSimulation& options, Body& body) {
    const int all = ranks + static_cast<int>(options.joins.size());
    check_run(all, {});
    check_elastic(options.elastic);
    options.network.check(all);
    if (options.longest < 0)
        refuse_input({"ElasticSimulation::longest is ", options.longest, ", expected at least 0 nanoseconds"});
    for (const nanoseconds join : options.joins)
        if (join < 0) refuse_input({"ElasticSimulation::joins has ", join, ", expected at least 0 nanoseconds"});
    const auto processes =
        std::make_shared<SimulatedProcesses>(ranks, static_cast<int>(options.joins.size()), options.network);
    // Two simulations may write checkpoints to one folder, at the same time or one after the other.
    const std::uint64_t job = fnv1a(fnv_basis, JobToken::random().text()) | 1;
    ElasticSimulationReport report;
    report.processes.resize(static_cast<std::size_t>(all));
    const auto live = [&](int process) {
        using Formation = MembershipFormation<SimulatedMember, SimulatedMedium, Rules>;
        SimulatedWorld& world = processes->world();
        SimulatedProcess& mine = report.processes[static_cast<std::size_t>(process)];
        world.enter(process);
        if (world.first_fault() != nullptr) return world.leave(process); // another process has no thread
        try {
            if (process >= ranks) world.compute(process, options.joins[static_cast<std::size_t>(process - ranks)]);
            ElasticWorld<SimulatedMember> elastic(
                std::make_unique<Formation>(options.elastic, SimulatedMedium(processes, process, options, job)));
            elastic.group().set_timeout(options.elastic.join.timeout);
            body(elastic);
        } catch (const SimulatedCrash&) {
            mine.crashed = true;
        } catch (...) {
            mine.threw = std::current_exception();
            if (ends_its_thread()) {
                mine.threw = std::make_exception_ptr(
                    error(ErrorCode::aborted, concat({"process ", process, " threw ", end_of_thread})));
                processes->end(process);
                world.leave(process);
                throw;
            }
        }
        mine.crashed = mine.crashed || world.statistics(process).crashed;
        mine.number = processes->number(process);
        processes->end(process);
        world.leave(process);
    };
    struct One {
        decltype(live)* run = nullptr;
        int process = 0;
        Thread thread = {};
    };
    FixedArray<One> threads(static_cast<std::size_t>(all));
    int failed = 0, started = 0;
    while (started < all && failed == 0) {
        One& one = threads[static_cast<std::size_t>(started)];
        one.run = &live;
        one.process = started;
        failed = one.thread.start(
            [](void* of) {
                const One& self = *static_cast<One*>(of);
                (*self.run)(self.process);
            },
            &one);
        if (failed == 0) ++started;
        else processes->world().abort(started, {.code = ErrorCode::refused, .rank = started});
    }
    for (int process = 0; process < started; ++process) threads[static_cast<std::size_t>(process)].thread.join();
    if (failed != 0)
        throw error(Fault{.code = ErrorCode::refused,
                          .rank = started,
                          .operation = "simulate_elastic",
                          .message = no_thread_for(concat({"process ", started, " of ", all}), failed)});
    for (int process = 0; process < all; ++process)
        report.time = std::max(report.time, processes->world().statistics(process).finished_at);
    report.two_worlds = processes->has_seen_two_worlds();
    report.digest = processes->world().digest();
    return report;
}

} // namespace detail

/// Runs `body(world)`, where `world` is an elastic world in virtual time, on `ranks` processes and
/// on those that come later. Each has a thread; one thread runs at a time. An error that leaves a
/// body ends its process, as a crash does, and is in the report.
///
/// Computing takes no virtual time unless a rank says so:
/// `world.group().endpoint().compute(nanoseconds)`. `ElasticOptions::join.timeout` and `patience`
/// are also virtual. If no process can ever be woken, processes whose timeouts are never reached
/// end with the simulation's fault.
///
/// Determinism: everything but `world.job()` depends on the options and the body alone. Errors:
/// bad_input for invalid options; refused if a thread cannot be made.
template <class Body>
ElasticSimulationReport simulate_elastic(int ranks, const ElasticSimulation& options, Body body) {
    return detail::simulate_elastic_by<detail::MembershipRules>(ranks, options, body);
}

UNISONO_NAMESPACE_END
