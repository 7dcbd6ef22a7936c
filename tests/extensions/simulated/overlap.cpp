// An update whose reduction takes as long as its backward pass takes little longer than either.
// Virtual time is exact, and the same on every machine.
#include "../../../bench/support/layers.hpp"

#include <unisono/extensions/compression/cast.hpp>
#include <unisono/reducer/scheduled.hpp>
#include <unisono/simulate.hpp>
#include <unisono/trainer/trainer.hpp>

#include <boost/test/unit_test.hpp>

namespace un = unisono;

namespace {

struct Setting {
    int ranks = 2;
    std::size_t layers = 32, pieces = 1;
    bool says_ready = true;
};

/// Virtual nanoseconds for an update with 400 thousand floats, at 1 Gbit/s and 20 us.
template <class... Policies>
double update_ns(const Setting& setting, double backward_ns, const Policies&... policies) {
    const auto time = [&](int updates) {
        const auto report = un::simulate(setting.ranks, {.link = {20'000, 125e6}}, [&](auto& world) {
            const auto pass_time = [&](double part) {
                world.endpoint().compute(static_cast<un::nanoseconds>(backward_ns * part));
            };
            bench::Layers model(setting.layers, 400'000 / setting.layers, setting.pieces, setting.says_ready,
                                pass_time);
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}, un::Buckets{.first_bytes = 1, .bytes = 1},
                                policies...};
            for (int i = 0; i < updates; ++i) trainer.step(i);
        });
        return static_cast<double>(report.time);
    };
    return (time(3) - time(1)) / 2;
}

/// An update's time relative to the time of its reduction or its backward pass, which are equal.
template <class... Policies>
double ratio(const Setting& setting, const Policies&... policies) {
    const double reduction = update_ns(setting, 0, policies...);
    BOOST_TEST(reduction > 10e6);
    return update_ns(setting, reduction, policies...) / reduction;
}

} // namespace

// Useless with a sanitizer: one rank runs at a time.
BOOST_AUTO_TEST_SUITE(overlap, *boost::unit_test::label("slow"))

BOOST_AUTO_TEST_CASE(an_update_takes_little_longer_than_its_backward_pass_or_its_reduction) {
    BOOST_TEST(ratio({.ranks = 2}) <= 1.15);
    BOOST_TEST(ratio({.ranks = 2}, un::RingReducer{}) <= 1.15);
    BOOST_TEST(ratio({.ranks = 4, .pieces = 4}, un::RingReducer{}) <= 1.15);
    BOOST_TEST(ratio({.ranks = 4, .pieces = 4}, un::HalvingDoublingReducer{}) <= 1.15);
    BOOST_TEST(ratio({.ranks = 8, .pieces = 4}, un::HalvingDoublingReducer{}) <= 1.15);
}

BOOST_AUTO_TEST_CASE(without_it_they_add_up) { BOOST_TEST(ratio({.says_ready = false}) >= 1.95); }

BOOST_AUTO_TEST_CASE(a_model_of_few_layers_helps_by_telling_of_progress) {
    const double without = ratio({.ranks = 4, .layers = 8, .pieces = 1}, un::RingReducer{});
    const double with = ratio({.ranks = 4, .layers = 8, .pieces = 8}, un::RingReducer{});
    BOOST_TEST(without > 1.3);
    BOOST_TEST(with < 1.25);
}

BOOST_AUTO_TEST_SUITE_END()
