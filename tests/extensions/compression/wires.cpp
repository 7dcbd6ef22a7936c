// Wire formats by their laws: the same bits everywhere, errors within bounds, and nothing lost that
// error feedback keeps.
#include "../../base/trainer/models.hpp"
#include "../../base/trainer/outcomes.hpp"

#include "unisono/extensions/compression/adasum.hpp"
#include "unisono/extensions/compression/cast.hpp"
#include "unisono/extensions/compression/fp8.hpp"
#include "unisono/extensions/compression/int8.hpp"
#include "unisono/extensions/compression/one_bit.hpp"
#include "unisono/extensions/compression/power_sgd.hpp"
#include "unisono/extensions/compression/top_k.hpp"
#include "unisono/reducer/scheduled.hpp"
#include "unisono/simulate.hpp"
#include "unisono/trainer/trainer.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

const std::vector<un::Slice> buckets = {{700, 333}, {7, 693}, {0, 7}};
const std::vector<un::ParameterMatrix> parameters = {{{0, 7}}, {{7, 693}}, {{700, 333}}};
constexpr std::size_t count = 1033;
constexpr std::size_t width = 100'000;

double gradient_of(int rank, int update, std::size_t i) {
    const double phase = 0.7 * rank + 1.3 * update + 0.01 * static_cast<double>(i);
    return std::sin(phase) * std::exp2(static_cast<double>(i % 9) - 4);
}

/// Several updates of one wire format by itself: what each update sent, and the exact sums over all
/// ranks.
template <class T>
struct Sums {
    std::array<std::array<T, count>, 6> found, exact;
};

template <class T, class Policy, class Reducer>
void exchange(un::Group<test::Transport>& world, const Policy& policy, const Reducer& reducer, Sums<T>& sums,
              int updates) {
    auto wire = un::detail::start_compression<T>(policy, world, buckets, parameters);
    auto reduction = reducer.start(world);
    for (int update = 0; update < updates; ++update) {
        std::vector<T> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(gradient_of(world.rank(), update, i));
        for (std::size_t b = 0; b < buckets.size(); ++b) wire.begin(b, values.data() + buckets[b].first, reduction);
        wire.finish();
        const auto u = static_cast<std::size_t>(update);
        std::copy(values.begin(), values.end(), sums.found[u].begin());
        for (std::size_t i = 0; i < count; ++i) {
            T sum = 0;
            for (int rank = 0; rank < world.size(); ++rank) sum += static_cast<T>(gradient_of(rank, update, i));
            sums.exact[u][i] = sum;
        }
    }
}

/// Runs it on the given number of ranks, checks that all have the same bits, and returns rank 0's.
template <class T, class Policy, class Reducer = un::NativeReducer>
Sums<T> exchanged(int ranks, const Policy& policy, int updates, const Reducer& reducer = {}) {
    const test::Shared<std::array<Sums<T>, 5>> all;
    check_clean(outcomes(ranks, [&](auto& world) {
        exchange<T>(world, policy, reducer, all->at(static_cast<std::size_t>(world.rank())), updates);
    }));
    for (std::size_t rank = 1; rank < static_cast<std::size_t>(ranks); ++rank)
        BOOST_TEST((all->at(rank).found == all->at(0).found), "rank " << rank << " has other bits than rank 0");
    return all->at(0);
}

/// The difference between exact and sent sums after the given number of updates, relative to the
/// largest exact sum.
template <class T>
double missing(const Sums<T>& sums, std::size_t updates) {
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        double found = 0, exact = 0;
        for (std::size_t u = 0; u < updates; ++u) {
            found += static_cast<double>(sums.found[u][i]);
            exact += static_cast<double>(sums.exact[u][i]);
            largest = std::max(largest, std::abs(static_cast<double>(sums.exact[u][i])));
        }
        worst = std::max(worst, std::abs(found - exact));
    }
    return worst / largest;
}

template <class Policy>
void check_feedback(const Policy& with, const Policy& without, double bound, double without_at_least) {
    BOOST_TEST_CONTEXT(Policy::name) {
        for (const int ranks : {1, 2, 3, 5}) {
            BOOST_TEST(missing(exchanged<float>(ranks, with, 1), 1) <= bound);
            BOOST_TEST(missing(exchanged<float>(ranks, with, 6), 6) <= bound);
            BOOST_TEST(missing(exchanged<double>(ranks, with, 6), 6) <= bound);
        }
        if (with == without) return;
        BOOST_TEST(missing(exchanged<float>(3, without, 6), 6) >= without_at_least);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(wires)

BOOST_AUTO_TEST_CASE(errors_stay_within_their_bounds_and_do_not_add_up) {
    // Half a unit of 8 and 11 bits per rank, and the same again for each sum's rounding; half of
    // 1/127 per rank and for the sum.
    check_feedback(un::Fp16Wire{}, un::Fp16Wire{.error_feedback = false}, 6 * 0x1p-11, 0x1p-11);
    check_feedback(un::Int8Wire{}, un::Int8Wire{.error_feedback = false}, 3.0 / 254 + 1e-6, 3.0 / 254);
    check_feedback(un::Int8Wire{.block = 16}, un::Int8Wire{.block = 16}, 3.0 / 254 + 1e-6, 0);
}

BOOST_AUTO_TEST_CASE(what_a_cast_keeps_is_sent_later) {
    // On one rank only the cast rounds: what was sent differs from the gradients by the remainder,
    // half a unit.
    const auto sums = exchanged<float>(1, un::Bf16Wire{}, 6);
    BOOST_TEST(missing(sums, 6) <= 0x1p-8);
    const auto lossy = exchanged<float>(1, un::Bf16Wire{.error_feedback = false}, 6);
    for (std::size_t i = 0; i < count; ++i)
        BOOST_TEST(lossy.found[2][i] == static_cast<float>(un::bfloat16(lossy.exact[2][i])));
}

BOOST_AUTO_TEST_CASE(every_reducer_carries_a_cast) {
    for (const int ranks : {2, 3, 4}) {
        const double bound = 2.0 * ranks * 0x1p-8;
        BOOST_TEST(missing(exchanged<float>(ranks, un::Bf16Wire{}, 3, un::RingReducer{}), 3) <= bound);
        BOOST_TEST(missing(exchanged<float>(ranks, un::Bf16Wire{}, 3, un::TreeReducer{}), 3) <= bound);
    }
}

BOOST_AUTO_TEST_CASE(all_of_the_largest_is_the_sum) {
    const auto sums = exchanged<float>(3, un::TopK{.fraction = 1}, 2);
    BOOST_TEST(missing(sums, 2) <= 1e-6);
}

BOOST_AUTO_TEST_CASE(the_largest_go_first_and_the_rest_follows) {
    const auto sums = exchanged<float>(1, un::TopK{.fraction = 0.1}, 1);
    for (const un::Slice& bucket : buckets) {
        std::vector<float> sizes;
        std::size_t sent = 0;
        for (std::size_t i = bucket.first; i < bucket.end(); ++i) {
            sizes.push_back(std::abs(sums.exact[0][i]));
            if (sums.found[0][i] == 0) continue;
            ++sent;
            BOOST_TEST(sums.found[0][i] == sums.exact[0][i]);
        }
        std::sort(sizes.rbegin(), sizes.rend());
        const std::size_t wanted = std::max<std::size_t>(1, bucket.count / 10);
        BOOST_TEST(sent == wanted);
        for (std::size_t i = bucket.first; i < bucket.end(); ++i)
            if (std::abs(sums.exact[0][i]) > sizes[wanted - 1]) BOOST_TEST(sums.found[0][i] == sums.exact[0][i]);
    }
    // All elements have one value, and there is nothing else to send: everything is sent after the
    // expected number of updates.
    check_clean(outcomes(2, [](auto& world) {
        auto wire = un::TopK{.fraction = 0.25}.start<double>(world, std::span<const un::Slice>(buckets));
        auto reduction = un::NativeReducer{}.start(world);
        std::vector<double> total(count);
        for (int update = 0; update < 5; ++update) {
            std::vector<double> values(count, update == 0 ? 0.5 : 0.0);
            for (std::size_t b = 0; b < buckets.size(); ++b) wire.begin(b, values.data() + buckets[b].first, reduction);
            wire.finish();
            for (std::size_t i = 0; i < count; ++i) total[i] += values[i];
        }
        // In the bucket of 7, one at a time.
        for (std::size_t i = 7; i < count; ++i)
            if (total[i] != 1) throw std::runtime_error("element " + std::to_string(i) + " did not come");
    }));
}

BOOST_AUTO_TEST_CASE(what_float16_cannot_hold_comes_later) {
    const auto check = [](int ranks, const auto& reducer) {
        check_clean(outcomes(ranks, [&](auto& world) {
            const std::vector<un::Slice> all = {{0, 3}};
            auto wire = un::Fp16Wire{}.start<float>(world, std::span<const un::Slice>(all));
            auto reduction = reducer.start(world);
            std::vector<double> total(3);
            const int updates = 2 * world.size() + 1;
            for (int update = 0; update < updates; ++update) {
                std::vector<float> values = {update == 0 ? 100'000.f : 0.f, update == 0 ? -65'504.f : 0.f, 1};
                wire.begin(0, values.data(), reduction);
                wire.finish();
                for (std::size_t i = 0; i < 3; ++i) {
                    if (!std::isfinite(values[i])) throw std::runtime_error("overflow");
                    total[i] += static_cast<double>(values[i]);
                }
            }
            const double expected[] = {100'000, -65'504, static_cast<double>(updates)};
            // More addends are rounded on the way.
            const double bound = world.size() == 2 ? 0 : 1e-3;
            for (std::size_t i = 0; i < 3; ++i)
                if (std::abs(total[i] / world.size() - expected[i]) > bound * std::abs(expected[i]))
                    throw std::runtime_error("lost: " + std::to_string(total[i]));
        }));
    };
    for (const int ranks : {2, 3, 5, 6, 7}) {
        BOOST_TEST_CONTEXT(ranks << " ranks") {
            check(ranks, un::NativeReducer{});
            check(ranks, un::RingReducer{});
            check(ranks, un::TreeReducer{});
        }
    }
}

BOOST_AUTO_TEST_CASE(no_order_of_adding_overflows) {
    // Each multiple of the bound, up to the number of ranks, is a number of the format, so no sum
    // is rounded above it.
    const auto check = [](auto half, int most_ranks) {
        using Half = decltype(half);
        for (int ranks = 1; ranks <= most_ranks; ++ranks)
            for (int k = 1; k <= ranks; ++k) {
                const float sum = un::CastWire<Half>::most(ranks) * static_cast<float>(k);
                if (static_cast<float>(Half(sum)) != sum) return ranks;
            }
        return 0;
    };
    BOOST_TEST(check(un::float16{}, 300) == 0);
    BOOST_TEST(check(un::bfloat16{}, 255) == 0);
    // Over more ranks: the largest sum for each number of addends, over all ways to form it.
    const auto grown = [](auto half, std::size_t ranks) {
        using Half = decltype(half);
        std::vector<float> largest(ranks + 1);
        largest[1] = static_cast<float>(Half(un::CastWire<Half>::most(static_cast<int>(ranks))));
        for (std::size_t k = 2; k <= ranks; ++k)
            for (std::size_t a = 1; 2 * a <= k; ++a)
                largest[k] = std::max(largest[k], static_cast<float>(Half(largest[a] + largest[k - a])));
        return largest[ranks];
    };
    BOOST_TEST(std::isfinite(grown(un::bfloat16{}, 777)));
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_is_not_hidden) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto check = [&](const auto& policy) {
        for (const float bad : {infinity, -infinity, nan})
            check_clean(outcomes(2, [&](auto& world) {
                const std::vector<un::Slice> all = {{0, 40}};
                const std::vector<un::ParameterMatrix> one_matrix = {{{0, 40}, 8}};
                auto wire = un::detail::start_compression<float>(policy, world, all, one_matrix);
                auto reduction = un::NativeReducer{}.start(world);
                for (int update = 0; update < 2; ++update) {
                    std::vector<float> values(40, 1.0f);
                    if (update == 0 && world.rank() == 1) values[11] = bad;
                    wire.begin(0, values.data(), reduction);
                    wire.finish();
                    if (update == 0 && std::isfinite(values[11])) throw std::runtime_error("hidden");
                    if (update == 1 &&
                        !std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }))
                        throw std::runtime_error("it stays");
                }
            }));
    };
    check(un::Bf16Wire{});
    check(un::Fp16Wire{});
    check(un::Fp16Wire{.error_feedback = false});
    check(un::Int8Wire{});
    check(un::Int8Wire{.error_feedback = false});
    check(un::Fp8Wire{});
    check(un::OneBit{});
    check(un::TopK{.fraction = 0.1});
    check(un::PowerSgd{.rank = 1});
    check(un::Adasum{});
}

BOOST_AUTO_TEST_CASE(doubles_that_no_float_holds_come_later) {
    const auto check = [](const auto& policy, int updates, double bound) {
        BOOST_TEST_CONTEXT(policy.name)
        check_clean(outcomes(2, [&](auto& world) {
            const std::vector<un::Slice> all = {{0, 8}};
            auto wire = policy.template start<double>(world, std::span<const un::Slice>(all));
            auto reduction = un::NativeReducer{}.start(world);
            double total = 0;
            for (int update = 0; update < updates; ++update) {
                std::vector<double> values(8);
                if (update == 0) values[5] = -1e39;
                wire.begin(0, values.data(), reduction);
                wire.finish();
                for (const double x : values)
                    if (!std::isfinite(x)) throw std::runtime_error("not finite");
                total += values[5] / 2;
            }
            if (!(bound == 0 ? total <= -16'000 && total >= -65'504 : std::abs(total / -1e39 - 1) <= bound))
                throw std::runtime_error("lost: " + std::to_string(total));
        }));
    };
    check(un::Bf16Wire{}, 8, 0.01);
    check(un::Fp16Wire{.error_feedback = false}, 1, 0); // limited to what the sum of two can hold, and dropped
    check(un::Int8Wire{.block = 8}, 12, 1e-6);
    check(un::Fp8Wire{.block = 8}, 8, 1e-6);
    check(un::OneBit{.block = 8}, 40, 0.01);
    check(un::TopK{.fraction = 0.2}, 4, 1e-6);
}

BOOST_AUTO_TEST_CASE(one_bit_stands_for_the_mean_of_its_sign) {
    const std::array<float, 5> values = {1, -6, 2, -4, 3};
    std::array<float, 5> left{}, found{};
    std::vector<std::byte> wire(un::detail::OneBitCodec::bytes(values.size()));
    un::detail::OneBitCodec::encode(values.data(), left.data(), values.size(), wire.data());
    un::detail::OneBitCodec::decode<false>(wire.data(), found.size(), found.data());
    BOOST_TEST((found == std::array<float, 5>{2, -5, 2, -5, 2}));
    BOOST_TEST((left == std::array<float, 5>{-1, -1, 0, 1, 1}));
}

BOOST_AUTO_TEST_CASE(as_many_bytes_as_promised) { // counted where they are sent
    constexpr int ranks = 4;
    const auto bytes = [](const auto&... policies) {
        const auto body = [&](auto& world) {
            SumOfOutputs<float> model(width);
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.01}, policies...};
            const std::vector<float> row(width, 1.0f);
            const un::RowData<float> data(row, width);
            const std::array<std::size_t, 1> first = {0};
            for (int i = 0; i < 10; ++i) trainer.step(data.batch(first));
        };
        const auto nothing = [&](auto& world) {
            SumOfOutputs<float> model(width);
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.01}, policies...};
        };
        return static_cast<double>(un::simulate(ranks, {}, body).bytes - un::simulate(ranks, {}, nothing).bytes);
    };
    const double plain = bytes();
    // At least as much is saved as promised, and no more than the format leaves room for.
    const auto check = [&](double saved, double least, double most) {
        BOOST_TEST((saved >= least && saved <= most), saved);
    };
    check(plain / bytes(un::Bf16Wire{}), 1.99, 2);
    check(plain / bytes(un::Fp16Wire{}), 1.99, 2);
    check(plain / bytes(un::Int8Wire{}), 3.9, 4);
    check(plain / bytes(un::Fp8Wire{}), 3.9, 4);
    check(plain / bytes(un::OneBit{}), 25, 32);
    // Of 316 x 317 elements, 4 x 633 are sent. The transport's best schedule for so few is direct:
    // twice the bytes, a third of the latency.
    check(plain / bytes(un::PowerSgd{}, un::RingReducer{}), 38, 39.6);
    check(plain / bytes(un::PowerSgd{}), 19, 19.8);
    check(plain / bytes(un::Adasum{}), 0.99, 1.01); // up a tree and down again
    // Each rank sends a hundredth to all ranks: 3 x 8 bytes of 100, instead of 2 x 3/4 x 4 bytes.
    check(plain / bytes(un::TopK{}), 24, 25);
}

BOOST_AUTO_TEST_CASE(bad_parameters_are_refused) {
    const auto refusal = [](const auto& policy) {
        return outcomes(1,
                        [&](auto& world) {
                            SumOfOutputs<float> model(4);
                            un::Trainer trainer{world, model, policy};
                        })[0]
            .what;
    };
    BOOST_TEST(refusal(un::Int8Wire{.block = 0}).find("int8 wire.block is 0; expected 1 to") != std::string::npos);
    BOOST_TEST(refusal(un::Fp8Wire{.block = 0}).find("fp8 wire.block is 0; expected 1 to") != std::string::npos);
    BOOST_TEST(refusal(un::OneBit{.block = 0}).find("1 bit.block is 0; expected 1 to") != std::string::npos);
    BOOST_TEST(refusal(un::PowerSgd{.rank = 0}).find("PowerSGD.rank is 0; expected 1 to 256") != std::string::npos);
    BOOST_TEST(refusal(un::TopK{.fraction = 0}).find("top-k.fraction is 0") != std::string::npos);
    BOOST_TEST(refusal(un::TopK{.fraction = std::nan("")}).find("top-k.fraction is") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
