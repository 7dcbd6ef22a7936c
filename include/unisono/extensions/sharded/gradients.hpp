#pragma once

/// \file
/// The gradients of a model in units during an update. As soon as a unit's gradient is complete, it
/// is summed over the ranks, and this rank's slice of the sum is added to that of earlier
/// micro-batches.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/extensions/sharded/memory.hpp"
#include "unisono/trainer/step/carrier.hpp"
#include "unisono/trainer/step/sums.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The wire format of a cast (extensions/compression/cast.hpp).
template <class T, class Place, class Compression>
class CastSums : public FloatSums<T, Place> {
public:
    using Sum = typename Compression::Wire;
    static constexpr bool in_place = false;

    /// \throws error bad_input: the policy keeps what the encoding leaves over
    template <class Policy>
    CastSums(const Place& place, const Layout& layout, const Policy& policy, const Compression& compression, int ranks)
        : FloatSums<T, Place>(place, layout, policy), ranks_(ranks) {
        if constexpr (requires { compression.error_feedback; }) {
            if (compression.error_feedback && ranks > 1)
                refuse_input({Compression::name,
                              ".error_feedback is true, where gradients are sharded; expected false: what "
                              "rounding leaves over would be a whole gradient on each rank"});
        }
    }
    void encode(std::size_t, std::span<T> from, Sum* to, double weight) const {
        const auto& on = this->place_->arithmetic();
        if (weight != 1) on.scale(from, weight);
        Compression::encode(std::span<Sum>(to, from.size()), std::span<const T>(from), ranks_, on);
    }
    void add(std::span<T> sum, std::span<const Sum> one) const { this->place_->arithmetic().accumulate(sum, one, 1.0); }
    void set(std::span<T> sum, std::span<const Sum> one) const {
        this->place_->arithmetic().accumulate_first(sum, one, 1.0);
    }

private:
    int ranks_;
};

/// Without the type that travels.
template <class T>
class UnitGradients {
public:
    UnitGradients() = default;
    UnitGradients(const UnitGradients&) = delete;
    UnitGradients& operator=(const UnitGradients&) = delete;
    virtual ~UnitGradients() = default;

    /// Starts an update: no gradient is there yet.
    virtual void begin() = 0;
    /// Returns zeroed memory for a micro-batch's gradient of a unit.
    virtual std::span<T> open(std::size_t u) = 0;
    /// Returns the same memory again, as the model left it.
    virtual std::span<T> opened(std::size_t u) = 0;
    /// Starts to sum a complete gradient over the ranks. `mine`: this rank has a micro-batch;
    /// otherwise the opened memory is zero.
    virtual void start(std::size_t u, Carrier& carrier, double multiplier, bool mine) = 0;
    /// Waits for all sums.
    virtual void finish() = 0;
    /// The sum of `count` elements of this rank's slice of a unit, from the `at`-th on, as numbers:
    /// in `to`, or in place.
    virtual const T* numbers(std::size_t u, std::size_t at, T* to, std::size_t count) = 0;

    [[nodiscard]] virtual SumsOfGradients& sums() = 0;
    [[nodiscard]] virtual std::size_t bytes() const = 0;
    [[nodiscard]] virtual std::size_t room_bytes() const = 0;
};

template <class T, class Place, class Sums>
class UnitGradientsOf final : public UnitGradients<T> {
public:
    using Sum = typename Sums::Sum;
    using Kept = typename Sums::Kept;

    /// `sums`: the constructor arguments of the sums, after the layout.
    template <class... Made>
    UnitGradientsOf(GroupCore& world, const Place& place, const UnitSlices& slices, const Made&... sums)
        : world_(&world), place_(&place), slices_(&slices), sums_(place, slices.layout(), sums...),
          own_(place.template allocate_own<Kept>(slices.own_count())) {
        has_.resize(slices.units());
        if constexpr (!Sums::in_place) gradient_ = place.template allocate_own<T>(slices.largest());
        for (Travel& one : travels_) {
            one.values = place.template allocate<Sum>(slices.largest());
            one.operations.reserve(static_cast<std::size_t>(world.size()));
        }
    }

    void begin() override {
        std::fill(has_.begin(), has_.end(), false);
        sums_.begin();
        for (Travel& one : travels_) one.unit = none;
    }

    std::span<T> open(std::size_t u) override {
        const std::span<T> values = opened(u);
        place_->clear(values.data(), values.size());
        return values;
    }
    std::span<T> opened(std::size_t u) override {
        settle(travels_[next_]);
        T* values = nullptr;
        if constexpr (Sums::in_place) values = travels_[next_].values.data();
        else values = gradient_.data();
        return {values, slices_->unit(u).count};
    }

    void start(std::size_t u, Carrier& carrier, double multiplier, bool mine) override {
        const std::span<T> values = opened(u);
        if constexpr (std::same_as<Kept, T> && !Sums::in_place) {
            if (world_->size() == 1) return keep_alone(u, values, multiplier);
        }
        Travel& travel = travels_[next_];
        next_ = 1 - next_;
        travel.unit = u;
        const std::span<Sum> sums(travel.values.data(), values.size());
        if (mine) sums_.encode(u, values, sums.data(), multiplier);
        else if constexpr (!Sums::in_place) place_->clear(sums.data(), sums.size());
        if (world_->size() == 1) return;
        place_->order();
        BucketSums::start_unprepared(carrier, slices_->owned_slices(), u, slices_->unit(u).first,
                                     buffer_of(place_->view(sums.data(), sums.size())), travel.operations);
    }

    void finish() override {
        settle(travels_[next_]); // the older one
        settle(travels_[1 - next_]);
    }

    const T* numbers(std::size_t u, std::size_t at, T* to, std::size_t count) override {
        return sums_.numbers(u, own_.data() + slices_->own_at(u) + at, to, count);
    }

    [[nodiscard]] SumsOfGradients& sums() override { return sums_; }
    [[nodiscard]] std::size_t bytes() const override { return own_.size() * sizeof(Kept); }
    [[nodiscard]] std::size_t room_bytes() const override {
        return (travels_[0].values.size() + travels_[1].values.size()) * sizeof(Sum) + gradient_.size() * sizeof(T);
    }

private:
    static constexpr std::size_t none = Layout::none;
    struct Travel {
        typename Place::template Array<Sum> values = {};
        std::size_t unit = none; ///< the unit whose sum is in progress
        std::vector<Operation> operations = {};
    };

    /// Keeps a gradient that does not travel, so it is not converted to a narrower type.
    void keep_alone(std::size_t u, std::span<T> values, double multiplier) {
        const std::span<T> own(own_.data() + slices_->own_at(u), values.size());
        if (has_[u]) place_->arithmetic().accumulate(own, std::span<const T>(values), multiplier);
        else place_->arithmetic().accumulate_first(own, std::span<const T>(values), multiplier);
        has_[u] = true;
    }
    /// Waits for a unit's sum and keeps this rank's slice of it.
    void settle(Travel& travel) {
        if (travel.unit == none) return;
        const std::size_t u = travel.unit;
        travel.unit = none;
        for (Operation& operation : travel.operations) operation.wait();
        travel.operations.clear();
        const std::span<const Sum> arrived(travel.values.data() + slices_->own_in_unit(u), slices_->own(u).count);
        const std::span<Kept> own(own_.data() + slices_->own_at(u), arrived.size());
        const bool adds = has_[u];
        has_[u] = true;
        if (own.empty()) return;
        if (adds) sums_.add(own, arrived);
        else sums_.set(own, arrived);
    }

    const GroupCore* world_;
    const Place* place_;
    const UnitSlices* slices_;
    Sums sums_;
    typename Place::template OwnArray<Kept> own_;   ///< this rank's slices of the sums of all units
    List<bool> has_;                                ///< this update has a sum of the unit
    typename Place::template OwnArray<T> gradient_; ///< where the model writes, if not to the memory that travels
    std::array<Travel, 2> travels_;                 ///< used in turn: one travels while the model fills the other
    std::size_t next_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
