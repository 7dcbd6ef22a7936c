#pragma once

/// \file
/// A process's environment as a plain value. So functions that read it are pure, and tests can pass
/// any.

#include "unisono/core/number.hpp"
#include "unisono/core/standard.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

} // namespace detail
UNISONO_NAMESPACE_END
