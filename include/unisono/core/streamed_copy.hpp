#pragma once

/// \file
/// Copies of data that exceed the caches.

#include "unisono/core/config.hpp"
#include "unisono/core/standard.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

UNISONO_NAMESPACE_BEGIN
namespace detail {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDACC__)
inline constexpr bool has_streamed_stores = true;

using StreamedWords = long long __attribute__((vector_size(16)));

inline void store_past_caches(StreamedWords* to, StreamedWords words) {
#if defined(__clang__)
    __builtin_nontemporal_store(words, to);
#else
    __builtin_ia32_movntdq(to, words);
#endif
}

/// As std::memcpy, for targets that are not in a cache before they are read. An ordinary store
/// reads a line before it changes it; these stores write whole lines, so that only two thirds of
/// the bytes cross the memory bus. The C library does the same if it knows the size of the caches;
/// in a virtual machine it may not.
inline void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) {
    constexpr std::size_t line = 64;
    constexpr std::size_t words = line / sizeof(StreamedWords);
    const std::size_t head = std::min(bytes, (line - reinterpret_cast<std::uintptr_t>(to) % line) % line);
    std::memcpy(to, from, head);
    std::size_t done = head;
    for (; done + line <= bytes; done += line) {
        StreamedWords held[words];
        std::memcpy(held, from + done, line);
        auto* const target = reinterpret_cast<StreamedWords*>(to + done);
        for (std::size_t i = 0; i < words; ++i) store_past_caches(target + i, held[i]);
    }
    __builtin_ia32_sfence(); // such stores are not ordered with the flag that announces them
    std::memcpy(to + done, from + done, bytes - done);
}
#else
inline constexpr bool has_streamed_stores = false;
inline void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#endif

} // namespace detail
UNISONO_NAMESPACE_END
