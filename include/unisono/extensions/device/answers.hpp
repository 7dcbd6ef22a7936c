#pragma once

/// \file
/// Numbers that kernels compute and the host waits for: where an element is not finite, a norm, the
/// exponent of a grid. A kernel notes its answer in words of its device's memory.

#include "unisono/arithmetic/grid.hpp"
#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/core/element.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The words that kernels have noted.
using AnswerWords = std::array<std::uint64_t, NotedSquares::words>;

/// The functions that wait, for a class `Kernels`: each calls one of its functions that note an
/// answer. `words.ask(kernels, initial, note)` sets every byte of some words to `initial`, calls
/// note(words), and returns them when the kernel has ended.
template <class Kernels, class Words>
class Answers {
public:
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    [[nodiscard]] std::size_t first_non_finite(std::span<T> x) const {
        constexpr int infinite = 1 << 15; // of every type
        return static_cast<std::size_t>(
            ask(all_set, [&](std::uint64_t* noted) { kernels().note_magnitudes(x, 0, infinite, noted); })[0]);
    }
    /// The sum of squares in double, by `SquareSum` on the grid that x needs. Cost: two reads.
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    [[nodiscard]] double sum_of_squares(std::span<T> x) const {
        const NotedSquares noted = squares([&](std::uint64_t* words) { kernels().note_squares(x, words); });
        SquareSum sum(SquareSum::needed_of<std::remove_const_t<T>>(noted));
        sum.template add<std::remove_const_t<T>>(noted);
        return sum.value();
    }
    /// As `sum.add(x)`. One read. \throws error bad_input: an element is not below sum's exponent
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void add_squares(SquareSum& sum, std::span<T> x) const {
        if (sum.exponent() == Grid::not_finite) return;
        sum.template add<std::remove_const_t<T>>(
            squares([&](std::uint64_t* words) { kernels().note_squares(x, words, sum.exponent()); }));
    }
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    [[nodiscard]] std::int32_t needed_exponent(std::span<T> x, double weight = 1.0) const {
        return needed<T>(weight, [&](std::uint64_t* largest) { kernels().note_largest(x, largest); });
    }
    /// As on the host, for images of std::int64_t on a Grid and of std::int32_t on a NarrowGrid.
    /// One read.
    template <class Integer, class T, class G>
        requires floating_element<std::remove_const_t<T>>
    std::int32_t to_grid(std::span<Integer> image, std::span<T> x, double weight, const G& grid) const {
        return needed<T>(weight, [&](std::uint64_t* largest) {
            kernels().template to_grid_noting<false>(image, x, weight, grid, largest);
        });
    }
    template <class Integer, class T, class G>
        requires floating_element<std::remove_const_t<T>>
    std::int32_t add_to_grid(std::span<Integer> image, std::span<T> x, double weight, const G& grid) const {
        return needed<T>(weight, [&](std::uint64_t* largest) {
            kernels().template to_grid_noting<true>(image, x, weight, grid, largest);
        });
    }
    template <floating_element T, class Integer, class G>
    std::size_t from_grid(std::span<T> out, std::span<const Integer> image, const G& grid) const {
        const auto noted =
            ask(all_set, [&](std::uint64_t* first) { kernels().from_grid_noting(out, image, grid, first); });
        return noted[0] < image.size() ? static_cast<std::size_t>(noted[0]) : image.size();
    }

private:
    static constexpr int none_set = 0, all_set = 0xff; ///< each byte before the kernel

    [[nodiscard]] const Kernels& kernels() const { return static_cast<const Kernels&>(*this); }
    template <class Note>
    auto ask(int initial, const Note& note) const {
        return words_.ask(kernels(), initial, note);
    }
    template <class T, class Note>
    std::int32_t needed(double weight, const Note& note) const {
        return kernels().template needed_by_bits<std::remove_const_t<T>>(ask(none_set, note)[0], weight);
    }
    template <class Note>
    NotedSquares squares(const Note& note) const {
        const auto noted = ask(none_set, note);
        return {noted[0], {noted[1], noted[2], noted[3]}};
    }

    Words words_;
};

/// Words for kernels that have ended when their call returns.
struct AnswersAtOnce {
    template <class Kernels, class Note>
    static AnswerWords ask(const Kernels&, int initial, const Note& note) {
        AnswerWords words;
        std::memset(words.data(), initial, sizeof words);
        note(words.data());
        return words;
    }
};

} // namespace detail
UNISONO_NAMESPACE_END
