// A sharding of gradients requires a model in units, and a model in units requires such a sharding.
#include "unisono/extensions/sharded/policies.hpp"
#include "unisono/extensions/sharded/store.hpp"
#include "unisono/group/run.hpp"
#include "unisono/trainer/trainer.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/update/averaging.hpp"

#include "models.hpp"

#include <array>

namespace un = unisono;

using Whole = NumberModel;
struct InUnits {
    using Element = float;
    static std::array<std::size_t, 1> units() { return {1}; }
    static void initialise(std::size_t, std::span<float>) {}
    double operator()(int, un::UnitPass<float>&) { return 0; }
};

template <class Model, class... Policies>
void train(Model& model, Policies... policies) {
    un::run<un::InProcess>(1, [&](auto& world) {
        un::Trainer trainer{world, model, policies...};
        trainer.step(1);
    });
}

int main() {
    Whole whole;
    InUnits in_units;
    static_cast<void>(whole);
    static_cast<void>(in_units);

#ifdef CASE_control
    // expect-success
    train(in_units, un::ParameterSharding{});
#endif

#ifdef CASE_gradients_of_a_model_that_holds_them
    // expect: found a sharding that declares `shards_gradients`, with a model that holds its gradients
    // expect: Required: a model in units (unisono/sharded.hpp), or StateSharding
    // expect: Why: whatever a trainer does, such a model has all parameters and gradients on every rank
    train(whole, un::GradientSharding{});
#endif

#ifdef CASE_nobody_holds_the_units
    // expect: found a model in units, with a sharding that does not declare `shards_gradients`
    // expect: Required: GradientSharding or ParameterSharding, or the model as ResidentUnits
    // expect: Why: such a model holds no parameters and gradients, so a sharding must hold them
    train(in_units);
#endif

#ifdef CASE_local_updates_of_slices
    // expect: found an update that does not declare `agrees`, with a policy that declares `gives_owners`
    train(in_units, un::ParameterSharding{}, un::LocalSteps{});
#endif
}
