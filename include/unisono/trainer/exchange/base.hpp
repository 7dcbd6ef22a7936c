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

/// The result of a weighing policy, checked.
template <class Weighing>
Share checked_share(const Weighing& policy, const MicroBatchFacts& micro) {
    const Share share = policy.share(micro);
    if (!(share.multiplier >= 0) || !(share.divisor >= 0) || !detail::finite_value(share.multiplier) ||
        !detail::finite_value(share.divisor))
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
    /// Sums of gradients may overflow, and must not become parameters then.
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
    /// A grid finds NaN and infinity by itself; a guard that looks for more sees each micro-batch's
    /// gradient.
    static constexpr bool inspects =
        Context::Guard::inspects && !(on_grid && requires { requires Context::Guard::only_finite; });

    template <class Model>
    ExchangeBase(World& world, Model& model, const Context& policies)
        : world_(&world), policies_(policies), place_(world, model), run_(policies_.reducer.start(world)),
          large_from_(std::numeric_limits<T>::max_exponent - 1 - room_for_weights -
                      static_cast<int>(std::bit_width(ranks(world)))) {}
    ~ExchangeBase() = default;

    /// The share of the micro-batch in progress, by the tokens counted so far.
    Share weigh() {
        micro_->tokens = pass_->tokens();
        if (!(micro_->tokens >= 0) || !detail::finite_value(micro_->tokens))
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
    /// Lets the guard look at elements of this rank's gradient, which begin at `flat` in the flat
    /// order. found(index) is called for its first offender.
    template <class Found>
    void inspect(const T* gradient, std::size_t count, std::size_t flat, Found&& found) {
        if (place_.inspect(policies_.guard, gradient, count, flat, large_from_, found)) large_ = true;
    }
    /// A gradient is summed with this weight after the guard has looked at it.
    void note_weight(double weight) {
        if (weight > detail::scaled_by_bits(1.0, room_for_weights)) large_ = true;
    }

    /// The sum over all ranks of elements that are below 2^large_from_, and of which each rank adds
    /// some with weights of 2^room_for_weights in all, is at most half of the largest T.
    static constexpr int room_for_weights = 40;
    static unsigned ranks(const World& world) { return static_cast<unsigned>(world.size()); }

    World* world_;
    Context policies_;
    Place place_;
    ReducerRun run_;
    bool alone_ = false;   ///< the update uses this rank's own gradients, which no other rank sees
    double scaled_by_ = 1; ///< the loss scale of this update
    double divisor_ = 0;   ///< this update's sum of weights over all ranks, once they have agreed to make it
    Offence offence_;
    int large_from_;     ///< elements below 2^this cannot make a sum overflow
    bool large_ = false; ///< a rank has larger ones, or weights, so that the sums must be looked at
    MicroBatchFacts* micro_ = nullptr;
    Pass* pass_ = nullptr; ///< of this rank's micro-batch, while the model works on it
};

} // namespace detail
UNISONO_NAMESPACE_END
