#pragma once

/// \file
/// The transport of a simulated process (simulated_processes.hpp).

#include "unisono/extensions/elastic/simulated_processes.hpp"
#include "unisono/transport/endpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

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
UNISONO_NAMESPACE_END
