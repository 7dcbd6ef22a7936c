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

// case: control
// expect-success
#ifdef CASE_control
    train(in_units, un::ParameterSharding{});
#endif

// case: gradients_of_a_model_that_holds_them
// expect: found a sharding that declares `shards_gradients`, with a model that holds its gradients
// expect: Required: a model in units (unisono/sharded.hpp), or StateSharding
// expect: Why: whatever a trainer does, such a model has all parameters and gradients on every rank
#ifdef CASE_gradients_of_a_model_that_holds_them
    train(whole, un::GradientSharding{});
#endif

// case: nobody_holds_the_units
// expect: found a model in units, with a sharding that does not declare `shards_gradients`
// expect: Required: GradientSharding or ParameterSharding, or the model as ResidentUnits
// expect: Why: such a model holds no parameters and gradients, so a sharding must hold them
#ifdef CASE_nobody_holds_the_units
    train(in_units);
#endif

// case: local_updates_of_slices
// expect: found an update that does not declare `agrees`, with a policy that declares `gives_owners`
#ifdef CASE_local_updates_of_slices
    train(in_units, un::ParameterSharding{}, un::LocalSteps{});
#endif
}
