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

#ifdef CASE_good
    // expect-success
    train(model, un::Replicas{4});
#endif

#ifdef CASE_no_replicas
    // expect: found an elastic world, with replicas that do not declare `logical`. Required: Replicas{.count = L}
    // expect: Why: an update's batch must stay the same when ranks are lost
    train(model, un::Sgd{});
#endif

#ifdef CASE_sharded
    // expect: found an elastic world, with a policy that declares `gives_owners` or `may_give_owners`, and no Snapshots
    // expect: Required: Snapshots{.every = 16}, which keeps each slice's state on a second rank
    // expect: Why: the optimizer's state of a lost rank's slices would be lost
    train(model, un::Replicas{4}, un::StateSharding{});
#endif

#ifdef CASE_sharded_with_snapshots
    // expect-success
    train(model, un::Replicas{4}, un::StateSharding{}, un::Snapshots{});
#endif

#ifdef CASE_snapshots_twice
    // expect: found two policies of snapshots. Required: at most one
    train(model, un::Replicas{4}, un::StateSharding{}, un::Snapshots{}, un::Snapshots{.every = 2});
#endif

#ifdef CASE_local_steps
    // expect: found an elastic world, with an update that does not declare `agrees`
    // expect: Why: a lost rank's updates since the last synchronisation would be lost
    train(model, un::Replicas{4}, un::LocalSteps{.steps = 2});
#endif

#ifdef CASE_compressed
    // expect: found an elastic world, with a compression that declares `compresses`
    train(model, un::Replicas{4}, un::Bf16Wire{});
#endif

#ifdef CASE_buffers
    // expect: found an elastic world, with a model that has buffers()
    train(other, un::Replicas{4});
#endif

#ifdef CASE_interleaved
    // expect: found an elastic world, with a sampler that declares `fixes_hosting`
    // expect: Why: the remaining ranks host a lost rank's replicas
    train(model, un::Replicas{4}, un::InterleavedSampler{});
#endif

#ifdef CASE_threads
    // expect: unisono::join: found Elastic of a transport that is not made by a control plane
    // expect: Why: the threads of InProcess die together
    un::join<un::Elastic<un::InProcess>>();
#endif
}
