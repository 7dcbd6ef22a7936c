#pragma once

/// \file
/// Runs kernels on a system of Thrust: with the same element functors as on the host, by packs on a
/// GPU (packs.hpp), and elsewhere by tiles, each a loop as on the host.
///
/// A *body* is a plain value with `operator()(std::size_t i) const`, marked UNISONO_INLINE: it
/// computes element i in place; its members for a GPU are those of packs.hpp, and `packed()` is
/// true if its arrays are aligned to packs. Bodies hold pointers into memory of the policy's
/// system.

#include "unisono/arithmetic/apply.hpp"
#include "unisono/arithmetic/vectorised.hpp"
#include "unisono/core/config.hpp"
#include "unisono/extensions/thrust/packs.hpp"

#if !defined(THRUST_DEVICE_SYSTEM) && !defined(__CUDACC__)
#error \
    "Unisono: without nvcc Thrust must be told where its device is: -DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP (or \
_OMP, _TBB); linking the CMake target unisono::thrust does it"
#endif
#if defined(__CUDACC__) && !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error \
    "Unisono: nvcc needs --expt-relaxed-constexpr, so that kernels may use constexpr functions of the standard library; \
linking the CMake target unisono::thrust adds it"
#endif

#include <cstddef>
#include <thrust/execution_policy.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/version.h>
#include <type_traits>
#include <utility>

#if THRUST_VERSION < 101500
#error "Unisono needs Thrust 1.15 or newer (Debian 12's libthrust-dev has 1.17, CUDA 12 has 2.x and CUDA 13 has 3.0)"
#endif

UNISONO_NAMESPACE_BEGIN
namespace detail {

#if defined(__CUDACC__)
template <class Derived>
std::true_type is_of_cuda(const thrust::cuda_cub::execution_policy<Derived>&);
#endif
std::false_type is_of_cuda(...);

/// True if a policy's threads are a GPU's.
template <class Policy>
inline constexpr bool runs_on_gpu = decltype(is_of_cuda(std::declval<const Policy&>()))::value;

/// The number of elements per index of Thrust on the host's systems.
inline constexpr std::size_t tile_elements = 4096;

UNISONO_NO_CONTRACTION_BEGIN

template <class Body>
struct TileLoop {
    const Body& each;
    std::size_t begin;
    std::size_t end;
    UNISONO_INLINE void operator()() const {
        const Body body(each); // a copy, as in apply_loop
        UNISONO_ELEMENTWISE
        for (std::size_t i = begin; i < end; ++i) body(i);
    }
};

/// All elements of a tile. Bodies for which one loop is slow have an overload.
template <class Body>
UNISONO_INLINE void see_tile(const Body& body, std::size_t begin, std::size_t end, typename Body::Note& note) {
    for (std::size_t i = begin; i < end; ++i) body.see(i, read_pack<1>(body.x + i), note);
}

template <class Body>
struct TileShare {
    const Body& each;
    std::size_t begin;
    std::size_t end;
    UNISONO_INLINE void operator()() const {
        const Body body(each);
        auto note = body.start();
        see_tile(body, begin, end, note);
        body.tell(note);
    }
};

UNISONO_NO_CONTRACTION_END

struct Tile {
    std::size_t begin;
    std::size_t end;
    Tile(std::size_t tile, std::size_t count) : begin(tile * tile_elements), end(count) {
        if (count - begin > tile_elements) end = begin + tile_elements;
    }
};

template <class Body>
struct RunTile {
    Body body;
    std::size_t count;
    void operator()(std::size_t index) const {
        const Tile tile(index, count);
        vectorised(best_instruction_set(), TileLoop<Body>{body, tile.begin, tile.end});
    }
};

template <class Body>
struct ShareTile {
    Body body;
    std::size_t count;
    void operator()(std::size_t index) const {
        const Tile tile(index, count);
        vectorised(best_instruction_set(), TileShare<Body>{body, tile.begin, tile.end});
    }
};

constexpr std::size_t tiles_of(std::size_t count) {
    return count / tile_elements + (count % tile_elements != 0 ? 1 : 0);
}

template <class Policy, class Run>
void thrust_indices(const Policy& policy, std::size_t count, const Run& run) {
    const thrust::counting_iterator<std::size_t> first(0);
    thrust::for_each(policy, first, first + static_cast<std::ptrdiff_t>(count), run);
}

/// body(i) for i in [0, count), in no particular order.
template <class Policy, class Body>
void thrust_each(const Policy& policy, std::size_t count, const Body& body) {
    if (count == 0) return;
    if constexpr (runs_on_gpu<Policy>) {
        const RunPacks<Body> run(body, count, body.packed());
        thrust_indices(policy, run.indices(count), run);
    } else thrust_indices(policy, tiles_of(count), RunTile<Body>{body, count});
}

/// body.see(i, body.x[i], note) for i in [0, count), by threads with a note each.
template <class Policy, class Body>
void thrust_shares(const Policy& policy, std::size_t count, const Body& body) {
    if (count == 0) return;
    if constexpr (runs_on_gpu<Policy>) {
        const RunShare<Body> run(body, count, body.packed());
        thrust_indices(policy, run.threads, run);
    } else thrust_indices(policy, tiles_of(count), ShareTile<Body>{body, count});
}

template <std::size_t Index, class T>
struct ArrayAt {
    T* data;
};

template <class A, class B>
bool may_change(A* a, B* b) {
    return !(std::is_const_v<A> && std::is_const_v<B>)&&static_cast<const void*>(a) == static_cast<const void*>(b);
}
inline bool all_differ() { return true; }
template <class First, class... Rest>
bool all_differ([[maybe_unused]] First* first, Rest*... rest) {
    return !(may_change(first, rest) || ...) && all_differ(rest...);
}

/// A functor over arrays, as a body.
template <class Functor, class Indices, class... T>
struct OnArrays;
template <class Functor, std::size_t... Index, class... T>
struct OnArrays<Functor, std::index_sequence<Index...>, T...> : ArrayAt<Index, T>... {
    static constexpr std::size_t pack = elements_of_pack<T...>();
    Functor functor;

    explicit OnArrays(const Functor& f, T*... arrays) : ArrayAt<Index, T>{arrays}..., functor(f) {}
    UNISONO_INLINE void operator()(std::size_t i) const { functor(ArrayAt<Index, T>::data[i]...); }

    /// A pack of each array is read before one is written, so an array must not be there twice.
    [[nodiscard]] bool packed() const {
        return all_differ(ArrayAt<Index, T>::data...) && (aligned_to_packs<pack>(ArrayAt<Index, T>::data) && ...);
    }
    template <std::size_t K>
    UNISONO_INLINE void run(std::size_t i) const {
        if constexpr (K == 1) (*this)(i);
        else run_packs(i, read_pack<K>(ArrayAt<Index, T>::data + i)...);
    }

private:
    template <std::size_t K, class... E>
    UNISONO_INLINE void run_packs(std::size_t i, Pack<E, K>... packs) const {
        for (std::size_t e = 0; e < K; ++e) functor(static_cast<T&>(packs.at[e])...);
        (write(ArrayAt<Index, T>::data + i, packs), ...);
    }
    template <std::size_t K, class E>
    UNISONO_INLINE static void write(E* to, const Pack<E, K>& elements) {
        write_pack(to, elements);
    }
    template <std::size_t K, class E>
    UNISONO_INLINE static void write(const E*, const Pack<E, K>&) {} // is only read
};

template <class Policy, class Functor, class... T>
void thrust_apply(const Policy& policy, const Functor& functor, std::size_t count, T*... arrays) {
    thrust_each(policy, count, OnArrays<Functor, std::index_sequence_for<T...>, T...>(functor, arrays...));
}

} // namespace detail
UNISONO_NAMESPACE_END
