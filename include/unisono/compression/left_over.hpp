#pragma once

/// \file
/// Arithmetic on what an encoding has left over, which error feedback keeps.

#include "unisono/arithmetic/scan.hpp"
#include "unisono/arithmetic/vectorised.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

/// As a float of at most `most`, also where no float holds it: what is beyond is left over.
template <class T>
UNISONO_INLINE float cut_to(float most, T value) {
    const auto rounded = static_cast<float>(value); // may be infinite
    return rounded > most ? most : rounded < -most ? -most : rounded;
}

/// Multiplies what is left over; what would not be finite stays as it is.
template <class T>
struct RescaleLeft {
    T factor;
    UNISONO_INLINE void operator()(T& left) const {
        const T scaled = left * factor;
        left = is_finite(scaled) ? scaled : left;
    }
};

/// `carried`, the part of an earlier update in what was encoded, counts `more` times more: that is
/// left over as well.
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
