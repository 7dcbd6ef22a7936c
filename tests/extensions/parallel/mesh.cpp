// Named axes over a world: coordinates, groups, and refusals.
#include "../../base/trainer/models.hpp"
#include "network.hpp"

#include <unisono/extensions/parallel/mesh.hpp>

#include "support/refusal.hpp"

#include <boost/test/unit_test.hpp>

#include <numeric>
#include <set>

namespace un = unisono;
using test::Group;

namespace {

void check_refusal(int ranks, std::vector<un::MeshAxis> axes, const std::string& words) {
    const std::string found = test::refusal_of([&] { un::MeshShape(ranks, std::move(axes)); });
    BOOST_TEST(found.find(words) != std::string::npos, "found \"" << found << "\", expected \"" << words << "\"");
}

} // namespace

BOOST_AUTO_TEST_SUITE(mesh)

BOOST_AUTO_TEST_CASE(every_rank_has_a_place_of_its_own) {
    const un::MeshShape shape(24, {{"data", 2}, {"pipeline", 3}, {"tensor", 4}});
    std::set<std::vector<int>> places;
    for (int rank = 0; rank < 24; ++rank) {
        const std::vector<int> at = {shape.coordinate(rank, "data"), shape.coordinate(rank, "pipeline"),
                                     shape.coordinate(rank, "tensor")};
        places.insert(at);
        BOOST_TEST(rank == (at[0] * 3 + at[1]) * 4 + at[2]);
        BOOST_TEST(shape.place(rank, {"data", "tensor"}) == at[0] * 4 + at[2]);
    }
    BOOST_TEST(places.size() == 24u);
    BOOST_TEST(shape.stride("tensor") == 1);
    BOOST_TEST(shape.stride("data") == 12);
}

BOOST_AUTO_TEST_CASE(the_axis_with_the_most_traffic_varies_fastest) {
    const un::MeshShape shape(
        8,
        {{.name = "tensor", .size = 2, .traffic = 1e9}, {.name = "data", .size = 2, .traffic = 1e6}, {"pipeline", 0}});
    BOOST_TEST(shape.stride("tensor") == 1);
    BOOST_TEST(shape.stride("data") == 2);
    BOOST_TEST(shape.stride("pipeline") == 4);
    BOOST_TEST(shape.size("pipeline") == 2);
    BOOST_TEST(shape.within_hosts("tensor", 2));
    BOOST_TEST(!shape.within_hosts("data", 2));
    BOOST_TEST(shape.within_hosts("data", 4));
    BOOST_TEST(!shape.within_hosts("tensor", 3)); // ranks 2 and 3 are on different hosts
    BOOST_TEST(shape.describe(2) == "mesh: pipeline 2 (ranks 4 apart, across hosts) x data 2 (ranks 2 apart, across "
                                    "hosts) x tensor 2 (neighbours, within a host)");
}

BOOST_AUTO_TEST_CASE(what_makes_no_mesh_is_refused) {
    check_refusal(6, {{"data", 2}, {"pipeline", 2}}, "data 2 x pipeline 2 do not make up the world of 6 ranks");
    check_refusal(6, {{"data", 4}, {"pipeline", 0}}, "do not make up the world of 6 ranks");
    check_refusal(4, {{"data", 1 << 30}, {"a", 1 << 30}, {"b", 1 << 30}}, "do not make up the world of 4 ranks");
    check_refusal(4, {}, "found no axis");
    check_refusal(4, {{"data", 2}, {"data", 2}}, "two axes \"data\"");
    check_refusal(4, {{"", 4}}, "without a name");
    check_refusal(4, {{"data", -4}}, "has -4 ranks");
    check_refusal(4, {{"data", 0}, {"pipeline", 0}}, "at most one");
    try {
        static_cast<void>(un::MeshShape(1, {{"data", 1}}).size("model"));
        BOOST_TEST(false);
    } catch (const un::error& refused) {
        BOOST_TEST(refused.what() == "unisono: bad_input: Mesh: found no axis \"model\"; there are: data");
    }
}

BOOST_AUTO_TEST_CASE(groups_along_axes) {
    test::on_ranks(6, [&](Group& world, test::Findings& findings) {
        un::Mesh mesh{world, {{"data", 2}, {"pipeline", 3}}};
        const int data = world.rank() / 3, stage = world.rank() % 3;
        findings.expect(mesh.coordinate("data") == data && mesh.coordinate("pipeline") == stage, "coordinates");
        findings.expect(mesh.axis("data").size() == 2 && mesh.axis("data").rank() == data, "data");
        findings.expect(mesh.axis("pipeline").size() == 3 && mesh.axis("pipeline").rank() == stage, "pipeline");
        std::vector<int> sum{world.rank()};
        un::all_reduce(mesh.axis("pipeline"), sum);
        findings.expect(sum[0] == 9 * data + 3, "the sum along the pipeline");
        Group both = mesh.group({"data", "pipeline"});
        findings.expect(both.size() == 6 && both.rank() == world.rank(), "all axes");
    });
}

BOOST_AUTO_TEST_CASE(a_rank_with_other_axes_is_named_on_all) {
    test::Findings findings;
    const auto body = [&](Group& world) {
        try {
            un::Mesh mesh{world, {{world.rank() == 2 ? "model" : "data", 2}, {"pipeline", 2}}};
            findings.expect(false, "made a mesh");
        } catch (const un::error& refused) {
            findings.expect(refused.code() == un::ErrorCode::mismatch && refused.rank() == 2, refused.what());
        }
    };
    test::run(4, body, test::limit);
}

BOOST_AUTO_TEST_CASE(axes_that_make_no_mesh_on_one_rank_are_a_mismatch_on_all) {
    test::on_ranks(3, [&](Group& world, test::Findings& findings) {
        try {
            un::Mesh mesh{world, {{"data", world.rank() == 1 ? 2 : 3}}};
            findings.expect(false, "made a mesh");
        } catch (const un::error& refused) {
            findings.expect(refused.code() == un::ErrorCode::mismatch && refused.rank() == 1, refused.what());
        }
        try {
            un::Mesh mesh{world, {{"data", 2}}};
            findings.expect(false, "made a mesh");
        } catch (const un::error& refused) {
            findings.expect(refused.code() == un::ErrorCode::bad_input, refused.what());
        }
        try {
            un::Mesh mesh{world, {{"data", 3, world.rank() == 2 ? -1.0 : 1.0}}};
            findings.expect(false, "made a mesh of a negative traffic");
        } catch (const un::error& refused) {
            findings.expect(refused.code() == un::ErrorCode::mismatch && refused.rank() == 2, refused.what());
        }
        un::Mesh mesh{world, {{"data", 3}, {"tensor", 1}}}; // the world remains usable
        findings.expect(mesh.axis("data").size() == 3, "the axis");
        try {
            static_cast<void>(mesh.group({world.rank() == 1 ? "tensor" : "data"}));
            findings.expect(false, "made a group of other axes");
        } catch (const un::error& refused) {
            findings.expect(refused.code() == un::ErrorCode::mismatch && refused.rank() == 1, refused.what());
        }
        try {
            static_cast<void>(mesh.group({"dat"}));
            findings.expect(false, "made a group of no axis");
        } catch (const un::error& refused) {
            findings.expect(refused.code() == un::ErrorCode::bad_input, refused.what());
        }
        findings.expect(mesh.group({"data", "tensor"}).size() == 3, "a group");
    });
}

BOOST_AUTO_TEST_CASE(a_trainer_along_an_axis) {
    const std::vector<float> values = un::torch_rand(0, 24 * 5);
    using Weights = std::array<float, 5>;
    const auto train = [&](Group& world, Weights& found) {
        unisono_test::SumOfOutputs<float> model(5);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.01}};
        trainer.fit(un::RowData<float>(values, 5), {.epochs = 1, .batch_size = 4, .progress = false});
        std::copy(model.weights.begin(), model.weights.end(), found.begin());
    };
    Weights plain = {};
    test::run(
        2,
        [&](Group& world) {
            Weights found = {};
            train(world, found);
            if (world.rank() == 0) plain = found;
        },
        test::limit);
    test::on_ranks(4, [&](Group& world, test::Findings& findings) {
        un::Mesh mesh{world, {{"data", 2}, {"pipeline", 2}}};
        Weights found = {};
        train(mesh.axis("data"), found);
        findings.expect(found == plain, "other weights than those of two ranks");
    });
}

BOOST_AUTO_TEST_SUITE_END()
