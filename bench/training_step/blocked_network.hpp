#pragma once

// The network of examples/digits with kernels like those of a linear-algebra library: blocks of
// outputs stay in registers. Compared with the example's plain loops it is as fast as PyTorch, so
// an exchange has less computation to hide behind.

#include "../../examples/digits/network.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#if defined(__clang__)
#define BENCH_VECTORISED [[gnu::noinline]]
#else
#define BENCH_VECTORISED \
    [[gnu::noinline, gnu::optimize("O3"), gnu::target_clones("default", "arch=haswell", "arch=x86-64-v4")]]
#endif

namespace bench {

/// Matrices are stored by rows. A block is 4 rows of 64 columns.
struct Matrices {
    static constexpr std::size_t high = 4, wide = 64, lanes = 16;

    /// to[i][o] += sum over j of a(i, j) w[j][o], where a(i, j) = a[i * row_step + j * step].
    /// `high` divides rows.
    BENCH_VECTORISED static void multiply(const float* __restrict a, std::size_t row_step, std::size_t step,
                                          const float* __restrict w, float* __restrict to, std::size_t rows,
                                          std::size_t inner, std::size_t columns) {
        std::size_t o = 0;
        for (; o + wide <= columns; o += wide) {
            for (std::size_t i = 0; i < rows; i += high) {
                float block[high][wide];
                for (std::size_t r = 0; r < high; ++r)
                    for (std::size_t c = 0; c < wide; ++c) block[r][c] = to[(i + r) * columns + o + c];
                for (std::size_t j = 0; j < inner; ++j) {
                    const float* const from = w + j * columns + o;
                    for (std::size_t r = 0; r < high; ++r) {
                        const float factor = a[(i + r) * row_step + j * step];
                        for (std::size_t c = 0; c < wide; ++c) block[r][c] += factor * from[c];
                    }
                }
                for (std::size_t r = 0; r < high; ++r)
                    for (std::size_t c = 0; c < wide; ++c) to[(i + r) * columns + o + c] = block[r][c];
            }
        }
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < inner; ++j)
                for (std::size_t c = o; c < columns; ++c)
                    to[i * columns + c] += a[i * row_step + j * step] * w[j * columns + c];
    }

    /// to[i][j] = gate[i][j] > 0 ? sum over o of g[i][o] w[j][o] : 0. `high` divides rows and
    /// inner.
    BENCH_VECTORISED static void multiply_back(const float* __restrict g, const float* __restrict w,
                                               const float* __restrict gate, float* __restrict to, std::size_t rows,
                                               std::size_t inner, std::size_t columns) {
        for (std::size_t j = 0; j < inner; j += high) {
            for (std::size_t i = 0; i < rows; i += high) {
                float sums[high][high][lanes] = {};
                std::size_t o = 0;
                for (; o + lanes <= columns; o += lanes)
                    for (std::size_t r = 0; r < high; ++r)
                        for (std::size_t s = 0; s < high; ++s)
                            for (std::size_t c = 0; c < lanes; ++c)
                                sums[r][s][c] += g[(i + r) * columns + o + c] * w[(j + s) * columns + o + c];
                for (std::size_t r = 0; r < high; ++r) {
                    for (std::size_t s = 0; s < high; ++s) {
                        float sum = 0;
                        for (std::size_t c = 0; c < lanes; ++c) sum += sums[r][s][c];
                        for (std::size_t c = o; c < columns; ++c)
                            sum += g[(i + r) * columns + c] * w[(j + s) * columns + c];
                        const std::size_t at = (i + r) * inner + j + s;
                        to[at] = gate[at] > 0 ? sum : 0;
                    }
                }
            }
        }
    }
};

/// For batches whose rows, and layers whose inputs, are multiples of 4.
class BlockedNetwork : public digits::Network {
public:
    explicit BlockedNetwork(const std::vector<std::size_t>& widths)
        : Network(widths), widths_(widths), values_(widths.size()), slopes_(widths.size()) {}

    double operator()(const digits::Batch& batch, un::Pass& pass) {
        const std::size_t rows = batch.rows();
        const std::size_t last = widths_.size() - 1;
        if (rows % Matrices::high != 0) un::refuse_input({"BlockedNetwork: ", rows, " rows; expected a multiple of 4"});
        values_[0].assign(batch.values.begin(), batch.values.end());
        for (std::size_t l = 1; l <= last; ++l) {
            values_[l].resize(rows * widths_[l]);
            const auto biases = parameters()[2 * l - 1];
            for (std::size_t i = 0; i < rows; ++i)
                std::copy(biases.begin(), biases.end(), values_[l].data() + i * widths_[l]);
            Matrices::multiply(values_[l - 1].data(), widths_[l - 1], 1, parameters()[2 * l - 2].data(),
                               values_[l].data(), rows, widths_[l - 1], widths_[l]);
            if (l == last) break;
            for (float& x : values_[l]) x = x > 0 ? x : 0;
        }
        slopes_[last].resize(values_[last].size());
        const double loss = digits::CrossEntropyLoss{}(values_[last], batch, slopes_[last]);
        for (std::size_t l = last; l > 0; --l) {
            const auto biases = gradients()[2 * l - 1];
            for (std::size_t i = 0; i < rows; ++i)
                for (std::size_t c = 0; c < widths_[l]; ++c) biases[c] += slopes_[l][i * widths_[l] + c];
            Matrices::multiply(values_[l - 1].data(), 1, widths_[l - 1], slopes_[l].data(),
                               gradients()[2 * l - 2].data(), widths_[l - 1], rows, widths_[l]);
            pass.ready(2 * l - 1);
            pass.ready(2 * l - 2);
            if (l == 1) break;
            slopes_[l - 1].resize(values_[l - 1].size());
            Matrices::multiply_back(slopes_[l].data(), parameters()[2 * l - 2].data(), values_[l - 1].data(),
                                    slopes_[l - 1].data(), rows, widths_[l - 1], widths_[l]);
        }
        return loss;
    }

private:
    std::vector<std::size_t> widths_;
    /// By layer, then by row. Layer 0 is the batch.
    std::vector<std::vector<float>> values_, slopes_;
};

} // namespace bench
