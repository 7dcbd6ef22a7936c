#pragma once

/// \file
/// The common part of workers and servers in a served update (extensions/updates/served.hpp), and
/// the workers' part. The servers' part is in server.hpp.
///
/// All messages go through a separate group, so that they cannot match a tag of the program. A push
/// is a header and, if there is one, a gradient; an answer is a header and parameters. Each worker
/// has at most one push in flight, so a server expects one message per worker.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/arithmetic/host_arithmetic.hpp"
#include "unisono/arithmetic/scan.hpp"
#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/point_to_point.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/extensions/updates/asynchronous_run.hpp"
#include "unisono/extensions/updates/served.hpp"
#include "unisono/extensions/updates/server.hpp"
#include "unisono/layout/owners.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One rank's part in a served update. `Training` collects this rank's own gradient and owns the
/// optimizer's state.
template <class Training, class Policy>
class Service : public AsynchronousRun<UpdateRun<Training>> {
    using Base = AsynchronousRun<UpdateRun<Training>>;
    using World = typename Training::World;
    using T = typename Training::Element;

public:
    /// Collective.
    Service(Training& training, const Policy& policy)
        : Base(training), world_(&training.world()), policy_(policy),
          workers_(ServerSlices{policy.servers}.workers(world_->size())) {
        if (lone()) return;
        lane_.emplace(world_->split(0, world_->rank()));
        if (serves()) {
            server_ = std::make_unique<Server<Training, Policy>>(*lane_, training, policy, workers_);
            return;
        }
        for (int rank = workers_; rank < world_->size(); ++rank) links_.push_back(Link{.server = rank});
        std::size_t at = 0;
        for (Link& link : links_) {
            for (const auto& owned : training.owned_slices().all())
                if (owned.owner == link.server) link.slices.push_back(owned.slice);
            insertion_sort(link.slices, [](const Slice& a, const Slice& b) { return a.first < b.first; });
            link.first = at;
            for (const Slice& slice : link.slices) link.count += slice.count;
            at += link.count;
        }
        values_ = world_->template allocate<T>(at);
    }

    [[nodiscard]] int workers() const { return workers_; }
    [[nodiscard]] static constexpr bool optimizes() { return false; }
    [[nodiscard]] static constexpr bool alone(std::uint64_t) { return true; }
    /// Servers also evaluate, so more ranks may evaluate than train.
    template <class Hosting, class OnePerRank>
    [[nodiscard]] static constexpr OnePerRank evaluation_hosting(const Hosting&, OnePerRank each) {
        return each;
    }
    static void check_may_stop() {
        refuse_input("FitOptions.stop_on is given, with an update that servers make; expected none. Why: workers "
                     "and servers have no update in common after which to stop");
    }

    /// Sends this worker's gradient to the servers and receives their parameters into the model.
    Verdict apply() {
        if (lone()) return Base::apply();
        push(PushKind::gradient);
        if (answer_.not_finite != npos) {
            const std::size_t parameters = this->training().flat().layout().parameters();
            this->training().tally().note_sum(answer_.not_finite < parameters ? answer_.not_finite : 0);
        }
        return answer_.verdict;
    }
    static constexpr void publish() {}
    Verdict discard(Verdict verdict) {
        Base::discard(verdict);
        const bool offends = verdict == Verdict::skip;
        if (lone() || (offends && this->training().stops_on_offence()))
            return verdict; // the error is thrown on all ranks
        push(offends ? PushKind::left_out : PushKind::empty);
        return answer_.verdict;
    }
    /// Reports what the first server answered, with the greatest staleness of all servers.
    template <class Report>
    void tell(Report& report) const {
        if (lone()) return;
        report.number = answer_.number;
        report.staleness = answer_.staleness;
        report.ahead = answer_.ahead;
        report.late = answer_.late;
    }
    template <class Row>
    void describe(Row&& row) const {
        row("workers",
            concat({workers_, ", servers ", world_->size() - workers_, (serves() ? ", of which this is one" : "")}));
        Base::describe(row);
    }

    /// A worker tells the servers that it has arrived; a server serves until all workers have
    /// arrived. Then all ranks hold the same parameters. Collective.
    void synchronise() {
        if (lone()) return;
        auto& training = this->training();
        if (serves()) {
            server_->serve(world_->timeout());
        } else {
            say(PushKind::synchronises);
            for (Link& link : links_) link.sent.wait(world_->timeout());
        }
        for (const auto& owned : training.owned_slices().all())
            training.flat().visit_by_parameter(owned.slice, [&](std::size_t, const auto& one) {
                broadcast(*world_, std::span<T>(one.parameters, one.count), owned.owner);
            });
        const double updates = count_.synchronise(
            static_cast<double>(serves() ? training.applied() : 0),
            [&](auto& sums) { all_reduce(*world_, sums, Few<Sum>{}); },
            [&](auto& most) { all_reduce(*world_, most, Few<Max>{}); });
        if (drops && !serves()) training.restore_applied(static_cast<std::uint64_t>(updates));
        clock_ = 0;
    }

    /// Bytes of the messages' memory, and on servers of the waiting pushes.
    [[nodiscard]] std::size_t bytes() const { return values_.size() * sizeof(T) + (server_ ? server_->bytes() : 0); }

private:
    /// The state of this worker's exchange with one server.
    struct Link {
        int server = 0;
        List<Slice> slices = {};
        std::size_t first = 0; ///< offset in `values_`
        std::size_t count = 0;
        ServerAnswer answer = {};
        Operation sent = {}, sent_values = {}, received = {}, received_values = {};
    };

    static constexpr bool drops = requires { std::declval<const Policy&>().backups; };

    [[nodiscard]] bool lone() const { return world_->size() == 1; }
    [[nodiscard]] bool serves() const { return world_->rank() >= workers_; }

    /// Calls visit(stretch, its offset in the message) for all elements that a server owns.
    template <class Visit>
    void visit(const Link& link, Visit visit) {
        T* at = values_.data() + link.first;
        for (const Slice& slice : link.slices)
            this->training().flat().visit(slice, [&](const auto& one) {
                visit(one, at);
                at += one.count;
            });
    }

    void say(PushKind kind) {
        said_ = {kind, clock_, this->training().learning_rate(), this->training().tally().sums().divisor, largest_};
        for (Link& link : links_)
            link.sent = start_send(*lane_, std::span<const WorkerPush>(&said_, 1), link.server, push_tag);
    }

    void push(PushKind kind) {
        const auto timeout = world_->timeout();
        largest_ = 0;
        if (kind == PushKind::gradient) take_gradient();
        say(kind);
        ++clock_;
        for (Link& link : links_) {
            const std::span<T> values(values_.data() + link.first, link.count);
            if (kind == PushKind::gradient && link.count != 0)
                link.sent_values = start_send(*lane_, std::span<const T>(values), link.server, gradient_tag);
            link.received = start_receive(*lane_, std::span(&link.answer, 1), link.server, answer_tag);
        }
        for (Link& link : links_) link.sent.wait(timeout), link.sent_values.wait(timeout);
        for (Link& link : links_)
            if (link.count != 0)
                link.received_values = start_receive(*lane_, std::span<T>(values_.data() + link.first, link.count),
                                                     link.server, parameters_tag);
        for (Link& link : links_) {
            link.received.wait(timeout);
            link.received_values.wait(timeout);
            visit(link, [](const auto& one, const T* from) { std::copy(from, from + one.count, one.parameters); });
        }
        answer_ = links_.front().answer;
        for (const Link& link : links_) {
            answer_.staleness = std::max(answer_.staleness, link.answer.staleness);
            answer_.ahead = std::max(answer_.ahead, link.answer.ahead);
            answer_.not_finite = std::min(answer_.not_finite, link.answer.not_finite);
        }
        if (answer_.not_finite != npos) answer_.verdict = Verdict::skip; // at least one server left the update out
        if constexpr (drops)
            // The learning rate depends on the number of committed updates.
            this->training().restore_applied(answer_.number);
        else if (answer_.verdict == Verdict::commit) this->training().restore_applied(this->training().applied() + 1);
        if (answer_.late) count_.dropped();
        count_.ahead(answer_.ahead);
        if (kind == PushKind::gradient && answer_.verdict == Verdict::commit) count_.applied(answer_.staleness);
    }

    /// Copies the weighted gradient into the message and zeroes the model's gradient.
    void take_gradient() {
        auto& gradients = this->training().gradients();
        const double weight = gradients.factor_left();
        const bool in_model = gradients.in_place();
        for (const Link& link : links_)
            visit(link, [&](const auto& one, T* to) {
                accumulate_first(std::span<T>(to, one.count), std::span<const T>(gradients.at(one), one.count), weight);
                if (in_model) HostArithmetic::zero(std::span<T>(one.gradients, one.count));
            });
        gradients.clean();
        if (!this->training().tally().large()) return;
        for (std::size_t i = 0; i < values_.size(); ++i)
            largest_ = std::max(largest_, detail::absolute(static_cast<double>(values_[i]))); // NaN was refused before
    }

    World* world_;
    Policy policy_;
    int workers_;
    std::optional<World> lane_;
    std::unique_ptr<Server<Training, Policy>> server_;
    /// Message memory, server by server: the gradient that is sent, then the parameters that are
    /// received.
    Memory<T> values_;
    WorkerPush said_ = {}; ///< the last header to the servers; outlives their sends
    std::vector<Link> links_;
    double largest_ = 0;      ///< bound of the push's magnitudes, as its header says
    std::uint64_t clock_ = 0; ///< pushes since the last synchronisation
    ServerAnswer answer_;
    using Base::count_;
};

} // namespace detail
UNISONO_NAMESPACE_END
