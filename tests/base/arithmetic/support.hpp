#pragma once

/// \file Shared by the tests of this room: instruction sets to try, and values that distinguish
/// right arithmetic from wrong.

#include <unisono/arithmetic/values.hpp>
#include <unisono/arithmetic/vectorised.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace arithmetic_test {

/// Every instruction set that this machine can run.
inline std::vector<unisono::InstructionSet> instruction_sets() {
    std::vector<unisono::InstructionSet> sets;
    for (const auto set :
         {unisono::InstructionSet::portable, unisono::InstructionSet::avx2, unisono::InstructionSet::avx512})
        if (set <= unisono::best_instruction_set()) sets.push_back(set);
    return sets;
}

template <class T>
bool same_bits(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// A seeded stream, mostly of numbers of many magnitudes and both signs, sometimes zeros,
/// infinities, NaN, subnormals and ties.
template <class T>
class Values {
public:
    explicit Values(std::uint64_t seed) : state_(seed * 2 + 1) {}

    std::uint64_t bits() { // splitmix64
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    T next() {
        const std::uint64_t random = bits();
        if constexpr (std::is_integral_v<T>) {
            return static_cast<T>(random >> (random % 3 * 20));
        } else {
            using Wide = unisono::accumulator_t<T>;
            constexpr std::array special = {0.0, -0.0, 1.0, -1.0, 1e-40, 65504.0, 1e30, 2.0};
            if (random % 97 == 0) return static_cast<T>(std::numeric_limits<Wide>::infinity());
            if (random % 101 == 0) return static_cast<T>(std::numeric_limits<Wide>::quiet_NaN());
            if (random % 7 == 0) return static_cast<T>(static_cast<Wide>(special[(random >> 8) % special.size()]));
            const double fraction = static_cast<double>(random >> 11) * 0x1p-53 - 0.5;
            const double scale = std::bit_cast<double>((1023 - 8 + (bits() % 16)) << 52);
            return static_cast<T>(static_cast<Wide>(fraction * scale));
        }
    }

private:
    std::uint64_t state_;
};

} // namespace arithmetic_test
