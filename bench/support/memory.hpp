#pragma once

// Buffers for measurements: touched before they are used, at distances at which no two loads alias,
// rewritten before each repetition (an unmodified cached buffer flatters), and checked after it.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <immintrin.h>
#include <span>
#include <sys/mman.h>

namespace bench {

/// Floats in memory of their own. `number` staggers the buffers of a program by an odd number of
/// pages and of lines: at distances of large powers of two the processor mistakes loads for aliases
/// of stores.
class Floats {
public:
    Floats(std::size_t count, int number) : count_(count) {
        const std::size_t shift = static_cast<std::size_t>(number) * (37 * 4096 + 5 * 64);
        bytes_ = count * sizeof(float) + shift + 4096;
        base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base_ == MAP_FAILED) {
            std::perror("mmap");
            std::exit(1);
        }
        data_ = reinterpret_cast<float*>(static_cast<char*>(base_) + shift);
        std::memset(data_, 1, count * sizeof(float));
    }
    Floats(const Floats&) = delete;
    Floats& operator=(const Floats&) = delete;
    ~Floats() { munmap(base_, bytes_); }

    [[nodiscard]] float* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return count_; }
    [[nodiscard]] std::span<float> first(std::size_t count) const { return {data_, count}; }

private:
    std::size_t count_;
    std::size_t bytes_ = 0;
    void* base_ = nullptr;
    float* data_ = nullptr;
};

/// Small integers, so that sums over all ranks are exact: element i of `rank` in a repetition.
inline float value_of(std::size_t i, int rank, std::uint32_t repetition) {
    return static_cast<float>((static_cast<std::uint32_t>(i) + repetition) % 1021u * 8u +
                              static_cast<std::uint32_t>(rank));
}

inline void rewrite(std::span<float> data, int rank, std::uint32_t repetition) {
    const auto whole = static_cast<float>(rank);
    std::uint32_t place = repetition % 1021u;
    for (float& x : data) {
        x = static_cast<float>(place * 8u) + whole;
        if (++place == 1021u) place = 0;
    }
}

/// Ends the program if `data` is not the sum over all ranks of what `rewrite` wrote.
inline void check_sum(std::span<const float> data, int ranks, std::uint32_t repetition, const char* who) {
    const auto all = static_cast<float>(ranks);
    const auto numbers = static_cast<float>(ranks * (ranks - 1) / 2);
    std::size_t wrong = data.size();
    // A backward loop needs no early exit, so it stays fast.
    for (std::size_t i = data.size(); i-- > 0;) {
        const std::uint32_t at = static_cast<std::uint32_t>((i + repetition) % 1021u);
        if (data[i] != static_cast<float>(at * 8u) * all + numbers) wrong = i;
    }
    if (wrong == data.size()) return;
    std::fprintf(stderr, "%s: element %zu of %zu is %g, expected %g\n", who, wrong, data.size(),
                 static_cast<double>(data[wrong]), static_cast<double>(value_of(wrong, 0, repetition) * all + numbers));
    std::exit(1);
}

/// A copy that bypasses the caches. Addresses and size are multiples of 64 bytes.
[[gnu::target("avx2")]] inline void streaming_copy(void* to, const void* from, std::size_t bytes) {
    auto* out = static_cast<__m256i*>(to);
    const auto* in = static_cast<const __m256i*>(from);
    for (std::size_t i = 0; i < bytes / 32; i += 2) {
        const __m256i a = _mm256_load_si256(in + i);
        const __m256i b = _mm256_load_si256(in + i + 1);
        _mm256_stream_si256(out + i, a);
        _mm256_stream_si256(out + i + 1, b);
    }
    _mm_sfence();
}

} // namespace bench
