#pragma once

/// \file
/// Kernels of a GPU: a thread accesses a *pack* of adjacent elements by one instruction, of 16
/// bytes for the widest type. Threads with 4 bytes each keep too few bytes in flight to use the
/// memory's bandwidth.
///
/// A body for packs has `pack`, the number of elements, and `run<K>(i)`, which computes elements i
/// to i + K - 1 for K = pack and K = 1. Elements after the last whole pack, and arrays that are not
/// aligned to packs, are computed singly. Nothing here needs nvcc, so the tests run it on the host.

#include "unisono/core/config.hpp"
#include "unisono/core/element.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class T>
inline constexpr bool may_be_packed =
    std::is_trivially_copyable_v<T> && std::has_single_bit(sizeof(T)) && sizeof(T) <= 8 &&
    (std::is_trivially_default_constructible_v<T> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>);

/// The elements of a pack for arrays of these types; 1 if they are read and written singly.
template <class... T>
constexpr std::size_t elements_of_pack() {
    std::size_t widest = 1;
    ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
    return (may_be_packed<std::remove_const_t<T>> && ...) ? 16 / widest : 1;
}

template <class T, std::size_t K>
inline constexpr std::size_t pack_alignment = sizeof(T) * K < 16 ? sizeof(T) * K : 16;

template <class T, std::size_t K>
struct alignas(pack_alignment<T, K>) Pack {
    T at[K];
};

template <std::size_t K, class T>
UNISONO_INLINE Pack<std::remove_const_t<T>, K> read_pack(T* from) {
    using Elements = Pack<std::remove_const_t<T>, K>;
#if defined(__CUDA_ARCH__)
    return *reinterpret_cast<const Elements*>(from);
#else
    Elements read;
    __builtin_memcpy(static_cast<void*>(&read), static_cast<const void*>(from), sizeof(read));
    return read;
#endif
}
template <std::size_t K, class T>
UNISONO_INLINE void write_pack(T* to, const Pack<T, K>& elements) {
#if defined(__CUDA_ARCH__)
    *reinterpret_cast<Pack<T, K>*>(to) = elements;
#else
    __builtin_memcpy(static_cast<void*>(to), static_cast<const void*>(&elements), sizeof(elements));
#endif
}

template <std::size_t K, class T>
bool aligned_to_packs(const T* array) {
    return reinterpret_cast<std::uintptr_t>(array) % pack_alignment<T, K> == 0;
}

/// Index i < packs is a pack; any other, a single element after them.
template <class Body>
struct RunPacks {
    Body body;
    std::size_t packs;

    /// `packed`: all arrays are aligned to packs.
    RunPacks(const Body& b, std::size_t count, bool packed)
        : body(b), packs(packed && Body::pack > 1 ? count / Body::pack : 0) {}
    [[nodiscard]] std::size_t indices(std::size_t count) const { return count - packs * (Body::pack - 1); }

    UNISONO_ON_DEVICE void operator()(std::size_t i) const {
        if (i < packs) body.template run<Body::pack>(i * Body::pack);
        else body.template run<1>(i + packs * (Body::pack - 1));
    }
};

/// One of few threads that share an array's elements, each with a note of its own, at first
/// `start()`: `see<K>(i, x, note)` computes a pack x of `body.x`, and `tell(note)` is called at the
/// end.
template <class Body>
struct RunShare {
    Body body;
    std::size_t count;
    std::size_t packs;
    std::size_t threads;

    RunShare(const Body& b, std::size_t elements, bool packed)
        : body(b), count(elements), packs(packed ? elements / Body::pack : 0) {
        const std::size_t most = packs > count - packs * Body::pack ? packs : count - packs * Body::pack;
        threads = most < Body::most_threads ? most : Body::most_threads;
    }

    UNISONO_ON_DEVICE void operator()(std::size_t thread) const {
        constexpr std::size_t K = Body::pack;
        const auto* const x = body.x;
        const std::size_t apart = threads;
        auto note = body.start();
        std::size_t i = thread;
        for (; i + 3 * apart < packs; i += 4 * apart) { // four packs are in flight
            const auto a = read_pack<K>(x + i * K);
            const auto b = read_pack<K>(x + (i + apart) * K);
            const auto c = read_pack<K>(x + (i + 2 * apart) * K);
            const auto d = read_pack<K>(x + (i + 3 * apart) * K);
            body.see(i * K, a, note);
            body.see((i + apart) * K, b, note);
            body.see((i + 2 * apart) * K, c, note);
            body.see((i + 3 * apart) * K, d, note);
        }
        for (; i < packs; i += apart) body.see(i * K, read_pack<K>(x + i * K), note);
        for (std::size_t one = packs * K + thread; one < count; one += apart)
            body.see(one, read_pack<1>(x + one), note);
        body.tell(note);
    }
};

} // namespace detail
UNISONO_NAMESPACE_END
