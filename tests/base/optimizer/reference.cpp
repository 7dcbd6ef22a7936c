// PyTorch's optimizers, step by step.
#include "support/reference.hpp"

#include <unisono/optimizer/adagrad.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/optimizer/rmsprop.hpp>
#include <unisono/optimizer/sgd.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

using namespace unisono;
using unisono_test::parse_hex_array;
using unisono_test::reference;

namespace {

template <class Policy>
void follow(const Policy& policy, const nlohmann::json& run) {
    auto parameters = parse_hex_array(run.at("parameters"));
    auto state = start<double>(policy, parameters.size());
    for (std::size_t n = 1; n <= run.at("gradients").size(); ++n) {
        const auto gradients = parse_hex_array(run["gradients"][n - 1]);
        const auto expected = parse_hex_array(run.at("after_step").at(n - 1));
        policy.update(state.all(), std::span<double>(parameters), std::span<const double>(gradients),
                      OptimizerStep{policy.learning_rate, n, 1.0});
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            BOOST_TEST(std::abs(parameters[i] - expected[i]) <= 1e-12 * std::abs(expected[i]),
                       "update " << n << ", element " << i << ": " << parameters[i] << ", expected " << expected[i]);
        }
    }
}

template <class Policy>
void follow_adam(Policy policy, const nlohmann::json& run) {
    const auto& options = run.at("options");
    policy.learning_rate = options.at("lr");
    if (options.contains("betas")) {
        policy.beta1 = options["betas"].at(0);
        policy.beta2 = options["betas"].at(1);
    }
    policy.epsilon = options.value("eps", policy.epsilon);
    policy.weight_decay = options.value("weight_decay", policy.weight_decay);
    policy.amsgrad = options.value("amsgrad", policy.amsgrad);
    follow(policy, run);
}

} // namespace

BOOST_AUTO_TEST_SUITE(optimizer_reference)

BOOST_AUTO_TEST_CASE(every_run_is_followed_to_1e_minus_12) {
    std::size_t runs = 0;
    for (const auto& run : reference().at("optimizer")) {
        const auto& options = run.at("options");
        const std::string name = run.at("name");
        BOOST_TEST_CONTEXT(name << " " << options.dump()) {
            if (name == "SGD") {
                follow(Sgd{options.at("lr"), options.value("momentum", 0.0), options.value("dampening", 0.0),
                           options.value("nesterov", false), options.value("weight_decay", 0.0)},
                       run);
            } else if (name == "Adam") {
                follow_adam(Adam{}, run);
            } else if (name == "AdamW") {
                follow_adam(AdamW{}, run);
            } else if (name == "Adagrad") {
                follow(Adagrad{.learning_rate = options.at("lr")}, run);
            } else if (name == "RMSprop") {
                follow(RmsProp{.learning_rate = options.at("lr"),
                               .momentum = options.value("momentum", 0.0),
                               .centered = options.value("centered", false)},
                       run);
            } else {
                BOOST_ERROR("no such optimizer here: " << name);
                continue;
            }
            ++runs;
        }
    }
    BOOST_TEST(runs == reference()["optimizer"].size());
    BOOST_TEST(runs > 0U);
}

// A linear layer without bias, weights 1, loss = sum of outputs: the gradient is the sum of the
// batch's rows. Replicas take every world-th sample, padded from the head. Their gradients are
// averaged. Bit for bit in float.
BOOST_AUTO_TEST_CASE(the_article_is_reproduced_bit_for_bit) {
    const Sgd sgd{.learning_rate = 0.01, .momentum = 0.9};
    std::size_t runs = 0;
    for (const auto& run : reference().at("article")) {
        const std::size_t size = run.at("size"), batch = run.at("batch"), world = run.at("world");
        std::mt19937 bits(run.at("seed").get<std::uint32_t>());
        std::vector<float> data(size * size);
        for (float& value : data) value = static_cast<float>(bits() & 0xffffffU) * 0x1p-24F;
        std::vector<float> weights(size, 1.0F);
        auto state = start<float>(sgd, size);
        std::uint64_t number = 0;
        const std::size_t samples = (size + world - 1) / world;
        for (const auto& after : run.at("weights_after_epoch")) {
            for (std::size_t begin = 0; begin < samples; begin += batch) {
                std::vector<float> mean(size, 0.0F);
                for (std::size_t rank = 0; rank < world; ++rank) {
                    std::vector<float> own(size, 0.0F);
                    for (std::size_t s = begin; s < std::min(begin + batch, samples); ++s) {
                        const float* row = data.data() + (s * world + rank) % size * size;
                        for (std::size_t j = 0; j < size; ++j) own[j] += row[j];
                    }
                    for (std::size_t j = 0; j < size; ++j) mean[j] += own[j] / static_cast<float>(world);
                }
                sgd.update(state.all(), std::span<float>(weights), std::span<const float>(mean),
                           OptimizerStep{sgd.learning_rate, ++number, 1.0});
            }
            const auto expected = parse_hex_array<float>(after);
            BOOST_CHECK_EQUAL_COLLECTIONS(weights.begin(), weights.end(), expected.begin(), expected.end());
        }
        ++runs;
    }
    BOOST_TEST(runs > 0U);
}

BOOST_AUTO_TEST_SUITE_END()
