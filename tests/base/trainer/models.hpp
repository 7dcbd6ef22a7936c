// Models and data of the trainer's tests.
#pragma once

#include "unisono/core/random.hpp"
#include "unisono/data/data.hpp"
#include "unisono/model/model.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace unisono_test {

namespace un = unisono;

/// The model of the published program: a linear layer without bias whose loss is the sum of its
/// outputs.
template <class T = float>
struct SumOfOutputs {
    static constexpr un::GradientKind gradient_kind = un::GradientKind::sum;
    std::vector<T> weights, gradient;

    explicit SumOfOutputs(std::size_t width) : weights(width, T{1}), gradient(width) {}
    std::span<T> parameters() { return weights; }
    std::span<T> gradients() { return gradient; }
    template <class Label>
    double operator()(const un::RowBatch<T, Label>& batch, un::Pass&) {
        double loss = 0;
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            const auto row = batch.row(i);
            for (std::size_t j = 0; j < weights.size(); ++j) {
                gradient[j] += row[j];
                loss += static_cast<double>(row[j] * weights[j]);
            }
        }
        return loss;
    }
};

/// The mean of (x.w - t)^2 over the batch; labels are the targets. `Kind` may also be the sum. The
/// weights are cut into several parameters, with gaps between them in memory if `Fragmented`.
template <class T = double, un::GradientKind Kind = un::GradientKind::mean, bool Fragmented = false>
struct LeastSquares {
    static constexpr un::GradientKind gradient_kind = Kind;
    std::vector<std::vector<T>> pieces, gradient_pieces;
    std::vector<T> contiguous, contiguous_gradient;
    std::vector<std::span<T>> spans, gradient_spans;
    std::size_t width;
    bool says_ready = false;

    explicit LeastSquares(std::size_t columns, std::size_t piece = 0) : width(columns) {
        if (piece == 0) piece = columns;
        contiguous.assign(Fragmented ? 0 : columns, T{});
        contiguous_gradient.assign(Fragmented ? 0 : columns, T{});
        for (std::size_t at = 0; at < columns; at += piece) {
            const std::size_t count = std::min(piece, columns - at);
            if constexpr (Fragmented) {
                pieces.emplace_back(count, T{});
                gradient_pieces.emplace_back(count, T{});
                spans.push_back(pieces.back());
                gradient_spans.push_back(gradient_pieces.back());
            } else {
                spans.push_back(std::span(contiguous).subspan(at, count));
                gradient_spans.push_back(std::span(contiguous_gradient).subspan(at, count));
            }
        }
    }
    LeastSquares(const LeastSquares&) = delete;
    LeastSquares& operator=(const LeastSquares&) = delete;

    std::vector<std::span<T>>& parameters() { return spans; }
    std::vector<std::span<T>>& gradients() { return gradient_spans; }

    [[nodiscard]] std::vector<T> values() const {
        std::vector<T> all;
        for (const auto& one : spans) all.insert(all.end(), one.begin(), one.end());
        return all;
    }
    [[nodiscard]] double output(std::span<const T> row) const {
        double y = 0;
        std::size_t j = 0;
        for (const auto& one : spans)
            for (const T w : one) y += static_cast<double>(row[j++]) * static_cast<double>(w);
        return y;
    }
    template <class Label>
    double operator()(const un::RowBatch<T, Label>& batch, un::Pass& pass) {
        const double share = Kind == un::GradientKind::mean ? 1.0 / static_cast<double>(batch.rows()) : 1.0;
        std::vector<double> errors;
        double loss = 0;
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            errors.push_back(output(batch.row(i)) - static_cast<double>(batch.labels[i]));
            loss += errors.back() * errors.back() * share;
        }
        std::size_t end = width;
        // The last parameter first, as in backward passes.
        for (std::size_t p = spans.size(); p-- > 0;) {
            const std::size_t begin = end - spans[p].size();
            for (std::size_t i = 0; i < batch.rows(); ++i)
                for (std::size_t j = begin; j < end; ++j)
                    gradient_spans[p][j - begin] +=
                        static_cast<T>(2 * errors[i] * share * static_cast<double>(batch.row(i)[j]));
            if (says_ready) pass.ready(p);
            end = begin;
        }
        return loss;
    }
    template <class Label>
    std::vector<T> predict(const un::RowBatch<T, Label>& batch) const {
        std::vector<T> out;
        for (std::size_t i = 0; i < batch.rows(); ++i) out.push_back(static_cast<T>(output(batch.row(i))));
        return out;
    }
};

} // namespace unisono_test
