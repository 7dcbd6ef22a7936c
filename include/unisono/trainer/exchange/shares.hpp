#pragma once

/// \file
/// What a weighing policy says, checked.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/trainer/summation.hpp"

#include <cmath>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class Weighing>
Share checked_share(const Weighing& policy, const MicroBatchFacts& micro) {
    const Share share = policy.share(micro);
    if (!(share.multiplier >= 0) || !(share.divisor >= 0) || !std::isfinite(share.multiplier) ||
        !std::isfinite(share.divisor))
        refuse_input({"weighing ", Weighing::name, ": a micro-batch of ", micro.samples, " samples and ", micro.tokens,
                      " tokens got multiplier ", share.multiplier, " and divisor ", share.divisor,
                      "; expected finite numbers of at least 0"});
    return share;
}

template <class Weighing>
void check_divisor(const UpdateSums& sums) {
    if (sums.divisor > 0) return;
    refuse_input({"weighing ", Weighing::name, ": the weights of ", static_cast<std::uint64_t>(sums.micro_batches),
                  " micro-batches add up to ", sums.divisor, "; expected more than 0",
                  (Weighing::needs_tokens ? " (does the model call pass.count_tokens?)" : "")});
}

} // namespace detail
UNISONO_NAMESPACE_END
