// Does a compiler contract a * b + c to an FMA in kernels whose bits are promised? Each available
// compiler compiles this program with -O3 -mfma -mavx2. It computes with every such kernel on
// operands for which the two differ, and compares with products that went through memory.
//
//     probe    0: as promised. 1: a kernel was contracted (or is wrong otherwise). 77: no FMA here.
//
// With UNISONO_TEST_WITHOUT_GUARD the library's guards are removed, and the program succeeds if it
// detects a contraction. This shows that the test can fail.

#include <unisono/core/config.hpp>

#if defined(UNISONO_TEST_WITHOUT_GUARD)
#undef UNISONO_NO_CONTRACTION_BEGIN
#undef UNISONO_NO_CONTRACTION_END
#undef UNISONO_NO_CONTRACTION_HERE
#undef UNISONO_KERNEL
#define UNISONO_NO_CONTRACTION_BEGIN
#define UNISONO_NO_CONTRACTION_END
#define UNISONO_NO_CONTRACTION_HERE
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#define UNISONO_KERNEL [[gnu::noinline, gnu::flatten]]
#else
#define UNISONO_KERNEL [[gnu::noinline, gnu::flatten, gnu::optimize("O3")]]
#endif
#endif

#include <unisono/unisono.hpp>

#include "base/arithmetic/support.hpp"

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace un = unisono;
using arithmetic_test::Values;

namespace probe {

UNISONO_NO_CONTRACTION_BEGIN

/// As the author of an optimizer writes it.
template <class T>
struct Momentum {
    T rate, momentum;
    UNISONO_INLINE void operator()(T& p, const T& g, T& m) const {
        m = momentum * m + g;
        p = p - rate * m;
    }
};

/// The call operator is not forced inline.
struct Plain {
    float factor;
    void operator()(float& p, const float& g) const { p = p * factor + g; }
};

inline constexpr auto lambda = [](float& p, const float& g) { p = g * 3.1f - p; };

inline constexpr auto mix = [](float x, float y) { return x * 0.7f + y * 0.7f; };

UNISONO_NO_CONTRACTION_END

/// Outside of the guarded region. g++ still does not contract, because the kernel decides.
struct Outside {
    float factor;
    UNISONO_INLINE void operator()(float& p, const float& g) const { p = p * factor + g; }
};

/// A product that no compiler can fuse with what follows.
template <class T>
[[gnu::noinline]] T product(T a, T b) {
    volatile T result = a * b;
    return result;
}

template <class T>
std::vector<T> numbers(std::uint64_t seed, std::size_t count) {
    Values<T> values(seed);
    std::vector<T> result(count);
    for (T& x : result) {
        using W = un::accumulator_t<T>;
        do x = values.next();
        while (!(static_cast<W>(x) > W(-1e4) && static_cast<W>(x) < W(1e4)));
    }
    return result;
}

int differing = 0;

template <class T>
void compare(const char* what, un::InstructionSet set, const std::vector<T>& found, const std::vector<T>& wanted) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
        if (!arithmetic_test::same_bits(found[i], wanted[i])) ++wrong;
    if (wrong == 0) return;
    ++differing;
    std::printf("%s, %s: %zu of %zu elements differ from two roundings\n", what, name_of(set).data(), wrong,
                found.size());
}

template <class T>
void momentum(un::InstructionSet set, std::size_t count) {
    const auto p = numbers<T>(1, count);
    const auto g = numbers<T>(2, count);
    const auto m = numbers<T>(3, count);
    auto wanted = p;
    auto found = p;
    auto found_m = m;
    const Momentum<T> functor{T(0.013), T(0.9)};
    for (std::size_t i = 0; i < count; ++i) {
        const T moved = product(functor.momentum, m[i]) + g[i];
        wanted[i] = p[i] - product(functor.rate, moved);
    }
    un::detail::apply_on(set, functor, count, found.data(), g.data(), found_m.data());
    compare("momentum functor", set, found, wanted);
}

template <class Functor, class Reference>
void functor(const char* what, un::InstructionSet set, const Functor& f, Reference reference) {
    const auto p = numbers<float>(4, 1003);
    const auto g = numbers<float>(5, 1003);
    auto wanted = p;
    auto found = p;
    for (std::size_t i = 0; i < p.size(); ++i) wanted[i] = reference(p[i], g[i]);
    un::detail::apply_on(set, f, found.size(), found.data(), g.data());
    compare(what, set, found, wanted);
}

template <class To, class T>
void weighted(const char* what, un::InstructionSet set) {
    using W = un::accumulator_t<To>;
    const auto y = numbers<To>(6, 777);
    const auto x = numbers<T>(7, 777);
    auto wanted = y;
    auto found = y;
    const W weight = W(0.37);
    for (std::size_t i = 0; i < y.size(); ++i)
        wanted[i] = static_cast<To>(static_cast<W>(y[i]) + product(weight, static_cast<W>(x[i])));
    un::detail::apply_on(set, un::detail::AddWeighted<To, T>{weight}, y.size(), found.data(), x.data());
    compare(what, set, found, wanted);
}

void squares(un::InstructionSet set) {
    const auto x = numbers<double>(8, 1777);
    double lane[16] = {};
    for (std::size_t i = 0; i < x.size(); ++i) lane[i % 16] += product(x[i], x[i]);
    for (std::size_t width = 8; width > 0; width /= 2)
        for (std::size_t j = 0; j < width; ++j) lane[j] += lane[j + width];
    const double found = un::detail::sum_of_squares_on<double>(set, x);
    compare("sum of squares", set, std::vector<double>{found}, std::vector<double>{lane[0]});
}

/// The change of a rank and that of the others: two products.
template <class T>
void mixed(const char* what, un::InstructionSet set) {
    using W = un::accumulator_t<T>;
    const auto own = numbers<T>(11, 391);
    const auto other = numbers<T>(12, 391);
    auto wanted = own;
    auto found = own;
    const W share = W(0.3), rest = W(1 - 0.3);
    for (std::size_t i = 0; i < own.size(); ++i)
        wanted[i] = static_cast<T>(product(share, static_cast<W>(own[i])) + product(rest, static_cast<W>(other[i])));
    un::detail::apply_on(set, un::detail::Mix<T>{share, rest}, found.size(), found.data(), other.data());
    compare(what, set, found, wanted);
    if (set != un::best_instruction_set()) return;
    found = own;
    un::detail::mix(std::span<T>(found), other, 0.3);
    compare(what, set, found, wanted);
}

/// A user's operation with a product and a sum, through the combine kernel.
void combine(un::InstructionSet set) {
    const auto a = numbers<float>(9, 515);
    const auto b = numbers<float>(10, 515);
    auto found = a;
    auto wanted = a;
    for (std::size_t i = 0; i < a.size(); ++i) wanted[i] = product(a[i], 0.7f) + product(b[i], 0.7f);
    const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                  reinterpret_cast<const std::byte*>(b.data())};
    std::byte* target = reinterpret_cast<std::byte*>(found.data());
    un::detail::combine_on<std::remove_const_t<decltype(mix)>, float>(set, mix, sources, 2, &target, 1, a.size());
    compare("user's operation in combine", set, found, wanted);
}

} // namespace probe

int main() {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("fma") || !__builtin_cpu_supports("avx2")) {
        std::puts("skipped: this processor has no FMA");
        return 77;
    }
#endif
    for (const un::InstructionSet set : arithmetic_test::instruction_sets()) {
        for (const std::size_t count : {1u, 5u, 8u, 100u, 1001u}) {
            probe::momentum<float>(set, count);
            probe::momentum<double>(set, count);
        }
        probe::functor("functor that is not forced inline", set, probe::Plain{1.7f},
                       [](float p, float g) { return probe::product(p, 1.7f) + g; });
        probe::functor("lambda", set, probe::lambda, [](float p, float g) { return probe::product(g, 3.1f) - p; });
#if !defined(__clang__)
        probe::functor("functor outside of the guard", set, probe::Outside{1.7f},
                       [](float p, float g) { return probe::product(p, 1.7f) + g; });
#endif
        probe::weighted<float, float>("accumulate", set);
        probe::weighted<double, double>("accumulate in double", set);
        probe::weighted<float, un::bfloat16>("accumulate from bfloat16", set);
        probe::weighted<un::float16, un::float16>("accumulate float16", set);
        probe::mixed<float>("mix", set);
        probe::mixed<double>("mix in double", set);
        probe::squares(set);
        probe::combine(set);
    }
#if defined(UNISONO_TEST_WITHOUT_GUARD)
    std::printf("%d probes noticed that the guard was missing\n", probe::differing);
    return probe::differing > 0 ? 0 : 1;
#else
    std::printf("%d probes found a contraction\n", probe::differing);
    return probe::differing > 0 ? 1 : 0;
#endif
}
