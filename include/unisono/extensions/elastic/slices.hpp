#pragma once

/// \file
/// A copy of the parameters and optimizer state of a rank's slices, as bytes that any rank can
/// read, whichever slices it owns.

#include "unisono/core/list.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/model/model.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Calls visit(i, at_i, j, at_j, count) for each range that a[i] and b[j] have in common; it begins
/// at offset at_i in a[i] and at offset at_j in b[j]. Both lists are in flat order.
template <class Visit>
void for_each_overlap(std::span<const Slice> a, std::span<const Slice> b, Visit visit) {
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        const std::size_t first = std::max(a[i].first, b[j].first), end = std::min(a[i].end(), b[j].end());
        if (first < end) visit(i, first - a[i].first, j, first - b[j].first, end - first);
        if (a[i].end() < b[j].end()) ++i;
        else ++j;
    }
}
/// The offset of each slice in memory that holds all slices one after another, and the total.
inline List<std::size_t> starts_of(std::span<const Slice> slices) {
    List<std::size_t> starts;
    std::size_t at = 0;
    for (const Slice& one : slices) {
        starts.push_back(at);
        at += one.count;
    }
    starts.push_back(at);
    return starts;
}

inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
}

/// Layout of the copy: slices, then parameters, then each array of optimizer state.
template <class T>
class SliceRecord {
public:
    /// The number of bytes of a copy of these slices.
    static std::size_t bytes(std::span<const Slice> slices, std::size_t arrays) {
        return header(slices.size()) + (1 + arrays) * starts_of(slices)[slices.size()] * sizeof(T);
    }

    /// Copies the trainer's `slices` to `to`.
    template <class Trainer>
    static void write(Trainer& trainer, std::span<const Slice> slices, std::vector<std::uint8_t>& to) {
        auto& state = trainer.optimizer_state();
        to.resize(bytes(slices, state.size()));
        const std::uint64_t count = slices.size();
        copy_bytes(to.data(), &count, sizeof count);
        copy_bytes(to.data() + sizeof count, slices.data(), slices.size_bytes());
        const List<std::size_t> starts = starts_of(slices);
        std::uint8_t* values = to.data() + header(slices.size());
        for (std::size_t i = 0; i < slices.size(); ++i)
            trainer.visit_parameters(slices[i], [&](std::size_t flat, std::span<const T> some) {
                copy_bytes(values + (starts[i] + flat - slices[i].first) * sizeof(T), some.data(), some.size_bytes());
            });
        const std::span<const Slice> owned = trainer.owned();
        const List<std::size_t> places = starts_of(owned);
        for (std::size_t a = 0; a < state.size(); ++a) {
            values += starts[slices.size()] * sizeof(T);
            for_each_overlap(slices, owned,
                             [&](std::size_t i, std::size_t at_i, std::size_t j, std::size_t at_j, std::size_t n) {
                                 copy_bytes(values + (starts[i] + at_i) * sizeof(T),
                                            state.array(a).data() + places[j] + at_j, n * sizeof(T));
                             });
        }
    }

    explicit SliceRecord(std::span<const std::uint8_t> bytes) {
        std::uint64_t count = 0;
        copy_bytes(&count, bytes.data(), sizeof count);
        slices_.resize(count);
        copy_bytes(slices_.data(), bytes.data() + sizeof count, count * sizeof(Slice));
        starts_ = starts_of(slices_);
        values_ = bytes.data() + header(count);
    }

    /// Copies the parameters to the trainer: to the model, or to the trainer's memory of a model in
    /// units. Local, unless ranks also hold a 16-bit copy of such a model.
    template <class Trainer>
    void read_parameters(Trainer& trainer) const {
        const auto copy = [&](std::size_t flat, std::span<T> to) {
            const Slice wanted{flat, to.size()};
            for_each_overlap({&wanted, 1}, slices_,
                             [&](std::size_t, std::size_t at, std::size_t j, std::size_t at_j, std::size_t n) {
                                 copy_bytes(to.data() + at, values_ + (starts_[j] + at_j) * sizeof(T), n * sizeof(T));
                             });
        };
        if constexpr (requires { trainer.rewrite_parameters(copy); }) trainer.rewrite_parameters(copy);
        else {
            std::size_t flat = 0;
            for_each_span(trainer.trained().parameters(), [&](auto one) {
                copy(flat, one);
                flat += one.size();
            });
        }
    }
    /// Copies the optimizer's state of the elements that the trainer owns. Local.
    template <class Trainer>
    void read_state(Trainer& trainer) const {
        auto& state = trainer.optimizer_state();
        const std::span<const Slice> owned = trainer.owned();
        const List<std::size_t> places = starts_of(owned);
        const std::uint8_t* values = values_;
        for (std::size_t a = 0; a < state.size(); ++a) {
            values += starts_[slices_.size()] * sizeof(T);
            for_each_overlap(slices_, owned,
                             [&](std::size_t i, std::size_t at_i, std::size_t j, std::size_t at_j, std::size_t n) {
                                 copy_bytes(state.array(a).data() + places[j] + at_j,
                                            values + (starts_[i] + at_i) * sizeof(T), n * sizeof(T));
                             });
        }
    }

private:
    static std::size_t header(std::size_t slices) { return sizeof(std::uint64_t) + slices * sizeof(Slice); }

    List<Slice> slices_;
    List<std::size_t> starts_;
    const std::uint8_t* values_ = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
