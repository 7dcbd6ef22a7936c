// Members of successive worlds in virtual time. A seed decides all events. Their training is a
// chain of hashes, which breaks if ranks at different updates make one together. Processes arrive
// later, wait at a member, and are added. A node is a process. The protocol assigns the numbers of
// members, so two nodes could have the same number in two worlds.
#pragma once

#include <unisono/core/random.hpp>
#include <unisono/extensions/elastic/membership.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace unisono_test {

namespace un = unisono;

/// Numbers of ranks, over all seeds.
struct Outcomes {
    std::uint64_t finished = 0, died = 0, left_behind = 0, no_quorum = 0, epochs = 0, brought = 0, no_state = 0,
                  added = 0, not_taken = 0;
    void add(const Outcomes& more) {
        finished += more.finished;
        died += more.died;
        left_behind += more.left_behind;
        no_quorum += more.no_quorum;
        epochs += more.epochs;
        brought += more.brought;
        no_state += more.no_state;
        added += more.added;
        not_taken += more.not_taken;
    }
};

template <class Rules = un::detail::MembershipRules>
class SeededWorld {
    using Time = un::nanoseconds;
    using Member = un::detail::Membership<Rules>;
    using Message = un::detail::MembershipMessage;
    using Phase = typename Member::Phase;
    static constexpr Time ms = 1'000'000;

public:
    /// `lonely`: in every seed a member falls silent when others join. Otherwise this happens in
    /// some seeds.
    explicit SeededWorld(std::uint64_t seed, bool lonely = false) : random_(seed), lonely_(lonely) {
        const std::uint64_t size = lonely ? 3 + draw(4) : draw(100) < 85 ? 1 + draw(8) : 1 + draw(64);
        count_ = static_cast<int>(size);
        updates_ = 4 + draw(8);
        std::vector<int> all;
        for (int n = 0; n < count_; ++n) all.push_back(n);
        for (int n = 0; n < count_; ++n) {
            nodes_.push_back(std::make_unique<Node>());
            at(n).member.emplace(n, all, times);
            at(n).number = n;
            for (const int other : all) {
                at(n).node_of[other] = other;
                if (other != n) connected_.insert({n, other});
            }
        }
        most_ = draw(2) == 0 ? size : size + draw(4);
        const std::uint64_t more = draw(2) == 0 && !lonely ? 0 : 1 + draw(4);
        for (std::uint64_t i = 0; i < more; ++i) nodes_.push_back(std::make_unique<Node>());
        arrival_.assign(nodes_.size() * nodes_.size(), 0);
        const std::uint64_t hosts = lonely || draw(2) == 0 ? 1 : 2 + draw(3);
        for (std::size_t i = 0; i < nodes_.size(); ++i) host_.push_back(1 + draw(hosts));
        has_hosts_ = hosts > 1;
        plan_misfortunes();
    }

    /// Returns an empty string, or what went wrong.
    std::string run() {
        for (int n = 0; n < count_; ++n) enter_world(n);
        for (std::uint64_t events = 0; !queue_.empty() && failure_.empty(); ++events) {
            if (events > 50'000 + 50 * nodes_.size() * nodes_.size())
                return "no end: " + std::to_string(events) + " events";
            const Event event = queue_.top();
            queue_.pop();
            now_ = event.time;
            if (event.what == What::reset) {
                reset_connections();
                continue;
            }
            if (!alive(event.node)) {
                refuse_connection(event);
                continue;
            }
            Node& node = at(event.node);
            // The event happens later, in the same order.
            if (node.paused_until > now_ && event.what != What::die) {
                push(node.paused_until, event, event.number);
                continue;
            }
            happen(event);
        }
        return failure_.empty() ? at_the_end() : failure_;
    }
    [[nodiscard]] const Outcomes& outcomes() const { return outcomes_; }

private:
    enum class What {
        die,
        pause,
        apply,
        connection,
        message,
        end_of_connection,
        refusal,
        reset,
        fault,
        give,
        commit,
        tick,
        late
    };
    static constexpr typename Member::Times times = {.patience = 100 * ms, .give_up = 2000 * ms};
    struct Event {
        Time time;
        std::uint64_t number;
        What what;
        int node = 0;
        int from = 0;
        std::uint64_t key = 0; ///< of an epoch, or of a round
        std::shared_ptr<Message> message = {};
        int as = -1; ///< of a connection: its receiver's number
        bool operator<(const Event& other) const {
            return time != other.time ? time > other.time : number > other.number;
        }
    };
    /// The world of one membership: rounds in which all members give, and then each commits.
    struct World {
        std::vector<int> members; ///< nodes
        int source = -1;
        bool brings = false; ///< round 0 brings all to the source's state
        /// Updates and state.
        std::map<std::uint64_t, std::map<int, std::pair<std::uint64_t, std::uint64_t>>> given;
    };
    struct Node {
        std::optional<Member> member = {}; ///< none while it waits to be added
        int number = -1;
        std::map<int, int> node_of = {}; ///< by members' numbers
        Time applies_since = 0;
        std::vector<un::detail::Applicant> waiting = {}; ///< at this member
        bool alive = true, finished = false, trains = false;
        std::uint64_t updates = 0, state = 1, round = 0;
        Time paused_until = 0;
        /// The number of messages before its end, amid those that it sends.
        std::optional<std::size_t> dies_after = {};
        std::shared_ptr<World> world = {};
        std::vector<Event> inbox = {}; ///< not read while it trains
        std::map<int, bool> said_goodbye = {};
    };

    std::uint64_t draw(std::uint64_t below) { return below == 0 ? 0 : random_.draw64() % below; }
    Time between(Time least, Time most) {
        return least + static_cast<Time>(draw(static_cast<std::uint64_t>(most - least)));
    }
    [[nodiscard]] Node& at(int node) { return *nodes_[static_cast<std::size_t>(node)]; }
    [[nodiscard]] int all_nodes() const { return static_cast<int>(nodes_.size()); }
    [[nodiscard]] bool alive(int node) { return at(node).alive && !at(node).finished; }
    void push(Time time, Event event, std::uint64_t number = 0) {
        event.time = time;
        event.number = number != 0 ? number : ++made_;
        queue_.push(std::move(event));
    }
    static std::uint64_t mix(std::uint64_t value) { return (value ^ (value >> 29)) * 0xbf58476d1ce4e5b9u + 1; }

    void plan_misfortunes() {
        const Time length = 12 * ms * static_cast<Time>(updates_) / 10;
        for (int n = count_; n < all_nodes(); ++n) at(n).applies_since = between(0, 2 * length);
        plan_deaths(length);
        for (int n = count_; n < all_nodes(); ++n)
            push(at(n).applies_since, {.time = 0, .number = 0, .what = What::apply, .node = n});
    }
    /// One of the first members falls silent when others join, and wakes after all other first
    /// members have died. Does it continue alone?
    void plan_lonely_member(Time length) {
        pace_ = 8; // the others still train at that time
        updates_ = 50 + draw(50);
        const Time come = between(0, length), dead = come + between(150 * ms, 450 * ms);
        const int silent = static_cast<int>(draw(static_cast<std::uint64_t>(count_)));
        const Time later = draw(2) == 0 ? 0 : between(10 * ms, 140 * ms);
        for (int n = count_; n < all_nodes(); ++n) at(n).applies_since = come + later + between(0, ms);
        const Time stops = come + between(0, 6 * ms); // before it draws the key, whatever compiles this
        push(stops, {.time = 0,
                     .number = 0,
                     .what = What::pause,
                     .node = silent,
                     .key = static_cast<std::uint64_t>(between(460 * ms, 600 * ms))});
        for (int n = 0; n < count_; ++n)
            if (n != silent) push(dead + between(0, 10 * ms), {.time = 0, .number = 0, .what = What::die, .node = n});
    }
    void plan_deaths(Time length) {
        if (lonely_) return plan_lonely_member(length);
        proven_only_ = draw(2) == 0 && !has_hosts_;
        if (!proven_only_ && count_ >= 3 && count_ <= 8 && all_nodes() > count_ && draw(4) == 0)
            return plan_lonely_member(length);
        // Members die while they send: either the first ones, which propose, or any.
        const bool breaks_off = draw(4) == 0, proposers = breaks_off && count_ > 4 && draw(2) == 0;
        const std::uint64_t deaths = proposers      ? 3
                                     : draw(3) == 0 ? draw(static_cast<std::uint64_t>(count_) + 1)
                                                    : draw(3);
        for (std::uint64_t i = 0; i < deaths; ++i) {
            const int node = proposers && i != 0 ? static_cast<int>(i) - 1 : static_cast<int>(draw(nodes_.size()));
            // Several die within a short time, also while the others form a new world.
            const Time when = i != 0 && draw(2) == 0 ? last_death_ + between(0, 4 * ms) : between(0, length);
            last_death_ = when;
            const bool in_the_midst = breaks_off && (proposers ? i != 0 : draw(3) != 0);
            push(when, {.time = 0,
                        .number = 0,
                        .what = What::die,
                        .node = node,
                        .key = in_the_midst ? 1 + draw(4 * nodes_.size()) : 0});
        }
        if (proven_only_) return;
        for (std::uint64_t i = draw(3); i > 0; --i) {
            const Time when = between(0, length);
            push(when, {.time = 0,
                        .number = 0,
                        .what = What::pause,
                        .node = static_cast<int>(draw(nodes_.size())),
                        .key = static_cast<std::uint64_t>(between(1 * ms, 900 * ms))});
        }
        if (draw(2) == 0) {
            cut_from_ = between(0, length);
            cut_until_ = cut_from_ + between(1 * ms, 3000 * ms);
            side_.resize(nodes_.size());
            for (std::size_t n = 0; n < side_.size(); ++n) side_[n] = draw(2) == 0;
            if (has_hosts_) { // between hosts, where a router may end connections
                for (std::size_t n = 0; n < side_.size(); ++n)
                    side_[n] = side_[static_cast<std::size_t>(std::find(host_.begin(), host_.end(), host_[n]) -
                                                              host_.begin())];
                if (draw(2) == 0) push(cut_from_, {.time = 0, .number = 0, .what = What::reset});
            }
        }
    }

    /// Connections keep the order of messages. Messages wait while the connection is cut.
    Time arrival(int from, int to, Time least = ms / 100, Time most = ms) {
        Time when = now_ + between(least, most);
        if (!side_.empty() && side_[static_cast<std::size_t>(from)] != side_[static_cast<std::size_t>(to)] &&
            when >= cut_from_ && now_ < cut_until_)
            when = std::max(when, cut_until_ + between(least, most));
        return when;
    }
    void send(int from, int to, const Event& event) {
        Time& last = arrival_[static_cast<std::size_t>(from) * nodes_.size() + static_cast<std::size_t>(to)];
        last = std::max(last + 1, arrival(from, to));
        push(last, event);
    }
    void end_connection(int from, int to) {
        if (connected_.erase({from, to}) == 0) return;
        send(from, to, {.time = 0, .number = 0, .what = What::end_of_connection, .node = to, .from = from});
    }
    /// A router has forgotten all connections between the sides. No process has ended.
    void reset_connections() {
        for (int n = 0; n < all_nodes(); ++n)
            for (int other = 0; other < all_nodes(); ++other)
                if (side_[static_cast<std::size_t>(n)] != side_[static_cast<std::size_t>(other)] &&
                    connected_.erase({n, other}) != 0) {
                    const Time when = now_ + between(1, ms);
                    push(when, {.time = 0,
                                .number = 0,
                                .what = What::end_of_connection,
                                .node = other,
                                .from = n,
                                .key = draw(2)});
                }
    }
    [[nodiscard]] bool is_near(int n, int other) const {
        return host_[static_cast<std::size_t>(n)] == host_[static_cast<std::size_t>(other)];
    }
    /// The connection was being made when the process at the other end died, which resets it.
    void refuse_connection(const Event& event) {
        if (event.what == What::connection && connected_.contains({event.from, event.node}))
            push(arrival(event.node, event.from),
                 {.time = 0, .number = 0, .what = What::end_of_connection, .node = event.from, .from = event.node});
    }
    /// A member connects to the added members once it knows of them. An added member connects to
    /// those with lower numbers.
    void connect_added(int n) {
        Node& node = at(n);
        const auto& decision = node.member->decision();
        for (std::size_t i = 0; i < decision.added.size(); ++i) {
            const int number = decision.members[decision.kept() + i];
            const int other = static_cast<int>(decision.added[i].identity) - 1;
            if (number == node.number || node.node_of.contains(number) ||
                (n >= count_ && number > node.number &&
                 std::find(decision.members.end() - static_cast<std::ptrdiff_t>(decision.added.size()),
                           decision.members.end(), node.number) != decision.members.end()))
                continue;
            node.node_of[number] = other;
            if (!alive(other)) { // refused: no process listens
                push(arrival(other, n),
                     {.time = 0, .number = 0, .what = What::end_of_connection, .node = n, .from = other});
                continue;
            }
            connected_.insert({n, other});
            send(n, other,
                 {.time = 0,
                  .number = 0,
                  .what = What::connection,
                  .node = other,
                  .from = n,
                  .key = static_cast<std::uint64_t>(node.number),
                  .message = {},
                  .as = number});
        }
    }
    /// The process ends while it sends. Each connection has received all messages, some or none,
    /// independently of the others.
    void break_off(int n, std::vector<std::pair<int, Message>>& messages) {
        auto& left = at(n).dies_after;
        if (!left) return;
        if (messages.size() <= *left) {
            *left -= messages.size();
            return;
        }
        const std::uint64_t order = draw(~std::uint64_t{0});
        std::stable_sort(messages.begin(), messages.end(), [&](const auto& one, const auto& other) {
            return mix(order ^ static_cast<std::uint64_t>(one.first)) <
                   mix(order ^ static_cast<std::uint64_t>(other.first));
        });
        messages.resize(*left);
        push(now_, {.time = 0, .number = 0, .what = What::die, .node = n});
        *left = 0;
    }
    /// Sends the member's messages.
    void send_messages(int n) {
        if (!at(n).member) return;
        connect_added(n);
        auto messages = at(n).member->take_messages();
        break_off(n, messages);
        for (auto& [number, message] : messages) {
            const auto to = at(n).node_of.find(number);
            if (to == at(n).node_of.end() || !connected_.contains({n, to->second})) continue;
            send(n, to->second,
                 {.time = 0,
                  .number = 0,
                  .what = What::message,
                  .node = to->second,
                  .from = n,
                  .message = std::make_shared<Message>(std::move(message))});
        }
    }
    /// Applies at one of the training members.
    void apply(int n) {
        Node& node = at(n);
        if (node.member) return;
        if (now_ - node.applies_since > 4000 * ms) {
            node.finished = true;
            ++outcomes_.not_taken;
            return;
        }
        push(now_ + between(2 * ms, 20 * ms), {.time = 0, .number = 0, .what = What::apply, .node = n});
        const int other = static_cast<int>(draw(nodes_.size()));
        if (!alive(other) || !at(other).trains) return;
        auto& waiting = at(other).waiting;
        const un::detail::Applicant me{.identity = static_cast<std::uint64_t>(n) + 1};
        if (std::find(waiting.begin(), waiting.end(), me) == waiting.end()) waiting.push_back(me);
    }
    /// The accepting end of a connection that a member makes to an added one.
    void accept(int n, int from, int number, int as) {
        if (!at(from).alive || at(from).finished) return; // its end follows
        if (at(n).number < 0) at(n).number = as;
        if (at(n).number != as) { // members of another decision have given it a number, and are gone
            connected_.erase({from, n});
            return;
        }
        connected_.insert({n, from});
        at(n).node_of[number] = from;
        if (at(n).member) at(n).member->introduce(number);
    }
    void send_all(int n) {
        send_messages(n);
        look_at(n);
    }

    void happen(const Event& event) {
        Node& node = at(event.node);
        const int n = event.node;
        switch (event.what) {
        case What::die:
            if (event.key != 0) {
                node.dies_after = event.key - 1;
                return;
            }
            node.alive = false;
            ++outcomes_.died;
            for (int other = 0; other < all_nodes(); ++other) end_connection(n, other);
            return spread_fault(n);
        case What::apply: return apply(n);
        case What::connection: accept(n, event.from, static_cast<int>(event.key), event.as); return send_all(n);
        case What::pause: node.paused_until = now_ + static_cast<Time>(event.key); return;
        case What::reset: return;
        case What::message:
        case What::end_of_connection:
        case What::refusal:
            if (node.trains) return node.inbox.push_back(event);
            return hear(event);
        case What::fault:
            if (node.trains && node.member->epoch() == event.key) fail(n);
            return;
        // The member knows of no other death, and the others do not arrive.
        case What::late:
            if (node.trains && node.member->epoch() == event.key / 1024 && node.round == event.key % 1024) fail(n);
            return;
        case What::give: return give(n, event.key);
        case What::commit: return commit(n, event.key);
        case What::tick:
            if (node.trains || node.member->next_tick() > now_) return;
            node.member->tick(now_);
            return send_all(n);
        }
    }

    void hear(const Event& event) {
        Node& node = at(event.node);
        int number = -1;
        for (const auto& [member, other] : node.node_of)
            if (other == event.from) number = member;
        if (number < 0) return;
        if (event.what == What::message) {
            if (event.message->word == un::detail::MembershipWord::goodbye) node.said_goodbye[event.from] = true;
            if (!node.member) return become_member(event, number);
            node.member->receive(number, *event.message, now_);
        } else if (event.what == What::refusal) {
            if (node.member) node.member->suspect(number, now_);
        } else {
            connected_.erase({event.node, event.from});
            if (!node.said_goodbye[event.from] && node.member) {
                // Only its own host can prove that it has ended. The others ask its host, which
                // refuses, or another one does in its name.
                if (is_near(event.node, event.from)) node.member->lost(number, now_);
                else if (!alive(event.from) || event.key != 0)
                    push(now_ + between(5 * ms, 20 * ms),
                         {.time = 0, .number = 0, .what = What::refusal, .node = event.node, .from = event.from});
            }
            if (!node.member) node.node_of.erase(number);
        }
        send_all(event.node);
    }

    /// The first message that tells a node that it was added.
    void become_member(const Event& event, int from) {
        Node& node = at(event.node);
        const auto& decision = event.message->successor;
        if (event.message->word != un::detail::MembershipWord::ready ||
            !std::binary_search(decision.members.begin(), decision.members.end(), node.number))
            return;
        node.member.emplace(node.number, *event.message, times, now_);
        node.updates = un::detail::no_state_yet;
        node.state = 0;
        ++outcomes_.added;
        connect_added(event.node);
        for (const auto& [number, other] : node.node_of) node.member->introduce(number);
        node.member->receive(from, *event.message, now_);
        send_all(event.node);
    }

    /// Tells the other ranks of a world of its end.
    void spread_fault(int n) {
        const auto world = at(n).world;
        if (world == nullptr) return;
        for (const int other : world->members)
            if (other != n)
                push(arrival(n, other, ms / 100, 3 * ms),
                     {.time = 0, .number = 0, .what = What::fault, .node = other, .key = at(n).member->epoch()});
    }
    void fail(int n) {
        Node& node = at(n);
        node.trains = false;
        spread_fault(n);
        node.world = nullptr;
        node.member->take_in_at_most(most_);
        node.member->expect(std::exchange(node.waiting, {}));
        node.member->place(node.number, host_[static_cast<std::size_t>(n)]);
        for (const auto& [number, other] : node.node_of)
            node.member->place(number, host_[static_cast<std::size_t>(other)]);
        node.member->begin(node.updates, now_);
        send_all(n);
        for (const Event& event : std::exchange(node.inbox, {}))
            if (!node.trains && !node.finished) hear(event);
            else node.inbox.push_back(event);
    }

    /// Looks at the protocol's result.
    void look_at(int n) {
        Node& node = at(n);
        if (node.trains || node.finished || !node.member) return;
        switch (node.member->phase()) {
        case Phase::formed: return enter_world(n);
        case Phase::voting:
        case Phase::gathering:
            return push(std::max(now_ + 1, node.member->next_tick()),
                        {.time = 0, .number = 0, .what = What::tick, .node = n});
        case Phase::left_behind:
        case Phase::no_state:
        case Phase::no_quorum: return end(n);
        case Phase::member: return;
        }
    }
    void end(int n) {
        Node& node = at(n);
        if (node.finished) return;
        node.finished = true;
        const Phase phase = node.member->phase();
        if (proven_only_ && phase != Phase::no_state)
            failure_ = "a rank ended with an error, and others were only killed: rank " + std::to_string(n);
        ++(phase == Phase::left_behind ? outcomes_.left_behind
           : phase == Phase::no_state  ? outcomes_.no_state
                                       : outcomes_.no_quorum);
        say_goodbye(n);
    }
    void say_goodbye(int n) {
        at(n).member->leave();
        send_messages(n);
        for (int other = 0; other < all_nodes(); ++other) end_connection(n, other);
        if (at(n).world != nullptr) spread_fault(n);
    }

    void enter_world(int n) {
        Node& node = at(n);
        node.member->work();
        std::vector<int> nodes;
        for (const int number : node.member->members()) {
            const auto known = node.node_of.find(number);
            if (number != node.number && known == node.node_of.end()) {
                failure_ = "a member enters a world with one that it does not know";
                return;
            }
            nodes.push_back(number == node.number ? n : known->second);
        }
        auto& world = worlds_[{node.member->epoch(), nodes}];
        if (world == nullptr) {
            world = std::make_shared<World>();
            world->members = nodes;
            const auto source = node.node_of.find(node.member->decision().source);
            world->source = node.member->decision().source == node.number ? n
                            : source != node.node_of.end()                ? source->second
                                                                          : -1;
            world->brings = Rules::agrees_on_updates && node.member->epoch() != 0;
            if (node.member->epoch() != 0) ++outcomes_.epochs;
        }
        node.world = world;
        node.trains = true;
        node.round = 0;
        // It may have died before there was a world that could fail.
        for (const int member : world->members)
            if (!at(member).alive || at(member).finished)
                push(arrival(member, n, ms / 100, 3 * ms),
                     {.time = 0, .number = 0, .what = What::fault, .node = n, .key = node.member->epoch()});
        look_for_two_worlds();
        compute(n);
    }
    void look_for_two_worlds() {
        std::set<const World*> whole;
        for (int n = 0; n < all_nodes(); ++n) {
            const Node& node = at(n);
            if (!node.alive || node.finished || !node.trains || whole.contains(node.world.get())) continue;
            const bool all = std::all_of(node.world->members.begin(), node.world->members.end(), [&](int member) {
                return alive(member) && at(member).trains && at(member).world == node.world;
            });
            if (all) whole.insert(node.world.get());
        }
        if (whole.size() > 1) failure_ = "two worlds at " + std::to_string(now_) + " ns";
    }

    void compute(int n) {
        Node& node = at(n);
        if (node.updates != un::detail::no_state_yet && node.updates >= updates_ &&
            !(node.world->brings && node.round == 0)) {
            node.finished = true;
            ++outcomes_.finished;
            ended_well_.insert(node.world->members);
            std::uint64_t expected = 1;
            for (std::uint64_t i = 0; i < updates_; ++i) expected = mix(expected);
            if (node.state != expected || node.updates != updates_)
                failure_ = "rank " + std::to_string(n) + " ended with another hash than undisturbed";
            return say_goodbye(n);
        }
        const std::uint64_t key = node.member->epoch() * 1024 + node.round;
        push(now_ + pace_ * between(ms / 10, ms), {.time = 0, .number = 0, .what = What::give, .node = n, .key = key});
        push(now_ + 50 * ms, {.time = 0, .number = 0, .what = What::late, .node = n, .key = key});
    }
    void give(int n, std::uint64_t key) {
        Node& node = at(n);
        if (!node.trains || node.member->epoch() * 1024 + node.round != key) return;
        World& world = *node.world;
        auto& given = world.given[node.round];
        given[n] = {node.updates, node.state};
        if (given.size() != world.members.size()) return;
        Time last = now_;
        for (const int member : world.members) last = std::max(last, arrival(n, member));
        for (const int member : world.members)
            push(std::max(arrival(n, member), cut(world) ? last : 0),
                 {.time = 0, .number = 0, .what = What::commit, .node = member, .key = key});
    }
    [[nodiscard]] bool cut(const World& world) const {
        if (side_.empty()) return false;
        return std::any_of(world.members.begin(), world.members.end(), [&](int member) {
            return side_[static_cast<std::size_t>(member)] != side_[static_cast<std::size_t>(world.members[0])];
        });
    }
    void commit(int n, std::uint64_t key) {
        Node& node = at(n);
        if (!node.trains || node.member->epoch() * 1024 + node.round != key) return;
        World& world = *node.world;
        const auto& given = world.given[node.round];
        if (world.brings && node.round == 0) {
            const auto [updates, state] = given.at(world.source);
            if (updates < node.updates && node.updates != un::detail::no_state_yet)
                failure_ = "the source is behind rank " + std::to_string(n);
            if (updates == un::detail::no_state_yet) failure_ = "the source has no state";
            if (updates > node.updates) ++outcomes_.brought;
            node.updates = updates;
            node.state = state;
        } else {
            std::uint64_t sum = 0;
            for (const auto& [from, what] : given) sum += what.second - node.state;
            node.state = mix(node.state + sum);
            ++node.updates;
        }
        ++node.round;
        // Between two updates the member looks for applicants.
        if (!node.waiting.empty() && world.members.size() < most_ && node.updates < updates_) return fail(n);
        compute(n);
    }

    std::string at_the_end() {
        for (int n = 0; n < all_nodes(); ++n)
            if (alive(n)) return "rank " + std::to_string(n) + " hangs";
        // Those that come later may be the last ones.
        const auto has_first = [&](const std::vector<int>& nodes) { return nodes.front() < count_; };
        for (const auto& one : ended_well_)
            for (const auto& other : ended_well_)
                if (has_first(one) && has_first(other) && std::none_of(one.begin(), one.end(), [&](int n) {
                        return std::find(other.begin(), other.end(), n) != other.end();
                    }))
                    return "two worlds have ended well";
        return {};
    }

    un::Mt19937 random_;
    int count_ = 0; ///< of the first world; nodes from there on join later
    std::size_t most_ = 0;
    std::set<std::pair<int, int>> connected_; ///< open connections, by direction
    std::uint64_t updates_ = 0;
    Time pace_ = 1; ///< of an update
    std::vector<std::unique_ptr<Node>> nodes_;
    std::map<std::pair<std::uint64_t, std::vector<int>>, std::shared_ptr<World>> worlds_;
    std::priority_queue<Event> queue_;
    std::vector<std::uint64_t> host_; ///< of each node
    bool has_hosts_ = false;          ///< more than one
    std::set<std::vector<int>> ended_well_;
    std::uint64_t made_ = 0;
    Time now_ = 0;
    Time last_death_ = 0;
    std::vector<Time> arrival_; ///< of the last message of a pair
    std::vector<bool> side_;    ///< of the cut
    Time cut_from_ = 0, cut_until_ = 0;
    bool lonely_ = false;
    bool proven_only_ = false;
    Outcomes outcomes_;
    std::string failure_;
};

} // namespace unisono_test
