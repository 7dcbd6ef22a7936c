#pragma once

/// \file
/// Cuts a batch into micro-batches. A batch type other than RowBatch has `batch.rows()`, and
/// `batch.slice(first, count)`, which returns an object with `values` (a span of the first layer's
/// inputs, sample by sample) and the data that the loss needs.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/model.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Some rows of a RowBatch, with the same members. The RowBatch must outlive it.
template <class T, class Label>
struct RowSlice {
    std::span<const T> values = {};
    std::span<const Label> labels = {};
    std::size_t width = 0;

    [[nodiscard]] std::size_t rows() const { return width == 0 ? 0 : values.size() / width; }
    [[nodiscard]] std::span<const T> row(std::size_t i) const { return values.subspan(i * width, width); }
};

namespace detail {

template <class Batch>
concept sliced_by_itself =
    requires(const Batch& batch) { std::span(batch.slice(std::size_t{0}, std::size_t{1}).values); };

/// Samples [first, first + count) of a batch.
template <class Batch>
auto slice_of(const Batch& batch, std::size_t first, std::size_t count) {
    if constexpr (sliced_by_itself<Batch>) {
        return batch.slice(first, count);
    } else {
        static_assert(
            requires {
                std::span(batch.values);
                std::span(batch.labels);
                batch.width;
                batch.rows();
            }, "unisono: found a batch that cannot be cut into micro-batches. Required: a RowBatch, or "
               "batch.rows() and batch.slice(first, count) (extensions/parallel/micro_batch.hpp).");
        using T = typename decltype(std::span(batch.values))::value_type;
        using Label = typename decltype(std::span(batch.labels))::value_type;
        const std::span<const T> values(batch.values);
        const std::span<const Label> labels(batch.labels);
        return RowSlice<T, Label>{values.subspan(first * batch.width, count * batch.width),
                                  labels.empty() ? labels : labels.subspan(first, count), batch.width};
    }
}

/// Cuts samples into micro-batches, none of them empty. If the number does not divide evenly, the
/// first ones are larger by one sample.
struct MicroBatches {
    std::size_t samples = 0;
    std::uint32_t count = 0;

    MicroBatches(std::size_t all, std::uint32_t wanted)
        : samples(all), count(static_cast<std::uint32_t>(std::min<std::size_t>(all, wanted))) {}
    [[nodiscard]] std::size_t first(std::uint32_t i) const {
        return i * (samples / count) + std::min<std::size_t>(i, samples % count);
    }
    [[nodiscard]] std::size_t size(std::uint32_t i) const { return first(i + 1) - first(i); }
    [[nodiscard]] std::size_t largest() const { return (samples + count - 1) / count; }
};

} // namespace detail
UNISONO_NAMESPACE_END
