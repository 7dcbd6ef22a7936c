#pragma once

/// \file
/// The state of a trainer beside the model, for checkpoints, hashes and elastic worlds, and their
/// part in its calls. `trainer.state()` returns it.

#include "unisono/guard/loss_scaling.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/report.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The part of an elastic world that a training is (extensions/elastic).
struct ElasticPart {
    WorldEpoch world_epoch = {};
    bool done_by_others = false;
};

/// Refers to the trainer. That of a const trainer can only be read.
template <class Trainer>
class TrainingState {
    static constexpr bool writes = !std::is_const_v<Trainer>;
    using Policies = std::remove_cvref_t<decltype(std::declval<Trainer&>().policies())>;
    using Model = std::remove_cvref_t<decltype(std::declval<Trainer&>().trained())>;

public:
    explicit TrainingState(Trainer& trainer) : trainer_(&trainer) {}

    // --- the state ---

    /// The elements that this rank updates, in flat order.
    [[nodiscard]] std::span<const Slice> owned() const { return trainer_->training_->owned(); }
    /// The optimizer's state of these elements: an OptimizerState&, or a DeviceOptimizerState for a
    /// model on a device.
    [[nodiscard]] decltype(auto) optimizer_state() const {
        const auto& kernels = trainer_->training_->kernels();
        if constexpr (writes) return kernels.shown(trainer_->training_->state());
        else return kernels.shown(std::as_const(trainer_->training_->state()));
    }
    /// With `Reproducible`: the exponent of each parameter's grid. (A training that continues
    /// elsewhere with the same parameters, optimizer state and grids computes the same bits.)
    /// Otherwise empty.
    [[nodiscard]] std::span<const std::int32_t> grid_exponents() const {
        if constexpr (Policies::Summation::reproducible) return trainer_->training_->grids().exponents();
        else return {};
    }
    /// Pass the same on all ranks. Empty: no grid is known, as at first. \throws error bad_input:
    /// another number of parameters, exponents out of range
    void restore_grid_exponents(std::span<const std::int32_t> exponents) const
        requires(writes && Policies::Summation::reproducible)
    {
        trainer_->training_->grids().restore(exponents);
    }
    /// Pass the same on all ranks. \throws error bad_input: a scale that is not above 0 and finite
    void restore_loss_scale(const LossScale& saved) const
        requires(writes && Policies::Scaling::scales)
    {
        trainer_->training_->loss_scale().restore(saved);
    }
    /// The update's run (update/update.hpp). If ranks update on their own, it has the common state
    /// beside the parameters.
    [[nodiscard]] auto& update_run() const {
        if constexpr (writes) return trainer_->mode_->run;
        else return std::as_const(trainer_->mode_->run);
    }
    /// For a model in units: calls visit(flat, std::span<Element>), or with a DeviceSpan, for the
    /// parameters that this rank holds. The visitor writes them, the same on all ranks. Collective
    /// if ranks also hold a 16-bit copy.
    template <class Visit>
    void rewrite_parameters(Visit&& visit) const
        requires(writes && unit_model<Model>)
    {
        trainer_->training_->rewrite_parameters([&](const Stretch<parameter_element_t<Model>>& one) {
            if constexpr (trained_on_device<Model>) visit(one.flat, DeviceSpan(one.parameters, one.count));
            else visit(one.flat, std::span(one.parameters, one.count));
        });
    }
    /// For a model on a device: calls visit(std::span<const E>) with a copy of its memory at `at`.
    template <class E, class Visit>
    void read(const E* at, std::size_t count, Visit&& visit) const
        requires(trained_on_device<Model>)
    {
        trainer_->training_->kernels().read(at, count, visit);
    }
    /// For a model on a device: write(at, values) changes its memory.
    [[nodiscard]] const auto& kernels() const
        requires(writes && trained_on_device<Model>)
    {
        return trainer_->training_->kernels();
    }

    // --- calls beside the trainer's own ---

    /// While the result lives, this rank's operations in the group carry the trainer's number, as
    /// in any call of the trainer.
    [[nodiscard]] TrainerCall acting() const { return {trainer_->world().context(), trainer_->number_}; }
    /// The membership of the elastic world in which this trainer runs.
    [[nodiscard]] const WorldEpoch& world_epoch() const { return trainer_->elastic_.world_epoch; }
    void set_world_epoch(const WorldEpoch& epoch) const
        requires writes
    {
        trainer_->elastic_.world_epoch = epoch;
    }
    /// For an elastic world, in `collectively`: true if all others have finished this call, which
    /// this rank then makes alone. They have also done what the call does beyond the trainer, such
    /// as writing a file.
    [[nodiscard]] bool done_by_others() const { return trainer_->elastic_.done_by_others; }
    void set_done_by_others() const
        requires writes
    {
        trainer_->elastic_.done_by_others = true;
    }

private:
    Trainer* trainer_;
};

} // namespace detail
UNISONO_NAMESPACE_END
