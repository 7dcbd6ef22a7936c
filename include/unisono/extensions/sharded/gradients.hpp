#pragma once

/// \file
/// The gradients of a model in units during an update. As soon as a unit's gradient is complete, it
/// is summed over the ranks, and this rank's slice of the sum is added to that of earlier
/// micro-batches.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/extensions/sharded/memory.hpp"
#include "unisono/trainer/step/gradient_sum.hpp"
#include "unisono/trainer/step/reducer_run.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Sums of gradients that travel, and are kept, as they are. Types of sums have `Sum`, the type
/// that travels, and `Kept`, the type in which the sum of earlier micro-batches is kept. `encode`
/// prepares a gradient to travel. `add` and `set` keep a sum that has arrived. `numbers` converts a
/// sum to numbers. Sums on a grid: trainer/step/grid_sums.hpp.
template <class T>
class FloatSums : public SumsOfGradients {
public:
    using Sum = T;
    using Kept = T;
    static constexpr bool in_place = true; ///< `encode` leaves a gradient where it is

    template <class Policy>
    FloatSums(const Kernels<T>& kernels, const Layout&, const Policy&) : kernels_(&kernels) {}

    static constexpr void begin() {}
    /// `from` and `to` must be the same memory.
    void encode(std::size_t, T* from, std::size_t count, T*, double weight) const {
        if (weight != 1) kernels_->scale(from, count, weight);
    }
    void add(T* sum, T* one, std::size_t count) const { kernels_->add(sum, one, count, 1.0, false, false); }
    void set(T* sum, const T* one, std::size_t count) const { kernels_->copy(sum, one, count); }
    static const T* numbers(std::size_t, const T* sums, T*, std::size_t) { return sums; }

protected:
    const Kernels<T>* kernels_;
};

/// The wire format of a cast (extensions/compression/cast.hpp). `Computes`: the trainer's kernels.
template <class T, class Computes, class Compression>
class CastSums : public FloatSums<T> {
public:
    using Sum = typename Compression::Wire;
    static constexpr bool in_place = false;

    /// \throws error bad_input: the policy keeps what the encoding leaves over
    template <class Policy>
    CastSums(const Computes& kernels, const Layout& layout, const Policy& policy, const Compression& compression,
             int ranks)
        : FloatSums<T>(kernels, layout, policy), ranks_(ranks) {
        if constexpr (requires { compression.error_feedback; }) {
            if (compression.error_feedback && ranks > 1)
                refuse_input({Compression::name,
                              ".error_feedback is true, where gradients are sharded; expected false: what "
                              "rounding leaves over would be a whole gradient on each rank"});
        }
    }
    void encode(std::size_t, T* from, std::size_t count, Sum* to, double weight) const {
        if (weight != 1) this->kernels_->scale(from, count, weight);
        Compression::encode(std::span<Sum>(to, count), std::span<const T>(from, count), ranks_, on());
    }
    void add(T* sum, const Sum* one, std::size_t count) const {
        on().accumulate(std::span<T>(sum, count), std::span<const Sum>(one, count), 1.0);
    }
    void set(T* sum, const Sum* one, std::size_t count) const {
        on().accumulate_first(std::span<T>(sum, count), std::span<const Sum>(one, count), 1.0);
    }

private:
    [[nodiscard]] decltype(auto) on() const { return static_cast<const Computes&>(*this->kernels_).arithmetic(); }

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
    virtual void start(std::size_t u, ReducerRun& reducer, double multiplier, bool mine) = 0;
    /// Waits for all sums.
    virtual void finish() = 0;
    /// The sum of `count` elements of this rank's slice of a unit, from the `at`-th on, as numbers:
    /// in `to`, or in place.
    virtual const T* numbers(std::size_t u, std::size_t at, T* to, std::size_t count) = 0;

    [[nodiscard]] virtual SumsOfGradients& sums() = 0;
    [[nodiscard]] virtual std::size_t bytes() const = 0;
    [[nodiscard]] virtual std::size_t room_bytes() const = 0;
};

template <class T, class Sums>
class UnitGradientsOf final : public UnitGradients<T> {
public:
    using Sum = typename Sums::Sum;
    using Kept = typename Sums::Kept;

    /// `sums`: the constructor arguments of the sums, after the layout.
    template <class Computes, class... Made>
    UnitGradientsOf(GroupCore& world, const Computes& kernels, const UnitSlices& slices, const Made&... sums)
        : world_(&world), kernels_(&kernels), slices_(&slices), sums_(kernels, slices.layout(), sums...),
          own_(kernels_->template allocate_own<Kept>(slices.own_count())) {
        has_.resize(slices.units());
        if constexpr (!Sums::in_place) gradient_ = kernels_->template allocate_own<T>(slices.largest());
        for (Travel& one : travels_) {
            one.values = kernels_->template allocate<Sum>(slices.largest());
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
        kernels_->zero(values.data(), values.size());
        return values;
    }
    std::span<T> opened(std::size_t u) override {
        settle(travels_[next_]);
        T* values = nullptr;
        if constexpr (Sums::in_place) values = travels_[next_].values.data();
        else values = gradient_.data();
        return {values, slices_->unit(u).count};
    }

    void start(std::size_t u, ReducerRun& reducer, double multiplier, bool mine) override {
        const std::span<T> values = opened(u);
        if constexpr (std::same_as<Kept, T> && !Sums::in_place) {
            if (world_->size() == 1) return keep_alone(u, values, multiplier);
        }
        Travel& travel = travels_[next_];
        next_ = 1 - next_;
        travel.unit = u;
        Sum* const sums = travel.values.data();
        if (mine) sums_.encode(u, values.data(), values.size(), sums, multiplier);
        else if constexpr (!Sums::in_place) kernels_->zero(sums, values.size());
        if (world_->size() == 1) return;
        kernels_->order();
        start_slice_sums(reducer, slices_->owned_slices(), u, slices_->unit(u).first,
                         kernels_->buffer(sums, values.size()), travel.operations);
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
        Array<Sum> values = {};
        std::size_t unit = none; ///< the unit whose sum is in progress
        std::vector<Operation> operations = {};
    };

    /// Keeps a gradient that does not travel, so it is not converted to a narrower type.
    void keep_alone(std::size_t u, std::span<T> values, double multiplier) {
        kernels_->add(own_.data() + slices_->own_at(u), values.data(), values.size(), multiplier, !has_[u], false);
        has_[u] = true;
    }
    /// Waits for a unit's sum and keeps this rank's slice of it.
    void settle(Travel& travel) {
        if (travel.unit == none) return;
        const std::size_t u = travel.unit;
        travel.unit = none;
        for (Operation& operation : travel.operations) operation.wait();
        travel.operations.clear();
        Sum* const arrived = travel.values.data() + slices_->own_in_unit(u);
        Kept* const own = own_.data() + slices_->own_at(u);
        const std::size_t count = slices_->own(u).count;
        const bool adds = has_[u];
        has_[u] = true;
        if (count == 0) return;
        if (adds) sums_.add(own, arrived, count);
        else sums_.set(own, arrived, count);
    }

    const GroupCore* world_;
    const Kernels<T>* kernels_;
    const UnitSlices* slices_;
    Sums sums_;
    Array<Kept> own_;               ///< this rank's slices of the sums of all units
    List<bool> has_;                ///< this update has a sum of the unit
    Array<T> gradient_;             ///< where the model writes, if not to the memory that travels
    std::array<Travel, 2> travels_; ///< used in turn: one travels while the model fills the other
    std::size_t next_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
