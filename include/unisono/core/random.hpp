#pragma once

/// \file
/// Random numbers that are the same on every machine: the Mersenne Twister with PyTorch's `rand`
/// and `randperm`, and a counter-based generator for streams that depend only on their key. The
/// standard's distributions differ between library implementations, and `<random>` is slow to
/// compile.

#include "unisono/core/hash.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// mt19937, the 32-bit Mersenne Twister; the same stream as PyTorch's CPU generator after
/// `manual_seed(seed)`. As there, only the lower 32 bits of the seed count. 2.5 KiB, copyable: a
/// copy continues the stream from the same state.
/// Source: Matsumoto and Nishimura, "Mersenne Twister" (1998), with the initialisation of 2002.
class Mt19937 {
public:
    using result_type = std::uint32_t;

    explicit Mt19937(std::uint64_t seed = 5489);

    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return 0xffffffffu; }

    /// 32 uniform bits.
    result_type operator()() {
        if (next_ == size) refill();
        std::uint32_t y = state_[next_++];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        return y ^ (y >> 18);
    }

    /// 64 uniform bits: two draws, the first is the upper half.
    std::uint64_t draw64() {
        const std::uint64_t upper = (*this)();
        return (upper << 32) | (*this)();
    }

    friend bool operator==(const Mt19937&, const Mt19937&) = default;

private:
    static constexpr std::size_t size = 624;
    static constexpr std::size_t middle = 397;

    static std::uint32_t twist(std::uint32_t upper, std::uint32_t lower) {
        const std::uint32_t y = (upper & 0x80000000u) | (lower & 0x7fffffffu);
        return (y >> 1) ^ ((0u - (y & 1u)) & 0x9908b0dfu);
    }
    void refill();

    std::array<std::uint32_t, size> state_ = {};
    std::size_t next_ = size;
};

/// `torch.rand` in float32, continuing the generator: each number is in [0, 1), one draw per
/// element.
void torch_rand(Mt19937& generator, std::span<float> out);

/// `torch.rand` in float64: two draws per element.
void torch_rand(Mt19937& generator, std::span<double> out);

/// `torch.manual_seed(seed); torch.rand(count)`.
std::vector<float> torch_rand(std::uint64_t seed, std::size_t count);

/// `torch.randperm(out.size(), generator=...)` into `out`; Index must hold out.size() - 1. No
/// memory, one draw per element. Lists of 2^32 / 20 elements and more are drawn with 64 bits,
/// inside out, as PyTorch does.
template <std::unsigned_integral Index>
void torch_randperm(Mt19937& generator, std::span<Index> out) {
    const std::size_t n = out.size();
    if (n < 0xffffffffu / 20) {
        for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<Index>(i);
        for (std::size_t i = 0; i + 1 < n; ++i) std::swap(out[i], out[i + generator() % (n - i)]);
    } else {
        for (std::size_t i = 0; i < n; ++i) {
            const std::size_t z = generator.draw64() % (i + 1);
            out[i] = static_cast<Index>(i);
            out[i] = out[z];
            out[z] = static_cast<Index>(i);
        }
    }
}

/// The numbers 0 to n - 1 in the order of torch.randperm(n).
template <std::unsigned_integral Index = std::size_t>
std::vector<Index> torch_randperm(std::size_t n, Mt19937& generator) {
    std::vector<Index> order(n);
    torch_randperm(generator, std::span<Index>(order.data(), n));
    return order;
}

/// Philox 4x32-10: maps 128 bits of (key, counter) to 128 uniform bits, without state. So random
/// numbers for replica r, epoch e and update u can depend only on these three, not on the rank that
/// hosts the replica.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xd2511f53u} * counter[0];
        const std::uint64_t b = std::uint64_t{0xcd9e8d57u} * counter[2];
        counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
                   static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
        key = {key[0] + 0x9e3779b9u, key[1] + 0xbb67ae85u};
    }
    return counter;
}

/// A stream of random numbers named by three numbers (for instance seed, replica and update): the
/// same whenever and wherever it is drawn. A uniform random bit generator with a period of 2^34
/// draws.
class CounterRandom {
public:
    using result_type = std::uint32_t;

    explicit constexpr CounterRandom(std::uint64_t seed, std::uint32_t stream = 0, std::uint64_t index = 0)
        : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
          counter_{0, stream, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32)} {}

    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return 0xffffffffu; }

    constexpr result_type operator()() {
        if (next_ == 4) {
            block_ = philox(counter_, key_);
            ++counter_[0];
            next_ = 0;
        }
        return block_[next_++];
    }

    /// Uniform in [0, 1), a multiple of 2^-24.
    constexpr float uniform() { return static_cast<float>((*this)() >> 8) * 0x1p-24f; }

private:
    std::array<std::uint32_t, 2> key_;
    std::array<std::uint32_t, 4> counter_;
    std::array<std::uint32_t, 4> block_ = {};
    std::size_t next_ = 4;
};

/// Random numbers for one use of one sample (a layer's dropout, an augmentation): a function only
/// of the training's seed, the epoch, the sample's index in the data set and the use. So they do
/// not depend on the micro-batch, replica or rank that processes the sample.
constexpr CounterRandom sample_random(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample,
                                      std::uint32_t use = 0) {
    const std::uint64_t key =
        seed ^ (epoch * 0x9e3779b97f4a7c15u) ^ 0x73616d706c650000u; // different from other streams of the seed
    return CounterRandom(detail::scrambled(key), use, sample);
}

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION Mt19937::Mt19937(std::uint64_t seed) {
    state_[0] = static_cast<std::uint32_t>(seed);
    for (std::uint32_t i = 1; i < size; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

[[gnu::noinline]] UNISONO_DEFINITION void Mt19937::refill() {
    for (std::size_t i = 0; i < size - middle; ++i) state_[i] = state_[i + middle] ^ twist(state_[i], state_[i + 1]);
    for (std::size_t i = size - middle; i < size - 1; ++i)
        state_[i] = state_[i + middle - size] ^ twist(state_[i], state_[i + 1]);
    state_[size - 1] = state_[middle - 1] ^ twist(state_[size - 1], state_[0]);
    next_ = 0;
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
UNISONO_DEFINITION void torch_rand(Mt19937& generator, std::span<float> out) {
    for (float& x : out) x = static_cast<float>(generator() & 0xffffffu) * 0x1p-24f;
}

UNISONO_DEFINITION void torch_rand(Mt19937& generator, std::span<double> out) {
    for (double& x : out) x = static_cast<double>(generator.draw64() & 0x1fffffffffffffu) * 0x1p-53;
}

UNISONO_DEFINITION std::vector<float> torch_rand(std::uint64_t seed, std::size_t count) {
    std::vector<float> values(count);
    Mt19937 generator{seed};
    torch_rand(generator, {values.data(), count});
    return values;
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
