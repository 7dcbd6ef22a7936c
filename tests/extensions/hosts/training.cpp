// Training on hosts of several ranks has the bits of a single rank, for any ranks per host.
// ThreadSanitizer checks trainers on threads in tests/together/matrix, and this transport's threads
// in this room's other suites.
#include "../../support/sanitizers.hpp"

#ifndef UNISONO_TEST_THREAD_SANITIZER
#include "support.hpp"

#include "support/digits_training.hpp"
#include "support/split_training.hpp"

#include <unisono/extensions/reducers/hierarchical.hpp>
#include <unisono/reproducible.hpp>

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

namespace un = unisono;

BOOST_AUTO_TEST_SUITE(hosts_training)

BOOST_AUTO_TEST_CASE(the_bits_of_one_rank_alone) {
    const auto images = test::images();
    const un::Replicas replicas{.count = 4};
    const auto alone = test::trained<un::InProcess>(1, images, un::NativeReducer{}, replicas, un::Reproducible{});
    BOOST_TEST(alone.size() > 1000u);
    for (const int ranks : {2, 3, 4}) {
        for (const int per_host : {1, 2, 3}) { // in rank order; and in turns
            test::pretended_host = [=](int rank, int) { return per_host == 1 ? rank % 2 : rank / per_host; };
            const auto native =
                test::trained<test::PretendedHosts>(ranks, images, un::NativeReducer{}, replicas, un::Reproducible{});
            BOOST_TEST((native == alone), ranks << " ranks, " << per_host << " a host");
            const auto sharded =
                test::trained<test::PretendedHosts>(ranks, images, un::HierarchicalReducer{.chunk_bytes = 4096},
                                                    replicas, un::StateSharding{}, un::Reproducible{});
            BOOST_TEST((sharded == alone), ranks << " ranks, " << per_host << " a host, sharded");
        }
    }
    test::pretended_host = [](int rank, int) { return rank % 2; };
}

BOOST_AUTO_TEST_CASE(plain_sums_agree_on_all_ranks) { // `trained` verifies it
    const auto images = test::images();
    const auto ranks = test::trained<test::PretendedHosts>(4, images, un::NativeReducer{}, un::Accumulate{.steps = 2},
                                                           un::ClipByNorm{.max_norm = 1.0});
    const auto alone = test::trained<un::InProcess>(4, images, un::NativeReducer{}, un::Accumulate{.steps = 2},
                                                    un::ClipByNorm{.max_norm = 1.0});
    BOOST_TEST(ranks.size() == alone.size());
    float most = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) most = std::max(most, std::abs(ranks[i] - alone[i]));
    BOOST_TEST(most < 1e-3f);
}

BOOST_AUTO_TEST_CASE(layers_on_two_hosts_have_the_bits_of_one_rank) {
    const auto images = test::images();
    const auto bits = [&](auto transport, int data, int stages) {
        std::vector<std::uint64_t> found(static_cast<std::size_t>(data * stages));
        un::run<typename decltype(transport)::type>(data * stages, [&](auto& world) {
            found[static_cast<std::size_t>(world.rank())] = test::trained_in_parts(world, images, data, stages);
        });
        return found;
    };
    const std::uint64_t alone = bits(std::type_identity<un::InProcess>{}, 1, 1)[0];
    for (const bool pipeline_within : {true, false}) {
        test::pretended_host = [=](int rank, int) { return pipeline_within ? rank / 2 : rank % 2; };
        for (const std::uint64_t found : bits(std::type_identity<test::PretendedHosts>{}, 2, 2))
            BOOST_TEST(found == alone, (pipeline_within ? "the pipeline stays within a host" : "it crosses"));
    }
    // A host of three ranks and one of one.
    test::pretended_host = [](int rank, int) { return rank / 3; };
    for (const std::uint64_t found : bits(std::type_identity<test::PretendedHosts>{}, 1, 4)) BOOST_TEST(found == alone);
    test::pretended_host = [](int rank, int) { return rank % 2; };
}

/// One of three hosts with two ranks each has stages of both replicas. A sum within hosts first
/// would use another order for each.
BOOST_AUTO_TEST_CASE(replicas_of_layers_decide_alike_on_any_hosts) {
    test::pretended_host = [](int rank, int) { return rank / 2; };
    std::array<double, 6> sums = {};
    un::run<test::PretendedHosts>(6, [&](auto& world) {
        un::Mesh mesh{world, {{"data", 2}, {"pipeline", 3}}};
        un::PipelineModel model{mesh.axis("pipeline"), parallel_digits::layers(16, 5), parallel_digits::CrossEntropy{}};
        constexpr std::array<double, 3> of_stage = {1, 0x1p60, -0x1p60};
        std::array<double, 1> sum = {of_stage[static_cast<std::size_t>(mesh.coordinate("pipeline"))]};
        model.sum_over_parts(sum);
        sums[static_cast<std::size_t>(world.rank())] = sum[0];
    });
    for (const double sum : sums) BOOST_TEST(sum == 0); // in the order of the stages
    test::pretended_host = [](int rank, int) { return rank % 2; };
}

/// Of one stage, two ranks are on one host and one is on another. Of the other stage, it is the
/// reverse.
BOOST_AUTO_TEST_CASE(all_stages_report_the_same_loss) {
    const auto images = test::images();
    test::pretended_host = [](int rank, int) { return rank / 3; };
    std::array<std::vector<double>, 6> losses;
    un::run<test::PretendedHosts>(6, [&](auto& world) {
        un::Mesh mesh{world, {{"data", 3}, {"pipeline", 2}}};
        // A sum of three depends on their order.
        const double of_replica = 0.1 * (mesh.coordinate("data") + 1);
        const auto loss = [&](std::span<const float>, const auto&, std::span<float> gradients) {
            std::fill(gradients.begin(), gradients.end(), 1e-6f);
            return of_replica;
        };
        un::PipelineModel model{mesh.axis("pipeline"), parallel_digits::layers(16, 5), loss};
        un::Trainer trainer{mesh.axis("data"), model, un::Sgd{.learning_rate = 0.1}};
        trainer.fit(images.train.data(), {.epochs = 1, .batch_size = 8, .progress = false},
                    [&](const un::UpdateReport& report) {
                        losses[static_cast<std::size_t>(world.rank())].push_back(report.loss);
                    });
    });
    BOOST_TEST(losses[0].size() > 20u);
    for (const auto& of_rank : losses) BOOST_TEST((of_rank == losses[0]));
    test::pretended_host = [](int rank, int) { return rank % 2; };
}

BOOST_AUTO_TEST_SUITE_END()
#endif
