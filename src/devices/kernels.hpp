// The machinery of the library unisono::devices, whose sources are beside this file: the kernels of
// the library's own policies for a CUDA stream, so that programs need no nvcc
// (extensions/device_library/stream.hpp). A test compiles the same sources by a host's compiler,
// with UNISONO_DEVICES_KERNELS: a header that defines DevicesKernels over a stand-in for CUDA.
#pragma once

#define UNISONO_BUILDS_DEVICES

#if defined(UNISONO_DEVICES_KERNELS)
#include UNISONO_DEVICES_KERNELS
#else
#include "unisono/extensions/thrust/thrust.hpp"

#include <thrust/system/cuda/execution_policy.h>
#endif

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/device_library/functors.hpp"
#include "unisono/extensions/device_library/kernel.hpp"

#include <cuda_runtime_api.h>
#include <thrust/system_error.h>

#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

#if !defined(UNISONO_DEVICES_KERNELS)
struct DevicesKernels : ThrustArithmetic<decltype(thrust::cuda::par_nosync.on(cudaStream_t{}))> {
    explicit DevicesKernels(cudaStream_t stream) : ThrustArithmetic(thrust::cuda::par_nosync.on(stream)) {}
};
#endif

template <class Version, class Verb, class... Arguments>
void KernelOfUnisonoDevices<Version, Verb, Arguments...>::run(void* stream, Arguments... arguments) {
    try {
        Verb::run(DevicesKernels(static_cast<cudaStream_t>(stream)), arguments...);
    } catch (const thrust::system_error& failed) { // a program that links to the library knows no Thrust
        throw error(ErrorCode::refused, concat({"CUDA: ", failed.what()}));
    }
}

/// Puts kernels into the library: a function whose address is taken is compiled.
struct KernelList {
    template <class Verb, class... Arguments>
    void have() {
        function = reinterpret_cast<void (*)()>(&KernelOfUnisonoDevices<ThisDevicesVersion, Verb, Arguments...>::run);
    }
    template <class Functor, class... T>
    void have(OnElements<Functor, T...>*) {
        have<verb::apply, Functor, std::span<T>...>();
    }
    template <class... One>
    void have_all(Listed<One...>) {
        (have(static_cast<One*>(nullptr)), ...);
    }

    void (*volatile function)() = nullptr;
};

/// The kernels for numbers of type T.
template <class T>
struct KernelsOfFloats {
    using X = std::span<const T>;
    KernelList all;

    KernelsOfFloats() {
        from<float>(), from<double>(), from<bfloat16>(), from<float16>();
        all.have<verb::scale, std::span<T>, X, double>();
        all.have<verb::divide, std::span<T>, double>();
        all.have<verb::combine_on_grid, std::span<const T* const>, std::span<T* const>, std::size_t, double, Grid>();
        all.have<verb::note_magnitudes, X, std::uint64_t, int, std::uint64_t*>();
        all.have<verb::note_squares, X, std::uint64_t*, std::int32_t>();
        all.have<verb::note_squares, X, std::uint64_t*>();
        all.have<verb::note_largest, X, std::uint64_t*>();
        images<std::int64_t, Grid>(), images<std::int32_t, NarrowGrid>();
    }

private:
    template <class Other>
    void from() {
        using Y = std::span<const Other>;
        all.have<verb::cast, std::span<T>, Y>();
        all.have<verb::accumulate, std::span<T>, Y, double>();
        all.have<verb::accumulate_first, std::span<T>, Y, double>();
    }
    template <class Integer, class G>
    void images() {
        using Image = std::span<Integer>;
        all.have<verb::to_grid_noting<false>, Image, X, double, G, std::uint64_t*>();
        all.have<verb::to_grid_noting<true>, Image, X, double, G, std::uint64_t*>();
        all.have<verb::from_grid_noting, std::span<T>, std::span<const Integer>, G, std::uint64_t*>();
        all.have<verb::numbers_of, std::span<T>, std::span<const Integer>, Grid>();
        all.have<verb::note_images<false>, Image, X, double, Grid, std::uint64_t*>();
        all.have<verb::note_images<true>, Image, X, double, Grid, std::uint64_t*>();
    }
};

// The sources. Nobody calls these.
void kernels_of_floats();
void kernels_of_doubles();
void kernels_of_bfloat16s();
void kernels_of_float16s();
void kernels_of_optimizers();
void kernels_of_policies();
void kernels_of_sums();

} // namespace detail
UNISONO_NAMESPACE_END
