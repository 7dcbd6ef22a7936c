// A checkpoint of a training on a device is the same as on the host. Either training resumes from
// the other's checkpoint, with the same bits.
#include "on_device.hpp"

#include "base/trainer/models.hpp"
#include "support/folder.hpp"

#include <unisono/extensions/checkpoint/checkpoints.hpp>
#include <unisono/sharding/sharding.hpp>
#include <unisono/trainer/hashes.hpp>

#include <array>
#include <string>
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

} // namespace

BOOST_AUTO_TEST_SUITE(device_checkpoints)

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
