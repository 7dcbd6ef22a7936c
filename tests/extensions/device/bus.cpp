// The bytes that cross the bus in an update, the number of times that the host waits, and the cost
// of sums on devices.
#include "on_device.hpp"

#include "base/trainer/models.hpp"

#include <unisono/extensions/automatic/reducer.hpp>
#include <unisono/extensions/compression/cast.hpp>
#include <unisono/extensions/compression/one_bit.hpp>
#include <unisono/guard/clipping.hpp>
#include <unisono/guard/guard.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

using Model = unisono_test::LeastSquares<float>;
constexpr std::size_t columns = 6, parameters = 3, updates = 5, ranks = 2;

#ifndef UNISONO_TEST_ON_GPU // which counts no bytes
/// The counts of all ranks, over the updates, each with two micro-batches per rank.
template <class... Policies>
stand_in::Counts copied(const Policies&... policies) {
    const test::Clean clean;
    stand_in::Counts found;
    un::run<test::Transport>(ranks, [&](auto& world) {
        Model network(columns, columns / parameters);
        test::OnDevice model(world, network);
        un::Trainer trainer{world, model, un::NoGuard{}, un::Buckets{.first_bytes = 1, .bytes = 8}, policies...};
        const un::RowBatch<float, float> batch{{1, 2, 3, 4, 5, 6, 0, 1, 0, 1, 0, 1}, {1, 2}, columns};
        trainer.step(batch, batch);
        un::barrier(world);
        const auto before = test::crossed_the_bus();
        un::barrier(world);
        for (std::size_t i = 0; i < updates; ++i) trainer.step(batch, batch);
        un::barrier(world);
        if (world.rank() == 0) {
            found = test::crossed_the_bus();
            found.bytes_to_host -= before.bytes_to_host;
            found.bytes_to_device -= before.bytes_to_device;
            found.copies_to_host -= before.copies_to_host;
        }
        un::barrier(world);
    });
    return found;
}
#endif

} // namespace

BOOST_AUTO_TEST_SUITE(device_bus)

#ifndef UNISONO_TEST_ON_GPU
BOOST_AUTO_TEST_CASE(a_norm_is_read_once_an_update) {
    const stand_in::Counts found = copied(un::ClipByNorm{.max_norm = 0.1});
    BOOST_TEST(found.bytes_to_host == ranks * updates * parameters * 32);
    BOOST_TEST(found.copies_to_host == static_cast<int>(ranks * updates));
    BOOST_TEST(found.bytes_to_device == 0u);
}

BOOST_AUTO_TEST_CASE(a_compression_on_the_host_carries_each_gradient_once_in_either_direction) {
    const stand_in::Counts found = copied(un::OneBit{.block = 4});
    BOOST_TEST(found.bytes_to_host == ranks * updates * columns * sizeof(float));
    BOOST_TEST(found.bytes_to_device == ranks * updates * columns * sizeof(float));
}

BOOST_AUTO_TEST_CASE(a_compression_on_the_device_stays_there) {
    const stand_in::Counts found = copied(un::Bf16Wire{});
    BOOST_TEST(found.bytes_to_host == 0u);
    BOOST_TEST(found.bytes_to_device == 0u);
}

#endif

BOOST_AUTO_TEST_CASE(an_automatic_reducer_goes_by_what_was_measured_on_devices) {
    const test::Clean clean;
    std::string said[2];
    float sums[2] = {};
    un::ReducerCosts costs[2];
    un::run<test::Transport>(2, [&](auto& world) {
        const auto mine = static_cast<std::size_t>(world.rank());
        costs[mine] = un::measure_reducers_on_device(world);
        const auto values = test::upload(world, std::vector<float>{1, 2});
        un::AutomaticReducer{.costs = costs[mine]}.start(world).sum(world, values.span()).wait();
        sums[mine] = test::download(values.span())[1];
        const auto of_the_host = un::AutomaticReducer{.measure = true}.start(world);
        try {
            of_the_host.sum(world, values.span()).wait();
        } catch (const un::error& found) {
            said[mine] = found.what();
        }
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
        BOOST_TEST(costs[rank].measured());
        BOOST_TEST((costs[rank] == costs[0]));
        BOOST_TEST(sums[rank] == 4);
        BOOST_TEST(said[rank].find("measure_reducers_on_device") != std::string::npos, said[rank]);
    }
}

BOOST_AUTO_TEST_SUITE_END()
