// Data and batches with which a model cannot be called are refused at the call, in the model's
// terms. ../mistakes/compiled has the usual ones.
#include "unisono/checkpoint/checkpoints.hpp"
#include "unisono/compression/one_bit.hpp"
#include "unisono/sharding/state.hpp"
#include "unisono/trainer/full_batch.hpp"
#include "unisono/trainer/trainer.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/update/asynchronous.hpp"
#include "unisono/update/local_steps.hpp"

#include "models.hpp"

#include <vector>

namespace un = unisono;

using Model = RowModel;
struct Opaque {};
struct TakesOpaque : Model {
    double operator()(const Opaque&, un::Pass&) { return 0; }
};

int main() {
    un::Group<un::InProcess> world;
    std::vector<float> values(8);
    un::RowData<float> data(values, 2);
    un::RowData<double> doubles{std::span<const double>(), 2};

// case: checkpoint_of_compressed_local_updates
// expect: unisono::Checkpoints: found a trainer whose update does not declare `agrees`, with a compression that declares `compresses`. Required: no compression.
#ifdef CASE_checkpoint_of_compressed_local_updates
    {
        Model local;
        un::Trainer drifting{world, local, un::LocalSteps{}, un::OneBit{}};
        un::Checkpoints("folder").save(drifting);
    }
#endif

// case: objective_with_owners
// expect: unisono::FullBatch: found a policy that declares `gives_owners`
#ifdef CASE_objective_with_owners
    {
        Model whole;
        un::FullBatch objective{world, whole, data, {}, un::StateSharding{}};
    }
#endif

// case: objective_of_local_updates
// expect: unisono::FullBatch: found an update that does not declare `agrees`
#ifdef CASE_objective_of_local_updates
    {
        Model whole;
        un::FullBatch objective{world, whole, data, {}, un::LocalSteps{}};
    }
#endif

// case: objective_of_compressed_sums
// expect: unisono::FullBatch: found a compression that declares `compresses`. Required: no compression.
#ifdef CASE_objective_of_compressed_sums
    {
        Model whole;
        un::FullBatch objective{world, whole, data, {}, un::OneBit{}};
    }
#endif

// case: objective_of_a_part
// expect: unisono::FullBatch: found a model of which each rank has a part
#ifdef CASE_objective_of_a_part
    {
        struct Stage : Model {
            void sum_over_parts(std::span<double>) {}
        } stage;
        un::FullBatch objective{world, stage, data, {}};
    }
#endif

// case: checkpoint_of_served_updates
// expect: unisono::Checkpoints: found a trainer whose update has servers
#ifdef CASE_checkpoint_of_served_updates
    {
        Model served;
        un::Trainer stale{world, served, un::Asynchronous{}};
        un::Checkpoints("folder").save(stale);
    }
#endif

// case: checkpoint_of_a_part_with_buffers
// expect: unisono::Checkpoints: found a model of which each rank has a part, with buffers(). Required: a model without
#ifdef CASE_checkpoint_of_a_part_with_buffers
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

// case: good
// expect-success
#ifdef CASE_good
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

// case: wrong_batch
// expect: the model cannot be called with this batch. Required: model(batch, pass) that adds the gradient of a `const Batch&` (this data set's batches)
// expect: unisono::WithLoss
#ifdef CASE_wrong_batch
    {
        Model model;
        un::Trainer trainer{world, model};
        trainer.fit(doubles, {.batch_size = 2});
    }
#endif

// case: wrong_step
// expect: the model cannot be called with this batch
#ifdef CASE_wrong_step
    {
        Model model;
        un::Trainer trainer{world, model};
        trainer.step(3.0);
    }
#endif

// case: samples_unknown
// expect: found a batch that does not say how many samples it has, with a weighing policy that declares `needs_samples`
#ifdef CASE_samples_unknown
    {
        TakesOpaque model;
        un::Trainer trainer{world, model, un::BySamples{}};
        trainer.step(Opaque{});
    }
#endif
}
