#pragma once

// The oracle of all collectives: what each rank gives is a pure function of its rank. Results are
// computed serially.

#include <unisono/unisono.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace oracle {

/// Small integers, which are exact in every element type, also when summed over 64 ranks in 8 bits
/// (mod 256) or bfloat16.
template <class T>
constexpr T value(int rank, std::size_t index) {
    const auto number = static_cast<int>((static_cast<std::size_t>(rank) * 7 + index * 3 + index / 11) % 4);
    if constexpr (std::is_same_v<T, unisono::bfloat16> || std::is_same_v<T, unisono::float16>) {
        return T(static_cast<float>(number));
    } else {
        return static_cast<T>(number);
    }
}

/// `value` repeats after as many elements. Large vectors are copies of so many, since a sanitizer's
/// build takes seconds to compute millions of elements one by one.
inline constexpr std::size_t period = 44;
static_assert([] {
    for (int rank = 0; rank < 9; ++rank)
        for (std::size_t i = 0; i < 4 * period; ++i)
            if (value<int>(rank, i) != value<int>(rank, i + period)) return false;
    return true;
}());

/// Fills the rest of `values` with its first elements.
template <class T>
void repeat(std::vector<T>& values) {
    for (std::size_t filled = period; filled < values.size(); filled *= 2)
        std::copy_n(values.data(), std::min(filled, values.size() - filled), values.data() + filled);
}

template <class T>
std::vector<T> contribution(int rank, std::size_t count) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < std::min(count, period); ++i) values[i] = value<T>(rank, i);
    repeat(values);
    return values;
}

template <class T, class Op>
std::vector<T> reduced(int world, std::size_t count, const Op& op) {
    std::vector<T> result = contribution<T>(0, std::min(count, period));
    for (int rank = 1; rank < world; ++rank) {
        for (std::size_t i = 0; i < result.size(); ++i) result[i] = op(result[i], value<T>(rank, i));
    }
    result.resize(count);
    repeat(result);
    return result;
}

/// No element that is expected is NaN or a zero below zero, so equal elements have equal bytes.
template <class T>
bool equal(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

} // namespace oracle
