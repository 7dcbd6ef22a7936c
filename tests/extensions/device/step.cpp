// One update at a time: what crosses the bus, what a guard finds, and the state after an error.
#include "on_device.hpp"
#ifdef UNISONO_TEST_ON_GPU
#include "support/needs_gpu.hpp"
#endif

#include "base/trainer/models.hpp"

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

/// If told to, it reports that its last parameter is ready, and continues only after that was
/// summed.
struct Waits : Model {
    int rank = 0;
    std::atomic<bool>* travelled = nullptr;
    Waits() : Model(columns, 2) {}

    double operator()(const un::RowBatch<float, float>& one, un::Pass& pass) {
        const double loss = Model::operator()(one, pass);
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        pass.ready(2);
        while (travelled != nullptr && !*travelled && std::chrono::steady_clock::now() < until) {
            pass.progress();
            if (rank != 0) continue;
#ifndef UNISONO_TEST_ON_GPU
            for (const std::string& call : stand_in::take_calls()) *travelled = *travelled || call == "all_reduce";
#endif
        }
        pass.ready(1);
        pass.ready(0);
        return loss;
    }
};

/// Calls body(world, model, trainer, what the model does) on each of two ranks.
template <class Body>
void on_two_ranks(const Body& body) {
    un::run<test::Transport>(2, [&](auto& world) {
        Waits network;
        network.rank = world.rank();
        test::OnDevice model(world, network);
        un::Trainer trainer{world, model, un::AdamW{.learning_rate = 0.1}, un::Buckets{.first_bytes = 1, .bytes = 8}};
        body(world, model, trainer, network);
    });
}

} // namespace

BOOST_AUTO_TEST_SUITE(device_step)

BOOST_AUTO_TEST_CASE(nothing_but_scalars_crosses_the_bus) {
    const test::Clean clean;
    constexpr std::size_t updates = 5;
    std::size_t to_host = 0, to_device = 0;
    on_two_ranks([&](auto& world, auto&, auto& trainer, auto&) {
        trainer.step(batch(world.rank()), batch(world.rank() + 2));
        un::barrier(world);
        const auto before = test::crossed_the_bus();
        un::barrier(world);
        for (std::size_t i = 0; i < updates; ++i) trainer.step(batch(world.rank()), batch(world.rank() + 2));
        un::barrier(world);
        if (world.rank() == 0) {
            to_host = test::crossed_the_bus().bytes_to_host - before.bytes_to_host;
            to_device = test::crossed_the_bus().bytes_to_device - before.bytes_to_device;
        }
        un::barrier(world);
    });
    // Where the guard found an offence, and whether a value is large.
    if (test::bytes_are_counted) BOOST_TEST(to_host == 2 * updates * 16);
    BOOST_TEST(to_device == 0u);
}

#ifndef UNISONO_TEST_ON_GPU // which records no calls
BOOST_AUTO_TEST_CASE(buckets_travel_while_the_model_computes) {
    const test::Clean clean;
    std::atomic<bool> travelled = false;
    static_cast<void>(stand_in::take_calls());
    on_two_ranks([&](auto& world, auto&, auto& trainer, Waits& network) {
        network.travelled = &travelled;
        trainer.step(batch(world.rank()));
        trainer.verify_replicas();
    });
    BOOST_TEST(travelled);
}
#endif

BOOST_AUTO_TEST_CASE(a_guard_names_rank_and_parameter) {
    const test::Clean clean;
    std::array<std::string, 2> said;
    std::array<bool, 2> unchanged = {}, goes_on = {};
    on_two_ranks([&](auto& world, auto& model, auto& trainer, auto&) {
        const auto mine = static_cast<std::size_t>(world.rank());
        trainer.step(batch(world.rank()));
        const std::vector<float> before = model.values();
        auto bad = batch(world.rank());
        if (world.rank() == 1) bad.values[3] = std::numeric_limits<float>::infinity();
        try { // the first of parameters 0 to 2, and before the loss
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

BOOST_AUTO_TEST_CASE(what_can_be_asked) {
    const test::Clean clean;
    std::array<std::string, 2> text, said;
    std::array<std::vector<float>, 2> seen, values;
    on_two_ranks([&](auto& world, auto& model, auto& trainer, auto&) {
        const auto mine = static_cast<std::size_t>(world.rank());
        text[mine] = trainer.describe();
        trainer.step(batch(world.rank()));
        trainer.visit_parameters({0, columns}, [&](std::size_t, std::span<const float> part) {
            seen[mine].insert(seen[mine].end(), part.begin(), part.end());
        });
        values[mine] = model.values();
        if (mine == 1) {
            std::vector<float> other = test::read_device(model.parameters()[2]);
            other[0] += 1;
            test::write_device(model.parameters()[2], other);
        }
        try {
            trainer.verify_replicas();
        } catch (const un::error& found) {
            said[mine] = found.what();
        }
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
        BOOST_TEST(text[rank].find("over " + std::string(test::Transport::name)) != std::string::npos, text[rank]);
        BOOST_TEST(seen[rank].size() == columns);
        BOOST_TEST((seen[rank] == values[rank]));
        BOOST_TEST(said[rank].find("parameter 2 differs") != std::string::npos, said[rank]);
    }
}

BOOST_AUTO_TEST_SUITE_END()
