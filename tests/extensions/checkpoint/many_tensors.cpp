// Models of many tensors. The tests count that work grows with their number, not with its square.
#include "../../support/folder.hpp"

#include "unisono/extensions/checkpoint/checkpoints.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace un = unisono;
using unisono_test::Folder;

namespace {

constexpr std::size_t tensors = 200;

/// Counts the steps of all walks through its elements.
struct Counted {
    struct Iterator {
        std::vector<float>* at;
        std::size_t* steps;

        std::vector<float>& operator*() const { return *at; }
        Iterator& operator++() {
            ++*steps;
            ++at;
            return *this;
        }
        friend bool operator==(const Iterator& a, const Iterator& b) { return a.at == b.at; }
    };
    std::vector<std::vector<float>> all = std::vector<std::vector<float>>(tensors, std::vector<float>(2));
    std::size_t steps = 0;

    Iterator begin() { return {all.data(), &steps}; }
    Iterator end() { return {all.data() + all.size(), &steps}; }
};

struct Many {
    std::vector<std::vector<float>> weights = std::vector<std::vector<float>>(tensors, std::vector<float>(40, 1.0f));
    std::vector<std::vector<float>> slopes = weights;
    Counted statistics = {};

    auto& parameters() { return weights; }
    auto& gradients() { return slopes; }
    Counted& buffers() { return statistics; }

    double operator()(int, un::Pass&) {
        for (auto& one : slopes)
            for (float& slope : one) slope += 0.1f;
        for (auto& one : statistics.all) one[0] += 1, one[1] -= 1;
        return 0;
    }
};

/// Each rank owns a slice of each bucket, which has two tensors.
template <class World>
auto trainer_of(World& world, Many& model) {
    return un::Trainer{world, model, un::StateSharding{}, un::Buckets{.first_bytes = 300, .bytes = 300}, un::Adam{}};
}

/// A trainer that counts how often it is asked for its slices.
template <class Trainer>
struct Asked : Trainer {
    using Trainer::Trainer;
    mutable std::size_t times = 0;

    [[nodiscard]] std::span<const un::Slice> owned() const {
        ++times;
        return Trainer::owned();
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_many_tensors)

BOOST_AUTO_TEST_CASE(resume_does_not_walk_through_all_buffers_or_slices_for_each_tensor) {
    const Folder folder;
    std::vector<std::size_t> steps(2), asked(2), slices(2);
    std::vector<Many> saved(2), again(2);
    un::run<un::InProcess>(2, [&](auto& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        auto trainer = trainer_of(world, saved[rank]);
        trainer.step(1);
        un::Checkpoints checkpoints(folder.path());
        const std::string name = checkpoints.save(trainer);
        slices[rank] = trainer.state().owned().size();

        using Trainer = Asked<decltype(trainer)>;
        Trainer other{world, again[rank], un::StateSharding{}, un::Buckets{.first_bytes = 300, .bytes = 300},
                      un::Adam{}};
        again[rank].statistics.steps = 0;
        checkpoints.resume(other);
        steps[rank] = again[rank].statistics.steps;
        asked[rank] = other.times;
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
        BOOST_TEST_REQUIRE(slices[rank] > tensors / 4);
        BOOST_TEST(steps[rank] <= 20 * tensors);
        BOOST_TEST(asked[rank] <= 20u);
        BOOST_TEST((again[rank].weights == saved[rank].weights));
        BOOST_TEST((again[rank].statistics.all == saved[rank].statistics.all));
    }
}

BOOST_AUTO_TEST_SUITE_END()
