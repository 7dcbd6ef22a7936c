#pragma once

/// \file
/// Progress of a training: a bar on a terminal, plain lines elsewhere, nothing on request.

#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/core/time.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// How progress is shown.
enum class ProgressStyle : std::uint8_t {
    automatic, ///< a bar on a terminal, lines elsewhere
    bar,
    lines,
    off,
};

/// How progress is shown. `TERM=dumb` counts as no terminal.
struct Progress {
    ProgressStyle style = ProgressStyle::automatic;
    double redraw_seconds = 0.1; ///< least time between two drawings of the bar
    /// Without a bar: a line per epoch, and a line after each interval of this length; 0: epochs
    /// only.
    double line_seconds = 30;
    int columns = 0; ///< width of the bar's line; 0: that of the terminal

    static constexpr std::string_view name = "Progress";
    static constexpr Family family = Family::observer;
    friend bool operator==(const Progress&, const Progress&) = default;

    void check() const;
};

/// The position of a training. Counts are for this epoch and over all ranks.
struct ProgressPoint {
    std::uint64_t epoch = 0;         ///< from 0
    std::uint64_t epochs = 1;        ///< one past the last epoch of this run, also if the run was resumed
    std::uint64_t samples = 0;       ///< samples processed
    std::uint64_t samples_total = 0; ///< 0: unknown
    double loss = std::numeric_limits<double>::quiet_NaN(); ///< loss of the last update, or a mean
};

/// The output of a reporter, and its clock. `columns()` returns 0 if the width is unknown.
template <class Output>
concept progress_output = requires(Output& output, std::string_view text) {
    output.write(text);
    { output.now() } -> std::same_as<nanoseconds>;
    { output.is_terminal() } -> std::same_as<bool>;
    { output.columns() } -> std::same_as<int>;
};

/// Standard error, which leaves standard output to the program.
struct StandardErrorOutput {
    void write(std::string_view text);
    nanoseconds now() { return steady_now(); }
    bool is_terminal();
    int columns() {
        winsize size{};
        return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
    }
};

UNISONO_CERTIFY(progress_output<StandardErrorOutput>);

/// 75 s as "1:15", 2 days as "48:00:00".
std::string duration_text(double seconds);

namespace detail {

/// The texts of a reporter, and the measurement of speed.
class ProgressTexts {
protected:
    static std::string head(const ProgressPoint& point);
    static std::string loss_text(const ProgressPoint& point);
    static std::string speed_text(double samples_a_second);
    static std::string percent_text(const ProgressPoint& point);

    /// The finished share of this epoch; 0 for an epoch of unknown size.
    static double epoch_share(const ProgressPoint& point);
    /// Number of epochs done.
    static double share(const ProgressPoint& point) { return static_cast<double>(point.epoch) + epoch_share(point); }

    void begin_at(const ProgressPoint& point, nanoseconds now);

    /// Half of the displayed speed is the speed since the last call, so that it is smooth and still
    /// follows changes.
    void measure(const ProgressPoint& point, nanoseconds now);

    [[nodiscard]] std::string left_text(const ProgressPoint& point, nanoseconds now) const;
    [[nodiscard]] std::string running_text(const ProgressPoint& point, nanoseconds now) const;

    /// Fits the text into `columns`: the bar takes 10 to 40 of the columns that the words leave. If
    /// there are too few, the bar is left out; then the words are cut at the end.
    [[nodiscard]] std::string bar_text(const ProgressPoint& point, nanoseconds now, int columns) const;

    /// Returns the line of an epoch that ends, and begins the next epoch.
    std::string end_epoch(const ProgressPoint& point, nanoseconds now);

    nanoseconds started_ = 0, epoch_started_ = 0, shown_ = 0;
    double first_share_ = 0;
    double speed_ = 0; ///< samples per second
    std::uint64_t epoch_first_ = 0, shown_samples_ = 0;
};

} // namespace detail

/// Shows the progress of one training. Only one rank should print; the others pass `prints =
/// false`, which costs nothing. Cost of `update`: one reading of the clock, unless output is due.
template <progress_output Output = StandardErrorOutput>
class ProgressReporter : detail::ProgressTexts {
public:
    ProgressReporter(const Progress& policy, bool prints, Output output = {})
        : policy_(policy), output_(std::move(output)), style_(policy.style) {
        policy_.check();
        if (!prints) style_ = ProgressStyle::off;
        if (style_ == ProgressStyle::automatic)
            style_ = output_.is_terminal() ? ProgressStyle::bar : ProgressStyle::lines;
    }
    ProgressReporter(const ProgressReporter&) = delete;
    ProgressReporter& operator=(const ProgressReporter&) = delete;
    /// Moves the terminal's cursor to the start of a line, so that an error's message can follow.
    ~ProgressReporter() {
        const detail::NotCancelled whole;
        if (drawn_) output_.write("\n");
    }

    [[nodiscard]] ProgressStyle style() const { return style_; }

    /// Call it before the first update. A resumed training begins within an epoch; the estimate of
    /// the remaining time takes that into account.
    void begin(const ProgressPoint& point) {
        if (style_ != ProgressStyle::off) begin_at(point, output_.now());
    }

    /// Call it after each update.
    void update(const ProgressPoint& point);

    /// Call it after the last update of an epoch. Prints one line, which stays.
    void epoch_end(const ProgressPoint& point) {
        if (style_ == ProgressStyle::off) return;
        const std::string line = end_epoch(point, output_.now());
        output_.write(concat({drawn_ ? "\r\x1b[K" : "", line, "\n"}));
        drawn_ = false;
    }

private:
    Progress policy_;
    Output output_;
    ProgressStyle style_;
    bool drawn_ = false; ///< a bar is on the screen, without a newline
};

template <progress_output Output>
[[gnu::cold]] void ProgressReporter<Output>::update(const ProgressPoint& point) {
    if (style_ == ProgressStyle::off) return;
    const bool bar = style_ == ProgressStyle::bar;
    const double every = bar ? policy_.redraw_seconds : policy_.line_seconds;
    if (!bar && every == 0) return;
    const nanoseconds now = output_.now();
    if ((drawn_ || style_ == ProgressStyle::lines) && static_cast<double>(now - shown_) < every * 1e9) return;
    measure(point, now);
    if (!bar) return output_.write(concat({running_text(point, now), "\n"}));
    const int columns = policy_.columns != 0 ? policy_.columns : output_.columns();
    output_.write(concat({"\r", bar_text(point, now, columns), "\x1b[K"}));
    drawn_ = true;
}

UNISONO_CERTIFY(policy_of<Progress, Family::observer>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

[[gnu::cold]] UNISONO_DEFINITION void Progress::check() const {
    // Limit: one year, far from overflow in nanoseconds.
    const auto fits = [](double seconds) { return seconds >= 0 && seconds <= 3.2e7; };
    if (!fits(redraw_seconds))
        refuse_input({"Progress.redraw_seconds is ", redraw_seconds, "; expected 0 to 32000000"});
    if (!fits(line_seconds)) refuse_input({"Progress.line_seconds is ", line_seconds, "; expected 0 to 32000000"});
    if (columns < 0) refuse_input({"Progress.columns is ", columns, "; expected at least 0"});
}

UNISONO_DEFINITION void StandardErrorOutput::write(std::string_view text) {
    static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr)); // no caller could handle a failure
    static_cast<void>(std::fflush(stderr));
}

UNISONO_DEFINITION bool StandardErrorOutput::is_terminal() {
    const char* term = std::getenv("TERM"); // NOLINT(concurrency-mt-unsafe): nothing here changes it
    return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

[[gnu::cold]] UNISONO_DEFINITION std::string duration_text(double seconds) {
    if (!(seconds >= 0 && seconds < 3.6e9)) return "?";
    const auto whole = static_cast<std::uint64_t>(detail::rounded(seconds));
    const auto two = [](std::uint64_t n) { return concat({n < 10 ? "0" : "", n}); };
    const std::string rest = two(whole % 60);
    if (whole < 3600) return concat({whole / 60, ":", rest});
    return concat({whole / 3600, ":", two(whole / 60 % 60), ":", rest});
}

namespace detail {

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION std::string ProgressTexts::head(const ProgressPoint& point) {
    return concat({"epoch ", point.epoch + 1, "/", std::max(point.epochs, point.epoch + 1)});
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION std::string ProgressTexts::loss_text(const ProgressPoint& point) {
    if (point.loss != point.loss) return {};
    return concat({", loss ", number_text(point.loss, std::chars_format::general, 4)});
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION std::string ProgressTexts::speed_text(double samples_a_second) {
    if (!(samples_a_second < 1e15)) return "? samples/s";
    const bool few = samples_a_second < 100;
    return concat(
        {few ? fixed_text(samples_a_second, 1) : count_text(static_cast<std::size_t>(samples_a_second)), " samples/s"});
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION std::string ProgressTexts::percent_text(const ProgressPoint& point) {
    if (point.samples_total == 0) return concat({count_text(point.samples), " samples"});
    const int percent = static_cast<int>(epoch_share(point) * 100);
    return concat({percent < 10 ? "  " : (percent < 100 ? " " : ""), percent, "%"});
}

UNISONO_DEFINITION double ProgressTexts::epoch_share(const ProgressPoint& point) {
    if (point.samples_total == 0) return 0;
    return std::min(1.0, static_cast<double>(point.samples) / static_cast<double>(point.samples_total));
}

UNISONO_DEFINITION void ProgressTexts::begin_at(const ProgressPoint& point, nanoseconds now) {
    started_ = shown_ = epoch_started_ = now;
    first_share_ = share(point);
    epoch_first_ = shown_samples_ = point.samples;
    speed_ = 0;
}

UNISONO_DEFINITION void ProgressTexts::measure(const ProgressPoint& point, nanoseconds now) {
    const double seconds = static_cast<double>(now - shown_) * 1e-9;
    if (seconds > 0 && point.samples >= shown_samples_) {
        const double recent = static_cast<double>(point.samples - shown_samples_) / seconds;
        speed_ = speed_ == 0 ? recent : (speed_ + recent) / 2;
    }
    shown_ = now;
    shown_samples_ = point.samples;
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION std::string ProgressTexts::left_text(const ProgressPoint& point,
                                                                                     nanoseconds now) const {
    const double done = share(point) - first_share_;
    if (point.samples_total == 0 || !(done > 0)) return {};
    const double left = std::max(0.0, static_cast<double>(point.epochs) - share(point));
    return concat({", ", duration_text(static_cast<double>(now - started_) * 1e-9 * left / done), " left"});
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION std::string ProgressTexts::running_text(const ProgressPoint& point,
                                                                                        nanoseconds now) const {
    return concat(
        {head(point), ": ", percent_text(point), ", ", speed_text(speed_), loss_text(point), left_text(point, now)});
}

[[gnu::cold]] UNISONO_DEFINITION std::string ProgressTexts::bar_text(const ProgressPoint& point, nanoseconds now,
                                                                     int columns) const {
    // Terminals wrap in the last column.
    const auto room = static_cast<std::size_t>((columns <= 0 ? 80 : columns) - 1);
    const std::string text = running_text(point, now);
    if (point.samples_total != 0 && text.size() + 13 <= room) {
        const std::size_t width = std::min<std::size_t>(40, room - text.size() - 3);
        const auto full = static_cast<std::size_t>(epoch_share(point) * static_cast<double>(width));
        char bar[40];
        for (std::size_t i = 0; i < width; ++i) bar[i] = i < full ? '=' : (i == full ? '>' : ' ');
        const std::size_t colon = head(point).size() + 1;
        const std::string_view words = text;
        return concat({words.substr(0, colon), " [", std::string_view(bar, width), "]", words.substr(colon)});
    }
    return concat({std::string_view(text).substr(0, room)});
}

[[gnu::cold]] UNISONO_DEFINITION std::string ProgressTexts::end_epoch(const ProgressPoint& point, nanoseconds now) {
    const double seconds = static_cast<double>(now - epoch_started_) * 1e-9;
    const std::uint64_t done = point.samples - std::min(point.samples, epoch_first_);
    epoch_started_ = shown_ = now;
    epoch_first_ = shown_samples_ = 0;
    const std::string speed = seconds > 0 ? concat({", ", speed_text(static_cast<double>(done) / seconds)}) : "";
    return concat(
        {head(point), ": ", count_text(done), " samples in ", fixed_text(seconds, 1), " s", speed, loss_text(point)});
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
