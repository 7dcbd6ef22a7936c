#pragma once

// The oracle of all collectives: what each rank gives is a pure function of its rank. Results are
// computed serially.

#include <unisono/unisono.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace oracle {

/// Small integers, which are exact in every element type, also when summed over 64 ranks in 8 bits
/// (mod 256) or bfloat16.
template <class T>
T value(int rank, std::size_t index) {
    const auto number = static_cast<int>((static_cast<std::size_t>(rank) * 7 + index * 3 + index / 11) % 4);
    if constexpr (std::is_same_v<T, unisono::bfloat16> || std::is_same_v<T, unisono::float16>) {
        return T(static_cast<float>(number));
    } else {
        return static_cast<T>(number);
    }
}

template <class T>
std::vector<T> contribution(int rank, std::size_t count) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = value<T>(rank, i);
    return values;
}

template <class T, class Op>
std::vector<T> reduced(int world, std::size_t count, const Op& op) {
    std::vector<T> result = contribution<T>(0, count);
    for (int rank = 1; rank < world; ++rank) {
        for (std::size_t i = 0; i < count; ++i) result[i] = op(result[i], value<T>(rank, i));
    }
    return result;
}

template <class T>
bool equal(const std::vector<T>& a, const std::vector<T>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!(a[i] == b[i])) return false;
    }
    return true;
}

} // namespace oracle
