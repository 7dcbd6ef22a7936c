#pragma once

/// A world of an exploration (explorer.hpp): the events that can happen in a state, and
/// the state after each.

#include "tables.hpp"
#include <unisono/core/text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The events that can happen in a state of all members, and the states that follow.
template <class Rules>
class MembershipWorld : protected MembershipTables<Rules> {
    using Tables = MembershipTables<Rules>;

protected:
    using Tables::paths_, Tables::processes_, Tables::views_, Tables::letters_, Tables::queues_, Tables::queue_rest_,
        Tables::number_of, Tables::appended, Tables::queue_number;
    using typename Tables::Process;
    using Phase = unisono::detail::MembershipPhase;
    using Event = ExploredEvent;
    using What = ExploredEvent::What;
    using State = ExploredState;
    using Left = ExploredState::Left;
    using View = ProcessView;

    explicit MembershipWorld(const ExploreOptions& options)
        : Tables(options.members), options_(options), count_(options.members + options.applicants) {
        if (options.members < 1 || options.members > 4 || options.applicants < 0 || options.applicants > 1)
            refuse_input("an exploration has 1 to 4 members, and at most 1 applicant");
    }

    [[nodiscard]] static std::size_t way(int from, int to) {
        return static_cast<std::size_t>(from) * most_explored + static_cast<std::size_t>(to);
    }
    [[nodiscard]] const View& view(const State& state, int p) const {
        return views_[state.process[static_cast<std::size_t>(p)]];
    }
    [[nodiscard]] static bool has_ended(const View& one) {
        return one.stand == Stand::crashed || one.stand == Stand::finished || one.stand == Stand::gave_up;
    }

    State first() {
        State state;
        for (int p = 0; p < count_; ++p)
            state.process[static_cast<std::size_t>(p)] =
                number_of(Process(p, options_.members, options_.hosts, paths_));
        const auto byte = [](int number) { return static_cast<std::uint8_t>(number); };
        state.left = {byte(options_.deaths),  byte(options_.timeouts),   byte(options_.cuts),
                      byte(options_.resets),  byte(options_.heals),      byte(options_.losses),
                      byte(options_.doubles), byte(options_.applicants), 0};
        return state;
    }

    // The events that can happen.

    /// The number of rounds of the world that have a contribution of the process; -1: not ready.
    [[nodiscard]] static int given(const View& one, int path) {
        for (const Contribution& contribution : one.contributions)
            if (contribution.path == path) return contribution.given;
        return -1;
    }
    template <class Each>
    bool all_members(const State& state, int path, Each each) const {
        for (const int number : paths_[path].members)
            if (!each(view(state, process_of(number)))) return false;
        return true;
    }
    [[nodiscard]] int process_of(int number) const { return std::min(number, options_.members); }
    [[nodiscard]] bool may_enter(const State& state, const View& me) const {
        return all_members(state, me.path, [&](const View& one) { return given(one, me.path) >= 0; });
    }
    [[nodiscard]] bool may_commit(const State& state, const View& me) const {
        return all_members(state, me.path, [&](const View& one) { return given(one, me.path) > me.round; });
    }
    /// True if a member of this process's world cannot take part in its next round any more.
    [[nodiscard]] bool has_failed(const State& state, const View& me) const {
        return !all_members(state, me.path, [&](const View& one) {
            if (one.stand == Stand::crashed || one.stand == Stand::gave_up) return false;
            if (one.stand == Stand::finished) return given(one, me.path) > me.round;
            return one.path != me.path
                       ? given(one, me.path) < 0 && !paths_.leads_to(me.path, std::max(one.path, 0))
                       : one.stand == Stand::trains || one.phase == Phase::formed || given(one, me.path) < 0;
        });
    }
    [[nodiscard]] static bool has_process(const View& one) { return !has_ended(one) || one.lingers; }
    [[nodiscard]] bool is_on_one_host(int p, int other) const {
        return (options_.hosts >> p & 1) == (options_.hosts >> other & 1);
    }
    /// True if process `here` does not know yet that another one has ended, and has read all that
    /// it has got from it.
    [[nodiscard]] bool may_learn(const State& state, int here, int other) const {
        const View& me = view(state, here);
        const unsigned bit = 1u << other;
        return (me.known & bit) != 0 && (me.gone & bit) == 0 && (me.goodbyes & bit) == 0 &&
               state.queue[way(other, here)] == 0;
    }
    [[nodiscard]] bool is_proven(const State& state, int here, int other) const {
        if (!may_learn(state, here, other)) return false;
        const bool was_cut = (view(state, here).cut >> other & 1) != 0, is_dead = !has_process(view(state, other));
        return (options_.trusts_resets && (was_cut || is_dead)) || (is_dead && is_on_one_host(here, other));
    }
    /// The host of a process that has ended refuses connections. A router may do so as well.
    [[nodiscard]] bool may_be_refused(const State& state, int here, int other) const {
        const View& me = view(state, here);
        const std::vector<int>& members = paths_[std::max(me.path, 0)].members;
        return me.stand == Stand::votes && !is_on_one_host(here, other) && !options_.trusts_resets &&
               (me.suspected >> other & 1) == 0 && may_learn(state, here, other) &&
               std::any_of(members.begin(), members.end(), [&](int one) { return process_of(one) == other; });
    }
    [[nodiscard]] bool is_refused(const State& state, int here, int other) const {
        return !has_process(view(state, other)) && may_be_refused(state, here, other);
    }
    /// Calls each(event, whether it needs no further misfortune).
    template <class Each>
    void events_of(const State& state, Each each) const {
        const auto event = [&](What what, int who, int other, bool is_free) {
            each(Event{what, static_cast<std::uint8_t>(who), static_cast<std::uint8_t>(other)}, is_free);
        };
        const Left& left = state.left;
        for (int p = 0; p < count_; ++p) {
            const View& me = view(state, p);
            if (!has_process(me)) continue;
            const bool trains = me.stand == Stand::trains, votes = me.stand == Stand::votes;
            const bool reads = !trains || me.answers;
            for (int other = 0; other < count_; ++other) {
                if (other == p) continue;
                if (state.queue[way(other, p)] != 0) {
                    if (reads) event(What::deliver, p, other, true);
                    if ((me.cut >> other & 1) != 0) event(What::lose_rest, p, other, false);
                    if (left.losses != 0) event(What::lose, p, other, false);
                    if (left.doubles != 0 && reads) event(What::redouble, p, other, false);
                }
                if (reads && is_proven(state, p, other)) event(What::prove, p, other, true);
                const bool is_dead = is_refused(state, p, other);
                const bool is_cut = ((me.cut & ~me.open) >> other & 1) != 0;
                if (reads && (is_dead || (is_cut && left.timeouts != 0 && may_be_refused(state, p, other))))
                    event(What::suspect, p, other, is_dead);
                if (left.resets != 0 && p < other && (me.open >> other & 1) != 0) event(What::reset, p, other, false);
            }
            if (me.lingers) {
                event(What::stop_answering, p, 0, false);
                continue;
            }
            if (left.heals != 0)
                for (int other = p + 1; other < count_; ++other) {
                    const View& one = view(state, other);
                    if ((me.cut & ~me.open) >> other & 1 && me.stand == Stand::votes && has_process(one) &&
                        one.stand != Stand::trains)
                        event(What::heal, p, other, false);
                }
            if (left.deaths != 0) {
                unsigned receivers = 0;
                for (int other = 0; other < count_; ++other)
                    if (state.fresh[way(p, other)] != 0) receivers |= 1u << other;
                for (unsigned lost = receivers;; lost = (lost - 1) & receivers) {
                    event(What::crash, p, static_cast<int>(lost), false);
                    if (lost == 0) break;
                }
            }
            if (trains) {
                const bool is_done = me.updates >= static_cast<std::uint64_t>(options_.updates) && !me.is_to_be_brought;
                const bool commits = !is_done && may_commit(state, me), fails = has_failed(state, me);
                if (commits) event(What::commit, p, 0, true);
                if (is_done) event(What::finish, p, 0, true);
                if (fails || me.has_applicant) event(What::fail, p, 0, true);
                else if (left.timeouts != 0 && !commits && !is_done) event(What::stop_waiting, p, 0, false);
                if (left.applicants != 0 && !is_done && p == process_of(paths_[me.path].members.front()))
                    event(What::apply, p, 0, true);
            } else if (votes) {
                if (me.phase == Phase::formed) {
                    const bool fails = has_failed(state, me);
                    if (may_enter(state, me)) event(What::enter, p, 0, true);
                    if (fails) event(What::fail, p, 0, true);
                    else if (left.timeouts != 0) event(What::stop_waiting, p, 0, false);
                } else if (left.timeouts != 0) event(What::time_out, p, 0, false);
            }
        }
        if (left.cuts != 0)
            for (unsigned with_first = 1; with_first < (1u << count_) - 1; with_first += 2)
                event(What::cut, 0, static_cast<int>(with_first), false);
    }

    // The state after an event.

    template <class Act>
    const char* act(State& state, int p, What what, std::uint32_t which, Act act_on) {
        const std::uint32_t number = state.process[static_cast<std::size_t>(p)];
        const std::uint64_t key = std::uint64_t{number} << 37 | static_cast<std::uint64_t>(what) << 32 | which;
        auto found = results_.find(key);
        if (found == results_.end()) {
            Process process = processes_[number];
            process.sent.clear();
            process.blamed = 0;
            act_on(process);
            Result result;
            result.violation = std::exchange(process.violation, nullptr);
            result.blamed = static_cast<std::uint8_t>(std::exchange(process.blamed, 0));
            result.first_letter = static_cast<std::uint32_t>(sent_.size());
            for (auto& [to, letter] : std::exchange(process.sent, {}))
                sent_.emplace_back(static_cast<std::uint8_t>(to), number_of(std::move(letter)));
            result.letters = static_cast<std::uint32_t>(sent_.size()) - result.first_letter;
            result.process = number_of(std::move(process));
            found = results_.emplace(key, result).first;
        }
        const Result& result = found->second;
        state.process[static_cast<std::size_t>(p)] = result.process;
        for (int to = 0; to < count_; ++to) state.fresh[way(p, to)] = 0;
        for (std::uint32_t i = 0; i < result.letters; ++i) {
            const auto [to, letter] = sent_[result.first_letter + i];
            if (!has_process(view(state, to))) continue;
            std::uint32_t& queue = state.queue[way(p, to)];
            queue = appended(queue, letter);
            if (state.left.deaths != 0) ++state.fresh[way(p, to)];
        }
        if (!has_process(views_[result.process])) // it reads and sends nothing any more
            for (int other = 0; other < count_; ++other)
                state.queue[way(other, p)] = state.fresh[way(other, p)] = state.fresh[way(p, other)] = 0;
        if (result.violation != nullptr) return result.violation;
        unsigned to_blame = result.blamed & ~unsigned{state.left.failed};
        for (int other = 0; other < count_; ++other) {
            const View& one = view(state, other);
            // An added process that waits for one that has failed may be left out with it.
            const bool waits = one.stand == Stand::waits || (one.can_give_up && one.phase == Phase::gathering);
            if (has_ended(one) || waits) to_blame &= ~(1u << other);
        }
        if (to_blame != 0) return "blame: a process is called lost or silent that has not failed";
        return nullptr;
    }

    /// Returns what is violated.
    const char* apply(State& state, Event event) {
        const int p = event.who, other = event.other;
        std::uint32_t& queue = state.queue[way(other < most_explored ? other : 0, p)];
        switch (event.what) {
        case What::deliver:
        case What::redouble: {
            const std::uint32_t letter = queues_[queue].front();
            if (event.what == What::redouble) --state.left.doubles;
            else take_first(state, other, p);
            return act(state, p, What::deliver, static_cast<std::uint32_t>(other) << 24 | letter,
                       [&](Process& one) { one.hear(other, letters_[letter]); });
        }
        case What::lose:
            --state.left.losses;
            take_first(state, other, p);
            mark_failed(state, 1u << other | 1u << p);
            return nullptr;
        case What::lose_rest: queue = state.fresh[way(other, p)] = 0; return nullptr;
        case What::suspect:
            if (has_process(view(state, other))) suspect(state);
            return act(state, p, event.what, event.other, [&](Process& one) { one.examine(other, false, false); });
        case What::stop_answering: return act(state, p, event.what, 0, [](Process& one) { one.stop_answering(); });
        case What::heal:
            --state.left.heals;
            for (const bool is_first : {true, false}) {
                const int one = is_first ? p : other, from = is_first ? other : p;
                state.queue[way(from, one)] = state.fresh[way(from, one)] = 0;
                if (const char* const wrong = act(state, one, event.what, static_cast<std::uint32_t>(from),
                                                  [&](Process& process) { process.connect_again(from); }))
                    return wrong;
            }
            return nullptr;
        case What::prove: {
            const bool is_here = !has_process(view(state, other)) && is_on_one_host(p, other);
            return act(state, p, event.what, event.other | (is_here ? 16u : 0u),
                       [&](Process& one) { one.examine(other, is_here, options_.trusts_resets); });
        }
        case What::commit: {
            const char* const wrong = act(state, p, event.what, 0, [](Process& one) { one.commit(); });
            return wrong != nullptr ? wrong : judge_commit(state, p);
        }
        case What::enter: return act(state, p, event.what, 0, [](Process& one) { one.enter(); });
        case What::finish: return act(state, p, event.what, 0, [](Process& one) { one.finish(); });
        case What::stop_waiting: suspect(state); [[fallthrough]];
        case What::fail: return act(state, p, What::fail, 0, [](Process& one) { one.fail(); });
        case What::apply:
            --state.left.applicants;
            return act(state, p, event.what, 0, [](Process& one) { one.let_apply(); });
        case What::time_out:
            suspect(state);
            return act(state, p, event.what, 0, [](Process& one) { one.let_time_pass(); });
        case What::give_up: return act(state, p, event.what, 0, [](Process& one) { one.let_all_time_pass(); });
        case What::crash:
            --state.left.deaths;
            mark_failed(state, 1u << p);
            for (int to = 0; to < count_; ++to)
                if ((event.other >> to & 1) != 0)
                    state.queue[way(p, to)] = without_last(state.queue[way(p, to)], state.fresh[way(p, to)]);
            return act(state, p, event.what, 0, [](Process& one) { one.crash(); });
        case What::reset: --state.left.resets; return separate(state, 1u << p, 1u << other);
        case What::cut:
            --state.left.cuts;
            return separate(state, unsigned{event.other}, ~unsigned{event.other} & ((1u << count_) - 1));
        }
        return nullptr;
    }
    void take_first(State& state, int from, int to) const {
        std::uint32_t& queue = state.queue[way(from, to)];
        std::uint8_t& fresh = state.fresh[way(from, to)];
        queue = queue_rest_[queue];
        fresh = std::min(fresh, static_cast<std::uint8_t>(queues_[queue].size()));
    }
    std::uint32_t without_last(std::uint32_t queue, std::size_t letters) {
        std::vector<std::uint32_t> all = queues_[queue];
        all.resize(all.size() - letters);
        return queue_number(std::move(all));
    }
    static void mark_failed(State& state, unsigned processes) {
        state.left.failed = static_cast<std::uint8_t>(state.left.failed | processes);
    }
    /// Marks the processes that have not read or sent all by now: they are slow.
    void suspect(State& state) const {
        if (state.left.timeouts != 0) --state.left.timeouts;
        for (int p = 0; p < count_; ++p) {
            bool is_slow = view(state, p).stand == Stand::trains;
            for (int other = 0; other < count_; ++other)
                is_slow = is_slow || state.queue[way(p, other)] != 0 || state.queue[way(other, p)] != 0;
            events_of_process(state, p, is_slow);
            if (is_slow) mark_failed(state, 1u << p);
        }
    }
    /// A process that has something to do is slow as well.
    void events_of_process(const State& state, int p, bool& is_slow) const {
        const View& me = view(state, p);
        if (has_ended(me) || me.stand == Stand::waits) return;
        is_slow = is_slow || (me.phase == Phase::formed && (may_enter(state, me) || has_failed(state, me)));
        for (int other = 0; other < count_; ++other)
            is_slow = is_slow || (other != p && (is_proven(state, p, other) || is_refused(state, p, other)));
    }
    const char* separate(State& state, unsigned some, unsigned others) {
        mark_failed(state, some | others);
        for (int p = 0; p < count_; ++p) {
            if (!has_process(view(state, p))) continue;
            const unsigned from = (some >> p & 1) != 0 ? others : (others >> p & 1) != 0 ? some : 0;
            if (from == 0) continue;
            if (const char* const wrong = act(state, p, What::cut, from, [&](Process& one) { one.cut_from(from); }))
                return wrong;
        }
        return nullptr;
    }

    /// True for an added process that has committed updates with members that have died since. A
    /// member that does not know it may repeat these updates. It ends with an error as soon as it
    /// learns of the deaths.
    [[nodiscard]] bool is_orphan(const State& state, int p) const {
        const View& me = view(state, p);
        if (p != options_.members || me.committed_path < 0) return false;
        const std::vector<int>& members = paths_[me.committed_path].members;
        return members.front() < options_.members && std::all_of(members.begin(), members.end(), [&](int one) {
                   return process_of(one) == p || view(state, process_of(one)).stand == Stand::crashed;
               });
    }
    /// After process p has committed an update.
    [[nodiscard]] const char* judge_commit(const State& state, int p) const {
        const View& me = view(state, p);
        const int path = me.path;
        if (me.committed_path != path) return nullptr; // it was only brought to the others' state
        if (!Rules::agrees_on_updates || path == 0)
            for (const int number : paths_[path].members)
                if (begins(view(state, process_of(number)), path) != begins(me, path))
                    return "ranks with different numbers of committed updates make one together";
        for (int other = 0; other < count_; ++other) {
            const View& one = view(state, other);
            if (other == p || one.stand == Stand::crashed || one.committed_path < 0) continue;
            const int theirs = one.committed_path;
            if (is_orphan(state, p) || is_orphan(state, other)) continue;
            if (paths_.leads_to(theirs, path)) continue;
            if (!paths_.leads_to(path, theirs)) return "two worlds: both have committed updates of their own";
            const int parting = paths_.at(theirs, paths_[path].epoch + 1);
            if (me.updates > paths_[parting].updates + 1) return "a rank that was left behind has committed an update";
        }
        return nullptr;
    }
    [[nodiscard]] static std::uint64_t begins(const View& one, int path) {
        for (const Contribution& contribution : one.contributions)
            if (contribution.path == path) return contribution.begins;
        return 0;
    }

    ExploreOptions options_;
    int count_;

private:
    struct Result {
        std::uint32_t process = 0;
        std::uint32_t first_letter = 0, letters = 0; ///< in `sent_`
        std::uint8_t blamed = 0;
        const char* violation = nullptr;
    };

    std::unordered_map<std::uint64_t, Result> results_;
    std::vector<std::pair<std::uint8_t, std::uint32_t>> sent_;
};

} // namespace testing
UNISONO_NAMESPACE_END
