// Shared by the tests of updates that servers make, or ranks on their own.
#pragma once

#include "unisono/core/memory.hpp"
#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/model/model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace unisono_test {

namespace un = unisono;

inline constexpr std::size_t served_count = 53;

inline double served_initial(std::size_t i) { return std::cos(0.3 * static_cast<double>(i)); }
/// The gradient of a quadratic whose minimum and curvature differ by batch. With one curvature,
/// means of parameters and steps by mean gradients would be the same.
inline double served_slope(int seed, std::size_t i, double x) {
    return (1 + 0.1 * static_cast<double>((i + static_cast<std::size_t>(seed)) % 7)) *
           (x - std::sin(1.7 * seed + static_cast<double>(i)));
}

/// The batch of a worker's update.
inline int seed_of(int update, int worker) { return 10 * update + worker; }

/// The largest difference of two elements; infinity if sizes differ or a number is not finite.
inline double apart(const std::vector<double>& a, const std::vector<double>& b) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    if (a.size() != b.size()) return infinity;
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(a[i] - b[i]);
        worst = std::isnan(difference) ? infinity : std::max(worst, difference);
    }
    return worst;
}

/// Parameters in ranges with gaps between them, or in one range in the group's memory. A batch is a
/// seed. A negative seed gives NaN in parameter 3.
template <class T>
struct Bowl {
    static constexpr std::array<std::size_t, 4> sizes = {20, 1, 0, 32};
    un::Memory<T> memory;
    std::vector<std::vector<T>> pieces, gradient_pieces;
    std::vector<std::span<T>> spans, gradient_spans;

    Bowl() { lay(); }
    template <class World>
    Bowl(World& world, bool in_one_piece) {
        if (in_one_piece) memory = world.template allocate<T>(2 * served_count);
        lay();
    }
    Bowl(const Bowl&) = delete;
    Bowl& operator=(const Bowl&) = delete;
    auto& parameters() { return spans; }
    auto& gradients() { return gradient_spans; }
    double operator()(const int& seed, un::Pass& pass) {
        std::size_t at = 0;
        for (std::size_t p = 0; p < spans.size(); ++p)
            for (std::size_t i = 0; i < spans[p].size(); ++i, ++at)
                gradient_spans[p][i] += seed < 0 && p == 3
                                            ? std::numeric_limits<T>::quiet_NaN()
                                            : static_cast<T>(served_slope(seed, at, static_cast<double>(spans[p][i])));
        for (std::size_t p = spans.size(); p-- > 0;) pass.ready(p);
        return seed;
    }
    [[nodiscard]] std::vector<T> values() const {
        std::vector<T> all;
        for (const auto& one : spans) all.insert(all.end(), one.begin(), one.end());
        return all;
    }

private:
    void lay() {
        std::size_t at = 0;
        for (const std::size_t n : sizes) {
            if (memory.size() != 0) {
                spans.push_back({memory.data() + at, n});
                gradient_spans.push_back({memory.data() + served_count + at, n});
            } else {
                spans.push_back(pieces.emplace_back(n));
                gradient_spans.push_back(gradient_pieces.emplace_back(n));
            }
            for (T& x : spans.back()) x = static_cast<T>(served_initial(at++));
        }
    }
};

} // namespace unisono_test
