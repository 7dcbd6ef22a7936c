// The error for state that no rank has any more.
#pragma once

#include <regex>
#include <string>
#include <vector>

namespace unisono_test {

/// The numbers of the owners that the text names, and of the ranks that had their copies.
inline std::vector<int> ranks_without_state(const std::string& text) {
    static const std::regex pair("rank (\\d+) \\(copied to rank (\\d+)\\)");
    std::vector<int> named;
    for (std::sregex_iterator one(text.begin(), text.end(), pair), end; one != end; ++one)
        for (const std::size_t i : {1u, 2u}) named.push_back(std::stoi((*one)[i]));
    return named;
}

} // namespace unisono_test
