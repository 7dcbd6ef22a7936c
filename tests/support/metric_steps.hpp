// The steps of the losses in files of metrics.
#pragma once

#include "support/folder.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace unisono_test {

using Steps = std::vector<std::uint64_t>;

/// The lines of a file of JSON.
inline std::vector<nlohmann::json> json_lines(const std::string& path) {
    std::istringstream all(content(path));
    std::vector<nlohmann::json> found;
    for (std::string line; std::getline(all, line);) found.push_back(nlohmann::json::parse(line));
    return found;
}
inline Steps steps_of_lines(const std::string& path) {
    Steps found;
    for (const auto& one : json_lines(path))
        if (one.contains("loss")) found.push_back(one["step"].get<std::uint64_t>());
    return found;
}
inline Steps steps_of_table(const std::string& path) {
    std::istringstream all(content(path));
    Steps found;
    for (std::string line; std::getline(all, line);)
        if (line.find(",loss,") != line.npos) found.push_back(std::strtoull(line.c_str(), nullptr, 10));
    return found;
}
/// Of a folder's files in their order, as TensorBoard reads them. Each step is below 128.
inline Steps steps_of_board(const std::string& path) {
    std::map<std::string, std::string> files;
    for (const auto& one : std::filesystem::directory_iterator(path))
        files[one.path().string()] = content(one.path().string());
    Steps found;
    for (const auto& [name, bytes] : files)
        for (std::size_t at = 0; at + 16 <= bytes.size();) {
            std::uint64_t size = 0;
            std::memcpy(&size, bytes.data() + at, sizeof size);
            if (size > bytes.size() - at - 16) break;
            const std::string event = bytes.substr(at + 12, size);
            if (event.find("\n\x04loss") != event.npos) found.push_back(static_cast<unsigned char>(event[10]));
            at += 16 + size;
        }
    return found;
}

} // namespace unisono_test
