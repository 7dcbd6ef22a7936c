#pragma once

/// \file
/// Sums whose bits do not depend on order or grouping: each addend is rounded to one grid, and
/// added there as an integer, its *image*.
///
///     un::Grid grid = un::Grid::above(un::needed_exponent(gradient, weight)); // on all ranks
///     un::to_grid(std::span(image), std::span<const float>(gradient), weight, grid);
///     un::add_to_grid(std::span(image), std::span<const float>(another), 2.5, grid);
///     un::from_grid(std::span(sum), std::span<const std::int64_t>(image), grid);
///
/// With |w * x| < 2^E for every addend, `image` counts multiples of 2^(E - 51): the bits of fma(w,
/// x, M) minus those of M = 1.5 * 2^(E + 1). The exact product is rounded once, to nearest;
/// everything else is integer arithmetic. So the result is a function of the set of addends, on
/// every instruction set, and also under -ffast-math, which must not change integers.
///
/// Error: each addend at most 2^(E - 52), the sum of L addends at most L * 2^(E - 52), and then one
/// rounding to the result's type. docs/reproducible_sums.md derives it, and says which elements
/// lose against a sum of floats.
///
/// Limits: 2047 addends per element (`Grid::most_addends`), more if E is raised:
/// `Grid::above(needed, addends)`. Addends that do not fit, NaN and infinity are marked, and a mark
/// stays whatever is added: there is no silent wrap-around.
///
/// Range: E from -74 for float and 16-bit floats, from -970 for double, to 990. Addends need at
/// most 960; the other 30 are for their number. No number on such a grid, and no result, is
/// subnormal, so processors that flush subnormals give the same bits.
/// Source: Demmel and Nguyen, "Parallel reproducible summation" (2015), with one bin whose exponent
/// is agreed on first.

#include "unisono/arithmetic/grid_kernels.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// Multiples of 2^(exponent - 51), for addends below 2^exponent.
struct Grid {
    std::int32_t exponent = 0;

    static constexpr int bits = 51;                    ///< an addend's image is at most 2^51
    static constexpr std::int64_t most_addends = 2047; ///< of one element: their sum is below 2^62
    static constexpr std::int32_t greatest = 990;
    static constexpr std::int32_t greatest_needed = 960; ///< by an addend: the rest is headroom for 2^41 of them
    static constexpr std::int32_t nothing = -5000;       ///< the exponent that zeros need
    static constexpr std::int32_t not_finite = 5000;     ///< the exponent of NaN, infinity and values above 2^960
    /// The least exponent for elements of type T.
    template <floating_element T>
    static constexpr std::int32_t least = std::is_same_v<std::remove_cv_t<T>, double> ? -970 : -74;

    friend bool operator==(const Grid&, const Grid&) = default;

    /// The bits to add to the exponent so that `addends` addends of one element fit.
    [[nodiscard]] static constexpr std::int32_t bits_for(std::int64_t addends) {
        std::int32_t more = 0;
        while (more < 52 && addends > (most_addends << more)) ++more;
        return more;
    }
    /// The finest grid for results of type T and addends that need this exponent.
    template <floating_element T = float>
    [[nodiscard]] static constexpr Grid above(std::int32_t needed, std::int64_t addends = 1) {
        const std::int32_t wanted = needed + (needed == not_finite ? 0 : bits_for(addends));
        return {wanted < least<T> ? least<T> : (wanted > greatest ? greatest : wanted)};
    }
};

/// True if addends that need this exponent can be added on this grid.
constexpr bool fits(std::int32_t needed, const Grid& grid) { return needed <= grid.exponent; }

namespace detail {

[[noreturn, gnu::cold]] inline void refuse_grid(const char* who, std::int32_t found, std::int32_t least) {
    refuse_input({who, ": Grid.exponent is ", found, "; expected ", least, " to ", Grid::greatest});
}
[[noreturn, gnu::cold]] inline void refuse_grid_sizes(const char* who, std::size_t found, std::size_t expected) {
    refuse_input({who, ": a span has ", found, " elements; expected ", expected, ", as the first has"});
}
template <class T>
void check_grid(const char* who, const Grid& grid, std::size_t found, std::size_t expected) {
    if (grid.exponent < Grid::least<T> || grid.exponent > Grid::greatest)
        refuse_grid(who, grid.exponent, Grid::least<T>);
    if (found != expected) refuse_grid_sizes(who, found, expected);
}
inline void check_grid_weight(const char* who, double weight) {
    if (grid_exponent_of(weight) == Grid::not_finite)
        refuse_input({who, ": the weight is ", weight, "; expected a finite number"});
}

/// The least E with |w| * magnitude < 2^E.
UNISONO_ON_DEVICE inline std::int32_t needed_by(double magnitude, double weight) {
    const std::int32_t x = grid_exponent_of(magnitude);
    const std::int32_t w = grid_exponent_of(weight);
    if (x == Grid::not_finite || w == Grid::not_finite) return Grid::not_finite;
    if (x == Grid::nothing || w == Grid::nothing) return Grid::nothing;
    // Both factors are scaled to [0.5, 1), so their product is neither subnormal nor infinite. If
    // it is rounded up to a power of two, the result is one bit too large, on all ranks.
    const std::int32_t needed = x + w + grid_exponent_of(grid_fraction_of(magnitude) * grid_fraction_of(weight));
    return needed > Grid::greatest_needed ? Grid::not_finite : needed;
}

} // namespace detail

/// The least E with |weight * x[i]| < 2^E for all i; `Grid::nothing` if all are zero,
/// `Grid::not_finite` if one is NaN or infinite, or exceeds every grid. Cost: one read.
template <class T>
    requires floating_element<std::remove_const_t<T>>
std::int32_t needed_exponent(std::span<T> x, double weight = 1.0) {
    using E = std::remove_const_t<T>;
    return detail::needed_by(detail::largest_on<E>(best_instruction_set(), std::span<const E>(x)), weight);
}

/// image[i] = weight * x[i] on the grid. Returns the needed exponent; if that exceeds the grid's,
/// the elements that do not fit are marked. \throws error bad_input: sizes, a weight that is not
/// finite, an exponent out of range
template <class T>
    requires floating_element<std::remove_const_t<T>>
std::int32_t to_grid(std::span<std::int64_t> image, std::span<T> x, double weight, const Grid& grid) {
    using E = std::remove_const_t<T>;
    detail::check_grid<E>("to_grid", grid, x.size(), image.size());
    detail::check_grid_weight("to_grid", weight);
    const double largest =
        detail::image_on<E, false>(best_instruction_set(), image.data(), x.data(), x.size(), weight, grid.exponent);
    const std::int32_t needed = detail::needed_by(largest, weight);
    if (!fits(needed, grid)) [[unlikely]] {
        for (std::size_t i = 0; i < x.size(); ++i)
            if (!fits(needed_exponent(x.subspan(i, 1), weight), grid)) image[i] = detail::grid_mark;
    }
    return needed;
}

/// image[i] += weight * x[i] on the grid; as to_grid.
template <class T>
    requires floating_element<std::remove_const_t<T>>
std::int32_t add_to_grid(std::span<std::int64_t> image, std::span<T> x, double weight, const Grid& grid) {
    using E = std::remove_const_t<T>;
    detail::check_grid<E>("add_to_grid", grid, x.size(), image.size());
    detail::check_grid_weight("add_to_grid", weight);
    constexpr std::size_t chunk = 4096; // measured first, which brings it into the first cache
    std::int32_t most = Grid::nothing;
    for (std::size_t at = 0; at < x.size(); at += chunk) {
        const std::size_t n = x.size() - at < chunk ? x.size() - at : chunk;
        const std::span<T> part = x.subspan(at, n);
        const std::int32_t needed = needed_exponent(part, weight);
        most = needed > most ? needed : most;
        if (fits(needed, grid)) [[likely]] {
            detail::image_on<E, true>(best_instruction_set(), image.data() + at, part.data(), n, weight, grid.exponent);
            continue;
        }
        for (std::size_t i = 0; i < n; ++i) {
            std::int64_t one = 0;
            to_grid(std::span(&one, 1), part.subspan(i, 1), weight, grid);
            image[at + i] = detail::add_images(image[at + i], one);
        }
    }
    return most;
}

/// out[i] = image[i] as a number: exact in double below 2^53 steps, then rounded once to T (through
/// float for 16 bits); NaN if marked. Returns the first marked index, or image.size(). Zero is +0.
template <floating_element T>
std::size_t from_grid(std::span<T> out, std::span<const std::int64_t> image, const Grid& grid) {
    detail::check_grid<T>("from_grid", grid, image.size(), out.size());
    if (detail::from_image_on<T>(best_instruction_set(), out.data(), image.data(), image.size(), grid.exponent))
        [[likely]]
        return image.size();
    std::size_t first = image.size();
    for (std::size_t i = image.size(); i-- > 0;) {
        if (!detail::is_marked(image[i])) continue;
        out[i] = detail::quiet_nan<T>();
        first = i;
    }
    return first;
}

/// Rounds values[i] to the grid: the sum of this one addend. Returns the needed exponent; nothing
/// is marked.
template <floating_element T>
std::int32_t round_to_grid(std::span<T> values, double weight, const Grid& grid) {
    detail::check_grid<T>("round_to_grid", grid, values.size(), values.size());
    detail::check_grid_weight("round_to_grid", weight);
    std::int64_t image[256];
    std::int32_t needed = Grid::nothing;
    for (std::size_t at = 0; at < values.size(); at += 256) {
        const std::size_t n = values.size() - at < 256 ? values.size() - at : 256;
        const std::int32_t here = to_grid(std::span(image, n), std::span<const T>(values.subspan(at, n)), weight, grid);
        needed = here > needed ? here : needed;
        from_grid(values.subspan(at, n), std::span<const std::int64_t>(image, n), grid);
    }
    return needed;
}

UNISONO_NAMESPACE_END
