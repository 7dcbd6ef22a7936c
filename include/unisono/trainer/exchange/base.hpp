#pragma once

/// \file
/// The base of an exchange and of its model's store: the ranks, the policies, and the micro-batch
/// in progress.

#include "unisono/compression/compression.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/pass.hpp"
#include "unisono/trainer/exchange/carrier.hpp"
#include "unisono/trainer/exchange/offence.hpp"
#include "unisono/trainer/exchange/update_policies.hpp"
#include "unisono/trainer/policies.hpp"

#include <bit>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The types of an exchange. Its other policies, the reducer and the group's transport are not in
/// its type: see update_policies.hpp, carrier.hpp and collective/of_core.hpp.
template <class ElementType, class PlaceType, class SummationType, class WireType>
struct ExchangeContext {
    using Element = ElementType;
    using Place = PlaceType;         ///< trainer/place.hpp
    using Summation = SummationType; ///< trainer/summation.hpp
    using Wire = WireType;           ///< the compression's run
};

/// `ContextType`: an ExchangeContext.
template <class ContextType>
class ExchangeBase {
public:
    using Context = ContextType;
    using T = typename Context::Element;
    using Element = T;
    using Place = typename Context::Place;
    using Sums = typename Context::Summation::template Sums<T, Place>;
    static constexpr bool compresses = !std::same_as<typename Context::Wire, NoCompression::Run>;

    ExchangeBase(const ExchangeBase&) = delete;
    ExchangeBase& operator=(const ExchangeBase&) = delete;

    [[nodiscard]] const Place& place() const { return place_; }
    [[nodiscard]] const UpdatePolicies<T, Place>& policies() const { return *policies_; }
    /// True if sums of gradients that overflow must not become parameters.
    [[nodiscard]] bool guards_sums() const { return facts_.inspects || on_grid; }
    [[nodiscard]] Carrier& carrier() { return *carrier_; }
    [[nodiscard]] const Offence& offence() const { return offence_; }

protected:
    /// Slices may have owners.
    template <class Policies, class Sharding>
    static constexpr bool may_have_owners = gives_owners<typename Policies::Reducer> || may_give_owners<Sharding>;
    static constexpr bool on_grid = Context::Summation::reproducible;
    /// A device's gradients travel through the host.
    static constexpr bool wire_is_on_host = requires { requires Context::Wire::is_on_host; };
    template <class Policies, class Sharding>
    using Carried = decltype(carried_types<may_have_owners<Policies, Sharding>, Place::on_device, !wire_is_on_host, T,
                                           typename Sums::Sum, typename Policies::Compression>());

    /// `policies`: the trainer's, which must outlive this. `sharding`: who owns the parameters.
    template <class World, class Model, class Policies, class Sharding>
    ExchangeBase(World& world, Model& model, const Policies& policies, const Sharding&)
        : world_(&world), policies_(std::make_unique<UpdatePoliciesOf<T, Place, Policies>>(policies)),
          facts_(policies_->facts), inspects_(facts_.inspects && !(on_grid && facts_.only_finite)),
          place_(world, model), carrier_(make_carrier<Carried<Policies, Sharding>>(world, policies.reducer)),
          large_from_(std::numeric_limits<T>::max_exponent - 1 - room_for_weights -
                      static_cast<int>(std::bit_width(ranks(world)))) {
        keep_native<Collective::all_reduce, Collective::broadcast>(world);
    }
    ~ExchangeBase() = default;

    /// The share of the micro-batch in progress, computed from the tokens counted so far.
    Share weigh() {
        micro_->tokens = pass_->tokens();
        return policies_->checked_share(*micro_, static_cast<double>(std::numeric_limits<T>::max()));
    }
    void note_offender(std::size_t parameter) { offence_.note({world_->rank(), parameter, false}); }
    /// Lets the guard look at elements of this rank's gradient. The first one has index `flat` in
    /// the flat order. Calls found(index) for the first offender.
    template <class Found>
    void inspect(const T* gradient, std::size_t count, std::size_t flat, Found&& found) {
        const Findings findings = policies_->inspect(place_, gradient, count, flat, large_from_);
        if (findings.offender != no_offender) found(findings.offender);
        if (findings.large) large_ = true;
    }
    /// Notes the weight with which a gradient that the guard has seen is summed.
    void note_weight(double weight) {
        if (weight > detail::scaled_by_bits(1.0, room_for_weights)) large_ = true;
    }

    /// Bits reserved for weights and ranks: if all elements are below 2^large_from_, and the
    /// weights of each rank add up to at most 2^room_for_weights, then the sum over all ranks is at
    /// most half of the largest T.
    static constexpr int room_for_weights = 40;
    static unsigned ranks(const GroupCore& world) { return static_cast<unsigned>(world.size()); }

    GroupCore* world_;
    std::unique_ptr<UpdatePolicies<T, Place>> policies_;
    const UpdateFacts& facts_; ///< of `policies_`
    /// The guard looks at each micro-batch's gradient. A grid finds NaN and infinity by itself, so
    /// a guard that looks only for these is not asked.
    bool inspects_;
    Place place_;
    std::unique_ptr<Carrier> carrier_;
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
