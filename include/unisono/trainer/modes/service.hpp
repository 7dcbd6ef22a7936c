#pragma once

/// \file
/// What workers and servers of a served update (update/served.hpp) have in common, and the workers' part. The servers' is in server.hpp.
///
/// All messages go through a group of their own, so that no tag of the program's can meet them. A push is a head and, if it has one, a
/// gradient; so is an answer, with parameters. One push a worker is under way at a time, so a server awaits one message of each.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/point_to_point.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/layout/bucket_facts.hpp"
#include "unisono/sharding/sharding.hpp"
#include "unisono/trainer/exchange/extents.hpp"
#include "unisono/trainer/modes/server.hpp"
#include "unisono/trainer/modes/service_messages.hpp"
#include "unisono/trainer/report.hpp"
#include "unisono/update/update.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The last ranks own equal slices of each bucket; alone, a rank owns everything.
struct ServerSlices {
    int servers = 1;

    static constexpr std::string_view name = "servers' slices";
    static constexpr Family family = Family::sharding;
    static constexpr bool gives_owners = true;
    friend bool operator==(const ServerSlices&, const ServerSlices&) = default;

    [[nodiscard]] Owners owners(const BucketFacts& facts) const {
        List<int> ranks;
        for (int rank = workers(facts.world); rank < facts.world; ++rank) ranks.push_back(rank);
        if (ranks.empty()) ranks.push_back(0);
        return Owners::chosen(facts.count, std::move(ranks), facts.world,
                              std::max<std::size_t>(1, 64 / facts.element_bytes));
    }
    /// Ranks 0 to so many - 1 compute gradients.
    [[nodiscard]] int workers(int world) const { return world == 1 ? 1 : world - servers; }
    /// \throws error bad_input
    void check(std::string_view update, int world) const {
        if (world != 1 && servers >= world)
            refuse_input({update, ".servers is ", servers, " in a world of ", world, " ranks; expected at most ",
                          world - 1, ", so that one at least is a worker"});
    }
    /// \throws error bad_input
    void check_backups(std::string_view update, int backups, int world) const {
        if (backups >= workers(world) && world != 1)
            refuse_input({update, ".backups is ", backups, " of ", workers(world), " workers; expected at most ",
                          workers(world) - 1, ", so that one at least is waited for"});
    }
};
static_assert(sharding_policy<ServerSlices>);

/// One rank's part in a served update. `Exchange` collects this rank's gradient (alone) and owns the optimizer's state.
template <class Exchange, class Policy>
class Service {
    using World = typename Exchange::World;
    using T = typename Exchange::T;

public:
    Service(World& world, Exchange& exchange, const Policy& policy)
        : world_(&world), exchange_(&exchange), policy_(policy),
          workers_(ServerSlices{policy.servers}.workers(world.size())) {
        if (alone()) return;
        lane_.emplace(world.split(0, world.rank()));
        if (serves()) {
            server_ = std::make_unique<Server<Exchange, Policy>>(*lane_, exchange, policy, workers_);
            return;
        }
        for (int rank = workers_; rank < world.size(); ++rank) links_.push_back(Link{.server = rank});
        std::size_t at = 0;
        for (Link& link : links_) {
            for (const OwnedExtent& extent : exchange.extents())
                if (extent.owner == link.server) link.slices.push_back(extent.slice);
            insertion_sort<Slice>(link.slices, [](const Slice& a, const Slice& b) { return a.first < b.first; });
            link.first = at;
            for (const Slice& slice : link.slices) link.count += slice.count;
            at += link.count;
        }
        image_ = world.template allocate<T>(at);
    }
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;

    [[nodiscard]] int workers() const { return workers_; }
    [[nodiscard]] bool serves() const { return world_->rank() >= workers_; }

    /// One update of this worker: its gradient to the servers, their parameters into the model.
    Verdict update(double rate) {
        rate_ = rate;
        answer_ = {};
        pushed_ = false;
        const Verdict verdict = policy_.run(*this);
        return pushed_ ? answer_.verdict : verdict;
    }
    /// Of the last update: what the first server said, with the greatest staleness of all servers'.
    [[nodiscard]] const ServerAnswer& answer() const { return answer_; }

    // --- the verbs of an update --------------------------------------------------------------------------------------

    void start() { exchange_->start(); }
    Verdict agree() {
        const Verdict verdict = exchange_->agree();
        offends_ = verdict == Verdict::skip;
        return verdict;
    }
    void finish() { exchange_->finish(); }
    Verdict apply() {
        if (alone()) return exchange_->apply();
        push(PushKind::gradient);
        return answer_.verdict;
    }
    void publish() {}
    void discard() {
        exchange_->discard();
        if (alone() || (offends_ && stops())) return; // what it will throw is told to all
        push(offends_ ? PushKind::left_out : PushKind::empty);
    }

    // --- meetings ----------------------------------------------------------------------------------------------------

    /// A worker says that it has come; a server serves until all have. Then all ranks hold the same parameters. Collective.
    void meet() {
        if (alone()) return;
        if (serves()) {
            server_->serve(world_->timeout());
        } else {
            say(PushKind::meets);
            for (Link& link : links_) link.sent.wait(world_->timeout());
        }
        for (const OwnedExtent& extent : exchange_->extents())
            exchange_->flat().visit_by_parameter(extent.slice, [&](const Stretch<T>& one) {
                broadcast(*world_, std::span<T>(one.parameters, one.count), extent.owner);
            });
        std::array<double, 3> sums = {static_cast<double>(mine_.gradients), staleness_sum_,
                                      static_cast<double>(mine_.late)};
        std::array<double, 3> most = {static_cast<double>(mine_.most), static_cast<double>(mine_.most_ahead),
                                      static_cast<double>(serves() ? exchange_->applied() : 0)};
        all_reduce(*world_, sums);
        all_reduce(*world_, most, Max{});
        met_ = {static_cast<std::uint64_t>(sums[0]), sums[0] > 0 ? sums[1] / sums[0] : 0,
                static_cast<std::uint64_t>(most[0]), static_cast<std::uint64_t>(most[1]),
                static_cast<std::uint64_t>(sums[2])};
        if (met_.gradients != 0) known_ = met_;
        if (drops && !serves()) exchange_->restore_applied(static_cast<std::uint64_t>(most[2]));
        mine_ = {};
        staleness_sum_ = 0;
        clock_ = 0;
    }

    /// Of all workers' gradients between the last two meetings; the same on all ranks.
    [[nodiscard]] const Staleness& staleness() const { return met_; }
    /// The same, of the last two meetings between which there were any.
    [[nodiscard]] const Staleness& known_staleness() const { return known_; }
    /// Bytes of what travels, and on servers of what waits.
    [[nodiscard]] std::size_t bytes() const { return image_.size() * sizeof(T) + (server_ ? server_->bytes() : 0); }

private:
    /// What this worker has to do with one server.
    struct Link {
        int server = 0;
        std::vector<Slice> slices = {};
        std::size_t first = 0; ///< in the image
        std::size_t count = 0;
        PushHead head = {};
        AnswerHead answer = {};
        Operation sent = {}, sent_values = {}, received = {}, received_values = {};
    };

    static constexpr bool drops = requires { std::declval<const Policy&>().backups; };

    [[nodiscard]] bool alone() const { return world_->size() == 1; }
    [[nodiscard]] bool stops() const {
        const auto& guard = exchange_->policies().guard;
        if constexpr (requires { guard.on_offence(); }) return guard.on_offence() != OnOffence::skip;
        else return false;
    }

    /// Calls visit(stretch, its place in the image) for all that a server owns.
    template <class Visit>
    void visit(const Link& link, Visit visit) {
        T* at = image_.data() + link.first;
        for (const Slice& slice : link.slices)
            exchange_->flat().visit(slice, [&](const Stretch<T>& one) {
                visit(one, at);
                at += one.count;
            });
    }

    void say(PushKind kind) {
        for (Link& link : links_) {
            link.head = pack(WorkerPush{kind, clock_, rate_, exchange_->sums().divisor});
            link.sent = start_send(*lane_, link.head, link.server, push_tag);
        }
    }

    void push(PushKind kind) {
        const auto timeout = world_->timeout();
        pushed_ = true;
        if (kind == PushKind::gradient) take_gradient();
        say(kind);
        ++clock_;
        for (Link& link : links_) {
            const std::span<T> values(image_.data() + link.first, link.count);
            if (kind == PushKind::gradient && link.count != 0)
                link.sent_values = start_send(*lane_, std::span<const T>(values), link.server, gradient_tag);
            link.received = start_receive(*lane_, link.answer, link.server, answer_tag);
        }
        for (Link& link : links_) link.sent.wait(timeout), link.sent_values.wait(timeout);
        for (Link& link : links_)
            if (link.count != 0)
                link.received_values = start_receive(*lane_, std::span<T>(image_.data() + link.first, link.count),
                                                     link.server, parameters_tag);
        for (Link& link : links_) {
            link.received.wait(timeout);
            link.received_values.wait(timeout);
            visit(link, [](const Stretch<T>& one, const T* from) { std::copy_n(from, one.count, one.parameters); });
        }
        answer_ = unpack(links_.front().answer);
        for (const Link& link : links_) {
            const ServerAnswer other = unpack(link.answer);
            answer_.staleness = std::max(answer_.staleness, other.staleness);
            answer_.ahead = std::max(answer_.ahead, other.ahead);
        }
        if constexpr (drops) exchange_->restore_applied(answer_.number); // the rate goes by the updates that were made
        else if (answer_.verdict == Verdict::commit) exchange_->restore_applied(exchange_->applied() + 1);
        if (answer_.late) ++mine_.late;
        mine_.most_ahead = std::max(mine_.most_ahead, answer_.ahead);
        if (kind != PushKind::gradient || answer_.verdict != Verdict::commit) return;
        ++mine_.gradients;
        mine_.most = std::max(mine_.most, answer_.staleness);
        staleness_sum_ += static_cast<double>(answer_.staleness);
    }

    /// The gradient goes into the image, weighted, and the model's becomes zero.
    void take_gradient() {
        auto& gradients = exchange_->gradients();
        const double weight = gradients.left_over();
        const bool in_model = gradients.in_place();
        for (const Link& link : links_)
            visit(link, [&](const Stretch<T>& one, T* to) {
                accumulate_first(std::span<T>(to, one.count), std::span<const T>(gradients.at(one), one.count), weight);
                if (in_model) zero(one.gradients, one.count);
            });
        gradients.clean();
    }

    World* world_;
    Exchange* exchange_;
    Policy policy_;
    int workers_;
    std::optional<World> lane_;
    std::unique_ptr<Server<Exchange, Policy>> server_;
    Memory<T> image_; ///< the gradient on its way, then the parameters: of each server in turn
    std::vector<Link> links_;
    double rate_ = 0;
    std::uint64_t clock_ = 0; ///< pushes since the ranks last met
    bool offends_ = false, pushed_ = false;
    ServerAnswer answer_;
    Staleness mine_, met_, known_;
    double staleness_sum_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
