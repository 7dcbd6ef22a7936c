// State that an elastic world cannot keep when a rank is lost is refused with the reason.
#include "unisono/elastic.hpp"
#include "unisono/extensions/compression/cast.hpp"
#include "unisono/sampler/samplers.hpp"
#include "unisono/sharding/sharding.hpp"
#include "unisono/tcp.hpp"
#include "unisono/update/averaging.hpp"

#include "models.hpp"

namespace un = unisono;

using Model = NumberModel;
struct WithBuffers : Model {
    float mean = 0;
    std::span<float> buffers() { return {&mean, 1}; }
};

template <class M, class... Policies>
void train(M& model, Policies... policies) {
    auto world = un::join<un::Elastic<un::Tcp>>();
    un::Trainer trainer{world, model, policies...};
    trainer.step(1);
}

int main() {
    [[maybe_unused]] Model model;
    [[maybe_unused]] WithBuffers other;

// case: good
// expect-success
#ifdef CASE_good
    train(model, un::Replicas{4});
#endif

// case: no_replicas
// expect: found an elastic world, with replicas that do not declare `logical`. Required: Replicas{.count = L}
// expect: Why: an update's batch must stay the same when ranks are lost
#ifdef CASE_no_replicas
    train(model, un::Sgd{});
#endif

// case: sharded
// expect: found an elastic world, with a policy that declares `gives_owners` or `may_give_owners`, and no Snapshots
// expect: Required: Snapshots{.every = 16}, which keeps each slice's state on a second rank
// expect: Why: the optimizer's state of a lost rank's slices would be lost
#ifdef CASE_sharded
    train(model, un::Replicas{4}, un::StateSharding{});
#endif

// case: sharded_with_snapshots
// expect-success
#ifdef CASE_sharded_with_snapshots
    train(model, un::Replicas{4}, un::StateSharding{}, un::Snapshots{});
#endif

// case: snapshots_twice
// expect: found two policies of snapshots. Required: at most one
#ifdef CASE_snapshots_twice
    train(model, un::Replicas{4}, un::StateSharding{}, un::Snapshots{}, un::Snapshots{.every = 2});
#endif

// case: local_steps
// expect: found an elastic world, with an update that does not declare `agrees`
// expect: Why: a lost rank's updates since the last synchronisation would be lost
#ifdef CASE_local_steps
    train(model, un::Replicas{4}, un::LocalSteps{.steps = 2});
#endif

// case: compressed
// expect: found an elastic world, with a compression that declares `compresses`
#ifdef CASE_compressed
    train(model, un::Replicas{4}, un::Bf16Wire{});
#endif

// case: buffers
// expect: found an elastic world, with a model that has buffers()
#ifdef CASE_buffers
    train(other, un::Replicas{4});
#endif

// case: interleaved
// expect: found an elastic world, with a sampler that declares `fixes_hosting`
// expect: Why: the remaining ranks host a lost rank's replicas
#ifdef CASE_interleaved
    train(model, un::Replicas{4}, un::InterleavedSampler{});
#endif

// case: threads
// expect: unisono::join: found Elastic of a transport that is not made by a control plane
// expect: Why: the threads of InProcess die together
#ifdef CASE_threads
    un::join<un::Elastic<un::InProcess>>();
#endif
}
