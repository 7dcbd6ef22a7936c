#pragma once

/// \file
/// The log of a training's hashes, and the comparison of two logs.
///
/// Rank 0 writes one line per update (or per n updates):
///
///     17 loss 0x1.8p-1 parameters 0123456789abcdef optimizer fedcba9876543210
///
/// Two runs that promise the same bits have the same lines. The first different line shows at which
/// update they differ, and whether in the loss (data, random numbers, the model), in the parameters
/// or in the optimizer's state.

#include "unisono/core/error.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/path.hpp"
#include "unisono/core/text.hpp"

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/stat.h>

UNISONO_NAMESPACE_BEGIN

/// Hashes an array of bits independently of the order: a sum over elements, each mixed with its
/// index, so that slices can be hashed separately and added. Equal arrays have equal hashes;
/// different arrays have equal hashes with a probability of 2^-64.
constexpr std::uint64_t hash_of_element(std::uint64_t index, std::uint64_t bits) {
    std::uint64_t z = detail::split_mix(bits, index); // mixed again, so that terms of the sum do not cancel
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    return z ^ (z >> 32);
}

/// The state of a training as two hashes.
struct StateHash {
    std::uint64_t parameters = 0;
    std::uint64_t optimizer = 0; ///< the optimizer's state and, with sums on a grid, the grids
    friend bool operator==(const StateHash&, const StateHash&) = default;
};

/// A line of a hash log, without the newline.
inline std::string hash_line(std::uint64_t update, double loss, const StateHash& hash) {
    return concat({update, " loss ", detail::hexadecimal_text(loss), " parameters ", hash_text(hash.parameters),
                   " optimizer ", hash_text(hash.optimizer)});
}

namespace detail {

/// Removes the lines of a hash log from the first line of this update or a later one on, and an
/// incomplete line that a killed process has left. Only for regular files, since pipes have nothing
/// to remove.
inline void keep_hashes_before(const std::string& path, std::uint64_t update) {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return;
    const std::string text = end_of_file(path, 0, found.st_size);
    std::size_t kept = 0;
    for (std::size_t end = 0; (end = text.find('\n', kept)) != std::string::npos; kept = end + 1) {
        std::uint64_t number = 0; // stays 0 for a comment
        std::from_chars(text.data() + kept, text.data() + end, number);
        if (number >= update) break;
    }
    if (kept != text.size()) static_cast<void>(cut_off_end(path, text.size() - kept));
}

} // namespace detail

/// The first difference of two logs.
struct LogComparison {
    bool equal = true;          ///< all lines are equal, and there is at least one
    bool empty = false;         ///< neither has a line: nothing was compared
    std::uint64_t compared = 0; ///< number of equal lines
    std::string what = {};      ///< description of the first difference; empty if there is none
};

/// Compares line by line. Comments (lines that begin with #) and empty lines do not count.
inline LogComparison compare_hash_logs(std::string_view first, std::string_view second) {
    const auto next = [](std::string_view& rest) {
        while (!rest.empty()) {
            const std::string_view line = detail::take_until(rest, '\n');
            if (!line.empty() && line[0] != '#') return line;
        }
        return std::string_view();
    };
    const auto word = [](std::string_view& line) { return detail::take_until(line, ' '); };
    LogComparison all;
    for (;;) {
        std::string_view a = next(first);
        std::string_view b = next(second);
        if (a.empty() && b.empty()) {
            all.empty = all.compared == 0;
            if (all.empty) all.equal = false, all.what = "neither log has an update";
            return all;
        }
        if (a.empty() || b.empty()) {
            all.equal = false;
            all.what = concat({"the ", (a.empty() ? "second" : "first"), " log has an update ", word(a.empty() ? b : a),
                               ", before which the other ends"});
            return all;
        }
        if (a == b) {
            ++all.compared;
            continue;
        }
        all.equal = false;
        const std::string_view update = word(a);
        if (const std::string_view other = word(b); other != update) {
            all.what = concat({"update ", update, " in the first log and ", other,
                               " in the second: the logs are of different updates"});
            return all;
        }
        all.what = concat({"update ", update, " differs"});
        const char* separator = ": ";
        while (!a.empty() || !b.empty()) {
            const std::string_view name = word(a);
            static_cast<void>(word(b));
            const std::string_view x = word(a);
            const std::string_view y = word(b);
            if (x == y) continue;
            all.what += concat({separator, name, " ", x, " and ", y});
            separator = "; ";
        }
        return all;
    }
}

UNISONO_NAMESPACE_END
