// Reducers and compressions of a program's own that ask no more of the trainer than their concepts
// say, and sums whose memory changes between updates.
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace un = unisono;

namespace own_runs_test { // named, so that clang does not ask for a use of each function
/// A batch is the gradient of all elements.
struct Line {
    std::vector<float> values = std::vector<float>(40), slopes = std::vector<float>(40);
    std::span<float> parameters() { return values; }
    std::span<float> gradients() { return slopes; }
    double operator()(double slope, un::Pass&) {
        for (float& x : slopes) x += static_cast<float>(slope);
        return slope;
    }
};

/// Sums float and double only, without templates. Its run cannot move.
struct PlainReducer {
    static constexpr std::string_view name = "plain";
    static constexpr un::Family family = un::Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = false;
    friend bool operator==(const PlainReducer&, const PlainReducer&) = default;

    struct Run {
        using World = un::Group<un::InProcess>;
        std::mutex stays_where_it_is = {};
        un::Operation sum(World& group, std::span<float> all) { return un::start_all_reduce(group, all); }
        un::Operation sum(World& group, std::span<double> all) { return un::start_all_reduce(group, all); }
    };
    static Run start(un::Group<un::InProcess>&) { return {}; }
};

/// Owners of all buckets but the small ones; its run has no `sum`.
struct OwnersReducer {
    static constexpr std::string_view name = "owners";
    static constexpr un::Family family = un::Family::reducer;
    static constexpr bool gives_owners = true;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const OwnersReducer&, const OwnersReducer&) = default;

    static un::Owners owners(const un::BucketFacts& facts) { return un::Owners::everyone(facts.count, facts.world); }
    struct Run {
        template <class World, class Values>
        un::Operation sum_to(World& group, Values all, int owner) const {
            return un::start_reduce(group, all, all, owner);
        }
        template <class World, class Values>
        un::Operation publish(World& group, Values all, int owner) const {
            return un::start_broadcast(group, all, owner);
        }
    };
    template <class World>
    static Run start(World&) {
        return {};
    }
};

/// Sums in double, over the trainer's group or, which is refused, over another one.
struct WideWire {
    bool elsewhere = false;

    static constexpr std::string_view name = "wide wire";
    static constexpr un::Family family = un::Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = false;
    friend bool operator==(const WideWire&, const WideWire&) = default;
    void check() const {}

    template <class World, class T>
    class Run {
    public:
        Run(World& world, std::span<const un::Slice> buckets, bool elsewhere)
            : world_(&world), buckets_(buckets.begin(), buckets.end()) {
            if (elsewhere) other_.emplace(world.split(0, world.rank()));
        }
        template <class Reduction>
        void begin(std::size_t b, T* values, Reduction& reduction) {
            wide_.assign(values, values + buckets_[b].count);
            values_ = values;
            sum_ = reduction.sum(other_ ? *other_ : *world_, std::span<double>(wide_));
        }
        void finish() {
            sum_.wait();
            for (std::size_t i = 0; i < wide_.size(); ++i) values_[i] = static_cast<T>(wide_[i]);
        }
        void forget() {}
        [[nodiscard]] std::size_t bytes() const { return wide_.size() * sizeof(double); }

    private:
        World* world_;
        std::optional<World> other_;
        std::vector<un::Slice> buckets_;
        std::vector<double> wide_;
        T* values_ = nullptr;
        un::Operation sum_;
    };
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const un::Slice> buckets) const {
        return {world, buckets, elsewhere};
    }
};

} // namespace own_runs_test

namespace {

using namespace own_runs_test;

/// Two updates on two ranks; what a rank throws, or its first parameter.
template <class... Policies>
std::string trained(const Policies&... policies) {
    std::string outcome;
    un::run<un::InProcess>(2, [&](auto& world) {
        std::string own;
        try {
            Line model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.5}, policies...};
            trainer.step(1.0 + world.rank());
            trainer.step(1.0 + world.rank());
            own = std::to_string(model.values[7]);
        } catch (const un::error& found) {
            own = found.what();
        }
        if (world.rank() == 0) outcome = own;
    });
    return outcome;
}

const std::string two_updates = std::to_string(-1.5F); // two steps of 0.5 times the mean of 1 and 2

} // namespace

BOOST_AUTO_TEST_SUITE(own_runs)

BOOST_AUTO_TEST_CASE(a_reducer_of_two_functions_whose_run_stays) { BOOST_TEST(trained(PlainReducer{}) == two_updates); }

BOOST_AUTO_TEST_CASE(an_owner_that_is_nobody) {
    const std::string found = trained(OwnersReducer{});
    BOOST_TEST(found.find("the reducer's run has no `sum`") != std::string::npos, found);
}

BOOST_AUTO_TEST_CASE(a_compression_that_sums_another_type) {
    BOOST_TEST(trained(WideWire{}) == two_updates);
    BOOST_TEST(trained(WideWire{}, un::RingReducer{}) == two_updates);
    BOOST_TEST(trained(WideWire{}, PlainReducer{}) == two_updates);
}

BOOST_AUTO_TEST_CASE(a_compression_that_sums_over_another_group) {
    const std::string found = trained(WideWire{.elsewhere = true});
    BOOST_TEST(found.find("a compression sums over another group than the trainer's") != std::string::npos, found);
}

/// The gradient travels from the model's memory or from the trainer's array, in turns.
BOOST_AUTO_TEST_CASE(sums_whose_memory_changes) {
    const auto ways = [](const auto& reducer) {
        un::run<un::InProcess>(2, [&](auto& world) {
            Line model;
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.25}, reducer};
            float expected = 0;
            for (int round = 0; round < 6; ++round) {
                const double slope = 1.0 + world.rank() + round;
                if (round % 3 == 0) trainer.step(slope);
                else trainer.step(slope, slope);
                expected -= 0.25F * (1.5F + static_cast<float>(round));
                for (const float found : model.values)
                    if (found != expected)
                        throw std::runtime_error("round " + std::to_string(round) + ": found " + std::to_string(found) +
                                                 ", expected " + std::to_string(expected));
            }
        });
    };
    BOOST_CHECK_NO_THROW(ways(un::NativeReducer{}));
    BOOST_CHECK_NO_THROW(ways(un::RingReducer{.chunk_bytes = 32}));
}

BOOST_AUTO_TEST_SUITE_END()
