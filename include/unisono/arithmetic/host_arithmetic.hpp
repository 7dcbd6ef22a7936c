#pragma once

/// \file
/// The host's kernels as a value, for code that runs in host or device memory: `ThrustArithmetic`
/// (thrust.hpp) has the same functions.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/arithmetic/apply.hpp"
#include "unisono/arithmetic/scan.hpp"
#include "unisono/core/standard.hpp"

#include <cstring>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// The functions of the headers of the same names, with their laws.
struct HostArithmetic : OnHost {
    /// std::fill is a slow loop at -O2; all bits zero is the number zero.
    template <class T>
    static void zero(std::span<T> x) {
        static_assert(std::is_arithmetic_v<T>);
        if (!x.empty()) std::memset(x.data(), 0, x.size_bytes());
    }
    template <class T>
    static void copy(std::span<T> out, std::type_identity_t<std::span<const T>> x) {
        detail::check_sizes("copy", x.size(), out.size());
        std::copy(x.begin(), x.end(), out.begin());
    }
    template <class T>
    static void scale(std::span<T> x, double factor) {
        unisono::scale(x, factor);
    }
    template <class T>
    static void divide(std::span<T> x, double divisor) {
        unisono::divide(x, divisor);
    }
    template <class To, class T>
    static void accumulate(std::span<To> y, std::span<T> x, double weight = 1.0) {
        unisono::accumulate(y, x, weight);
    }
    template <class To, class T>
    static void accumulate_first(std::span<To> y, std::span<T> x, double weight = 1.0) {
        unisono::accumulate_first(y, x, weight);
    }
    template <class T>
    [[nodiscard]] static double sum_of_squares(std::span<T> x) {
        return unisono::sum_of_squares(x);
    }
};

UNISONO_NAMESPACE_END
