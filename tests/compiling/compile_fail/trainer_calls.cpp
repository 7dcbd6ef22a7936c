// Data and batches with which a model cannot be called are refused at the call, in the model's
// terms. ../mistakes/compiled has the usual ones.
#include "unisono/extensions/checkpoint/checkpoints.hpp"
#include "unisono/extensions/compression/one_bit.hpp"
#include "unisono/extensions/master_weights/master_weights.hpp"
#include "unisono/extensions/observe/classification.hpp"
#include "unisono/extensions/trainers/full_batch.hpp"
#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/reproducible.hpp"
#include "unisono/sharding/sharding.hpp"
#include "unisono/trainer/trainer.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/update/averaging.hpp"

#include "models.hpp"

#include <functional>
#include <vector>

namespace un = unisono;

using Model = RowModel;
struct Opaque {};
struct TakesOpaque : Model {
    double operator()(const Opaque&, un::Pass&) { return 0; }
};

struct TakesCopy : Model {
    void evaluate(const un::RowBatch<float>&, un::MeanMetric loss) { loss.add(1); }
};
struct TakesCopyInHalf {
    std::vector<un::bfloat16> weights = std::vector<un::bfloat16>(2), gradient = std::vector<un::bfloat16>(2);
    std::span<un::bfloat16> parameters() { return weights; }
    std::span<un::bfloat16> gradients() { return gradient; }
    double operator()(const un::RowBatch<float>&, un::Pass&) { return 0; }
    void evaluate(const un::RowBatch<float>&, un::MeanMetric loss) { loss.add(1); }
};
struct TakesCopyOnLvalues : Model {
    void evaluate(const un::RowBatch<float>&, un::MeanMetric loss) & { loss.add(1); }
};
struct TakesAnyCopyOnLvalues : Model {
    void evaluate(const auto&, auto loss) const& { loss.add(1); }
};
struct TakesAnyCopy : Model {
    void evaluate(const auto&, auto& loss, auto accuracy) {
        loss.add(1);
        accuracy.add(true);
    }
};
struct TakesReferences : Model {
    template <class... Metrics>
    void evaluate(const un::RowBatch<float>&, Metrics&... all) {
        (all.add(1), ...);
    }
};

int main() {
    un::Group<un::InProcess> world;
    std::vector<float> values(8);
    un::RowData<float> data(values, 2);
    un::RowData<double> doubles{std::span<const double>(), 2};

#ifdef CASE_checkpoint_of_compressed_local_updates
    // expect: unisono::Checkpoints: found a trainer whose update does not declare `agrees`, with a compression that declares `compresses`. Required: no compression.
    {
        Model local;
        un::Trainer drifting{world, local, un::LocalSteps{}, un::OneBit{}};
        un::Checkpoints("folder").save(drifting);
    }
#endif

#ifdef CASE_objective_with_owners
    // expect: unisono::FullBatch: found a policy that declares `gives_owners`
    {
        Model whole;
        un::FullBatch objective{world, whole, data, {}, un::StateSharding{}};
    }
#endif

#ifdef CASE_objective_of_local_updates
    // expect: unisono::FullBatch: found an update that does not declare `agrees`
    {
        Model whole;
        un::FullBatch objective{world, whole, data, {}, un::LocalSteps{}};
    }
#endif

#ifdef CASE_objective_of_compressed_sums
    // expect: unisono::FullBatch: found a compression that declares `compresses`. Required: no compression.
    {
        Model whole;
        un::FullBatch objective{world, whole, data, {}, un::OneBit{}};
    }
#endif

#ifdef CASE_objective_of_a_part
    // expect: unisono::FullBatch: found a model of which each rank has a part
    {
        struct Stage : Model {
            void sum_over_parts(std::span<double>) {}
        } stage;
        un::FullBatch objective{world, stage, data, {}};
    }
#endif

#ifdef CASE_checkpoint_of_served_updates
    // expect: unisono::Checkpoints: found a trainer whose update has servers
    {
        Model served;
        un::Trainer stale{world, served, un::Asynchronous{}};
        un::Checkpoints("folder").save(stale);
    }
#endif

#ifdef CASE_checkpoint_of_a_part_with_buffers
    // expect: unisono::Checkpoints: found a model of which each rank has a part, with buffers(). Required: a model without
    {
        struct Stage : Model {
            std::vector<std::pair<std::string, std::size_t>> whole_parameters() { return {}; }
            std::vector<std::size_t> places() { return {}; }
            std::vector<std::span<float>> buffers() { return {}; }
        } stage;
        un::Trainer trainer{world, stage};
        un::Checkpoints("folder").save(trainer);
    }
#endif

// The state of a const trainer can only be read.
#ifdef CASE_optimizer_state_of_a_const_trainer
    // expect-gcc: assignment of read-only location
    // expect-clang: cannot assign to return value
    {
        Model model;
        const un::Trainer trainer{world, model};
        trainer.state().optimizer_state().array(0)[0] = 1;
    }
#endif

#ifdef CASE_grids_of_a_const_trainer
    // expect-gcc: no matching function for call to
    // expect-clang: invalid reference to function 'restore_grid_exponents'
    {
        Model model;
        const un::Trainer trainer{world, model, un::Reproducible{}};
        trainer.state().restore_grid_exponents({});
    }
#endif

#ifdef CASE_run_of_a_const_trainer
    // expect-gcc: discards qualifiers
    // expect-clang: 'this' argument to member function 'restore' has type 'const
    {
        Model model;
        const un::Trainer trainer{world, model, un::LocalSteps{}};
        trainer.state().update_run().restore(3);
    }
#endif

#ifdef CASE_membership_of_a_const_trainer
    // expect-gcc: no matching function for call to
    // expect-clang: invalid reference to function 'set_world_epoch'
    {
        Model model;
        const un::Trainer trainer{world, model};
        trainer.state().set_world_epoch({});
    }
#endif

#ifdef CASE_good
    // expect-success
    {
        Model model;
        const un::Trainer constant{world, model, un::Reproducible{}};
        static_cast<void>(un::state_hash(constant));
        static_cast<void>(constant.state().grid_exponents());
        const un::Trainer outer{world, model, un::Diloco{}};
        static_cast<void>(outer.state().update_run().state().size());
    }
    {
        Model model;
        un::Trainer trainer{world, model};
        trainer.fit(data, {.batch_size = 2});
        trainer.step(un::RowBatch<float>{});
        trainer.step();
        TakesOpaque opaque;
        un::Trainer{world, opaque}.step(Opaque{});
    }
#endif

#ifdef CASE_wrong_batch
    // expect: the model cannot be called with this batch. Required: model(batch, pass) that adds the gradient of a `const Batch&` (this data set's batches)
    // expect: unisono::WithLoss
    {
        Model model;
        un::Trainer trainer{world, model};
        trainer.fit(doubles, {.batch_size = 2});
    }
#endif

#ifdef CASE_wrong_step
    // expect: the model cannot be called with this batch
    {
        Model model;
        un::Trainer trainer{world, model};
        trainer.step(3.0);
    }
#endif

#ifdef CASE_model_takes_a_metric_by_value
    // expect: unisono::Trainer: found a function that takes a metric by value
    // expect: such as `un::MeanMetric& loss` or `auto& loss`
    {
        TakesCopy model;
        un::Trainer trainer{world, model};
        trainer.evaluate(data, {}, un::MeanMetric{});
    }
#endif

#ifdef CASE_wrapped_model_takes_a_metric_by_value
    // expect: unisono::Trainer: found a function that takes a metric by value
    {
        TakesCopyInHalf model;
        un::MasterWeights master{model};
        un::Trainer trainer{world, master};
        trainer.evaluate(data, {}, un::MeanMetric{});
    }
#endif

#ifdef CASE_generic_model_takes_a_metric_by_value
    // expect: unisono::Trainer: found a function that takes a metric by value
    {
        TakesAnyCopy model;
        un::Trainer trainer{world, model};
        trainer.evaluate(data, {}, un::MeanMetric{}, un::AccuracyMetric{});
    }
#endif

#ifdef CASE_model_takes_a_metric_by_value_on_lvalues
    // expect: unisono::Trainer: found a function that takes a metric by value
    {
        TakesCopyOnLvalues model;
        un::Trainer trainer{world, model};
        trainer.evaluate(data, {}, un::MeanMetric{});
    }
#endif

#ifdef CASE_generic_model_takes_a_metric_by_value_on_lvalues
    // expect: unisono::Trainer: found a function that takes a metric by value
    {
        TakesAnyCopyOnLvalues model;
        un::Trainer trainer{world, model};
        trainer.evaluate(data, {}, un::MeanMetric{});
    }
#endif

#ifdef CASE_feed_takes_a_metric_by_value
    // expect: unisono::Trainer: found a function that takes a metric by value
    {
        Model model;
        un::Trainer trainer{world, model};
        trainer.evaluate(
            data, {}, [](Model&, const un::RowBatch<float>&, un::MeanMetric loss) { loss.add(1); }, un::MeanMetric{});
    }
#endif

#ifdef CASE_generic_feed_takes_a_metric_by_value
    // expect: unisono::Trainer: found a function that takes a metric by value
    {
        Model model;
        un::Trainer trainer{world, model};
        trainer.evaluate(
            data, {}, [](auto&, const auto&, un::MeanMetric loss) { loss.add(1); }, un::MeanMetric{});
    }
#endif

#ifdef CASE_metrics_by_reference
    // expect-success
    {
        TakesReferences model;
        un::Trainer trainer{world, model};
        trainer.evaluate(data, {}, un::MeanMetric{}, un::MeanMetric{});
        trainer.evaluate(
            data, {}, [](auto&, const auto&, auto&&... all) { (all.add(1), ...); }, un::MeanMetric{});
        trainer.evaluate(
            data, {}, [](auto&, auto, auto& loss) { loss.add(1); }, un::MeanMetric{});
        trainer.evaluate(
            data, {}, [](const Model&, const un::RowBatch<float>&, un::MeanMetric& loss) { loss.add(1); },
            un::MeanMetric{});
        trainer.evaluate( // a handle refers to the metric
            data, {},
            [](const Model&, const un::RowBatch<float>&, std::reference_wrapper<un::MeanMetric> loss) {
                loss.get().add(1);
            },
            un::MeanMetric{});
    }
#endif

#ifdef CASE_samples_unknown
    // expect: found a batch that does not say how many samples it has, with a weighing policy that declares `needs_samples`
    {
        TakesOpaque model;
        un::Trainer trainer{world, model, un::BySamples{}};
        trainer.step(Opaque{});
    }
#endif
}
