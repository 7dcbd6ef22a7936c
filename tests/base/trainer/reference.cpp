// Repeats what PyTorch computed: the published run to the bit, and DistributedDataParallel with
// accumulation.
#include "support/reference.hpp"
#include "models.hpp"

#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>

namespace {

namespace un = unisono;
using namespace unisono_test;

struct Article {
    std::uint64_t seed;
    std::size_t size;
    std::int64_t batch, world, epochs;
    std::vector<std::vector<float>> expected;
};

std::vector<Article> articles() {
    std::vector<Article> all;
    for (const auto& one : reference()["article"]) {
        Article article{one["seed"], one["size"], one["batch"], one["world"], one["epochs"], {}};
        for (const auto& row : one["weights_after_epoch"]) article.expected.push_back(parse_hex_array<float>(row));
        all.push_back(article);
    }
    return all;
}

/// The weights of every rank after every epoch.
template <class... Policies>
std::vector<std::vector<std::vector<float>>> train(const Article& article, int ranks, const Policies&... policies) {
    const auto values = un::torch_rand(article.seed, article.size * article.size);
    std::vector<std::vector<std::vector<float>>> after(static_cast<std::size_t>(ranks));
    un::run<un::InProcess>(ranks, [&](auto& world) {
        SumOfOutputs<float> model(article.size);
        un::RowData<float> data(values, article.size);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.01, .momentum = 0.9}, policies...};
        for (std::int64_t epoch = 0; epoch < article.epochs; ++epoch) {
            trainer.fit(data, {.epochs = 1, .batch_size = article.batch, .progress = false});
            after[static_cast<std::size_t>(world.rank())].push_back(model.weights);
        }
    });
    return after;
}

void check(const Article& article, const std::vector<std::vector<std::vector<float>>>& ranks, bool to_the_bit) {
    for (const auto& rank : ranks) {
        BOOST_REQUIRE_EQUAL(rank.size(), article.expected.size());
        for (std::size_t epoch = 0; epoch < rank.size(); ++epoch)
            for (std::size_t j = 0; j < article.size; ++j) {
                const float found = rank[epoch][j];
                const float expected = article.expected[epoch][j];
                if (to_the_bit)
                    BOOST_TEST(std::bit_cast<std::uint32_t>(found) == std::bit_cast<std::uint32_t>(expected));
                else BOOST_TEST(std::abs(found - expected) <= 1e-6f * std::max(1.f, std::abs(expected)));
            }
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(reference_values)

BOOST_AUTO_TEST_CASE(published_run) {
    const auto all = articles();
    BOOST_REQUIRE(!all.empty());
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Article& article = all[i];
        const int world = static_cast<int>(article.world);
        BOOST_TEST_CONTEXT("article " << i << ", size " << article.size << ", world " << world) {
            check(article, train(article, world, un::DistributedSampler{.shuffle = false}), i == 0);
            check(article, train(article, world, un::DistributedSampler{.shuffle = false}, un::RingReducer{}), i == 0);
            const un::InterleavedSampler interleaved{.replicas = article.world, .shuffle = false};
            check(article, train(article, 1, interleaved, un::Accumulate{.steps = article.world}), i == 0);
            check(article, train(article, 1, interleaved), i == 0);
            if (world % 2 == 0)
                check(article,
                      train(article, 2, un::InterleavedSampler{.replicas = article.world / 2, .shuffle = false}),
                      i == 0);
        }
    }
}

namespace {

template <class Optimizer>
void check_ddp(const nlohmann::json& one, const Optimizer& optimizer) {
    const auto x = parse_hex_array(one["x"]);
    const auto t = parse_hex_array(one["t"]);
    const int ranks = one["world"];
    const un::Accumulate accumulate{.steps = one["accumulate"], .short_window = un::ShortWindow::drop};
    const un::DistributedSampler sampler{.shuffle = one["shuffle"], .seed = one["seed"]};
    un::run<un::InProcess>(ranks, [&](auto& world) {
        LeastSquares<double> model(4);
        un::RowData<double, double> data(x, 4, t);
        un::Trainer trainer{world, model, accumulate, sampler, optimizer};
        for (const auto& row : one["weights_after_epoch"]) {
            trainer.fit(data,
                        {.epochs = 1, .batch_size = one["batch"].template get<std::int64_t>(), .progress = false});
            const auto expected = parse_hex_array(row);
            const auto found = model.values();
            for (std::size_t j = 0; j < 4; ++j)
                if (!(std::abs(found[j] - expected[j]) <= 1e-12 * std::abs(expected[j])))
                    throw std::runtime_error("weight " + std::to_string(j) + " is off by " +
                                             std::to_string((found[j] - expected[j]) / expected[j]));
        }
    });
}

} // namespace

BOOST_AUTO_TEST_CASE(distributed_data_parallel) {
    int cases = 0;
    for (const auto& one : reference()["ddp"]) {
        BOOST_TEST_CONTEXT("world " << one["world"] << ", accumulate " << one["accumulate"] << ", " << one["optimizer"]
                                    << ", shuffle " << one["shuffle"]) {
            const auto& options = one["options"];
            if (one["optimizer"] == "SGD")
                BOOST_CHECK_NO_THROW(
                    check_ddp(one, un::Sgd{.learning_rate = options["lr"], .momentum = options["momentum"]}));
            else
                BOOST_CHECK_NO_THROW(
                    check_ddp(one, un::AdamW{.learning_rate = options["lr"], .weight_decay = options["weight_decay"]}));
            ++cases;
        }
    }
    BOOST_TEST(cases == 24);
}

BOOST_AUTO_TEST_SUITE_END()
