#pragma once

/// \file
/// Metrics of a training in files for other programs. Not in the umbrella.
///
///     un::JsonLinesFile log(world, "run.jsonl");
///     trainer.fit(data, {.epochs = 10}, log);                 // a line per update
///     log.write(trainer.updates(), {{"accuracy", accuracy}}); // and other numbers
///
/// - `JsonLinesFile` writes a line `{"step":1,"seconds":0.02,"loss":0.5,...}` per call, with null
///   for values that are not finite. For jq, pandas, and the library's tools.
/// - `CsvFile` writes a line `step,seconds,name,value` per number. For spreadsheets, R and pandas.
/// - `TensorBoardFile` writes an event file in a folder (tensorboard.hpp). For TensorBoard.
///
/// Rank 0 writes; on other ranks calls do nothing. The reports of `fit` become loss, learning_rate
/// and samples_per_second, and where they exist gradient_norm, loss_scale, tokens, and skipped = 1
/// for an update that was left out. Lines are appended, so that a resumed run continues its file,
/// and are in the file when a call returns (not on disk). For several files at once, pass a lambda
/// that calls each.

#include "unisono/core/error.hpp"
#include "unisono/core/json_text.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"

#include <cerrno>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
    OutputFile(std::string path, const char* mode) : path_(std::move(path)), file_(std::fopen(path_.c_str(), mode)) {
        if (file_ == nullptr) fail("cannot open");
    }
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile() { std::fclose(file_); }

    [[nodiscard]] bool empty() const { return std::fseek(file_, 0, SEEK_END) == 0 && std::ftell(file_) == 0; }
    /// All bytes are with the system when this returns. \throws error refused
    void write(std::string_view bytes) {
        if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size() || std::fflush(file_) != 0)
            fail("cannot write");
    }

private:
    [[noreturn, gnu::cold]] void fail(std::string_view what) const {
        const int why = errno;
        throw error(
            Fault{.code = ErrorCode::refused,
                  .rank = -1,
                  .peer = -1,
                  .operation = "metrics",
                  .sequence = 0,
                  .message = concat({what, " '", path_, "': ", std::strerror(why)})}); // NOLINT(concurrency-mt-unsafe)
    }

    std::string path_;
    std::FILE* file_;
};

/// As many digits as are needed to read the same number.
inline std::string exact_text(double value) { return number_text(value, std::chars_format::general, 17); }

/// The common base: turns reports into scalars. `Derived` has put(step, seconds, scalars).
template <class Derived>
class MetricFile {
public:
    /// Called by `fit` after each update.
    template <class Report>
        requires requires(const Report& report) {
            { report.number } -> std::convertible_to<std::uint64_t>;
            { report.loss } -> std::convertible_to<double>;
            { report.samples } -> std::convertible_to<std::int64_t>;
        }
    void operator()(const Report& report) {
        if (!writes_) return;
        const nanoseconds now = steady_now();
        Scalar found[7];
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
        reported_ = now;
        put_all(report.number, now, std::span<const Scalar>(found, count));
    }

    /// Writes numbers of your own for this step. \throws error bad_input: a name that is empty or
    /// not UTF-8; refused: the file cannot be written
    void write(std::uint64_t step, std::span<const Scalar> scalars) {
        if (writes_) put_all(step, steady_now(), scalars);
    }
    void write(std::uint64_t step, std::initializer_list<Scalar> scalars) {
        write(step, std::span<const Scalar>(scalars.begin(), scalars.size()));
    }

protected:
    explicit MetricFile(bool writes) : writes_(writes) {}

private:
    void put_all(std::uint64_t step, nanoseconds now, std::span<const Scalar> scalars) {
        for (const Scalar& one : scalars) {
            if (one.name.empty()) refuse_input({"metrics: a number of step ", step, " has no name"});
            if (!is_utf8(one.name))
                refuse_input({"metrics: a number of step ", step, " is named ", quoted(one.name),
                              ", which is not UTF-8; expected a name that JSON and TensorBoard can hold"});
        }
        static_cast<Derived*>(this)->put(step, static_cast<double>(now - began_) * 1e-9, scalars);
    }

    bool writes_;
    nanoseconds began_ = steady_now();
    nanoseconds reported_ = 0;
};

} // namespace detail

/// One JSON object per call.
class JsonLinesFile : public detail::MetricFile<JsonLinesFile> {
public:
    template <class World>
    JsonLinesFile(const World& world, const std::string& path) : MetricFile(world.rank() == 0) {
        if (world.rank() == 0) file_.emplace(path, "a");
    }

private:
    friend class detail::MetricFile<JsonLinesFile>;
    void put(std::uint64_t step, double seconds, std::span<const Scalar> scalars) {
        std::string line = concat({"{\"step\":", step, ",\"seconds\":", detail::exact_text(seconds)});
        for (const Scalar& one : scalars)
            line += concat({",", detail::json_text(one.name), ":",
                            std::isfinite(one.value) ? detail::exact_text(one.value) : std::string("null")});
        file_->write(line += "}\n");
    }

    std::optional<detail::OutputFile> file_;
};

/// One line per number, under a heading.
class CsvFile : public detail::MetricFile<CsvFile> {
public:
    template <class World>
    CsvFile(const World& world, const std::string& path) : MetricFile(world.rank() == 0) {
        if (world.rank() != 0) return;
        file_.emplace(path, "a");
        if (file_->empty()) file_->write("step,seconds,name,value\n");
    }

private:
    friend class detail::MetricFile<CsvFile>;
    void put(std::uint64_t step, double seconds, std::span<const Scalar> scalars) {
        std::string lines;
        for (const Scalar& one : scalars)
            lines += concat({step, ",", detail::exact_text(seconds), ",", quoted(one.name), ",",
                             detail::exact_text(one.value), "\n"});
        file_->write(lines);
    }
    static std::string quoted(std::string_view name) {
        if (name.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(name);
        std::string text = "\"";
        for (const char c : name) text += c == '"' ? std::string("\"\"") : std::string(1, c);
        return text += '"';
    }

    std::optional<detail::OutputFile> file_;
};

UNISONO_NAMESPACE_END
