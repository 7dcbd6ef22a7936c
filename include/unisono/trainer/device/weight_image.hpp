#pragma once

/// \file
/// The image in 16 bits that a model on a device computes with, of weights that are trained in float: where it lies, so that the
/// optimizer's pass writes both.

#include "unisono/core/config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Of models that compute with what is trained.
struct NoWeightImage {
    static constexpr bool present = false;
};

/// Addresses of a device. The weights are one piece; their image lies wherever the model has its parameters.
template <class Low>
class WeightImage {
public:
    static constexpr bool present = true;

    explicit WeightImage(const float* weights = nullptr) : weights_(weights) {}

    /// The image of the next `count` weights.
    void add(Low* low, std::size_t count) {
        if (count == 0) return;
        if (!pieces_.empty() && pieces_.back().low + pieces_.back().count == low) pieces_.back().count += count;
        else pieces_.push_back({end_, count, low});
        end_ += count;
    }
    [[nodiscard]] std::size_t count() const { return end_; }
    [[nodiscard]] const float* weights() const { return weights_; }

    /// `at` is one of the weights.
    [[nodiscard]] bool has(const void* at) const {
        const auto begin = reinterpret_cast<std::uintptr_t>(weights_);
        const auto asked = reinterpret_cast<std::uintptr_t>(at);
        return asked >= begin && asked - begin < end_ * sizeof(float);
    }
    /// Calls visit(first, n, low) for the stretches of the image of [at, at + count): weights at[first, first + n).
    template <class Visit>
    void visit(const float* at, std::size_t count, Visit&& visit) const {
        const auto begin = static_cast<std::size_t>(at - weights_);
        const std::size_t end = begin + count;
        auto one = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                                    [](std::size_t first, const Piece& other) { return first < other.first; });
        for (one -= one == pieces_.begin() ? 0 : 1; one != pieces_.end() && one->first < end; ++one) {
            const std::size_t from = std::max(one->first, begin);
            const std::size_t to = std::min(one->first + one->count, end);
            if (from < to) visit(from - begin, to - from, one->low + (from - one->first));
        }
    }

    // Whoever changes weights from now on changes the image, too: nobody else need make it.

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

template <class Model>
struct WeightImageOf {
    using type = NoWeightImage;
};
template <class Model>
    requires requires { typename Model::Image; }
struct WeightImageOf<Model> {
    using type = typename Model::Image;
};

} // namespace detail
UNISONO_NAMESPACE_END
