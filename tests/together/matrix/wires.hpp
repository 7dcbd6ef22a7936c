// Wire formats of gradients, with policies of the other families: they come close to the result of
// plain sums, with the same bits on all ranks. A format that may not be combined with a policy is
// counted, with the reason.
#pragma once

#include "matrix.hpp"

#include "support/owners_or_all.hpp"
#include "unisono/automatic.hpp"
#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/extensions/updates/hogwild.hpp"
#include "unisono/extensions/updates/streaming_diloco.hpp"
#include "unisono/trainer/reproducible.hpp"

namespace unisono_matrix {

inline constexpr un::Sgd momentum = {.learning_rate = 0.1, .momentum = 0.8};

/// `within`: the greatest distance of a weight from that of the serial loop, relative to the
/// largest. What compression leaves over is still to come.
template <class Wire, class Update, class Sampler, class Accumulation, class Weighing, class Optimizer, class Clipping,
          class... Others>
void check_wire(double within, const Wire& wire, const Update& update, const Sampler& sampler,
                const Accumulation& accumulation, const Weighing& weighing, const Optimizer& optimizer,
                const Clipping& clipping, const Others&... others) {
    ++counts().ran;
    for (const World& tried : worlds()) {
        const int ranks = tried.ranks;
        test::any_on_processes = tried.processes;
        const test::Shared<Results> results;
        const auto all = unisono_test::outcomes(ranks, [&](auto& world) {
            train(world, *results, update, wire, sampler, accumulation, weighing, optimizer,
                  un::Buckets{.first_bytes = 1, .bytes = 24}, clipping, others...);
        });
        BOOST_TEST_CONTEXT(ranks << (tried.processes ? " processes: " : " threads: ") << Wire::name << ", "
                                 << Update::name << ", " << Optimizer::name << ", " << Sampler::name << ", "
                                 << Accumulation::name) {
            for (const auto& outcome : all) BOOST_TEST(!outcome.failed, outcome.what);
            const std::uint64_t updates = results->at(0).updates;
            BOOST_TEST(updates > 0u);
            const auto expected = serial(ranks, update, sampler, accumulation, weighing, optimizer, un::ConstantRate{},
                                         clipping, updates);
            double largest = 0, off = 0;
            for (std::size_t j = 0; j < columns; ++j) {
                largest = std::max(largest, std::abs(expected[j]));
                off = std::max(off, std::abs(results->at(0).weights[j] - expected[j]));
            }
            BOOST_TEST(off <= (ranks == 1 ? 1e-11 : within) * largest,
                       "a weight is off by " << off << " of " << largest);
            for (int rank = 0; rank < ranks; ++rank)
                BOOST_TEST(results->at(static_cast<std::size_t>(rank)).weights == results->at(0).weights,
                           boost::test_tools::per_element());
        }
    }
}

template <class Wire, class Reducer, bool ReducerGiven, class Update, class Sharding, class Summation = un::PlainSums>
void count_if_refused() {
    // If no reducer is given, one more default.
    using Other = std::conditional_t<ReducerGiven, Reducer, un::FiniteGuard>;
    constexpr std::string_view refusal =
        un::refusal<un::Group<un::InProcess>, ModelFor<Sharding>, Wire, Other, Update, Sharding, Summation>;
    if constexpr (!refusal.empty()) ++counts().refused[std::string(refusal)];
}

/// The policies that each format may not be combined with. Others that are not tried above are
/// tested with the reducer and the update.
template <class Wire>
void count_refused() {
    const int before = counts().ran;
    const auto with_update = [&]<class Update>(const Update&) {
        count_if_refused<Wire, un::NativeReducer, false, Update, un::Replicated>();
    };
    with_update(un::Asynchronous{});
    with_update(un::BoundedStaleness{});
    with_update(un::DelayCompensated{});
    with_update(un::Hogwild{});
    with_update(un::Gossip{});
    with_update(un::StreamingDiloco<>{});
    const auto with_sharding = [&]<class Sharding>(const Sharding&) {
        count_if_refused<Wire, un::NativeReducer, false, un::Synchronous, Sharding>();
    };
    with_sharding(EqualShards{});
    with_sharding(un::StateSharding{});
    with_sharding(test::OwnersOrAll{.sharded = true});
    with_sharding(un::GradientSharding{});
    with_sharding(un::ParameterSharding{});
    const auto with_reducer = [&]<class Reducer>(const Reducer&) {
        count_if_refused<Wire, Reducer, true, un::Synchronous, un::Replicated>();
    };
    with_reducer(un::RingReducer{});
    with_reducer(un::TreeReducer{});
    with_reducer(un::HalvingDoublingReducer{});
    with_reducer(un::AutomaticReducer{});
    with_reducer(un::ParameterServerReducer{});
    count_if_refused<Wire, un::NativeReducer, false, un::Synchronous, un::Replicated, un::Reproducible>();
    BOOST_TEST(counts().ran == before);
}

} // namespace unisono_matrix
