#pragma once

/// \file
/// The library's hashes. Ranks compare them and files have them: their values never change.

#include "unisono/core/config.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// FNV-1a (Fowler, Noll and Vo): cheap, for what ranks compare. A hash begins with the basis, and
/// takes one word after another, or one byte after another.
inline constexpr std::uint64_t fnv_basis = 14695981039346656037u;
inline constexpr std::uint32_t fnv_basis_32 = 2166136261u;
constexpr std::uint64_t fnv1a(std::uint64_t hash, std::uint64_t word) { return (hash ^ word) * 1099511628211u; }
constexpr std::uint32_t fnv1a(std::uint32_t hash, std::uint32_t word) { return (hash ^ word) * 16777619u; }
template <class Hash>
constexpr Hash fnv1a(Hash hash, std::string_view text) {
    for (const char c : text) hash = fnv1a(hash, Hash{static_cast<unsigned char>(c)});
    return hash;
}
inline std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t hash = fnv_basis) {
    return fnv1a(hash, std::string_view(static_cast<const char*>(data), bytes));
}

/// The finaliser of SplitMix64: each bit of the result depends on each bit of x.
constexpr std::uint64_t scrambled(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
/// SplitMix64 (Steele et al. 2014): the number at `index` of the sequence of `seed`.
constexpr std::uint64_t split_mix(std::uint64_t seed, std::uint64_t index = 0) {
    return scrambled(seed + 0x9e3779b97f4a7c15u * (index + 1));
}

} // namespace detail

/// "0123456789abcdef"
inline std::string hash_text(std::uint64_t hash) {
    char text[20];
    static_cast<void>(std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash)));
    return text;
}

UNISONO_NAMESPACE_END
