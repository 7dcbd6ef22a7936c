#pragma once

/// \file
/// n sources into m targets on a system of Thrust. A kernel's pointers are its arguments. A GPU
/// reads an argument fast only where the index is a constant (otherwise each thread first copies
/// all of them into its own memory), so there the loops over arrays are unrolled.

#include "unisono/arithmetic/grid_sum.hpp"
#include "unisono/arithmetic/kernels.hpp"
#include "unisono/extensions/thrust/packs.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The most pointers among a kernel's arguments.
inline constexpr std::size_t thrust_most_arrays = 32;

UNISONO_NO_CONTRACTION_BEGIN

/// As `Combine`.
template <class Op, class T>
struct FoldSources {
    using Fold = Folding<Op, T>;
    using Sum = typename Fold::Accumulator;
    static constexpr bool copies_one = true; ///< one source is copied, which changes no bits
    Op op;
    UNISONO_INLINE Sum first(const T& x) const { return Fold::in(x); }
    UNISONO_INLINE Sum more(const Sum& sum, const T& x) const { return op(sum, Fold::in(x)); }
    UNISONO_INLINE T result(const Sum& sum) const { return Fold::out(sum); }
};

/// The sum of all sources' images as a number, as `CombineOnGrid`.
template <class T>
struct SumOnGrid {
    using Sum = std::uint64_t;
    static constexpr bool copies_one = false;
    ImageMaker<Imaging::fused> image_of;
    ImageScale<false> number;
    UNISONO_INLINE Sum first(const T& x) const { return image_of(grid_wide(x)); }
    UNISONO_INLINE Sum more(Sum sum, const T& x) const { return sum + image_of(grid_wide(x)); }
    UNISONO_INLINE T result(Sum sum) const { return grid_narrow<T>(number(sum)); }
};

/// A formula of sources, for at most `Most` of them and of targets.
template <class Formula, class T, std::size_t Most>
struct CombineArrays {
    /// Singly for many arrays: their code is long, and there are as many bytes in flight.
    static constexpr std::size_t pack = Most > 8 ? 1 : elements_of_pack<T>();
    Formula formula;
    std::size_t source_count;
    std::size_t target_count;
    const T* sources[Most];
    T* targets[Most];

    CombineArrays(const Formula& f, std::span<const T* const> from, std::span<T* const> to)
        : formula(f), source_count(from.size()), target_count(to.size()), sources{}, targets{} {
        for (std::size_t s = 0; s < source_count; ++s) sources[s] = from[s];
        for (std::size_t t = 0; t < target_count; ++t) targets[t] = to[t];
    }

    [[nodiscard]] bool packed() const {
        bool aligned = true;
        for (std::size_t s = 0; s < source_count; ++s) aligned = aligned && aligned_to_packs<pack>(sources[s]);
        for (std::size_t t = 0; t < target_count; ++t) aligned = aligned && aligned_to_packs<pack>(targets[t]);
        return aligned;
    }

    UNISONO_INLINE void operator()(std::size_t i) const {
        if (Formula::copies_one && source_count == 1) return store(i, sources[0][i]);
        typename Formula::Sum sum = formula.first(sources[0][i]);
        for (std::size_t s = 1; s < source_count; ++s) sum = formula.more(sum, sources[s][i]);
        store(i, formula.result(sum));
    }

    template <std::size_t K>
    UNISONO_INLINE void run(std::size_t i) const {
        constexpr std::make_index_sequence<Most> all;
        if constexpr (K == 1) one(i, all);
        else if (Formula::copies_one && source_count == 1) write_all(i, read_pack<K>(sources[0] + i), all);
        else {
            Pack<typename Formula::Sum, K> sum{};
            add_blocks(i, sum, std::make_index_sequence<Most / block>());
            Pack<T, K> result;
            for (std::size_t e = 0; e < K; ++e) result.at[e] = formula.result(sum.at[e]);
            write_all(i, result, all);
        }
    }

private:
    static constexpr std::size_t block = Most < 4 ? Most : 4; ///< sources that are read before one is added
    static_assert(Most % block == 0);

    UNISONO_INLINE void store(std::size_t i, const T& value) const {
        for (std::size_t t = 0; t < target_count; ++t) targets[t][i] = value;
    }

    template <std::size_t... A>
    UNISONO_INLINE void one(std::size_t i, std::index_sequence<A...> all) const {
        if (Formula::copies_one && source_count == 1) return store_all(i, sources[0][i], all);
        typename Formula::Sum sum = formula.first(sources[0][i]);
        ((A != 0 && A < source_count ? static_cast<void>(sum = formula.more(sum, sources[A][i])) : void()), ...);
        store_all(i, formula.result(sum), all);
    }
    template <std::size_t... A>
    UNISONO_INLINE void store_all(std::size_t i, const T value, std::index_sequence<A...>) const {
        ((A < target_count ? static_cast<void>(targets[A][i] = value) : void()), ...);
    }

    template <std::size_t K, std::size_t... B>
    UNISONO_INLINE void add_blocks(std::size_t i, Pack<typename Formula::Sum, K>& sum,
                                   std::index_sequence<B...>) const {
        ((B * block < source_count ? add_block<B * block>(i, sum) : void()), ...);
    }
    template <std::size_t First, std::size_t K>
    UNISONO_INLINE void add_block(std::size_t i, Pack<typename Formula::Sum, K>& sum) const {
        Pack<T, K> x[block];
        for (std::size_t s = 0; s < block; ++s)
            if (First + s < source_count) x[s] = read_pack<K>(sources[First + s] + i);
        for (std::size_t s = 0; s < block; ++s) {
            if (First + s >= source_count) continue;
            for (std::size_t e = 0; e < K; ++e)
                sum.at[e] = First + s == 0 ? formula.first(x[s].at[e]) : formula.more(sum.at[e], x[s].at[e]);
        }
    }
    template <std::size_t K, std::size_t... A>
    UNISONO_INLINE void write_all(std::size_t i, const Pack<T, K>& elements, std::index_sequence<A...>) const {
        ((A < target_count ? write_pack(targets[A] + i, elements) : void()), ...);
    }
};

UNISONO_NO_CONTRACTION_END

} // namespace detail
UNISONO_NAMESPACE_END
