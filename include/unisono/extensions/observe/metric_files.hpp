#pragma once

/// \file
/// Metrics of a training in files for other programs. Not in the umbrella.
///
///     un::JsonLinesFile log(world, "run.jsonl");
///     trainer.fit(data, {.epochs = 10}, std::ref(log));       // a line per update
///     log.write(trainer.updates(), {{"accuracy", accuracy}}); // and other numbers
///
/// - `JsonLinesFile` writes a line `{"step":1,"seconds":0.02,"loss":0.5,...}` per call, with null
///   for values that are not finite. For jq, pandas, and the library's tools.
/// - `CsvFile` writes a line `step,seconds,name,value` per number. For spreadsheets, R and pandas.
/// - `TensorBoardFile` writes an event file in a folder (tensorboard.hpp). For TensorBoard.
///
/// Rank 0 writes; on other ranks calls do nothing. The reports of `fit` become loss, learning_rate
/// and samples_per_second, and if they exist gradient_norm, loss_scale, tokens, and skipped = 1 for
/// an update that was left out. When a call returns, its lines are in the file, but not necessarily
/// on disk. For several files at once, pass a lambda that calls each.
///
/// Lines are appended. If the first report is not that of update 1, a resumed training continues
/// its file: the updates after its checkpoint are made again, so what an earlier run has written
/// since the first of them is removed (TensorBoard is told to hide it). A training that begins at
/// update 1 removes nothing: its lines follow those of earlier trainings. The path belongs to the
/// folder in which the program is when the object is made. A pipe must have a reader by then.
///
/// In an elastic world the current first rank writes, and a rank that becomes the first continues
/// the file. Updates that are repeated from a snapshot have one line. The line of the update at
/// which a first rank is lost may be missing, or be there twice. Seconds count from the making of
/// the object on the rank that writes. Not covered:
/// - lines of `write`, and of updates that were left out: each call writes one,
/// - updates after a change, if a call just before the change returned to an earlier checkpoint:
///   those that were made before have no second line,
/// - a rank that was left behind, and writes a line when it resumes.
///
/// The first line, and the next line after a change, also have world_size and membership_epoch.
/// After a change they have ranks_lost, ranks_added, and recovery_seconds with its parts
/// ending_seconds, agreeing_seconds, forming_seconds and starting_seconds. The world must not move,
/// and must outlive the calls. `TensorBoardFile` makes a file for each rank that writes.

#include "unisono/core/descriptor.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/json_text.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/path.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/core/time.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// A number with a name.
struct Scalar {
    std::string_view name = {};
    double value = 0;
};

namespace detail {

/// A file that is only written.
class OutputFile {
public:
    /// \throws error refused, which names the file and the reason
    OutputFile(std::string path, const char* mode)
        : path_(std::move(path)), file_(open_above_standard_streams(path_.c_str(), mode)) {
        if (file_ == nullptr) fail("cannot open");
    }
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile() {
        const NotCancelled whole;
        static_cast<void>(std::fclose(file_));
    }

    /// A pipe cannot seek, and counts as empty.
    [[nodiscard]] bool empty() const { return std::fseek(file_, 0, SEEK_END) != 0 || std::ftell(file_) <= 0; }
    /// When it returns, the system has all bytes. \throws error refused
    void write(std::string_view bytes) {
        if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size() || std::fflush(file_) != 0)
            fail("cannot write");
    }

private:
    [[noreturn, gnu::cold]] void fail(std::string_view what) const {
        throw error(Fault{.code = ErrorCode::refused,
                          .operation = "metrics",
                          .message = concat({what, " '", path_, "': ", why_not_opened(errno)})});
    }

    std::string path_;
    std::FILE* file_;
};

/// True if text that is appended to a file must begin with a newline, because the last line has
/// none. Before that, removes a part of a line that a killed process has left:
/// `is_part(line, is_first)` recognises it. Only for regular files, since pipes and terminals have
/// nothing to remove.
template <class IsPart>
bool needs_newline(const std::string& path, IsPart is_part) {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return false;
    const std::string text = end_of_file(path, 0, std::int64_t{1} << 16);
    if (text.empty() || text.back() == '\n') return false;
    const std::size_t begin = text.rfind('\n') + 1;                                        // npos + 1 is 0
    if (begin == 0 && text.size() != static_cast<std::size_t>(found.st_size)) return true; // a very long line
    if (!is_part(std::string_view(text).substr(begin), begin == 0)) return true;
    return !cut_off_end(path, text.size() - begin);
}

/// Opens a file of lines for appending. Appended text begins on a new line. `before`: bytes of
/// earlier runs; fewer if a part of a line, which `is_part` recognises, was removed.
template <class IsPart>
void open_lines(std::optional<OutputFile>& file, const std::string& path, std::int64_t& before, IsPart is_part) {
    const bool newline = needs_newline(path, is_part);
    before = std::min(before, size_of_file(path));
    file.emplace(path, "a");
    if (newline) file->write("\n");
}

/// The number with enough digits to read it back exactly.
inline std::string exact_text(double value) { return number_text(value, std::chars_format::general, 17); }

/// The number at the beginning of a text.
inline std::uint64_t leading_number(std::string_view text) {
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

/// The first fields of a line.
template <std::size_t Count>
std::array<std::string_view, Count> leading_fields(std::string_view line, char between) {
    std::array<std::string_view, Count> fields;
    for (std::string_view& one : fields) one = take_until(line, between);
    return fields;
}

/// Removes what an earlier run has written in the first `before` bytes of a file of lines since it
/// began to report updates from `update` on. `look(line)`: the update if the line is a report's.
/// Returns the number of those bytes that are left.
template <class Look>
std::int64_t remove_repeated(const std::string& path, std::int64_t before, std::uint64_t update, Look look) {
    for (std::int64_t most = std::int64_t{1} << 20;; most *= 4) { // a part of a large file, if that is enough
        const std::int64_t first = before > most ? before - most : 0;
        const std::string all = end_of_file(path, first, std::numeric_limits<std::int64_t>::max());
        const std::string_view text = std::string_view(all).substr(0, static_cast<std::size_t>(before - first));
        if (text.size() != static_cast<std::size_t>(before - first)) return before; // it cannot be read
        std::size_t cut = text.size();
        bool found = false; // a report that stays
        bool exact = false; // the report of this update
        for (std::size_t end = text.size(); end != 0 && !found;) {
            const std::size_t begin = end < 2 ? 0 : text.rfind('\n', end - 2) + 1; // npos + 1 is 0
            if (begin == 0 && first != 0) break;                                   // perhaps a part of a line
            if (const std::optional<std::uint64_t> report = look(text.substr(begin, end - begin))) {
                found = *report < update;
                // Another trainer of the same program may have made more updates.
                exact = exact || *report == update;
                if (!found && (!exact || *report == update)) cut = begin;
            }
            end = begin;
        }
        if (!found && first != 0) continue;
        if (cut == text.size()) return before;
        std::string kept = all.substr(text.size());   // lines of this run
        if (kept.starts_with('\n')) kept.erase(0, 1); // it ended a line that goes
        if (!cut_off_end(path, all.size() - cut)) return before;
        if (!kept.empty()) OutputFile(path, "a").write(kept);
        static_cast<void>(std::fprintf(stderr,
                                       "unisono: %s: the training continues with update %llu, so %zu bytes that an "
                                       "earlier run wrote from that update on were removed\n",
                                       path.c_str(), static_cast<unsigned long long>(update), text.size() - cut));
        return first + static_cast<std::int64_t>(cut);
    }
}

/// A world whose ranks may be lost.
template <class World>
concept changing_world = requires(const World& world) {
    world.changes();
    world.epoch();
    world.size();
};

/// An elastic world (extensions/elastic/world.hpp), whose first rank may be lost.
struct WorldFacts {
    int rank = -1; ///< this rank's number in the current world; -1: it is in none
    int size = 0;
    std::uint64_t epoch = 0;
    std::size_t changes = 0;
    double lost = 0, added = 0;                                               ///< number of ranks
    double recovery = 0, ending = 0, agreeing = 0, forming = 0, starting = 0; ///< seconds
};
/// Sums over all changes but the first `told`.
template <class World>
WorldFacts facts_of(const World& world, std::size_t told) {
    const auto seconds = [](std::chrono::nanoseconds time) { return static_cast<double>(time.count()) * 1e-9; };
    const auto& all = world.changes();
    WorldFacts facts{.rank = world.rank(), .size = world.size(), .changes = all.size()};
    if (facts.rank >= 0) facts.epoch = world.epoch();
    for (std::size_t i = told; i < all.size(); ++i) {
        facts.lost += static_cast<double>(all[i].lost.size());
        facts.added += static_cast<double>(all[i].joined.size());
        facts.recovery += seconds(all[i].recovery());
        facts.ending += seconds(all[i].ending);
        facts.agreeing += seconds(all[i].agreeing);
        facts.forming += seconds(all[i].took - all[i].ending - all[i].agreeing);
        facts.starting += seconds(all[i].starting);
    }
    return facts;
}

/// The state of a file of metrics that only elastic worlds need.
struct WorldWatch {
    const void* world = nullptr;
    WorldFacts (*facts)(const void* world, std::size_t told) = nullptr;
    std::size_t seen = 0;    ///< number of changes before the last report
    std::size_t told = 0;    ///< number of changes that are in the file
    bool told_first = false; ///< the world's size is in the file
    std::uint64_t last = 0;  ///< the last update of which this rank had a report
    bool again = false;      ///< updates up to `last` may be repeated

    [[nodiscard]] WorldFacts look() const { return facts(world, told); }
};

/// The common base: turns reports into scalars. `Derived` has open(), put(step, seconds, scalars),
/// and resume(update), which removes what an earlier run has reported from that update on.
template <class Derived>
class MetricFile {
public:
    MetricFile(const MetricFile&) = delete;
    MetricFile& operator=(const MetricFile&) = delete;

    /// Called by `fit` after each update.
    template <class Report>
        requires requires(const Report& report) {
            { report.number } -> std::convertible_to<std::uint64_t>;
            { report.loss } -> std::convertible_to<double>;
            { report.samples } -> std::convertible_to<std::int64_t>;
        }
    void operator()(const Report& report) {
        if (!writes_ && !watch_) return;
        if constexpr (requires { report.world_changed; })
            if (report.world_changed) return; // there was no update
        const nanoseconds now = steady_now();
        std::array<Scalar, most_scalars> found;
        std::size_t count = 0;
        const auto add = [&](std::string_view name, double value) { found[count++] = {name, value}; };
        add("loss", report.loss);
        add("learning_rate", report.learning_rate);
        if (reported_ != 0 && now > reported_)
            add("samples_per_second", static_cast<double>(report.samples) * 1e9 / static_cast<double>(now - reported_));
        if (report.gradient_norm != 0) add("gradient_norm", report.gradient_norm);
        if (report.loss_scale != 1) add("loss_scale", report.loss_scale);
        if (report.tokens != 0) add("tokens", static_cast<double>(report.tokens));
        if (!report.committed) add("skipped", 1);
        const bool first = std::exchange(reported_, now) == 0;
        if (const std::uint64_t next = report.number + (report.committed ? 0 : 1); first && writes_ && next > 1)
            derived().resume(next);
        if (watch_ && !look_at_world(report.number, report.committed)) return;
        if (watch_) add_world(add);
        put_all(report.number, now, {found.data(), count});
    }

    /// Writes other numbers for this step. \throws error bad_input: a name that is empty or not
    /// UTF-8; refused: the file cannot be written
    void write(std::uint64_t step, std::span<const Scalar> scalars) {
        const nanoseconds now = steady_now();
        if (watch_) take_over();
        if (writes_) put_all(step, now, scalars);
    }
    void write(std::uint64_t step, std::initializer_list<Scalar> scalars) {
        write(step, std::span<const Scalar>(scalars.begin(), scalars.size()));
    }

protected:
    template <class World>
    explicit MetricFile(const World& world) : writes_(world.rank() == 0) {
        if constexpr (changing_world<World>) {
            const std::size_t changes = world.changes().size();
            const auto facts = [](const void* one, std::size_t told) {
                return facts_of(*static_cast<const World*>(one), told);
            };
            watch_ = std::make_unique<WorldWatch>(
                WorldWatch{.world = &world, .facts = facts, .seen = changes, .told = changes});
        }
    }
    ~MetricFile() = default;
    [[nodiscard]] bool writes() const { return writes_; }
    /// Bytes that earlier runs have written. 0 if the world has changed before, since then ranks of
    /// this run may have written.
    template <class World>
    static std::int64_t earlier_bytes(const World& world, const std::string& path) {
        if constexpr (changing_world<World>)
            if (world.epoch() != 0) return 0;
        return size_of_file(path);
    }

private:
    static constexpr std::size_t most_scalars = 16;

    /// Called before a report is written. Returns false if this rank must not write it.
    bool look_at_world(std::uint64_t number, bool committed) {
        WorldWatch& watch = *watch_;
        const std::size_t changes = watch.look().changes;
        watch.again = watch.again || changes != watch.seen;
        watch.seen = changes;
        take_over();
        if (!writes_) watch.told = watch.seen; // the first rank writes these
        if (!committed) return writes_;
        if (watch.again && number <= watch.last) return false;
        watch.last = number;
        watch.again = false;
        return writes_;
    }
    /// If this rank has become the first, it continues the file.
    void take_over() {
        if (writes_ || watch_->look().rank != 0) return;
        derived().open();
        writes_ = true;
        watch_->told_first = true;
    }
    template <class Add>
    void add_world(Add add) {
        WorldWatch& watch = *watch_;
        const WorldFacts now = watch.look();
        if (now.rank < 0) return; // this rank could not continue
        const bool changed = std::exchange(watch.told, watch.seen) != watch.seen;
        if (!changed && std::exchange(watch.told_first, true)) return;
        add("world_size", now.size);
        add("membership_epoch", static_cast<double>(now.epoch));
        if (!changed) return;
        add("ranks_lost", now.lost);
        add("ranks_added", now.added);
        add("recovery_seconds", now.recovery);
        add("ending_seconds", now.ending);
        add("agreeing_seconds", now.agreeing);
        add("forming_seconds", now.forming);
        add("starting_seconds", now.starting);
    }
    Derived& derived() { return static_cast<Derived&>(*this); }
    void put_all(std::uint64_t step, nanoseconds now, std::span<const Scalar> scalars) {
        for (const Scalar& one : scalars) {
            if (one.name.empty()) refuse_input({"metrics: a number of step ", step, " has no name"});
            if (!is_utf8(one.name))
                refuse_input({"metrics: a number of step ", step, " is named ", quoted(one.name),
                              ", which is not UTF-8; expected a name that JSON and TensorBoard can hold"});
        }
        derived().put(step, static_cast<double>(now - began_) * 1e-9, scalars);
    }

    bool writes_;
    nanoseconds began_ = steady_now();
    nanoseconds reported_ = 0;
    std::unique_ptr<WorldWatch> watch_ = {}; ///< only in elastic worlds
};

} // namespace detail

/// One JSON object per call.
class JsonLinesFile : public detail::MetricFile<JsonLinesFile> {
public:
    template <class World>
    JsonLinesFile(const World& world, const std::string& path)
        : MetricFile(world), path_(detail::absolute_path(path)), before_(earlier_bytes(world, path_)) {
        if (writes()) open();
    }

private:
    friend class detail::MetricFile<JsonLinesFile>;
    void open() {
        detail::open_lines(file_, path_, before_, [](std::string_view line, bool) {
            constexpr std::string_view begin = "{\"step\":";
            return line.size() < begin.size() ? begin.starts_with(line) : line.starts_with(begin) && line.back() != '}';
        });
    }
    void resume(std::uint64_t update) { before_ = detail::remove_repeated(path_, before_, update, report_of); }
    /// The update of a report's line.
    static std::optional<std::uint64_t> report_of(std::string_view line) {
        constexpr std::string_view step = "{\"step\":", loss = "\"loss\":", rate = "\"learning_rate\":";
        const auto fields = detail::leading_fields<4>(line, ',');
        if (!fields[0].starts_with(step) || !fields[2].starts_with(loss) || !fields[3].starts_with(rate)) return {};
        return detail::leading_number(fields[0].substr(step.size()));
    }
    void put(std::uint64_t step, double seconds, std::span<const Scalar> scalars) {
        std::string line = concat({"{\"step\":", step, ",\"seconds\":", detail::exact_text(seconds)});
        for (const Scalar& one : scalars) {
            if (one.name == "step" || one.name == "seconds")
                refuse_input({"metrics: a number of step ", step, " is named '", one.name,
                              "', a name that every line of JsonLinesFile has already; expected another one"});
            line += concat({",", detail::json_text(one.name), ":",
                            detail::is_finite(one.value) ? detail::exact_text(one.value) : std::string("null")});
        }
        file_->write(line += "}\n");
    }

    std::string path_;
    std::int64_t before_; ///< bytes that earlier runs have written
    std::optional<detail::OutputFile> file_;
};

/// Writes one line per number, under a heading.
class CsvFile : public detail::MetricFile<CsvFile> {
public:
    template <class World>
    CsvFile(const World& world, const std::string& path)
        : MetricFile(world), path_(detail::absolute_path(path)), before_(earlier_bytes(world, path_)) {
        if (writes()) open();
    }

private:
    friend class detail::MetricFile<CsvFile>;
    /// For lines from the last to the first: the update, if a report begins with the line.
    static auto reports() {
        return [after = std::string()](std::string_view line) mutable {
            const auto fields = detail::leading_fields<3>(line, ',');
            std::optional<std::uint64_t> found;
            if (fields[2] == "loss" && after == "learning_rate") found = detail::leading_number(fields[0]);
            after = fields[2];
            return found;
        };
    }
    void open() {
        constexpr std::string_view heading = "step,seconds,name,value\n";
        detail::open_lines(file_, path_, before_, [&](std::string_view line, bool is_first) {
            if (is_first) return line.size() + 1 < heading.size() && heading.starts_with(line);
            return std::count(line.begin(), line.end(), ',') < 3;
        });
        if (file_->empty()) file_->write(heading);
    }
    void resume(std::uint64_t update) { before_ = detail::remove_repeated(path_, before_, update, reports()); }
    void put(std::uint64_t step, double seconds, std::span<const Scalar> scalars) {
        std::string lines;
        for (const Scalar& one : scalars)
            lines += concat({step, ",", detail::exact_text(seconds), ",", quoted(one.name), ",",
                             detail::is_nan(one.value) ? std::string("nan") : detail::exact_text(one.value), "\n"});
        file_->write(lines);
    }
    static std::string quoted(std::string_view name) {
        if (name.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(name);
        std::string text = "\"";
        for (const char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
        return text += '"';
    }

    std::string path_;
    std::int64_t before_; ///< bytes that earlier runs have written
    std::optional<detail::OutputFile> file_;
};

UNISONO_NAMESPACE_END
