#pragma once

/// \file
/// A misspelt variable, such as UNISONO_INTERFACES, would be ignored silently. Rank 0 warns of it
/// on standard error when it joins.

#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// All variables that the library reads, without `UNISONO_`. tests/readme/messages.py compares the
/// list with the headers.
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
/// two in a name of more than five.
inline std::string unknown_variables(const Environment& environment) {
    constexpr std::string_view prefix = "UNISONO_";
    std::string text;
    for (const auto& [name, value] : environment.variables()) {
        if (!name.starts_with(prefix)) continue;
        const std::string_view rest = std::string_view(name).substr(prefix.size());
        std::string_view nearest;
        std::size_t distance = rest.size() > 5 ? 3 : 2;
        for (std::string_view left = known_variables; !left.empty();) {
            const std::string_view known = left.substr(0, left.find(' '));
            left.remove_prefix(std::min(left.size(), known.size() + 1));
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
