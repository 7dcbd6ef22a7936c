#pragma once

/// \file
/// Gradients travel as the product of two thin matrices.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/arithmetic/vectorised.hpp"
#include "unisono/compression/compression.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/compression/left_over.hpp"
#include "unisono/extensions/compression/low_rank.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/layout/owners.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Each parameter's gradient M, n rows by m columns, travels as P (n by `rank`) and Q (m by
/// `rank`), which the reducer sums: P = M Q with the last update's Q, its columns made orthonormal,
/// then Q = M^T P. All ranks compute P Q^T, and keep the difference to their own M for the next
/// update. If this saves less than half of the bytes, 2 rank (n + m) >= n m, as for vectors, the
/// gradient travels unchanged. It also does in the first `warm_up` updates. n and m are those of
/// the model's `parameter_shapes()` (the first dimension, and the product of all others).
/// Parameters without a shape are folded into near-square rows, the last one short: this is
/// correct, but a gradient has a low rank as its layer's matrix, and seldom as another.
///
/// Bytes: rank (n + m) elements of n m, by the reducer; messages: twice the reducer's. For 2048 x
/// 2048 floats with rank 4 that is 1/256. Memory: once the gradients, for error feedback. Cost: 8
/// rank floating-point operations per element, on every rank. Determinism: as the reducer's sums;
/// the rest is the same computation on every rank. NaN and infinity make their parameter's gradient
/// NaN, and reset its state.
/// Source: Vogels et al. 2019 (PowerSGD, algorithms 1 and 2, with warm start); each rank keeps M -
/// P (M^T P)^T of its own M, not of the mean's.
struct PowerSgd {
    std::size_t rank = 4;
    std::size_t warm_up = 0; ///< updates

    static constexpr std::string_view name = "PowerSGD";
    static constexpr Family family = Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = false;
    friend bool operator==(const PowerSgd&, const PowerSgd&) = default;
    void check() const {
        if (rank < 1 || rank > 256) refuse_input({name, ".rank is ", rank, "; expected 1 to 256"});
    }

    template <class World, class T>
    class Run;
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets,
                                      std::span<const ParameterMatrix> parameters) const {
        return {world, buckets, parameters, *this};
    }
};
static_assert(compression_policy<PowerSgd>);

template <class World, class T>
class PowerSgd::Run {
public:
    Run(World& world, std::span<const Slice> buckets, std::span<const ParameterMatrix> parameters,
        const PowerSgd& policy)
        : world_(&world), rank_(policy.rank), warm_up_(policy.warm_up) {
        std::size_t first = 0, second = 0;
        for (const Slice& slice : buckets) {
            Bucket bucket{slice, parts_.size(), 0, {first, 0}, {second, 0}, nullptr, {}};
            for (const ParameterMatrix& parameter : parameters) {
                if (parameter.slice.count == 0 || parameter.slice.first < slice.first ||
                    parameter.slice.end() > slice.end())
                    continue;
                Part part{detail::fold(parameter, rank_), parameter.slice, first, second};
                first += part.shape.rows == 0 ? part.slice.count : part.shape.rows * rank_;
                second += part.shape.columns * rank_;
                parts_.push_back(part);
            }
            bucket.parts = parts_.size() - bucket.first_part;
            bucket.first.count = first - bucket.first.first;
            bucket.second.count = second - bucket.second.first;
            buckets_.push_back(std::move(bucket));
        }
        first_ = world.template allocate<T>(std::max<std::size_t>(1, first));
        second_ = world.template allocate<T>(std::max<std::size_t>(1, second));
        own_.resize(second);
        left_.resize(second == 0 ? 0 : detail::end_of(buckets));
        begin_anew();
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    template <class Reduction>
    void begin(std::size_t b, T* values, Reduction& reduction) {
        Bucket& bucket = buckets_[b];
        bucket.values = values;
        if (warming_up()) {
            bucket.operation = reduction.sum(*world_, std::span<T>(values, bucket.slice.count));
            return;
        }
        for (const Part& part : parts_of(bucket)) {
            const T* const from = values + (part.slice.first - bucket.slice.first);
            T* const wire = first_.data() + part.first_at;
            if (part.shape.rows == 0) {
                std::copy_n(from, part.slice.count, wire);
            } else {
                detail::vectorised(set_, detail::AddAndMultiply<T>{from, left_of(part), part.shape,
                                                                   second_.data() + part.second_at, rank_, wire});
            }
        }
        bucket.operation = reduction.sum(*world_, std::span<T>(first_.data() + bucket.first.first, bucket.first.count));
        sum_ = [](World& world, void* by, std::span<T> second) {
            return static_cast<Reduction*>(by)->sum(world, second);
        };
        reduction_ = &reduction;
    }
    void finish() {
        bool any = false;
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            any = true;
            bucket.operation.wait();
            if (warming_up()) bucket.values = nullptr;
            else if (bucket.second.count != 0) bucket.operation = multiply_back(bucket);
        }
        for (Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            bucket.operation.wait();
            for (const Part& part : parts_of(bucket)) decode(part, bucket.values - bucket.slice.first);
            bucket.values = nullptr;
        }
        updates_ += any ? 1 : 0;
    }
    void rescale(double factor) { unisono::apply(detail::RescaleLeft<T>{static_cast<T>(factor)}, std::span<T>(left_)); }
    void correct(double factor) {
        if (warming_up()) return;
        const detail::CorrectLeft<T> correct_one{static_cast<T>(factor - 1)};
        for (const Bucket& bucket : buckets_) {
            if (bucket.values == nullptr) continue;
            for (const Part& part : parts_of(bucket)) { // P is a basis: Q is computed from the values corrected here
                if (part.shape.rows == 0) continue;
                const T* const values = bucket.values + (part.slice.first - bucket.slice.first);
                T* const all = left_of(part);
                for (std::size_t i = 0; i < part.slice.count; ++i) correct_one(all[i], all[i] - values[i]);
            }
        }
    }
    void forget() { begin_anew(); }
    void restart() {
        updates_ = drawn_ = 0;
        begin_anew();
    }
    [[nodiscard]] std::size_t bytes() const {
        return (first_.size() + second_.size() + own_.size() + left_.size()) * sizeof(T);
    }

private:
    /// A parameter; one whose shape has no rows travels unchanged.
    struct Part {
        detail::MatrixShape shape;
        Slice slice;
        std::size_t first_at = 0;  ///< P, or the gradient itself
        std::size_t second_at = 0; ///< Q's columns, one after the other
    };
    struct Bucket {
        Slice slice;
        std::size_t first_part = 0, parts = 0;
        Slice first, second; ///< the ranges of the first and of the second sum
        T* values = nullptr; ///< the address given to `begin`
        Operation operation;
    };

    [[nodiscard]] bool warming_up() const { return updates_ < warm_up_; }
    [[nodiscard]] std::span<const Part> parts_of(const Bucket& bucket) const {
        return std::span(parts_).subspan(bucket.first_part, bucket.parts);
    }
    T* left_of(const Part& part) { return left_.data() + part.slice.first; }

    void begin_anew() {
        std::fill(left_.begin(), left_.end(), T{});
        for (const Part& part : parts_)
            for (std::size_t k = 0; part.shape.rows != 0 && k < rank_; ++k) draw(part, k);
    }
    /// Draws a column of Q at random, the same on all ranks.
    void draw(const Part& part, std::size_t k) {
        T* const column = second_.data() + part.second_at + k * part.shape.columns;
        const std::uint64_t seed = detail::split_mix(++drawn_);
        for (std::size_t j = 0; j < part.shape.columns; ++j)
            column[j] = static_cast<T>(static_cast<float>(detail::split_mix(seed + j) >> 40) * 0x1p-23f - 1);
    }

    /// Computes Q = M^T P of this rank's M, and starts its sum over all ranks.
    Operation multiply_back(const Bucket& bucket) {
        for (const Part& part : parts_of(bucket)) {
            if (part.shape.rows == 0) continue;
            T* const p = first_.data() + part.first_at;
            detail::orthonormalise(p, part.shape.rows, rank_);
            T* const own = own_.data() + part.second_at;
            detail::vectorised(set_, detail::MultiplyThinBack<T>{left_of(part), part.shape, p, rank_, own});
            std::copy_n(own, part.shape.columns * rank_, second_.data() + part.second_at);
        }
        return sum_(*world_, reduction_, std::span<T>(second_.data() + bucket.second.first, bucket.second.count));
    }

    /// `flat`: the address at which the flat order's values would begin.
    void decode(const Part& part, T* flat) {
        const T* const p = first_.data() + part.first_at;
        T* const to = flat + part.slice.first;
        if (part.shape.rows == 0) {
            std::copy_n(p, part.slice.count, to);
            return;
        }
        const T* const q = second_.data() + part.second_at;
        detail::vectorised(
            set_, detail::MultiplyThin<T>{p, q, own_.data() + part.second_at, part.shape, rank_, to, left_of(part)});
        bool finite = true;
        for (std::size_t k = 0; k < rank_; ++k) {
            T largest = 0;
            for (std::size_t j = 0; j < part.shape.columns; ++j) {
                const T size = std::abs(q[k * part.shape.columns + j]);
                finite = finite && detail::is_finite(size);
                largest = std::max(largest, size);
            }
            if (largest == 0) draw(part, k); // else it would be zero for ever
        }
        if (finite) return; // all ranks see the same
        std::fill_n(left_of(part), part.slice.count, T{});
        for (std::size_t k = 0; k < rank_; ++k) draw(part, k);
    }

    World* world_;
    std::size_t rank_;
    std::uint64_t warm_up_, updates_ = 0, drawn_ = 0;
    InstructionSet set_ = best_instruction_set();
    std::vector<Bucket> buckets_;
    std::vector<Part> parts_;
    Memory<T> first_, second_;
    std::vector<T> own_;  ///< this rank's Q
    std::vector<T> left_; ///< and, during an update, all of its M
    Operation (*sum_)(World&, void*, std::span<T>) = nullptr;
    void* reduction_ = nullptr;
};

UNISONO_NAMESPACE_END
