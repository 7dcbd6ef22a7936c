#pragma once

/// \file
/// Data sets, which the user supplies, and two small ones.
///
/// A data set has a `size()` and returns a batch for any list of indices. The user chooses the type
/// of batches.
///
/// Laws: `size()` does not change during training; `batch(indices)` depends on the indices alone
/// (order included); it is called with at least one index, each below `size()`, and by one thread
/// at a time per loader. Ranks that are threads of one process may share one data set: then they
/// call `batch` concurrently, so it must be thread-safe, as const functions usually are.
///
/// | data set  | holds                                        | batch                          |
/// |-----------|----------------------------------------------|--------------------------------|
/// | RowData   | rows of numbers (a view), labels optional    | RowBatch: rows packed, labels  |
/// | Loader    | any data set, read ahead (loader.hpp)        | the data set's own             |
/// | DeviceRows | rows, copied ahead (cuda.hpp, nccl.hpp)     | DeviceRowBatch: on a device    |
///
/// Absent: files and formats, shuffling (samplers do it), augmentation (do it in `batch`; random
/// numbers that depend on the index alone are in core/random.hpp).

#include "unisono/core/device_span.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"

#include <cstddef>
#include <cstdint>
#include <span> // and the concepts of ranges, but not the adaptors of <ranges>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Samples by index: how many there are, and batches of chosen ones.
template <class D>
concept data_set = requires(D& data, std::span<const std::size_t> indices) {
    { data.size() } -> detail::converts_to<std::size_t>;
    { data.batch(indices) } -> detail::movable_value;
};

/// The type of a data set's batches.
template <data_set D>
using batch_of = std::remove_cvref_t<decltype(std::declval<D&>().batch(std::span<const std::size_t>{}))>;

/// The rows of a batch, one after another, and their labels if the data have labels.
template <class T, class Label = std::int32_t>
struct RowBatch {
    std::vector<T> values = {}; ///< rows x width
    std::vector<Label> labels = {};
    std::size_t width = 0;

    [[nodiscard]] std::size_t rows() const { return width == 0 ? 0 : values.size() / width; }
    /// \throws error bad_input if `i` is not below rows()
    [[nodiscard]] std::span<const T> row(std::size_t i) const {
        if (values.size() < width || i * width > values.size() - width) [[unlikely]]
            refuse_input({"RowBatch: row ", i, " of ", rows(), " rows; expected an index below that"});
        return std::span{values}.subspan(i * width, width);
    }
};

namespace detail {
/// A temporary that owns its elements. A view of it would dangle.
template <class R>
concept owning_temporary = !std::is_lvalue_reference_v<R> && !is_span<std::remove_cv_t<R>> && std::ranges::range<R> &&
                           !std::ranges::borrowed_range<R> && !std::ranges::view<std::remove_cv_t<R>>;

template <class R>
concept numbers = std::ranges::contiguous_range<R>;
template <numbers R>
using number_in = typename decltype(as_span(std::declval<std::remove_reference_t<R>&>()))::value_type;
} // namespace detail

/// A matrix in memory, one sample per row, with a label per row or none. It does not own the
/// numbers: they must outlive it, so a RowData of a temporary vector does not compile.
template <class T, class L = std::int32_t>
class RowData {
public:
    using Value = T;
    using Label = L;
    using Batch = RowBatch<T, L>;

    /// \throws error bad_input if `values` are not whole rows, or there is not one label per row
    RowData(std::span<const T> values, std::size_t width, std::span<const Label> labels = {})
        : values_(values), labels_(labels), width_(width) {
        if (width == 0) refuse_input("RowData: width is 0, expected 1 or more");
        if (values.size() % width != 0)
            refuse_input({"RowData: ", values.size(), " values; expected a multiple of the width, which is ", width});
        if (!labels.empty() && labels.size() != size())
            refuse_input({"RowData: ", labels.size(), " labels for ", size(), " rows; expected one for each row"});
    }

    /// Refused: temporaries whose numbers or labels would dangle.
    template <class Values, class Labels = std::span<const L>>
        requires detail::owning_temporary<Values> || detail::owning_temporary<Labels>
    RowData(Values&&, std::size_t width, Labels&& = {}) : width_(width) {
        static_assert(
            detail::never_true<Values>,
            "unisono::RowData: found a temporary that owns its elements (a function's result, or std::move). Required: "
            "a container with a name that outlives the RowData, or a std::span of one. Why: a RowData refers to the "
            "numbers and labels, and does not copy them.");
    }

    [[nodiscard]] std::size_t size() const { return values_.size() / width_; }
    [[nodiscard]] std::size_t width() const { return width_; }

    [[nodiscard]] bool has_labels() const { return !labels_.empty(); }

    /// Writes the rows of these indices into `values`, one after another, and their labels, if any,
    /// into `labels`.
    /// \throws error bad_input if an index is not below size(), or the memory is not exactly large
    /// enough
    void fill(std::span<const std::size_t> indices, std::span<T> values, std::span<L> labels) const;

    /// \throws error bad_input if an index is not below size()
    [[nodiscard]] Batch batch(std::span<const std::size_t> indices) const;

private:
    void check(std::span<const std::size_t> indices) const;
    /// Without spans: labels may be std::vector<bool>.
    template <class Values, class Labels>
    void copy(std::span<const std::size_t> indices, Values& values, Labels& labels) const;

    std::span<const T> values_;
    std::span<const Label> labels_;
    std::size_t width_;
};

template <class T, class L>
void RowData<T, L>::fill(std::span<const std::size_t> indices, std::span<T> values, std::span<L> labels) const {
    const std::size_t wanted = has_labels() ? indices.size() : 0;
    if (values.size() != indices.size() * width_ || labels.size() != wanted)
        refuse_input({"RowData::fill: room for ", values.size(), " values and ", labels.size(), " labels; expected ",
                      indices.size() * width_, " and ", wanted});
    check(indices);
    copy(indices, values, labels);
}

template <class T, class L>
typename RowData<T, L>::Batch RowData<T, L>::batch(std::span<const std::size_t> indices) const {
    check(indices);
    Batch out{std::vector<T>(indices.size() * width_), std::vector<L>(has_labels() ? indices.size() : 0), width_};
    copy(indices, out.values, out.labels);
    return out;
}

template <class T, class L>
void RowData<T, L>::check(std::span<const std::size_t> indices) const {
    for (const std::size_t i : indices)
        if (i >= size()) refuse_input({"RowData: index ", i, " of ", size(), " rows; expected an index below that"});
}

template <class T, class L>
template <class Values, class Labels>
void RowData<T, L>::copy(std::span<const std::size_t> indices, Values& values, Labels& labels) const {
    for (std::size_t k = 0; k < indices.size(); ++k) {
        const auto row = values_.subspan(indices[k] * width_, width_);
        std::copy(row.begin(), row.end(), values.begin() + static_cast<std::ptrdiff_t>(k * width_));
        if (has_labels()) labels[k] = labels_[indices[k]];
    }
}

template <detail::numbers Values>
RowData(Values&&, std::size_t) -> RowData<detail::number_in<Values>>;
template <detail::numbers Values, detail::numbers Labels>
RowData(Values&&, std::size_t, Labels&&) -> RowData<detail::number_in<Values>, detail::number_in<Labels>>;

UNISONO_CERTIFY(data_set<const RowData<float>>);

UNISONO_NAMESPACE_END
