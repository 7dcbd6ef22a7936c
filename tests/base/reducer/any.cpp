// A reducer that is chosen at run time behaves as the one that it holds: the same bits, also in a
// trainer, and the same errors.
#include "base/trainer/models.hpp"
#include "base/trainer/outcomes.hpp"

#include "unisono/extensions/reducers/any.hpp"
#include "unisono/testing/reducer_laws.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <stdexcept>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr std::string_view words[] = {"native", "ring", "tree", "halving-doubling", "automatic"};

std::vector<float> rough(int rank, std::size_t count) {
    std::vector<float> values(count);
    un::Mt19937 generator(static_cast<std::uint64_t>(rank) + 1);
    un::torch_rand(generator, std::span<float>(values));
    return values;
}

/// The parameters after some updates.
template <class World, class Reducer, class Sharding>
std::vector<float> trained(World& world, const Reducer& reducer, const Sharding& sharding) {
    const std::vector<float> values = rough(7, 60 * 37);
    const un::RowData data(values, 37);
    SumOfOutputs<float> model(37);
    un::Trainer trainer{world, model, reducer, sharding, un::Sgd{.learning_rate = 0.1, .momentum = 0.9}};
    trainer.fit(data, {.epochs = 2, .batch_size = 3, .progress = false});
    return model.weights;
}

} // namespace

BOOST_AUTO_TEST_SUITE(any_reducer)

BOOST_AUTO_TEST_CASE(words_name_reducers) {
    for (const std::string_view word : words)
        un::AnyReducer::named(word).visit_held([&](const auto& held) { BOOST_TEST(held.name == word); });
    BOOST_TEST((un::AnyReducer{un::RingReducer{}} == un::AnyReducer::named("ring")));
    BOOST_TEST((un::AnyReducer{un::RingReducer{.chunk_bytes = 9}} != un::AnyReducer::named("ring")));
    try {
        static_cast<void>(un::AnyReducer::named("Ring\n"));
        BOOST_ERROR("accepted");
    } catch (const un::error& refused) {
        BOOST_TEST(name_of(refused.code()) == "bad_input");
        BOOST_TEST(std::string(refused.what()).find("native, ring, tree, halving-doubling, automatic") !=
                       std::string::npos,
                   refused.what());
    }
}

BOOST_AUTO_TEST_CASE(its_sums_are_lawful) {
    for (const std::string_view word : words) {
        const auto found = un::testing::reducer_laws(un::AnyReducer::named(word));
        BOOST_TEST(found.lawful(), word << ": " << found.text());
    }
}

BOOST_AUTO_TEST_CASE(a_trainer_has_the_bits_of_the_one_that_it_holds) {
    check_clean(outcomes(3, [](auto& world) {
        for (const std::string_view word : words) {
            const auto any = un::AnyReducer::named(word);
            any.visit_held([&](const auto& held) {
                if (trained(world, any, un::Replicated{}) != trained(world, held, un::Replicated{}))
                    throw std::runtime_error(std::string(word) + ": other parameters");
                if (trained(world, any, un::StateSharding{}) != trained(world, held, un::StateSharding{}))
                    throw std::runtime_error(std::string(word) + ": other parameters, sharded");
            });
        }
    }));
}

BOOST_AUTO_TEST_CASE(ranks_choose_alike) {
    const auto all = outcomes(3, [](auto& world) {
        SumOfOutputs<float> model(3);
        un::Trainer trainer{world, model, un::AnyReducer::named(world.rank() == 2 ? "tree" : "ring")};
    });
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        BOOST_TEST(all[rank].failed);
        BOOST_TEST((all[rank].code == un::ErrorCode::mismatch));
        for (const char* const expected : {"rank 2", "another reducer", rank == 2 ? "here: tree" : "here: ring"})
            BOOST_TEST(all[rank].what.find(expected) != std::string::npos, all[rank].what);
    }
}

BOOST_AUTO_TEST_SUITE_END()
