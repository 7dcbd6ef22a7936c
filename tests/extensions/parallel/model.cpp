// Layers on ranks: any number of stages, with any schedule, has the bits of one. Also tests
// replicas, sharded or not, and failures.
#include "training.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

using namespace unisono_test;
using test::Group;

namespace {

template <class... Policies>
Trained<float> trained(const Training& how, const Policies&... policies) {
    test::Shared<Trained<float>> out;
    test::run(
        how.data * how.stages, [&](Group& world) { train<float>(world, how, *out, policies...); }, test::limit);
    return *out;
}

const un::Sgd sgd{.learning_rate = 0.05, .momentum = 0.9};
const un::Accumulate once{.steps = 1}, twice{.steps = 2};
constexpr AnySchedule gpipe{AnySchedule::gpipe}, interleaved{AnySchedule::interleaved, 2};

} // namespace

BOOST_AUTO_TEST_SUITE(pipeline_model)

/// Compares with the whole batch through all layers without a pipeline. Gradients are differences
/// of the loss.
BOOST_AUTO_TEST_CASE(its_gradient_is_that_of_its_loss) {
    test::on_ranks(2, [&](Group& world, test::Findings& findings) {
        const Samples<double> samples(9);
        un::PipelineModel model{world, layers<double>(false), Distance<double>{results}, un::GPipe{},
                                un::PipelineOptions{.micro_batches = 2}};
        std::vector<std::size_t> all(9);
        for (std::size_t i = 0; i < 9; ++i) all[i] = i;
        const auto batch = samples.data().batch(all);
        un::Pass pass;
        model(batch, pass);
        const auto gradients = model.gradients();
        std::vector<std::vector<double>> found;
        for (const auto one : gradients) found.emplace_back(one.begin(), one.end());
        // Every stage changes an element of its own, and back, while the others change none.
        for (int stage = 0; stage < 2; ++stage)
            for (const std::size_t p : {std::size_t{0}, std::size_t{2}})
                for (const std::size_t at : {std::size_t{1}, std::size_t{12}}) {
                    const bool mine = world.rank() == stage;
                    double* const value = mine ? &model.parameters()[p][at] : nullptr;
                    std::array<double, 2> losses = {};
                    for (const int side : {0, 1}) {
                        const double before = mine ? *value : 0;
                        if (mine) *value += side == 0 ? 1e-5 : -1e-5;
                        losses[static_cast<std::size_t>(side)] = model(batch, pass);
                        if (mine) *value = before;
                    }
                    if (mine)
                        findings.expect(std::abs((losses[0] - losses[1]) / 2e-5 - found[p][at]) < 1e-8,
                                        "gradient of stage " + std::to_string(stage));
                }
    });
}

BOOST_AUTO_TEST_CASE(any_number_of_stages_by_any_schedule_has_the_bits_of_one) {
    const Trained<float> one = trained({.schedule = gpipe}, sgd, once);
    BOOST_TEST(one.loss > 0.1);
    for (const int stages : {1, 2, 3, 4, 8})
        for (const bool recompute : {false, true}) {
            BOOST_TEST_CONTEXT(stages << " stages, " << recompute) {
                BOOST_TEST((trained({.stages = stages, .schedule = gpipe, .recompute = recompute}, sgd, once) == one));
                BOOST_TEST((trained({.stages = stages, .recompute = recompute}, sgd, once) == one));
                if (stages > 4) continue;
                BOOST_TEST(
                    (trained({.stages = stages, .schedule = interleaved, .recompute = recompute}, sgd, once) == one));
            }
        }
}

BOOST_AUTO_TEST_CASE(one_stage_with_several_chunks_has_the_bits_of_one_chunk) {
    const Trained<float> one = trained({.schedule = gpipe}, sgd, once);
    for (const std::uint32_t chunks : {2u, 3u, 5u, 7u})
        for (const bool recompute : {false, true})
            BOOST_TEST(
                (trained({.schedule = {AnySchedule::interleaved, chunks}, .recompute = recompute}, sgd, once) == one),
                chunks << " chunks, " << recompute);
}

/// A prediction's batch enlarges the memory of activations. The next training enlarges that of
/// gradients.
BOOST_AUTO_TEST_CASE(a_larger_prediction_lies_between_two_trainings) {
    test::on_ranks(2, [&](Group& world, test::Findings& findings) {
        const auto made = [&] {
            return un::PipelineModel{world, layers<float>(false), Distance<float>{results}, un::OneForwardOneBackward{},
                                     un::PipelineOptions{.micro_batches = 2, .placement = even_placement(2)}};
        };
        const Samples<float> samples(400);
        const auto batch = [&](std::size_t count) {
            std::vector<std::size_t> all(count);
            for (std::size_t i = 0; i < count; ++i) all[i] = i;
            return samples.data().batch(all);
        };
        auto model = made(), fresh = made();
        un::Pass pass, other;
        model(batch(2), pass);
        static_cast<void>(model.predict(batch(400)));
        for (const auto one : model.gradients()) std::fill(one.begin(), one.end(), 0.0f);
        const double loss = model(batch(400), pass);
        findings.expect(loss == fresh(batch(400), other), "the loss is another");
        for (std::size_t p = 0; p < fresh.gradients().size(); ++p)
            findings.expect(std::ranges::equal(model.gradients()[p], fresh.gradients()[p]), "a gradient is another");
        findings.expect(model.memory() == fresh.memory(), "it has more memory than it needs");
    });
}

/// As in WithLoss: a loss may leave out samples.
BOOST_AUTO_TEST_CASE(the_loss_finds_a_gradient_of_zeros) {
    test::on_ranks(2, [&](Group& world, test::Findings& findings) {
        const auto loss = [&](std::span<const float>, const auto&, std::span<float> gradients) {
            for (float& one : gradients) {
                findings.expect(one == 0, "it is not zero");
                one = 1;
            }
            return 0.0;
        };
        un::PipelineModel model{world, layers<float>(), loss};
        const Samples<float> samples(12);
        const std::vector<std::size_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
        for (int i = 0; i < 2; ++i) {
            un::Pass pass;
            model(samples.data().batch(all), pass);
        }
    });
}

BOOST_AUTO_TEST_CASE(on_processes_too) {
    const Trained<float> one = trained({}, sgd, once);
    const OnProcesses processes;
    for (const int stages : {2, 4, 8}) BOOST_TEST((trained({.stages = stages}, sgd, once) == one));
    BOOST_TEST((trained({.stages = 3, .schedule = interleaved}, sgd, once) == one));
    BOOST_TEST((trained({.data = 2, .stages = 2, .batch = 6}, sgd, once, un::StateSharding{}) ==
                trained({.data = 2, .batch = 6}, sgd, once)));
}

BOOST_AUTO_TEST_CASE(micro_batches_that_do_not_come_out_even) {
    const Trained<float> one = trained({.schedule = gpipe, .micro_batches = 5}, sgd, once);
    for (const int stages : {2, 3})
        for (const AnySchedule& schedule : {AnySchedule{}, interleaved})
            BOOST_TEST((trained({.stages = stages, .schedule = schedule, .micro_batches = 5}, sgd, once) == one));
}

BOOST_AUTO_TEST_CASE(beside_replicas_sharded_and_accumulated) {
    const Trained<float> plain = trained({.data = 2, .batch = 4}, sgd, twice);
    for (const int stages : {2, 4}) {
        const Training how{.data = 2, .stages = stages, .batch = 4};
        BOOST_TEST((trained(how, sgd, twice) == plain), stages << " stages");
        BOOST_TEST((trained(how, sgd, twice, un::StateSharding{}) == plain), stages << " stages, sharded");
    }
}

BOOST_AUTO_TEST_CASE(the_norm_is_that_of_the_whole_model) {
    const un::ClipByNorm clip{.max_norm = 0.05};
    const Trained<float> one = trained({}, sgd, clip), split = trained({.stages = 4}, sgd, clip);
    const Trained<float> unclipped = trained({}, sgd, once);
    float most = 0, changed = 0;
    for (std::size_t i = 0; i < parameter_count; ++i) {
        most = std::max(most, std::abs(split.weights[i] - one.weights[i]));
        changed = std::max(changed, std::abs(unclipped.weights[i] - one.weights[i]));
    }
    BOOST_TEST(most < 1e-6f);
    BOOST_TEST(changed > 1e-3f); // it was clipped
}

BOOST_AUTO_TEST_SUITE_END()
