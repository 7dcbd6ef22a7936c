// Clipping applies to the gradient of the whole update, whichever rank holds which part. The
// reference is a serial loop in double.
#include "models.hpp"
#include "outcomes.hpp"

#include "support/owners_or_all.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace unisono_clipping {

namespace un = unisono;

/// Some buckets belong to all ranks and some are cut. Each element must be counted once.
struct EveryOther {
    static constexpr std::string_view name = "every other";
    static constexpr un::Family family = un::Family::sharding;
    static constexpr bool gives_owners = true;
    friend bool operator==(const EveryOther&, const EveryOther&) = default;
    [[nodiscard]] un::Owners owners(const un::BucketFacts& facts) const {
        return facts.index % 2 == 0 ? un::Owners::everyone(facts.count, facts.world)
                                    : un::Owners::equal(facts.count, facts.world);
    }
};

} // namespace unisono_clipping

namespace {

namespace un = unisono;
using namespace unisono_test;
using unisono_clipping::EveryOther;

constexpr std::size_t count = 131;
constexpr std::array<std::size_t, 5> sizes = {37, 1, 0, 64, 29};
constexpr int updates = 6;
constexpr double rate = 0.05;
constexpr double momentum = 0.9;

double initial(std::size_t i) { return std::sin(0.7 * static_cast<double>(i + 1)); }
double slope(int seed, std::size_t i, double x) {
    return std::sin(13.1 * seed + 0.37 * static_cast<double>(i)) * (1.5 + x) * std::exp2(seed % 5 - 2);
}
int seed_of(int update, int rank, int micro_batch) { return 10 * update + rank + 100 * micro_batch; }

/// In ranges with gaps between them, or in one range in the group's memory.
struct Model {
    std::vector<double> values, slopes;
    un::Memory<double> shared;
    std::vector<std::span<double>> spans, gradient_spans;

    template <class World>
    Model(World& world, bool in_group) {
        const std::size_t gap = in_group ? 0 : 3;
        const std::size_t room = count + gap * sizes.size();
        if (in_group) shared = world.template allocate<double>(2 * room);
        else values.resize(room), slopes.resize(room);
        double* value = in_group ? shared.data() : values.data();
        double* gradient = in_group ? shared.data() + room : slopes.data();
        std::size_t at = 0;
        for (const std::size_t size : sizes) {
            spans.push_back({value, size});
            gradient_spans.push_back({gradient, size});
            value += size + gap;
            gradient += size + gap;
            for (double& x : spans.back()) x = initial(at++);
        }
    }
    std::vector<std::span<double>>& parameters() { return spans; }
    std::vector<std::span<double>>& gradients() { return gradient_spans; }
    double operator()(const int& seed, un::Pass& pass) {
        std::size_t end = count;
        for (std::size_t p = spans.size(); p-- > 0;) {
            const std::size_t begin = end - spans[p].size();
            for (std::size_t i = 0; i < spans[p].size(); ++i)
                gradient_spans[p][i] += slope(seed, begin + i, spans[p][i]);
            pass.ready(p);
            end = begin;
        }
        return 1;
    }
};

struct Course {
    std::array<double, count> values;
    std::array<double, updates> norms;
};

/// The rank that has no data in this update.
bool is_without(bool uneven, int update, int rank, int ranks) {
    return uneven && ranks > 1 && update % 3 == 1 && rank == ranks - 1;
}

/// All micro-batches in sequence, clipped by `max_norm` or by `limit`.
Course serial(int ranks, int micro_batches, bool uneven, double max_norm, double limit) {
    Course course;
    std::array<double, count> velocity{};
    for (std::size_t i = 0; i < count; ++i) course.values[i] = initial(i);
    for (int update = 0; update < updates; ++update) {
        std::array<double, count> mean{};
        int hosted = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            if (is_without(uneven, update, rank, ranks)) continue;
            for (int m = 0; m < micro_batches; ++m, ++hosted)
                for (std::size_t i = 0; i < count; ++i) mean[i] += slope(seed_of(update, rank, m), i, course.values[i]);
        }
        double squares = 0;
        for (double& g : mean) g /= hosted;
        for (const double g : mean) squares += g * g;
        const double norm = std::sqrt(squares);
        course.norms[static_cast<std::size_t>(update)] = norm;
        for (std::size_t i = 0; i < count; ++i) {
            const double g =
                max_norm > 0 ? mean[i] * std::min(1.0, max_norm / (norm + 1e-6)) : std::clamp(mean[i], -limit, limit);
            velocity[i] = update == 0 ? g : momentum * velocity[i] + g;
            course.values[i] -= rate * velocity[i];
        }
    }
    return course;
}

template <class Clipping, class... Policies>
void check_course(const Clipping& clipping, const Policies&... policies) {
    double max_norm = 0;
    double limit = 0;
    if constexpr (Clipping::measures_norm) max_norm = clipping.max_norm;
    else limit = clipping.limit;
    for (const int ranks : {1, 2, 3, 5})
        for (const bool in_group : {false, true})
            for (const int micro_batches : {1, 3}) {
                const bool uneven = in_group;
                const test::Shared<std::array<Course, 5>> courses;
                const auto all = outcomes(ranks, [&](auto& world) {
                    Course& mine = courses->at(static_cast<std::size_t>(world.rank()));
                    Model model(world, in_group);
                    un::Trainer trainer{world,
                                        model,
                                        un::Sgd{.learning_rate = rate, .momentum = momentum},
                                        clipping,
                                        un::Buckets{.first_bytes = 200, .bytes = 400},
                                        policies...};
                    for (int update = 0; update < updates; ++update) {
                        const auto seed = [&](int m) { return seed_of(update, world.rank(), m); };
                        un::UpdateReport report;
                        if (is_without(uneven, update, world.rank(), ranks)) report = trainer.step();
                        else if (micro_batches == 1) report = trainer.step(seed(0));
                        else report = trainer.step(seed(0), seed(1), seed(2));
                        mine.norms[static_cast<std::size_t>(update)] = report.gradient_norm;
                    }
                    trainer.verify_replicas();
                    std::size_t at = 0;
                    for (const auto& one : model.spans)
                        for (const double x : one) mine.values[at++] = x;
                });
                BOOST_TEST_CONTEXT(ranks << " ranks, " << micro_batches << " micro-batches, in group " << in_group) {
                    for (const Outcome& one : all) BOOST_TEST(!one.failed, one.what);
                    const Course expected = serial(ranks, micro_batches, uneven, max_norm, limit);
                    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
                        const Course& one = courses->at(rank);
                        BOOST_TEST(std::memcmp(&one, &courses->at(0), sizeof one) == 0,
                                   "rank " << rank << " has other bits");
                        for (std::size_t u = 0; u < updates; ++u) {
                            const double norm = Clipping::measures_norm ? expected.norms[u] : 0;
                            BOOST_TEST(std::abs(one.norms[u] - norm) <= 1e-12 * norm,
                                       "norm " << one.norms[u] << ", expected " << norm);
                        }
                        for (std::size_t i = 0; i < count; ++i)
                            BOOST_TEST(std::abs(one.values[i] - expected.values[i]) < 1e-11,
                                       "element " << i << " is " << one.values[i] << ", expected "
                                                  << expected.values[i]);
                    }
                }
            }
}

/// Its gradient is its input.
struct Given {
    std::vector<double> weights = std::vector<double>(2), gradient = std::vector<double>(2);
    std::span<double> parameters() { return weights; }
    std::span<double> gradients() { return gradient; }
    double operator()(const std::array<double, 2>& given, un::Pass&) {
        for (std::size_t i = 0; i < 2; ++i) gradient[i] += given[i];
        return 0;
    }
};
const un::Sgd plain{.learning_rate = 1};
constexpr double infinity = std::numeric_limits<double>::infinity();

} // namespace

BOOST_AUTO_TEST_SUITE(clipping)

BOOST_AUTO_TEST_CASE(by_norm_beside_a_serial_loop) {
    const un::ClipByNorm clip{.max_norm = 3};
    check_course(clip);
    check_course(clip, un::StateSharding{});
    check_course(clip, test::OwnersOrAll{.sharded = true});
    check_course(clip, EveryOther{});
}

BOOST_AUTO_TEST_CASE(by_value_beside_a_serial_loop) {
    const un::ClipByValue clip{.limit = 0.25};
    check_course(clip);
    check_course(clip, un::StateSharding{});
}

// The results of torch.nn.utils.clip_grad_norm_ and clip_grad_value_ for these gradients, computed
// by hand.
BOOST_AUTO_TEST_CASE(values_by_hand) {
    un::run<un::InProcess>(1, [](auto& world) {
        {
            Given model;
            un::Trainer trainer{world, model, plain, un::ClipByNorm{.max_norm = 1}};
            const un::UpdateReport report = trainer.step(std::array{3.0, -4.0});
            BOOST_TEST(report.gradient_norm == 5.0);
            BOOST_TEST(std::abs(model.weights[0] + 3 / 5.000001) < 1e-15);
            BOOST_TEST(std::abs(model.weights[1] - 4 / 5.000001) < 1e-15);
            const double before = model.weights[0];
            // Below the limit: unchanged.
            BOOST_TEST(trainer.step(std::array{0.5, 0.0}).gradient_norm == 0.5);
            BOOST_TEST(model.weights[0] == before - 0.5);
            BOOST_TEST(trainer.step(std::array{0.0, 0.0}).committed);
            // 1 / (1 + 1e-6) is less than 1, so a gradient at the limit becomes a millionth
            // shorter.
            trainer.step(std::array{0.0, 1.0});
            BOOST_TEST(std::abs(model.weights[1] - (4 / 5.000001 - 1 / 1.000001)) < 1e-15);
        }
        Given model;
        un::Trainer trainer{world, model, plain, un::ClipByValue{.limit = 0.5}};
        BOOST_TEST(trainer.step(std::array{0.75, -8.0}, std::array{0.25, 1.0}).gradient_norm == 0.0);
        // The mean of both is at the limit. Each of them is not.
        BOOST_TEST(model.weights[0] == -0.5);
        BOOST_TEST(model.weights[1] == 0.5);
        trainer.step(std::array{-0.25, 0.125});
        BOOST_TEST(model.weights[0] == -0.25);
        BOOST_TEST(model.weights[1] == 0.375);
    });
}

BOOST_AUTO_TEST_CASE(an_infinite_limit_watches_only) {
    un::run<un::InProcess>(1, [](auto& world) {
        Given model;
        un::Trainer trainer{world, model, plain, un::ClipByNorm{.max_norm = infinity}};
        BOOST_TEST(trainer.step(std::array{3.0, 4.0}).gradient_norm == 5.0);
        BOOST_TEST(model.weights[0] == -3.0);
    });
}

namespace {

/// Each rank's gradient is finite. The norm of their sum is not.
template <class... Policies>
void check_infinite(bool skips, const Policies&... policies) {
    for (const int ranks : {1, 3}) {
        const auto all = outcomes(ranks, [&](auto& world) {
            Given model;
            un::Trainer trainer{world, model, plain, un::ClipByNorm{.max_norm = 1}, policies...};
            trainer.step(std::array{0.25, 0.0});
            bool thrown = false;
            try {
                const un::UpdateReport report = trainer.step(std::array{0.0, 1e200});
                if (report.committed || !std::isinf(report.gradient_norm)) throw std::runtime_error("committed");
            } catch (const un::error& failed) {
                const std::string text = failed.what();
                if (failed.code() != un::ErrorCode::not_finite ||
                    text.find("the norm of the gradient is inf, in update 2") == std::string::npos)
                    throw;
                thrown = true;
            }
            if (thrown == skips) throw std::runtime_error("outcome");
            if (model.weights[0] != -0.25 || model.weights[1] != 0) throw std::runtime_error("changed");
            if (!trainer.step(std::array{0.25, 0.0}).committed || model.weights[0] != -0.5)
                throw std::runtime_error("does not go on");
            trainer.verify_replicas();
        });
        for (const Outcome& one : all) BOOST_TEST(!one.failed, one.what);
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(a_norm_that_is_not_finite_stops_or_skips_all_ranks) {
    check_infinite(false);
    check_infinite(true, un::FiniteGuard{.action = un::OnOffence::skip}, un::StateSharding{});
    check_infinite(false, un::NoGuard{});
}

// A guard leaves out the update before its norm is measured: the report has none, and not the norm
// of the update before.
BOOST_AUTO_TEST_CASE(an_update_that_is_left_out_reports_no_norm) {
    un::run<un::InProcess>(1, [](auto& world) {
        Given model;
        un::Trainer trainer{world, model, plain, un::ClipByNorm{.max_norm = 9},
                            un::FiniteGuard{.action = un::OnOffence::skip}};
        BOOST_TEST(trainer.step(std::array{3.0, 4.0}).gradient_norm == 5.0);
        const un::UpdateReport left_out = trainer.step(std::array{infinity, 0.0});
        BOOST_TEST(!left_out.committed);
        BOOST_TEST(left_out.gradient_norm == 0.0);
        BOOST_TEST(trainer.step(std::array{0.0, 2.0}).gradient_norm == 2.0);
    });
}

BOOST_AUTO_TEST_CASE(refuses_bad_limits_and_limits_that_differ) {
    const auto says = [](const auto& clip, const char* text) {
        for (const Outcome& one : outcomes(2, [&](auto& world) {
                 Given model;
                 un::Trainer trainer{world, model, clip(world.rank())};
             }))
            BOOST_TEST(one.says(text), one.what);
    };
    const auto norm = [](double x) { return [x](int) { return un::ClipByNorm{.max_norm = x}; }; };
    const auto value = [](double x) { return [x](int) { return un::ClipByValue{.limit = x}; }; };
    says(norm(0), "ClipByNorm.max_norm is 0.000000; expected more than 0");
    says(norm(-1), "ClipByNorm.max_norm is -1.000000; expected more than 0");
    says(norm(std::nan("")), "ClipByNorm.max_norm is nan; expected more than 0");
    says(value(infinity), "ClipByValue.limit is inf; expected a finite number above 0");
    says(value(0), "ClipByValue.limit is 0.000000; expected a finite number above 0");
    says([](int rank) { return un::ClipByNorm{.max_norm = 1.0 + rank}; }, "rank 1 has another clipping than rank 0");
}

BOOST_AUTO_TEST_SUITE_END()
