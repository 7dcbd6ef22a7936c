#pragma once

/// \file
/// The sums of one update beside gradients: losses, weights and the findings of guards, first of
/// this rank, then of all ranks. All ranks reach the same verdict. Also the errors that say why an
/// update did not happen.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/failure.hpp"
#include "unisono/trainer/parts.hpp"
#include "unisono/trainer/report.hpp"
#include "unisono/trainer/step/update_policies.hpp"
#include "unisono/trainer/summation.hpp"
#include "unisono/update/update.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The first offender on the lowest rank that has one, or the first offender among the sums over
/// all ranks. The same on all ranks.
struct Offence {
    int rank = -1;
    std::size_t parameter = 0;
    bool loss = false;      ///< the loss, not a parameter
    bool elsewhere = false; ///< in another part of the model, on ranks of another group
    bool sum = false;       ///< each rank's gradient is finite, but their sum is not: no rank is to blame

    [[nodiscard]] bool any() const { return rank >= 0 || sum; }

    /// If a rank has several offences, the first parameter counts; the loss counts last.
    void note(const Offence& found) {
        if (rank < 0 || (!found.loss && (loss || found.parameter < parameter))) *this = found;
    }
};

/// `facts` must outlive it.
class Tally {
public:
    /// `totals`: made by `new`.
    Tally(GroupCore& world, const UpdateFacts& facts, const Parts& parts, LossTotals* totals)
        : world_(&world), facts_(&facts), parts_(parts), totals_(totals) {}
    Tally(const Tally&) = delete;
    Tally& operator=(const Tally&) = delete;

    /// Starts an update.
    void begin();

    // --- of this rank ---

    /// Adds a micro-batch. `counted`: the model has counted its tokens.
    void add(const MicroBatchFacts& micro, const Share& share, double loss, bool counted);
    /// Notes that the guard has found something in the gradient of this parameter.
    void note_offender(std::size_t parameter) { offence_.note({world_->rank(), parameter, false}); }
    /// Notes that gradients or weights are so large that sums may overflow.
    void note_large() { large_ = true; }

    // --- of all ranks ---

    /// Combines all of them. Commits, unless a guard has found something on some rank (skip), or no
    /// rank had data (empty). `alone`: only this rank's gradients count.
    Verdict agree(bool alone);
    /// Returns false, on all ranks, if some rank has found a sum of gradients that is not finite:
    /// the first parameter with one, or no_offender. `differ`: ranks have looked at other sums.
    bool agree_on_sums(std::size_t first, bool differ);
    /// Notes that the sum of this parameter's gradients is not finite.
    void note_sum(std::size_t parameter) {
        offence_ = {.rank = -1, .parameter = parameter, .loss = false, .elsewhere = false, .sum = true};
    }

    [[nodiscard]] const UpdateSums& sums() const { return sums_; }
    [[nodiscard]] std::int64_t micro_batches() const { return static_cast<std::int64_t>(sums_.micro_batches); }
    [[nodiscard]] const Offence& offence() const { return offence_; }
    /// True if the guard has found something in a gradient, rather than in a loss.
    [[nodiscard]] bool in_gradients() const { return in_gradients_; }
    [[nodiscard]] bool large() const { return large_; }
    [[nodiscard]] const Parts& parts() const { return parts_; }
    void tell(UpdateReport& report) const;

private:
    /// All ranks together have no sample, or no token, of what their weights count.
    [[nodiscard]] bool weighs_nothing() const {
        return (facts_->needs_samples && sums_.samples == 0) || (facts_->needs_tokens && sums_.tokens == 0 && !untold_);
    }

    GroupCore* world_;
    const UpdateFacts* facts_;
    Parts parts_;
    Owned<LossTotals> totals_;
    UpdateSums sums_;
    Offence offence_;
    bool in_gradients_ = false;
    bool large_ = false;  ///< some rank has gradients or weights so large that sums may overflow
    bool untold_ = false; ///< a micro-batch of this rank, weighed by tokens, did not count them
};

// The reason why an update did not happen: for an error of all ranks, or of a rank that trains on
// its own.

/// `rank`: the offending rank, by the world's number. `label`: the parameter's label, if the
/// parameter belongs to this group.
Fault not_finite(const Offence& offence, int rank, const std::string& label, std::uint64_t update,
                 std::string_view operation);

Fault no_norm(double norm, std::string_view clipping, std::uint64_t update, std::string_view operation);

Fault misfit(const std::string& label, std::uint64_t update, std::string_view operation);

/// Gradients cannot be divided by `divisor`, the sum of the weights of all micro-batches.
[[noreturn]] void refuse_divisor(std::string_view weighing, double micro_batches, double divisor, bool by_tokens);

/// `agreed`: all ranks throw the same error. A rank that updates on its own must tell the others.
[[noreturn]] void refuse_update(Fault why, bool agreed);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Replaces each rank's offence (rank below 0: none) by that of the lowest rank that has one.
/// Collective.
inline void agree_on_offence(GroupCore& world, Offence& offence) {
    constexpr std::uint64_t loss_code = (std::uint64_t{1} << 32) - 1;
    constexpr std::uint64_t nothing = std::numeric_limits<std::uint64_t>::max();
    std::array<std::uint64_t, 1> mine = {nothing};
    if (offence.rank >= 0)
        mine[0] = offence.loss ? loss_code : std::min<std::uint64_t>(offence.parameter, loss_code - 1);
    List<std::uint64_t> all(static_cast<std::size_t>(world.size()));
    gather_words(world, mine, all);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank] == nothing) continue;
        offence = {static_cast<int>(rank), all[rank], all[rank] == loss_code, false, false};
        return;
    }
}

UNISONO_DEFINITION void Tally::begin() {
    sums_ = {};
    totals_->begin();
    offence_ = {};
    in_gradients_ = false;
    large_ = false;
    untold_ = false;
}

UNISONO_DEFINITION void Tally::add(const MicroBatchFacts& micro, const Share& share, double loss, bool counted) {
    if (facts_->needs_tokens && !counted) untold_ = true;
    const bool counts = share.multiplier != 0;
    const double counted_loss = counts ? loss : 0; // a loss of weight 0 may be 0 / 0
    sums_.divisor += share.divisor;
    sums_.loss += share.multiplier * counted_loss;
    totals_->add(share, counted_loss);
    sums_.micro_batches += 1;
    sums_.samples += micro.samples;
    if (micro.tokens != 0)
        // Rounded, so that the sum does not depend on the order.
        sums_.tokens += detail::rounded_to_even(micro.tokens * 0x1p20) * 0x1p-20;
    if (facts_->inspects && counts && !detail::is_finite(loss)) offence_.note({world_->rank(), 0, true});
}

UNISONO_DEFINITION Verdict Tally::agree(bool alone) {
    sums_.offenders = offence_.rank >= 0 ? 1 : 0;
    sums_.large = large_ ? 1 : 0;
    if (!alone || world_->size() == 1) totals_->agree(*world_, sums_, parts_.order());
    if (sums_.offenders > 0 && !alone) agree_on_offence(*world_, offence_);
    const bool in_gradient = sums_.offenders > 0 && !offence_.loss;
    std::array<double, 3> found = {sums_.offenders, in_gradient ? 1.0 : 0.0, sums_.large};
    parts_.sum(found);
    const auto [offenders, in_gradients, large] = found;
    in_gradients_ = in_gradients > 0;
    large_ = large_ || large > 0;
    if (offenders > 0) {
        if (offence_.rank < 0) offence_ = {.rank = 0, .parameter = 0, .loss = true, .elsewhere = true};
        return Verdict::skip;
    }
    if (sums_.micro_batches == 0 || (sums_.divisor == 0 && weighs_nothing())) return Verdict::empty;
    return Verdict::commit;
}

[[gnu::cold]] UNISONO_DEFINITION bool Tally::agree_on_sums(std::size_t first, bool differ) {
    if (differ) {
        const std::array<std::uint64_t, 1> mine = {first};
        List<std::uint64_t> all(static_cast<std::size_t>(world_->size()));
        gather_words(*world_, mine, all);
        for (const std::uint64_t one : all) first = std::min<std::size_t>(first, one);
    }
    const bool here = first != no_offender;
    double offenders = here ? 1 : 0;
    parts_.sum({&offenders, 1});
    if (offenders == 0) return true;
    note_sum(here ? first : 0);
    offence_.elsewhere = !here;
    return false;
}

UNISONO_DEFINITION void Tally::tell(UpdateReport& report) const {
    report.loss = sums_.divisor > 0 ? sums_.loss / sums_.divisor : 0;
    if (!report.committed && offence_.any() && !offence_.elsewhere) {
        report.offender_rank = offence_.rank;
        if (!offence_.loss) report.offender_parameter = static_cast<std::int64_t>(offence_.parameter);
    }
    report.micro_batches = static_cast<std::int64_t>(sums_.micro_batches);
    report.samples = static_cast<std::int64_t>(sums_.samples);
    report.tokens = whole_tokens(sums_.tokens);
}

[[gnu::cold]] UNISONO_DEFINITION Fault refused_update(ErrorCode code, int rank, std::string_view operation,
                                                      const std::string& why) {
    return {.code = code,
            .rank = rank,
            .peer = -1,
            .operation = std::string(operation),
            .sequence = 0,
            .message = concat({why, "; the parameters are as they were before it, on all ranks"})};
}

[[gnu::cold]] UNISONO_DEFINITION Fault not_finite(const Offence& offence, int rank, const std::string& label,
                                                  std::uint64_t update, std::string_view operation) {
    if (offence.elsewhere)
        return refused_update(ErrorCode::not_finite, -1, operation,
                              concat({"a gradient of another part of the model, on ranks of another group, is NaN or "
                                      "infinite, in update ",
                                      update}));
    if (offence.sum)
        return refused_update(ErrorCode::not_finite, -1, operation,
                              concat({"the sum of the gradients of ", label,
                                      " over all micro-batches is NaN or infinite, in update ", update}));
    return refused_update(ErrorCode::not_finite, rank, operation,
                          concat({(offence.loss ? std::string("the loss") : concat({"the gradient of ", label})),
                                  " is NaN or infinite on rank ", rank, ", in update ", update}));
}

[[gnu::cold]] UNISONO_DEFINITION Fault no_norm(double norm, std::string_view clipping, std::uint64_t update,
                                               std::string_view operation) {
    return refused_update(ErrorCode::not_finite, -1, operation,
                          concat({"the norm of the gradient is ", norm, ", in update ", update, ", so that ", clipping,
                                  " cannot scale it"}));
}

[[gnu::cold]] UNISONO_DEFINITION Fault misfit(const std::string& label, std::uint64_t update,
                                              std::string_view operation) {
    Fault fault = refused_update(
        ErrorCode::refused, -1, operation,
        concat({"the gradient of ", label, " does not fit the grid on which it is summed, in update ", update}));
    fault.message += ", and the grid is wider now";
    return fault;
}

[[noreturn]] UNISONO_DEFINITION void refuse_divisor(std::string_view weighing, double micro_batches, double divisor,
                                                    bool by_tokens) {
    refuse_input({"weighing ", weighing, ": the weights of ", static_cast<std::uint64_t>(micro_batches),
                  " micro-batches add up to ", number_text(divisor, std::chars_format::general, 6),
                  "; expected more than 0, so that gradients can be divided by it",
                  (by_tokens ? " (does the model call pass.count_tokens?)" : "")});
}

[[noreturn]] UNISONO_DEFINITION void refuse_update(Fault why, bool agreed) {
    if (agreed) throw agreed_error(std::move(why));
    throw error(std::move(why));
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
