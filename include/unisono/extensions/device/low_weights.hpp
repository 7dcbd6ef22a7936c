#pragma once

/// \file
/// The addresses of the 16-bit copy with which a model on a device computes while its weights are
/// trained in float. With them the optimizer's pass writes both.

#include "unisono/core/config.hpp"
#include "unisono/core/standard.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Device addresses. The weights are contiguous; the 16-bit copy is in the model's own spans.
template <class Low>
class LowWeights {
public:
    explicit LowWeights(const float* weights = nullptr) : weights_(weights) {}

    /// Adds the memory for the copy of the next `count` weights.
    void add(Low* low, std::size_t count) {
        if (count == 0) return;
        if (!pieces_.empty() && pieces_.back().low + pieces_.back().count == low) pieces_.back().count += count;
        else pieces_.push_back({end_, count, low});
        end_ += count;
    }
    [[nodiscard]] std::size_t count() const { return end_; }
    [[nodiscard]] const float* weights() const { return weights_; }

    /// True if `at` is one of the weights.
    [[nodiscard]] bool has(const void* at) const {
        const auto begin = reinterpret_cast<std::uintptr_t>(weights_);
        const auto asked = reinterpret_cast<std::uintptr_t>(at);
        return asked >= begin && asked - begin < end_ * sizeof(float);
    }
    /// Calls visit(first, n, low) for each contiguous range of the copy of [at, at + count): `low`
    /// holds the copies of weights at[first, first + n).
    template <class Visit>
    void visit(const float* at, std::size_t count, Visit&& visit) const {
        const auto begin = static_cast<std::size_t>(at - weights_);
        const std::size_t end = begin + count;
        const Piece* const pieces = pieces_.data();
        const Piece* one =
            partition_point(pieces, pieces + pieces_.size(), [&](const Piece& other) { return other.first <= begin; });
        for (one -= one == pieces ? 0 : 1; one != pieces + pieces_.size() && one->first < end; ++one) {
            const std::size_t from = std::max(one->first, begin);
            const std::size_t to = std::min(one->first + one->count, end);
            if (from < to) visit(from - begin, to - from, one->low + (from - one->first));
        }
    }

    // From now on the code that changes weights also changes the copy, so no other code has to.

    void keep() { ++keepers_; }
    void let_go() { --keepers_; }
    [[nodiscard]] bool kept() const { return keepers_ != 0; }

private:
    struct Piece {
        std::size_t first, count; ///< weights
        Low* low;
    };

    const float* weights_;
    std::vector<Piece> pieces_;
    std::size_t end_ = 0;
    int keepers_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
