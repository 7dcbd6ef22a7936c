#pragma once

/// \file
/// The operations with which collectives reduce: sum, product, min, max, weighted mean and a user's
/// own.

#include "unisono/arithmetic/arithmetic.hpp"
#include "unisono/arithmetic/kernels.hpp"
#include "unisono/arithmetic/reduction.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/text.hpp"

#include <limits>
#include <type_traits>
#include <typeinfo>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// The type in which integers are added and multiplied: unsigned, so that they wrap around without
/// undefined behaviour.
template <class T>
using Wrapping = std::make_unsigned_t<std::common_type_t<T, int>>;

/// Applies an operation to single bfloat16 and float16 elements, through float.
template <class Op, class T>
UNISONO_INLINE constexpr T through_float(const Op& op, T a, T b) {
    return canonical(static_cast<T>(op(static_cast<float>(a), static_cast<float>(b))));
}

template <class T>
inline constexpr bool is_half = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

template <class T>
UNISONO_INLINE constexpr T join_bits(T a, T b, bool either) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const Bits x = std::bit_cast<Bits>(a);
    const Bits y = std::bit_cast<Bits>(b);
    return std::bit_cast<T>(either ? x | y : x & y);
}

/// The lesser of the two. Equal floats have equal bits, except zeros: -0 is below +0. Unordered
/// operands give NaN.
template <class T>
UNISONO_INLINE constexpr T lesser(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        const T tie = a == b ? join_bits(a, b, true) : std::numeric_limits<T>::quiet_NaN();
        return a < b ? a : b < a ? b : tie;
    } else {
        return b < a ? b : a;
    }
}

template <class T>
UNISONO_INLINE constexpr T greater(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        const T tie = a == b ? join_bits(a, b, false) : std::numeric_limits<T>::quiet_NaN();
        return a > b ? a : b > a ? b : tie;
    } else {
        return a < b ? b : a;
    }
}

} // namespace detail

UNISONO_NO_CONTRACTION_BEGIN

/// a + b. Integers wrap around.
struct Sum {
    using built_in = Sum; ///< identifies Sum itself, not a derived type
    static constexpr ReductionKind kind = ReductionKind::sum;

    template <arithmetic_element T>
    UNISONO_INLINE constexpr T operator()(T a, T b) const {
        if constexpr (detail::is_half<T>) return detail::through_float(*this, a, b);
        else if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<detail::Wrapping<T>>(a) + static_cast<detail::Wrapping<T>>(b));
        else return a + b;
    }
    friend bool operator==(const Sum&, const Sum&) = default;
};

/// a * b. Integers wrap around.
struct Product {
    using built_in = Product; ///< identifies Product itself, not a derived type
    static constexpr ReductionKind kind = ReductionKind::product;

    template <arithmetic_element T>
    UNISONO_INLINE constexpr T operator()(T a, T b) const {
        if constexpr (detail::is_half<T>) return detail::through_float(*this, a, b);
        else if constexpr (std::is_integral_v<T>)
            return static_cast<T>(static_cast<detail::Wrapping<T>>(a) * static_cast<detail::Wrapping<T>>(b));
        else return a * b;
    }
    friend bool operator==(const Product&, const Product&) = default;
};

/// The least value. A NaN in any operand gives NaN, and -0 is less than +0, so that the order of
/// ranks does not matter.
struct Min {
    using built_in = Min; ///< identifies Min itself, not a derived type
    static constexpr ReductionKind kind = ReductionKind::min;

    template <arithmetic_element T>
    UNISONO_INLINE constexpr T operator()(T a, T b) const {
        if constexpr (detail::is_half<T>) return detail::through_float(*this, a, b);
        else return detail::lesser(a, b);
    }
    friend bool operator==(const Min&, const Min&) = default;
};

/// The greatest value. A NaN in any operand gives NaN, and +0 is greater than -0.
struct Max {
    using built_in = Max; ///< identifies Max itself, not a derived type
    static constexpr ReductionKind kind = ReductionKind::max;

    template <arithmetic_element T>
    UNISONO_INLINE constexpr T operator()(T a, T b) const {
        if constexpr (detail::is_half<T>) return detail::through_float(*this, a, b);
        else return detail::greater(a, b);
    }
    friend bool operator==(const Max&, const Max&) = default;
};

UNISONO_NO_CONTRACTION_END

namespace detail {

/// `Op` on a few numbers that ranks exchange: the same bits, with a kernel that is cheap to
/// compile.
template <class Op>
struct Few : Op {
    using built_in = Few;
    static constexpr bool few = true;
};

} // namespace detail

/// sum(weight * x) / sum(weight) over the ranks. The collective multiplies each rank's contribution
/// by its own weight (`scale`), reduces products and weights with `Sum`, and divides (`divide`).
/// Floating types only. A rank without data has weight 0: its elements, even NaN, count as zeros.
/// Any other weight is from 2^-64 to 2^64 (for double from 2^-512 to 2^512, for float16 from 2^-14
/// to 2^14), so that neither weights nor their sum leave the range of floats: else bad_input.
/// Products and their sum are elements, and may overflow as a `Sum` may: to prevent that, divide
/// all weights by their sum first.
struct WeightedMean {
    static constexpr ReductionKind kind = ReductionKind::weighted_mean;
    double weight = 1.0;

    /// \throws error bad_input: not a weight for elements of this type
    void check(ElementType type) const;
    friend bool operator==(const WeightedMean&, const WeightedMean&) = default;
};

namespace detail {

/// A hash of the type's name, which is the same in all programs of one ABI, except for lambdas and
/// local types. 0 without run-time type information.
template <class Type>
std::uint32_t hash_of_type() {
#if defined(__cpp_rtti)
    static const std::uint32_t hash = fnv1a(fnv_basis_32, typeid(Type).name());
    return hash;
#else
    return 0;
#endif
}

} // namespace detail

namespace detail {

template <class Op, element T>
consteval CombineKernel combine_of() {
    if constexpr (requires { Op::few; }) return &combine_few<Op, T>;
    else return &combine_kernel<Op, T>;
}

/// The reduction of an operation of the library's, which has no state.
template <built_in_operation Op, element T>
inline constexpr Reduction reduction_of{.kind = Op::kind, .type = element_type_of<T>, .combine = combine_of<Op, T>()};

} // namespace detail

/// The untyped reduction that the executor runs. It refers to a user's operation and does not copy
/// it, so the operation must outlive the collective. (A group keeps a copy: the operation has at
/// most 64 bytes and is trivially copyable.)
template <class Op, element T>
    requires reduction_operation<Op, T>
Reduction make_reduction(const Op& op) {
    if constexpr (std::is_same_v<Op, WeightedMean>) {
        op.check(element_type_of<T>);
        return {.kind = ReductionKind::weighted_mean,
                .type = element_type_of<T>,
                .combine = &detail::combine_kernel<Sum, T>};
    } else if constexpr (detail::built_in_operation<Op>) {
        return detail::reduction_of<Op, T>;
    } else {
        static_assert(alignof(Op) <= Reduction::state_alignment,
                      "found: an operation that is aligned to more than 64 bytes; required: at most 64, since the "
                      "collective keeps a copy");
        return {.kind = ReductionKind::user,
                .type = element_type_of<T>,
                .state_bytes = static_cast<std::uint16_t>(sizeof(Op)),
                .user_operation = detail::hash_of_type<Op>(),
                .combine = &detail::combine_kernel<Op, T>,
                .state = &op};
    }
}

template <class Op, element T>
    requires(reduction_operation<Op, T> && !detail::built_in_operation<Op> && !std::same_as<Op, WeightedMean>)
Reduction make_reduction(const Op&& op) = delete; // the operation would be gone before the collective runs

UNISONO_CERTIFY(reduction_operation<Sum, float>);
UNISONO_CERTIFY(reduction_operation<Product, bfloat16>);
UNISONO_CERTIFY(reduction_operation<Min, std::int64_t>);
UNISONO_CERTIFY(reduction_operation<Max, unsigned char>);
UNISONO_CERTIFY(reduction_operation<WeightedMean, float>);
UNISONO_CERTIFY(!reduction_operation<WeightedMean, std::int32_t>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION void WeightedMean::check(ElementType type) const {
    const int bits = type == ElementType::float64 ? 512 : type == ElementType::float16 ? 14 : 64;
    const double most = bits == 512 ? 0x1p512 : bits == 14 ? 0x1p14 : 0x1p64;
    if (weight == 0.0 || (weight >= 1 / most && weight <= most)) return;
    refuse_input({"WeightedMean::weight is ", detail::number_text(weight, std::chars_format::general, 6),
                  "; expected 0, or from 2^-", bits, " to 2^", bits, " for elements of ", name_of(type)});
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
