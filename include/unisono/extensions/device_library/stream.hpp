#pragma once

/// \file
/// Kernels for a CUDA stream from the library unisono::devices, for sources that any compiler
/// compiles: the counterpart of extensions/thrust/stream.hpp, with the same bits. In a source that
/// nvcc compiles, functors and operations that the library does not have are compiled with it.

#include "unisono/arithmetic/arithmetic.hpp"
#include "unisono/arithmetic/grid.hpp"
#include "unisono/arithmetic/narrow_grid.hpp"
#include "unisono/arithmetic/operations.hpp"
#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/arithmetic/stream_kernel.hpp"
#include "unisono/extensions/cuda/answers.hpp"
#include "unisono/extensions/device/kernel_sources.hpp"
#include "unisono/extensions/device_library/functors.hpp"
#include "unisono/extensions/device_library/kernel.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#if defined(__CUDACC__)
#include "unisono/extensions/thrust/thrust.hpp"

#include <thrust/system/cuda/execution_policy.h>
#endif

UNISONO_KERNELS_ARE_OF(library)

UNISONO_NAMESPACE_BEGIN
namespace detail {

#if defined(__CUDACC__)
inline constexpr bool source_is_for_devices = true;
#else
inline constexpr bool source_is_for_devices = false; ///< the library has all of its kernels
#endif

/// The type whose kernels serve T: `long` and `long long` are one type of element.
template <arithmetic_element T>
using DeviceElement = std::conditional_t<
    floating_element<T>, T,
    std::conditional_t<
        sizeof(T) == 1, std::uint8_t,
        std::conditional_t<std::is_signed_v<T>, std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>,
                           std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>>;

template <class T, class Bits>
inline constexpr bool is_shaped_as = sizeof(T) == sizeof(Bits) && std::alignment_of_v<T> == std::alignment_of_v<Bits>;
/// An integer with T's bits; a byte where no integer has T's size.
template <class T>
using DeviceBits = std::conditional_t<
    is_shaped_as<T, std::uint64_t>, std::uint64_t,
    std::conditional_t<is_shaped_as<T, std::uint32_t>, std::uint32_t,
                       std::conditional_t<is_shaped_as<T, std::uint16_t>, std::uint16_t, std::uint8_t>>>;
template <class T>
auto device_bits(std::span<T> x) {
    using Bits = std::conditional_t<std::is_const_v<T>, const DeviceBits<T>, DeviceBits<T>>;
    return std::span<Bits>(reinterpret_cast<Bits*>(x.data()), x.size() * (sizeof(T) / sizeof(Bits)));
}

template <class Integer, class G>
concept images_on = (std::same_as<G, Grid> && std::same_as<Integer, std::int64_t>) ||
                    (std::same_as<G, NarrowGrid> && std::same_as<Integer, std::int32_t>);

/// The most sources or targets of a combination.
inline constexpr std::size_t device_most_arrays = 32;

/// The functions of ThrustArithmetic (extensions/thrust/thrust.hpp), which says what they do.
class DevicesArithmetic : public DeviceAnswers<DevicesArithmetic> {
public:
    explicit DevicesArithmetic(void* stream) : stream_(stream) { check_kernel_sources(); }

    [[nodiscard]] cudaStream_t cuda_stream() const { return static_cast<cudaStream_t>(stream_); }

    template <class Functor, class First, class... Rest>
    void apply(const Functor& functor, std::span<First> first, std::span<Rest>... rest) const {
        (check_sizes("apply", rest.size(), first.size()), ...);
        if constexpr (devices_have<Functor, First, Rest...>) {
            run<verb::apply>(functor, first, rest...);
        } else {
#if defined(__CUDACC__)
            compiled_here().apply(functor, first, rest...);
#else
            static_assert(devices_have<Functor, First, Rest...>,
                          "unisono::StreamArithmetic: found a functor whose kernel the library unisono::devices does "
                          "not have. Required: an optimizer, clipping, update or compression of Unisono, on float or "
                          "double; or a source that nvcc compiles. Why: a functor of your own runs on the device, and "
                          "nvcc compiles its kernel with it.");
#endif
        }
    }

    template <floating_element To, class T>
        requires floating_element<std::remove_const_t<T>>
    void cast(std::span<To> y, std::span<T> x) const {
        run<verb::cast>(y, constant(x));
    }
    template <floating_element T>
    void scale(std::span<T> out, std::type_identity_t<std::span<const T>> x, double factor) const {
        run<verb::scale>(out, x, factor);
    }
    template <floating_element T>
    void scale(std::span<T> x, double factor) const {
        scale(x, x, factor);
    }
    template <floating_element T>
    void divide(std::span<T> x, double divisor) const {
        run<verb::divide>(x, divisor);
    }
    template <floating_element To, class T>
        requires floating_element<std::remove_const_t<T>>
    void accumulate(std::span<To> y, std::span<T> x, double weight = 1.0) const {
        run<verb::accumulate>(y, constant(x), weight);
    }
    template <floating_element To, class T>
        requires floating_element<std::remove_const_t<T>>
    void accumulate_first(std::span<To> y, std::span<T> x, double weight = 1.0) const {
        run<verb::accumulate_first>(y, constant(x), weight);
    }

    template <element T, class Op>
        requires reduction_operation<Op, T>
    void combine(const Op& op, std::span<const T* const> sources, std::span<T* const> targets,
                 std::size_t count) const {
        if constexpr (std::same_as<Op, WeightedMean>) {
            op.check(element_type_of<T>);
            combine_arrays<T>(Sum{}, sources, targets, count);
        } else {
            combine_arrays<T>(op, sources, targets, count);
        }
    }
    /// As above; the addresses are of elements of type T.
    template <class T, class Op, class Source, class Target>
    void combine_arrays(const Op& op, std::span<const Source> sources, std::span<const Target> targets,
                        std::size_t count) const {
        if (sources.size() > device_most_arrays) refuse_count("sources", sources.size());
        if (targets.size() > device_most_arrays) refuse_count("targets", targets.size());
        const auto run_as = [&]<class E>(std::type_identity<E>, const auto& verb) {
            std::array<const E*, device_most_arrays> from{};
            std::array<E*, device_most_arrays> to{};
            for (std::size_t i = 0; i < sources.size(); ++i) from[i] = reinterpret_cast<const E*>(sources[i]);
            for (std::size_t i = 0; i < targets.size(); ++i) to[i] = reinterpret_cast<E*>(targets[i]);
            verb(std::span<const E* const>(from.data(), sources.size()),
                 std::span<E* const>(to.data(), targets.size()));
        };
        if constexpr (built_in_operation<Op>) {
            run_as(std::type_identity<DeviceElement<T>>(),
                   [&](auto from, auto to) { run<verb::combine>(op, from, to, count); });
        } else {
#if defined(__CUDACC__)
            run_as(std::type_identity<T>(),
                   [&](auto from, auto to) { compiled_here().template combine<T>(op, from, to, count); });
#else
            static_assert(
                built_in_operation<Op>,
                "unisono::StreamArithmetic: found an operation of your own. Required: Sum, Product, Min, Max or "
                "WeightedMean; or a source that nvcc compiles. Why: an operation of your own runs on the device, "
                "and nvcc compiles its kernel with it.");
#endif
        }
    }
    template <floating_element T>
    void combine_on_grid(std::span<const T* const> sources, std::span<T* const> targets, std::size_t count,
                         double weight, const Grid& grid) const {
        run<verb::combine_on_grid>(sources, targets, count, weight, grid);
    }

    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void note_squares(std::span<T> x, std::uint64_t* noted, std::int32_t exponent) const {
        run<verb::note_squares>(constant(x), noted, exponent);
    }
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void note_squares(std::span<T> x, std::uint64_t* noted) const {
        run<verb::note_squares>(constant(x), noted);
    }
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void note_magnitudes(std::span<T> x, std::uint64_t first, int exponent, std::uint64_t* noted) const {
        run<verb::note_magnitudes>(constant(x), first, exponent, noted);
    }

    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void note_largest(std::span<T> x, std::uint64_t* largest) const {
        run<verb::note_largest>(constant(x), largest);
    }
    template <bool Add, class Integer, class T, class G>
        requires floating_element<std::remove_const_t<T>> && images_on<Integer, G>
    void to_grid_noting(std::span<Integer> image, std::span<T> x, double weight, const G& grid,
                        std::uint64_t* largest) const {
        run<verb::to_grid_noting<Add>>(image, constant(x), weight, grid, largest);
    }
    template <floating_element T, class Integer, class G>
        requires images_on<Integer, G>
    void from_grid_noting(std::span<T> out, std::span<const Integer> image, const G& grid, std::uint64_t* first) const {
        run<verb::from_grid_noting>(out, image, grid, first);
    }
    template <bool Add, class Integer, class T>
        requires floating_element<std::remove_const_t<T>>
    void note_images(std::span<Integer> image, std::span<T> x, double weight, const Grid& grid,
                     std::uint64_t* largest) const {
        run<verb::note_images<Add>>(image, constant(x), weight, grid, largest);
    }
    template <floating_element T>
    [[nodiscard]] static std::int32_t needed_by_bits(std::uint64_t largest, double weight) {
        return needed_by(magnitude_of<T>(static_cast<GridBits<T>>(largest)), weight);
    }
    template <floating_element T, class Integer>
    void numbers_of(std::span<T> out, std::span<const Integer> image, const Grid& grid) const {
        run<verb::numbers_of>(out, image, grid);
    }

    template <element T>
    void fill(std::span<T> x, std::type_identity_t<T> value) const {
        using Bits = DeviceBits<T>;
        if constexpr (sizeof(Bits) == sizeof(T)) {
            run<verb::fill>(device_bits(x), std::bit_cast<Bits>(value));
        } else {
#if defined(__CUDACC__)
            compiled_here().fill(x, value);
#else
            static_assert(sizeof(Bits) == sizeof(T),
                          "unisono::StreamArithmetic: found elements to fill that are not of 1, "
                          "2, 4 or 8 bytes. Required: such, or a source that nvcc compiles.");
#endif
        }
    }
    template <element T>
    void zero(std::span<T> x) const {
        fill(x, T{});
    }
    template <element T>
    void copy(std::span<T> out, std::type_identity_t<std::span<const T>> x) const {
        check_sizes("copy", x.size(), out.size());
        run<verb::copy>(device_bits(out), device_bits(x));
    }

private:
    [[noreturn, gnu::cold]] static void refuse_count(const char* what, std::size_t found) {
        refuse_input({"combine on a device: found ", found, " ", what, "; expected 1 to ", device_most_arrays});
    }
    template <class T>
    static std::span<const T> constant(std::span<T> x) {
        return x;
    }
    template <class Verb, class... Arguments>
    void run(Arguments... arguments) const {
        KernelOfUnisonoDevices<ThisDevicesVersion, Verb, Arguments...>::run(stream_, arguments...);
    }
#if defined(__CUDACC__)
    using CompiledHere = ThrustArithmetic<decltype(thrust::cuda::par_nosync.on(cudaStream_t{}))>;
    [[nodiscard]] CompiledHere compiled_here() const {
        return CompiledHere(thrust::cuda::par_nosync.on(static_cast<cudaStream_t>(stream_)));
    }
#endif

    void* stream_;
};

} // namespace detail

/// The built-in operations; in a source that nvcc compiles, also operations of your own.
template <class Op, class T>
    requires reduction_operation<Op, T> && (detail::built_in_operation<Op> || detail::source_is_for_devices)
struct StreamKernel<Op, T> {
    static void call(const void* state, const std::byte* const* sources, std::size_t source_count,
                     std::byte* const* targets, std::size_t target_count, std::size_t count, void* stream) {
        const Op operation = state == nullptr ? Op{} : *static_cast<const Op*>(state);
        detail::DevicesArithmetic(stream).combine_arrays<T>(operation, std::span(sources, source_count),
                                                            std::span(targets, target_count), count);
    }
};

template <>
struct StreamArithmetic<cudaStream_t> : detail::DevicesArithmetic {
    explicit StreamArithmetic(cudaStream_t stream) : DevicesArithmetic(stream) {}
};

UNISONO_NAMESPACE_END
