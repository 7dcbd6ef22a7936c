// Policies that cannot be combined are refused with what was found, what is required, and why.
#include "unisono/accumulation/accumulation.hpp"
#include "unisono/extensions/compression/adasum.hpp"
#include "unisono/extensions/compression/cast.hpp"
#include "unisono/extensions/compression/gathered.hpp"
#include "unisono/extensions/compression/int8.hpp"
#include "unisono/extensions/compression/power_sgd.hpp"
#include "unisono/extensions/master_weights/master_weights.hpp"
#include "unisono/extensions/tcp/tcp.hpp"
#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/extensions/updates/gossip.hpp"
#include "unisono/extensions/updates/hogwild.hpp"
#include "unisono/guard/clipping.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/reducer/parameter_server.hpp"
#include "unisono/reducer/scheduled.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/trainer/trainer.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/update/averaging.hpp"

#include "models.hpp"

namespace un = unisono;

using Model = NumberModel;
struct PartOfModel : Model {
    void sum_over_parts(std::span<double>) {}
};
struct NoModel {};
struct Stranger {};

/// A user's policies, which the library does not know by name.
struct OwnedSharding {
    static constexpr std::string_view name = "owned";
    static constexpr un::Family family = un::Family::sharding;
    static constexpr bool gives_owners = true;
    friend bool operator==(const OwnedSharding&, const OwnedSharding&) = default;
    un::Owners owners(const un::BucketFacts& facts) const { return un::Owners::equal(facts.count, facts.world); }
};
struct SumOnlyReducer {
    static constexpr std::string_view name = "sum only";
    static constexpr un::Family family = un::Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = false;
    friend bool operator==(const SumOnlyReducer&, const SumOnlyReducer&) = default;
    template <class World>
    auto start(World&) const {
        return un::ScheduledReduction<un::NativeSchedule>{};
    }
};
struct HastyUpdate {
    static constexpr std::string_view name = "hasty";
    static constexpr un::Family family = un::Family::update;
    static constexpr bool agrees = false;
    friend bool operator==(const HastyUpdate&, const HastyUpdate&) = default;
    template <class Training>
    un::UpdateRun<Training> start(Training& training) const {
        return un::UpdateRun<Training>(training);
    }
};
struct NoRunUpdate {
    static constexpr std::string_view name = "no run";
    static constexpr un::Family family = un::Family::update;
    static constexpr bool agrees = true;
    friend bool operator==(const NoRunUpdate&, const NoRunUpdate&) = default;
};
/// Its ranks update on their own, but its run does not derive from LocalRun.
struct StrayUpdate : HastyUpdate {
    friend bool operator==(const StrayUpdate&, const StrayUpdate&) = default;
    template <class Training>
    struct Run : un::UpdateRun<Training> {
        using un::UpdateRun<Training>::UpdateRun;
        [[nodiscard]] static constexpr bool alone(std::uint64_t) { return true; }
    };
    template <class Training>
    Run<Training> start(Training& training) const {
        return Run<Training>(training);
    }
};
/// Its ranks are said to agree, and its run updates them one by one.
struct DisagreeingUpdate : un::Synchronous {
    friend bool operator==(const DisagreeingUpdate&, const DisagreeingUpdate&) = default;
    template <class Training>
    un::LocalRun<Training> start(Training& training) const {
        return un::LocalRun<Training>(training);
    }
};
/// Its ranks stop at different updates, which its run does not know.
struct ForgetfulUpdate : un::LocalSteps {
    static constexpr bool asynchronous = true;
    friend bool operator==(const ForgetfulUpdate&, const ForgetfulUpdate&) = default;
};
/// Its run has another spelling of `synchronise`.
struct MisspelledUpdate : HastyUpdate {
    friend bool operator==(const MisspelledUpdate&, const MisspelledUpdate&) = default;
    template <class Training>
    struct Run : un::LocalRun<Training> {
        using un::LocalRun<Training>::LocalRun;
        void synchronize() {}
    };
    template <class Training>
    Run<Training> start(Training& training) const {
        return Run<Training>(training);
    }
};
/// Its run does not say whether the ranks must synchronise.
struct SilentUpdate : HastyUpdate {
    friend bool operator==(const SilentUpdate&, const SilentUpdate&) = default;
    template <class Training>
    struct Run : un::LocalRun<Training> {
        using un::LocalRun<Training>::LocalRun;
        void after(un::Verdict) {}
        void synchronise() {}
    };
    template <class Training>
    Run<Training> start(Training& training) const {
        return Run<Training>(training);
    }
};
struct LayerwiseOptimizer : un::Sgd {
    static constexpr bool whole_parameters = true;
    friend bool operator==(const LayerwiseOptimizer&, const LayerwiseOptimizer&) = default;
};
struct HalfAGuard {
    static constexpr std::string_view name = "half";
    static constexpr un::Family family = un::Family::guard;
    friend bool operator==(const HalfAGuard&, const HalfAGuard&) = default;
};
struct Compressor {
    static constexpr std::string_view name = "compressor";
    static constexpr un::Family family = un::Family::compression;
    friend bool operator==(const Compressor&, const Compressor&) = default;
};
struct UnforgettingCompression : un::NoCompression {
    static constexpr std::string_view name = "unforgetting";
    static constexpr bool compresses = true;
    friend bool operator==(const UnforgettingCompression&, const UnforgettingCompression&) = default;
    struct Run {
        template <class T, class Reduction>
        void begin(std::size_t, T*, Reduction&) {}
        void finish() {}
        static std::size_t bytes() { return 0; }
    };
    template <class T, class World>
    Run start(World&, std::span<const un::Slice>) const {
        return {};
    }
};
struct StartlessCompression : un::NoCompression {
    static constexpr std::string_view name = "startless";
    static constexpr bool compresses = true;
    friend bool operator==(const StartlessCompression&, const StartlessCompression&) = default;
    template <class T, class World>
    Run start(World&) const {
        return {};
    }
};
struct MuteCompression : un::NoCompression {
    static constexpr std::string_view name = "mute";
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = true;
    friend bool operator==(const MuteCompression&, const MuteCompression&) = default;
    template <class T, class World>
    auto start(World& world, std::span<const un::Slice> buckets) const {
        return un::GatheredRun<MuteCompression, World, T>(*this, world, buckets);
    }
    static std::size_t message_bytes(std::size_t count) { return count; }
    template <class T>
    static void encode(std::span<T>, std::span<std::byte>) {}
};

template <class M, class... Policies>
void train(M& model, Policies... policies) {
    un::Group<un::InProcess> world;
    un::Trainer trainer{world, model, policies...};
    static_cast<void>(trainer);
}

int main() {
    [[maybe_unused]] Model model;

#ifdef CASE_good
    // expect-success
    train(model, un::Sgd{}, un::TreeReducer{}, un::Buckets{});
    train(model, HastyUpdate{}, un::NoGuard{}, un::ClipByValue{});
    train(model, OwnedSharding{}, un::RingReducer{});
    train(model, LayerwiseOptimizer{});
    train(model, SumOnlyReducer{});
    train(model, SumOnlyReducer{}, un::Reproducible{}, un::Replicas{3});
#endif

#ifdef CASE_stranger
    // expect: found an argument that is no policy
    // expect: Required: after the group and the model only policies
    // expect: Why: each argument fills the place of its family
    // expect: Stranger
    train(model, un::Sgd{}, Stranger{});
#endif

#ifdef CASE_two_reducers
    // expect: unisono::Trainer: found two reducers. Required: at most one. Why: each gradient is summed once.
    train(model, un::RingReducer{}, un::Sgd{}, un::TreeReducer{});
#endif

#ifdef CASE_two_numbers_of_replicas
    // expect: unisono::Trainer: found two policies of replicas. Required: at most one.
    train(model, un::Replicas{2}, un::Replicas{4});
#endif

#ifdef CASE_two_summations
    // expect: unisono::Trainer: found two policies of summation. Required: at most one.
    train(model, un::PlainSums{}, un::Reproducible{});
#endif

#ifdef CASE_sums_on_a_grid_without_agreement
    // expect: unisono::Trainer: found a summation that declares `reproducible`, with an update that does not declare `agrees`.
    // expect: Required: an update that does, for instance Synchronous.
    train(model, un::Reproducible{}, HastyUpdate{}, un::NoGuard{});
#endif

#ifdef CASE_scaling_without_a_guard
    // expect: found a loss scaling that declares `scales`, with a guard that does not declare `inspects`
    // expect: Required: a guard that does, for instance FiniteGuard, or reproducible sums.
    train(model, un::LossScaling{}, un::NoGuard{});
#endif

#ifdef CASE_two_clippings
    // expect: unisono::Trainer: found two clipping policies. Required: at most one.
    train(model, un::ClipByNorm{}, un::ClipByValue{});
#endif

#ifdef CASE_two_loss_scalings
    // expect: unisono::Trainer: found two loss scalings. Required: at most one.
    train(model, un::LossScaling{}, un::NoLossScaling{});
#endif

#ifdef CASE_master_weights_of_floats
    // expect: unisono::MasterWeights: found a model whose parameters are float or double. Required: bfloat16 or float16.
    un::MasterWeights master(model);
    static_cast<void>(master);
#endif

#ifdef CASE_the_same_twice
    // expect: unisono::Trainer: found two optimizers. Required: at most one.
    train(model, un::Sgd{}, un::Sgd{});
#endif

#ifdef CASE_two_samplers
    // expect: unisono::Trainer: found two samplers. Required: at most one.
    train(model, un::DistributedSampler{}, un::DistributedSampler{.shuffle = false});
#endif

#ifdef CASE_compression
    // expect: unisono::Trainer: the compression lacks what compression/compression.hpp asks of one: `compresses`, `own_exchange` and `check() const`
    train(model, Compressor{});
#endif

#ifdef CASE_run_of_a_compression
    // expect: unisono::Trainer: the compression's run lacks what compression/compression.hpp asks of one: begin(bucket, values, reduction), finish(), forget() and bytes()
    train(model, UnforgettingCompression{});
#endif

#ifdef CASE_order_that_is_not_drawn
    // expect: OrderedStream: the sampler lacks `void draw(Epoch, std::span<std::size_t> order) const`
    static_cast<void>(sizeof(un::OrderedStream<Stranger>));
#endif

#ifdef CASE_start_of_a_compression
    // expect: unisono::Trainer: the compression lacks what compression/compression.hpp asks of one: `template <class T, class World> ... start(World&, std::span<const Slice> buckets) const`
    train(model, StartlessCompression{});
#endif

#ifdef CASE_format_without_an_addition
    // expect: GatheredRun: the compression lacks message_bytes(count), encode(rest, message) or add(message, sum)
    train(model, MuteCompression{});
#endif

#ifdef CASE_no_model
    // expect: found a second argument that is no model: it has no parameters(). Required: parameters() and gradients()
    NoModel none;
    train(none);
#endif

#ifdef CASE_two_owners
    // expect: found a sharding and a reducer that both declare `gives_owners`. Required: at most one of them.
    // expect: Why: each slice of the parameters has one owner.
    train(model, OwnedSharding{}, un::ParameterServerReducer{});
#endif

#ifdef CASE_sums_do_not_reach_owners
    // expect: found a policy that declares `gives_owners`, with a reducer that does not declare `reduces_to_owners`
    // expect: Why: the sum of the gradients must arrive at the rank that updates the slice.
    train(model, OwnedSharding{}, SumOnlyReducer{});
#endif

#ifdef CASE_update_without_run
    // expect: unisono::Trainer: the update policy lacks what update/update.hpp asks of one: start(training) returns a run
    train(model, NoRunUpdate{});
#endif

#ifdef CASE_local_update_with_a_run_of_all
    // expect: unisono::Trainer: found an update that does not declare `agrees`, with a run that does. Required: a run that derives from LocalRun
    train(model, StrayUpdate{});
#endif

#ifdef CASE_update_of_all_with_a_local_run
    // expect: unisono::Trainer: found an update that declares `agrees`, with a run that does not. Required: a policy that does not declare it.
    train(model, DisagreeingUpdate{});
#endif

#ifdef CASE_asynchronous_update_without_its_run
    // expect: unisono::Trainer: found an update that declares `asynchronous`, with a run that does not derive from AsynchronousRun.
    train(model, ForgetfulUpdate{});
#endif

#ifdef CASE_run_that_never_synchronises
    // expect: unisono::Trainer: found an update whose ranks train on their own, with a run that does not replace `synchronise`. Required: `void synchronise()`.
    train(model, MisspelledUpdate{});
#endif

#ifdef CASE_run_that_does_not_say_when
    // expect: unisono::Trainer: the update's run lacks what update/update.hpp asks of one.
    // expect: run.after(verdict)
    train(model, SilentUpdate{});
#endif

#ifdef CASE_local_update_with_owners
    // expect: found an update that does not declare `agrees`, with a policy that declares `gives_owners`
    // expect: Why: between two synchronisations each rank updates all of its own copy.
    train(model, un::LocalSteps{}, un::ParameterServerReducer{});
#endif

#ifdef CASE_served_update_with_owners
    // expect: found an update that has servers, with a policy that declares `gives_owners`
    // expect: Why: the slices are owned by the servers that the update names
    train(model, un::Asynchronous{}, OwnedSharding{});
#endif

#ifdef CASE_served_update_with_reducer
    // expect: found a reducer, with an update that declares `asynchronous`. Required: no reducer.
    // expect: Why: each gradient goes to servers, or into common parameters, by itself, so the reducer would not be used.
    train(model, un::BoundedStaleness{}, un::RingReducer{});
#endif

#ifdef CASE_served_update_counts_tokens
    // expect: found an accumulation that declares `counts_tokens`, with an update that declares `asynchronous`
    // expect: Why: tokens are counted over all ranks, which would have to wait for each other.
    train(model, un::DelayCompensated{}, un::AccumulateTokens{.tokens = 10});
#endif

#ifdef CASE_served_update_with_a_norm
    // expect: found a clipping policy that declares `needs_agreement`, with an update that has servers
    // expect: Why: the norm is that of all ranks' gradient, so all ranks must compute it together.
    train(model, un::Asynchronous{}, un::ClipByNorm{.max_norm = 1});
#endif

#ifdef CASE_common_parameters_with_owners
    // expect: found an update that does not declare `agrees`, with a policy that declares `gives_owners`
    train(model, un::Hogwild{}, OwnedSharding{});
#endif

#ifdef CASE_common_parameters_with_reducer
    // expect: found a reducer, with an update that declares `asynchronous`. Required: no reducer.
    // expect: Why: each gradient goes to servers, or into common parameters, by itself, so the reducer would not be used.
    train(model, un::Hogwild{}, un::RingReducer{});
#endif

#ifdef CASE_common_parameters_with_compression
    // expect: found a compression that declares `compresses`, with an update that declares neither `agrees` nor `sums_buckets`.
    train(model, un::Hogwild{}, un::Bf16Wire{});
#endif

#ifdef CASE_gossip_with_compression
    // expect: found a compression that declares `compresses`, with an update that declares neither `agrees` nor `sums_buckets`.
    train(model, un::Gossip{}, un::Bf16Wire{});
#endif

#ifdef CASE_common_parameters_count_tokens
    // expect: found an accumulation that declares `counts_tokens`, with an update that declares `asynchronous`
    train(model, un::Hogwild{}, un::AccumulateTokens{.tokens = 10});
#endif

#ifdef CASE_common_parameters_reproducible
    // expect: found a summation that declares `reproducible`, with an update that does not declare `agrees`
    train(model, un::Hogwild{}, un::Reproducible{});
#endif

#ifdef CASE_common_parameters_over_sockets
    // expect: found an update that declares `shares_memory`, over a transport whose ranks do not see each other's memory
    // expect: Why: ranks update the parameters where they lie, by loads and stores.
    un::Group<un::Tcp> afar;
    un::Trainer trainer{afar, model, un::Hogwild{}};
#endif

#ifdef CASE_common_parameters_with_a_norm
    // expect-success
    train(model, un::Hogwild{}, un::ClipByNorm{.max_norm = 1});
#endif

#ifdef CASE_scaling_with_local_update
    // expect: found a loss scaling that declares `scales`, with an update that does not declare `agrees`
    train(model, un::LocalSteps{}, un::LossScaling{});
#endif

#ifdef CASE_compression_with_owners
    // expect: found a compression that declares `compresses` and not `sums_to_owners`, with a policy that declares `gives_owners`.
    // expect: or a compression that declares `sums_to_owners`, for instance Bf16Wire.
    train(model, un::PowerSgd{}, OwnedSharding{});
#endif

#ifdef CASE_compression_that_sums_to_owners
    // expect-success
    train(model, un::Bf16Wire{}, OwnedSharding{});
#endif

#ifdef CASE_compression_with_reproducible
    // expect: found a compression that declares `compresses`, with a summation that declares `reproducible`. Required: PlainSums
    train(model, un::Bf16Wire{}, un::Reproducible{});
#endif

#ifdef CASE_compression_of_local_updates
    // expect-success
    train(model, un::Bf16Wire{}, un::LocalSteps{});
#endif

#ifdef CASE_compression_with_servers
    // expect: found a compression that declares `compresses`, with an update that declares neither `agrees` nor `sums_buckets`.
    train(model, un::Bf16Wire{}, un::Asynchronous{});
#endif

#ifdef CASE_compression_ignores_reducer
    // expect: found a reducer, with a compression that declares `own_exchange`
    train(model, un::Int8Wire{}, un::RingReducer{});
#endif

#ifdef CASE_adasum_ignores_reducer
    // expect: found a reducer, with a compression that declares `own_exchange`
    train(model, un::Adasum{}, un::RingReducer{});
#endif

#ifdef CASE_power_sgd_with_owners
    // expect: found a compression that declares `compresses` and not `sums_to_owners`, with a policy that declares `gives_owners`.
    train(model, un::PowerSgd{}, un::ParameterServerReducer{});
#endif

#ifdef CASE_two_compressions
    // expect: found two compression policies. Required: at most one.
    train(model, un::Int8Wire{}, un::Bf16Wire{});
#endif

#ifdef CASE_parameters_cut
    // expect: found an optimizer that declares `whole_parameters`, with a policy that declares `gives_owners`
    // expect: Why: owners' slices may cut a parameter
    train(model, LayerwiseOptimizer{}, un::ParameterServerReducer{});
#endif

#ifdef CASE_half_a_guard
    // expect: the guard lacks what guard/guard.hpp asks of one: `inspects`, `needs_agreement`
    train(model, HalfAGuard{});
#endif

#ifdef CASE_part_of_a_model_on_grids
    // expect: found a model of which each rank has a part
    // expect: Why: grids are widened, and servers answer, group by group
    PartOfModel part;
    train(part, un::Reproducible{});
#endif
}
