// A trainer on a group from `split`. Errors name ranks by the world's numbers.
#include "outcomes.hpp"

#include "unisono/model/model.hpp"
#include "unisono/trainer/hashes.hpp"
#include "unisono/trainer/trainer.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

struct Model {
    std::vector<float> weights = std::vector<float>(4, 1.0f), slopes = std::vector<float>(4);
    bool throws = false;
    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return slopes; }
    double operator()(float slope, un::Pass&) {
        if (throws) throw std::runtime_error("no such sample");
        for (float& x : slopes) x += slope;
        return 1;
    }
};

/// Rank 3 of the world is rank 1 of its group {2, 3}. Calls body(pair, whether this is that rank).
template <class Body>
std::vector<Outcome> in_pairs(Body body) {
    return outcomes(4, [&](auto& world) {
        auto pair = world.split(world.rank() / 2, 0);
        body(pair, world.rank() == 3);
    });
}
void check_blamed(const char* what, const std::vector<Outcome>& all, un::ErrorCode code, const std::string& text) {
    BOOST_TEST((all[2].failed && all[2].rank == 3 && all[2].code == code && all[2].says(text)),
               what << ": rank " << all[2].rank << ", " << all[2].what);
}

} // namespace

BOOST_AUTO_TEST_SUITE(subgroup)

BOOST_AUTO_TEST_CASE(errors_name_the_worlds_ranks) {
    const auto alike = [](const char* what, const std::vector<Outcome>& all, un::ErrorCode code, const char* text) {
        check_blamed(what, all, code, text);
        BOOST_TEST((!all[0].failed && !all[1].failed), what);
        check_blamed(what, {all[0], all[1], all[3]}, code, text);
    };
    alike("NaN", in_pairs([](auto& pair, bool culprit) {
              Model model;
              un::Trainer trainer{pair, model, un::Sgd{}};
              trainer.step(culprit ? std::numeric_limits<float>::quiet_NaN() : 1.0f);
          }),
          un::ErrorCode::not_finite, "on rank 3, in update 1");
    alike("policy", in_pairs([](auto& pair, bool culprit) {
              Model model;
              un::Trainer trainer{pair, model, un::Sgd{.learning_rate = culprit ? 0.5 : 0.25}};
          }),
          un::ErrorCode::mismatch, "rank 3 has another optimizer than rank 2");
    alike("shapes", in_pairs([](auto& pair, bool culprit) {
              Model model;
              if (culprit) model.weights.resize(5), model.slopes.resize(5);
              un::Trainer trainer{pair, model, un::Sgd{}};
          }),
          un::ErrorCode::mismatch, "has 5 elements on rank 3 and 4 on rank 2");
    alike("verify_replicas", in_pairs([](auto& pair, bool culprit) {
              Model model;
              un::Trainer trainer{pair, model, un::Sgd{}};
              if (culprit) model.weights[2] = 7;
              trainer.verify_replicas();
          }),
          un::ErrorCode::mismatch, "differs between rank 2 and rank 3");
    alike("state_hash", in_pairs([](auto& pair, bool culprit) {
              Model model;
              un::Trainer trainer{pair, model, un::Sgd{}};
              if (culprit) model.weights[2] = 7;
              static_cast<void>(un::state_hash(trainer));
          }),
          un::ErrorCode::mismatch, "differs between rank 2 and rank 3");
}

BOOST_AUTO_TEST_CASE(a_rank_that_throws_is_named_by_the_worlds_number) {
    check_blamed("the model throws", in_pairs([](auto& pair, bool culprit) {
                     Model model;
                     model.throws = culprit;
                     un::Trainer trainer{pair, model, un::Sgd{}};
                     trainer.step(1.0f);
                 }),
                 un::ErrorCode::aborted, "rank 3 threw: no such sample");
}

BOOST_AUTO_TEST_SUITE_END()
