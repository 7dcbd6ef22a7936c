#pragma once

/// \file
/// The update of one trainer, with the types of its group and of its model's store. The run of an
/// update policy gets it (update/update.hpp).

#include "unisono/collective/of_core.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/model.hpp"
#include "unisono/model/weighing.hpp"
#include "unisono/observe/trace.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/trainer/step/update.hpp"
#include "unisono/trainer/step/whole.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class T, class Low>
class UnitStore; // extensions/sharded/store.hpp, which unisono/sharded.hpp includes

/// The store of a model. Models in units may use a narrower type in their passes than that in which
/// they are trained.
template <class Model, class Policies>
struct StoreOf {
    using type = WholeStore<parameter_element_t<Model>>;
};
template <class Model, class Policies>
    requires(shards_gradients<typename Policies::Sharding> && unit_model<Model>)
struct StoreOf<Model, Policies> {
    using type = UnitStore<parameter_element_t<Model>, pass_element_t<Model>>;
};

/// `Computes`: the trainer's kernels. `Compresses`: the policy of compression does.
template <class WorldType, class Store, class Computes, bool Compresses>
class Training final : public Store {
public:
    using World = WorldType;
    using Array = detail::Array<typename Store::Element>; ///< as `kernels().allocate` returns it
    static constexpr bool compresses = Compresses;

    template <class Model, class Policies, class Sharding>
    Training(World& world, Model& model, const Policies& policies, const Sharding& sharding)
        : Store(world, model, policies, sharding, *new Computes(world, model)), group_(&world) {}
    ~Training() override { this->kernels_->wait(); } // before the memory is released
    [[nodiscard]] World& world() const { return *group_; }
    [[nodiscard]] const Computes& kernels() const { return static_cast<const Computes&>(*this->kernels_); }

    /// Runs the model on one micro-batch. `last`: this rank adds no other micro-batch to this
    /// update, so a gradient may travel as soon as the model reports it as ready.
    template <class Model, class Batch>
    void add(Model& model, const Batch& batch, double samples, PassFacts facts, bool last) {
        const TraceSpan span(this->log_, Activity::compute, this->applied());
        MicroBatchFacts micro{samples, 0, gradient_kind_of<Model>};
        if (!this->facts_.needs_tokens) facts.weight = this->policies_->share(micro).multiplier;
        facts.loss_scale = this->loss_scale().scale();
        this->micro_ = &micro;
        auto pass = this->template make_pass<Model>(facts, last);
        this->pass_ = &pass;
        const double loss = call(model, batch, pass);
        if constexpr (unisono::model<Model>) {
            this->flat().check_in_place(model);
            if (!model_on_device<Model> && !looked_) look_at_first(samples > 0);
        }
        this->after_call(loss, last);
    }

    /// As `add`, in a loop of the user's own: `facts` then speaks of this rank's next replica, if
    /// there is one.
    template <class Model, class Batch>
    void add_next(Model& model, const Batch& batch, PassFacts& facts) {
        const std::uint64_t next = facts.replica + static_cast<std::uint64_t>(this->workers());
        add(model, batch, static_cast<double>(samples_of(batch)), facts, next >= facts.replicas);
        facts.replica = next;
    }

    /// For sums on a grid in a loop of the user's own: this rank hosts `hosted` micro-batches.
    /// Collective.
    void expect(std::size_t hosted) {
        std::array<std::int32_t, 1> most = {hosted > 1 ? 2 : 1};
        if (group_->size() > 1) all_reduce_native(*group_, most, Few<Max>{});
        if (most[0] == 1) this->expect_one();
    }

private:
    /// Not inlined: the compiler then optimizes the model's loops without keeping the update's
    /// members in registers.
    template <class Model, class Batch, class GivenPass>
    [[gnu::noinline]] static double call(Model& model, const Batch& batch, GivenPass& pass) {
        return static_cast<double>(model(batch, pass));
    }

    /// After the first call with samples on rank 0: warns if all gradients are zero.
    [[gnu::cold]] void look_at_first(bool has_samples) {
        const bool may_look = group_->rank() == 0 && this->applied() == 0;
        looked_ = has_samples || !may_look;
        if (!may_look || !has_samples || this->has_started() || this->flat().any_gradient()) return;
        const std::string text = concat({"unisono: warning: the model's first call left all ", this->flat().count(),
                                         " elements of gradients() at zero (on rank 0); expected that model(batch, "
                                         "pass) adds the gradient there\n"});
        static_cast<void>(std::fputs(text.c_str(), stderr));
    }

    World* group_;
    bool looked_ = false; ///< at the gradients of the first call
};

/// The training of a trainer. Few policies change this type, so trainers with different policies
/// mostly share the code of their update's run.
template <class World, class Model, class Policies>
using training_of = Training<World, typename StoreOf<Model, Policies>::type, kernels_of<World, Model>,
                             Policies::Compression::compresses>;

} // namespace detail
UNISONO_NAMESPACE_END
