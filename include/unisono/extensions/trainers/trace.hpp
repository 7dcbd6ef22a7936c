#pragma once

/// \file
/// Combines what all ranks recorded with the policy `Trace`: a report of where the time went and
/// which rank came last, and a file to view. Not in the umbrella. In an elastic world it combines
/// the records of the present ranks. The records include the times of changes; an added rank has
/// recorded since it was added.

#include "unisono/core/descriptor.hpp"
#include "unisono/core/path.hpp"
#include "unisono/observe/table.hpp"
#include "unisono/observe/trace.hpp"
#include "unisono/trainer/evaluation.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// One rank's time, in seconds.
struct RankTime {
    double elapsed = 0; ///< from the first model call's beginning to the last update's end
    double compute = 0;
    double exchange = 0; ///< time of exchanges that computing does not hide
    double apply = 0;
    /// Part of `exchange` (of the recorded updates): this rank had arrived, and another rank had
    /// not.
    double waiting = 0;
    double awaited = 0;        ///< sum of the times for which the others waited for this rank
    std::uint64_t last = 0;    ///< updates to which this rank came last
    std::uint64_t dropped = 0; ///< events that were dropped for lack of memory
    int number = 0;            ///< the rank; in an elastic world its permanent number
    std::uint64_t changes = 0; ///< changes of an elastic world that this rank has recorded; their times follow
    double change = 0, ending = 0, agreeing = 0, forming = 0, starting = 0;
    [[nodiscard]] double rest() const { return std::max(0.0, elapsed - compute - exchange - apply - change); }
};

/// Where the time of a training went: the same on every rank. (In an elastic world, a rank that
/// calls it after the others have finished the call reports only its own record.)
struct TraceReport {
    std::vector<RankTime> ranks = {};
    /// The number of updates that all ranks present at the time have recorded; `waiting` and `last`
    /// are based on them. If a change of the world interrupted an update, its repetition counts.
    std::uint64_t updates = 0;

    /// Seconds that the ranks waited for one another, added over all ranks.
    [[nodiscard]] double waiting() const {
        double sum = 0;
        for (const RankTime& one : ranks) sum += one.waiting;
        return sum;
    }
    /// The rank, as an index into `ranks`, for which the others waited most. -1, unless that is
    /// more than two thirds of all waiting, and waiting is more than a tenth of all ranks' time.
    [[nodiscard]] int straggler() const {
        double elapsed = 0;
        std::size_t worst = 0;
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            elapsed += ranks[r].elapsed;
            if (ranks[r].awaited > ranks[worst].awaited) worst = r;
        }
        const double all = waiting();
        return all > 0.1 * elapsed && 3 * ranks[worst].awaited > 2 * all ? static_cast<int>(worst) : -1;
    }

    /// A table with one line per rank, and a sentence about which rank delays which.
    [[nodiscard]] std::string text() const {
        const auto share = [](double part, double whole) {
            return fixed_text(whole > 0 ? 100 * part / whole : 0.0, 1) + " %";
        };
        const auto seconds = [](double value) { return fixed_text(value, 3); };
        std::size_t most = 0; // the greatest number of changes
        for (std::size_t r = 0; r < ranks.size(); ++r)
            if (ranks[r].changes > ranks[most].changes) most = r;
        const bool changed = most < ranks.size() && ranks[most].changes != 0;
        Table table = changed ? Table({"rank", ">seconds", ">compute", ">exchange", ">waiting", ">apply", ">other",
                                       ">came last", ">awaited", ">changes"})
                              : Table({"rank", ">seconds", ">compute", ">exchange", ">waiting", ">apply", ">other",
                                       ">came last", ">awaited"});
        std::uint64_t dropped = 0;
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            const RankTime& one = ranks[r];
            std::vector<std::string> row = {
                std::to_string(one.number),      seconds(one.elapsed),
                share(one.compute, one.elapsed), share(one.exchange, one.elapsed),
                share(one.waiting, one.elapsed), share(one.apply, one.elapsed),
                share(one.rest(), one.elapsed),  share(static_cast<double>(one.last), static_cast<double>(updates)),
                share(one.awaited, waiting())};
            if (changed) row.push_back(share(one.change, one.elapsed));
            table.row(std::move(row));
            dropped += one.dropped;
        }
        std::string all = table.text();
        if (const int who = straggler(); who >= 0)
            all += concat({"the others waited for rank ", ranks[static_cast<std::size_t>(who)].number, ": ",
                           seconds(ranks[static_cast<std::size_t>(who)].awaited), " s in ", updates,
                           " updates; give it less to do, or a core of its own\n"});
        if (changed) {
            const RankTime& one = ranks[most];
            all += concat({one.changes, (one.changes == 1 ? " change" : " changes"), " of the world took rank ",
                           one.number, " ", seconds(one.change), " s: ending ", seconds(one.ending), ", agreeing ",
                           seconds(one.agreeing), ", forming ", seconds(one.forming), ", starting ",
                           seconds(one.starting), "\n"});
        }
        if (dropped != 0) all += concat({dropped, " events were not kept (Trace.events)\n"});
        return all;
    }
};

namespace detail {

/// The time that a rank spent in the exchange of an update.
struct UpdateExchange {
    std::uint64_t update = 0;
    nanoseconds took = 0;
};

/// The exchanges of all updates in a record. An update that a change of the world interrupted is
/// left out: its length is unknown.
inline std::vector<UpdateExchange> exchanges_of(std::span<const TraceEvent> events) {
    std::vector<UpdateExchange> all;
    bool goes_on = false;
    for (const TraceEvent& event : events) {
        if (event.what == Activity::change && std::exchange(goes_on, false)) all.pop_back();
        if (event.what != Activity::exchange) continue;
        if (!goes_on || event.update != all.back().update) all.push_back({.update = event.update});
        goes_on = true;
        all.back().took += event.end - event.begin;
    }
    return all;
}

/// Calls visit(update, last, [(rank, nanoseconds), ...]) for each update that is in the records of
/// all ranks present at the time. `last`: the rank that came last. It was in the exchange for the
/// shortest time.
template <class Visit>
void each_shared_update(const std::vector<std::vector<UpdateExchange>>& ranks, Visit visit) {
    using Times = std::vector<std::pair<std::size_t, nanoseconds>>;
    std::map<std::uint64_t, Times> updates;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        for (const UpdateExchange& one : ranks[rank]) {
            Times& times = updates[one.update];
            if (times.empty() || times.back().first != rank) times.emplace_back(rank, one.took);
            else times.back().second = one.took; // repeated after a snapshot: the last time counts
        }
    for (const auto& [update, times] : updates) {
        std::size_t there = 0;
        for (const auto& one : ranks) there += !one.empty() && one.front().update <= update ? 1 : 0;
        if (times.size() != there || (there == 1 && ranks.size() > 1)) continue;
        const auto shorter = [](const auto& a, const auto& b) { return a.second < b.second; };
        visit(update, std::min_element(times.begin(), times.end(), shorter)->first, times);
    }
}

/// Calls `call(group, trainer, log)` on all ranks. In an elastic world, calls it again if ranks are
/// lost during the call. `log`: what this rank has recorded.
template <class Trainer, class Call>
auto with_trace(Trainer& trainer, Call call) {
    if constexpr (requires { trainer.now(); }) {
        return trainer.collectively([&](auto& now) { return call(now.world(), now, trainer.trace()); });
    } else {
        const auto inside = trainer.state().acting();
        return call(trainer.world(), trainer, trainer.trace());
    }
}

template <class World>
TraceReport report_of(World& world, const TraceLog& log) {
    const auto seconds = [&](Activity what) { return static_cast<double>(log.total(what)) * 1e-9; };
    const std::vector<RankTime> mine = {{.elapsed = static_cast<double>(log.elapsed()) * 1e-9,
                                         .compute = seconds(Activity::compute),
                                         .exchange = seconds(Activity::exchange),
                                         .apply = seconds(Activity::apply),
                                         .dropped = log.dropped(),
                                         .number = log.number() < 0 ? world.rank() : log.number(),
                                         .changes = log.changes().size(),
                                         .change = seconds(Activity::change),
                                         .ending = seconds(Activity::ending),
                                         .agreeing = seconds(Activity::agreeing),
                                         .forming = seconds(Activity::forming),
                                         .starting = seconds(Activity::starting)}};
    std::vector<UpdateExchange> exchanges = exchanges_of(log.events());
    if (log.dropped() != 0 && !exchanges.empty()) exchanges.pop_back(); // the log may hold only part of it
    std::vector<std::size_t> counts;
    TraceReport report{.ranks = gather_all(world, mine, counts)};
    const std::vector<UpdateExchange> all = gather_all(world, exchanges, counts);
    std::vector<std::vector<UpdateExchange>> ranks;
    auto at = all.begin();
    for (const std::size_t count : counts) {
        ranks.emplace_back(at, at + static_cast<std::ptrdiff_t>(count));
        at += static_cast<std::ptrdiff_t>(count);
    }
    each_shared_update(ranks, [&](std::uint64_t, std::size_t last, const auto& times) {
        ++report.updates;
        ++report.ranks[last].last;
        nanoseconds shortest = never;
        for (const auto& [rank, took] : times) shortest = std::min(shortest, took);
        for (const auto& [rank, took] : times) {
            const double waited = static_cast<double>(took - shortest) * 1e-9;
            report.ranks[rank].waiting += waited;
            report.ranks[last].awaited += waited;
        }
    });
    return report;
}

/// One rank's record, as it is sent.
struct RankTrace {
    nanoseconds now = 0; ///< by this rank's clock, after a barrier of all ranks
    int number = 0;
    std::vector<TraceChange> changes = {};
    std::vector<TraceEvent> events = {};

    RankTrace(nanoseconds at, int number_for_life, const TraceLog& log)
        : now(at), number(number_for_life), changes(log.changes()), events(log.events().begin(), log.events().end()) {}
    explicit RankTrace(std::span<const std::int64_t> words) {
        std::size_t at = 0;
        const auto next = [&] { return words[at++]; };
        const auto list = [&] {
            std::vector<int> all(static_cast<std::size_t>(next()));
            for (int& one : all) one = static_cast<int>(next());
            return all;
        };
        now = next();
        number = static_cast<int>(next());
        changes.resize(static_cast<std::size_t>(next()));
        for (TraceChange& one : changes) {
            one.at = next();
            one.epoch = static_cast<std::uint64_t>(next());
            one.lost = list();
            one.joined = list();
        }
        while (at < words.size()) {
            TraceEvent& one = events.emplace_back();
            one.begin = next();
            one.end = next();
            one.update = static_cast<std::uint64_t>(next());
            one.what = static_cast<Activity>(next());
        }
    }
    [[nodiscard]] std::vector<std::int64_t> words() const {
        std::vector<std::int64_t> all = {now, number, static_cast<std::int64_t>(changes.size())};
        for (const TraceChange& one : changes) {
            all.insert(all.end(), {one.at, static_cast<std::int64_t>(one.epoch)});
            for (const std::vector<int>* const ranks : {&one.lost, &one.joined}) {
                all.push_back(static_cast<std::int64_t>(ranks->size()));
                all.insert(all.end(), ranks->begin(), ranks->end());
            }
        }
        for (const TraceEvent& one : events)
            all.insert(all.end(), {one.begin, one.end, static_cast<std::int64_t>(one.update),
                                   static_cast<std::int64_t>(one.what)});
        return all;
    }
};

/// Writes the file's text in chunks by `put`. `gradients`: the description of each exchange.
template <class Put>
void put_trace(const std::vector<RankTrace>& ranks, const std::string& gradients, Put put) {
    const auto microseconds = [](nanoseconds time) { return fixed_text(static_cast<double>(time) * 1e-3, 3); };
    const auto list = [](const std::vector<int>& numbers) {
        std::string text;
        for (const int one : numbers) text += concat({text.empty() ? "" : ",", one});
        return text;
    };
    std::vector<std::vector<UpdateExchange>> exchanges;
    exchanges.reserve(ranks.size());
    for (const RankTrace& one : ranks) exchanges.push_back(exchanges_of(one.events));
    std::map<std::uint64_t, int> lasts;
    each_shared_update(exchanges, [&](std::uint64_t update, std::size_t last, const auto& times) {
        if (times.size() > 1) lasts[update] = ranks[last].number;
    });
    put("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (const RankTrace& rank : ranks) {
        const nanoseconds apart = ranks[0].now - rank.now;
        const nanoseconds offset = (apart < 0 ? -apart : apart) > 10'000'000 ? apart : 0;
        const std::string who = concat({",\"pid\":", rank.number});
        put(concat({&rank == ranks.data() ? "" : ",\n", "{\"name\":\"process_name\",\"ph\":\"M\"", who,
                    ",\"args\":{\"name\":\"rank ", rank.number, "\"}}"}));
        for (const TraceEvent& one : rank.events) {
            std::string facts = concat({"\"update\":", one.update});
            if (one.what == Activity::exchange) {
                facts += gradients;
                if (const auto last = lasts.find(one.update); last != lasts.end())
                    facts += concat({",\"came last\":\"rank ", last->second, "\""});
            }
            put(concat({",\n{\"name\":\"", name_of(one.what), "\",\"ph\":\"X\"", who,
                        ",\"tid\":0,\"ts\":", microseconds(one.begin + offset),
                        ",\"dur\":", microseconds(one.end - one.begin), ",\"args\":{", facts, "}}"}));
        }
        for (const TraceChange& one : rank.changes)
            put(concat({",\n{\"name\":\"membership ", one.epoch, "\",\"ph\":\"i\",\"s\":\"p\"", who,
                        ",\"tid\":0,\"ts\":", microseconds(one.at + offset), ",\"args\":{\"epoch\":", one.epoch,
                        ",\"lost\":[", list(one.lost), "],\"joined\":[", list(one.joined), "]}}"}));
    }
    put("\n]}\n");
}

/// Returns 0, or errno.
inline int write_trace_file(const std::string& path, const std::vector<RankTrace>& ranks, const Layout& layout) {
    std::size_t bytes = 0;
    for (const Bucket& bucket : layout.buckets()) bytes += bucket.bytes();
    const std::string gradients = concat({",\"buckets\":", layout.buckets().size(), ",\"bytes\":", bytes});
    std::FILE* const file = open_above_standard_streams(path.c_str(), "w");
    if (file == nullptr) return errno;
    int why = 0;
    put_trace(ranks, gradients, [&](const std::string& text) {
        if (why == 0 && std::fwrite(text.data(), 1, text.size(), file) != text.size()) why = errno;
    });
    if (std::fclose(file) != 0 && why == 0) why = errno;
    return why;
}

template <class World>
void write_trace_of(World& world, const TraceLog& log, const Layout& layout, const std::string& path) {
    telling_all(world, "write_trace", [&] {
        barrier(world);
        const RankTrace mine(steady_now(), log.number() < 0 ? world.rank() : log.number(), log);
        std::vector<std::size_t> counts;
        const std::vector<std::int64_t> all = gather_all(world, mine.words(), counts);
        std::array<std::int64_t, 1> why = {0};
        if (world.rank() == 0) {
            std::vector<RankTrace> ranks;
            std::size_t at = 0;
            for (const std::size_t count : counts) {
                ranks.emplace_back(std::span(all).subspan(at, count));
                at += count;
            }
            why[0] = write_trace_file(path, ranks, layout);
        }
        all_reduce(world, why, detail::Few<Max>{});
        if (why[0] == 0) return;
        throw agreed_error(Fault{.code = ErrorCode::refused,
                                 .rank = world.world_rank(0),
                                 .operation = "write_trace",
                                 .message = concat({"rank ", world.world_rank(0), " cannot write '", path,
                                                    "': ", why_not_opened(static_cast<int>(why[0]))})});
    });
}

} // namespace detail

/// Collective. Call it after `fit`, while no update is in progress. Cost: a few all_gathers, 16
/// bytes per update and rank. The rank that came last to an exchange was in it for the shortest
/// time, so the ranks' clocks need not agree.
template <class Trainer>
TraceReport report_trace(Trainer& trainer) {
    return detail::with_trace(trainer,
                              [](auto& world, auto&, const TraceLog& log) { return detail::report_of(world, log); });
}

/// Writes all ranks' events to one file in Chrome's trace format, which Perfetto (ui.perfetto.dev)
/// and chrome://tracing show, with one process per rank. An exchange shows its buckets, its bytes
/// of gradients, and the rank that came last to it. A change of an elastic world shows its phases,
/// the membership's epoch, and the ranks that were lost and added. Collective; rank 0 writes.
/// Clocks that differ by more than 10 ms (ranks of several hosts) are aligned by a barrier, to
/// about its duration. \throws error refused, on all ranks, if the file cannot be written
template <class Trainer>
void write_trace(Trainer& trainer, const std::string& path) {
    detail::with_trace(trainer, [&](auto& world, auto& now, const TraceLog& log) {
        if constexpr (requires { trainer.now(); }) // else the others have written the file, and this rank is alone
            if (&now != &trainer.now()) return true;
        detail::write_trace_of(world, log, now.layout(), path);
        return true;
    });
}

UNISONO_NAMESPACE_END
