// Reference values from PyTorch, made by tests/support/data/make_reference.py. Floats are C hex
// strings.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace unisono_test {

/// The whole of tests/support/data/reference.json, read once.
inline const nlohmann::json& reference() {
    static const nlohmann::json content = [] {
        std::ifstream file{UNISONO_TEST_DATA "/reference.json"};
        if (!file) throw std::runtime_error("cannot read " UNISONO_TEST_DATA "/reference.json");
        return nlohmann::json::parse(file);
    }();
    return content;
}

/// A C hex float such as "0x1.8p-1", exact; throws std::invalid_argument for anything else.
inline double parse_hex(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || end != text.c_str() + text.size()) {
        throw std::invalid_argument("not a C hex float: '" + text + "'");
    }
    return value;
}

/// An array of C hex floats as numbers; throws if a value does not fit T exactly.
template <class T = double>
std::vector<T> parse_hex_array(const nlohmann::json& array) {
    static_assert(std::is_floating_point_v<T>);
    std::vector<T> values;
    values.reserve(array.size());
    for (const auto& item : array) {
        const double exact = parse_hex(item.get<std::string>());
        const T value = static_cast<T>(exact);
        if (static_cast<double>(value) != exact) {
            throw std::invalid_argument("not exact in the type asked for: " + item.get<std::string>());
        }
        values.push_back(value);
    }
    return values;
}

} // namespace unisono_test
