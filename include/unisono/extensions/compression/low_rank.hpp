#pragma once

/// \file
/// Thin matrices, for PowerSgd. Each sum has the same order on every machine.

#include "unisono/arithmetic/vectorised.hpp"
#include "unisono/compression/compression.hpp"

#include <cmath>
#include <cstddef>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A matrix in row order; the last row may be short. No rows: not a matrix.
struct MatrixShape {
    std::size_t rows = 0, columns = 0, count = 0;
    [[nodiscard]] UNISONO_INLINE std::size_t in_row(std::size_t i) const {
        const std::size_t left = count - i * columns;
        return left < columns ? left : columns;
    }
};

/// The matrix of a parameter: the model's, or near-square if the model has no shapes; none if a
/// low-rank form of rank `rank` would not at least halve it.
inline MatrixShape fold(const ParameterMatrix& parameter, std::size_t rank) {
    const std::size_t count = parameter.slice.count;
    std::size_t columns = parameter.columns;
    if (columns == 0) columns = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
    const std::size_t rows = (count + columns - 1) / columns;
    if (2 * rank * (rows + columns) >= count) return {};
    return {rows, columns, count};
}

UNISONO_NO_CONTRACTION_BEGIN

/// M += values; P = M Q. Q is stored by columns and P by rows.
template <class T>
struct AddAndMultiply {
    const T* values;
    T* matrix;
    MatrixShape shape;
    const T* q;
    std::size_t rank;
    T* p;

    UNISONO_INLINE void operator()() const {
        constexpr std::size_t lanes = 64 / sizeof(T);
        for (std::size_t i = 0; i < shape.rows; ++i) {
            const std::size_t n = shape.in_row(i);
            const T* const from = values + i * shape.columns;
            T* const row = matrix + i * shape.columns;
            UNISONO_ELEMENTWISE
            for (std::size_t j = 0; j < n; ++j) row[j] += from[j];
            for (std::size_t k = 0; k < rank; ++k) {
                const T* const column = q + k * shape.columns;
                T sums[lanes] = {};
                std::size_t j = 0;
                for (; j + lanes <= n; j += lanes)
                    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += row[j + lane] * column[j + lane];
                T sum = 0;
                for (; j < n; ++j) sum += row[j] * column[j];
                for (std::size_t lane = 0; lane < lanes; ++lane) sum += sums[lane];
                p[i * rank + k] = sum;
            }
        }
    }
};

/// Q = M^T P.
template <class T>
struct MultiplyThinBack {
    const T* matrix;
    MatrixShape shape;
    const T* p;
    std::size_t rank;
    T* q;

    UNISONO_INLINE void operator()() const {
        for (std::size_t at = 0; at < rank * shape.columns; ++at) q[at] = 0;
        for (std::size_t i = 0; i < shape.rows; ++i) {
            const std::size_t n = shape.in_row(i);
            const T* const row = matrix + i * shape.columns;
            for (std::size_t k = 0; k < rank; ++k) {
                const T factor = p[i * rank + k];
                T* const column = q + k * shape.columns;
                UNISONO_ELEMENTWISE
                for (std::size_t j = 0; j < n; ++j) column[j] += factor * row[j];
            }
        }
    }
};

/// values = P Q^T; M -= P own^T.
template <class T>
struct MultiplyThin {
    const T *p, *q, *own;
    MatrixShape shape;
    std::size_t rank;
    T *values, *matrix;

    UNISONO_INLINE void operator()() const {
        for (std::size_t i = 0; i < shape.rows; ++i) {
            const std::size_t n = shape.in_row(i);
            T* const row = matrix + i * shape.columns;
            T* const to = values + i * shape.columns;
            for (std::size_t j = 0; j < n; ++j) to[j] = 0;
            for (std::size_t k = 0; k < rank; ++k) {
                const T factor = p[i * rank + k];
                const T* const column = q + k * shape.columns;
                const T* const own_column = own + k * shape.columns;
                UNISONO_ELEMENTWISE
                for (std::size_t j = 0; j < n; ++j) to[j] += factor * column[j];
                UNISONO_ELEMENTWISE
                for (std::size_t j = 0; j < n; ++j) row[j] -= factor * own_column[j];
            }
        }
    }
};

/// Makes the columns orthonormal (modified Gram-Schmidt, twice, which is enough). A column in the
/// span of the others becomes zero; values that are not finite stay so.
template <class T>
void orthonormalise(T* p, std::size_t rows, std::size_t rank) {
    const auto dot = [&](std::size_t a, std::size_t b) {
        double sum = 0;
        for (std::size_t i = 0; i < rows; ++i)
            sum += static_cast<double>(p[i * rank + a]) * static_cast<double>(p[i * rank + b]);
        return sum;
    };
    for (std::size_t k = 0; k < rank; ++k) {
        const double before = dot(k, k);
        for (int pass = 0; pass < 2; ++pass) {
            for (std::size_t other = 0; other < k; ++other) {
                const double share = dot(k, other);
                for (std::size_t i = 0; i < rows; ++i)
                    p[i * rank + k] = static_cast<T>(static_cast<double>(p[i * rank + k]) -
                                                     share * static_cast<double>(p[i * rank + other]));
            }
        }
        const double after = dot(k, k);
        const bool spanned = after <= before * (sizeof(T) == 4 ? 1e-10 : 1e-24);
        const double factor = before - before != 0 ? before - before : spanned ? 0 : 1 / std::sqrt(after);
        for (std::size_t i = 0; i < rows; ++i)
            p[i * rank + k] = static_cast<T>(static_cast<double>(p[i * rank + k]) * factor);
    }
}

UNISONO_NO_CONTRACTION_END

} // namespace detail
UNISONO_NAMESPACE_END
