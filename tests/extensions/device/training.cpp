// A Trainer on memory of a device has the same bits as on memory of the host if sums have one
// order: over two ranks, over one rank after the other (as the stand-in adds), or on a grid.
#include "on_device.hpp"

#include "support/digits_training.hpp"

#include <unisono/reproducible.hpp>

#include <cstring>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

using test::Clean;

const digits::Images& images() {
    static const digits::Images few = [] {
        digits::Images all = test::images().train, some;
        some.labels.assign(all.labels.begin(), all.labels.begin() + 150);
        some.values.assign(all.values.begin(), all.values.begin() + 150 * digits::pixels);
        return some;
    }();
    return few;
}

const std::vector<std::size_t> layers = {digits::pixels, 12, digits::kinds};

/// The result of a training: each rank's parameters, and the last update's report.
struct Trained {
    std::vector<std::vector<float>> parameters;
    std::vector<un::UpdateReport> last;
};

template <bool Device, class World, class... Policies>
void train(World& world, Trained& told, std::size_t gap, const Policies&... policies) {
    // The trainer replaces them by rank 0's.
    digits::Network network(layers, static_cast<std::uint64_t>(world.rank()));
    const auto with = [&](auto& model, const auto& values) {
        un::Trainer trainer{world,
                            model,
                            un::DistributedSampler{.shuffle = true, .seed = 5},
                            un::BySamples{},
                            un::Buckets{.first_bytes = 64, .bytes = 2000},
                            policies...};
        const auto mine = static_cast<std::size_t>(world.rank());
        trainer.fit(images().data(), {.epochs = 2, .batch_size = 16, .progress = false},
                    [&](const un::UpdateReport& report) { told.last[mine] = report; });
        trainer.verify_replicas();
        told.parameters[mine] = values();
    };
    if constexpr (Device) {
        test::OnDevice model(world, network, gap);
        with(model, [&] { return model.values(); });
    } else {
        with(network, [&] {
            const auto values = network.values();
            return std::vector<float>(values.begin(), values.end());
        });
    }
}

template <class Transport, class... Policies>
Trained trained(int ranks, std::size_t gap, const Policies&... policies) {
    Trained told;
    told.parameters.resize(static_cast<std::size_t>(ranks));
    told.last.resize(static_cast<std::size_t>(ranks));
    un::run<Transport>(ranks,
                       [&](auto& world) { train<un::streaming_transport<Transport>>(world, told, gap, policies...); });
    return told;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

template <class... Policies>
void same_as_on_the_host(int ranks, std::size_t gap, const Policies&... policies) {
    const Clean clean;
    const Trained host = trained<un::InProcess>(ranks, gap, policies...);
    const Trained device = trained<test::Transport>(ranks, gap, policies...);
    const digits::Network untrained(layers, 0);
    BOOST_TEST(host.parameters[0].size() > 500u);
    BOOST_TEST(!same_bits(host.parameters[0], {untrained.values().begin(), untrained.values().end()}));
    for (std::size_t rank = 0; rank < host.parameters.size(); ++rank) {
        BOOST_TEST(same_bits(device.parameters[rank], host.parameters[rank]), "parameters of rank " << rank);
        const un::UpdateReport& one = device.last[rank];
        const un::UpdateReport& other = host.last[rank];
        BOOST_TEST(one.loss == other.loss);
        BOOST_TEST(one.number == other.number);
        BOOST_TEST(one.gradient_norm == other.gradient_norm);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(device_training)

// examples/digits_on_gpu (digits.py) and crossed.hpp test sums of numbers.
BOOST_AUTO_TEST_CASE(reproducible_sums) {
    same_as_on_the_host(3, 2, un::Reproducible{}, un::Accumulate{.steps = 2}, un::ClipByNorm{.max_norm = 0.1},
                        un::Sgd{.learning_rate = 0.1, .momentum = 0.9});
}

BOOST_AUTO_TEST_SUITE_END()
