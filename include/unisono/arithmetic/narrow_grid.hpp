#pragma once

/// \file
/// Sums on a coarser grid whose images have 4 bytes: half of the bytes of grid.hpp, and also
/// independent of order.
///
///     // addends: of one element, over all ranks; image: std::int32_t
///     un::NarrowGrid grid = un::NarrowGrid::above<float>(needed, addends);
///     un::to_grid(std::span(image), std::span<const float>(gradient), weight, grid);
///     un::all_reduce(world, image, un::GridSum{});
///     un::from_grid(std::span(sum), std::span<const std::int32_t>(image), grid);
///
/// With |w x| < 2^E and at most 2^(30 - b) - 1 addends the step is 2^(E - b): b = 29 for one
/// addend, 26 for up to 15, 22 for up to 255. Error: at most 2^(E - b - 1) per addend, L 2^(E - b -
/// 1) in total, plus half an ulp. For eight addends that is 2^(E - 24), about a float's rounding of
/// the *largest* element, for all elements. Elements below 2^(E - b - 1) vanish. So use it for
/// gradients of one scale, or with error feedback of your own; the 8 bytes of grid.hpp are the
/// rule. Fit, marks, weights and determinism are as in grid.hpp.

#include "unisono/arithmetic/grid.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN

/// Multiples of 2^(exponent - bits), for addends below 2^exponent; images of 32 bits.
struct NarrowGrid {
    std::int32_t exponent = 0;
    std::int32_t bits = 26; ///< 8 to 29: at most 2^(30 - bits) - 1 addends of one element

    friend bool operator==(const NarrowGrid&, const NarrowGrid&) = default;

    /// The most bits that `addends` addends of one element allow. \throws error bad_input: more
    /// than 4,194,303 of them, or fewer than 1
    [[nodiscard]] static std::int32_t bits_for(std::int64_t addends) {
        if (addends < 1 || addends >= std::int64_t{1} << 22)
            refuse_input({"NarrowGrid: found ", addends, " addends; expected 1 to 4,194,303"});
        return 30 - static_cast<std::int32_t>(std::bit_width(static_cast<std::uint64_t>(addends)));
    }
    /// The finest grid for results of type T. \throws error bad_input: as bits_for
    template <floating_element T = float>
    [[nodiscard]] static NarrowGrid above(std::int32_t needed, std::int64_t addends) {
        NarrowGrid grid{needed, bits_for(addends)};
        // The step is no finer than a Grid's, and the multiply-add's M within the limits of
        // grid.hpp.
        grid.exponent = std::clamp(needed, Grid::least<T> - 51 + grid.bits, Grid::greatest - 51 + grid.bits);
        return grid;
    }
    /// The grid of 64 bits with the same step.
    [[nodiscard]] constexpr Grid wide() const { return {exponent + Grid::bits - bits}; }
};

/// As `fits` of a Grid.
constexpr bool fits(std::int32_t needed, const NarrowGrid& grid) { return needed <= grid.exponent; }

namespace detail {

template <class T>
void check_narrow_grid(const char* who, const NarrowGrid& grid, std::size_t found, std::size_t expected) {
    if (grid.bits < 8 || grid.bits > 29) refuse_input({who, ": NarrowGrid.bits is ", grid.bits, "; expected 8 to 29"});
    check_grid<T>(who, grid.wide(), found, expected);
}

} // namespace detail

/// As the functions of the same names in grid.hpp.
template <class T>
    requires floating_element<std::remove_const_t<T>>
std::int32_t to_grid(std::span<std::int32_t> image, std::span<T> x, double weight, const NarrowGrid& grid) {
    using E = std::remove_const_t<T>;
    detail::check_narrow_grid<E>("to_grid", grid, x.size(), image.size());
    detail::check_grid_weight("to_grid", weight);
    const double largest = detail::image_on<E, false>(best_instruction_set(), image.data(), x.data(), x.size(), weight,
                                                      grid.wide().exponent);
    const std::int32_t needed = detail::needed_by(largest, weight);
    if (!fits(needed, grid)) [[unlikely]] {
        for (std::size_t i = 0; i < x.size(); ++i)
            if (!fits(needed_exponent(x.subspan(i, 1), weight), grid)) image[i] = detail::image_mark<std::int32_t>;
    }
    return needed;
}

/// As the function of the same name in grid.hpp.
template <class T>
    requires floating_element<std::remove_const_t<T>>
std::int32_t add_to_grid(std::span<std::int32_t> image, std::span<T> x, double weight, const NarrowGrid& grid) {
    detail::check_narrow_grid<std::remove_const_t<T>>("add_to_grid", grid, x.size(), image.size());
    std::int32_t ones[256];
    std::int32_t most = Grid::nothing;
    for (std::size_t at = 0; at < x.size(); at += 256) {
        const std::size_t n = x.size() - at < 256 ? x.size() - at : 256;
        const std::int32_t needed = to_grid(std::span(ones, n), x.subspan(at, n), weight, grid);
        most = needed > most ? needed : most;
        for (std::size_t i = 0; i < n; ++i) image[at + i] = detail::add_images(image[at + i], ones[i]);
    }
    return most;
}

/// As the function of the same name in grid.hpp.
template <floating_element T>
std::size_t from_grid(std::span<T> out, std::span<const std::int32_t> image, const NarrowGrid& grid) {
    detail::check_narrow_grid<T>("from_grid", grid, image.size(), out.size());
    if (detail::from_image_on<T>(best_instruction_set(), out.data(), image.data(), image.size(), grid.wide().exponent))
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

UNISONO_NAMESPACE_END
