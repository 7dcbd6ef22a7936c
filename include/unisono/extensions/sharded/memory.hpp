#pragma once

/// \file
/// The parameters of a model in units: either whole on every rank, or in the owners' slices and
/// gathered when they are used. If the model computes in a narrower type (`Low`) than that in which
/// it is trained, owners hold their slices in full precision, and gathered or whole units are
/// rounded, on the host.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/collective/shell.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/sharded/unit_pass.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/step/owned_slices.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Units in flat order, and this rank's slice of each. A rank's slices follow one another in flat
/// order.
class UnitSlices {
public:
    template <class T, class Model, class Sharding>
    UnitSlices(T, Model& model, const Sharding& sharding, int rank, int world) : owned_slices_(rank, world) {
        List<ParameterShape> shapes;
        for (const auto& one : model.units()) {
            const auto count = static_cast<std::size_t>(one);
            if (count == 0) refuse_input({"unit ", shapes.size(), " has no elements; expected at least one"});
            shapes.push_back(shape_of(std::span<T>(static_cast<T*>(nullptr), count)));
            largest_ = std::max(largest_, count);
        }
        if (shapes.empty()) refuse_input("the model has no units; expected at least one");
        layout_ = Layout::of(std::move(shapes), {.first_bytes = 1, .bytes = 1}); // each unit travels by itself
        own_at_.push_back(0);
        for (std::size_t u = 0; u < layout_.parameters(); ++u) {
            const Slice unit{layout_.start_of(u), layout_.shapes()[u].count};
            const Owners owners = sharding.owners(BucketFacts{u, unit.count, sizeof(T), world});
            owned_slices_.add(unit, owners);
            if (owned_slices_.slice_counts(u).size() != static_cast<std::size_t>(world))
                refuse_input({Sharding::name, ": not every rank owns a slice of unit ", u, " of ", unit.count,
                              " elements, or not in the order of ranks; expected that of a model in units"});
            const Slice slice = owners.slice(rank);
            own_.push_back({unit.first + slice.first, slice.count});
            own_at_.push_back(own_at_.back() + slice.count);
        }
        owned_slices_.close();
    }

    [[nodiscard]] const Layout& layout() const { return layout_; }
    [[nodiscard]] std::size_t units() const { return own_.size(); }
    [[nodiscard]] std::size_t largest() const { return largest_; } ///< elements of the largest unit
    [[nodiscard]] Slice unit(std::size_t u) const { return {layout_.start_of(u), layout_.shapes()[u].count}; }
    /// This rank's slice of a unit, in flat order.
    [[nodiscard]] const Slice& own(std::size_t u) const { return own_[u]; }
    /// The offset of that slice in the unit.
    [[nodiscard]] std::size_t own_in_unit(std::size_t u) const {
        return own_[u].count == 0 ? 0 : own_[u].first - layout_.start_of(u);
    }
    /// The offset of that slice among all elements that this rank owns.
    [[nodiscard]] std::size_t own_at(std::size_t u) const { return own_at_[u]; }
    [[nodiscard]] std::size_t own_count() const { return own_at_.back(); }
    /// The elements of a unit that each rank owns.
    [[nodiscard]] std::span<const std::size_t> counts(std::size_t u) const { return owned_slices_.slice_counts(u); }
    [[nodiscard]] const OwnedSlices& owned_slices() const { return owned_slices_; }

private:
    Layout layout_;
    OwnedSlices owned_slices_;
    std::size_t largest_ = 0;
    List<Slice> own_;
    List<std::size_t> own_at_; ///< one more entry for the end
};

/// The units in use alternate between two buffers, of which one is filled while the other is used.
template <class T, class Low>
class UnitMemory {
public:
    using Element = T;

    /// `sharded`: this rank holds only its slices.
    template <class World, class Computes>
    UnitMemory(World& world, const Computes& kernels, const UnitSlices& slices, bool sharded)
        : world_(&world), kernels_(&kernels), slices_(&slices), sharded_(sharded),
          held_(kernels_->template allocate<Low>(!sharded ? slices.layout().count()
                                                 : mixed  ? 0
                                                          : slices.own_count())) {
        static_assert(!mixed || !Computes::on_device,
                      "unisono::Trainer: found a model in units on a device that computes with another type than it is "
                      "trained in. Required: one type. Why: units are rounded on the host.");
        static constexpr NativeSchedule native{};
        broadcast_ = call_on<Collective::broadcast, View<Computes::on_device, T>>(world, native);
        gather_ = call_on<Collective::all_gather, View<Computes::on_device, Low>>(world, native);
        if (sharded)
            for (Array<Low>& room : rooms_) room = kernels_->template allocate<Low>(slices.largest());
        if constexpr (mixed) masters_ = kernels_->template allocate_own<T>(slices.own_count());
        publications_.resize(sharded ? 0 : most_publications);
    }
    UnitMemory(const UnitMemory&) = delete;
    UnitMemory& operator=(const UnitMemory&) = delete;

    /// The model writes its initial values; then rank 0's are broadcast. Collective.
    template <class Model>
    void initialise(Model& model) {
        Array<T> full = kernels_->template allocate_own<T>(mixed ? slices_->largest() : 0);
        for (std::size_t u = 0; u < slices_->units(); ++u) {
            std::span<T> unit;
            if constexpr (mixed) unit = {full.data(), slices_->unit(u).count};
            else unit = sharded_ ? room(0, u) : whole(u);
            kernels_->zero(unit.data(), unit.size());
            model.initialise(u, View<trained_on_device<Model>, T>(unit.data(), unit.size()));
            kernels_->order();
            const CallBuffer all = kernels_->buffer(unit.data(), unit.size());
            if (world_->size() > 1) world_->run(broadcast_, all, all);
            if (sharded_ || mixed)
                kernels_->copy(own(u).data(), unit.data() + slices_->own_in_unit(u), slices_->own(u).count);
            if constexpr (mixed)
                if (!sharded_) accumulate_first(whole(u), std::span<const T>(unit));
        }
    }

    // --- the interface of FlatModel ---

    [[nodiscard]] const Layout& layout() const { return slices_->layout(); }
    [[nodiscard]] std::size_t count() const { return slices_->layout().count(); }
    /// Calls visit(stretch) for the part of a slice of the flat order that this rank holds.
    template <class Visit>
    void visit(const Slice& slice, Visit&& visit) const {
        T* const held = trained();
        if (!sharded_ && !mixed) {
            if (slice.count != 0) visit(Stretch<T>{slice.first, slice.count, held + slice.first, nullptr});
        } else if (slice.count != 0) {
            for (std::size_t u = layout().element_at(slice.first).parameter; u < slices_->units(); ++u) {
                const Slice& own = slices_->own(u);
                const std::size_t begin = std::max(own.first, slice.first);
                const std::size_t end = std::min(own.end(), slice.end());
                if (layout().start_of(u) >= slice.end()) return;
                if (begin < end)
                    visit(Stretch<T>{begin, end - begin, held + slices_->own_at(u) + (begin - own.first), nullptr});
            }
        }
    }

    /// This rank's slice of a unit.
    [[nodiscard]] std::span<T> own(std::size_t u) {
        const std::size_t at = sharded_ || mixed ? slices_->own_at(u) : slices_->own(u).first;
        return {trained() + (slices_->own(u).count == 0 ? 0 : at), slices_->own(u).count};
    }

    // --- gathering before use ---

    /// Starts to gather a unit, the `turn`-th of a pass. Does nothing if units are whole.
    void start(std::size_t turn, std::size_t u) {
        if (sharded_) gathering_ = gather(u, room(turn, u));
    }
    void wait() { gathering_.wait(); }
    [[nodiscard]] std::span<const Low> values(std::size_t turn, std::size_t u) {
        return sharded_ ? room(turn, u) : whole(u);
    }

    /// Call it after owners have updated their slices. If ranks hold whole units, sends the slices
    /// to all ranks.
    void publish() {
        if (sharded_ || (!mixed && world_->size() == 1)) return;
        for (std::size_t u = 0; u < slices_->units(); ++u) {
            Operation& next = publications_[u % most_publications];
            next.wait();
            next = gather(u, whole(u));
        }
        for (Operation& one : publications_) one.wait();
    }

    /// Bytes that this rank holds permanently.
    [[nodiscard]] std::size_t bytes() const { return held_.size() * sizeof(Low) + masters_.size() * sizeof(T); }
    [[nodiscard]] std::size_t room_bytes() const { return (rooms_[0].size() + rooms_[1].size()) * sizeof(Low); }

private:
    static constexpr std::size_t most_publications = 4; ///< in flight
    static constexpr bool mixed = !std::same_as<T, Low>;
    template <bool OnDevice, class E>
    using View = std::conditional_t<OnDevice, DeviceSpan<E>, std::span<E>>;

    /// The trained parameters that this rank holds.
    [[nodiscard]] T* trained() const {
        if constexpr (mixed) return masters_.data();
        else return held_.data();
    }
    Operation gather(std::size_t u, std::span<Low> all) {
        const std::span<const Low> mine = given(u, all);
        kernels_->order();
        Call call = gather_;
        call.input_counts = call.output_counts = slices_->counts(u);
        return world_->start(call, kernels_->buffer(mine.data(), mine.size()),
                             kernels_->buffer(all.data(), all.size()));
    }
    /// This rank's contribution to a unit that is gathered to `all`: its slice, rounded, at its
    /// position there.
    std::span<const Low> given(std::size_t u, [[maybe_unused]] std::span<Low> all) {
        if constexpr (mixed) {
            const std::span<Low> place = all.subspan(slices_->own_in_unit(u), slices_->own(u).count);
            if (!place.empty()) accumulate_first(place, std::span<const T>(own(u)));
            return place;
        } else {
            return own(u);
        }
    }
    std::span<Low> whole(std::size_t u) { return {held_.data() + slices_->unit(u).first, slices_->unit(u).count}; }
    std::span<Low> room(std::size_t turn, std::size_t u) { return {rooms_[turn % 2].data(), slices_->unit(u).count}; }

    GroupCore* world_;
    const Kernels<T>* kernels_;
    const UnitSlices* slices_;
    bool sharded_;
    Call broadcast_;   ///< of a unit
    Call gather_;      ///< of a unit, without its counts
    Array<Low> held_;  ///< the model's parameters, or this rank's slices of them
    Array<T> masters_; ///< this rank's slices of the trained parameters, if their type is wider
    std::array<Array<Low>, 2> rooms_;
    Operation gathering_;
    std::vector<Operation> publications_;
};

} // namespace detail
UNISONO_NAMESPACE_END
