#pragma once

/// \file
/// Functions that return a number, on Thrust's systems of the host: by its reductions. On a GPU
/// they are those of cuda/answers.hpp.

#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/extensions/thrust/elements.hpp"
#include "unisono/extensions/thrust/loop.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// For a class `Kernels` with an execution policy `policy()`.
template <class Kernels>
class ThrustFolds {
public:
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    [[nodiscard]] std::size_t first_non_finite(std::span<T> x) const {
        return fold(x, NonFiniteAt{}, npos, Lesser{});
    }
    /// The sum of squares in double, by `SquareSum`: its bits do not depend on the system and its
    /// threads. They differ from those of the host's `sum_of_squares`, which adds in the order of
    /// positions. Cost: two reads.
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    [[nodiscard]] double sum_of_squares(std::span<T> x) const {
        SquareSum sum(needed_exponent(x));
        add_known(sum, x);
        return sum.value();
    }
    /// As `sum.add(x)`. \throws error bad_input: an element is not below sum's exponent
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void add_squares(SquareSum& sum, std::span<T> x) const {
        const std::int32_t exponent = sum.exponent();
        if (exponent == Grid::not_finite) return;
        if (const std::int32_t found = needed_exponent(x); found > exponent)
            refuse_input({"SquareSum: an element needs the exponent ", found, "; expected at most ", exponent});
        add_known(sum, x);
    }
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    [[nodiscard]] std::int32_t needed_exponent(std::span<T> x, double weight = 1.0) const {
        using E = std::remove_const_t<T>;
        return needed_by(magnitude_of<E>(fold(x, MagnitudeBits{}, GridBits<E>{0}, Greater{})), weight);
    }
    /// As on the host, for images of std::int64_t on a Grid and of std::int32_t on a NarrowGrid.
    /// One pass.
    template <class Integer, class T, class G>
        requires floating_element<std::remove_const_t<T>>
    std::int32_t to_grid(std::span<Integer> image, std::span<T> x, double weight, const G& grid) const {
        return images<false>("to_grid", image, x, weight, grid);
    }
    template <class Integer, class T, class G>
        requires floating_element<std::remove_const_t<T>>
    std::int32_t add_to_grid(std::span<Integer> image, std::span<T> x, double weight, const G& grid) const {
        return images<true>("add_to_grid", image, x, weight, grid);
    }
    template <floating_element T, class Integer, class G>
    std::size_t from_grid(std::span<T> out, std::span<const Integer> image, const G& grid) const {
        const Grid wide = grid_of_images<Integer, T>("from_grid", grid, image.size(), out.size());
        kernels().apply(ImageNumber<T, Integer>{ImageScale<false>(wide.exponent)}, out, image);
        const std::size_t first = fold(image, MarkedAt{}, npos, Lesser{});
        return first < image.size() ? first : image.size();
    }

private:
    [[nodiscard]] const Kernels& kernels() const { return static_cast<const Kernels&>(*this); }
    template <class T, class Value, class Found, class Op>
    Found fold(std::span<T> x, const Value& value, Found none, const Op& op) const {
        return thrust_fold(kernels().policy(), x.size(), FoldElement<std::remove_const_t<T>, Value>(x.data(), value),
                           none, op);
    }
    template <class T>
    void add_known(SquareSum& sum, std::span<T> x) const {
        if (sum.exponent() == Grid::not_finite) return;
        const WideCount all = fold(x, SquareImage(sum.exponent()), WideCount{}, AddWideCounts{});
        sum.add_part(all.high, all.low);
    }
    template <bool Add, class Integer, class T, class G>
    std::int32_t images(const char* who, std::span<Integer> image, std::span<T> x, double weight, const G& grid) const {
        using E = std::remove_const_t<T>;
        const Grid wide = grid_of_images<Integer, E>(who, grid, x.size(), image.size());
        check_grid_weight(who, weight);
        const ImageElement<E, Integer, Add> body{
            image.data(), x.data(), {{weight, wide.exponent}, most_that_fits<E>(weight, grid.exponent)}};
        const auto largest = thrust_fold(kernels().policy(), x.size(), body, GridBits<E>{0}, Greater{});
        return needed_by(magnitude_of<E>(largest), weight);
    }
};

} // namespace detail
UNISONO_NAMESPACE_END
