#pragma once

/// \file
/// The unit of what a compression leaves over.
///
/// A gradient is a weighted sum, times the loss scale, that the optimizer's pass divides by the
/// weights of all ranks and by the scale. What is left over of it in one update is sent in another,
/// which divides by other weights and another scale. So it is multiplied by their ratio. The loss
/// scale is known before a bucket travels, the weights of all ranks are not: until then this rank's
/// micro-batches stand for them, which are right where the windows of all ranks have changed alike.
/// The rest is corrected when all ranks have agreed (compression/compression.hpp).

#include "unisono/core/config.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

class LeftOverUnit {
public:
    /// The buckets of an update begin to travel: `micro_batches` of this rank. Returns by how much
    /// to multiply what earlier updates have left over.
    double expect(double micro_batches, double loss_scale) {
        now_ = {micro_batches, loss_scale, 0};
        begun_ = true;
        if (last_.divisor == 0) return 1; // nothing is left over
        const bool both = micro_batches > 0 && last_.micro_batches > 0;
        expected_ = both ? micro_batches / last_.micro_batches : 1;
        return expected_ * (loss_scale / last_.loss_scale);
    }
    /// The weights of all ranks are known. Returns what the factor still lacks.
    double settle(double divisor) {
        if (!begun_) return 1;
        begun_ = false;
        const double lacks = last_.divisor == 0 ? 1 : divisor / last_.divisor / expected_;
        last_ = now_;
        last_.divisor = divisor;
        return lacks;
    }
    /// Nothing is left over any more.
    void forget() {
        begun_ = false;
        last_ = {};
    }

private:
    struct Unit {
        double micro_batches = 0; ///< of this rank
        double loss_scale = 1;
        double divisor = 0; ///< of all ranks
    };
    Unit last_; ///< of what is left over
    Unit now_;
    double expected_ = 1; ///< ratio of the divisors
    bool begun_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
