#pragma once

/// \file
/// Arithmetic on the rest that an encoding leaves over and error feedback keeps.

#include "unisono/arithmetic/scan.hpp"
#include "unisono/arithmetic/vectorised.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

/// Converts to a float of at most `most`, also if no float holds the value: the excess is left
/// over.
template <class T>
UNISONO_INLINE float cut_to(float most, T value) {
    const auto rounded = static_cast<float>(value); // may be infinite
    return rounded > most ? most : rounded < -most ? -most : rounded;
}

/// Multiplies the rest; an element that would not be finite is unchanged.
template <class T>
struct RescaleLeft {
    T factor;
    UNISONO_INLINE void operator()(T& left) const {
        const T scaled = left * factor;
        left = is_finite(scaled) ? scaled : left;
    }
};

/// Corrects the factor of `carried`, the part of the encoded values that came from earlier updates:
/// adds `more` times `carried` to the rest.
template <class T>
struct CorrectLeft {
    T more;
    UNISONO_INLINE void operator()(T& left, const T& carried) const {
        const T corrected = left + more * carried;
        left = is_finite(corrected) ? corrected : left;
    }
};

UNISONO_NO_CONTRACTION_END

} // namespace detail
UNISONO_NAMESPACE_END
