#pragma once

/// \file
/// A process's environment as a plain value. So functions that read it are pure, and tests can pass
/// any.

#include "unisono/core/number.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Environment variables as values: those of the process, or others (of tests, or of a program that
/// sets them itself).
class Environment {
public:
    using Variable = std::pair<std::string, std::string>;

    Environment() = default;
    Environment(std::initializer_list<Variable> variables) : variables_(variables) {}

    /// A copy of the current variables of this process.
    static Environment of_process() {
        Environment found;
        for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
            const std::string_view text = *entry;
            const std::size_t equals = text.find('=');
            if (equals == std::string_view::npos) continue;
            found.variables_.emplace_back(text.substr(0, equals), text.substr(equals + 1));
        }
        return found;
    }

    /// The value of a variable, which may be empty; nullptr if it is not set.
    [[nodiscard]] const std::string* find(std::string_view name) const {
        for (const Variable& variable : variables_)
            if (variable.first == name) return &variable.second;
        return nullptr;
    }

    void set(std::string_view name, std::string_view value) {
        erase(name);
        variables_.emplace_back(name, value);
    }
    void erase(std::string_view name) {
        std::erase_if(variables_, [&](const Variable& variable) { return variable.first == name; });
    }

    [[nodiscard]] const std::vector<Variable>& variables() const { return variables_; }

private:
    std::vector<Variable> variables_;
};

namespace detail {

/// Parses digits only; the value is at most `most`.
[[nodiscard]] inline bool parse_count(std::string_view text, int most, int& value) {
    return parse_number(text, 0, most, value);
}

/// Parses seconds, such as "2" or "0.5", from `least` to 9e9.
[[nodiscard]] inline bool parse_seconds(std::string_view text, double least, std::chrono::nanoseconds& value) {
    double seconds = 0;
    if (!parse_number(text, least, 9e9, seconds, std::chars_format::fixed)) return false;
    value = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
    return true;
}

/// True for variables that name a process or its rendezvous point. Other variables of the library
/// are settings (such as UNISONO_INTERFACE), which ranks keep.
inline bool says_who_a_process_is(std::string_view name) {
    constexpr std::string_view known[] = {
        "UNISONO_RANK",  "UNISONO_WORLD_SIZE", "UNISONO_LOCAL_RANK",      "UNISONO_LOCAL_WORLD_SIZE", "UNISONO_HUB",
        "UNISONO_TOKEN", "UNISONO_TOKEN_FILE", "UNISONO_MASTER",          "UNISONO_FOLDER",           "UNISONO_JOB",
        "UNISONO_HOST",  "UNISONO_LAUNCHER",   "UNISONO_LAUNCHER_PROCESS"};
    return std::find(std::begin(known), std::end(known), name) != std::end(known) ||
           name.starts_with("TORCHELASTIC_") || name.starts_with("PET_");
}

/// All variables that the library reads, without `UNISONO_`. tests/docs/readme/messages.py compares
/// the list with the headers.
inline constexpr std::string_view known_variables =
    "ELASTIC_FOLDER FOLDER HOST HOSTS HOST_NAME HUB INTERFACE JOB JOINS LAUNCHER LAUNCHER_PROCESS LOCAL_RANK "
    "LOCAL_WORLD_SIZE MASTER NCCL_CHECK_EVERY NCCL_STAGED_BYTES NOTICE_AFTER PIECE_BYTES PORT_RANGE PROVIDER "
    "RANK SHARED_MEMORY_MIB TCP_CONGESTION TCP_CONNECTIONS TOKEN TOKEN_FILE TRUSTED_NETWORK WORLD_SIZE";

/// The number of insertions, removals and replacements of characters that turn `a` into `b`.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
        }
    }
    return row.back();
}

/// A line for each variable whose name is similar to one of the library's: one wrong character, or
/// two in a name of more than five. A misspelt variable, such as UNISONO_INTERFACES, would be
/// ignored silently, so rank 0 warns of it on standard error when it joins.
inline std::string unknown_variables(const Environment& environment) {
    constexpr std::string_view prefix = "UNISONO_";
    std::string text;
    for (const auto& [name, value] : environment.variables()) {
        if (!name.starts_with(prefix)) continue;
        const std::string_view rest = std::string_view(name).substr(prefix.size());
        std::string_view nearest;
        std::size_t distance = rest.size() > 5 ? 3 : 2;
        for (std::string_view left = known_variables; !left.empty();) {
            const std::string_view known = take_until(left, ' ');
            const std::size_t found = edit_distance(rest, known);
            if (found < distance) nearest = known, distance = found;
        }
        if (distance == 0 || nearest.empty()) continue;
        text += concat({"unisono: warning: ", name, " is set, but is no variable of Unisono; did you mean ", prefix,
                        nearest, "?\n"});
    }
    return text;
}

inline void warn_of_unknown_variables(const Environment& environment) {
    const std::string text = unknown_variables(environment);
    if (!text.empty()) static_cast<void>(std::fputs(text.c_str(), stderr));
}

} // namespace detail
UNISONO_NAMESPACE_END
