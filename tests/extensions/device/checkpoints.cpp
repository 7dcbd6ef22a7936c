// A checkpoint of a training on a device is the same as on the host. Either training resumes from
// the other's checkpoint, with the same bits. Buffers on the device become rank 0's.
#include "on_device.hpp"

#include "base/trainer/models.hpp"
#include "support/folder.hpp"

#include <unisono/extensions/checkpoint/checkpoints.hpp>
#include <unisono/sharding/sharding.hpp>
#include <unisono/trainer/hashes.hpp>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace un = unisono;

namespace {

using Model = unisono_test::LeastSquares<float>;
constexpr std::size_t columns = 6;
constexpr int ranks = 2;

un::RowBatch<float, float> batch(std::size_t number) {
    un::RowBatch<float, float> made;
    made.width = columns;
    for (std::size_t i = 0; i < 4 * columns; ++i)
        made.values.push_back(static_cast<float>((number * 7 + i * 3) % 11) / 8);
    made.labels = {1, 0, 2, 1};
    return made;
}

struct Told {
    std::array<un::StateHash, 2> hashes; ///< when it was saved or resumed, and at the end
    std::vector<float> parameters;       ///< of rank 1
};

/// Four updates, a checkpoint, four more; or only the last four.
template <class Transport>
void train(const std::string& folder, bool resumes, Told& told) {
    un::run<Transport>(ranks, [&](auto& world) {
        Model network(columns, 2);
        const auto with = [&](auto& model, const auto& values) {
            un::Trainer trainer{world, model, un::Adam{.learning_rate = 0.1}, un::StateSharding{}};
            un::Checkpoints checkpoints(folder, {.background = true});
            const auto steps = [&](std::size_t first) {
                for (std::size_t i = first; i < first + 4; ++i)
                    trainer.step(batch(2 * i + static_cast<std::size_t>(world.rank())));
            };
            if (resumes && !checkpoints.resume(trainer)) throw std::runtime_error("found no checkpoint");
            if (!resumes) steps(0), checkpoints.save(trainer);
            const un::StateHash before = un::state_hash(trainer);
            steps(4);
            checkpoints.wait(trainer);
            const un::StateHash after = un::state_hash(trainer);
            if (world.rank() != 1) return;
            told.hashes = {before, after};
            told.parameters = values();
        };
        if constexpr (un::streaming_transport<Transport>) {
            test::OnDevice model(world, network, 1);
            with(model, [&] { return model.values(); });
        } else {
            with(network, [&] { return network.values(); });
        }
    });
}

/// With running statistics on the device.
struct WithBuffers : test::OnDevice<Model> {
    WithBuffers(test::Group& world, Model& network)
        : OnDevice(world, network), statistics(un::allocate_on_device<float>(world, 3)) {}
    ~WithBuffers() { cudaStreamSynchronize(stream()); } // before the statistics are released

    [[nodiscard]] un::DeviceSpan<float> buffers() const { return statistics.span(); }
    /// The model's stream gets there late.
    void write(float value) {
        test::launch_on_host(stream(), [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
        test::enqueue_write(stream(), statistics.span(), std::vector<float>(3, value));
    }
    [[nodiscard]] float found() const {
        cudaStreamSynchronize(stream());
        return test::read_device(un::DeviceSpan<const float>(statistics.span()))[2];
    }

    un::DeviceMemory<float> statistics;
};

} // namespace

BOOST_AUTO_TEST_SUITE(device_checkpoints)

BOOST_AUTO_TEST_CASE(buffers_are_those_of_rank_0_and_are_kept) {
    const test::Clean clean;
    const unisono_test::Folder folder;
    std::array<std::array<float, ranks>, 3> found{}; // of each rank: at first, when changed, when resumed
    un::run<test::Transport>(ranks, [&](auto& world) {
        Model network(columns, 2);
        WithBuffers model(world, network);
        const auto mine = static_cast<std::size_t>(world.rank());
        model.write(static_cast<float>(mine + 3));
        un::Trainer trainer{world, model, un::Sgd{}};
        found[0][mine] = model.found();
        un::Checkpoints checkpoints(folder.path());
        checkpoints.save(trainer);
        model.write(7);
        found[1][mine] = model.found();
        BOOST_REQUIRE(checkpoints.resume(trainer));
        found[2][mine] = model.found();
    });
    for (const float one : found[0]) BOOST_TEST(one == 3);
    for (const float one : found[1]) BOOST_TEST(one == 7);
    for (const float one : found[2]) BOOST_TEST(one == 3);
}

BOOST_AUTO_TEST_CASE(from_and_to_the_host) {
    const test::Clean clean;
    const unisono_test::Folder on_host, on_device;
    Told host, device, host_goes_on, device_goes_on;
    train<un::InProcess>(on_host.path(), false, host);
    train<test::Transport>(on_device.path(), false, device);
    train<un::InProcess>(on_device.path(), true, host_goes_on);
    train<test::Transport>(on_host.path(), true, device_goes_on);
    BOOST_TEST(host.parameters.size() == columns);
    BOOST_TEST(host.parameters[0] != 0.0f);
    for (const Told* other : {&device, &host_goes_on, &device_goes_on}) {
        BOOST_TEST((other->parameters == host.parameters));
        for (std::size_t i = 0; i < 2; ++i) {
            BOOST_TEST(other->hashes[i].parameters == host.hashes[i].parameters);
            BOOST_TEST(other->hashes[i].optimizer == host.hashes[i].optimizer);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
