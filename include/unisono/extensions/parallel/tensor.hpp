#pragma once

/// \file
/// Linear layers whose matrix is split over the ranks of a group, with the collectives for that.
/// The matrix product is yours. Source: Shoeybi et al. 2019 (Megatron-LM), section 3.
/// - `ColumnLinear`: each rank computes some of the outputs. Forward: no collective, or with
///   `.gather` an all_gather of the outputs. Backward: an all_reduce of the gradient with respect
///   to the inputs.
/// - `RowLinear`: each rank has some of the inputs, which arrive split. Forward: an all_reduce of
///   the outputs. Backward: no collective.
///
/// A column-split layer, element-wise layers, and a row-split layer make a block with two
/// collectives, in which no rank holds all intermediate values. The matrix is outputs by inputs, as
/// in PyTorch. If the number of ranks does not divide a size, it is split as evenly as possible.
///
///     using Input = un::Matrix<const float>;
///     auto multiply = [](Input a, Input b, un::Matrix<float> c, bool add) { // c = a b or c += a b
///         cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, ...);
///     };
///     auto& ranks = mesh.axis("tensor");
///     layers.add(un::column_linear<float>(ranks, 512, 2048, multiply, first_value));
///     layers.add(Gelu{2048 / ranks.size()});
///     layers.add(un::row_linear<float>(ranks, 2048, 512, multiply, first_value));
///
/// Determinism: all ranks have the same bits. Sums over inputs have another order than on one rank,
/// except for the outputs of column-split layers. Errors: bad_input for fewer rows or columns than
/// ranks.

#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/extensions/parallel/layer.hpp"
#include "unisono/trainer/failure.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A matrix in memory that another object owns. It has rows x columns after the transposition, if
/// it is stored transposed.
template <class T>
struct Matrix {
    T* data = nullptr;
    std::size_t rows = 0, columns = 0;
    std::size_t leading = 0; ///< elements from one stored row to the next
    bool transposed = false; ///< it is stored as columns x rows

    [[nodiscard]] T& operator()(std::size_t i, std::size_t j) const {
        return transposed ? data[j * leading + i] : data[i * leading + j];
    }
};

/// c = a b, or if `add` c += a b; c is not transposed.
template <class P, class T>
concept matrix_product =
    requires(P& product, Matrix<const T> in, Matrix<T> out, bool add) { product(in, in, out, add); };

/// Initial values: values(output, input) is the weight from an input to an output, or the output's
/// bias if `input` is the number of inputs.
template <class F, class T>
concept first_values = requires(F& values, std::size_t output, std::size_t input) {
    { values(output, input) } -> std::convertible_to<T>;
};

namespace detail {

/// Elements [first, first + count) of a dimension that the ranks of a group share.
struct TensorSlice {
    std::size_t first = 0, count = 0;

    /// This rank's slice. \throws error bad_input: fewer elements than ranks; the other ranks are
    /// told
    template <class World>
    static TensorSlice own(World& world, std::size_t all, const char* what) {
        return telling_all(world, what, [&] { return of(world, all, world.rank(), what); });
    }
    template <class World>
    static TensorSlice of(const World& world, std::size_t all, int rank, const char* what) {
        const auto ranks = static_cast<std::size_t>(world.size()), r = static_cast<std::size_t>(rank);
        if (all < ranks) refuse_input({what, ": found ", all, " to be split over ", ranks, " ranks"});
        const std::size_t first = all / ranks * r + std::min(r, all % ranks);
        return {first, all / ranks + (r < all % ranks ? 1 : 0)};
    }
};

} // namespace detail

/// Options of ColumnLinear.
struct ColumnOptions {
    bool gather = false; ///< each rank gets all outputs, otherwise only its own
    friend bool operator==(const ColumnOptions&, const ColumnOptions&) = default;
};

/// A linear layer in which each rank of `world` computes some of the outputs; all ranks have all
/// inputs.
template <floating_element T, class World, matrix_product<T> Product, first_values<T> First>
class ColumnLinear {
public:
    ColumnLinear(World& world, std::size_t inputs, std::size_t outputs, Product product, First first,
                 ColumnOptions options)
        : world_(&world), inputs_(inputs), outputs_(outputs),
          mine_(detail::TensorSlice::own(world, outputs, "ColumnLinear's outputs")), product_(std::move(product)),
          first_(std::move(first)), options_(options) {}

    [[nodiscard]] std::size_t inputs() const { return inputs_; }
    [[nodiscard]] std::size_t outputs() const { return options_.gather ? outputs_ : mine_.count; }
    [[nodiscard]] std::size_t parameters() const { return (inputs_ + 1) * mine_.count; }
    void most_over_ranks(std::span<double> values) const {
        if (world_->size() > 1) all_reduce(*world_, values, Max{});
    }
    void initialise(std::span<T> values) {
        for (std::size_t o = 0; o < mine_.count; ++o) {
            for (std::size_t i = 0; i < inputs_; ++i) values[o * inputs_ + i] = first_(mine_.first + o, i);
            values[inputs_ * mine_.count + o] = first_(mine_.first + o, inputs_);
        }
    }
    void forward(LayerForward<T>& call) {
        const std::size_t n = call.samples, m = mine_.count;
        if (options_.gather) local_.resize(n * m);
        T* const out = options_.gather ? local_.data() : call.output.data();
        const T* const bias = call.parameters.data() + inputs_ * m;
        product_(Matrix<const T>{call.input.data(), n, inputs_, inputs_, false},
                 Matrix<const T>{call.parameters.data(), inputs_, m, inputs_, true}, Matrix<T>{out, n, m, m, false},
                 false);
        for (std::size_t s = 0; s < n; ++s)
            for (std::size_t o = 0; o < m; ++o) detail::add_to(out[s * m + o], bias[o]);
        if (options_.gather) gather(call);
    }
    void backward(LayerBackward<T>& call) {
        const std::size_t n = call.samples, m = mine_.count, wide = outputs();
        const T* const slopes = call.output_gradient.data() + (options_.gather ? mine_.first : 0);
        T* const bias = call.gradient.data() + inputs_ * m;
        product_(Matrix<const T>{slopes, m, n, wide, true},
                 Matrix<const T>{call.input.data(), n, inputs_, inputs_, false},
                 Matrix<T>{call.gradient.data(), m, inputs_, inputs_, false}, true);
        for (std::size_t s = 0; s < n; ++s)
            for (std::size_t o = 0; o < m; ++o) detail::add_to(bias[o], slopes[s * wide + o]);
        if (call.input_gradient.empty()) return;
        product_(Matrix<const T>{slopes, n, m, wide, false},
                 Matrix<const T>{call.parameters.data(), m, inputs_, inputs_, false},
                 Matrix<T>{call.input_gradient.data(), n, inputs_, inputs_, false}, false);
        if (world_->size() > 1) all_reduce(*world_, call.input_gradient);
    }

private:
    void gather(LayerForward<T>& call) {
        const std::size_t n = call.samples;
        counts_.clear();
        for (int rank = 0; rank < world_->size(); ++rank) counts_.push_back(n * of(rank).count);
        gathered_.resize(n * outputs_);
        all_gather(*world_, local_, gathered_, counts_);
        const T* from = gathered_.data();
        for (int rank = 0; rank < world_->size(); ++rank)
            for (std::size_t s = 0; s < n; ++s, from += of(rank).count)
                std::copy_n(from, of(rank).count, call.output.data() + s * outputs_ + of(rank).first);
    }
    [[nodiscard]] detail::TensorSlice of(int rank) const {
        return detail::TensorSlice::of(*world_, outputs_, rank, "ColumnLinear's outputs");
    }

    World* world_;
    std::size_t inputs_, outputs_;
    detail::TensorSlice mine_;
    Product product_;
    First first_;
    ColumnOptions options_;
    std::vector<T> local_, gathered_;
    std::vector<std::size_t> counts_;
};

/// A linear layer in which each rank of `world` has some of the inputs, as a ColumnLinear leaves
/// them; all ranks get all outputs. Each rank has a bias, and the biases get the same gradient for
/// a batch. The bias of rank 0 is added, so all ranks have the same outputs even if the biases
/// differ: each rank's replicas may sum its gradients in another order.
template <floating_element T, class World, matrix_product<T> Product, first_values<T> First>
class RowLinear {
public:
    RowLinear(World& world, std::size_t inputs, std::size_t outputs, Product product, First first)
        : world_(&world), inputs_(inputs), outputs_(outputs),
          mine_(detail::TensorSlice::own(world, inputs, "RowLinear's inputs")), product_(std::move(product)),
          first_(std::move(first)) {}

    [[nodiscard]] std::size_t inputs() const { return mine_.count; }
    [[nodiscard]] std::size_t outputs() const { return outputs_; }
    [[nodiscard]] std::size_t parameters() const { return (mine_.count + 1) * outputs_; }
    void most_over_ranks(std::span<double> values) const {
        if (world_->size() > 1) all_reduce(*world_, values, Max{});
    }
    void initialise(std::span<T> values) {
        const std::size_t m = mine_.count;
        for (std::size_t o = 0; o < outputs_; ++o) {
            for (std::size_t i = 0; i < m; ++i) values[o * m + i] = first_(o, mine_.first + i);
            values[m * outputs_ + o] = first_(o, inputs_);
        }
    }
    void forward(LayerForward<T>& call) {
        const std::size_t n = call.samples, m = mine_.count;
        const T* const bias = call.parameters.data() + m * outputs_;
        product_(Matrix<const T>{call.input.data(), n, m, m, false},
                 Matrix<const T>{call.parameters.data(), m, outputs_, m, true},
                 Matrix<T>{call.output.data(), n, outputs_, outputs_, false}, false);
        if (world_->rank() == 0)
            for (std::size_t s = 0; s < n; ++s)
                for (std::size_t o = 0; o < outputs_; ++o) detail::add_to(call.output[s * outputs_ + o], bias[o]);
        if (world_->size() > 1) all_reduce(*world_, call.output);
    }
    void backward(LayerBackward<T>& call) {
        const std::size_t n = call.samples, m = mine_.count;
        const T* const slopes = call.output_gradient.data();
        T* const bias = call.gradient.data() + m * outputs_;
        product_(Matrix<const T>{slopes, outputs_, n, outputs_, true},
                 Matrix<const T>{call.input.data(), n, m, m, false},
                 Matrix<T>{call.gradient.data(), outputs_, m, m, false}, true);
        for (std::size_t s = 0; s < n; ++s)
            for (std::size_t o = 0; o < outputs_; ++o) detail::add_to(bias[o], slopes[s * outputs_ + o]);
        if (call.input_gradient.empty()) return;
        product_(Matrix<const T>{slopes, n, outputs_, outputs_, false},
                 Matrix<const T>{call.parameters.data(), outputs_, m, m, false},
                 Matrix<T>{call.input_gradient.data(), n, m, m, false}, false);
    }

private:
    World* world_;
    std::size_t inputs_, outputs_;
    detail::TensorSlice mine_;
    Product product_;
    First first_;
};

/// `inputs` and `outputs` are those of the whole layer.
template <floating_element T, class World, matrix_product<T> Product, first_values<T> First>
[[nodiscard]] auto column_linear(World& world, std::size_t inputs, std::size_t outputs, Product product, First first,
                                 ColumnOptions options = {}) {
    return ColumnLinear<T, World, Product, First>(world, inputs, outputs, std::move(product), std::move(first),
                                                  options);
}
/// Makes a RowLinear with this product and these initial values.
template <floating_element T, class World, matrix_product<T> Product, first_values<T> First>
[[nodiscard]] auto row_linear(World& world, std::size_t inputs, std::size_t outputs, Product product, First first) {
    return RowLinear<T, World, Product, First>(world, inputs, outputs, std::move(product), std::move(first));
}

UNISONO_NAMESPACE_END
