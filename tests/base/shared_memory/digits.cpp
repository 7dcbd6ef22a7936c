// The network of the digits example gets the same bits on processes as on the same number of
// threads.
#include "support/ranks.hpp"

#include "../../../examples/digits/data.hpp"
#include "../../../examples/digits/network.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstring>
#include <string>

namespace {

constexpr std::size_t most = 5000;
using Weights = std::array<float, most>;

template <class Transport, class... Policies>
void train(int ranks, const digits::Split& images, Weights& weights, const Policies&... policies) {
    un::run<Transport>(ranks, [&](auto& world) {
        digits::Network network({digits::pixels, 32, digits::kinds}, 5);
        if (ranks == 2) network.place_gradients_in(world);
        un::Trainer trainer{world, network, un::DistributedSampler{.shuffle = true, .seed = 5}, un::BySamples{},
                            policies...};
        trainer.fit(images.train.data(), {.epochs = 2, .batch_size = 8, .progress = false});
        trainer.verify_replicas();
        if (world.rank() != ranks - 1) return;
        std::size_t at = 0;
        for (const auto span : network.parameters()) {
            for (const float one : span) weights.at(at++) = one;
        }
    });
}

template <class... Policies>
void compare(const digits::Split& images, const std::string& what, const Policies&... policies) {
    for (const int ranks : {1, 2, 4}) {
        const test::Shared<Weights> threads, processes;
        train<un::InProcess>(ranks, images, *threads, policies...);
        train<un::SharedMemory>(ranks, images, *processes, policies...);
        BOOST_TEST((*threads)[0] != 0.0f);
        BOOST_TEST(std::memcmp(&*threads, &*processes, sizeof(Weights)) == 0, what << ", " << ranks << " ranks");
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(shared_memory_digits, *boost::unit_test::enable_if<!test::under_thread_sanitizer>())

BOOST_AUTO_TEST_CASE(processes_have_the_bits_of_threads) {
    const auto images = digits::split(digits::read(UNISONO_TEST_DATA "/../../../examples/digits/data/digits.csv"), 357);
    const un::Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
    compare(images, "native", sgd);
    compare(images, "ring", sgd, un::RingReducer{.chunk_bytes = 4096});
    compare(images, "accumulation", sgd, un::Accumulate{.steps = 2});
    compare(images, "parameter server", un::Adam{.learning_rate = 0.003}, un::ParameterServerReducer{});
    compare(images, "sharded", sgd, un::StateSharding{}, un::Buckets{.first_bytes = 512, .bytes = 4096});
    compare(images, "small buckets", sgd, un::Buckets{.first_bytes = 512, .bytes = 4096});
}

BOOST_AUTO_TEST_SUITE_END()
