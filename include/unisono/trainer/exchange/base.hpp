#pragma once

/// \file
/// The base of an exchange and of its model's store: the ranks, the policies, and the micro-batch
/// in progress.

#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/model/pass.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/trainer/exchange/offence.hpp"

#include <bit>
#include <cstddef>
#include <limits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The result of a weighing policy, after a check of its values.
template <class Weighing>
Share checked_share(const Weighing& policy, const MicroBatchFacts& micro) {
    const Share share = policy.share(micro);
    if (!(share.multiplier >= 0) || !(share.divisor >= 0) || !detail::is_finite(share.multiplier) ||
        !detail::is_finite(share.divisor))
        refuse_input({"weighing ", Weighing::name, ": a micro-batch of ", micro.samples, " samples and ", micro.tokens,
                      " tokens got multiplier ", share.multiplier, " and divisor ", share.divisor,
                      "; expected finite numbers of at least 0"});
    return share;
}

/// `ContextType` bundles the types World, Element, Place, Reducer, Compression, Sharding, Guard,
/// Clipping, Scaling, Optimizer, Weighing, Summation (session.hpp).
template <class ContextType>
class ExchangeBase {
public:
    using Context = ContextType;
    using World = typename Context::World;
    using T = typename Context::Element;
    using Element = T;
    using Place = typename Context::Place;
    using ReducerRun = decltype(std::declval<const Context&>().reducer.start(std::declval<World&>()));
    static constexpr bool compresses = Context::Compression::compresses;
    /// True if sums of gradients that overflow must not become parameters.
    static constexpr bool guards_sums = Context::Guard::inspects || Context::Summation::reproducible;

    ExchangeBase(const ExchangeBase&) = delete;
    ExchangeBase& operator=(const ExchangeBase&) = delete;

    [[nodiscard]] World& world() const { return *world_; }
    [[nodiscard]] const Place& place() const { return place_; }
    [[nodiscard]] const Context& policies() const { return policies_; }
    [[nodiscard]] ReducerRun& run() { return run_; }
    [[nodiscard]] const Offence& offence() const { return offence_; }

protected:
    static constexpr bool on_grid = Context::Summation::reproducible;
    /// True if the guard looks at each micro-batch's gradient. A grid finds NaN and infinity by
    /// itself, so a guard that looks only for these is not asked.
    static constexpr bool inspects =
        Context::Guard::inspects && !(on_grid && requires { requires Context::Guard::only_finite; });

    template <class Model>
    ExchangeBase(World& world, Model& model, const Context& policies)
        : world_(&world), policies_(policies), place_(world, model), run_(policies_.reducer.start(world)),
          large_from_(std::numeric_limits<T>::max_exponent - 1 - room_for_weights -
                      static_cast<int>(std::bit_width(ranks(world)))) {}
    ~ExchangeBase() = default;

    /// The share of the micro-batch in progress, computed from the tokens counted so far.
    Share weigh() {
        micro_->tokens = pass_->tokens();
        if (!(micro_->tokens >= 0) || !detail::is_finite(micro_->tokens))
            refuse_input({"pass.count_tokens: found ", micro_->tokens,
                          " tokens in a micro-batch; expected a finite number of at least 0"});
        const Share share = checked_share(policies_.weighing, *micro_);
        if (share.multiplier > static_cast<double>(std::numeric_limits<T>::max()))
            refuse_input({"weighing ", Context::Weighing::name, ": a micro-batch got multiplier ",
                          number_text(share.multiplier, std::chars_format::general, 6),
                          "; expected a number that the gradients' type holds"});
        return share;
    }
    void note_offender(std::size_t parameter) { offence_.note({world_->rank(), parameter, false}); }
    /// Lets the guard look at elements of this rank's gradient. The first one has index `flat` in
    /// the flat order. Calls found(index) for the first offender.
    template <class Found>
    void inspect(const T* gradient, std::size_t count, std::size_t flat, Found&& found) {
        if (place_.inspect(policies_.guard, gradient, count, flat, large_from_, found)) large_ = true;
    }
    /// Notes the weight with which a gradient that the guard has seen is summed.
    void note_weight(double weight) {
        if (weight > detail::scaled_by_bits(1.0, room_for_weights)) large_ = true;
    }

    /// Bits reserved for weights and ranks: if all elements are below 2^large_from_, and the
    /// weights of each rank add up to at most 2^room_for_weights, then the sum over all ranks is at
    /// most half of the largest T.
    static constexpr int room_for_weights = 40;
    static unsigned ranks(const World& world) { return static_cast<unsigned>(world.size()); }

    World* world_;
    Context policies_;
    Place place_;
    ReducerRun run_;
    bool alone_ = false;   ///< the update uses only this rank's gradients, and no other rank sees them
    double scaled_by_ = 1; ///< the loss scale of this update
    /// This update's sum of weights over all ranks; known once they have agreed to make the update.
    double divisor_ = 0;
    Offence offence_;
    int large_from_;     ///< sums of elements below 2^large_from_ cannot overflow
    bool large_ = false; ///< some rank has larger elements or weights: check the sums
    MicroBatchFacts* micro_ = nullptr;
    Pass* pass_ = nullptr; ///< the pass of this rank's micro-batch, while the model works on it
};

} // namespace detail
UNISONO_NAMESPACE_END
