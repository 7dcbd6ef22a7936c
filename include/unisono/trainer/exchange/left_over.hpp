#pragma once

/// \file
/// The scale of what a compression leaves over.
///
/// A gradient is a weighted sum, times the loss scale. The optimizer's pass divides it by the sum
/// of the weights of all ranks and by the loss scale. The remainder of one update is sent in the
/// next, which divides by another sum of weights and another loss scale. So the remainder is
/// multiplied by the ratio of the two divisors. The loss scale is known before a bucket travels,
/// the sum of weights is not. Until then the number of this rank's micro-batches serves as an
/// estimate. It is exact if all ranks' windows changed by the same factor. Once all ranks have
/// agreed on the weights, the estimate is corrected (compression/compression.hpp).

#include "unisono/core/config.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

class LeftOverUnit {
public:
    /// Call it before the first bucket of an update travels. `micro_batches`: of this rank. Returns
    /// the factor for what earlier updates have left over.
    double expect(double micro_batches, double loss_scale) {
        now_ = {micro_batches, loss_scale, 0};
        begun_ = true;
        if (last_.divisor == 0) return 1; // nothing is left over
        const bool both = micro_batches > 0 && last_.micro_batches > 0;
        expected_ = both ? micro_batches / last_.micro_batches : 1;
        return expected_ * (loss_scale / last_.loss_scale);
    }
    /// Call it when the weights of all ranks are known. Returns the correction of the factor.
    double settle(double divisor) {
        if (!begun_) return 1;
        begun_ = false;
        const double lacks = last_.divisor == 0 ? 1 : divisor / last_.divisor / expected_;
        last_ = now_;
        last_.divisor = divisor;
        return lacks;
    }
    /// Forgets the remainder.
    void forget() {
        begun_ = false;
        last_ = {};
    }

private:
    struct Unit {
        double micro_batches = 0; ///< number of this rank's micro-batches
        double loss_scale = 1;
        double divisor = 0; ///< the sum of all ranks' weights
    };
    Unit last_; ///< the scale of the remainder
    Unit now_;
    double expected_ = 1; ///< estimated ratio of the divisors
    bool begun_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
