#pragma once

/// \file
/// Combines what all ranks recorded with the policy `Trace`: where the time went, who came last,
/// and a file to view. Not in the umbrella.

#include "unisono/observe/table.hpp"
#include "unisono/observe/trace.hpp"
#include "unisono/trainer/evaluation.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// One rank's time, in seconds.
struct RankTime {
    double elapsed = 0; ///< from the first model call's beginning to the last update's end
    double compute = 0;
    double exchange = 0; ///< not hidden behind computing
    double apply = 0;
    double waiting =
        0; ///< part of `exchange` (of the recorded updates): this rank was there, and another rank was not yet
    double awaited = 0;        ///< the others' waiting for this rank, added up
    std::uint64_t last = 0;    ///< updates to which this rank came last
    std::uint64_t dropped = 0; ///< events for which there was no memory
    [[nodiscard]] double rest() const { return std::max(0.0, elapsed - compute - exchange - apply); }
};

/// Where the time of a training went: the same on every rank.
struct TraceReport {
    std::vector<RankTime> ranks = {};
    std::uint64_t updates = 0; ///< updates that all ranks have recorded, on which `waiting` and `last` are based

    /// Seconds that all ranks together waited for one another.
    [[nodiscard]] double waiting() const {
        double sum = 0;
        for (const RankTime& one : ranks) sum += one.waiting;
        return sum;
    }
    /// The rank for which the others waited most, if that is more than two thirds of all waiting,
    /// and waiting is more than a tenth of all ranks' time; else -1.
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
        Table table({"rank", ">seconds", ">compute", ">exchange", ">of it waiting", ">apply", ">other", ">came last",
                     ">awaited"});
        std::uint64_t dropped = 0;
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            const RankTime& one = ranks[r];
            table.row({std::to_string(r), seconds(one.elapsed), share(one.compute, one.elapsed),
                       share(one.exchange, one.elapsed), share(one.waiting, one.elapsed), share(one.apply, one.elapsed),
                       share(one.rest(), one.elapsed),
                       share(static_cast<double>(one.last), static_cast<double>(updates)),
                       share(one.awaited, waiting())});
            dropped += one.dropped;
        }
        std::string all = table.text();
        if (const int who = straggler(); who >= 0)
            all +=
                concat({"the others waited for rank ", who, ": ", seconds(ranks[static_cast<std::size_t>(who)].awaited),
                        " s in ", updates, " updates; give it less to do, or a core of its own\n"});
        if (dropped != 0) all += concat({dropped, " events were not kept (Trace.events)\n"});
        return all;
    }
};

namespace detail {

/// For each update from the first: from when to when this rank was in its exchange.
inline std::vector<double> exchange_seconds(const TraceLog& log) {
    std::vector<double> all;
    std::uint64_t current = ~std::uint64_t{0};
    for (const TraceEvent& event : log.events()) {
        if (event.what != Activity::exchange) continue;
        if (event.update != current || all.empty()) all.push_back(0);
        current = event.update;
        all.back() += static_cast<double>(event.end - event.begin) * 1e-9;
    }
    if (log.dropped() != 0 && !all.empty()) all.pop_back(); // it may be kept in part only
    return all;
}

/// An update that all ranks have recorded, and the rank that came last to its exchange.
struct LastOfUpdate {
    std::int64_t update = 0;
    int rank = 0;
};

/// The last rank of each update, from events as `write_trace` gathers them. The rank that came last
/// was in the exchange for the shortest time.
inline std::vector<LastOfUpdate> last_of_updates(const std::vector<std::int64_t>& all,
                                                 const std::vector<std::size_t>& counts) {
    std::map<std::int64_t, std::map<int, std::int64_t>> exchanges; // update, rank, nanoseconds
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < counts.size(); at += counts[rank], ++rank)
        for (std::size_t i = at + 1; i < at + counts[rank]; i += 4)
            if (static_cast<Activity>(all[i + 3]) == Activity::exchange)
                exchanges[all[i + 2]][static_cast<int>(rank)] += all[i + 1];
    std::vector<LastOfUpdate> found;
    for (const auto& [update, ranks] : exchanges) {
        if (counts.size() < 2 || ranks.size() != counts.size()) continue;
        const auto shorter = [](const auto& a, const auto& b) { return a.second < b.second; };
        found.push_back({update, std::min_element(ranks.begin(), ranks.end(), shorter)->first});
    }
    return found;
}

} // namespace detail

/// Collective, after `fit`, while no update is in progress. Cost: a few all_gathers, 8 bytes per
/// update and rank. The rank that came last to an exchange was in it for the shortest time, so that
/// ranks' clocks need not agree.
template <class Trainer>
TraceReport report_trace(const Trainer& trainer) {
    auto& world = trainer.world();
    const TraceLog& log = trainer.trace();
    std::vector<double> mine = {
        static_cast<double>(log.elapsed()) * 1e-9, static_cast<double>(log.total(Activity::compute)) * 1e-9,
        static_cast<double>(log.total(Activity::exchange)) * 1e-9,
        static_cast<double>(log.total(Activity::apply)) * 1e-9, static_cast<double>(log.dropped())};
    constexpr std::size_t head = 5;
    const std::vector<double> exchanges = detail::exchange_seconds(log);
    mine.insert(mine.end(), exchanges.begin(), exchanges.end());
    std::vector<std::size_t> counts;
    const std::vector<double> all = detail::gather_all(world, mine, counts);
    TraceReport report;
    std::vector<const double*> ranks;
    std::size_t at = 0;
    report.updates = ~std::uint64_t{0};
    for (const std::size_t count : counts) {
        const double* one = all.data() + at;
        ranks.push_back(one + head);
        report.ranks.push_back({.elapsed = one[0],
                                .compute = one[1],
                                .exchange = one[2],
                                .apply = one[3],
                                .dropped = static_cast<std::uint64_t>(one[4])});
        report.updates = std::min<std::uint64_t>(report.updates, count - head);
        at += count;
    }
    for (std::uint64_t update = 0; update < report.updates; ++update) {
        std::size_t last = 0;
        for (std::size_t r = 1; r < ranks.size(); ++r)
            if (ranks[r][update] < ranks[last][update]) last = r;
        ++report.ranks[last].last;
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            report.ranks[r].waiting += ranks[r][update] - ranks[last][update];
            report.ranks[last].awaited += ranks[r][update] - ranks[last][update];
        }
    }
    return report;
}

/// Writes all ranks' events to one file in Chrome's trace format, which Perfetto (ui.perfetto.dev)
/// and chrome://tracing show, with one process per rank. An exchange shows its buckets, its bytes
/// of gradients, and the rank that came last to it. Collective; rank 0 writes. Clocks that differ
/// by more than 10 ms (ranks of several hosts) are aligned by a barrier, to about its duration.
/// \throws error refused, on all ranks, if the file cannot be written
template <class Trainer>
void write_trace(const Trainer& trainer, const std::string& path) {
    auto& world = trainer.world();
    detail::telling_all(world, "write_trace", [&] {
        std::vector<std::int64_t> mine;
        barrier(world);
        mine.push_back(steady_now());
        for (const TraceEvent& one : trainer.trace().events())
            mine.insert(mine.end(), {one.begin, one.end - one.begin, static_cast<std::int64_t>(one.update),
                                     static_cast<std::int64_t>(one.what)});
        std::vector<std::size_t> counts;
        const std::vector<std::int64_t> all = detail::gather_all(world, mine, counts);
        bool written = true;
        int why = 0;
        if (world.rank() == 0) {
            std::FILE* const file = std::fopen(path.c_str(), "w");
            why = errno;
            written = file != nullptr;
            if (written) {
                const auto put = [&](const std::string& text) {
                    written = written && std::fwrite(text.data(), 1, text.size(), file) == text.size();
                };
                const auto microseconds = [](std::int64_t ns) { return fixed_text(static_cast<double>(ns) * 1e-3, 3); };
                const std::vector<detail::LastOfUpdate> lasts = detail::last_of_updates(all, counts);
                std::size_t bytes = 0;
                for (const Bucket& bucket : trainer.layout().buckets()) bytes += bucket.bytes();
                const std::string gradients =
                    concat({",\"buckets\":", trainer.layout().buckets().size(), ",\"bytes\":", bytes});
                const auto facts = [&](std::int64_t update, Activity what) {
                    std::string text = concat({"\"update\":", update});
                    if (what != Activity::exchange) return text;
                    text += gradients;
                    const auto earlier = [](const detail::LastOfUpdate& one, std::int64_t than) {
                        return one.update < than;
                    };
                    const auto last = std::lower_bound(lasts.begin(), lasts.end(), update, earlier);
                    if (last != lasts.end() && last->update == update)
                        text += concat({",\"came last\":\"rank ", last->rank, "\""});
                    return text;
                };
                put("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
                std::size_t at = 0;
                for (std::size_t r = 0; r < counts.size(); at += counts[r], ++r) {
                    const std::int64_t apart = all[0] - all[at];
                    const std::int64_t offset = (apart < 0 ? -apart : apart) > 10'000'000 ? apart : 0;
                    put(concat({r == 0 ? "" : ",\n", "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":", r,
                                ",\"args\":{\"name\":\"rank ", r, "\"}}"}));
                    for (std::size_t i = at + 1; i < at + counts[r]; i += 4)
                        put(concat({",\n{\"name\":\"", name_of(static_cast<Activity>(all[i + 3])),
                                    "\",\"ph\":\"X\",\"pid\":", r, ",\"tid\":0,\"ts\":", microseconds(all[i] + offset),
                                    ",\"dur\":", microseconds(all[i + 1]), ",\"args\":{",
                                    facts(all[i + 2], static_cast<Activity>(all[i + 3])), "}}"}));
                }
                put("\n]}\n");
                const bool closed = std::fclose(file) == 0;
                if (!written || !closed) why = errno;
                written = written && closed;
            }
        }
        std::array<std::int64_t, 1> failed = {written ? 0 : 1 + why};
        all_reduce(world, failed, Max{});
        if (failed[0] == 0) return;
        throw detail::agreed_error(Fault{
            .code = ErrorCode::refused,
            .rank = 0,
            .peer = -1,
            .operation = "write_trace",
            .sequence = 0,
            .message = concat({"rank 0 cannot write '", path, "': ",
                               std::strerror(static_cast<int>(failed[0] - 1))})}); // NOLINT(concurrency-mt-unsafe)
    });
}

UNISONO_NAMESPACE_END
