// One update at a time: what crosses the bus, what a guard finds, and what is left after an error.
#include "on_device.hpp"

#include "trainer/models.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

using Model = unisono_test::LeastSquares<float>;
constexpr std::size_t columns = 6;

un::RowBatch<float, float> batch(int number) {
    un::RowBatch<float, float> made;
    made.width = columns;
    for (std::size_t i = 0; i < 4 * columns; ++i)
        made.values.push_back(static_cast<float>((static_cast<std::size_t>(number) * 7 + i * 3) % 11) / 8);
    made.labels = {1, 0, 2, 1};
    return made;
}

/// Says that its last parameter is ready, and goes on only when that was summed.
struct Waits : Model {
    int rank;
    std::atomic<bool>& travelled;
    Waits(int of, std::atomic<bool>& when) : Model(columns, 2), rank(of), travelled(when) {}

    double operator()(const un::RowBatch<float, float>& one, un::Pass& pass) {
        const double loss = Model::operator()(one, pass);
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        pass.ready(2);
        while (!travelled && std::chrono::steady_clock::now() < until) {
            pass.progress();
            if (rank != 0) continue;
            for (const std::string& call : stand_in::take_calls()) travelled = travelled || call == "all_reduce";
        }
        pass.ready(1);
        pass.ready(0);
        return loss;
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(device_step)

BOOST_AUTO_TEST_CASE(nothing_but_scalars_crosses_the_bus) {
    const test::Clean clean;
    constexpr int ranks = 2;
    constexpr std::size_t updates = 5;
    std::size_t to_host = 0, to_device = 0;
    un::run<un::Nccl>(ranks, [&](auto& world) {
        Model network(columns, 2);
        test::OnDevice model(world, network);
        un::Trainer trainer{world, model, un::AdamW{.learning_rate = 0.1}, un::Accumulate{.steps = 2}};
        trainer.step(batch(world.rank()), batch(world.rank() + 2));
        un::barrier(world);
        const stand_in::Counts before = stand_in::counts();
        un::barrier(world);
        for (std::size_t i = 0; i < updates; ++i) trainer.step(batch(world.rank()), batch(world.rank() + 2));
        un::barrier(world);
        if (world.rank() == 0) {
            to_host = stand_in::counts().bytes_to_host - before.bytes_to_host;
            to_device = stand_in::counts().bytes_to_device - before.bytes_to_device;
        }
        un::barrier(world);
    });
    BOOST_TEST(to_host == ranks * updates * 8); // where the guard found something, if it did
    BOOST_TEST(to_device == 0u);
}

BOOST_AUTO_TEST_CASE(buckets_travel_while_the_model_computes) {
    const test::Clean clean;
    std::atomic<bool> travelled = false;
    static_cast<void>(stand_in::take_calls());
    un::run<un::Nccl>(2, [&](auto& world) {
        Waits network(world.rank(), travelled);
        test::OnDevice model(world, network);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, un::Buckets{.first_bytes = 1, .bytes = 8}};
        trainer.step(batch(world.rank()));
        trainer.verify_replicas();
    });
    BOOST_TEST(travelled);
}

BOOST_AUTO_TEST_CASE(a_guard_names_rank_and_parameter) {
    const test::Clean clean;
    std::array<std::string, 2> said;
    std::array<bool, 2> unchanged = {}, goes_on = {};
    un::run<un::Nccl>(2, [&](auto& world) {
        const auto mine = static_cast<std::size_t>(world.rank());
        Model network(columns, 2);
        test::OnDevice model(world, network);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}};
        trainer.step(batch(world.rank()));
        const std::vector<float> before = model.values();
        auto bad = batch(world.rank());
        if (world.rank() == 1) bad.values[3] = std::numeric_limits<float>::infinity();
        bad.labels[0] = 0;
        try { // of parameters 0 to 2 the first, and before the loss
            trainer.step(bad);
        } catch (const un::error& found) {
            said[mine] = found.what();
        }
        unchanged[mine] = model.values() == before && trainer.updates() == 1;
        goes_on[mine] = trainer.step(batch(world.rank())).committed;
        trainer.verify_replicas();
    });
    BOOST_TEST((unchanged[0] && unchanged[1]));
    BOOST_TEST((goes_on[0] && goes_on[1]));
    for (const std::string& one : said) {
        BOOST_TEST(one.find("rank 1") != std::string::npos, one);
        BOOST_TEST(one.find("parameter 0") != std::string::npos, one);
    }
}

BOOST_AUTO_TEST_CASE(without_a_guard_and_what_can_be_asked) {
    const test::Clean clean;
    std::array<std::string, 2> text;
    std::array<bool, 2> committed = {};
    std::array<std::vector<float>, 2> seen, values;
    un::run<un::Nccl>(2, [&](auto& world) {
        const auto mine = static_cast<std::size_t>(world.rank());
        Model network(columns, 2);
        test::OnDevice model(world, network);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, un::NoGuard{}};
        text[mine] = trainer.describe();
        committed[mine] = trainer.step(batch(world.rank())).committed;
        trainer.visit_parameters({0, columns}, [&](std::size_t, std::span<const float> part) {
            seen[mine].insert(seen[mine].end(), part.begin(), part.end());
        });
        values[mine] = model.values();
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
        BOOST_TEST(text[rank].find("over nccl") != std::string::npos, text[rank]);
        BOOST_TEST(committed[rank]);
        BOOST_TEST(seen[rank].size() == columns);
        BOOST_TEST((seen[rank] == values[rank]));
    }
}

BOOST_AUTO_TEST_CASE(replicas_that_differ_are_found) {
    const test::Clean clean;
    std::array<std::string, 2> said;
    un::run<un::Nccl>(2, [&](auto& world) {
        Model network(columns, 2);
        test::OnDevice model(world, network);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}};
        trainer.step(batch(world.rank()));
        trainer.verify_replicas();
        static_cast<void>(model.values()); // the device is done
        if (world.rank() == 1) *stand_in::seen_by_host(model.parameters()[2].data()) ^= std::byte{1};
        try {
            trainer.verify_replicas();
        } catch (const un::error& found) {
            said[static_cast<std::size_t>(world.rank())] = found.what();
        }
    });
    for (const std::string& one : said) BOOST_TEST(one.find("parameter 2 differs") != std::string::npos, one);
}

BOOST_AUTO_TEST_SUITE_END()
