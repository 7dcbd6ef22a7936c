#pragma once

/// \file
/// The arithmetic of this room on a system of Thrust: a GPU's memory (nvcc), or the host's by one
/// thread, OpenMP or TBB.
///
///     un::ThrustArithmetic on(thrust::device); // or thrust::cuda::par.on(stream)
///     on.accumulate(un::span_of(sum), un::span_of(gradient), weight);
///
/// The functions are those of the headers of the same names in arithmetic/ (accumulate, scale, and
/// others), with the same element functors and the same bits, unless noted. Spans hold addresses of
/// the policy's memory. A functor or operation of your own must be callable on the device:
/// UNISONO_ON_DEVICE on its call operator, and on a GPU `__fmul_rn` for a product that is then
/// added, since nvcc contracts it.
///
/// The policy determines how a call is enqueued; a function that returns a number waits for it. On
/// a GPU the first such call of an object allocates 32 bytes there and 32 pinned ones, which the
/// object keeps; no other call allocates. Thrust throws errors of the device as
/// thrust::system_error. nvcc: needs --expt-relaxed-constexpr; -ftz=true (a part of
/// --use_fast_math) turns subnormal numbers into zero, and so changes the bits; the rest of
/// --use_fast_math changes nothing here.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/arithmetic/arithmetic.hpp"
#include "unisono/arithmetic/narrow_grid.hpp"
#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/extensions/device/answers.hpp"
#include "unisono/extensions/thrust/combine.hpp"
#include "unisono/extensions/thrust/elements.hpp"
#include "unisono/extensions/thrust/loop.hpp"
#if defined(__CUDACC__)
#include "unisono/extensions/cuda/answers.hpp"
#endif

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thrust/memory.h>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN

/// The elements of a contiguous Thrust vector.
template <class Vector>
auto span_of(Vector& vector) {
    return std::span(thrust::raw_pointer_cast(vector.data()), vector.size());
}

namespace detail {

[[noreturn, gnu::cold]] inline void refuse_array_count(const char* what, std::size_t found) {
    refuse_input({"combine on Thrust: found ", found, " ", what, "; expected 1 to ", thrust_most_arrays});
}

#if defined(__CUDACC__)
/// The functions that return a number.
template <class Kernels, class Policy>
using ThrustAnswers = std::conditional_t<runs_on_gpu<Policy>, DeviceAnswers<Kernels>, Answers<Kernels, AnswersAtOnce>>;
#else
template <class Kernels, class Policy>
using ThrustAnswers = Answers<Kernels, AnswersAtOnce>;
#endif

} // namespace detail

/// Kernels on memory of `Policy`, an execution policy of Thrust.
template <class Policy>
class ThrustArithmetic : public detail::ThrustAnswers<ThrustArithmetic<Policy>, Policy> {
public:
    ThrustArithmetic() = default;
    explicit ThrustArithmetic(const Policy& policy) : policy_(policy) {}

    [[nodiscard]] const Policy& policy() const { return policy_; }
#if defined(__CUDACC__)
    [[nodiscard]] cudaStream_t cuda_stream() const
        requires detail::runs_on_gpu<Policy>
    {
        Policy policy(policy_); // Thrust asks for one that is not const
        return thrust::cuda_cub::stream(policy);
    }
#endif

    /// As `apply`. A GPU's functor gets references to copies, and spans of elements that are not
    /// const are written back.
    template <class Functor, class First, class... Rest>
        requires std::invocable<const Functor&, First&, Rest&...>
    void apply(const Functor& functor, std::span<First> first, std::span<Rest>... rest) const {
        (detail::check_sizes("apply", rest.size(), first.size()), ...);
        detail::thrust_apply(policy_, functor, first.size(), first.data(), rest.data()...);
    }

    /// y[i] = x[i] in y's type: rounded to nearest, ties to even; a NaN becomes the quiet one.
    template <floating_element To, class T>
        requires floating_element<std::remove_const_t<T>>
    void cast(std::span<To> y, std::span<T> x) const {
        using From = std::remove_const_t<T>;
        apply(detail::CastElement<To, From>{}, y, std::span<const From>(x));
    }
    template <floating_element T>
    void scale(std::span<T> out, std::type_identity_t<std::span<const T>> x, double factor) const {
        detail::check_sizes("scale", x.size(), out.size());
        const auto rounded = static_cast<accumulator_t<T>>(factor);
        if (rounded == 1) return copy(out, x);
        const detail::Multiply<T> multiply{rounded};
        if (out.data() == x.data()) apply(detail::InPlace<detail::Multiply<T>>{multiply}, out);
        else apply(multiply, out, x);
    }
    template <floating_element T>
    void scale(std::span<T> x, double factor) const {
        scale(x, x, factor);
    }
    template <floating_element T>
    void divide(std::span<T> x, double divisor) const {
        const auto rounded = static_cast<accumulator_t<T>>(divisor);
        if (rounded != 1) apply(detail::InPlace<detail::Divide<T>>{{rounded}}, x);
    }
    template <floating_element To, class T>
        requires floating_element<std::remove_const_t<T>>
    void accumulate(std::span<To> y, std::span<T> x, double weight = 1.0) const {
        using From = std::remove_const_t<T>;
        const auto rounded = static_cast<accumulator_t<To>>(weight);
        if (rounded == 1) apply(detail::Add<To, From>{}, y, std::span<const From>(x));
        else apply(detail::AddWeighted<To, From>{rounded}, y, std::span<const From>(x));
    }
    template <floating_element To, class T>
        requires floating_element<std::remove_const_t<T>>
    void accumulate_first(std::span<To> y, std::span<T> x, double weight = 1.0) const {
        using From = std::remove_const_t<T>;
        if constexpr (std::same_as<To, From>) scale(y, x, weight);
        else
            apply(detail::StoreWeighted<To, From>{static_cast<accumulator_t<To>>(weight)}, y, std::span<const From>(x));
    }

    /// targets[t][i] = sources[0][i] op sources[1][i] op ..., as the kernel of
    /// `make_reduction(op)`. At most 32 of each; aligned as T is. \throws error bad_input: none, or
    /// more than 32
    template <element T, class Op>
        requires reduction_operation<Op, T>
    void combine(const Op& op, std::span<const T* const> sources, std::span<T* const> targets,
                 std::size_t count) const {
        if constexpr (std::same_as<Op, WeightedMean>) {
            op.check(element_type_of<T>);
            combine<T>(Sum{}, sources, targets, count);
        } else {
            combine_arrays<T>(detail::FoldSources<Op, T>{op}, sources, targets, count);
        }
    }

    /// targets[t][i] = the sum of weight * sources[s][i] on the grid, as the kernel of sums
    /// directly from the ranks' numbers. All numbers must fit.
    template <floating_element T>
    void combine_on_grid(std::span<const T* const> sources, std::span<T* const> targets, std::size_t count,
                         double weight, const Grid& grid) const {
        detail::check_grid<T>("combine_on_grid", grid, count, count);
        detail::check_grid_weight("combine_on_grid", weight);
        combine_arrays<T>(detail::SumOnGrid<T>{detail::ImageMaker<detail::Imaging::fused>(weight, grid.exponent),
                                               detail::ImageScale<false>(grid.exponent)},
                          sources, targets, count);
    }

    /// image[i] = or += weight * x[i] on the grid; nothing is marked. *largest, on the device,
    /// becomes the maximum of itself and the bits of |x[i]|; `needed_by_bits` converts it to the
    /// needed exponent. One pass; does not wait.
    template <bool Add, class Integer, class T>
        requires floating_element<std::remove_const_t<T>>
    void note_images(std::span<Integer> image, std::span<T> x, double weight, const Grid& grid,
                     std::uint64_t* largest) const {
        using E = std::remove_const_t<T>;
        detail::check_grid<E>("note_images", grid, x.size(), image.size());
        detail::check_grid_weight("note_images", weight);
        detail::thrust_shares(
            policy_, x.size(),
            detail::NoteImages<E, Integer, Add>{image.data(), x.data(), {{weight, grid.exponent}}, largest});
    }
    /// As above, and an element that does not fit leaves a mark, as `to_grid` and `add_to_grid`,
    /// which convert *largest.
    template <bool Add, class Integer, class T, class G>
        requires floating_element<std::remove_const_t<T>>
    void to_grid_noting(std::span<Integer> image, std::span<T> x, double weight, const G& grid,
                        std::uint64_t* largest) const {
        using E = std::remove_const_t<T>;
        using Formula = detail::MarkedImage<E, Integer>;
        const char* const who = Add ? "add_to_grid" : "to_grid";
        const Grid wide = detail::grid_of_images<Integer, E>(who, grid, x.size(), image.size());
        detail::check_grid_weight(who, weight);
        detail::thrust_shares(policy_, x.size(),
                              detail::NoteImages<E, Integer, Add, Formula>{
                                  image.data(),
                                  x.data(),
                                  {{weight, wide.exponent}, detail::most_that_fits<E>(weight, grid.exponent)},
                                  largest});
    }
    /// *largest, on the device, becomes the maximum of itself and the bits of |x[i]|. Does not
    /// wait.
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void note_largest(std::span<T> x, std::uint64_t* largest) const {
        detail::thrust_shares(policy_, x.size(), detail::NoteLargest<std::remove_const_t<T>>{x.data(), largest});
    }
    /// As from_grid; *first, on the device, becomes the minimum of itself and the index of the
    /// first marked image. One pass; does not wait.
    template <floating_element T, class Integer, class G>
    void from_grid_noting(std::span<T> out, std::span<const Integer> image, const G& grid, std::uint64_t* first) const {
        const Grid wide = detail::grid_of_images<Integer, T>("from_grid", grid, image.size(), out.size());
        detail::thrust_each(policy_, image.size(),
                            detail::NoteMarked<T, Integer>{
                                out.data(), image.data(), {detail::ImageScale<false>(wide.exponent)}, first});
    }
    template <floating_element T>
    [[nodiscard]] static std::int32_t needed_by_bits(std::uint64_t largest, double weight) {
        return detail::needed_by(detail::magnitude_of<T>(static_cast<detail::GridBits<T>>(largest)), weight);
    }
    /// As from_grid, without checking for marks.
    template <floating_element T, class Integer>
    void numbers_of(std::span<T> out, std::span<const Integer> image, const Grid& grid) const {
        detail::check_grid<T>("numbers_of", grid, image.size(), out.size());
        apply(detail::ImageNumber<T, Integer>{detail::ImageScale<false>(grid.exponent)}, out, image);
    }
    /// Updates two words on the device in one pass: noted[0] becomes the minimum of itself and
    /// first + i for all x[i] that are not finite; noted[1] the same for all that are not below
    /// 2^exponent in magnitude. Does not wait.
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void note_magnitudes(std::span<T> x, std::uint64_t first, int exponent, std::uint64_t* noted) const {
        using E = std::remove_const_t<T>;
        detail::thrust_each(policy_, x.size(),
                            detail::NoteMagnitudes<E>{x.data(), first, detail::exponent_bits<E>(exponent), noted});
    }

    /// Adds the squares of x to the noted ones, NotedSquares::words words on the device, on the
    /// grid of this exponent; without an exponent, and only if nothing is noted yet, on the grid
    /// that x needs. One pass, or two without an exponent. Does not wait.
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void note_squares(std::span<T> x, std::uint64_t* noted, std::int32_t exponent) const {
        using E = std::remove_const_t<T>;
        detail::thrust_shares(policy_, x.size(), detail::NoteSquares<E>{x.data(), exponent, noted});
    }
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void note_squares(std::span<T> x, std::uint64_t* noted) const {
        note_largest(x, noted);
        note_squares(x, noted, detail::NoteSquares<std::remove_const_t<T>>::unknown);
    }

    template <class T>
    void fill(std::span<T> x, std::type_identity_t<T> value) const {
        apply(detail::FillElement<T>{value}, x);
    }
    template <class T>
    void zero(std::span<T> x) const {
        fill(x, T{});
    }
    /// out[i] = x[i], bit by bit.
    template <element T>
    void copy(std::span<T> out, std::type_identity_t<std::span<const T>> x) const {
        detail::check_sizes("copy", x.size(), out.size());
        if (out.data() != x.data()) apply(detail::CopyElement<T>{}, out, x);
    }

private:
    template <class T, class Formula>
    void combine_arrays(const Formula& formula, std::span<const T* const> sources, std::span<T* const> targets,
                        std::size_t count) const {
        constexpr std::size_t most = detail::thrust_most_arrays;
        if (sources.empty() || sources.size() > most) detail::refuse_array_count("sources", sources.size());
        if (targets.empty() || targets.size() > most) detail::refuse_array_count("targets", targets.size());
        const auto run = [&]<std::size_t Most>(std::integral_constant<std::size_t, Most>) {
            detail::thrust_each(policy_, count, detail::CombineArrays<Formula, T, Most>(formula, sources, targets));
        };
        if constexpr (detail::runs_on_gpu<Policy>) { // the fewer arguments, the faster
            const std::size_t arrays = std::max(sources.size(), targets.size());
            if (arrays <= 2) return run(std::integral_constant<std::size_t, 2>());
            if (arrays <= 8) return run(std::integral_constant<std::size_t, 8>());
        }
        run(std::integral_constant<std::size_t, most>());
    }

    Policy policy_{};
};

UNISONO_NAMESPACE_END
