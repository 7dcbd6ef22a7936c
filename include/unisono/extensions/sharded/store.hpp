#pragma once

/// \file
/// The store of a model in units, whose gradients, and possibly parameters, are sharded over the
/// ranks.
/// Sums are computed during the pass, so all ranks go through each pass together. A rank without a
/// micro-batch (a short last window, uneven replicas) goes through the units by itself and adds
/// zeros. Before each pass one all_reduce of 4 bytes tells the ranks whether some rank has a
/// micro-batch, and whether it is the last. There are no buckets: each unit travels by itself. If
/// the model computes in a narrower type (`Low`) than that in which it is trained, its gradient of
/// a unit is added to floats as soon as it is complete.

#include "unisono/collective/of_core.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/sharded/gradients.hpp"
#include "unisono/extensions/sharded/memory.hpp"
#include "unisono/extensions/sharded/unit_pass.hpp"
#include "unisono/extensions/sharded/walk.hpp"
#include "unisono/trainer/step/gradient_sum.hpp"
#include "unisono/trainer/step/update.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class T, class Low>
class UnitStore : public Update<T>, private UnitKeeper<Low> {
    using Base = Update<T>;

public:
    /// Sets the initial values to those of rank 0. Called once, collective.
    template <class Model>
    void initialise(Model& model) {
        memory_.initialise(model);
    }

    /// Call it when all ranks have made the same number of passes, before they communicate about
    /// anything else.
    void end_round() { close_rounds(); }

    /// Makes a forward pass alone: visit(pass). Each rank may call it any number of times; then
    /// every rank calls `end_forward`.
    template <class GivenPass, class Visit>
    void forward(Visit&& visit) {
        closed_ = false;
        if (shards_parameters_) enter_round(one_of_more);
        GivenPass pass({}, *this);
        walk_.begin(false);
        visit(pass);
        end_pass();
    }
    void end_forward() {
        if (shards_parameters_)
            while (world_->size() > 1 && enter_round(nothing_here) != nothing_here) idle_pass(false);
        closed_ = false;
        walk_.forget();
    }

    [[nodiscard]] const auto& flat() const { return memory_; }
    static constexpr void expect_one() {}

    void start() override { close_rounds(); }
    void finish() override { gradients_->finish(); }

    /// Calls visit(stretch) for the parameters that this rank holds. The visitor writes them.
    template <class Visit>
    void rewrite_parameters(Visit&& visit) {
        memory_.visit({0, memory_.count()}, visit);
        if constexpr (mixed) memory_.publish();
        walk_.forget();
    }
    [[nodiscard]] std::size_t parameter_bytes() const { return memory_.bytes(); }
    [[nodiscard]] std::size_t gradient_bytes() const { return gradients_->bytes(); }
    /// Bytes of the units in use.
    [[nodiscard]] std::size_t memory_bytes() const {
        return memory_.room_bytes() + gradients_->room_bytes() + low_gradient_.size() * sizeof(Low);
    }

protected:
    using Base::nothing_travels_, Base::kernels_, Base::pass_, Base::policies_, Base::reducer_, Base::world_;

    template <class World, class Model, class Policies, class Sharding, class Computes>
    UnitStore(World& world, Model& model, const Policies& policies, const Sharding& sharding, Computes& kernels)
        : Base(world, model, policies, sharding, kernels), slices_(T{}, model, sharding, world.rank(), world.size()),
          shards_parameters_(detail::shards_parameters<typename Policies::Sharding>),
          memory_(world, kernels, slices_, shards_parameters_), gradients_(started(world, kernels, policies)),
          walk_(slices_.units()) {
        static_assert(may_have_owners<Policies, Sharding>,
                      "unisono::Trainer: found a sharding of gradients that declares no owners; required: "
                      "`gives_owners` or `may_give_owners`");
        if constexpr (Policies::Summation::reproducible)
            numbers_ = kernels_->template allocate_own<T>(std::min(kernels_->chunk, slices_.largest()));
        if constexpr (mixed) low_gradient_ = kernels_->template allocate_own<Low>(slices_.largest());
        this->begin_store(slices_.layout(), slices_.owned_slices(), gradients_->sums());
    }
    ~UnitStore() override = default;

    void begin_update() override {
        gradients_->begin();
        closed_ = nothing_travels_;
        opened_ = false;
        weights_ = 0;
        pass_ = nullptr;
        walk_.forget();
    }

    // --- one micro-batch ---

    template <class Model>
    unit_pass_t<Model> make_pass(const PassFacts& facts, bool last) {
        enter_round(last ? last_one : one_of_more);
        weighed_ = false;
        walk_.begin(true);
        return unit_pass_t<Model>(facts, *this);
    }
    void after_pass() override {
        end_pass();
        this->note_weight(weights_ += multiplier_);
    }
    void keep(double, bool) override { pass_ = nullptr; }

    // --- the update ---

    void each_gradient(typename Base::GradientVisit visit) override {
        for (std::size_t u = 0; u < slices_.units(); ++u)
            each_chunk(u, [&](std::size_t at, std::size_t n, T* gradients) {
                visit(u, slices_.own(u).first + at, gradients, n);
            });
    }
    [[nodiscard]] std::size_t most_gradients() const override { return slices_.units(); }
    void update_owned(const OptimizerStep& step) override {
        for (std::size_t u = 0; u < slices_.units(); ++u) {
            T* const parameters = memory_.own(u).data();
            each_chunk(u, [&](std::size_t at, std::size_t n, T* gradients) {
                policies_->update(this->state().slice(slices_.own_at(u) + at, n), parameters + at, gradients, step);
            });
        }
        walk_.forget();
    }
    void publish_owned() override { memory_.publish(); }
    void forget() override {
        close_rounds();
        gradients_->finish();
    }

private:
    static constexpr bool mixed = !std::same_as<T, Low>;
    template <class Computes, class Policies>
    UnitGradients<T>* started(GroupCore& world, const Computes& kernels, const Policies& policies) const {
        using Compression = typename Policies::Compression;
        using Sums = typename Policies::Summation::template Sums<T>;
        if constexpr (Compression::compresses)
            return new UnitGradientsOf<T, CastSums<T, Computes, Compression>>(
                world, kernels, slices_, policies.summation, policies.compression, world.size());
        else return new UnitGradientsOf<T, Sums>(world, kernels, slices_, policies.summation);
    }

    // --- the interface of UnitKeeper, which the pass calls ---

    std::span<const Low> acquire(std::size_t unit) override {
        go_to(walk_.step_of_parameters(unit));
        walk_.hold();
        return memory_.values(walk_.turn(), unit);
    }
    void release() noexcept override { walk_.release(); }

    std::span<Low> gradient(std::size_t unit) override {
        go_to(walk_.step_of_gradient(unit));
        if constexpr (mixed) {
            const std::span<Low> room(low_gradient_.data(), slices_.unit(unit).count);
            if (!std::exchange(opened_, true)) kernels_->zero(room.data(), room.size());
            return room;
        } else return std::exchange(opened_, true) ? gradients_->opened(unit) : gradients_->open(unit);
    }
    void complete(std::size_t unit) override {
        if (unit == Pass::no_parameter) return world_->progress();
        go_to(walk_.step_of_gradient(unit));
        complete_this();
    }

    /// Advances to a step of the pass. When a unit's step begins, its parameters are there, and the
    /// next unit's are being gathered.
    void go_to(std::size_t step) {
        while (walk_.before(step)) {
            complete_this();
            walk_.advance();
            if (shards_parameters_) {
                if (!walk_.gathers()) continue;
                if (walk_.at_first() && !walk_.has_first()) memory_.start(walk_.turn(), walk_.unit());
                memory_.wait();
                if (walk_.gathers_again()) memory_.start(walk_.turn() + 1, walk_.next_unit());
            }
        }
    }

    /// Completes the gradient of the current step's unit. It is zero if the model did not ask for
    /// it.
    void complete_this() {
        if (!walk_.complete_gradient()) return;
        const std::size_t unit = walk_.unit();
        const std::span<T> values = opened_ && !mixed ? gradients_->opened(unit) : gradients_->open(unit);
        if constexpr (mixed)
            if (opened_) accumulate(values, std::span<const Low>(low_gradient_.data(), values.size()));
        opened_ = false;
        double multiplier = 1;
        if (pass_ != nullptr) {
            multiplier = this->weigh().multiplier;
            if (std::exchange(weighed_, true) && multiplier != multiplier_)
                refuse_input({"unit ", unit,
                              ": tokens were counted after the first gradient was complete; expected all before it"});
            multiplier_ = multiplier;
            if (multiplier == 0) kernels_->zero(values.data(), values.size()); // whatever is there, it counts nothing
            this->inspect(values.data(), values.size(), slices_.unit(unit).first);
        }
        gradients_->start(unit, *reducer_, multiplier, pass_ != nullptr);
    }

    void end_pass() {
        go_to(walk_.last_step());
        complete_this();
        walk_.end();
    }
    /// Makes the pass of a rank without a micro-batch.
    void idle_pass(bool trains) {
        pass_ = nullptr;
        walk_.begin(trains);
        end_pass();
    }

    // --- rounds: one pass on each rank ---

    enum Here : std::int32_t { nothing_here, last_one, one_of_more };

    /// Takes the maximum of all ranks' values.
    Here enter_round(Here mine) {
        if (world_->size() == 1) return mine;
        if (closed_ && mine != nothing_here)
            refuse_input("a micro-batch was added after the last one of this update was announced");
        std::array<std::int32_t, 1> most = {mine};
        all_reduce_native(*world_, most, Few<Max>{});
        closed_ = most[0] == last_one;
        return static_cast<Here>(most[0]);
    }
    void close_rounds() {
        while (!closed_ && world_->size() > 1) {
            if (enter_round(nothing_here) == nothing_here) return;
            idle_pass(true);
        }
    }

    /// Calls visit(first, count, gradient) for this rank's slice of a unit; on the host in chunks
    /// that stay in the first-level cache.
    template <class Visit>
    void each_chunk(std::size_t u, Visit&& visit) {
        const std::size_t count = slices_.own(u).count;
        for (std::size_t at = 0, n = 0; at < count; at += n) {
            n = std::min(kernels_->chunk, count - at);
            visit(at, n, const_cast<T*>(gradients_->numbers(u, at, numbers_.data(), n)));
        }
    }
    UnitSlices slices_;
    bool shards_parameters_;
    UnitMemory<T, Low> memory_;
    Owned<UnitGradients<T>> gradients_;
    UnitWalk walk_;
    Array<T> numbers_;        ///< memory for one chunk of numbers, if the sums provide none
    Array<Low> low_gradient_; ///< where the model writes, if not to the trained type

    bool closed_ = false; ///< no rank has another micro-batch of this update
    bool opened_ = false; ///< the model has asked for the gradient of the step's unit
    bool weighed_ = false;
    double multiplier_ = 1; ///< multiplier of this pass, known once its first gradient is complete
    double weights_ = 0;    ///< sum of the weights of this rank's passes in this update
};

} // namespace detail
UNISONO_NAMESPACE_END
