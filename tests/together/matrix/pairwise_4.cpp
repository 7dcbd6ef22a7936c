#include "../../../examples/own_policies/decoupled_averaging.hpp"
#include "../../../examples/own_policies/length_grouped.hpp"
#include "../../../examples/own_policies/two_way_ring.hpp"
#include "../../../examples/own_policies/whole_buckets.hpp"
#include "../../../examples/own_update/elastic_averaging.hpp"
#include "pairwise.hpp"

#include "unisono/extensions/updates/streaming_diloco.hpp"

namespace unisono_matrix {

/// Each rank is drawn towards the common centre, and the centre towards the ranks.
template <>
struct Meetings<ElasticAveraging> {
    explicit Meetings(const ElasticAveraging& policy) : update(policy) {}
    static bool alone(std::uint64_t) { return true; }
    template <class Copies>
    void depart(const Copies& copies) {
        if (own == 0) centre = copies[0].weights;
    }
    template <class Copies>
    void after(Copies& copies) {
        if (++own % update.steps == 0) draw(copies);
    }
    template <class Copies>
    void meet(Copies& copies) {
        if (own == 0) return;
        own = 0;
        draw(copies);
        for (auto& copy : copies) copy.weights = centre;
    }
    template <class Copies>
    void draw(Copies& copies) {
        std::vector<double> distances(columns);
        for (auto& copy : copies)
            for (std::size_t j = 0; j < columns; ++j) {
                const double distance = copy.weights[j] - centre[j];
                copy.weights[j] -= update.strength * distance;
                distances[j] += distance;
            }
        for (std::size_t j = 0; j < columns; ++j) centre[j] += update.strength * distances[j];
    }
    ElasticAveraging update;
    std::uint64_t own = 0;
    std::vector<double> centre;
};

/// Each rank keeps what the others sent, and its own parameters of that time.
template <>
struct Meetings<DecoupledAveraging> {
    explicit Meetings(const DecoupledAveraging& policy) : update(policy) {}
    static bool alone(std::uint64_t) { return true; }
    template <class Copies>
    void depart(const Copies& copies) {
        if (own == 0) send(copies);
    }
    template <class Copies>
    void after(Copies& copies) {
        if (++own % update.steps == 0) receive(copies), send(copies);
    }
    template <class Copies>
    void meet(Copies& copies) {
        if (own == 0) return;
        receive(copies), send(copies), receive(copies);
        own = 0;
    }
    template <class Copies>
    void send(const Copies& copies) {
        sent.clear();
        for (const auto& copy : copies) sent.push_back(copy.weights);
    }
    template <class Copies>
    void receive(Copies& copies) const {
        for (std::size_t j = 0; j < columns; ++j) {
            double sum = 0;
            for (const auto& weights : sent) sum += weights[j];
            for (std::size_t rank = 0; rank < copies.size(); ++rank)
                copies[rank].weights[j] += sum / static_cast<double>(copies.size()) - sent[rank][j];
        }
    }
    DecoupledAveraging update;
    std::uint64_t own = 0;
    std::vector<std::vector<double>> sent;
};

} // namespace unisono_matrix

BOOST_AUTO_TEST_CASE(pairwise_4) { unisono_matrix::check_rows<22>(std::make_index_sequence<5>{}); }

BOOST_AUTO_TEST_CASE(streaming) {
    using namespace unisono_matrix;
    check(un::TreeReducer{}, un::StreamingDiloco<>{.steps = 3, .fragments = 1, .overlap = 0, .mix = 0, .warm_up = 1},
          un::Replicated{}, un::FiniteGuard{}, un::Adam{.learning_rate = 0.02},
          un::InterleavedSampler{.replicas = 2, .seed = 7}, un::NoAccumulation{}, un::ByTokens{},
          un::CosineRate{.final_factor = 0.1}, un::PlainSums{}, un::ClipByNorm{.max_norm = 0.3});
    check(un::ParameterServerReducer{}, un::StreamingDiloco<>{}, un::Replicated{}, un::FiniteGuard{}, un::Sgd{},
          un::DistributedSampler{}, un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
    check(un::NativeReducer{}, un::StreamingDiloco<>{}, un::StateSharding{}, un::FiniteGuard{}, un::Sgd{},
          un::DistributedSampler{}, un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
}

/// Of the example, in no list of the library.
BOOST_AUTO_TEST_CASE(own_update) {
    using namespace unisono_matrix;
    check(un::TreeReducer{}, ElasticAveraging{.steps = 3, .strength = 0.15}, un::Replicated{}, un::FiniteGuard{},
          un::Adam{.learning_rate = 0.02}, un::InterleavedSampler{.replicas = 2, .seed = 7},
          un::Accumulate{.steps = 2, .short_window = un::ShortWindow::drop}, un::ByTokens{},
          un::CosineRate{.final_factor = 0.1}, un::PlainSums{}, un::ClipByNorm{.max_norm = 0.3});
    check(un::NativeReducer{}, ElasticAveraging{.steps = 2, .strength = 0.1}, un::StateSharding{}, un::FiniteGuard{},
          un::Sgd{}, un::DistributedSampler{}, un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
}

/// Of another example: a sampler, a reducer, an update and a sharding.
BOOST_AUTO_TEST_CASE(own_policies) {
    using namespace unisono_matrix;
    LengthGroupedSampler by_length{.window = 8, .seed = 9};
    for (std::uint32_t i = 0; i < samples; ++i) by_length.lengths.push_back(i * i % 7);
    check(TwoWayRingReducer{}, DecoupledAveraging{.steps = 3}, un::Replicated{}, un::FiniteGuard{},
          un::Adam{.learning_rate = 0.02}, by_length, un::Accumulate{.steps = 2, .short_window = un::ShortWindow::drop},
          un::ByTokens{}, un::CosineRate{.final_factor = 0.1}, un::PlainSums{}, un::ClipByNorm{.max_norm = 0.3});
    check(un::NativeReducer{}, DecoupledAveraging{}, un::StateSharding{}, un::FiniteGuard{}, un::Sgd{}, by_length,
          un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{});
    check(un::NativeReducer{}, un::Synchronous{}, WholeBuckets{}, un::FiniteGuard{}, un::Adam{.learning_rate = 0.02},
          by_length, un::NoAccumulation{}, un::BySamples{}, un::ConstantRate{}, un::PlainSums{},
          un::ClipByNorm{.max_norm = 0.3});
    check(TwoWayRingReducer{}, un::Synchronous{}, WholeBuckets{}, un::NoGuard{}, un::Sgd{.momentum = 0.9},
          un::InterleavedSampler{.replicas = 2, .seed = 7}, un::Accumulate{.steps = 2}, un::ByTokens{},
          un::CosineRate{.final_factor = 0.1});
}
