#pragma once

/// Explores an elastic world in every order of its events, breadth first: messages that are
/// delivered, delayed, lost and doubled, deaths, resets, cuts, suspicions of processes that live,
/// goodbyes, and a process that is added. The members are those of
/// extensions/elastic/membership.hpp. A violation comes with the shortest list of events that leads
/// to it.
///
///     un::testing::MembershipExplorer<> explorer({.members = 3, .deaths = 1, .timeouts = 1});
///     const un::testing::Explored found = explorer.run();
///     std::puts(found.text().c_str());
///
/// A state is a number for each process, and for each direction of a connection one for the
/// messages in flight. What a process does with an event is computed once, by the shipped code, and
/// remembered. Two states are one if a hash of 64 bits says so: among n states the probability that
/// any is taken for another is below n * n / 2^65, which is 3 in a million for 10 million states,
/// and 3 in 10,000 for 100 million. A violation that is found is always real.
///
/// Not symmetric: the numbers of members, since lower ones propose first. Merged: whatever the
/// order of events was that led to a state; and what a process that has ended had known.

#include "world.hpp"
#include <unisono/core/text.hpp>
#include <unisono/core/time.hpp>
#include <unisono/extensions/elastic/forming.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The result of an exploration.
struct Explored {
    std::size_t states = 0, events = 0; ///< events: transitions between states
    std::size_t local_states = 0;       ///< states of single processes: those that the shipped code has been run for
    std::size_t quiet = 0;              ///< states without pending events, from which the end was tried
    int depth = 0;                      ///< all lists of this many events were explored
    bool is_complete = false;           ///< there are no other states
    double seconds = 0;
    std::string violation = {};
    std::vector<std::string> trace = {}; ///< the shortest list of events that leads to the violation
    /// If nothing more happens after `trace`: what then leads to the violation, or its beginning.
    std::vector<std::string> ending = {};
    /// Events of `trace`, and of the ending unless it is the violation that there is none.
    std::size_t length = 0;

    [[nodiscard]] std::string text() const {
        std::string all =
            concat({states, " states, ", events, " events, depth ", depth,
                    is_complete ? ", complete" : ", not complete", "; ", local_states, " states of processes; ", quiet,
                    " ends tried; ", static_cast<std::uint64_t>(seconds * 1000), " ms"});
        if (!violation.empty()) all += concat({"\nviolation after ", length, " events: ", violation});
        for (const std::string& event : trace) all += "\n  " + event;
        if (!ending.empty()) all += "\n  and if nothing more happens:";
        for (const std::string& event : ending) all += "\n    " + event;
        return all;
    }
};

/// Explores all orders of events around members with these rules, breadth first.
template <class Rules = unisono::detail::MembershipRules>
class MembershipExplorer : MembershipWorld<Rules> {
    using World = MembershipWorld<Rules>;
    using typename World::Event, typename World::Phase, typename World::State, typename World::View,
        typename World::What;
    using World::paths_, World::processes_, World::letters_, World::queues_, World::options_, World::count_,
        World::first, World::view, World::way, World::has_ended, World::events_of, World::apply;
    static constexpr unsigned none = 0;
    static constexpr std::size_t most_ending = 30;

public:
    explicit MembershipExplorer(const ExploreOptions& options) : World(options) {}

    Explored run() {
        const nanoseconds began = steady_now();
        std::vector<State> layer{begin()}, next;
        if (!result_.violation.empty()) return finish(began);
        std::vector<std::uint32_t> layer_ids{0}, next_ids;
        note(layer[0], 0, {});
        for (; !layer.empty() && result_.depth < options_.most_depth; ++result_.depth) {
            for (std::size_t i = 0; i < layer.size() && result_.violation.empty(); ++i) {
                if (records_.size() >= options_.most_states) return finish(began);
                bool is_quiet = true;
                events_of(layer[i], [&](Event event, bool is_free) {
                    is_quiet = is_quiet && !is_free;
                    if (!result_.violation.empty()) return;
                    State after = layer[i];
                    ++result_.events;
                    const char* const wrong = apply(after, event);
                    const std::size_t before = records_.size();
                    if (wrong != nullptr) {
                        tell(layer_ids[i], {event}, {}, wrong);
                    } else if (note(after, layer_ids[i], event)) {
                        next.push_back(after);
                        next_ids.push_back(static_cast<std::uint32_t>(before));
                    }
                });
                if (is_quiet && options_.tries_to_end && result_.violation.empty()) try_to_end(layer[i], layer_ids[i]);
            }
            if (!result_.violation.empty()) return finish(began);
            layer.swap(next), next.clear();
            layer_ids.swap(next_ids), next_ids.clear();
        }
        result_.is_complete = layer.empty();
        return finish(began);
    }

private:
    struct Record {
        std::uint64_t hash;
        std::uint32_t before;
        Event event;
    };

    /// The state after the first events that the options name.
    State begin() {
        State state = first();
        for (const Event& event : options_.begins_with) {
            bool can_happen = false;
            events_of(state, [&](Event one, bool) { can_happen = can_happen || one == event; });
            if (!can_happen) refuse_input({"an exploration cannot begin with this event: ", text_of(state, event)});
            const char* const wrong = apply(state, event);
            if (wrong != nullptr) tell(0, {}, {}, wrong);
        }
        return state;
    }
    /// Returns false for a state that is known.
    bool note(const State& state, std::uint32_t before, Event event) {
        const std::uint64_t hash = state.hash();
        if (2 * (records_.size() + 1) > table_.size()) grow();
        std::size_t at = hash & (table_.size() - 1);
        for (; table_[at] != none; at = (at + 1) & (table_.size() - 1))
            if (records_[table_[at] - 1].hash == hash) return false;
        records_.push_back({hash, before, event});
        table_[at] = static_cast<std::uint32_t>(records_.size());
        return true;
    }
    void grow() {
        table_.assign(std::max<std::size_t>(1 << 16, 2 * table_.size()), none);
        for (std::size_t i = 0; i < records_.size(); ++i) {
            std::size_t at = records_[i].hash & (table_.size() - 1);
            while (table_[at] != none) at = (at + 1) & (table_.size() - 1);
            table_[at] = static_cast<std::uint32_t>(i + 1);
        }
    }

    // Ends.

    [[nodiscard]] bool have_all_ended(const State& state) const {
        for (int p = 0; p < count_; ++p)
            if (!has_ended(view(state, p)) && view(state, p).stand != Stand::waits) return false;
        return true;
    }
    /// Nothing happens any more but what must, and time passes. All processes must end, and a
    /// connected majority must continue.
    void try_to_end(State state, std::uint32_t id) {
        ++result_.quiet;
        std::vector<Event> events;
        const auto happens = [&](Event event) {
            events.push_back(event);
            const char* const wrong = apply(state, event);
            if (wrong != nullptr && result_.violation.empty()) tell(id, {}, events, wrong);
            return result_.violation.empty();
        };
        const auto calm_down = [&] {
            for (int n = 0; n < 500; ++n) {
                Event chosen;
                bool found = false;
                events_of(state, [&](Event event, bool is_free) {
                    if (!is_free || event.what == What::apply || (found && event.what >= chosen.what)) return;
                    chosen = event;
                    found = true;
                });
                if (!found) return true;
                if (!happens(chosen)) return false;
            }
            tell(id, {}, events, "no end: messages without end");
            return false;
        };
        if (!calm_down()) return;
        // A proposer waits for half as long as those that wait for it, so its turn comes several
        // times before theirs.
        for (int turn = 0; turn < 18 * count_ && !have_all_ended(state); ++turn) {
            const int p = turn / 3 % count_;
            const View& me = view(state, p);
            if (has_ended(me) || me.stand == Stand::waits) continue;
            const bool votes = me.stand == Stand::votes && me.phase != Phase::formed;
            if (!happens({votes ? What::time_out : What::stop_waiting, static_cast<std::uint8_t>(p), 0})) return;
            if (!calm_down()) return;
        }
        for (int p = 0; p < count_; ++p)
            if (view(state, p).lingers &&
                (!happens({What::stop_answering, static_cast<std::uint8_t>(p), 0}) || !calm_down()))
                return;
        if (leaves_a_majority(state)) return tell(id, {}, events, "no end: a connected majority does not go on");
        for (int turn = 0; turn < 2; ++turn)
            for (int p = 0; p < count_; ++p) {
                if (!view(state, p).can_give_up) continue;
                if (!happens({What::give_up, static_cast<std::uint8_t>(p), 0}) || !calm_down()) return;
            }
        if (!have_all_ended(state)) tell(id, {}, events, "no end: a process waits for ever");
    }
    /// True if a majority of a membership is left, connected, and still votes.
    [[nodiscard]] bool leaves_a_majority(const State& state) const {
        for (int p = 0; p < count_; ++p) {
            const View& me = view(state, p);
            if (has_ended(me) || me.stand == Stand::waits) continue;
            unsigned all = 1u << p;
            std::size_t connected = 1;
            for (int other = 0; other < count_; ++other) {
                const View& one = view(state, other);
                if (other == p || has_ended(one) || one.path != me.path || (me.open >> other & 1) == 0) continue;
                if ((~one.open & all) != 0) continue;
                all |= 1u << other;
                ++connected;
            }
            if (2 * connected > paths_[me.path].members.size()) return true;
        }
        return false;
    }

    // Words.

    void tell(std::uint32_t id, std::vector<Event> events, const std::vector<Event>& ending, const char* violation) {
        for (std::uint32_t at = id; at != 0; at = records_[at].before)
            events.insert(events.begin(), records_[at].event);
        events.insert(events.begin(), options_.begins_with.begin(), options_.begins_with.end());
        result_.violation = violation;
        result_.length = events.size() + (std::string_view(violation).find("no end") == 0 ? 0 : ending.size());
        State state = first();
        const auto happens = [&](Event event, std::vector<std::string>& told) {
            told.push_back(text_of(state, event));
            static_cast<void>(apply(state, event));
        };
        for (const Event& event : events) happens(event, result_.trace);
        for (const Event& event : ending)
            if (result_.ending.size() < most_ending) happens(event, result_.ending);
    }
    [[nodiscard]] std::string text_of(const State& state, Event event) const {
        const int p = event.who, other = event.other;
        const auto letter = [&] {
            const std::uint32_t queue = state.queue[way(other, p)];
            return queue == 0 ? std::string("nothing") : letter_text(letters_[queues_[queue].front()]);
        };
        switch (event.what) {
        case What::deliver: return concat({p, " hears from ", other, ": ", letter()});
        case What::redouble: return concat({p, " hears from ", other, ", and will hear again: ", letter()});
        case What::lose: return concat({"lost on its way from ", other, " to ", p, ": ", letter()});
        case What::lose_rest:
            return concat({"lost on its way from ", other, " to ", p, ", with all that follows: ", letter()});
        case What::suspect: return concat({p, " is refused by the host of ", other});
        case What::stop_answering: return concat({p, " answers no longer"});
        case What::heal: return concat({p, " and ", other, " connect again"});
        case What::prove: return concat({p, " takes ", other, " for dead"});
        case What::commit:
            return view(state, p).is_to_be_brought ? concat({p, " takes the state of the source"})
                                                   : concat({p, " commits update ", view(state, p).updates + 1});
        case What::enter: return concat({p, " enters the world of ", world_text(view(state, p).path)});
        case What::fail: return concat({p, " sees that its world ends"});
        case What::finish: return concat({p, " finishes"});
        case What::apply: return concat({"a process asks ", p, " to be added"});
        case What::time_out: return concat({p, " has waited for too long, and votes again"});
        case What::stop_waiting: return concat({p, " has waited for too long in its world"});
        case What::crash:
            return event.other == 0
                       ? concat({p, " dies"})
                       : concat({p, " dies while it sends; lost are its last messages to ", set_text(event.other)});
        case What::cut: return concat({"the cable between ", set_text(event.other), " and the others is cut"});
        case What::reset: return concat({"the connection of ", p, " and ", other, " is reset"});
        case What::give_up: return concat({p, " gives up"});
        }
        return {};
    }
    [[nodiscard]] std::string world_text(int path) const {
        return concat({unisono::detail::list_of(paths_[path].members), " as membership ", paths_[path].epoch});
    }
    [[nodiscard]] std::string set_text(unsigned set) const {
        std::vector<int> all;
        for (int p = 0; p < count_; ++p)
            if ((set >> p & 1) != 0) all.push_back(p);
        return unisono::detail::list_of(all);
    }
    [[nodiscard]] static std::string letter_text(const ExploredLetter& letter) {
        if (letter.is_connection) return "a connection";
        constexpr std::string_view words[] = {"prepare", "promise", "accept", "accepted", "decided", "ready",
                                              "whole",   "ask",     "joined", "gone",     "goodbye"};
        const unisono::detail::MembershipMessage& message = letter.message;
        std::string text = concat({words[static_cast<std::size_t>(message.word)], ", epoch ", message.epoch});
        constexpr std::uint64_t members = std::uint64_t{1} << 20;
        if (message.ballot != 0 && message.ballot != ~std::uint64_t{0})
            text += concat({", ballot ", message.ballot / members, " of ", message.ballot % members});
        if (!message.successor.members.empty())
            text += concat({", members ", unisono::detail::list_of(message.successor.members)});
        if (message.member >= 0) text += concat({", member ", message.member});
        return text;
    }

    Explored finish(nanoseconds began) {
        result_.states = records_.size();
        result_.local_states = processes_.size();
        result_.seconds = static_cast<double>(steady_now() - began) / 1e9;
        return result_;
    }

    std::vector<Record> records_;
    std::vector<std::uint32_t> table_;
    Explored result_;
};

} // namespace testing
UNISONO_NAMESPACE_END
